"""What is done to the sessions of a segment store: claimed, written, read, cut, given back, removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath._wire import Record
from glidepath.errors import StoreError
from glidepath.sessions.cards import checked_query, paged, summary_in
from glidepath.sessions.families import IMPORTING
from glidepath.sessions.frames import HASH_SIZE, MAX_PAYLOAD, Kind, packed, packed_commit
from glidepath.sessions.memory import busy, conflict
from glidepath.sessions.own_segment import OwnSegment
from glidepath.sessions.owner import GONE, free
from glidepath.sessions.segment_desk import SEGMENT, Held, SegmentDesk, overlaid
from glidepath.sessions.segment_index import FIELDS, MARK, Row, split
from glidepath.sessions.segment_reader import Broken, SegmentReader
from glidepath.sessions.session_ids import keepable
from glidepath.sessions.sqlite_catalog import conditions
from glidepath.spi.session_catalog import SessionPage, SessionQuery
from glidepath.spi.sessions import Commit, Entry, Lease, Note

__all__ = [
    "PendingClaim",
    "claim_sessions",
    "cut_session",
    "entry_of",
    "everything_said",
    "find_page",
    "flag_session",
    "give_back",
    "keep_journal",
    "label_session",
    "note_frame",
    "pick_commits",
    "post_note",
    "read_notes",
    "read_session",
    "remove_families",
    "remove_session",
    "taken_over",
    "write_commit",
]

_MARKS = 1000  # more than are written between two flushes
_EXPIRED = 1.0  # an `expires` in the past, for a lease that its holder did not give back


class PendingClaim(Record):
    """A claim that waits for the others of its turn."""

    session_id: str
    owner: str
    create: bool
    answer: Any


# --- owning -------------------------------------------------------------------------------------------------------


def claim_sessions(
    desk: SegmentDesk, asked: Sequence[PendingClaim], now: float, seconds: float
) -> Sequence[Lease | StoreError]:
    """Claim these, in one transaction: a lease for each, or why not.

    The frames come after the transaction: a token in a frame was given out for good. A process that dies in
    between has written nothing with it.
    """
    _must_be_writable(desk)
    desk.segment()
    found: list[Held | StoreError] = []
    with desk.transaction():
        for one in asked:
            try:
                found.append(_taken(desk, one, now, seconds))
            except StoreError as error:
                found.append(error)
            except UnicodeEncodeError:
                what = f"{one.session_id!r:.80} is not valid Unicode: it cannot be in a store"
                found.append(StoreError(what, kind="missing"))
    _write_claims(desk, [one for one in found if isinstance(one, Held)], now)
    return [_lease_of(one, now + seconds) if isinstance(one, Held) else one for one in found]


def _taken(desk: SegmentDesk, asked: PendingClaim, now: float, seconds: float) -> Held:
    """One claim, in the index; raises `StoreError` when the session is not available."""
    row = desk.index.named(asked.session_id)
    there = row is not None
    # In the index first: two processes that claim at once are told apart by its lock.
    if row is not None:
        row = _had(desk, row, now)
        row.token += 1
        row.owner, row.writer, row.released = asked.owner, desk.me, 0
        row.expires = now + seconds
        desk.index.put(row)
    elif asked.create:
        row = desk.index.made(keepable(asked.session_id), now, asked.owner, desk.me, now + seconds)
    else:
        raise _missing(desk, asked.session_id)
    desk.leases.reserve(row.key)
    desk.leases.hold(row.key, row.token, row.expires)
    return Held(
        *(row.key, row.id, row.token, asked.owner, row.head, row.hash, row.segment, row.place, row.updated),
        row.summary,
        renew=now + seconds / 4,
        suspect=bool(row.suspect),
        mail=desk.index.mail(row.key) if there else 0,
        elder=row.segment,
    )


def _had(desk: SegmentDesk, row: Row, now: float) -> Row:
    """The session as of now, taken from its holder; raises `StoreError` (`busy`) when that one lives."""
    held = desk.dirty.get(row.key)
    owner, expires = desk.holder(row if held is None else overlaid(row, held))
    if not free(owner, expires, now):
        raise busy(_entry(row, owner, expires))
    # Its last owner may be alive and only slow: it reads the index at its next beat.
    if owner is not None:
        desk.leases.stir()
    return desk.evict(row)


def _write_claims(desk: SegmentDesk, won: list[Held], now: float) -> None:
    if not won:
        return
    own = desk.segment()
    frames = [
        packed(
            *(own.salt, Kind.CLAIM, held.key, held.token, held.head, (held.segment, held.place), held.hash),
            held.updated if held.head else now,
            b"",
            _wire.encode({"id": held.id, "owner": held.owner}),
        )
        for held in won
    ]
    # Before the write: a fence that another process puts in front of it must find them.
    for held in won:
        desk.held[held.key] = held
    try:
        number, at = desk.write(own, b"".join(frames))
    except BaseException:
        for held in won:
            desk.held.pop(held.key, None)
            # Nothing was written with these tokens: others may have the sessions at once.
            desk.leases.hold(held.key, held.token, GONE)
        raise
    for held, frame in zip(won, frames, strict=True):
        held.segment, held.place = number, at
        desk.dirty[held.key] = held
        at += len(frame)


def _lease_of(held: Held, expires: float) -> Lease:
    head, digest = (held.head + 1, b"") if held.suspect else (held.head, held.hash)
    return Lease(held.id, held.token, held.owner, expires, head, digest, held.key, held.mail)


def give_back(desk: SegmentDesk, lease: Lease, now: float) -> None:
    """The lease is over; nothing happens when it was lost before."""
    held = desk.held.get(lease.key)
    if held is None or held.token != lease.token:
        row = desk.index.keyed(lease.key)  # it may be one that another store object of ours holds
        if row is not None and row.token == lease.token and desk.holder(row)[0] is not None:
            desk.leases.hold(lease.key, lease.token, _EXPIRED)
        return
    held.updated, held.released = now, True
    try:
        own, place = desk.segment(), (held.segment, held.place)
        desk.write(own, packed(own.salt, Kind.RELEASE, held.key, held.token, held.head, place, held.hash, now))
    except StoreError:
        pass  # the table says it, too
    finally:
        desk.held.pop(lease.key, None)
        desk.dirty[lease.key] = held
        desk.leases.hold(lease.key, lease.token, GONE)
    desk.flush_if_due()


# --- writing ------------------------------------------------------------------------------------------------------


def write_commit(
    desk: SegmentDesk, held: Held, commit: Commit, summary: Mapping[str, Any] | None, now: float, seconds: float
) -> None:
    """One commit: one write. Raises `StoreError`: `conflict`, `fenced`, or what the disk said."""
    number, digest, body, own = commit.number, commit.hash, commit.body, desk.own
    if number != held.head + 1 or held.suspect:
        raise conflict(held.id, number, held.head)
    if own is None or own.torn or own.end >= SEGMENT:
        own = desk.segment()
    if summary is None and len(digest) == HASH_SIZE and len(body) <= MAX_PAYLOAD:
        first = b""
        frame = packed_commit(own.salt, held.key, held.token, number, held.segment, held.place, digest, now, body)
    else:
        first = b"" if summary is None else _wire.encode(summary)
        if len(digest) > HASH_SIZE or len(body) + len(first) > MAX_PAYLOAD:
            raise StoreError(f"commit {number} is too large for a segment", kind="conflict")
        place = (held.segment, held.place)
        frame = packed(own.salt, Kind.COMMIT, held.key, held.token, number, place, digest, now, first, body)
    # As `desk.write`. The write itself tells whether somebody has fenced us: asking before it would leave a gap.
    at = own.end
    try:
        end = own.put(frame)
    except StoreError as error:
        own, at, end = desk.write_elsewhere(own, frame, error)
    if end != at + len(frame):
        at = desk.look_between(own, at, end - len(frame))
        if desk.held.get(held.key) is not held:
            desk.strays.add((own.number, held.key))
            raise taken_over(held)
    held.head, held.hash, held.segment, held.place, held.updated = number, digest, own.number, at, now
    if summary is not None or not number % MARK:
        _note_commit(held, number, summary, first)
    desk.dirty[held.key] = held
    if now >= held.renew:
        desk.leases.hold(held.key, held.token, now + seconds)
        held.renew = now + seconds / 4
        desk.flush_if_due()


def _note_commit(held: Held, number: int, summary: Mapping[str, Any] | None, first: bytes) -> None:
    """What the index is to learn about this commit besides its place as the last."""
    marked = not number % MARK
    if summary is not None:
        held.summary, held.told = first, False
        marked = marked or summary.get("base") == number  # the session's next reader asks for it by its number
    if marked:
        held.marks = (*held.marks[-_MARKS:], (number, held.segment, held.place))


def keep_journal(desk: SegmentDesk, lease: Lease, entry: Entry, commits: Sequence[Commit], seconds: float) -> None:
    """Write these commits with the time of the entry, and give the lease back. Until the last is there, none counts."""
    held = desk.held.get(lease.key)
    if held is None or held.token != lease.token:
        raise taken_over(lease)
    for commit in commits[held.head - lease.head :]:  # some may be written: this is done again when it was locked
        # A process that dies in the middle leaves a journal that says so, and no run continues from it.
        summary = entry.summary if commit.number == entry.head else {IMPORTING: True}
        write_commit(desk, held, commit, summary, entry.updated, seconds)
    give_back(desk, lease, entry.updated)


def taken_over(lease: Lease | Held) -> StoreError:
    """Somebody else has it."""
    name = lease.session_id if isinstance(lease, Lease) else lease.id
    return StoreError(f"session {name!r} was taken over by another owner", kind="fenced")


def flag_session(desk: SegmentDesk, session_id: str, reason: str | None, now: float) -> None:
    """Ask the run in this session to stop."""
    _must_be_writable(desk)
    own = desk.segment()
    with desk.transaction():
        row = _row(desk, session_id)
        said = _wire.encode({"reason": reason})
        _, others = own.append(packed(own.salt, Kind.FLAG, row.key, row.token, time=now, body=said))
        if others is not None:
            desk.heed(others)
        desk.index.db.execute("UPDATE sessions SET flag = ?, flagged = ? WHERE key = ?", (reason, now, row.key))
        desk.index.add_parts([(own.number, row.key)])
        desk.leases.stir()


def post_note(desk: SegmentDesk, session_id: str, note: Note, now: float) -> int:
    """Put a note into a session's inbox; its number."""
    _must_be_writable(desk)
    desk.segment()
    with desk.transaction():
        row = _row(desk, session_id)
        number, new = desk.index.posted(row.key, _wire.replace(note, number=0, posted=now))
        desk.leases.stir()
    if new:  # the frame comes after its number was given out for good
        own = desk.segment()
        segment, _ = desk.write(
            own, note_frame(own, row.key, row.token, _wire.replace(note, number=number, posted=now))
        )
        desk.strays.add((segment, row.key))
    return number


