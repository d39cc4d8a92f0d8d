"""The inbox of a session in a SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath.sessions.sqlite_journals import SqliteJournals
from glidepath.spi import Note

if TYPE_CHECKING:
    from glidepath.sessions.sqlite_file import Connection

_READ = "SELECT number, id, kind, body, posted FROM notes WHERE session = ? AND number > ? ORDER BY number"


def last_note(connection: Connection, key: int) -> int:
    """The number of the last note of a session; 0 when it has none."""
    row = connection.execute("SELECT max(number) FROM notes WHERE session = ?", (key,)).fetchone()
    return row[0] or 0


class SqliteInbox(SqliteJournals):
    """The `Inbox` part of `SqliteStore`."""

    async def post(self, session_id: str, note: Note) -> int:
        """Put a note into a session's inbox. It is on the disk then, whatever the durability of the run."""

        def work(connection: Connection) -> int:
            _, key, _ = self._row(connection, session_id)
            execute = connection.execute
            known = execute("SELECT number FROM notes WHERE session = ? AND id = ?", (key, note.id)).fetchone()
            if known is not None:
                return int(known[0])
            number = last_note(connection, key) + 1
            row = (key, number, note.id, note.kind, note.body, self._clock())
            execute("INSERT INTO notes(session, number, id, kind, body, posted) VALUES(?, ?, ?, ?, ?, ?)", row)
            return number

        self._file.must_exist(session_id)
        # A person wrote it, and nobody will write it again.
        return await self._write_without_lease(work, full=True)  # type: ignore[no-any-return]

    async def notes(self, session_id: str, after: int = 0) -> Sequence[Note]:
        """The notes above a number."""

        def work(connection: Connection) -> list[Note]:
            _, key, _ = self._row(connection, session_id)
            return [
                Note(id=id_, kind=kind, body=bytes(body), number=number, posted=posted)
                for number, id_, kind, body, posted in connection.execute(_READ, (key, after))
            ]

        self._file.must_exist(session_id)
        return await self._group.read(work)
