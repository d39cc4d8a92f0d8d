"""How many runs each key has started lately: in the store, so that all processes on it count together.

For a rate of N starts in a period the last N moments are kept, in a ring. A start may begin when the oldest of them is
a period ago, and then takes its place. That looks at one row, whatever the rate is, and no window can be found in which
more than N have begun.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from glidepath.apps.server.locks.keys import AccessKey

if TYPE_CHECKING:
    from glidepath.sessions import PostgresConnection, PostgresStore, SqliteStore
    from glidepath.sessions.sqlite_file import Connection

__all__ = ["MemoryStarts", "StartCounts", "starts_for"]

_AHEAD = 1.0  # seconds; a moment that is further in the future was written before the clock was set back
_TABLES = (
    "CREATE TABLE IF NOT EXISTS {0}key_turns(name text PRIMARY KEY, turn bigint NOT NULL)",
    (
        "CREATE TABLE IF NOT EXISTS {0}key_starts("
        "name text NOT NULL, slot bigint NOT NULL, at double precision NOT NULL, PRIMARY KEY(name, slot))"
    ),
)
_MAKING = 0x676C696B
_THERE = "SELECT to_regclass('glidepath_key_starts') IS NOT NULL"
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


class StartCounts(Protocol):
    """Counts the starts of keys.

    Contract: `count` is atomic among everybody who counts in the same place. It raises `StoreError` when it cannot
    count: then nothing is started.
    """

    async def count(self, key: AccessKey) -> float | None:
        """Count a start of a key with a rate; None when it may begin, else the seconds until one may."""
        ...


def _wait(at: float | None, now: float, every: float) -> float | None:
    """How long to wait when the oldest of the starts that count was at this moment."""
    if at is None or at > now + _AHEAD or at <= now - every:
        return None
    return at + every - now


class MemoryStarts:
    """Counts in one process, for servers without a store."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._moments: dict[str, deque[float]] = {}

    async def count(self, key: AccessKey) -> float | None:
        """Count a start."""
        moments = self._moments.setdefault(key.name, deque(maxlen=key.starts))
        now = self.clock()
        wait = _wait(moments[0] if len(moments) == key.starts else None, now, key.every)
        if wait is None:
            moments.append(now)
        return wait


class SqliteStarts:
    """Counts in a table of the store's own file, for the processes of one machine."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def count(self, key: AccessKey) -> float | None:
        """Count a start, in one transaction."""

        def work(connection: Connection) -> float | None:
            execute = connection.execute
            for table in _TABLES:
                execute(table.format(""))
            turn = (execute("SELECT turn FROM key_turns WHERE name = ?", (key.name,)).fetchone() or (0,))[0]
            place = (key.name, turn % (key.starts or 1))
            row = execute("SELECT at FROM key_starts WHERE name = ? AND slot = ?", place).fetchone()
            now = time.time()
            wait = _wait(None if row is None else row[0], now, key.every)
            if wait is None:
                execute("INSERT OR REPLACE INTO key_starts VALUES(?, ?, ?)", (*place, now))
                execute("INSERT OR REPLACE INTO key_turns VALUES(?, ?)", (key.name, turn + 1))
            return wait

        return await self._store.transact(work)  # type: ignore[no-any-return]


class PostgresStarts:
    """Counts in tables beside the journals, by the clock of the database, for servers on any machine."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._there = False

    async def count(self, key: AccessKey) -> float | None:
        """Count a start, in one transaction. The row of the key is locked: others wait for their turn."""
        if not self._there:
            if not await self._store.asked(_THERE):
                await self._store.transact(self._make_tables)
            self._there = True

        async def work(connection: PostgresConnection) -> float | None:
            await connection.execute(
                "INSERT INTO glidepath_key_turns VALUES($1, 0) ON CONFLICT (name) DO NOTHING", key.name
            )
            turn = await connection.fetchval(
                "SELECT turn FROM glidepath_key_turns WHERE name = $1 FOR UPDATE", key.name
            )
            place = (key.name, turn % (key.starts or 1))
            at = await connection.fetchval("SELECT at FROM glidepath_key_starts WHERE name = $1 AND slot = $2", *place)
            now = await connection.fetchval(_NOW)
            wait = _wait(at, now, key.every)
            if wait is None:
                put = (
                    "INSERT INTO glidepath_key_starts VALUES($1, $2, $3) ON CONFLICT (name, slot) DO UPDATE SET at = $3"
                )
                await connection.execute(put, *place, now)
                await connection.execute("UPDATE glidepath_key_turns SET turn = turn + 1 WHERE name = $1", key.name)
            return wait

        return await self._store.transact(work)

    async def _make_tables(self, connection: PostgresConnection) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _MAKING)  # two that make one at once would fail
        for table in _TABLES:
            await connection.execute(table.format("glidepath_"))


def starts_for(store: object) -> StartCounts:
    """Where the starts of keys are counted: in the store, if it is SQLite or PostgreSQL, else in this process."""
    from glidepath.sessions import PostgresStore, RedactingStore, SqliteStore

    while isinstance(store, RedactingStore):
        store = store.store
    if isinstance(store, PostgresStore):
        return PostgresStarts(store)
    return SqliteStarts(store) if isinstance(store, SqliteStore) else MemoryStarts()
