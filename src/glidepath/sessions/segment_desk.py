"""What one process has open of a segment store: the index, the leases, its own segment, and what it holds.

Whatever is here is used under the store's lock, by one thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from glidepath import _wire
from glidepath._wire import Record
from glidepath.errors import StoreError
from glidepath.sessions.frames import Kind, packed, resealed, salt_of
from glidepath.sessions.lease_table import LeaseTable
from glidepath.sessions.own_segment import Intrusion, OwnSegment, disk_error, segment_path
from glidepath.sessions.owner import GONE, alive, this_owner
from glidepath.sessions.segment_catchup import catch_up
from glidepath.sessions.segment_folder import SegmentFolder, closed_on_failure
from glidepath.sessions.segment_index import LAYOUT, Row, SegmentIndex

__all__ = ["SEGMENT", "Held", "SegmentDesk"]

SEGMENT = 16 << 20  # bytes after which a new segment is begun
FLUSH = 4 << 20  # bytes after which the index is told where everything is
PATIENCE = 20  # milliseconds to wait for another process that writes the index


class Held(Record, gc=False):
    """A session that this process holds, or held and has not told the index of yet."""

    key: int
    id: str
    token: int
    owner: str
    head: int
    hash: bytes
    segment: int
    place: int
    updated: float
    summary: bytes
    told: bool = True
    """The index knows this summary."""
    released: bool = False
    renew: float = GONE
    """When the lease is written again."""
    stirred: int = -1
    """What the table's counter was when the index was last asked about it."""
    flag: str | None = None
    mail: int = 0
    suspect: bool = False
    marks: tuple[tuple[int, int, int], ...] = ()
    """Where some of its commits are, which the index does not know yet."""
    elder: int = 0
    """Another segment that its commits are in, until the disk is known to have it."""


