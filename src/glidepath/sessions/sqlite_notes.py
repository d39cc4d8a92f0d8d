"""The inbox of a session in a SQLite file: a side table, made when the first note is posted."""

from __future__ import annotations

from typing import Any

from glidepath.spi.sessions import Note

__all__ = ["drop_notes", "last_note", "post_note", "read_notes"]

_TABLE = """
CREATE TABLE IF NOT EXISTS notes(
  session INTEGER NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL,
  posted REAL NOT NULL, PRIMARY KEY(session, number), UNIQUE(session, id)) WITHOUT ROWID
"""
_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'notes'"


def _there(connection: Any) -> bool:
    return connection.execute(_THERE).fetchone() is not None


def last_note(connection: Any, key: int) -> int:
    """The number of the last note of a session; 0 when it has none."""
    if not _there(connection):
        return 0
    row = connection.execute("SELECT max(number) FROM notes WHERE session = ?", (key,)).fetchone()
    return row[0] or 0


def post_note(connection: Any, key: int, note: Note, now: float) -> int:
    """Write a note, once; its number. A transaction that writes is open."""
    connection.execute(_TABLE)
    known = connection.execute("SELECT number FROM notes WHERE session = ? AND id = ?", (key, note.id)).fetchone()
    if known is not None:
        return int(known[0])
    number = last_note(connection, key) + 1
    row = (key, number, note.id, note.kind, note.body, now)
    connection.execute("INSERT INTO notes(session, number, id, kind, body, posted) VALUES(?, ?, ?, ?, ?, ?)", row)
    return number


def read_notes(connection: Any, key: int, after: int) -> list[Note]:
    """The notes above a number."""
    if not _there(connection):
        return []
    query = "SELECT number, id, kind, body, posted FROM notes WHERE session = ? AND number > ? ORDER BY number"
    return [
        Note(id=id_, kind=kind, body=bytes(body), number=number, posted=posted)
        for number, id_, kind, body, posted in connection.execute(query, (key, after))
    ]


def drop_notes(connection: Any, key: int) -> None:
    """Forget the notes of a session."""
    if _there(connection):
        connection.execute("DELETE FROM notes WHERE session = ?", (key,))
