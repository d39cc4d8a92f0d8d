"""Where team events are kept, so that a team survives the death of its process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from glidepath._version import VERSION
from glidepath._wire import WireError
from glidepath.sessions import (
    SCHEMA,
    Items,
    JournalWriter,
    Redactor,
    await_store,
    check_schema,
    claim_session,
    read,
    refuse_unfinished,
    verify_commits,
)
from glidepath.sessions.schema_compat import make_unreadable_error
from glidepath.spi import Commit, Entry, Lease, SessionStore, Sign
from glidepath.teams.events import TERMINAL, TeamEvent, codec
from glidepath.teams.team_history import History
from glidepath.values import ConfigurationError, StoreError

_SHOWN = 200  # characters of a goal in a list of sessions


class TeamJournal(JournalWriter):
    """Writes what one execution of a team does.

    A team's journal is the session `team:` plus the id of the request; every commit is one event.
    """

    def __init__(self, store: SessionStore, lease: Lease) -> None:
        super().__init__(store, lease)
        self._unwritten: list[Awaitable[None]] = []
        self.on_stop: Callable[[str], None] = lambda _: None
        """Called when a stop was requested through the store."""
        self.on_lost: Callable[[str], None] = lambda _: None
        """Called when another process has taken over the request."""

    @classmethod
    async def open(cls, store: SessionStore, request_id: str, *, create: bool) -> TeamJournal:
        """Become the writer; raises `StoreError` of kind `busy` while another process is, or `missing`."""
        return cls(store, await claim_session(store, f"team:{request_id}", create=create))

    @classmethod
    async def new(cls, store: SessionStore, request_id: str) -> TeamJournal:
        """Open the journal of a new request; raises `ConfigurationError` if the request already exists."""
        journal = await cls.open(store, request_id, create=True)
        if journal.number:
            await journal.close()
            raise ConfigurationError(f"the store already has request {request_id!r}: use resume(), or another id")
        return journal

    async def read(self) -> History | None:
        """What earlier executions wrote; None if there was none."""
        entry, commits = await self.store.load(self.lease.session_id)
        return History.of_events(_events_in(commits, entry))

    def write(self, event: TeamEvent, goal: str) -> None:
        """Add an event; raises `StoreError`. What is not written at once is written by `flush`."""
        ended = event.result.status.value if isinstance(event, TERMINAL) else None
        summary = {
            "kind": "team",
            "team": event.team,
            "status": ended or "running",
            "outcome": ended,
            "task": goal[:_SHOWN],
            "events": event.sequence,
            "schema": SCHEMA,
            "version": VERSION,
        }
        self.sequence = event.sequence - 1  # a record has the number of its event
        written = self.add([(type(event).__name__, event)], event.time, summary)
        if written is not None:
            self._unwritten.append(written)

    def _redact(self, redactor: Redactor, items: Items) -> Items:
        # No call is replayed from a team's journal, so the note about calls is left out.
        return redactor.items(items)[:1]

    async def flush(self) -> None:
        """Wait until everything is written; raises `StoreError`."""
        while self._unwritten:
            await await_store(self._unwritten.pop(0))

    async def take_sign(self, sign: Sign) -> None:
        """React to what the store reports about the session."""
        if sign.lost:
            self.on_lost("another process has taken it over")
        elif sign.stop is not None:
            self.on_stop(sign.stop)

    async def close(self) -> None:
        """Release the journal."""
        with suppress(StoreError):
            await self.flush()
        await self.release()


async def read_story(store: SessionStore, request_id: str) -> list[TeamEvent]:
    """Every event of a request so far, over all its executions; empty if the store has no such request."""
    try:
        entry, commits = await store.load(f"team:{request_id}")
    except StoreError as error:
        if error.kind == "missing":
            return []
        raise
    return list(_events_in(commits, entry))


def _events_in(commits: Sequence[Commit], entry: Entry) -> Iterator[TeamEvent]:
    """The events as they were written, without the marks of an import; raises `StoreError`."""
    refuse_unfinished(entry)
    check_schema(entry.summary.get("schema", SCHEMA))
    reader = codec()
    for record in [
        one for commit in verify_commits(commits, head=entry.head, hash_=entry.hash) for one in read(commit)
    ]:
        try:
            event: Any = None if record.kind == "imported" else reader.decode(bytes(record.payload))
        except (WireError, ConfigurationError, ValueError) as error:
            what = f"record {record.sequence} of the team journal"
            raise make_unreadable_error(what, entry.summary.get("version"), error) from error
        if isinstance(event, TeamEvent):
            yield event