class SegmentDesk:
    """The open files of one store object."""

    def __init__(self, path: str, *, view: bool = False) -> None:
        self.folder = SegmentFolder(path)
        self.folder.enter(view=view)
        self.me = this_owner()
        self.held: dict[int, Held] = {}
        self.dirty: dict[int, Held] = {}
        self.strays: set[tuple[int, int]] = set()
        """Where frames are that do not count: segment and session. Rebuilding the index meets them, too."""
        self.own: OwnSegment | None = None
        self.leaving: frozenset[int] = frozenset()
        """Segments that are being emptied: nothing more is written to them."""
        self.flushed = 0
        self.unsynced: set[int] = set()
        """Our earlier segments: who waits for the disk waits for them, too."""
        try:
            self.index: SegmentIndex = self.folder.index(PATIENCE)
            with closed_on_failure(self.index):
                self.leases = self._leases()
        except BaseException:
            self.folder.leave()
            raise

    def _leases(self) -> LeaseTable:
        try:
            return LeaseTable(f"{self.path}/leases", writable=self.folder.writable)
        except FileNotFoundError:  # and nothing can be written: nobody holds anything
            return LeaseTable(os.devnull, writable=False)

    @property
    def path(self) -> str:
        """The folder."""
        return self.folder.path

    # --- the segment ------------------------------------------------------------------------------------------

    def segment(self) -> OwnSegment:
        """The segment to write: a new one when there is none yet, or it is full or torn."""
        own = self.own
        if own is not None and not own.torn and own.end < SEGMENT:
            return own
        try:
            with self.transaction():
                made = self._begun()
        except Exception as error:
            if own is not None and not own.torn and code_is_locked(error):
                return own  # it may grow a little more
            raise
        self.own, self.flushed = made, made.end
        if own is not None:
            own.close()
        return made

    def _begun(self) -> OwnSegment:
        """A new segment, or one that is closed and has room; inside a transaction, which says whose it is."""
        if self.own is not None:
            self._retire(self.own)
        index = self.index
        own: OwnSegment | None = None
        number = index.free_segment(SEGMENT // 2, self.leaving)
        if number is not None:
            with suppress(BlockingIOError):  # a fork of its writer may have it open
                own = OwnSegment(self.path, self.folder.store, number, new=False)
        if own is None:
            number = index.unused_number()
            own = OwnSegment(self.path, self.folder.store, number, new=True)
        index.db.execute("INSERT OR IGNORE INTO segments(number) VALUES(?)", (number,))
        index.db.execute("UPDATE segments SET writer = ? WHERE number = ?", (self.me, number))
        said = {"layout": LAYOUT, "store": self.folder.store, "writer": self.me}
        try:
            own.append(packed(own.salt, Kind.HEAD, body=_wire.encode(said)))
        except BaseException:
            own.close()
            raise
        return own

    def _retire(self, old: OwnSegment) -> None:
        """Nothing more is written to this one: the index learns all of it."""
        found = old.look()
        if found is not None:
            self.heed(found)
        self.unsynced.add(old.number)
        self.flush()
        size = os.fstat(old.fd).st_size
        self.index.db.execute(
            "UPDATE segments SET writer = NULL, torn = ? WHERE number = ?", (old.torn or size > old.end, old.number)
        )

    def write(self, own: OwnSegment, frames: bytes) -> tuple[int, int]:
        """Append to the segment that these frames were made for: its number, and where they begin.

        Raises `StoreError`. A session that somebody else has fenced is not held any more after this.
        """
        at = own.end
        try:
            end = own.put(frames)
        except StoreError as error:
            own, at, end = self.write_elsewhere(own, frames, error)
        return own.number, at if end == at + len(frames) else self.look_between(own, at, end - len(frames))

    def write_elsewhere(self, own: OwnSegment, frames: bytes, error: StoreError) -> tuple[OwnSegment, int, int]:
        """A file may be full where its disk is not: write to another one; it, and what is `end` before and after."""
        if error.kind != "full" or not own.torn:
            raise error
        frames, own = resealed(frames, own.salt, (other := self.segment()).salt), other
        return own, own.end, own.put(frames)

    def look_between(self, own: OwnSegment, before: int, start: int) -> int:
        """Heed what others have put in front of our frames at `start`, which is returned."""
        end = start
        others: Intrusion | None = own.between(before, start)
        while others is not None:
            self.heed(others)
            if not others.rubbish:
                break
            end, others = own.mend(others.at, end)  # a fence may have come in front of this, too
        return start

    def heed(self, others: Intrusion) -> None:
        """The process that fenced one of our sessions has it now."""
        for fence in others.fences:
            held = self.held.get(fence.key)
            if held is not None and held.token < fence.token:
                del self.held[fence.key]

    def fence(self, row: Row, number: int, token: int) -> None:
        """Put a fence into the segment of this session's holder: nothing it writes behind it counts."""
        path = segment_path(self.path, number)
        frame = packed(salt_of(self.folder.store, number), Kind.FENCE, row.key, token)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
            try:
                if os.write(fd, frame) != len(frame):
                    raise StoreError(f"the session store {self.path} cannot grow: the disk is full", kind="full")
            finally:
                os.close(fd)
        except FileNotFoundError:
            pass  # nobody can write it any more
        except OSError as error:
            raise disk_error(error, self.path) from error

    # --- the index --------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Change the index: all of it or nothing, and what it was told counts only then."""
        dirty, strays, flushed = self.dirty, self.strays, self.flushed
        try:
            with self.folder.locked(), self.index.writing():
                yield
        except BaseException:
            self.dirty, self.strays, self.flushed = dirty, strays, flushed
            for held in dirty.values():
                held.told = False  # to say it again does no harm
            raise

    def flush(self, only: Iterable[int] | None = None) -> None:
        """Tell the index where our sessions are; inside a transaction. All of them, or these."""
        if self.own is None:
            return
        db, number = self.index.db, self.own.number
        chosen = list(self.dirty.values()) if only is None else [self.dirty[key] for key in only if key in self.dirty]
        # Row by row: a thousand tuples at once would have the garbage collector look at everything there is.
        self.index.add_parts((held.segment, held.key) for held in chosen)
        db.executemany(
            "UPDATE sessions SET head = ?, hash = ?, segment = ?, place = ?, updated = ?, summary = ?, released = ?, "
            "owner = CASE ? WHEN 1 THEN NULL ELSE owner END WHERE key = ? AND token = ?",
            (
                (
                    *(held.head, held.hash, held.segment, held.place, held.updated, held.summary),
                    *(held.released, held.released, held.key, held.token),
                )
                for held in chosen
            ),
        )
        self.index.note_many(held for held in chosen if not held.told)
        for held in chosen:
            if held.marks:
                self.index.mark(held.key, held.marks)
        if only is None:
            for held in chosen:
                held.told, held.marks = True, ()
            self.index.add_parts(self.strays)
            self.strays = set()
            db.execute("UPDATE segments SET known = max(known, ?) WHERE number = ?", (self.own.end, number))
            self.dirty = {}
            self.flushed = self.own.end

    def flush_if_due(self, *, now: bool = False) -> None:
        """Tell the index in its own transaction, when there is much to tell; never fails."""
        own = self.own
        if own is None or not self.dirty or not (now or own.end - self.flushed >= FLUSH):
            return
        if not self.index.replaced():
            with suppress(Exception), self.transaction():  # a reader that needs it finds it in the segment
                self.flush()

    def renewed(self) -> SegmentIndex:
        """The index; opened again when another process has made it again."""
        if self.index.replaced():
            self.index.close()
            self.index = self.folder.index(PATIENCE)
        if self.leases.replaced() and self.folder.writable:
            self._renew_leases()
        return self.index

    def _renew_leases(self) -> None:
        """The table was removed: write our leases again."""
        old, self.leases = self.leases, LeaseTable(f"{self.path}/leases", writable=True)
        old.close()
        for held in self.held.values():
            self.leases.reserve(held.key)
            held.renew = GONE

    def latest(self, row: Row) -> Row | None:
        """The row as of now: with what its owner has not told the index yet."""
        held = self.dirty.get(row.key)
        if held is not None and held.token == row.token:
            return overlaid(row, held)
        if row.writer is None or row.writer == self.me:
            return row
        number = self.index.segment_of(row.writer)
        if number and self._grown(number):
            if self.index.db.in_transaction:
                catch_up(self.index, number)
            else:
                with self.transaction():
                    catch_up(self.index, number)
            return self.index.keyed(row.key)
        return row

    def _grown(self, number: int) -> bool:
        try:
            size = os.stat(segment_path(self.path, number)).st_size  # noqa: PTH116
        except OSError:
            return False
        return size > self.index.known(number)[1]

    def catch_up_all(self, *, flush: bool = False) -> None:
        """Tell the index what others have written, and with `flush` what we have."""
        mine = self.own.number if self.own is not None else 0
        grown = [number for number in self.index.written() if number != mine and self._grown(number)]
        if grown or (flush and self.dirty):
            with self.transaction():
                if flush:
                    self.flush()
                for number in grown:
                    catch_up(self.index, number)

    def latest_of_all(self) -> list[Row]:
        """Every row as of now."""
        self.catch_up_all()
        rows = self.index.all()
        dirty = self.dirty
        return [overlaid(row, dirty[row.key]) if row.key in dirty else row for row in rows]

    # --- leases -----------------------------------------------------------------------------------------------

    def holder(self, row: Row) -> tuple[str | None, float]:
        """Who holds a session, and until when."""
        if row.released:
            return None, GONE
        expires = self.leases.expires(row.key, row.token)
        if expires is None:
            expires = row.expires
        return (None, GONE) if expires == GONE else (row.owner, expires)

    def evict(self, row: Row) -> Row:
        """Take a session from its holder, or its last holder; the row as of now. Inside a transaction."""
        if row.writer == self.me:
            self.flush([row.key])
            self.held.pop(row.key, None)
            return self.index.keyed(row.key) or row
        number = self.index.segment_of(row.writer)
        if not number:
            return row
        # One whose lease nobody knows may be writing: only who gave it back is not.
        gave_back = row.released or self.leases.expires(row.key, row.token) == GONE
        if not gave_back and alive(row.writer):
            self.fence(row, number, row.token + 1)
        catch_up(self.index, number)
        return self.index.keyed(row.key) or row

    def lost(self) -> bool:
        """True when the whole store was removed or replaced, and not only its index."""
        if not self.index.replaced():
            return False
        if self.gone() or not self.folder.exists():
            return True
        other = SegmentFolder(self.path)
        try:
            other.enter()
        finally:
            other.leave()
        return other.store != self.folder.store

    def gone(self) -> bool:
        """True when the files that we write are no longer those at this path."""
        return self.own is not None and self.own.replaced()

    def retire(self) -> None:
        """Nobody holds anything: our segment is free for the next writer. Never fails."""
        own = self.own
        if own is not None and not self.gone():
            with suppress(Exception), self.transaction():
                self._retire(own)

    def lay_down(self) -> None:
        """As `retire`, and somebody may clean our segment up, too."""
        self.retire()
        if self.own is not None:
            self.own.close()
            self.own = None

    def close(self) -> None:
        """Close everything."""
        for part in (self.own, self.leases, self.index):
            if part is not None:
                part.close()
        self.folder.leave()


def overlaid(row: Row, held: Held) -> Row:
    """A row with what the index has not been told yet."""
    if held.token != row.token:
        return row
    return _wire.replace(
        row,
        head=held.head,
        hash=held.hash,
        segment=held.segment,
        place=held.place,
        updated=held.updated,
        summary=held.summary,
        released=int(held.released),
        owner=None if held.released else row.owner,
    )


def code_is_locked(error: BaseException) -> bool:
    """True when another process is working on the index."""
    code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    return code in (5, 6) or getattr(error, "kind", "") == "locked"