def note_frame(own: OwnSegment, key: int, token: int, note: Note) -> bytes:
    """A note, for a segment."""
    first = _wire.encode({"id": note.id, "kind": note.kind})
    return packed(own.salt, Kind.NOTE, key, token, note.number, time=note.posted, first=first, body=note.body)


def read_notes(desk: SegmentDesk, session_id: str, after: int) -> Sequence[Note]:
    """The notes above a number."""
    row = _row(desk, session_id)
    return tuple(desk.index.notes(row.key, after))


def cut_session(desk: SegmentDesk, lease: Lease, head: int, hash_: bytes, now: float) -> None:
    """Drop every commit after `head`."""
    held = desk.held.get(lease.key)
    if held is None or held.token != lease.token:
        raise taken_over(lease)
    with SegmentReader(desk.path, desk.folder.store) as reader:
        place = _place_of(desk, reader, held, head, hash_)
    # A new token, so that what was cut off cannot come back with a late write of its owner.
    token = held.token + 1
    row = desk.index.keyed(held.key)
    said = _wire.encode({"id": held.id} if row is None else everything_said(overlaid(row, held)))
    own = desk.segment()
    number, at = desk.write(own, packed(own.salt, Kind.CUT, held.key, token, head, place, hash_, now, b"", said))
    desk.held.pop(held.key, None)
    desk.dirty.pop(held.key, None)
    desk.leases.hold(held.key, token, GONE)
    with desk.transaction():
        row = desk.index.keyed(held.key)
        if row is not None:
            desk.index.unmark(row.key, head)
            row.token, row.owner, row.released, row.suspect, row.head, row.hash = token, None, 1, 0, head, hash_
            row.segment, row.place, row.updated, row.summary = number, at, now, held.summary
            desk.index.put(row)
            desk.index.add_parts([(number, row.key)])


