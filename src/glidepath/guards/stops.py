"""Bad endings: a truncated answer, silence after an error, silence.

A new guard is a line in `guardrails_config.py` and a class here that names it as its `setting`.
"""

from __future__ import annotations

from typing import Any

from glidepath.spi import Recovery, Stop
from glidepath.values import Texts


class _StopGuard:
    name = ""
    setting = ""  # of `GuardrailsConfig`: how often it may try
    always = False  # whether it is asked even when it may not try at all
    __slots__ = ("_limit", "_state", "_texts")

    def __init__(self, limit: int, state: dict[str, Any], texts: Texts | None = None) -> None:
        self._limit = limit
        self._texts = texts or Texts()
        self._state = state
        if state and type(state.get("used")) is not int:
            state["used"] = 0

    def reset(self) -> None:
        """Progress was made: forget what was counted."""
        if self._state:
            self._state["used"] = 0

    new_run = reset

    def _is_empty(self, stop: Stop) -> bool:
        """True for a whole answer that shows nothing; one that shows something is counted from the beginning."""
        if stop.truncated:
            return False
        if any(char.isprintable() and not char.isspace() for char in stop.text):
            self.reset()
            return False
        return True

    def _use(self) -> bool:
        """Use one of the recoveries that are left."""
        used = self._state.get("used", 0)
        if used >= self._limit:
            return False
        self._state["used"] = used + 1
        return True


class TruncationGuard(_StopGuard):
    """Asks for the rest of an answer that was cut off."""

    name, setting = "max_tokens_recovery", "max_tokens_recoveries"
    __slots__ = ()

    def recover(self, stop: Stop) -> Recovery | None:
        """Continue where the answer stopped."""
        if self._is_empty(stop) or not stop.truncated:
            return None
        if stop.can_continue and self._use():
            return Recovery(reason=self.name, message=self._texts.fill("continuation"))
        return None


class PrematureEndGuard(_StopGuard):
    """Does not let a run end in silence right after a tool has failed."""

    name, setting = "premature_end", "max_premature_end_recoveries"
    __slots__ = ()

    def recover(self, stop: Stop) -> Recovery | None:
        """Ask the model about the error."""
        if self._is_empty(stop) and stop.recent_error and self._use():
            return Recovery(reason=self.name, message=self._texts.fill("premature_end"))
        return None


class EmptyAnswerGuard(_StopGuard):
    """Asks again after an empty answer, and never lets one pass for a success."""

    name, setting = "empty_answer", "max_empty_recoveries"
    always = True  # an empty answer is never a success
    __slots__ = ()

    def recover(self, stop: Stop) -> Recovery | None:
        """Ask for a text; when that was asked already, the run fails."""
        if not self._is_empty(stop):
            return None
        if self._use():
            return Recovery(reason=self.name, message=self._texts.fill("empty_answer"))
        return Recovery(reason=self.name, fail="the model's answer was empty")


STOP_GUARDS: tuple[type[_StopGuard], ...] = tuple(_StopGuard.__subclasses__())
"""Every stop guard, in the order in which they are asked."""
