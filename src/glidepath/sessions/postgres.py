"""A store in PostgreSQL, for sessions that many machines share. One round trip for each commit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any, TypeVar

from glidepath import _wire
from glidepath.sessions.chain import make_layout_error
from glidepath.sessions.copies import CanFork
from glidepath.sessions.memory import check_durability, make_busy_error, make_conflict_error
from glidepath.sessions.owner import GONE, LEASE, SHORT, is_alive, is_of_this_process
from glidepath.sessions.postgres_catalog import OF_PREFIX, PostgresCatalog, prepare
from glidepath.sessions.postgres_notes import MAIL, NOTES_TABLES, post_note, read_notes
from glidepath.sessions.postgres_pool import (
    ConnectionPool,
    PostgresConnection,
    PostgresRow,
    retry_through_restart,
    translate_errors,
)
from glidepath.sessions.postgres_wallets import PostgresWallets
from glidepath.sessions.session_ids import check_storable_id, is_keepable, keepable_reason
from glidepath.sessions.summaries import LAST, summary_in
from glidepath.spi import Commit, Entry, Lease, Note, Sign
from glidepath.values import ConfigurationError, StoreError

T = TypeVar("T")
LAYOUT = 1
GATHER = 0.15  # seconds in which the heartbeats of other runs may join
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
_DURABLE = (  # a confirmed commit survives a crash of the server, whatever its default
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
_SIDE_TABLES = {"glidepath_notes": NOTES_TABLES}
"""Tables added later, by the name of the last one: created if missing, so that the layout version stays the same."""
_ENTRY = "SELECT id, head, hash, token, owner, expires, updated, flag, summary, key FROM glidepath_sessions"
_FREE = f"(s.owner IS NULL OR s.expires <= {_NOW} OR s.owner = $2 OR s.owner = $4)"  # $4: an owner known to be dead
_TAKEN = f"RETURNING s.key, s.token, s.head, s.hash, s.expires, {MAIL} AS mail"
_CLAIM = f"""
UPDATE glidepath_sessions s SET token = s.token + 1, owner = $2, expires = {_NOW} + $3
WHERE s.id = $1 AND {_FREE} AND s.token = coalesce($5, s.token) {_TAKEN}
"""  # noqa: S608 - constants of ours
_MAKE = f"""
INSERT INTO glidepath_sessions AS s(id, updated, token, owner, expires) VALUES($1, {_NOW}, 1, $2, {_NOW} + $3)
ON CONFLICT (id) DO UPDATE SET token = s.token + 1, owner = $2, expires = {_NOW} + $3
WHERE {_FREE} AND s.token = coalesce($5, s.token) {_TAKEN}
"""
_BEAT = f"""
WITH held AS (SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS l(key, token)),
renewed AS (UPDATE glidepath_sessions s SET expires = {_NOW} + $3 FROM held
  WHERE $4 AND s.key = held.key AND s.token = held.token)
SELECT s.key, s.token, s.flag, {MAIL} AS mail FROM glidepath_sessions s WHERE s.key = ANY($1)
"""  # noqa: S608 - constants of ours
_LOAD = """
SELECT 0::bigint AS number, s.summary AS body, s.hash, s.id, s.head, s.token, s.owner, s.expires, s.updated, s.flag,
  s.summary FROM glidepath_sessions s WHERE s.id = $1
UNION ALL SELECT c.number, c.body, c.hash, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM glidepath_commits c JOIN glidepath_sessions s ON s.key = c.session WHERE s.id = $1 AND c.number >= $2
ORDER BY 1
"""
_APPEND = f"""
WITH moved AS (
  UPDATE glidepath_sessions SET head = $2, hash = $3, updated = {_NOW}, expires = {_NOW} + $4, owner = $5,
    summary = coalesce($6, summary)
  WHERE key = $1 AND token = $7 AND head = $2 - 1 RETURNING key)
INSERT INTO glidepath_commits(session, number, hash, body) SELECT key, $2, $3, $8 FROM moved
"""  # noqa: S608 - constants of ours
_CUT = f"""
WITH moved AS (UPDATE glidepath_sessions SET head = $3, hash = $4, token = token + 1, owner = NULL, expires = {GONE}
  WHERE key = $1 AND token = $2 RETURNING key),
gone AS (DELETE FROM glidepath_commits c USING moved WHERE c.session = moved.key AND c.number > $3)
SELECT count(*) FROM moved
"""  # noqa: S608 - constants of ours
_held: set[str] = set()
"""The owners of all current leases of this process; any other owner of this process is a leftover."""


class _Line:
    """The connections of one event loop, while they are in use."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self.users = 0
        self.leases = 0
        self.asked: dict[str, Lease] = {}
        self.answer: asyncio.Task[dict[str, Sign]] | None = None
        self.renewed = -inf