def everything_said(row: Row) -> dict[str, Any]:
    """What a cut says about its session: everything before it may be cleaned up."""
    said = {"id": row.id, "summary": summary_in(row.summary), "reason": row.flag}
    return {**said, "title": row.title, "tags": row.tags, "annotated": row.annotated}


def _place_of(desk: SegmentDesk, reader: SegmentReader, held: Held, head: int, hash_: bytes) -> tuple[int, int]:
    """Where the commit is that a journal is to end with; raises `StoreError` (`conflict`) when there is none."""
    try:
        return reader.place_of(held.key, (held.segment, held.place), held.head, head, hash_)
    except Broken:
        found = reader.gathered(held.key, {*_parts(desk, held.key), held.segment})
        if head in found and found[head][0].hash == hash_:
            return found[head][1]
        raise conflict(held.id, head, held.head) from None


def remove_session(desk: SegmentDesk, session_id: str, now: float) -> None:
    """Forget a session that nobody holds."""
    _must_be_writable(desk)
    own = desk.segment()
    with desk.transaction():
        rows = [_had(desk, _row(desk, session_id), now)]
        _forget(desk, own, rows, now)
    desk.dirty.pop(rows[0].key, None)


def remove_families(desk: SegmentDesk, names: Sequence[str], now: float) -> list[str]:
    """Forget these sessions with their children, except families with a holder; returns the removed ids."""
    _must_be_writable(desk)
    own = desk.segment()
    gone: list[Row] = []
    desk.catch_up_all(flush=True)
    with desk.transaction():
        for name in names:
            family = [_latest(desk, row) for row in desk.index.family(name)]
            if all(free(*desk.holder(row), now) for row in family):
                gone += [_had(desk, row, now) for row in family]
        _forget(desk, own, gone, now)
    for row in gone:
        desk.dirty.pop(row.key, None)
    return [row.id for row in gone]


