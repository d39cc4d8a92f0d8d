"""The caller's control over a run: stop it, or ask it to finish up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# One for all tokens: it is held for a moment. A signal handler or a finalizer may run in that moment and cancel, too.
_lock = threading.RLock()


class CancelToken:
    """Stops runs from outside, from any thread. One token may serve many runs.

    `cancel()` stops at once and makes no further model call; `wind_down()` asks the runs to deliver and land.
    """

    __slots__ = ("_reason", "_runs", "_wind_down_reason")

    def __init__(self) -> None:
        self._runs: dict[Callable[[str, str], None], None] = {}  # thousands of runs may share a token
        self._reason: str | None = None
        self._wind_down_reason: str | None = None

    def __repr__(self) -> str:
        said = f"cancelled: {self._reason!r:.60}" if self._reason is not None else ""
        said = said or (f"winding down: {self._wind_down_reason!r:.60}" if self._wind_down_reason is not None else "")
        return f"<CancelToken {said}>" if said else "<CancelToken>"

    @property
    def cancelled(self) -> bool:
        """True once `cancel` was called."""
        return self._reason is not None

    @property
    def winding_down(self) -> bool:
        """True once `wind_down` was called."""
        return self._wind_down_reason is not None

    def cancel(self, reason: str = "") -> None:
        """Stop every run that holds this token, without another model call."""
        self._notify_runs("cancel", str(reason))

    def wind_down(self, reason: str = "") -> None:
        """Ask every run that holds this token to deliver what it has and land."""
        self._notify_runs("wind_down", str(reason))

    def _notify_runs(self, what: str, reason: str) -> None:
        with _lock:
            if what == "cancel":
                if self._reason is not None:
                    return
                self._reason = reason
            else:
                if self._wind_down_reason is not None:
                    return
                self._wind_down_reason = reason
            runs = [*self._runs]
        for tell in runs:
            tell(what, reason)

    def subscribe(self, tell: Callable[[str, str], None]) -> None:
        """Be told `(what, reason)` of every request, also of those already made."""
        with _lock:
            self._runs[tell] = None
            cancelled, winding_down = self._reason, self._wind_down_reason
        if cancelled is not None:
            tell("cancel", cancelled)
        if winding_down is not None:
            tell("wind_down", winding_down)

    def unsubscribe(self, tell: Callable[[str, str], None]) -> None:
        """Stop receiving requests."""
        with _lock:
            self._runs.pop(tell, None)
