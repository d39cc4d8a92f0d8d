"""The parts of a transcript a model never sees: what is for applications only, and notices of earlier runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glidepath.values import CustomMessage, Message, UnknownMessage, UserMessage

NEVER_SENT = frozenset({CustomMessage, UnknownMessage})
_HIDDEN = CustomMessage("hidden")
"""A placeholder where the model sees nothing, so that every other message keeps its place."""


def drop_unsendable(messages: Iterable[Message]) -> list[Message]:
    """The messages a model may see."""
    return [message for message in messages if type(message) not in NEVER_SENT]


def is_notice(message: Message) -> bool:
    """Whether the runtime told the model this: to wind down, to continue, to try something else."""
    return type(message) is UserMessage and message.internal and message.reason is not None


def blank_stale_messages(
    messages: Sequence[Message], sizes: Sequence[int], stale: frozenset[int]
) -> tuple[Sequence[Message], Sequence[int]]:
    """The messages and their sizes, with nothing where the stale ones are; the same lists when there is none."""
    if not stale:
        return messages, sizes
    messages, sizes = list(messages), list(sizes)
    for place in stale:
        messages[place], sizes[place] = _HIDDEN, 0
    return messages, sizes
