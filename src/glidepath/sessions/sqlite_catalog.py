"""The catalog of an SQLite store: side tables that follow the sessions, so that a page of them is one query.

Triggers keep it in step with whatever writes sessions, an older glidepath included: rows that only an older one wrote
are marked stale and read again before the next search.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.errors import StoreError
from glidepath.sessions.cards import (
    LAST,
    UNFINISHED,
    card,
    checked_query,
    checked_tags,
    checked_title,
    page_of,
    paged,
    summary_in,
)
from glidepath.sessions.owner import GONE, free
from glidepath.sessions.session_ids import is_keepable
from glidepath.sessions.sqlite_rows import blob
from glidepath.spi.session_catalog import SessionPage, SessionQuery
from glidepath.spi.sessions import Commit, Entry, Lease

if TYPE_CHECKING:
    import sqlite3

_ENDED = (
    "UPDATE sessions SET head = ?, hash = ?, token = token + 1, owner = NULL, expires = ?, updated = ?, summary = ? "
    "WHERE key = ? AND token = ?"
)
_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS catalog("
        "key INTEGER PRIMARY KEY, id TEXT NOT NULL, root INTEGER NOT NULL DEFAULT 1, state TEXT, outcome TEXT, "
        "agent TEXT, cost REAL, updated REAL NOT NULL, words TEXT NOT NULL DEFAULT '', title TEXT NOT NULL DEFAULT '', "
        "caption TEXT NOT NULL DEFAULT '', tags TEXT NOT NULL DEFAULT '', noted INTEGER NOT NULL DEFAULT 0, "
        "stale INTEGER NOT NULL DEFAULT 0)"
    ),
    "CREATE INDEX IF NOT EXISTS catalog_by_time ON catalog(updated DESC, id)",
    "CREATE INDEX IF NOT EXISTS catalog_stale ON catalog(key) WHERE stale",
    (
        "CREATE TABLE IF NOT EXISTS catalog_tags("
        "tag TEXT NOT NULL, key INTEGER NOT NULL, PRIMARY KEY(tag, key)) WITHOUT ROWID"
    ),
    "CREATE INDEX IF NOT EXISTS catalog_tags_of ON catalog_tags(key)",
    "INSERT OR IGNORE INTO catalog(key, id, updated, stale) SELECT key, id, updated, 1 FROM sessions",
    (
        "CREATE TRIGGER IF NOT EXISTS catalog_new AFTER INSERT ON sessions BEGIN "
        "INSERT OR IGNORE INTO catalog(key, id, updated, words) "
        "VALUES(NEW.key, NEW.id, NEW.updated, lower(NEW.id)); END"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS catalog_told AFTER UPDATE OF summary ON sessions "
        "WHEN NEW.head IS NOT (SELECT noted FROM catalog WHERE key = NEW.key) BEGIN "
        "UPDATE catalog SET stale = 1, updated = NEW.updated WHERE key = NEW.key; END"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS catalog_let_go AFTER UPDATE OF owner ON sessions WHEN NEW.owner IS NULL BEGIN "
        "UPDATE catalog SET updated = NEW.updated WHERE key = NEW.key; END"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS catalog_gone AFTER DELETE ON sessions BEGIN "
        "DELETE FROM catalog_tags WHERE key = OLD.key; DELETE FROM catalog WHERE key = OLD.key; END"
    ),
)
_NOTE = (
    "UPDATE catalog SET root = ?, state = ?, outcome = ?, agent = ?, cost = ?, words = ?, updated = ?, noted = ?, "
    "stale = 0 WHERE key = ?"
)
_PAGE = (
    "SELECT s.id, s.head, s.hash, s.token, s.owner, s.expires, s.updated, s.flag, s.summary, s.key, c.title, c.tags, "
    "c.updated FROM catalog c JOIN sessions s ON s.key = c.key"
)
_FAMILY = (
    "SELECT s.key, s.id, s.owner, s.expires FROM sessions s LEFT JOIN catalog c ON c.key = s.key "
    "WHERE s.id = :id OR (s.id > :id || '/' AND s.id < :id || '0' AND (s.head = 0 OR NOT c.root))"
)
_BATCH = 200
SHIFT = 32  # bits of a commit's place that are its number
_READ_ONLY = 8


def note_summary(
    execute: Callable[[str, Sequence[object]], object],
    key: int,
    session_id: str,
    summary: Mapping[str, Any],
    now: float,
    head: int,
) -> None:
    """Bring the row of a session up to date, in the transaction that writes its summary, and before that."""
    known = card(summary)
    words = f"{known.task}\n{session_id}".casefold()
    execute(_NOTE, (known.root, known.state, known.outcome, known.agent, known.cost, words, now, head, key))


def prepare(connection: sqlite3.Connection) -> bool:
    """Create missing tables; False if there are none and the file cannot be written."""
    import sqlite3

    wanted = "SELECT count(*) FROM sqlite_master WHERE name = 'catalog_gone'"
    if connection.execute(wanted).fetchone()[0]:
        return True
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except sqlite3.OperationalError as error:
        if (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF != _READ_ONLY:
            raise
        return False
    return True


class SqliteCatalog:
    """The `Catalog` part of `SqliteStore`."""

    _catalogued = True
    _clock: Callable[[], float]
    _leases: int
    path: str

    async def find(self, query: SessionQuery) -> SessionPage:
        """One page of the sessions that match."""
        query, start = checked_query(query)
        self._must_exist()
        if not await self._refreshed():
            return page_of(await self.entries(), query)
        where, values = conditions(query, start)
        statement = f"{_PAGE} WHERE {where} ORDER BY c.updated DESC, c.id LIMIT {query.limit + 1}"

        def work(connection: sqlite3.Connection) -> SessionPage:
            rows = connection.execute(statement, values).fetchall()
            found = [_wire.replace(self._current(connection, row), title=row[10], tags=_split(row[11])) for row in rows]
            return paged(found, query.limit, [row[12] for row in rows])

        return await self._patiently(lambda: self._look(work))  # type: ignore[no-any-return]

    async def _refreshed(self) -> bool:
        """Read what an older version wrote; False if there is no catalog and one cannot be created."""

        def stale(connection: sqlite3.Connection) -> bool:
            return bool(connection.execute("SELECT 1 FROM catalog WHERE stale LIMIT 1").fetchone())

        def batch(connection: sqlite3.Connection) -> None:
            rows = connection.execute(
                "SELECT s.key, s.id, s.summary, s.updated, s.head FROM catalog c JOIN sessions s ON s.key = c.key "
                "WHERE c.stale LIMIT ?",
                (_BATCH,),
            ).fetchall()
            for key, session_id, summary, updated, head in rows:
                note_summary(connection.execute, key, session_id, summary_in(summary), updated, head)

        await self._patiently(lambda: self._look(lambda _: None))  # opens the file, and makes the tables
        if not self._catalogued:
            return False
        while await self._patiently(lambda: self._look(stale)):
            try:
                await self._patiently(lambda: self._do(batch))
            except StoreError as error:
                if error.kind == "read_only":
                    return False
                raise
            await asyncio.sleep(0)
        return True

    async def remove_many(self, session_ids: Sequence[str]) -> list[str]:
        """Forget these sessions with their children, in batches."""
        self._must_exist()
        await self._refreshed()
        gone: list[str] = []
        names = [name for name in dict.fromkeys(session_ids) if is_keepable(name)]
        for first in range(0, len(names), _BATCH):
            work = partial(self._remove, names=names[first : first + _BATCH])
            gone += await self._patiently(partial(self._do, work))
            await asyncio.sleep(0)
        return gone

    def _remove(self, connection: sqlite3.Connection, names: Sequence[str]) -> list[str]:
        now, gone = self._clock(), []
        for name in names:
            family = connection.execute(_FAMILY, {"id": name}).fetchall()
            if not all(free(owner, expires, now) for _, _, owner, expires in family):
                continue
            for key, session_id, _, _ in family:
                self._forget(connection, key)
                gone.append(session_id)
        return gone

    async def replace_end(self, lease: Lease, end: Commit, summary: Mapping[str, Any]) -> None:
        """Put this commit in place of all from its number on, as a repair does. The lease is void after this."""
        key, now = lease.key, self._clock()
        place = (key << SHIFT) + end.number

        def work(connection: sqlite3.Connection) -> None:
            execute = connection.execute
            row = (end.number, end.hash, GONE, now, _wire.encode(summary), key, lease.token)
            if execute(_ENDED, row).rowcount != 1:
                raise self._refused(connection, lease, end.number)
            execute("DELETE FROM commits WHERE place BETWEEN ? AND ?", (place, (key + 1 << SHIFT) - 1))
            execute("INSERT INTO commits(place, hash, body) VALUES(?, ?, ?)", (place, end.hash, end.body))
            if self._catalogued:
                note_summary(execute, key, lease.session_id, summary, now, end.number)

        await self._patiently(lambda: self._do(work))
        self._leases = max(0, self._leases - 1)

    async def pick(self, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
        """These commits of a journal, as far as they exist."""

        def work(connection: sqlite3.Connection) -> list[Commit]:
            _, key = self._entry(connection, session_id)
            wanted = "SELECT hash, body FROM commits WHERE place = ?"
            rows = [(one, connection.execute(wanted, ((key << SHIFT) + one,)).fetchone()) for one in numbers]
            return [Commit(number, blob(row[1]), blob(row[0])) for number, row in rows if row is not None]

        self._must_exist(session_id)
        return await self._patiently(lambda: self._look(work))  # type: ignore[no-any-return]

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, the tags, or both."""
        name = None if title is None else checked_title(title)
        labels = None if tags is None else checked_tags(tags)

        def work(connection: sqlite3.Connection) -> None:
            _, key = self._entry(connection, session_id)
            if name is not None:
                connection.execute(
                    "UPDATE catalog SET title = ?, caption = ? WHERE key = ?", (name, name.casefold(), key)
                )
            if labels is not None:
                before = connection.execute("SELECT tags FROM catalog WHERE key = ?", (key,)).fetchone()
                old = _split(before[0]) if before else ()
                connection.executemany(
                    "DELETE FROM catalog_tags WHERE tag = ? AND key = ?", [(one, key) for one in old]
                )
                connection.executemany(
                    "INSERT OR IGNORE INTO catalog_tags VALUES(?, ?)", [(one, key) for one in labels]
                )
                connection.execute("UPDATE catalog SET tags = ? WHERE key = ?", (",".join(labels), key))

        self._must_exist(session_id)
        await self._patiently(lambda: self._do(work))

    # --- what the store has -----------------------------------------------------------------------------------

    def _must_exist(self, session_id: str = "") -> None:
        raise NotImplementedError

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions."""
        raise NotImplementedError

    async def _patiently(self, work: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def _look(self, work: Callable[[Any], Any]) -> Any:
        raise NotImplementedError

    def _do(self, work: Callable[[Any], Any]) -> Any:
        raise NotImplementedError

    def _entry(self, connection: sqlite3.Connection, session_id: str) -> tuple[Entry, int]:
        raise NotImplementedError

    def _current(self, connection: sqlite3.Connection, row: Sequence[Any]) -> Entry:
        raise NotImplementedError

    def _forget(self, connection: sqlite3.Connection, key: int) -> None:
        raise NotImplementedError

    def _refused(self, connection: sqlite3.Connection, lease: Lease, number: int) -> StoreError:
        raise NotImplementedError


def conditions(query: SessionQuery, start: tuple[float, str] | None) -> tuple[str, list[Any]]:
    """The WHERE of a query, and its values."""
    parts: list[str] = []
    values: list[Any] = []

    def add(condition: str, *given: object) -> None:
        parts.append(condition)
        values.extend(given)

    if query.prefix:
        add("s.id >= ? AND s.id < ?", query.prefix, query.prefix + LAST)
    if query.roots:
        add("c.root")
    if query.state is not None:
        add("c.state = ?", query.state)
    if query.outcome is not None:
        add("c.outcome IS ?", None if query.outcome == UNFINISHED else query.outcome)
    if query.agent is not None:
        add("c.agent = ?", query.agent)
    if query.tag is not None:
        add("c.key IN (SELECT key FROM catalog_tags WHERE tag = ?)", query.tag)
    if query.text:
        add("(instr(c.words, ?) OR instr(c.caption, ?))", query.text, query.text)
    if query.min_cost is not None:
        add("c.cost >= ?", float(query.min_cost))
    if query.max_cost is not None:
        add("c.cost <= ?", float(query.max_cost))
    if query.before is not None:
        add("c.updated < ? AND s.updated < ?", query.before, query.before)
    if query.after is not None:
        add("c.updated >= ?", query.after)
    if start is not None:
        add("c.updated <= ? AND (c.updated < ? OR c.id > ?)", start[0], start[0], start[1])
    return " AND ".join(parts) or "1", values


def _split(tags: str) -> tuple[str, ...]:
    return tuple(tags.split(",")) if tags else ()
