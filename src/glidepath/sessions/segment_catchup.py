"""Catching up: the index reads what segments have that it does not know yet. Reading twice changes nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from glidepath import _wire
from glidepath.sessions.frames import HEADER_SIZE, Frame, Gap, Kind, Scan, salt_of, scan
from glidepath.sessions.own_segment import is_free, segment_path
from glidepath.sessions.owner import GONE
from glidepath.sessions.segment_index import MARK, Row, SegmentIndex
from glidepath.sessions.segment_reader import Broken, SegmentReader
from glidepath.spi.sessions import Note

__all__ = ["Catching", "catch_up", "discover"]

NAMELESS = 2  # a session whose name cannot be read any more


def catch_up(index: SegmentIndex, number: int) -> None:
    """Read what this segment has behind what is known of it; inside a transaction."""
    writer, known = index.known(number)
    path = segment_path(index.folder, number)
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return  # a reader that needs a frame of it gets an error
    try:
        # Asked before it is read: a writer that lives may write more.
        dead = writer is not None and is_free(fd)
        read = _read_on(index, number, fd, known)
        if not dead and read > known and is_free(fd):  # it died meanwhile, perhaps behind a frame that nobody has read
            dead, read = True, _read_on(index, number, fd, read)
        if dead:
            index.close_segment(number, read, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def _read_on(index: SegmentIndex, number: int, fd: int, known: int) -> int:
    """Tell the index what is behind `known`; how far that goes."""
    if os.fstat(fd).st_size <= known:
        return known
    data, found = _scanned(fd, known, salt_of(index.store, number))
    Catching(index, number, known).take(data, found)
    return found.end


def _scanned(fd: int, start: int, salt: int) -> tuple[bytes, Scan]:
    """What is behind `start`. What looks broken is read again: its writer may not have been done."""
    for _ in range(3):
        data = _read(fd, start)
        found = scan(data, salt, start)
        if all(type(item) is Frame and item.sound for item in found.found):
            break
    return data, found


def _read(fd: int, start: int) -> bytes:
    size = os.fstat(fd).st_size
    pieces = []
    while start < size:
        piece = os.pread(fd, size - start, start)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def discover(index: SegmentIndex) -> None:
    """Add segments that the index does not know, and the unread parts of the others."""
    strange = index.strange()
    for number in strange:
        index.db.execute("INSERT INTO segments(number) VALUES(?)", (number,))
    for number in {*strange, *index.written()}:
        catch_up(index, number)
    if strange:
        _find_summaries(index)
    index.db.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, (SELECT ifnull(max(key), 0) FROM parts), "
        "(SELECT ifnull(max(key), 0) FROM removed)) WHERE name = 'sessions'"
    )


def _find_summaries(index: SegmentIndex) -> None:
    """Segments were read in the order of their numbers, which is not that of time: look for each last summary."""
    with SegmentReader(index.folder, index.store) as reader:
        for row in index.all():
            with suppress(Broken):
                found = reader.summary(row.key, (row.segment, row.place))
                if found is not None:
                    index.db.execute("UPDATE sessions SET summary = ? WHERE key = ?", (found, row.key))
                    index.note(row.key, row.id, found)


class Catching:
    """Applies the frames of one segment to the index."""

    def __init__(self, index: SegmentIndex, number: int, known: int) -> None:
        self.index, self.number, self.start = index, number, known
        self.rows: dict[int, Row | None] = {}
        self.parts: set[int] = set()
        self.told: set[int] = set()
        """Sessions whose name or summary has changed."""
        self.labels: dict[int, Row] = {}
        self.marks: dict[int, list[tuple[int, int, int]]] = {}
        self.writer: str | None = None
        self.data = b""

    def take(self, data: bytes, found: Scan) -> None:
        """Apply everything, and note how far it goes."""
        self.data = data
        gaps: list[Gap] = []
        for item in found.found:
            if type(item) is Gap:
                gaps.append(item)
            elif type(item) is Frame:
                self._apply(item)
        index, db = self.index, self.index.db
        for row in self.rows.values():
            if row is not None:
                index.put(row)
                if row.key in self.told:
                    index.note(row.key, row.id, row.summary)
                if row.key in self.labels:
                    index.label(row.key, row.title, row.tags, row.annotated)
        for key, marks in self.marks.items():
            index.mark(key, marks)
        index.add_parts([(self.number, key) for key in self.parts])
        if self.writer is not None:
            db.execute("UPDATE segments SET writer = ? WHERE number = ?", (self.writer, self.number))
        db.execute("UPDATE segments SET known = ? WHERE number = ?", (found.end, self.number))
        for gap in gaps:
            db.execute("INSERT OR IGNORE INTO gaps VALUES(?, ?, ?)", (self.number, gap.at, gap.end))
            db.execute(  # nobody can say whose frame that was: theirs, perhaps
                "UPDATE sessions SET suspect = 1 WHERE segment = ? AND place < ? AND released = 0",
                (self.number, gap.at),
            )

    def _row(self, key: int) -> Row | None:
        if key not in self.rows:
            self.rows[key] = self.index.keyed(key)
        return self.rows[key]

    def _payload(self, frame: Frame) -> dict[str, Any]:
        start = frame.at - self.start + HEADER_SIZE
        try:
            found = _wire.loads(self.data[start : start + frame.size])
        except (_wire.WireError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _apply(self, frame: Frame) -> None:
        kind = frame.kind
        if kind == Kind.HEAD:
            self.writer = self._payload(frame).get("writer")
        elif kind in (Kind.CLAIM, Kind.CUT):
            self.parts.add(frame.key)
            self._begin(frame)
        elif kind == Kind.COPY:
            self.parts.add(frame.key)
        elif kind == Kind.COMMIT:
            self.parts.add(frame.key)
            self._commit(frame)
        elif kind == Kind.RELEASE:
            self._release(frame)
        elif kind == Kind.REMOVE:
            row = self._row(frame.key)
            if row is None or row.token < frame.token:  # else its removal failed, and somebody has claimed it since
                self.rows[frame.key] = None
                self.index.forget(frame.key, self.number, frame.token)
        elif kind in (Kind.FLAG, Kind.LABEL, Kind.NOTE):
            self.parts.add(frame.key)
            row = self._row(frame.key)
            if kind == Kind.NOTE and frame.sound and not self.index.is_removed(frame.key, frame.token):
                self._note(frame)
            elif row is not None:
                self._words(row, frame, self._payload(frame))

    def _note(self, frame: Frame) -> None:
        start = frame.at - self.start + HEADER_SIZE
        head, body = self.data[start : start + frame.extra], self.data[start + frame.extra : start + frame.size]
        with suppress(_wire.WireError, ValueError, KeyError, TypeError):
            said = _wire.loads(head)
            note = Note(id=said["id"], kind=said["kind"], body=body, number=frame.number, posted=frame.time)
            self.index.posted(frame.key, note)

    def _words(self, row: Row, frame: Frame, said: dict[str, Any]) -> None:
        """What a person said about a session: the last value counts, whichever segment has it."""
        if frame.kind != Kind.LABEL and frame.time > row.flagged:
            row.flag, row.flagged = said.get("reason"), frame.time
        when = said.get("annotated", frame.time if frame.kind == Kind.LABEL else 0.0)
        if when > row.annotated:
            row.title, row.tags, row.annotated = str(said.get("title", "")), str(said.get("tags", "")), when
            self.labels[row.key] = row

    def _begin(self, frame: Frame) -> None:
        """A claim or a cut: from here on commits follow the one that it links to."""
        said = self._payload(frame)
        row = self._named(frame.key, said.get("id"), frame.token)
        if row is None or frame.token < row.token:
            return
        if frame.token > row.token:  # the index has not heard of it
            row.token, row.owner, row.writer = frame.token, said.get("owner"), self.writer or row.writer
            row.released = int(frame.kind == Kind.CUT)
            row.expires = GONE
        elif frame.link != (row.segment, row.place):
            return  # it has been read before
        if frame.kind == Kind.CUT:
            row.suspect = 0
        self._unmark(row.key, frame.number if frame.kind == Kind.CLAIM else 0)
        row.head, row.hash, row.segment, row.place = frame.number, frame.hash, self.number, frame.at
        row.updated = max(row.updated, frame.time)
        if "summary" in said:
            row.summary = _wire.encode(said["summary"])
            self.told.add(row.key)
            self._words(row, frame, said)

    def _unmark(self, key: int, after: int) -> None:
        self.index.unmark(key, after)
        if key in self.marks:
            self.marks[key] = [mark for mark in self.marks[key] if mark[0] <= after]

    def _named(self, key: int, name: str | None, token: int) -> Row | None:
        """The row of a session, made when the index does not have it; None when the session was removed.

        A session whose name nobody can read is kept under another, and is told to be damaged.
        """
        row, db = self._row(key), self.index.db
        if row is not None and (name is None or row.id == name):
            return row
        if row is None and self.index.is_removed(key, token):
            return None
        other = None if name is None else self.index.named(name)
        if other is not None and other.key > key:  # its name was used again
            self._drop(key)
            return None
        if other is not None:
            self._drop(other.key)
        if row is None:
            row = self.rows[key] = Row(key, name or f"unnamed-{key}", suspect=0 if name else NAMELESS)
            db.execute("INSERT INTO sessions(key, id) VALUES(?, ?)", (key, row.id))
            self.told.add(key)
        elif name is not None:
            row.id, row.suspect = name, 0
            db.execute("UPDATE sessions SET id = ? WHERE key = ?", (name, key))
            self.told.add(key)
        return row

    def _drop(self, key: int) -> None:
        """A session was removed: its name was used again."""
        self.rows[key] = None
        self.index.db.execute("DELETE FROM sessions WHERE key = ?", (key,))
        self.index.db.execute("INSERT OR IGNORE INTO removed VALUES(?, ?, ?)", (key, self.number, 2**62))

    def _commit(self, frame: Frame) -> None:
        row = self._named(frame.key, None, frame.token)
        if row is None or frame.token < row.token or (frame.token == row.token and frame.number <= row.head):
            return
        if frame.link == (row.segment, row.place) and frame.token == row.token and row.suspect != NAMELESS:
            row.suspect = 0  # nothing was lost in between
        row.token, row.head, row.hash = frame.token, frame.number, frame.hash
        row.segment, row.place, row.updated, row.released = self.number, frame.at, frame.time, 0
        if frame.number % MARK == 0:
            self.marks.setdefault(row.key, []).append((frame.number, self.number, frame.at))
        if frame.extra and frame.sound:
            start = frame.at - self.start + HEADER_SIZE
            row.summary = self.data[start : start + frame.extra]
            self.told.add(row.key)

    def _release(self, frame: Frame) -> None:
        row = self._row(frame.key)
        if row is not None and frame.token == row.token and frame.number == row.head:
            row.released, row.owner, row.expires = 1, None, GONE
            row.suspect = row.suspect if row.suspect == NAMELESS else 0
            row.updated = max(row.updated, frame.time)
