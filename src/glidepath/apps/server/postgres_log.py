"""The event log in PostgreSQL: beside the journals, for servers on any machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from glidepath.apps.server.event_log import LogHead
from glidepath.sessions import ConnectionPool, retry_through_restart, translate_errors

T = TypeVar("T")
_ADVISORY = 0x676C6976
_TABLES = """
CREATE TABLE IF NOT EXISTS glidepath_event_runs(
  run text PRIMARY KEY, session text NOT NULL, agent text NOT NULL, parent text, written float8 NOT NULL, who text);
ALTER TABLE glidepath_event_runs ADD COLUMN IF NOT EXISTS who text;
CREATE TABLE IF NOT EXISTS glidepath_events(
  run text NOT NULL REFERENCES glidepath_event_runs(run) ON DELETE CASCADE, number bigint NOT NULL,
  line bytea NOT NULL, PRIMARY KEY(run, number));
"""
_NOW = "extract(epoch FROM clock_timestamp())::float8"
# Safe to do twice: the numbers are ours, and what is there stays.
_APPEND = f"""
WITH head AS (INSERT INTO glidepath_event_runs(run, session, agent, parent, written, who)
  VALUES($1, $2, $3, $4, {_NOW}, $7)
  ON CONFLICT (run) DO UPDATE SET written = {_NOW} RETURNING run)
INSERT INTO glidepath_events(run, number, line)
  SELECT head.run, $5 + place, line FROM head, unnest($6::bytea[]) WITH ORDINALITY AS given(line, place)
ON CONFLICT (run, number) DO NOTHING
"""  # noqa: S608 - constants of ours
_READ = "SELECT line FROM glidepath_events WHERE run = $1 AND number > $2 ORDER BY number LIMIT $3"
_COUNT = "SELECT coalesce(max(number), 0) FROM glidepath_events WHERE run = $1"
_HEAD = "SELECT run, session, agent, parent, who FROM glidepath_event_runs WHERE run = $1"
_PRUNE = f"DELETE FROM glidepath_event_runs WHERE written < {_NOW} - $1"  # noqa: S608 - constants of ours


class PostgresLog:
    """Keeps events in two tables. Each batch is one statement, written before anybody is shown it."""

    name = "postgres"
    is_remote = True

    def __init__(self, dsn: str, *, timeout: float = 10.0, connections: int = 4) -> None:
        self._dsn = dsn
        self._timeout = timeout
        self._size = connections
        self._pool: ConnectionPool | None = None
        self._ready = False
        self._last: dict[str, int] = {}

    async def _prepare(self, connection: Any) -> None:
        if not self._ready:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _ADVISORY)
                await connection.execute(_TABLES)
            self._ready = True

    async def _run_with_retry(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async def once() -> T:
            if self._pool is None or self._pool.loop is not asyncio.get_running_loop():
                self._pool = ConnectionPool(self._dsn, size=self._size, timeout=self._timeout, prepare=self._prepare)
            with translate_errors("the event log", self._timeout):
                async with self._pool.connection() as connection:
                    return await work(connection)

        return await retry_through_restart(once, known=lambda: self._ready)

    def append(self, head: LogHead, lines: Sequence[bytes]) -> Awaitable[None]:
        """Write them."""
        return self._append(head, list(lines))

    async def _append(self, head: LogHead, lines: list[bytes]) -> None:
        last = self._last.get(head.run_id)
        if last is None:
            last = self._last[head.run_id] = await self.count(head.run_id)
        await self._run_with_retry(
            lambda connection: connection.execute(
                _APPEND, head.run_id, head.session_id, head.agent, head.parent, last, lines, head.who
            )
        )
        self._last[head.run_id] = last + len(lines)

    async def head(self, run_id: str) -> LogHead | None:
        """What is known about the run."""
        if "\0" in run_id:
            return None
        row = await self._run_with_retry(lambda connection: connection.fetchrow(_HEAD, run_id))
        if row is None:
            return None
        return LogHead(
            run_id=row["run"], session_id=row["session"], agent=row["agent"], parent=row["parent"], who=row["who"]
        )

    async def count(self, run_id: str) -> int:
        """The number of its last event."""
        return int(await self._run_with_retry(lambda connection: connection.fetchval(_COUNT, run_id)))

    async def read(self, run_id: str, after: int, limit: int) -> list[bytes]:
        """Some of them."""
        rows = await self._run_with_retry(lambda connection: connection.fetch(_READ, run_id, after, limit))
        return [bytes(row["line"]) for row in rows]

    def release(self, run_id: str) -> None:
        """The run has ended: its number is asked for again, should it continue."""
        self._last.pop(run_id, None)

    async def prune(self, older_than: float) -> None:
        """Forget the events of runs that wrote none for this many seconds."""
        await self._run_with_retry(lambda connection: connection.execute(_PRUNE, older_than))

    async def close(self) -> None:
        """Let go of the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
