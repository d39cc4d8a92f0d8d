"""How a repair writes to a segment store: what is intact is written again with another end, or nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidepath import _wire
from glidepath.sessions.memory import conflict
from glidepath.sessions.segment_clean import write_journal
from glidepath.sessions.segment_desk import SegmentDesk, overlaid
from glidepath.sessions.segment_sessions import read_session, taken_over
from glidepath.spi.sessions import Commit, Lease


def replace_end_of(desk: SegmentDesk, lease: Lease, end: Commit, summary: Mapping[str, Any], now: float) -> None:
    """Put this commit in place of all from its number on. Raises `StoreError`; the lease is void after this."""
    held = desk.held.get(lease.key)
    if held is None or held.token != lease.token:
        raise taken_over(lease)
    own = desk.segment()
    with desk.transaction():
        row = desk.index.keyed(held.key)
        if row is None:
            raise taken_over(lease)
        intact = [commit for commit in read_session(desk, held.id)[1] if commit.number < end.number]
        if [commit.number for commit in intact] != [*range(1, end.number)]:
            raise conflict(held.id, end.number, len(intact))
        row = overlaid(row, held)
        row.head, row.hash, row.summary = end.number, end.hash, _wire.encode(summary)
        row.updated, row.suspect = now, 0
        write_journal(desk, own, row, [*intact, end])
    desk.held.pop(held.key, None)
