"""A store in a folder: each process appends to a segment of its own. A commit is one write, and nothing else."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from glidepath import _wire
from glidepath._wire import Record
from glidepath.errors import ConfigurationError, StoreError, told
from glidepath.sessions.frames import HASH_SIZE, MAX_PAYLOAD, Kind, packed
from glidepath.sessions.group_sync import GroupSync
from glidepath.sessions.memory import busy, conflict
from glidepath.sessions.own_segment import disk_error, segment_path, sync_file
from glidepath.sessions.owner import GONE, LEASE, SHORT, free
from glidepath.sessions.segment_clean import clean
from glidepath.sessions.segment_desk import Held, SegmentDesk, overlaid
from glidepath.sessions.segment_folder import SegmentFolder, is_corrupt
from glidepath.sessions.segment_index import Row
from glidepath.sessions.segment_reader import Broken, SegmentReader
from glidepath.sessions.sqlite_says import explained
from glidepath.spi.sessions import Commit, Entry, Lease, Sign

__all__ = ["SegmentStore", "default_folder"]

T = TypeVar("T")
_FIRST_WAIT, _LONGEST_WAIT = 0.005, 0.1
_LOOK = 0.4  # seconds between two looks whether the files are still there
_TIDY = 64  # sessions removed before the folder is cleaned up
_EXPIRED = 1.0  # an `expires` that is past, of a lease that was not given back by whoever holds it


def default_folder() -> Path:
    """Where sessions are kept when nobody says otherwise: in the user's data folder of this platform."""
    from glidepath.sessions.sqlite import default_file

    return default_file().with_suffix("")