class PostgresStore(CanFork, PostgresCatalog, PostgresWallets):
    """Keeps journals in a PostgreSQL database; the tables are made when they are first used.

    `timeout` is how many seconds a statement may take; `max_connections` how many connections each event loop has at
    most. It waits up to 25 seconds for a database that restarts. Needs the extra `glidepath[postgres]`.
    """

    def __dir__(self) -> list[str]:
        from glidepath.values import OF_STORES, list_for_people

        return list_for_people(self, OF_STORES)

    def __init__(self, dsn: str, *, lease: float = LEASE, timeout: float = 10.0, max_connections: int = 8) -> None:
        if not isinstance(dsn, str) or not dsn.strip():
            raise ConfigurationError(f"PostgresStore takes a dsn such as 'postgresql://host/db', not {dsn!r:.100}")
        if isinstance(max_connections, bool) or not isinstance(max_connections, int) or max_connections < 1:
            raise ConfigurationError(f"max_connections must be a whole number of at least 1, not {max_connections!r}")
        self._dsn = dsn
        self._lease = lease
        self._timeout = timeout
        self._size = max_connections
        self._lines: dict[tuple[int, int], _Line] = {}
        self._ready = False
        PostgresWallets.__init__(self)

    # --- connections ------------------------------------------------------------------------------------------

    @property
    def dsn(self) -> str:
        """The address it was made with. It may contain a password."""
        return self._dsn

    async def asked(self, query: str, *arguments: object) -> Any:
        """Query one value from the same database, for other data kept there."""

        async def work(connection: PostgresConnection) -> Any:
            return await connection.fetchval(query, *arguments)

        return await self._run_with_retry(work)

    async def transact(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Do something with other data kept in the same database, in one transaction. It is not retried."""
        async with self._transaction() as connection:
            return await work(connection)

    def _place(self) -> tuple[int, int]:
        return os.getpid(), id(asyncio.get_running_loop())

    def _enter(self) -> _Line:
        """The connections of this loop, created if needed."""
        line = self._lines.get(self._place())
        if line is None or line.pool.loop is not asyncio.get_running_loop():
            pool = ConnectionPool(self._dsn, size=self._size, timeout=self._timeout, prepare=self._prepare)
            line = self._lines[self._place()] = _Line(pool)
        line.users += 1
        return line

    async def _leave_line(self, line: _Line) -> None:
        line.users -= 1
        if not line.users:
            if self._lines.get(self._place()) is line:
                del self._lines[self._place()]
            await line.pool.close()

    async def _run_with_retry(self, work: Callable[[Any], Awaitable[T]], *, patient: bool = True) -> T:
        """Do it on a connection, and retry while the database restarts: `work` must be safe to repeat."""
        line = self._enter()

        async def once() -> T:
            with translate_errors("the session store", self._timeout):
                async with line.pool.connection() as connection:
                    return await work(connection)

        try:
            return await (retry_through_restart(once, known=lambda: self._ready) if patient else once())
        finally:
            await self._leave_line(line)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """A connection for work that must not be repeated: wait for it, but do not retry."""
        line = self._enter()
        try:
            with translate_errors("the session store", self._timeout):
                async with line.pool.connection(known=lambda: self._ready) as connection:
                    yield connection
        finally:
            await self._leave_line(line)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        """A transaction that locks rows, but no longer than `timeout` if it stalls."""
        async with self._connection() as connection, connection.transaction():
            most = max(1, int(self._timeout * 1000))
            await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {most}")
            yield connection

    async def _open_line(self) -> _Line:
        """Keep the connections of this loop open until `_release_line`."""
        return self._enter()

    async def _release_line(self, line: _Line) -> None:
        await self._leave_line(line)

    async def _prepare(self, connection: PostgresConnection) -> None:
        await connection.execute(_DURABLE)
        if self._ready:
            return
        await make_tables(connection)
        layout = await connection.fetchval("SELECT version FROM glidepath_layout")
        if layout != LAYOUT:
            raise make_layout_error("the database has", layout, LAYOUT)
        self._catalogued = await prepare(connection)
        self._ready = True

    # --- owning -----------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner."""
        expected = self._find_expected_head(check_storable_id(session_id))

        async def work(connection: PostgresConnection) -> Lease:
            dead = None
            while True:
                query = _MAKE if create else _CLAIM
                row = await connection.fetchrow(query, session_id, owner, self._lease, dead, expected)
                if row is not None:
                    key, token, head, hash_, expires, mail = row
                    return Lease(session_id, token, owner, expires, head, hash_, key, mail)
                row = await connection.fetchrow(f"{_ENTRY} WHERE id = $1", session_id)
                if row is None and not create:
                    raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")
                if row is not None:
                    dead = self._to_replace(_entry(row), expected, dead)

        line = self._enter()
        line.leases += 1
        _held.add(owner)
        try:
            return await self._run_with_retry(work)
        except BaseException:
            _held.discard(owner)
            line.leases -= 1
            await self._leave_line(line)
            raise

    def _find_expected_head(self, session_id: str) -> int | None:  # noqa: ARG002 - for the store of a fleet
        """The token the session must still have when it is claimed; None if any will do."""
        return None

    def _to_replace(self, entry: Entry, expected: int | None, dead: str | None) -> str | None:
        """The dead owner of a session that could not be claimed; raises `StoreError` if it is alive."""
        if expected is not None and entry.token != expected:
            raise StoreError(f"session {entry.session_id!r} was claimed by another worker meanwhile", kind="fenced")
        if entry.owner is not None and entry.owner != dead and _is_alive(entry.owner):
            raise make_busy_error(entry)
        return entry.owner

    async def _lease_over(self, lease: Lease) -> None:
        """A lease has ended, released or not."""
        _held.discard(lease.owner)
        line = self._lines.get(self._place())
        if line is not None and line.leases:
            line.leases -= 1
            if not line.leases and line.answer is not None:  # nobody waits for that any more
                line.answer.cancel()
                await asyncio.wait([line.answer])
                line.answer = None
            await self._leave_line(line)

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Look after leases: one statement for all runs of a loop that ask at about the same time."""
        line = self._enter()
        try:
            line.asked.update((lease.session_id, lease) for lease in leases)
            if line.answer is None:
                work = self._beat_all(line, renew=renew)
                line.answer = asyncio.get_running_loop().create_task(work, name="glidepath-beat")
                line.answer.add_done_callback(_retrieve_exception)
            signs = await asyncio.shield(line.answer)
        finally:
            await self._leave_line(line)
        return [signs[lease.session_id] for lease in leases if lease.session_id in signs]

    async def _beat_all(self, line: _Line, *, renew: bool) -> dict[str, Sign]:
        if line.leases > 1:
            await asyncio.sleep(GATHER)
        line.answer = None
        leases, line.asked = list(line.asked.values()), {}
        now = asyncio.get_running_loop().time()
        if renew or self._lease < SHORT or now - line.renewed >= self._lease / 3:
            renew, line.renewed = True, now
        keys, tokens = [lease.key for lease in leases], [lease.token for lease in leases]
        rows = await self._run_with_retry(
            lambda connection: connection.fetch(_BEAT, keys, tokens, self._lease, renew), patient=False
        )
        found = {row["key"]: row for row in rows}
        signs = [_sign(lease, found.get(lease.key)) for lease in leases]
        return {sign.session_id: sign for sign in signs if sign.lost or sign.stop is not None or sign.mail}

    async def release(self, lease: Lease) -> None:
        """Give the lease back, after everything is written."""
        line = self._lines.get(self._place())
        if line is None:
            _held.discard(lease.owner)
            return
        query = "UPDATE glidepath_sessions SET owner = NULL, expires = $3 WHERE key = $1 AND token = $2"
        try:
            await self._run_with_retry(lambda connection: connection.execute(query, lease.key, lease.token, GONE))
        finally:
            await self._lease_over(lease)

    # --- writing ----------------------------------------------------------------------------------------------

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit. The server has it on its disk then: it makes no difference between the durabilities."""
        check_durability(durability)
        return self._append(lease, commit, None if summary is None else _wire.encode(summary))

    async def _append(self, lease: Lease, commit: Commit, summary: bytes | None) -> None:
        number, hash_ = commit.number, commit.hash

        async def work(connection: PostgresConnection) -> None:
            if await self._write_commit(connection, lease, commit, summary):
                return
            query = "SELECT hash FROM glidepath_commits WHERE session = $1 AND number = $2"
            refused = await self._explain_refusal(connection, lease, number)
            if refused.kind != "conflict" or await connection.fetchval(query, lease.key, number) != hash_:
                raise refused  # otherwise it was written before the connection broke

        await self._run_with_retry(work)

    async def _write_commit(
        self, connection: PostgresConnection, lease: Lease, commit: Commit, summary: bytes | None
    ) -> bool:
        """One statement: the commit, the new head, and the check of the lease; False when it was refused."""
        values = (lease.key, commit.number, commit.hash, self._lease, lease.owner, summary, lease.token, commit.body)
        return await connection.execute(_APPEND, *values) == "INSERT 0 1"

    async def begin_transaction(self, lease: Lease, seconds: float | None) -> Any:
        """A transaction of this database for one call of a transactional tool."""
        from glidepath.sessions.postgres_transactions import PostgresTransaction

        return await PostgresTransaction(self, lease, seconds).begin()

    async def _explain_refusal(self, connection: PostgresConnection, lease: Lease, number: int) -> StoreError:
        row = await connection.fetchrow("SELECT token, head FROM glidepath_sessions WHERE key = $1", lease.key)
        if row is None:
            return StoreError(f"session {lease.session_id!r} was removed", kind="missing")
        if row["token"] != lease.token:
            return StoreError(f"session {lease.session_id!r} was taken over by another owner", kind="fenced")
        return make_conflict_error(lease.session_id, number, row["head"])

    # --- reading and housekeeping -----------------------------------------------------------------------------

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The journal, from commit `since` on."""
        rows = await self._run_with_retry(
            lambda connection: connection.fetch(_LOAD, check_storable_id(session_id), since)
        )
        if not rows:
            raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")
        return _entry(rows[0]), tuple([Commit(one["number"], one["body"], one["hash"]) for one in rows[1:]])

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions whose ids begin in this way, newest first."""
        if not is_keepable(prefix):
            return []
        where, values = (f"WHERE key IN ({OF_PREFIX})", (prefix, prefix + LAST)) if prefix else ("", ())
        query = f"{_ENTRY} {where} ORDER BY updated DESC, id"
        found = await self._run_with_retry(lambda connection: connection.fetch(query, *values))
        return [_entry(row) for row in found]

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop."""
        query = "UPDATE glidepath_sessions SET flag = $2 WHERE id = $1"
        said = keepable_reason(reason)
        if (
            await self._run_with_retry(
                lambda connection: connection.execute(query, check_storable_id(session_id), said)
            )
            != "UPDATE 1"
        ):
            raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")

    async def post(self, session_id: str, note: Note) -> int:
        """Put a note into a session's inbox."""
        return await self._run_with_retry(lambda connection: post_note(connection, check_storable_id(session_id), note))

    async def notes(self, session_id: str, after: int = 0) -> Sequence[Note]:
        """The notes above a number."""
        return await self._run_with_retry(
            lambda connection: read_notes(connection, check_storable_id(session_id), after)
        )

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`."""

        async def work(connection: PostgresConnection) -> None:
            if not await connection.fetchval(_CUT, lease.key, lease.token, head, hash_):
                raise await self._explain_refusal(connection, lease, head)

        await self._run_with_retry(work)
        await self._lease_over(lease)

    async def remove(self, session_id: str) -> None:
        """Forget a session."""

        async def work(connection: PostgresConnection) -> None:
            row = await connection.fetchrow(f"{_ENTRY} WHERE id = $1", check_storable_id(session_id))
            if row is None:
                raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")
            entry = _entry(row)
            now = await connection.fetchval(f"SELECT {_NOW}")
            if entry.owner is not None and now < entry.expires and _is_alive(entry.owner):
                raise make_busy_error(entry)
            query = "DELETE FROM glidepath_sessions WHERE key = $1 AND token = $2"
            if await connection.execute(query, row["key"], entry.token) != "DELETE 1":
                raise make_busy_error(entry)  # it was claimed in between

        await self._run_with_retry(work)

    async def close(self) -> None:
        """Close the connections of this loop."""
        line = self._lines.pop(self._place(), None)
        if line is not None:
            await line.pool.close()

    def _read(self, row: PostgresRow) -> Entry:
        return _entry(row)

    def __repr__(self) -> str:
        return "<PostgresStore>"


async def make_tables(connection: PostgresConnection) -> None:
    """Make the tables that are missing."""
    for name, tables in {"glidepath_commits": _TABLES, **_SIDE_TABLES}.items():
        if await connection.fetchval("SELECT to_regclass($1) IS NULL", name):
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _ADVISORY)
                await connection.execute(tables)


def _is_alive(owner: str) -> bool:
    return owner in _held if is_of_this_process(owner) else is_alive(owner)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # mark it as retrieved: those who waited have it


def _sign(lease: Lease, row: PostgresRow | None) -> Sign:
    if row is None or row["token"] != lease.token:
        return Sign(session_id=lease.session_id, lost=True)
    return Sign(session_id=lease.session_id, stop=row["flag"], mail=row["mail"])


def _entry(row: PostgresRow) -> Entry:
    return Entry(
        session_id=row["id"],
        head=row["head"],
        hash=row["hash"],
        token=row["token"],
        owner=row["owner"],
        expires=row["expires"],
        updated=row["updated"],
        flag=row["flag"],
        summary=summary_in(row["summary"]),
    )