def _forget(desk: SegmentDesk, own: OwnSegment, rows: Sequence[Row], now: float) -> None:
    """Write that these are gone, then forget them. If that fails, a claim of one gets the token of its frame."""
    if not rows:
        return
    _, others = own.append(b"".join([packed(own.salt, Kind.REMOVE, row.key, row.token + 1, time=now) for row in rows]))
    if others is not None:
        desk.heed(others)
    for row in rows:
        desk.index.forget(row.key, own.number, row.token + 1)
        desk.leases.hold(row.key, row.token + 1, GONE)


def _latest(desk: SegmentDesk, row: Row) -> Row:
    return desk.latest(row) or row


def label_session(
    desk: SegmentDesk, session_id: str, title: str | None, tags: Sequence[str] | None, now: float
) -> None:
    """Set what a person calls a session."""
    _must_be_writable(desk)
    own = desk.segment()
    with desk.transaction():
        row = _row(desk, session_id)
        row.title = row.title if title is None else title
        row.tags = row.tags if tags is None else ",".join(tags)
        said = _wire.encode({"title": row.title, "tags": row.tags})
        _, others = own.append(packed(own.salt, Kind.LABEL, row.key, row.token, time=now, body=said))
        if others is not None:
            desk.heed(others)
        desk.index.label(row.key, row.title, row.tags, now)
        desk.index.add_parts([(own.number, row.key)])


