"""What of a transcript a model never sees: what is for applications only, and notices of earlier runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from glidepath.messages import CustomMessage, Message, UnknownMessage, UserMessage

if TYPE_CHECKING:
    from glidepath.run.state import Run

__all__ = ["NEVER_SENT", "is_notice", "sendable", "transcript"]

NEVER_SENT = frozenset({CustomMessage, UnknownMessage})
_HIDDEN = CustomMessage("hidden")
"""Stands where the model sees nothing, so that every other message keeps its place."""


def sendable(messages: Iterable[Message]) -> list[Message]:
    """What a model may see of these."""
    return [message for message in messages if type(message) not in NEVER_SENT]


def is_notice(message: Message) -> bool:
    """Whether the runtime told the model this: to wind down, to go on, to try something else."""
    return type(message) is UserMessage and message.internal and message.reason is not None


def transcript(run: Run) -> tuple[Sequence[Message], Sequence[int]]:
    """What a view is made from, with the size of each message: the transcript without notices of earlier runs."""
    if not run.stale:
        return run.messages, run.sizes
    messages, sizes = list(run.messages), list(run.sizes)
    for place in run.stale:
        messages[place], sizes[place] = _HIDDEN, 0
    return messages, sizes
