"""The strategies a name can stand for."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath.context.groups import marker_size, select, view
from glidepath.context.measure import Estimate, char_estimate
from glidepath.errors import ConfigurationError
from glidepath.messages import Message
from glidepath.spi import ContextStrategy, Shaped

__all__ = ["Compact", "NoShaping", "SlidingWindow", "strategy"]


class NoShaping:
    """Returns everything, whatever the budget: a list is handed back as it is, not copied."""

    name: str = "none"

    def shape(self, messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: Sequence[int]) -> Shaped:  # noqa: ARG002
        """The transcript itself."""
        return Shaped(
            messages=messages if type(messages) is list else list(messages),
            sizes=sizes if type(sizes) is list else list(sizes),
            dropped=0,
        )


class SlidingWindow:
    """Keeps the pinned messages and the newest whole groups that fit the budget.

    The newest group (an open batch of calls with its results and what was said since, else the last message) is kept
    even when it does not fit. Messages that are never sent and results without their call are left out.
    """

    name: str = "sliding_window"

    def shape(self, messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: Sequence[int]) -> Shaped:
        """The pinned messages and the newest groups, in their order."""
        return view(messages, sizes, budget, select(messages, sizes, budget, pinned, 0), None)


class Compact:
    """Keeps what `SlidingWindow` keeps, with one marker in place of what is left out; the marker is within the budget.

    The marker is an internal user message that says how many earlier messages are missing. It stands before the
    newest groups. Shaping a view again renews the marker, it never adds a second. When pinned and newest messages
    leave no room for it, there is no marker. `estimate` measures the marker.
    """

    name: str = "compact"

    def __init__(self, estimate: Estimate = char_estimate) -> None:
        self._mark = marker_size(estimate)

    def shape(self, messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: Sequence[int]) -> Shaped:
        """The pinned messages, the marker and the newest groups, in their order."""
        return view(messages, sizes, budget, select(messages, sizes, budget, pinned, self._mark), self._mark)


_KNOWN = ("none", "sliding_window", "compact", "summarize")


def strategy(name: str, *, estimate: Estimate = char_estimate) -> ContextStrategy:
    """The strategy a name stands for; `ConfigurationError` with the known names for any other."""
    if name == "none":
        return NoShaping()
    if name == "sliding_window":
        return SlidingWindow()
    if name == "compact":
        return Compact(estimate)
    if name == "summarize":
        from glidepath.context.summarize import Summarize

        return Summarize(estimate)
    known = ", ".join([repr(word) for word in _KNOWN])
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), _KNOWN, n=1) if isinstance(name, str) else []
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ConfigurationError(f"context_strategy={name!r:.80} is not a known strategy{hint}; it is one of {known}")