# --- reading ------------------------------------------------------------------------------------------------------


def read_session(desk: SegmentDesk, session_id: str, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
    """The journal from commit `since` on. What is left of a broken one is given as it is: its reader verifies it."""
    after = max(0, since - 1)
    for last in (False, True):
        row = _row(desk, session_id)
        with SegmentReader(desk.path, desk.folder.store) as reader:
            try:
                return entry_of(desk, row), tuple(reader.chain(row.key, (row.segment, row.place), row.head, after))
            except Broken:
                if last:  # before, it may have been moved meanwhile
                    found = reader.gathered(row.key, {*_parts(desk, row.key), row.segment})
                    commits = [commit for number, (commit, _) in found.items() if number > after]
                    return entry_of(desk, row), tuple(commits)
    raise AssertionError  # the second time is the last


def pick_commits(desk: SegmentDesk, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
    """The commits with these numbers, in this order; those that are not there are left out."""
    row = _row(desk, session_id)
    found = []
    try:
        with SegmentReader(desk.path, desk.folder.store) as reader:
            for number in numbers:
                if 0 < number <= row.head:
                    mark = desk.index.mark_at(row.key, number)
                    start = (row.head, row.segment, row.place) if mark is None or mark[0] > row.head else mark
                    found.append(reader.chain(row.key, (start[1], start[2]), start[0], number - 1)[0])
    except Broken:
        have = {commit.number: commit for commit in read_session(desk, session_id)[1]}
        return tuple([have[number] for number in numbers if number in have])
    return tuple(found)


def find_page(desk: SegmentDesk, query: SessionQuery) -> SessionPage:
    """One page of the sessions that match, as of now."""
    query, start = checked_query(query)
    desk.catch_up_all(flush=desk.folder.writable)
    where, values = conditions(query, start)
    fields = ", ".join(f"s.{name}" for name in FIELDS)
    rows = desk.index.db.execute(
        f"SELECT {fields} FROM sessions c JOIN sessions s ON s.key = c.key WHERE {where} "  # noqa: S608
        f"ORDER BY c.updated DESC, c.id LIMIT {query.limit + 1}",
        values,
    ).fetchall()
    return paged([entry_of(desk, Row(*row)) for row in rows], query.limit)


def _parts(desk: SegmentDesk, key: int) -> set[int]:
    """The segments that may have frames of this session."""
    return {row[0] for row in desk.index.db.execute("SELECT segment FROM parts WHERE key = ?", (key,))}


def _row(desk: SegmentDesk, session_id: str) -> Row:
    row = desk.index.named(session_id)
    row = None if row is None else desk.latest(row)
    if row is None:
        raise _missing(desk, session_id)
    return row


def _missing(desk: SegmentDesk, session_id: str) -> StoreError:
    return StoreError(f"there is no session {session_id!r} in {desk.path}", kind="missing")


def _must_be_writable(desk: SegmentDesk) -> None:
    if not desk.folder.writable:
        raise StoreError(f"the session store {desk.path} is read-only", kind="read_only")


def entry_of(desk: SegmentDesk, row: Row) -> Entry:
    """What a store says about a session without reading it."""
    return _entry(row, *desk.holder(row))


def _entry(row: Row, owner: str | None, expires: float) -> Entry:
    return Entry(
        session_id=row.id,
        head=row.head + 1 if row.suspect else row.head,  # one more than exist, so that verifying it fails
        hash=b"" if row.suspect else row.hash,
        token=row.token,
        owner=owner,
        expires=expires,
        updated=row.updated,
        flag=row.flag,
        summary=summary_in(row.summary),
        title=row.title,
        tags=split(row.tags),
    )
