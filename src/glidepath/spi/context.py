"""The context port: how a transcript that is too large becomes a view that fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from glidepath._wire import Value
from glidepath.values import UNPROVEN, Message, experimental


class Shaped(Value, frozen=True, kw_only=True):
    """A view of the transcript, its size in tokens, and how many messages it leaves out."""

    messages: list[Message]
    sizes: list[int]
    dropped: int

    @property
    def tokens(self) -> int:
        """The size of the view."""
        return sum(self.sizes)


@experimental(reason=UNPROVEN)
class ContextStrategy(Protocol):
    """Makes a view of at most `budget` tokens.

    Contract: synchronous; never separates a call from its result; never drops a message whose index is in `pinned`
    (the task); keeps the order; looks only as far back as it needs to, so that the cost does not grow with the
    transcript; the same input gives the same view. A view that cannot fit is returned as small as it gets.
    """

    name: str

    def shape(self, messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: Sequence[int]) -> Shaped:
        """The view. `sizes[i]` is the size of `messages[i]` in tokens; `pinned` is ascending."""
