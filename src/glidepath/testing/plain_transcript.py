"""The rule of transcripts: every tool call has exactly one result, in source order (G6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from glidepath.values import (
    AssistantMessage,
    Message,
    PendingCall,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)


def transcript_errors(
    messages: Sequence[Message], pending: Iterable[str | ToolCall | PendingCall] = (), *, continued: bool = False
) -> list[str]:
    """Every way in which these messages break G6; empty when each call has its one result.

    The results of a reply's calls come in source order, before the next reply and before any other message to the
    model. Calls of the last reply that are `pending` (ids, calls or pending calls) may lack theirs. With `continued`,
    the messages continue an earlier transcript, so the first of them may be results of its calls.
    """
    check = _Check(frozenset(map(_id, pending)), continued=continued)
    for position, message in enumerate(messages):
        check.add(position, message)
    check.close(last=True)
    return check.errors


def _id(pending: str | ToolCall | PendingCall) -> str:
    if isinstance(pending, str):
        return pending
    return pending.inside or pending.call.id if isinstance(pending, PendingCall) else pending.id


class _Check:
    """Walks a transcript with the calls that still wait for their results."""

    def __init__(self, pending: Collection[str], *, continued: bool) -> None:
        self.errors: list[str] = []
        self._pending = pending
        self._open: list[ToolCall] = []
        self._answered: set[str] = set()
        self._unseen = continued  # results may belong to a reply of the earlier transcript

    def add(self, position: int, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            self.close(last=False)
            self._open = list(message.tool_calls)
            self._answered = set()
            self._unseen = False
        elif isinstance(message, ToolResultMessage):
            self._answer(position, message.call_id)
        elif isinstance(message, UserMessage | SystemMessage):
            missing = [call.id for call in self._open if call.id not in self._pending]
            if missing:
                self._add_error(position, f"a {message.role} message comes before the results of {', '.join(missing)}")

    def close(self, *, last: bool) -> None:
        for call in self._open:
            if not (last and call.id in self._pending):
                self.errors.append(f"call {call.id} ({call.name}) has no result")
        self._open = []

    def _answer(self, position: int, call_id: str) -> None:
        waiting = [call.id for call in self._open]
        if call_id in waiting:
            first = next(other for other in waiting if other == call_id or other not in self._pending)
            if first != call_id:
                self._add_error(position, f"the result of {call_id} comes before the result of {first}")
            del self._open[waiting.index(call_id)]
            self._answered.add(call_id)
        elif call_id in self._answered:
            self._add_error(position, f"a second result for {call_id}")
        elif self._unseen:
            self._answered.add(call_id)
        else:
            self._add_error(position, f"a result for {call_id}, which the last reply did not call")

    def _add_error(self, position: int, what: str) -> None:
        self.errors.append(f"message {position}: {what}")
