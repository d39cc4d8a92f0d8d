"""The catalog of an SQLite store: side tables that follow the sessions, so that a page of them is one query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.sessions.owner import is_claimable
from glidepath.sessions.session_ids import is_keepable
from glidepath.sessions.sqlite_journals import SqliteJournals
from glidepath.sessions.summaries import (
    LAST,
    UNFINISHED,
    check_query,
    check_title,
    make_page,
    make_summary,
    normalize_tags,
)
from glidepath.spi import SessionPage, SessionQuery

if TYPE_CHECKING:
    from glidepath.sessions.sqlite_file import Connection

_NOTE = "UPDATE catalog SET root = ?, state = ?, outcome = ?, agent = ?, cost = ?, words = ?, updated = ? WHERE key = ?"
_PAGE = (
    "SELECT s.id, s.head, s.hash, s.token, s.owner, s.expires, s.updated, s.flag, s.summary, s.key, s.lease, "
    "c.title, c.tags, c.updated FROM catalog c JOIN sessions s ON s.key = c.key"
)
_FAMILY = (
    "SELECT s.key, s.id, s.owner, s.expires, s.lease FROM sessions s LEFT JOIN catalog c ON c.key = s.key "
    "WHERE s.id = :id OR (s.id > :id || '/' AND s.id < :id || '0' AND (s.head = 0 OR NOT c.root))"
)
_BATCH = 200


def note_summary(
    execute: Callable[[str, Sequence[object]], object],
    key: int,
    session_id: str,
    summary: Mapping[str, Any],
    now: float,
) -> None:
    """Bring the row of a session up to date, in the transaction that writes its summary."""
    known = make_summary(summary)
    words = f"{known.task}\n{session_id}".casefold()
    execute(_NOTE, (known.root, known.state, known.outcome, known.agent, known.cost, words, now, key))


class SqliteCatalog(SqliteJournals):
    """The `Catalog` part of `SqliteStore`."""

    async def find(self, query: SessionQuery) -> SessionPage:
        """One page of the sessions that match."""
        query, start = check_query(query)
        where, values = conditions(query, start)
        statement = f"{_PAGE} WHERE {where} ORDER BY c.updated DESC, c.id LIMIT {query.limit + 1}"

        def work(connection: Connection) -> SessionPage:
            connection.execute("BEGIN")
            rows = connection.execute(statement, values).fetchall()
            heads = self._new_heads(connection, rows)
            found = [
                _wire.replace(self._current(connection, row, heads), title=row[11], tags=_split(row[12]))
                for row in rows
            ]
            return make_page(found, query.limit, [row[13] for row in rows])

        self._file.must_exist()
        return await self._group.read(work)

    async def remove_many(self, session_ids: Sequence[str]) -> list[str]:
        """Forget these sessions with their children, in batches."""
        self._file.must_exist()
        gone: list[str] = []
        names = [name for name in dict.fromkeys(session_ids) if is_keepable(name)]
        for first in range(0, len(names), _BATCH):
            gone += await self._write_without_lease(partial(self._remove, names=names[first : first + _BATCH]))
        if gone:
            await self._reclaim_space()
        return gone

    def _remove(self, connection: Connection, names: Sequence[str]) -> list[str]:
        now, gone = self._clock(), []
        for name in names:
            family = connection.execute(_FAMILY, {"id": name}).fetchall()
            if not all(is_claimable(owner, expires, now, length) for _, _, owner, expires, length in family):
                continue
            for key, session_id, *_ in family:
                self._forget(connection, key)
                self._held.pop(key, None)
                gone.append(session_id)
        return gone

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, the tags, or both."""
        name = None if title is None else check_title(title)
        labels = None if tags is None else normalize_tags(tags)

        def work(connection: Connection) -> None:
            _, key, _ = self._row(connection, session_id)
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

        self._file.must_exist(session_id)
        await self._write_without_lease(work)

    _held: dict[int, Any]

    async def _reclaim_space(self) -> None:
        raise NotImplementedError


_SUMMARY = "CAST(s.summary AS TEXT)"


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
    if query.user is not None:
        add(f"CASE WHEN json_valid({_SUMMARY}) THEN json_extract({_SUMMARY}, '$.user') END = ?", query.user)
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
