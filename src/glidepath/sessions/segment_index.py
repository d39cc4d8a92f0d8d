"""The index of a segment store: names, owners, summaries, and where the last frame of each session is.

It is a small SQLite file that is written in groups. Everything in it is in the segments, too: what it does not know yet
is read from their ends, and when it is lost it is made again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record
from glidepath.sessions.cards import card, summary_in
from glidepath.sessions.own_segment import segment_path
from glidepath.sessions.owner import GONE
from glidepath.spi.sessions import Note

if TYPE_CHECKING:
    import sqlite3

    from glidepath.sessions.segment_desk import Held

__all__ = ["FIELDS", "LAYOUT", "MARK", "Row", "SegmentIndex", "split"]

LAYOUT = 1
MARK = 64  # the place of every commit with a number that can be divided by this is noted
APPLICATION = 0x676C6978  # "glix"
_NAME = re.compile(r"(\d{8,})\.seg")
_TABLES = """
CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions(
  key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, token INTEGER NOT NULL DEFAULT 0,
  owner TEXT, writer TEXT, expires REAL NOT NULL DEFAULT 0, head INTEGER NOT NULL DEFAULT 0,
  hash BLOB NOT NULL DEFAULT x'', segment INTEGER NOT NULL DEFAULT 0, place INTEGER NOT NULL DEFAULT 0,
  updated REAL NOT NULL DEFAULT 0, released INTEGER NOT NULL DEFAULT 0, suspect INTEGER NOT NULL DEFAULT 0,
  flag TEXT, flagged REAL NOT NULL DEFAULT 0, summary BLOB NOT NULL DEFAULT '{}',
  title TEXT NOT NULL DEFAULT '', tags TEXT NOT NULL DEFAULT '', annotated REAL NOT NULL DEFAULT 0,
  root INTEGER NOT NULL DEFAULT 1, state TEXT, outcome TEXT, agent TEXT, cost REAL,
  words TEXT NOT NULL DEFAULT '', caption TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS sessions_by_time ON sessions(updated DESC, id);
CREATE TABLE IF NOT EXISTS catalog_tags(
  tag TEXT NOT NULL, key INTEGER NOT NULL, PRIMARY KEY(tag, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS catalog_tags_of ON catalog_tags(key);
CREATE TABLE IF NOT EXISTS segments(
  number INTEGER PRIMARY KEY, writer TEXT, known INTEGER NOT NULL DEFAULT 0, torn INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS parts(
  segment INTEGER NOT NULL, key INTEGER NOT NULL, live INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY(segment, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS parts_by_key ON parts(key);
CREATE TABLE IF NOT EXISTS removed(key INTEGER PRIMARY KEY, segment INTEGER NOT NULL, token INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS marks(
  key INTEGER NOT NULL, number INTEGER NOT NULL, segment INTEGER NOT NULL, place INTEGER NOT NULL,
  PRIMARY KEY(key, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes(
  key INTEGER NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL,
  posted REAL NOT NULL, PRIMARY KEY(key, number), UNIQUE(key, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gaps(
  segment INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, PRIMARY KEY(segment, start)) WITHOUT ROWID
"""
FIELDS = (
    *("key", "id", "token", "owner", "writer", "expires", "head", "hash", "segment", "place", "updated", "released"),
    *("suspect", "flag", "flagged", "summary", "title", "tags", "annotated"),
)
_SELECT = f"SELECT {', '.join(FIELDS)} FROM sessions"  # noqa: S608 - our own names
_NOTE = "UPDATE sessions SET root = ?, state = ?, outcome = ?, agent = ?, cost = ?, words = ? WHERE key = ?"
_PUT = (
    "UPDATE sessions SET token = ?, owner = ?, writer = ?, expires = ?, head = ?, hash = ?, segment = ?, place = ?, "
    "updated = ?, released = ?, suspect = ?, flag = ?, flagged = ?, summary = ? WHERE key = ?"
)


def _found_by(key: int, session_id: str, summary: bytes) -> tuple[Any, ...]:
    known = card(summary_in(summary))
    words = f"{known.task}\n{session_id}".casefold()
    return (known.root, known.state, known.outcome, known.agent, known.cost, words, key)


class Row(Record):
    """What the index has of one session. `segment` and `place` are where the last frame of its chain is."""

    key: int
    id: str
    token: int = 0
    owner: str | None = None
    writer: str | None = None
    """The store object that holds it, or held it last."""
    expires: float = GONE
    head: int = 0
    hash: bytes = b""
    segment: int = 0
    place: int = 0
    updated: float = 0.0
    released: int = 0
    suspect: int = 0
    """Something broken lies behind its last frame: commits may be lost."""
    flag: str | None = None
    flagged: float = 0.0
    summary: bytes = b"{}"
    title: str = ""
    tags: str = ""
    """Joined by commas."""
    annotated: float = 0.0


def split(tags: str) -> tuple[str, ...]:
    """The tags of a row."""
    return tuple(tags.split(",")) if tags else ()


class Foreign(Exception):  # noqa: N818 - never leaves the store
    """The file is a foreign index, or not an index: rebuild it."""


class SegmentIndex:
    """The open index of one folder. Its methods raise SQLite's errors; the store says what they mean."""

    def __init__(self, folder: str, store: str, *, wait: int, writable: bool = True) -> None:
        self.folder, self.store = folder, store
        self.path = f"{folder}/index.db"
        self.writable = writable
        self.db: sqlite3.Connection = self._open(wait) if writable else self._copied()
        try:
            self.inode = os.stat(self.path).st_ino if writable else 0  # noqa: PTH116
        except OSError:
            self.inode = 0

    def _open(self, wait: int) -> sqlite3.Connection:
        import sqlite3

        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            os.chmod(self.path, 0o600)  # noqa: PTH101 - whatever the umask
        db = sqlite3.connect(
            self.path, timeout=wait / 1000, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _copied(self) -> sqlite3.Connection:
        """A copy in memory, for a folder in which nothing can be written."""
        import sqlite3
        from urllib.parse import quote

        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with suppress(sqlite3.Error, OSError):
            there = sqlite3.connect(f"file:{quote(os.path.abspath(self.path))}?immutable=1", uri=True)  # noqa: PTH100
            try:
                there.backup(db)
                self._check(db)
                db.execute("SELECT count(*) FROM sessions")
                return db
            except Foreign:
                pass
            finally:
                there.close()
        db.close()
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._prepare(db)
        return db

    def _check(self, db: sqlite3.Connection) -> None:
        owner = db.execute("PRAGMA application_id").fetchone()[0]
        if owner != APPLICATION or db.execute("PRAGMA user_version").fetchone()[0] != LAYOUT:
            raise Foreign
        found = db.execute("SELECT value FROM meta WHERE name = 'store'").fetchone()
        if found is None or found[0] != self.store:
            raise Foreign

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Make the tables of a new file. The caller holds the folder's lock alone, or finds them made."""
        if db.execute("PRAGMA page_count").fetchone()[0] > 1:
            self._check(db)
        else:
            db.execute("PRAGMA page_size = 1024")  # a group touches few rows: small pages are less to write
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";"):
                db.execute(statement)
            db.execute("INSERT OR IGNORE INTO meta VALUES('store', ?)", (self.store,))
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {LAYOUT}")
            db.execute("COMMIT")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA wal_autocheckpoint = 4000")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                with suppress(Exception):
                    self.db.execute("ROLLBACK")
            raise

    def replaced(self) -> bool:
        """True when the file at this path is another one, or none."""
        if not self.writable:
            return False
        try:
            return os.stat(self.path).st_ino != self.inode  # noqa: PTH116
        except OSError:
            return True

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    # --- sessions ---------------------------------------------------------------------------------------------

    def named(self, session_id: str) -> Row | None:
        """The session with this id."""
        row = self.db.execute(f"{_SELECT} WHERE id = ?", (session_id,)).fetchone()
        return None if row is None else Row(*row)

    def keyed(self, key: int) -> Row | None:
        """The session with this key."""
        row = self.db.execute(f"{_SELECT} WHERE key = ?", (key,)).fetchone()
        return None if row is None else Row(*row)

    def all(self) -> list[Row]:
        """Every session."""
        return [Row(*row) for row in self.db.execute(_SELECT)]

    def family(self, session_id: str) -> list[Row]:
        """A session and its children, and theirs."""
        rows = self.db.execute(
            f"{_SELECT} WHERE id = :id OR (id > :id || '/' AND id < :id || '0' AND (head = 0 OR NOT root))",
            {"id": session_id},
        )
        return [Row(*row) for row in rows.fetchall()]

    def made(self, session_id: str, now: float, owner: str, writer: str, expires: float) -> Row:
        """A new session with its first owner; its key was never used before."""
        done = self.db.execute(
            "INSERT INTO sessions(id, token, owner, writer, expires, updated, words) VALUES(?, 1, ?, ?, ?, ?, ?)",
            (session_id, owner, writer, expires, now, session_id.casefold()),
        )
        return Row(done.lastrowid or 0, session_id, 1, owner, writer, expires, updated=now)

    def put(self, row: Row) -> None:
        """Write a session's row."""
        self.db.execute(
            _PUT,
            (
                *(row.token, row.owner, row.writer, row.expires, row.head, row.hash, row.segment, row.place),
                *(row.updated, row.released, row.suspect, row.flag, row.flagged, row.summary, row.key),
            ),
        )

    def note(self, key: int, session_id: str, summary: bytes) -> None:
        """Write down what a session is found by, after its summary or its name has changed."""
        self.db.execute(_NOTE, _found_by(key, session_id, summary))

    def note_many(self, held: Iterable[Held]) -> None:
        """The same for sessions whose summaries are new."""
        self.db.executemany(_NOTE, (_found_by(one.key, one.id, one.summary) for one in held))

    def mark(self, key: int, marks: Iterable[tuple[int, int, int]]) -> None:
        """Note where some commits are: number, segment and place. Looking for one near it is then short."""
        rows = [(key, *mark) for mark in marks]
        self.db.executemany("INSERT OR REPLACE INTO marks VALUES(?, ?, ?, ?)", rows)

    def unmark(self, key: int, after: int = 0) -> None:
        """Commits after this one are gone, or elsewhere."""
        self.db.execute("DELETE FROM marks WHERE key = ? AND number > ?", (key, after))

    def mark_at(self, key: int, number: int) -> tuple[int, int, int] | None:
        """The next commit from this one on whose place is noted."""
        row = self.db.execute(
            "SELECT number, segment, place FROM marks WHERE key = ? AND number >= ? ORDER BY number LIMIT 1",
            (key, number),
        ).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def mail(self, key: int) -> int:
        """The number of the last note in a session's inbox."""
        return self.db.execute("SELECT max(number) FROM notes WHERE key = ?", (key,)).fetchone()[0] or 0

    def posted(self, key: int, note: Note) -> tuple[int, bool]:
        """The number of this note, and whether it is new."""
        known = self.db.execute("SELECT number FROM notes WHERE key = ? AND id = ?", (key, note.id)).fetchone()
        if known is not None:
            return known[0], False
        number = note.number or self.mail(key) + 1
        done = self.db.execute(
            "INSERT OR IGNORE INTO notes VALUES(?, ?, ?, ?, ?, ?)",
            (key, number, note.id, note.kind, note.body, note.posted),
        )
        return number, done.rowcount == 1

    def notes(self, key: int, after: int = 0) -> list[Note]:
        """The notes with a number above this one."""
        rows = self.db.execute(
            "SELECT id, kind, body, number, posted FROM notes WHERE key = ? AND number > ? ORDER BY number",
            (key, min(after, 2**62)),
        )
        return [Note(id=row[0], kind=row[1], body=row[2], number=row[3], posted=row[4]) for row in rows]

    def label(self, key: int, title: str, tags: str, now: float) -> None:
        """Write down what a person called a session."""
        self.db.execute(
            "UPDATE sessions SET title = ?, caption = ?, tags = ?, annotated = ? WHERE key = ?",
            (title, title.casefold(), tags, now, key),
        )
        self.db.execute("DELETE FROM catalog_tags WHERE key = ?", (key,))
        self.db.executemany("INSERT INTO catalog_tags VALUES(?, ?)", [(tag, key) for tag in split(tags)])

    def forget(self, key: int, segment: int, token: int) -> None:
        """The session is gone; `segment` is where that is written, and `token` is larger than any of its owners had."""
        self.db.execute("DELETE FROM sessions WHERE key = ?", (key,))
        self.db.execute("DELETE FROM catalog_tags WHERE key = ?", (key,))
        self.unmark(key)
        self.db.execute("DELETE FROM notes WHERE key = ?", (key,))
        self.db.execute("INSERT OR REPLACE INTO removed VALUES(?, ?, ?)", (key, segment, token))

    def is_removed(self, key: int, token: int) -> bool:
        """True when a session was removed after the owner with this token had it."""
        row = self.db.execute("SELECT token FROM removed WHERE key = ?", (key,)).fetchone()
        return row is not None and token < row[0]

    # --- segments ---------------------------------------------------------------------------------------------

    def segment_of(self, writer: str | None) -> int:
        """The segment that this store object writes now; 0 when it writes none."""
        row = self.db.execute("SELECT max(number) FROM segments WHERE writer = ?", (writer,)).fetchone()
        return row[0] or 0

    def written(self) -> list[int]:
        """The segments that may have a writer."""
        return [row[0] for row in self.db.execute("SELECT number FROM segments WHERE writer IS NOT NULL")]

    def known(self, number: int) -> tuple[str | None, int]:
        """Who writes a segment, and how much of it is in the index."""
        row = self.db.execute("SELECT writer, known FROM segments WHERE number = ?", (number,)).fetchone()
        return (None, 0) if row is None else (row[0], row[1])

    def free_segment(self, limit: int, but: Container[int] = ()) -> int | None:
        """A segment that nobody writes any more, is whole, and has room; None when there is none but these."""
        rows = self.db.execute(
            "SELECT number, known FROM segments WHERE writer IS NULL AND torn = 0 AND known BETWEEN 1 AND ? "
            "AND number NOT IN (SELECT segment FROM gaps) ORDER BY number DESC LIMIT 8",
            (limit,),
        ).fetchall()
        for number, known in rows:
            if number in but:
                continue
            with suppress(OSError):
                if os.stat(segment_path(self.folder, number)).st_size == known:  # noqa: PTH116
                    return int(number)
        return None

    def unused_number(self) -> int:
        """A number that no segment has, in the index or in the folder."""
        row = self.db.execute("SELECT max(number) FROM segments").fetchone()
        return max([row[0] or 0, *self.files()]) + 1

    def files(self) -> list[int]:
        """The numbers of the segments in the folder."""
        names = (_NAME.fullmatch(name) for name in os.listdir(f"{self.folder}/segments"))  # noqa: PTH208
        return sorted(int(name[1]) for name in names if name is not None)

    def strange(self) -> list[int]:
        """Segments in the folder that the index does not know."""
        known = {row[0] for row in self.db.execute("SELECT number FROM segments")}
        return [number for number in self.files() if number not in known]

    def close_segment(self, number: int, known: int, size: int) -> None:
        """Note that this segment has no writer; a torn end stays."""
        self.db.execute("UPDATE segments SET writer = NULL, torn = ? WHERE number = ?", (size > known, number))

    def empty_segments(self) -> list[int]:
        """Segments that no session needs, and whose removal records are not needed either."""
        return [
            row[0]
            for row in self.db.execute(
                "SELECT number FROM segments s WHERE writer IS NULL "
                "AND NOT EXISTS(SELECT 1 FROM parts p JOIN sessions x ON x.key = p.key "
                "  WHERE p.segment = s.number AND p.live) "
                "AND NOT EXISTS(SELECT 1 FROM removed r JOIN parts p ON p.key = r.key "
                "  WHERE r.segment = s.number AND p.segment != s.number)"
            )
        ]

    def add_parts(self, parts: Iterable[tuple[int, int]]) -> None:
        """Note that these segments have frames of these sessions, and that they count."""
        self.db.executemany(
            "INSERT INTO parts(segment, key) VALUES(?, ?) ON CONFLICT(segment, key) DO UPDATE SET live = 1", parts
        )

    def moved_to(self, key: int, segment: int) -> None:
        """What older segments have of a session does not count any more. It is there until they are deleted."""
        self.db.execute("UPDATE parts SET live = 0 WHERE key = ?", (key,))
        self.add_parts([(segment, key)])

    def drop_segment(self, number: int) -> None:
        """Forget a segment whose file is gone."""
        self.db.execute("DELETE FROM segments WHERE number = ?", (number,))
        self.db.execute("DELETE FROM parts WHERE segment = ?", (number,))
        self.db.execute("DELETE FROM gaps WHERE segment = ?", (number,))
        self.db.execute("DELETE FROM removed WHERE segment = ?", (number,))
