"""The built-in strategies, by name."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath.kernel.context.groups import make_view, marker_size, select
from glidepath.kernel.context.measure import Estimate, char_estimate
from glidepath.spi import ContextStrategy, Shaped
from glidepath.values import ConfigurationError, Message, close_to, log_first, short_repr

if TYPE_CHECKING:
    from glidepath.kernel.context.done_calls import DoneCalls


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
        return make_view(messages, sizes, budget, select(messages, sizes, budget, pinned, 0), None)


class Compact:
    """Keeps what `SlidingWindow` keeps, with one marker in place of what is left out; the marker is within the budget.

    The marker is an internal user message that says how many earlier messages are missing. It comes before the
    newest groups. Shaping a view again renews the marker, it never adds a second. When pinned and newest messages
    leave no room for it, there is no marker. `estimate` measures the marker. In a run the marker lists the calls that
    were made in what is left out, so that a step that is done is not done again.
    """

    name: str = "compact"
    lists_done_calls = True

    def __init__(self, estimate: Estimate = char_estimate) -> None:
        self._mark = marker_size(estimate)
        self._estimate = estimate

    def shape(self, messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: Sequence[int]) -> Shaped:
        """The pinned messages, the marker and the newest groups, in their order."""
        return make_view(messages, sizes, budget, select(messages, sizes, budget, pinned, self._mark), self._mark)

    def shape_listing_calls(
        self,
        done: DoneCalls | None,
        messages: Sequence[Message],
        sizes: Sequence[int],
        budget: int,
        pinned: Sequence[int],
    ) -> tuple[Shaped, DoneCalls]:
        """The same, for a run: the marker lists the calls that are `done` and no longer in view."""
        from glidepath.kernel.context.done_calls import DoneCalls, shape_with_done_calls  # few runs outgrow a window

        known = DoneCalls(self._estimate) if done is None else done
        return shape_with_done_calls(self, known, messages, sizes, budget, pinned), known


_KNOWN = ("none", "sliding_window", "compact", "clear", "summarize")
_log = logging.getLogger("glidepath")


class _Checked:
    """A custom strategy: where it fails or answers nonsense, `Compact` makes the view."""

    def __init__(self, own: ContextStrategy, estimate: Estimate) -> None:
        self.name = own.name
        self._own, self._instead = own, Compact(estimate)
        self._known: set[tuple[str, str]] = set()

    def shape(self, messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: Sequence[int]) -> Shaped:
        """The view, or the one that `Compact` makes."""
        try:
            return _check_shaped(self._own.shape(messages, sizes, budget, pinned), messages, pinned)
        except Exception as error:
            log_first(self._known, f"context_strategy {self.name!r}", error, "compact is used instead")
            return self._instead.shape(messages, sizes, budget, pinned)


def _check_shaped(shaped: object, messages: Sequence[Message], pinned: Sequence[int]) -> Shaped:
    if not isinstance(shaped, Shaped) or len(shaped.sizes) != len(shaped.messages):
        raise TypeError(f"shape() must return a Shaped with a size for each message, not {type(shaped).__name__}")
    kept = {id(message) for message in shaped.messages}
    if any(id(messages[place]) not in kept for place in pinned):
        raise ValueError("a pinned message is missing in the view")
    return shaped


def _make_built_in(name: str, estimate: Estimate) -> ContextStrategy:
    if name == "clear":
        from glidepath.kernel.context.clearing import ClearResults

        return ClearResults(estimate)
    if name == "summarize":
        from glidepath.kernel.context.summarize import Summarize

        return Summarize(estimate)
    plain: dict[str, ContextStrategy] = {"none": NoShaping(), "sliding_window": SlidingWindow()}
    return plain.get(name) or Compact(estimate)


def strategy(given: str | ContextStrategy, *, estimate: Estimate = char_estimate) -> ContextStrategy:
    """The strategy a name stands for, or the one that was given; `ConfigurationError` for anything else."""
    if isinstance(given, str) and given in _KNOWN:
        return _make_built_in(given, estimate)
    if isinstance(given, NoShaping | SlidingWindow | Compact):
        return given
    named = isinstance(getattr(given, "name", None), str) and not isinstance(given, str | type)
    if named and callable(getattr(given, "shape", None)):
        return _Checked(given, estimate)  # type: ignore[arg-type] # it has what a strategy needs
    close = close_to(given.lower(), _KNOWN) if isinstance(given, str) else None
    hint = f" (did you mean {close!r}?)" if close else ""
    known = ", ".join([repr(word) for word in _KNOWN])
    raise ConfigurationError(
        f"context_strategy={short_repr(given, 80)} is not a strategy{hint}; use one of {known}, or pass an object "
        "with a "
        "name and shape()"
    )
