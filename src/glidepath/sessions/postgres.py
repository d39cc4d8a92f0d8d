"""A store in PostgreSQL, for sessions that many machines share. One round trip for each commit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from glidepath import _wire
from glidepath.errors import ConfigurationError, StoreError, told
from glidepath.sessions.copies import CanFork
from glidepath.sessions.memory import busy, conflict
from glidepath.sessions.owner import GONE, LEASE, SHORT, alive
from glidepath.sessions.postgres_catalog import PostgresCatalog, prepare
from glidepath.sessions.postgres_wallets import PostgresWallets
from glidepath.spi.sessions import Commit, Entry, Lease, Sign

__all__ = ["PostgresStore"]

LAYOUT = 1
_ADVISORY = 0x676C6964
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_TABLES = f"""
CREATE TABLE IF NOT EXISTS glidepath_layout(version int NOT NULL);
INSERT INTO glidepath_layout SELECT {LAYOUT} WHERE NOT EXISTS (SELECT 1 FROM glidepath_layout);
CREATE TABLE IF NOT EXISTS glidepath_sessions(
  key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, head bigint NOT NULL DEFAULT 0,
  hash bytea NOT NULL DEFAULT '', token bigint NOT NULL DEFAULT 0, owner text, expires float8 NOT NULL DEFAULT 0,
  updated float8 NOT NULL DEFAULT 0, flag text, summary bytea NOT NULL DEFAULT '{{}}');
CREATE TABLE IF NOT EXISTS glidepath_commits(
  session bigint NOT NULL REFERENCES glidepath_sessions(key) ON DELETE CASCADE, number bigint NOT NULL,
  hash bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY(session, number));
"""  # noqa: S608 - constants of ours
_ENTRY = "SELECT id, head, hash, token, owner, expires, updated, flag, summary, key FROM glidepath_sessions"
_APPEND = f"""
WITH moved AS (
  UPDATE glidepath_sessions SET head = $2, hash = $3, updated = {_NOW}, expires = {_NOW} + $4, owner = $5,
    summary = coalesce($6, summary)
  WHERE key = $1 AND token = $7 AND head = $2 - 1 RETURNING key)
INSERT INTO glidepath_commits(session, number, hash, body) SELECT key, $2, $3, $8 FROM moved
"""  # noqa: S608 - constants of ours
_KINDS = {"53100": "full", "25006": "read_only", "55P03": "locked", "57014": "locked", "XX001": "damaged"}


class _Line:
    """The connections of one event loop, while somebody there holds a lease."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.leases = 0
        self.tail: dict[str, asyncio.Task[None]] = {}  # the last write of each session with durability "async"


