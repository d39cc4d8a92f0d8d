"""Cleaning up a segment store: unused segments are deleted, and the rest of nearly empty ones is moved."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from glidepath import _wire
from glidepath.sessions.frames import Kind, packed
from glidepath.sessions.own_segment import OwnSegment, segment_path
from glidepath.sessions.segment_desk import SegmentDesk
from glidepath.sessions.segment_index import MARK, Row
from glidepath.sessions.segment_reader import Broken, SegmentReader
from glidepath.sessions.segment_sessions import everything_said, note_frame
from glidepath.spi.sessions import Commit

THIN = 4  # a segment is thin when at most one in so many of its sessions is left


def clean(desk: SegmentDesk) -> None:
    """Delete what is unused. The file goes before its row, so that leftovers of a crash are found."""
    desk.leaving = frozenset(_thin(desk))
    try:
        for number in desk.leaving:
            _move(desk, number)
    finally:
        desk.leaving = frozenset()
    with desk.transaction():
        desk.flush()
        for number in desk.index.empty_segments():
            with suppress(FileNotFoundError):
                os.unlink(segment_path(desk.path, number))  # noqa: PTH108
            desk.index.drop_segment(number)


def _thin(desk: SegmentDesk) -> list[int]:
    rows = desk.index.db.execute(
        "SELECT p.segment FROM parts p JOIN segments s ON s.number = p.segment "
        "LEFT JOIN sessions x ON x.key = p.key AND p.live "
        "WHERE s.writer IS NULL GROUP BY p.segment HAVING count(x.key) > 0 AND count(x.key) * ? <= count(*)",
        (THIN,),
    ).fetchall()
    return [row[0] for row in rows]


def _move(desk: SegmentDesk, number: int) -> None:
    """Write the sessions of a segment again, where nobody holds them and they are whole."""
    found = desk.index.db.execute("SELECT key FROM parts WHERE segment = ? AND live", (number,)).fetchall()
    for (key,) in found:
        desk.segment()
        with desk.transaction():
            row = desk.index.keyed(key)
            if row is None or row.suspect or not row.head or desk.holder(row)[0] is not None:
                continue
            row = desk.evict(row)
            with SegmentReader(desk.path, desk.folder.store) as reader, suppress(Broken):
                _write_anew(desk, reader, row)


def _write_anew(desk: SegmentDesk, reader: SegmentReader, row: Row) -> None:
    commits = reader.chain(row.key, (row.segment, row.place), row.head)
    if desk.own is not None and not desk.own.torn:
        write_journal(desk, desk.own, row, commits)


def write_journal(desk: SegmentDesk, own: OwnSegment, row: Row, commits: Iterable[Commit]) -> None:
    """Every commit, and then a cut that makes them the journal. Nothing counts before the last byte is there."""
    token, place = row.token + 1, (0, 0)
    desk.strays.add((own.number, row.key))
    marks: list[tuple[int, int, int]] = []
    for commit in commits:
        frame = packed(
            own.salt, Kind.COPY, row.key, token, commit.number, place, commit.hash, row.updated, b"", commit.body
        )
        place = (own.number, _written(desk, own, frame))
        if commit.number % MARK == 0:
            marks.append((commit.number, *place))
    said = _wire.encode(everything_said(row))
    frame = packed(own.salt, Kind.CUT, row.key, token, row.head, place, row.hash, row.updated, b"", said)
    at = _written(desk, own, frame)
    for note in desk.index.notes(row.key):
        _written(desk, own, note_frame(own, row.key, token, note))
    own.sync(listed=own.known)  # before the old ones go
    own.known = True
    row.token, row.owner, row.released, row.segment, row.place = token, None, 1, own.number, at
    desk.index.put(row)
    desk.dirty.pop(row.key, None)
    desk.leases.hold(row.key, token, 0.0)
    desk.index.unmark(row.key)
    desk.index.mark(row.key, marks)
    desk.index.moved_to(row.key, own.number)


def _written(desk: SegmentDesk, own: OwnSegment, frame: bytes) -> int:
    start, others = own.append(frame)
    if others is not None:
        desk.heed(others)
    return start
