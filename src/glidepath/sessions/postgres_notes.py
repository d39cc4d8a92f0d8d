"""The inbox of a session in PostgreSQL: two side tables, and the statements that read and write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.spi import Note
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.sessions.postgres_pool import PostgresConnection

NOTES_TABLES = """
CREATE TABLE IF NOT EXISTS glidepath_inboxes(
  session bigint PRIMARY KEY REFERENCES glidepath_sessions(key) ON DELETE CASCADE, last bigint NOT NULL);
CREATE TABLE IF NOT EXISTS glidepath_notes(
  session bigint NOT NULL REFERENCES glidepath_sessions(key) ON DELETE CASCADE, number bigint NOT NULL,
  id text NOT NULL, kind text NOT NULL, body bytea NOT NULL, posted float8 NOT NULL,
  PRIMARY KEY(session, number), UNIQUE(session, id));
"""
MAIL = "coalesce((SELECT last FROM glidepath_inboxes i WHERE i.session = s.key), 0)"
"""The number of the last note of the session in a row `s`."""

# The row of the inbox is locked until the note is written: a number is never seen before the one below it.
_POST = """
WITH s AS (SELECT key FROM glidepath_sessions WHERE id = $1),
known AS (SELECT n.number FROM glidepath_notes n JOIN s ON s.key = n.session WHERE n.id = $2),
next AS (INSERT INTO glidepath_inboxes(session, last) SELECT key, 1 FROM s WHERE NOT EXISTS (SELECT 1 FROM known)
  ON CONFLICT (session) DO UPDATE SET last = glidepath_inboxes.last + 1 RETURNING session, last),
made AS (INSERT INTO glidepath_notes(session, number, id, kind, body, posted)
  SELECT session, last, $2, $3, $4, extract(epoch FROM clock_timestamp())::float8 FROM next RETURNING number)
SELECT (SELECT key FROM s) AS key, coalesce((SELECT number FROM made), (SELECT number FROM known)) AS number
"""
_READ = """
SELECT n.number, n.id, n.kind, n.body, n.posted FROM glidepath_sessions s
  LEFT JOIN glidepath_notes n ON n.session = s.key AND n.number > $2 WHERE s.id = $1 ORDER BY n.number
"""
_UNIQUE = "23505"


async def post_note(connection: PostgresConnection, session_id: str, note: Note) -> int:
    """Write a note, once; its number."""
    while True:
        try:
            row = await connection.fetchrow(_POST, session_id, note.id, note.kind, note.body)
        except Exception as error:
            if getattr(error, "sqlstate", None) == _UNIQUE:  # posted at the same moment: it is known now
                continue
            raise
        if row is None or row["key"] is None:
            raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")
        return int(row["number"])


async def read_notes(connection: PostgresConnection, session_id: str, after: int) -> list[Note]:
    """The notes above a number."""
    rows = await connection.fetch(_READ, session_id, after)
    if not rows:
        raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")
    return [
        Note(id=row["id"], kind=row["kind"], body=row["body"], number=row["number"], posted=row["posted"])
        for row in rows
        if row["number"] is not None
    ]