class SegmentStore:
    """Keeps journals in a folder, which is made when it is first used: quick, and safe among processes of one machine.

    Without a `path` it is `sessions` in the user's data folder of this platform. `busy` is how many seconds to wait
    for another process that changes the index. On a network file system use `SqliteStore` or `PostgresStore`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        lease: float = LEASE,
        busy: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home = path is None
        try:
            self.path = os.fspath(default_folder() if path is None else path)
        except TypeError:
            raise ConfigurationError(f"SegmentStore takes the path of a folder, not {path!r:.100}") from None
        if not isinstance(self.path, str) or not self.path.strip() or "\0" in self.path:
            raise ConfigurationError(f"SegmentStore takes the path of a folder, not {path!r:.100}")
        self._lease = lease
        self._busy = busy
        self._clock = clock
        self._lock = threading.RLock()
        self._desk: SegmentDesk | None = None
        self._sync: GroupSync | None = None
        self._asked: dict[Any, list[Asked]] = {}
        self._gone: StoreError | None = None
        self._looked = GONE
        self._removed = 0
        self._pid = os.getpid()

    # --- opening ----------------------------------------------------------------------------------------------

    def _open(self) -> SegmentDesk:
        if self._pid != os.getpid():
            self._forked()
        desk = self._desk
        if desk is None:
            if self._home:
                Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            desk = self._desk = SegmentDesk(self.path)
        return desk

    def _forked(self) -> None:
        """Files of the parent are the parent's: they are left alone, and what it holds is not held here."""
        self._abandoned = (self._desk, self._sync)
        self._desk = self._sync = self._gone = None
        self._asked = {}
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            raise explained(error, self.path) from error
        except OSError as error:
            raise disk_error(error, self.path) from error
        except UnicodeEncodeError as error:
            raise StoreError(
                f"{error.object!r:.80} is no valid Unicode: it cannot be in a store", kind="missing"
            ) from None
        except (TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
            raise StoreError(f"the session store {self.path} is damaged ({told(error)})", kind="damaged") from error

    def _with(self, work: Callable[[SegmentDesk], T]) -> T:
        """Do something with the open files. An index that turns out to be damaged is made anew, once."""
        with self._lock, self._errors():
            desk = self._open()
            try:
                desk.renewed()
                return work(desk)
            except Exception as error:
                if not is_corrupt(error) or not desk.folder.writable:
                    raise
            with desk.folder.locked(alone=True):
                desk.index.close()
                desk.folder.lose_index()
            desk.renewed()
            return work(desk)

    async def _patiently(self, work: Callable[[SegmentDesk], T]) -> T:
        """Do it, again and again while another process is at work, without stopping the event loop."""
        until, wait = time.monotonic() + self._busy, _FIRST_WAIT
        while True:
            try:
                return self._with(work)
            except StoreError as error:
                if error.kind != "locked" or time.monotonic() >= until:
                    raise
            await asyncio.sleep(wait)
            wait = min(_LONGEST_WAIT, wait * 2)

    def _must_exist(self, session_id: str = "") -> None:
        if not SegmentFolder(self.path).exists():
            whose = f"there is no session {session_id!r}: " if session_id else ""
            raise StoreError(f"{whose}there is no session store at {self.path}", kind="missing")

    def _row(self, desk: SegmentDesk, session_id: str) -> Row:
        row = desk.index.named(session_id)
        row = None if row is None else desk.latest(row)
        if row is None:
            raise StoreError(f"there is no session {session_id!r} in {self.path}", kind="missing")
        return row

    # --- owning -----------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner. Claims of one turn of the event loop are written together."""
        if not create:
            self._must_exist(session_id)
        loop = asyncio.get_running_loop()
        asked = Asked(session_id, owner, create, loop.create_future())
        waiting = self._asked.setdefault(loop, [])
        waiting.append(asked)
        if len(waiting) == 1:
            loop.call_soon(self._claim_all, loop, time.monotonic() + self._busy, _FIRST_WAIT)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            if asked.answer.done() and not asked.answer.cancelled() and asked.answer.exception() is None:
                with suppress(StoreError):  # nobody will ever give it back
                    self._with(lambda desk: self._release(desk, asked.answer.result()))
            raise

    def _claim_all(self, loop: asyncio.AbstractEventLoop, until: float, wait: float) -> None:
        asked = [one for one in self._asked.pop(loop, []) if not one.answer.done()]
        found: Sequence[Lease | BaseException] = []
        try:
            if asked:
                found = self._with(lambda desk: self._claim(desk, asked))
        except StoreError as error:
            if error.kind == "locked" and time.monotonic() < until:
                self._asked.setdefault(loop, [])[:0] = asked
                loop.call_later(wait, self._claim_all, loop, until, min(_LONGEST_WAIT, wait * 2))
                return
            found = [error] * len(asked)
        except BaseException as error:
            found = [error] * len(asked)
        for one, answer in zip(asked, found, strict=True):
            if isinstance(answer, BaseException):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)

    def _claim(self, desk: SegmentDesk, asked: Sequence[Asked]) -> list[Lease | StoreError]:
        if self._gone is not None:
            desk = self._start_anew(desk)
        _must_be_writable(desk)
        desk.segment()
        now = self._clock()
        found: list[Held | StoreError] = []
        with desk.transaction():
            for one in asked:
                try:
                    found.append(self._taken(desk, one, now))
                except StoreError as error:
                    found.append(error)
        self._write_claims(desk, [one for one in found if isinstance(one, Held)], now)
        return [self._lease_of(one, now) if isinstance(one, Held) else one for one in found]

    def _taken(self, desk: SegmentDesk, asked: Asked, now: float) -> Held:
        """One claim, in the index; raises `StoreError` when the session cannot be had."""
        index = desk.index
        with self._errors():
            row = index.named(asked.session_id)
        if row is None:
            if not asked.create:
                raise StoreError(f"there is no session {asked.session_id!r} in {self.path}", kind="missing")
            row = index.made(asked.session_id, now)
        else:
            row = self._had(desk, row, now)
        row.token += 1
        row.owner, row.writer, row.released, row.flag = asked.owner, desk.me, 0, None
        row.expires = now + self._lease
        index.put(row)
        desk.leases.reserve(row.key)
        desk.leases.hold(row.key, row.token, row.expires)
        return Held(
            *(row.key, row.id, row.token, asked.owner, row.head, row.hash, row.segment, row.place),
            row.updated,
            row.summary,
            renew=now + self._lease / 4,
            suspect=bool(row.suspect),
            elder=row.segment,
        )

    def _had(self, desk: SegmentDesk, row: Row, now: float) -> Row:
        """The session as of now, taken from whoever had it; raises `StoreError` (`busy`) when that one lives."""
        held = desk.dirty.get(row.key)
        owner, expires = desk.holder(row if held is None else overlaid(row, held))
        if not free(owner, expires, now):
            raise busy(_entry(row, owner, expires))
        if owner is not None:
            desk.leases.stir()
        return desk.evict(row)

    def _write_claims(self, desk: SegmentDesk, won: list[Held], now: float) -> None:
        if not won:
            return
        for held in won:
            desk.held[held.key] = held
        salt = desk.segment().salt
        frames = [
            packed(
                *(salt, Kind.CLAIM, held.key, held.token, held.head, (held.segment, held.place), held.hash),
                held.updated if held.head else now,
                b"",
                _wire.encode({"id": held.id, "owner": held.owner}),
            )
            for held in won
        ]
        try:
            at = desk.write(b"".join(frames))
        except BaseException:
            for held in won:
                desk.held.pop(held.key, None)
                desk.leases.hold(held.key, held.token, GONE)
            raise
        assert desk.own is not None  # it was written to
        for held, frame in zip(won, frames, strict=True):
            held.segment, held.place = desk.own.number, at
            desk.dirty[held.key] = held
            at += len(frame)

    def _lease_of(self, held: Held, now: float) -> Lease:
        head, digest = (held.head + 1, b"") if held.suspect else (held.head, held.hash)
        return Lease(held.id, held.token, held.owner, now + self._lease, head, digest, held.key)

    def _start_anew(self, desk: SegmentDesk) -> SegmentDesk:
        """What was here was removed: whatever is at this path now is opened, or made."""
        self._gone = None
        desk.close()
        self._desk = None
        return self._open()

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Look after leases."""
        renew = renew or self._lease < SHORT
        return await self._patiently(lambda desk: self._beat(desk, leases, renew))

    def _beat(self, desk: SegmentDesk, leases: Sequence[Lease], renew: bool) -> list[Sign]:
        now, signs = self._clock(), []
        self._look_around(desk)
        stirred = desk.leases.stirred()
        for lease in leases:
            held = desk.held.get(lease.key)
            if held is None or held.token != lease.token or held.stirred != stirred:
                row = desk.index.keyed(lease.key)
                if row is None or row.token != lease.token:
                    signs.append(Sign(session_id=lease.session_id, lost=True))
                    continue
                flag = row.flag
                if held is not None and held.token == lease.token:
                    held.stirred, held.flag = stirred, flag
            else:
                flag = held.flag
            if renew:
                desk.leases.hold(lease.key, lease.token, now + self._lease)
            if flag is not None:
                signs.append(Sign(session_id=lease.session_id, stop=flag))
        return signs

    def _look_around(self, desk: SegmentDesk) -> None:
        """Notice that somebody removed or replaced what we write to; raises `StoreError` (`missing`)."""
        now = time.monotonic()
        if self._gone is None and now - self._looked >= _LOOK:
            self._looked = now
            if desk.gone():
                what = f"the session store {self.path} was removed or replaced while it was in use"
                self._gone = StoreError(what, kind="missing")
        if self._gone is not None:
            raise self._gone

    async def release(self, lease: Lease) -> None:
        """Give the lease back."""
        if self._pid != os.getpid():
            return
        await self._patiently(lambda desk: self._release(desk, lease))
        desk = self._desk
        if self._sync is not None and (desk is None or not desk.held):
            self._stop_sync()

    def _release(self, desk: SegmentDesk, lease: Lease) -> None:
        held = desk.held.get(lease.key)
        if held is None or held.token != lease.token:
            row = desk.index.keyed(lease.key)  # it may be one that another store object of ours holds
            if row is not None and row.token == lease.token and desk.holder(row)[0] is not None:
                desk.leases.hold(lease.key, lease.token, _EXPIRED)
            return
        held.updated, held.released = self._clock(), True
        try:
            salt, place = desk.segment().salt, (held.segment, held.place)
            desk.write(packed(salt, Kind.RELEASE, held.key, held.token, held.head, place, held.hash, held.updated))
        except StoreError:
            pass  # the table says it, too
        finally:
            desk.held.pop(lease.key, None)
            desk.dirty[lease.key] = held
            desk.leases.hold(lease.key, lease.token, GONE)
        desk.flush_if_due()

    # --- writing ----------------------------------------------------------------------------------------------

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit: one write, in line. With "full" it is then waited for the disk, once for all who wait."""
        try:
            self._append(lease, commit, summary)
        except StoreError as error:
            if error.kind != "locked":
                raise
            return self._append_later(lease, commit, summary, durability)
        return self._on_disk(lease) if durability == "full" else None

    async def _append_later(self, lease: Lease, commit: Commit, summary: Any, durability: str) -> None:
        await self._patiently(lambda _: self._append(lease, commit, summary))
        if durability == "full":
            await self._on_disk(lease)

    def _append(self, lease: Lease, commit: Commit, summary: Mapping[str, Any] | None) -> None:
        if self._pid != os.getpid():
            self._forked()
        number = commit.number
        with self._lock, self._errors():
            desk = self._desk
            held = None if desk is None else desk.held.get(lease.key)
            if desk is None or held is None or held.token != lease.token:
                raise self._refused(lease)
            if number != held.head + 1 or held.suspect:
                raise conflict(lease.session_id, number, held.head)
            first = b""
            if summary is not None:
                self._looked = GONE
                first = _wire.encode(summary)
            if self._gone is not None or summary is not None:
                self._look_around(desk)
            _must_fit(commit, first)
            own, now = desk.segment(), self._clock()
            place = (held.segment, held.place)
            at = desk.write(
                packed(own.salt, Kind.COMMIT, held.key, held.token, number, place, commit.hash, now, first, commit.body)
            )
            if desk.held.get(held.key) is not held:
                raise _taken_over(lease)
            held.head, held.hash, held.segment, held.place = number, commit.hash, desk.own.number, at  # type: ignore[union-attr]
            held.updated = now
            if first:
                held.summary = first
            desk.dirty[held.key] = held
            if now >= held.renew:
                desk.leases.hold(held.key, held.token, now + self._lease)
                held.renew = now + self._lease / 4
                desk.flush_if_due()

    def _refused(self, lease: Lease) -> StoreError:
        with suppress(StoreError):
            row = self._with(lambda desk: desk.index.keyed(lease.key))
            if row is None:
                return StoreError(f"session {lease.session_id!r} was removed", kind="missing")
        return _taken_over(lease)

    async def _on_disk(self, lease: Lease) -> None:
        with self._lock:
            if self._sync is None:
                self._sync = GroupSync(self._sync_now)
            sync = self._sync
        await sync.wait()

    def _sync_now(self) -> None:
        """On the thread: wait for the disk, for everything that was written before."""
        with self._lock:
            desk = self._desk
            if desk is None or desk.own is None:
                return
            desk.syncs = True
            elders = {held.elder for held in desk.held.values()} - {0, desk.own.number}
            waiting = [held for held in desk.held.values() if held.elder]
            handle = desk.own.duplicate()
        try:
            for number in elders:
                with suppress(FileNotFoundError):
                    sync_file(segment_path(self.path, number))
            handle.sync()
        finally:
            handle.close()
        for held in waiting:
            held.elder = 0

    # --- reading and housekeeping -----------------------------------------------------------------------------

    async def load(self, session_id: str) -> tuple[Entry, Sequence[Commit]]:
        """The whole journal."""
        self._must_exist(session_id)
        return await self._patiently(lambda desk: self._read(desk, session_id))

    def _read(self, desk: SegmentDesk, session_id: str) -> tuple[Entry, Sequence[Commit]]:
        for last in (False, True):
            row = self._row(desk, session_id)
            with SegmentReader(self.path, desk.folder.store) as reader:
                try:
                    commits: Sequence[Commit] = reader.chain(row.key, (row.segment, row.place), row.head)
                    return self._entry_of(desk, row), tuple(commits)
                except Broken:
                    if not last:  # it may have been moved meanwhile
                        continue
                    found = reader.gathered(row.key, _parts(desk, row))
                    return self._entry_of(desk, row), tuple([commit for commit, _ in found.values()])
        raise AssertionError  # the second time is the last

    def _entry_of(self, desk: SegmentDesk, row: Row) -> Entry:
        return _entry(row, *desk.holder(row))

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions, the last written first."""
        self._must_exist()

        def work(desk: SegmentDesk) -> list[Entry]:
            rows = [row for row in desk.latest_of_all() if row.id.startswith(prefix)]
            return [self._entry_of(desk, row) for row in sorted(rows, key=lambda row: (-row.updated, row.id))]

        return await self._patiently(work)

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop."""

        def work(desk: SegmentDesk) -> None:
            _must_be_writable(desk)
            desk.segment()
            with desk.transaction():
                row = self._row(desk, session_id)
                row.flag, row.flagged = reason, self._clock()
                desk.index.db.execute(
                    "UPDATE sessions SET flag = ?, flagged = ? WHERE key = ?", (reason, row.flagged, row.key)
                )
                desk.leases.stir()
            said = _wire.encode({"reason": reason})
            desk.write(packed(desk.segment().salt, Kind.FLAG, row.key, row.token, time=row.flagged, body=said))

        self._must_exist(session_id)
        await self._patiently(work)

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`."""

        def work(desk: SegmentDesk) -> None:
            held = desk.held.get(lease.key)
            if held is None or held.token != lease.token:
                raise self._refused(lease)
            with SegmentReader(self.path, desk.folder.store) as reader:
                place = _place_of(desk, reader, held, head, hash_)
            token, now = held.token + 1, self._clock()
            said = _wire.encode({"id": held.id, "summary": _wire.loads(held.summary)})
            salt = desk.segment().salt
            at = desk.write(packed(salt, Kind.CUT, held.key, token, head, place, hash_, now, b"", said))
            desk.held.pop(held.key, None)
            desk.dirty.pop(held.key, None)
            desk.leases.hold(held.key, token, GONE)
            assert desk.own is not None  # it was written to
            with desk.transaction():
                row = desk.index.keyed(held.key)
                if row is None:
                    return
                row.token, row.owner, row.released, row.suspect, row.head, row.hash = token, None, 1, 0, head, hash_
                row.segment, row.place, row.updated = desk.own.number, at, now
                desk.index.put(row)
                desk.index.db.execute("INSERT OR IGNORE INTO parts VALUES(?, ?)", (row.segment, row.key))

        await self._patiently(work)

    async def remove(self, session_id: str) -> None:
        """Forget a session. What nobody needs any more is deleted when many were, or the store is closed."""
        self._must_exist(session_id)
        await self._patiently(lambda desk: self._remove(desk, session_id))

    def _remove(self, desk: SegmentDesk, session_id: str) -> None:
        _must_be_writable(desk)
        own = desk.segment()
        with desk.transaction():
            row = self._had(desk, self._row(desk, session_id), self._clock())
            desk.index.forget(row.key, own.number)
            desk.dirty.pop(row.key, None)
            desk.leases.hold(row.key, row.token + 1, GONE)
        desk.write(packed(desk.segment().salt, Kind.REMOVE, row.key, row.token + 1, time=self._clock()))
        self._removed += 1
        if self._removed >= _TIDY:
            self._tidy(desk)

    def _tidy(self, desk: SegmentDesk) -> None:
        self._removed = 0
        with suppress(StoreError), self._errors():  # another time
            clean(desk)

    async def close(self) -> None:
        """Close the files; they are opened again when the store is used again."""
        if self._pid != os.getpid():
            self._forked()
        self._stop_sync()
        with self._lock:
            desk = self._desk
            if desk is None:
                return
            desk.flush_if_due(now=True)
            if desk.held:
                return  # whoever holds them writes on
            self._desk = None
            if self._removed:
                self._tidy(desk)
            desk.retire()
            desk.close()

    def _stop_sync(self) -> None:
        with self._lock:
            sync, self._sync = self._sync, None
        if sync is not None:
            sync.stop()

    def __del__(self) -> None:
        if getattr(self, "_pid", None) == os.getpid() and self._desk is not None:
            with suppress(Exception):
                self._desk.close()

    def __repr__(self) -> str:
        return f"<SegmentStore {self.path}>"


class Asked(Record):
    """A claim that waits for the others of its turn."""

    session_id: str
    owner: str
    create: bool
    answer: Any


def _must_be_writable(desk: SegmentDesk) -> None:
    if not desk.folder.writable:
        raise StoreError(f"the session store {desk.path} is read-only", kind="read_only")


def _must_fit(commit: Commit, first: bytes) -> None:
    if len(commit.hash) > HASH_SIZE or len(commit.body) + len(first) > MAX_PAYLOAD:
        raise StoreError(f"commit {commit.number} is too large for a segment", kind="conflict")


def _taken_over(lease: Lease) -> StoreError:
    return StoreError(f"session {lease.session_id!r} was taken over by another owner", kind="fenced")


def _parts(desk: SegmentDesk, row: Row) -> list[int]:
    """The segments that may have frames of this session."""
    found = desk.index.db.execute("SELECT segment FROM parts WHERE key = ?", (row.key,)).fetchall()
    return sorted({row.segment, *(part[0] for part in found)} - {0})


def _place_of(desk: SegmentDesk, reader: SegmentReader, held: Held, head: int, hash_: bytes) -> tuple[int, int]:
    """Where the commit is that a journal is to end with; raises `StoreError` (`conflict`) when there is none."""
    try:
        return reader.place_of(held.key, (held.segment, held.place), held.head, head, hash_)
    except Broken:
        row = desk.index.keyed(held.key)
        found = {} if row is None else reader.gathered(held.key, {*_parts(desk, row), held.segment})
        if head in found and found[head][0].hash == hash_:
            return found[head][1]
        raise conflict(held.id, head, held.head) from None


def _entry(row: Row, owner: str | None, expires: float) -> Entry:
    try:
        summary = _wire.loads(row.summary)
    except (_wire.WireError, ValueError):
        summary = {}
    return Entry(
        session_id=row.id,
        head=row.head + 1 if row.suspect else row.head,
        hash=b"" if row.suspect else row.hash,
        token=row.token,
        owner=owner,
        expires=expires,
        updated=row.updated,
        flag=row.flag,
        summary=summary if isinstance(summary, dict) else {},
    )
