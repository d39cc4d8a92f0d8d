"""Events retold from a journal: for runs of other programs, whose events were not kept.

What a journal says in order becomes events in order, so that the same record always has the same number: a reader can
come back, and a run in another process can be followed while its journal grows. Streamed pieces and the like are not in
a journal, and not in here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from glidepath import _wire
from glidepath.apps.server.event_log import LogHead
from glidepath.apps.server.run_feed import RunFeed, event_line
from glidepath.sessions import Began, Child, Intent, JournalRecord, StoredJournal, decode_leniently, message_of
from glidepath.values import (
    ApprovalRequested,
    AssistantMessage,
    BudgetSettled,
    ChildStarted,
    Event,
    MessageAdded,
    RunEnded,
    RunStarted,
    ToolCall,
    ToolEnded,
    ToolResultMessage,
    ToolStarted,
    TurnStarted,
)

_LIMITS = {"max_iterations": "turns", "max_tokens": "tokens", "timeout": "seconds", "max_tool_calls": "tool_calls"}
Reread = Callable[[], Awaitable[StoredJournal | None]]


def events_from_journal(journal: StoredJournal) -> Iterator[Event]:
    """The events of the journal's last run, as far as it tells them."""
    records = list(journal.records())
    first = 0
    for place, record in enumerate(records):
        if record.kind == "began" and not decode_leniently(bytes(record.payload), Began).resumed:
            first = place
    teller = _Teller(journal)
    for record in records[first:]:
        try:
            yield from teller.iterate_events(record)
        except (_wire.WireError, ValueError, KeyError, TypeError):
            continue  # a record of another version


class _Teller:
    def __init__(self, journal: StoredJournal) -> None:
        self._journal = journal
        self._run_id = ""
        self._number = 0
        self._turn = 0
        self._calls: dict[str, ToolCall] = {}
        self._results: dict[str, ToolResultMessage] = {}
        self._began = 0.0

    def _make_event(self, kind: Any, record: JournalRecord, *fields: Any, **named: Any) -> Any:
        self._number += 1
        return kind(self._run_id, None, self._number, record.time, *fields, **named)

    def iterate_events(self, record: JournalRecord) -> Iterator[Event]:
        """What a record says."""
        data = bytes(record.payload)
        if record.kind == "began":
            began = decode_leniently(data, Began)
            self._run_id = began.run_id
            session_id = self._journal.folded.session.id
            yield self._make_event(
                RunStarted,
                record,
                session_id,
                began.agent,
                began.model,
                resumed=began.resumed,
                limits=read_limits(self._journal),
            )
        elif record.kind == "message":
            yield from self._message(message_of(data), record)
        elif record.kind == "result":
            result: Any = message_of(data)
            self._results[result.call_id] = result
        elif record.kind == "placed":
            for call_id in _wire.decode(data, list[str]):
                yield from self._message(self._results.pop(call_id), record)
        elif record.kind == "intent":
            intent = decode_leniently(data, Intent)
            call = self._calls.get(intent.call_id)
            arguments = intent.arguments if intent.arguments is not None else (call.arguments if call else {})
            name = intent.tool or (call.name if call else "")
            yield self._make_event(ToolStarted, record, intent.call_id, name, arguments)
        elif record.kind == "child":
            child = decode_leniently(data, Child)
            yield self._make_event(ChildStarted, record, child.session_id, child.agent, 1)
        elif record.kind == "ended":
            yield from self._make_end_events(record)

    def _message(self, message: Any, record: JournalRecord) -> Iterator[Event]:
        if type(message) is AssistantMessage:
            self._turn += 1
            self._calls |= {call.id: call for call in message.tool_calls}
            yield self._make_event(TurnStarted, record, self._turn)
            if message.usage is not None:
                yield self._make_event(BudgetSettled, record, message.usage, None)
        yield self._make_event(MessageAdded, record, message)
        if type(message) is ToolResultMessage:
            yield self._make_event(ToolEnded, record, message.call_id, message.tool_name, message)

    def _make_end_events(self, record: JournalRecord) -> Iterator[Event]:
        from glidepath.values import RunResult

        result = decode_leniently(bytes(record.payload), RunResult)
        for one in result.pending:
            yield self._make_event(
                ApprovalRequested, record, one.call.id, one.call.name, one.call.arguments, one.reason
            )
        yield self._make_event(RunEnded, record, result)


def read_limits(journal: StoredJournal) -> dict[str, float] | None:
    """The limits that hold by now, under the names that events use."""
    config = journal.folded.config
    if config is None:
        return None
    found = {_LIMITS[key]: float(value) for key, value in config.limits.items() if key in _LIMITS}
    if "max_cost" in config.limits:
        found["picodollars"] = float(config.limits["max_cost"]) * 1e12
    return found


class RetoldLog:
    """A log of one run that reads its journal."""

    name = "retold"
    is_remote = False

    def __init__(self, reread: Reread) -> None:
        self._reread = reread
        self._head = -1
        self._lines: list[bytes] = []

    async def _read_lines(self) -> list[bytes]:
        journal = await self._reread()
        if journal is not None and journal.entry.head != self._head:
            self._lines = [event_line(event) for event in events_from_journal(journal)]
            self._head = journal.entry.head
        return self._lines

    def append(self, head: LogHead, lines: Sequence[bytes]) -> None:
        """Nothing is written: the journal is another program's."""

    async def head(self, run_id: str) -> LogHead | None:  # noqa: ARG002 - as a log has it
        """The holder of this log knows its run."""
        return None

    async def count(self, run_id: str) -> int:  # noqa: ARG002
        """How many events there are by now."""
        return len(await self._read_lines())

    async def read(self, run_id: str, after: int, limit: int) -> list[bytes]:  # noqa: ARG002
        """Some of them."""
        return (await self._read_lines())[after : after + limit]

    def release(self, run_id: str) -> None:
        """Nothing is held."""

    async def prune(self, older_than: float) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is open."""


async def feed_from_journal(head: LogHead, reread: Reread) -> RunFeed:
    """The feed of a run that only has a journal."""
    return await RunFeed(head, RetoldLog(reread)).recall()
