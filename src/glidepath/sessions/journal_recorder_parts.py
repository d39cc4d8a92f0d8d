"""What a scribe knows while it writes, in parts: the session, the messages that are written, the children that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from typing import TYPE_CHECKING, Any, TypeGuard

from glidepath._wire import Raw, Record
from glidepath.sessions.fold import Used
from glidepath.values import AssistantMessage, Message, StoreError, ToolResultMessage, UnknownMessage

if TYPE_CHECKING:
    from glidepath.run import Fingerprint, Meter
    from glidepath.sessions.journal_writer import Items
    from glidepath.sessions.session import Session

_NOTHING: dict[str, Any] = {}  # for all, until there is something to keep: then it is replaced


class KnownSession(Record, eq=False, kw_only=True):
    """The session as this run found it in its journal."""

    parent: dict[str, str] | None = None
    past: Session | None = None
    config: Fingerprint | None = None
    """The agent's configuration when the journal was last written."""
    writer: str = ""
    """The release that wrote the last leg."""
    base: int = 0
    """The commit with the newest base."""
    forked: dict[str, Any] | None = None
    """Which session, and which of its turns, this one was forked from."""
    imported: bool = False
    """Some of the journal was imported."""


class WrittenTranscript:
    """Which messages of the transcript are in the journal, and which results are there without their place."""

    __slots__ = ("_filed", "_tail", "_written")

    def __init__(self, written: int = 0, tail: frozenset[str] | None = None) -> None:
        self._written = written
        # The results among the last messages, while others of their batch may still join in between; else None.
        self._tail = tail
        self._filed: dict[str, ToolResultMessage] = _NOTHING

    def add_result(self, message: ToolResultMessage) -> None:
        """This result is in the journal before it is in the transcript."""
        # A new dict, never a change of this one: until the first result all recorders share `_NOTHING`.
        self._filed = {**self._filed, message.call_id: message}

    def drop_result(self, call_id: str) -> None:
        """This result does not join the transcript."""
        self._filed.pop(call_id, None)

    def expect_earlier(self) -> None:
        """Results may join the transcript before some that are in the journal."""
        if self._tail is None:
            self._tail = frozenset()

    def take_new(self, messages: Sequence[Message], items: Items) -> None:
        """Add what came to the transcript since the last time. It counts as written."""
        # A transcript only grows at its end, but for results of one batch, which may come in any order after a resume.
        fresh = messages[self._written :] if self._tail is None else self._find_inserted_messages(messages, self._tail)
        self._written = len(messages)
        for message in fresh:
            if self._filed and self._is_filed(message):
                items.append(("placed", [message.call_id]))  # it was written when it came: it is on disk once
            elif message.__class__ is UnknownMessage:
                items.append(("message", Raw(message.raw)))  # as it was read
            else:
                items.append(("message", message))

    def _is_filed(self, message: Message) -> TypeGuard[ToolResultMessage]:
        """Whether the journal has this very result; another one with its id was changed by a hook since."""
        return type(message) is ToolResultMessage and self._filed.pop(message.call_id, None) == message

    def _find_inserted_messages(self, messages: Sequence[Message], tail: frozenset[str]) -> list[Message]:
        """The new messages when they may come before some that are written."""
        recent = messages[self._written - len(tail) :]
        fresh = [one for one in recent if type(one) is not ToolResultMessage or one.call_id not in tail]
        # What is in the journal cannot be unwritten: a reader would get another transcript than this run has.
        if len(recent) - len(fresh) != len(tail):
            raise StoreError("the transcript was changed while its run was running", kind="conflict")
        results = [one.call_id for one in fresh if type(one) is ToolResultMessage]
        # Anything but a result ends the batch: nothing can join before it.
        self._tail = tail.union(results) if len(results) == len(fresh) else None
        return fresh


class RunningChildren:
    """The children of this run, and what those of running calls have spent: it is in the figures of this run."""

    __slots__ = ("_charged", "ids", "spending")

    def __init__(self) -> None:
        self.ids: AbstractSet[str] = frozenset()
        """The sessions of all children that this run is known to have started."""
        self.spending: Mapping[str, Meter | Used] = _NOTHING
        self._charged: Mapping[str, Used] = _NOTHING

    def follow(self, session_id: str, meter: Meter) -> None:
        """A child is running: what it spends is in the figures of this run from now on."""
        self.spending = {**self.spending, session_id: meter}

    def charge(self, items: Items) -> None:
        """Record how much of each child is in the figures of this commit: a resume adds only what came after it."""
        if any(kind == "message" and type(message) is AssistantMessage for kind, message in items):
            self.spending = self._charged = _NOTHING  # the model has spoken: their calls have ended
            return
        charged = {name: one if isinstance(one, Used) else _read_used(one) for name, one in self.spending.items()}
        # Only when it has changed: children that wait for a model would repeat it in every commit.
        if charged != self._charged:
            self._charged = charged
            items.append(("charged", charged))


def _read_used(meter: Meter) -> Used:
    return Used(meter.tokens, meter.money, meter.turns, meter.tool_calls, meter.descendants + 1, meter.disputed)
