"""What is known about the messages of a long session, so that a new prompt looks only at those it has not seen.

A run that begins in a session wants to know of every message that is there: how large it is, whether every call has its
result, which call ids are taken. That takes longer the longer the session is. A session keeps the answers for the next
run. They hold for these very messages: what was changed, left out or put in between is looked at again, with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from glidepath._wire import Raw, Value
from glidepath.run.hidden_messages import NEVER_SENT, is_notice
from glidepath.run.plan import Plan
from glidepath.tools import LEAST_PICTURE_TOKENS, picture_bytes
from glidepath.values import (
    AssistantMessage,
    CustomMessage,
    Message,
    ToolCall,
    ToolResultMessage,
    UnknownMessage,
    UserMessage,
)

_CHARACTERS = object()  # stands for every `CharEstimator`: they all count alike
LONG = 100
"""Messages from which on it is worth remembering what they are like."""
MEASURE = 1
"""Of the way in which sizes and characters are counted: another number when a message may count otherwise."""


def is_in_order(messages: Sequence[Message], seen: dict[str, None], *, keep_custom: bool) -> bool:
    """True when every call is followed by its results, in its order, and every id is new; `seen` gets the ids."""
    waiting: list[str] = []  # the calls of the last reply that have no result yet, the next one last
    for message in messages:
        kind = message.__class__
        if kind is ToolResultMessage:
            if not waiting or waiting.pop() != message.call_id:  # type: ignore[union-attr]
                return False
        elif waiting or (not keep_custom and isinstance(message, CustomMessage | UnknownMessage)):
            return False
        elif kind is AssistantMessage:
            calls = [block.id for block in message.blocks if block.__class__ is ToolCall]  # type: ignore[union-attr]
            if calls:
                before = len(seen)
                seen.update(dict.fromkeys(calls))
                if len(seen) != before + len(calls):
                    return False
                waiting = calls[::-1]
    return not waiting


def characters_of(message: Message) -> int:
    """The fewest characters that a call sends of a message: its text and the arguments of its calls."""
    characters = len(message.text)
    if message.__class__ is AssistantMessage:
        for block in message.blocks:
            if block.__class__ is ToolCall:
                stored: Any = block.stored
                characters += len(bytes(stored)) if type(stored) is Raw else 2 * len(stored)
    return characters


class Measured(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of messages that follow each other, as a journal keeps it; places count from the first of them."""

    how: int
    sizes: tuple[int, ...]
    characters: int
    calls: tuple[str, ...] = ()
    notices: tuple[int, ...] = ()
    unsent: bool = False
    pictures: int = 0
    first_task: int | None = None


def measure_messages(messages: list[Message], plan: Plan) -> Measured | None:
    """What a journal may keep of these messages; None when they are not in order, or counted in its own way."""
    found = TranscriptStats()
    if not plan.measures_replies or not found.take_new_messages(messages, plan):
        return None
    return Measured(
        how=MEASURE,
        sizes=tuple(found.sizes),
        characters=found.characters,
        calls=tuple(found.call_ids),
        notices=tuple(found.notices),
        unsent=found.unsent,
        pictures=found.pictures,
        first_task=found.first_task,
    )


class TranscriptStats:
    """What a run has found out about the messages that a session begins with."""

    __slots__ = (
        "_estimator",
        "_known",
        "call_ids",
        "characters",
        "first_task",
        "notices",
        "pictures",
        "sizes",
        "tokens",
        "unsent",
    )

    def __init__(self) -> None:
        self._forget(None)

    def _forget(self, estimator: object) -> None:
        self._estimator = estimator
        self._known: list[Message] = []
        self.sizes: list[int] = []
        self.tokens = 0
        """All sizes together."""
        self.characters = 0
        """Those of all messages, as `characters_of` counts them."""
        self.call_ids: dict[str, None] = {}
        self.notices: list[int] = []
        """Where the runtime has told the model something."""
        self.unsent = False
        """Some are for applications only."""
        self.pictures = 0
        """Bytes of the pictures in them."""
        self.first_task: int | None = None
        """Where a person spoke first."""

    @classmethod
    def from_parts(cls, messages: list[Message], parts: Sequence[Measured | None]) -> TranscriptStats | None:
        """The survey of these messages from what is known of their parts; None when one is missing or does not fit."""
        found = cls()
        found._estimator = _CHARACTERS
        calls = 0
        for part in parts:
            if part is None or part.how != MEASURE:
                return None
            begin = len(found.sizes)
            found.sizes += part.sizes
            found.characters += part.characters
            found.call_ids.update(dict.fromkeys(part.calls))
            calls += len(part.calls)
            found.notices += [begin + place for place in part.notices]
            found.unsent = found.unsent or part.unsent
            found.pictures += part.pictures
            if found.first_task is None and part.first_task is not None:
                found.first_task = begin + part.first_task
        if len(found.sizes) != len(messages) or len(found.call_ids) != calls:
            return None
        found.tokens = sum(found.sizes)
        found._known = messages.copy()
        return found

    def take_new_messages(self, messages: list[Message], plan: Plan) -> bool:
        """Look at what is new in these messages; False when they are not in order and must be repaired first."""
        estimator: Any = _CHARACTERS if plan.measures_replies else plan.estimator
        known = self._known
        same = estimator is self._estimator and len(known) <= len(messages) and all(map(is_, known, messages))
        if not same:
            self._forget(estimator)
        new = messages[len(self._known) :] if self._known else messages
        if not is_in_order(new, self.call_ids, keep_custom=True):
            self._forget(None)
            return False
        self._measure(new, plan)
        return True

    @classmethod
    def of(cls, messages: list[Message], plan: Plan) -> TranscriptStats:
        """What there is to know of messages, in order or not."""
        found = cls()
        found.call_ids = {call.id: None for m in messages if type(m) is AssistantMessage for call in m.tool_calls}
        found._measure(messages, plan)
        return found

    def _measure(self, new: list[Message], plan: Plan) -> None:
        size_of, sizes = plan.size_of, self.sizes
        for place, message in enumerate(new, len(sizes)):
            size = size_of(message)
            sizes.append(size)
            self.characters += characters_of(message)
            if size >= LEAST_PICTURE_TOKENS:
                self.pictures += picture_bytes(getattr(message, "content", ""))
            kind = message.__class__
            if kind is UserMessage:
                if is_notice(message):
                    self.notices.append(place)
                if self.first_task is None and not message.internal:  # type: ignore[union-attr]
                    self.first_task = place
            elif kind in NEVER_SENT:
                self.unsent = True
        self._known += new
        self.tokens += sum(sizes[-len(new) :]) if new else 0