class PostgresStore(CanFork, PostgresCatalog, PostgresWallets):
    """Keeps journals in a PostgreSQL database; the tables are made when they are first used.

    `timeout` is how many seconds a statement may take. Needs the extra `glidepath[postgres]`.
    """

    def __init__(self, dsn: str, *, lease: float = LEASE, timeout: float = 10.0, max_connections: int = 8) -> None:
        if not isinstance(dsn, str) or not dsn.strip():
            raise ConfigurationError(f"PostgresStore takes a dsn such as 'postgresql://host/db', not {dsn!r:.100}")
        self._dsn = dsn
        self._lease = lease
        self._timeout = timeout
        self._size = max_connections
        self._lines: dict[tuple[int, int], _Line] = {}
        self._ready = False
        PostgresWallets.__init__(self)

    # --- connections ------------------------------------------------------------------------------------------

    def _line(self) -> _Line | None:
        return self._lines.get((os.getpid(), id(asyncio.get_running_loop())))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        line = self._line()
        async with self._errors():
            if line is not None:
                async with line.pool.acquire(timeout=self._timeout) as connection:
                    yield connection
                return
            connection = await self._connect()
            try:
                yield connection
            finally:
                await connection.close(timeout=self._timeout)

    async def _connect(self) -> Any:
        asyncpg = _driver()
        try:
            connection = await asyncpg.connect(self._dsn, timeout=self._timeout, command_timeout=self._timeout)
        except ValueError:  # what it says may hold the password
            raise StoreError(
                "the address of the session store cannot be read: it must be such as postgresql://user@host:5432/db"
            ) from None
        try:
            await self._prepare(connection)
        except BaseException:
            await connection.close(timeout=self._timeout)
            raise
        return connection

    async def _prepare(self, connection: Any) -> None:
        if self._ready:
            return
        known = await connection.fetchval("SELECT to_regclass('glidepath_commits') IS NOT NULL")
        if not known:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _ADVISORY)
                await connection.execute(_TABLES)
        layout = await connection.fetchval("SELECT version FROM glidepath_layout")
        if layout != LAYOUT:
            raise StoreError(f"the database has layout {layout}; this version knows {LAYOUT}", kind="schema")
        self._catalogued = await prepare(connection)
        self._ready = True

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        """One in which rows are locked: whoever stands still in it holds them no longer than `timeout`."""
        async with self._connection() as connection, connection.transaction():
            most = max(1, int(self._timeout * 1000))
            await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {most}")
            yield connection

    @asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        asyncpg = _driver()
        try:
            yield
        except asyncpg.PostgresError as error:
            kind = _KINDS.get(error.sqlstate or "", "unavailable")
            raise StoreError(f"the session store failed: {told(error)}", kind=kind) from error
        except (TimeoutError, asyncpg.InterfaceError, OSError) as error:
            what = str(error) or f"no answer within {self._timeout:g} s"
            raise StoreError(f"the session store cannot be reached: {what}") from error

    # --- owning -----------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner."""
        line = await self._hold()
        try:
            async with self._transaction() as connection:
                if create:
                    await connection.execute(
                        f"INSERT INTO glidepath_sessions(id, updated) VALUES($1, {_NOW}) ON CONFLICT (id) DO NOTHING",
                        session_id,
                    )
                row = await connection.fetchrow(f"{_ENTRY} WHERE id = $1 FOR UPDATE", session_id)
                if row is None:
                    raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")
                entry = _entry(row)
                now = await connection.fetchval(f"SELECT {_NOW}")
                if entry.owner is not None and now < entry.expires and alive(entry.owner):
                    raise busy(entry)
                expires, flag = now + self._lease, self._kept_flag(entry)
                await connection.execute(
                    "UPDATE glidepath_sessions SET token = $2, owner = $3, expires = $4, flag = $5 WHERE key = $1",
                    row["key"],
                    entry.token + 1,
                    owner,
                    expires,
                    flag,
                )
        except BaseException:
            await self._let_go(line)
            raise
        return Lease(session_id, entry.token + 1, owner, expires, entry.head, entry.hash, row["key"])

    def _kept_flag(self, entry: Entry) -> str | None:  # noqa: ARG002 - for the store of a fleet
        """The stop that still holds for whoever claims this entry; raises `StoreError` when it may not be claimed."""
        return None

    async def _hold(self) -> _Line:
        line = self._line()
        if line is None:
            async with self._errors():
                connection = await self._connect()
                await connection.close(timeout=self._timeout)
                pool = _driver().create_pool(
                    self._dsn,
                    min_size=0,
                    max_size=self._size,
                    timeout=self._timeout,
                    command_timeout=self._timeout,
                    max_inactive_connection_lifetime=0,
                )
                await pool
            line = self._line()  # somebody else may have made one meanwhile
            if line is None:
                line = self._lines[os.getpid(), id(asyncio.get_running_loop())] = _Line(pool)
            else:
                await pool.close()
        line.leases += 1
        return line

    async def _let_go(self, line: _Line) -> None:
        line.leases -= 1
        if not line.leases:
            self._lines.pop((os.getpid(), id(asyncio.get_running_loop())), None)
            await self._shut(line)

    async def _shut(self, line: _Line) -> None:
        try:
            await asyncio.wait_for(line.pool.close(), self._timeout)
        except (TimeoutError, OSError):
            line.pool.terminate()

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Look after leases."""
        keys, tokens = [lease.key for lease in leases], [lease.token for lease in leases]
        async with self._connection() as connection:
            if renew or self._lease < SHORT:
                await connection.execute(
                    f"UPDATE glidepath_sessions s SET expires = {_NOW} + $3 "  # noqa: S608 - constants of ours
                    "FROM unnest($1::bigint[], $2::bigint[]) AS l(key, token) "
                    "WHERE s.key = l.key AND s.token = l.token",
                    keys,
                    tokens,
                    self._lease,
                )
            rows = await connection.fetch("SELECT key, token, flag FROM glidepath_sessions WHERE key = ANY($1)", keys)
        found = {row["key"]: row for row in rows}
        signs = []
        for lease in leases:
            row = found.get(lease.key)
            if row is None or row["token"] != lease.token:
                signs.append(Sign(session_id=lease.session_id, lost=True))
            elif row["flag"] is not None:
                signs.append(Sign(session_id=lease.session_id, stop=row["flag"]))
        return signs

    async def release(self, lease: Lease) -> None:
        """Give the lease back, after everything is written."""
        line = self._line()
        if line is None:
            return
        try:
            tail = line.tail.pop(lease.session_id, None)
            if tail is not None:
                await tail
            async with self._connection() as connection:
                await connection.execute(
                    "UPDATE glidepath_sessions SET owner = NULL, expires = $3 WHERE key = $1 AND token = $2",
                    lease.key,
                    lease.token,
                    GONE,
                )
        finally:
            await self._let_go(line)

    # --- writing ----------------------------------------------------------------------------------------------

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit; always something to await, but for "async"."""
        line = self._line()
        before = None if line is None else line.tail.get(lease.session_id)
        if before is not None and before.done() and before.exception() is not None:
            raise before.exception()  # type: ignore[misc]
        write = self._append(lease, commit, None if summary is None else _wire.encode(summary), before)
        if durability != "async" or line is None:
            return write
        line.tail[lease.session_id] = asyncio.get_running_loop().create_task(write, name="glidepath-store")
        return None

    async def _append(
        self, lease: Lease, commit: Commit, summary: bytes | None, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await before
        async with self._connection() as connection:
            status = await connection.execute(
                _APPEND,
                lease.key,
                commit.number,
                commit.hash,
                self._lease,
                lease.owner,
                summary,
                lease.token,
                commit.body,
            )
            if status != "INSERT 0 1":
                raise await self._refused(connection, lease, commit.number)

    async def _refused(self, connection: Any, lease: Lease, number: int) -> StoreError:
        row = await connection.fetchrow("SELECT token, head FROM glidepath_sessions WHERE key = $1", lease.key)
        if row is None:
            return StoreError(f"session {lease.session_id!r} was removed", kind="missing")
        if row["token"] != lease.token:
            return StoreError(f"session {lease.session_id!r} was taken over by another owner", kind="fenced")
        return conflict(lease.session_id, number, row["head"])

    # --- reading and housekeeping -----------------------------------------------------------------------------

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The journal, from commit `since` on."""
        async with self._connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            row = await connection.fetchrow(f"{_ENTRY} WHERE id = $1", session_id)
            if row is None:
                raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")
            rows = await connection.fetch(
                "SELECT number, body, hash FROM glidepath_commits WHERE session = $1 AND number >= $2 ORDER BY number",
                row["key"],
                since,
            )
        return _entry(row), tuple([Commit(one["number"], one["body"], one["hash"]) for one in rows])

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions, the last written first."""
        async with self._connection() as connection:
            rows = await connection.fetch(f"{_ENTRY} WHERE starts_with(id, $1) ORDER BY updated DESC, id", prefix)
        return [_entry(row) for row in rows]

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop."""
        async with self._connection() as connection:
            status = await connection.execute(
                "UPDATE glidepath_sessions SET flag = $2 WHERE id = $1", session_id, reason
            )
        if status != "UPDATE 1":
            raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`."""
        line = self._line()
        async with self._transaction() as connection:
            status = await connection.execute(
                "UPDATE glidepath_sessions SET head = $3, hash = $4, token = token + 1, owner = NULL, expires = $5 "
                "WHERE key = $1 AND token = $2",
                lease.key,
                lease.token,
                head,
                hash_,
                GONE,
            )
            if status != "UPDATE 1":
                raise await self._refused(connection, lease, head)
            await connection.execute(
                "DELETE FROM glidepath_commits WHERE session = $1 AND number > $2", lease.key, head
            )
        if line is not None:
            await self._let_go(line)

    async def remove(self, session_id: str) -> None:
        """Forget a session."""
        async with self._transaction() as connection:
            row = await connection.fetchrow(f"{_ENTRY} WHERE id = $1 FOR UPDATE", session_id)
            if row is None:
                raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")
            entry = _entry(row)
            now = await connection.fetchval(f"SELECT {_NOW}")
            if entry.owner is not None and now < entry.expires and alive(entry.owner):
                raise busy(entry)
            await connection.execute("DELETE FROM glidepath_sessions WHERE key = $1", row["key"])

    async def close(self) -> None:
        """Close the connections of this loop."""
        line = self._lines.pop((os.getpid(), id(asyncio.get_running_loop())), None)
        if line is not None:
            await self._shut(line)

    def _read(self, row: Any) -> Entry:
        return _entry(row)

    def __repr__(self) -> str:
        return "<PostgresStore>"


def _driver() -> Any:
    try:
        import asyncpg
    except ImportError:
        raise ConfigurationError("PostgresStore needs asyncpg: pip install 'glidepath[postgres]'") from None
    return asyncpg


def _entry(row: Any) -> Entry:
    try:
        summary = _wire.loads(row["summary"])
    except (_wire.WireError, ValueError):
        summary = {}
    return Entry(
        session_id=row["id"],
        head=row["head"],
        hash=row["hash"],
        token=row["token"],
        owner=row["owner"],
        expires=row["expires"],
        updated=row["updated"],
        flag=row["flag"],
        summary=summary,
    )
