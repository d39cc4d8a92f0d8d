"""The inbox of a session in a SQLite file: a side table, made when the first note is posted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from glidepath.spi.sessions import Entry, Note

if TYPE_CHECKING:
    import sqlite3

_TABLE = """
CREATE TABLE IF NOT EXISTS notes(
  session INTEGER NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL,
  posted REAL NOT NULL, PRIMARY KEY(session, number), UNIQUE(session, id)) WITHOUT ROWID
"""
_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'notes'"


def _there(connection: sqlite3.Connection) -> bool:
    return connection.execute(_THERE).fetchone() is not None


def last_note(connection: sqlite3.Connection, key: int) -> int:
    """The number of the last note of a session; 0 when it has none."""
    if not _there(connection):
        return 0
    row = connection.execute("SELECT max(number) FROM notes WHERE session = ?", (key,)).fetchone()
    return row[0] or 0


def _post(connection: sqlite3.Connection, key: int, note: Note, now: float) -> int:
    """Write a note once and return its number. A write transaction must be open."""
    connection.execute(_TABLE)
    known = connection.execute("SELECT number FROM notes WHERE session = ? AND id = ?", (key, note.id)).fetchone()
    if known is not None:
        return int(known[0])
    number = last_note(connection, key) + 1
    row = (key, number, note.id, note.kind, note.body, now)
    connection.execute("INSERT INTO notes(session, number, id, kind, body, posted) VALUES(?, ?, ?, ?, ?, ?)", row)
    return number


def _read(connection: sqlite3.Connection, key: int, after: int) -> list[Note]:
    """The notes above a number."""
    if not _there(connection):
        return []
    query = "SELECT number, id, kind, body, posted FROM notes WHERE session = ? AND number > ? ORDER BY number"
    return [
        Note(id=id_, kind=kind, body=bytes(body), number=number, posted=posted)
        for number, id_, kind, body, posted in connection.execute(query, (key, after))
    ]


def drop_notes(connection: sqlite3.Connection, key: int) -> None:
    """Forget the notes of a session."""
    if _there(connection):
        connection.execute("DELETE FROM notes WHERE session = ?", (key,))


class SqliteInbox:
    """The `Inbox` part of `SqliteStore`."""

    _clock: Callable[[], float]

    async def post(self, session_id: str, note: Note) -> int:
        """Put a note into a session's inbox."""

        def work(connection: sqlite3.Connection) -> int:
            return _post(connection, self._entry(connection, session_id)[1], note, self._clock())

        self._must_exist(session_id)
        return await self._patiently(lambda: self._do(work))  # type: ignore[no-any-return]

    async def notes(self, session_id: str, after: int = 0) -> Sequence[Note]:
        """The notes above a number."""

        def work(connection: sqlite3.Connection) -> list[Note]:
            return _read(connection, self._entry(connection, session_id)[1], after)

        self._must_exist(session_id)
        return await self._patiently(lambda: self._look(work))  # type: ignore[no-any-return]

    # --- what the store has -----------------------------------------------------------------------------------

    def _must_exist(self, session_id: str = "") -> None:
        raise NotImplementedError

    def _entry(self, connection: sqlite3.Connection, session_id: str) -> tuple[Entry, int]:
        raise NotImplementedError

    async def _patiently(self, work: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def _do(self, work: Callable[[Any], Any]) -> Any:
        raise NotImplementedError

    def _look(self, work: Callable[[Any], Any]) -> Any:
        raise NotImplementedError
