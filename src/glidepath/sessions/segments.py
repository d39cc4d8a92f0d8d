"""A store in a folder: each process appends to its own segment. A commit is one write, and nothing else."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from glidepath.errors import ConfigurationError, StoreError, told
from glidepath.sessions.copies import CanFork
from glidepath.sessions.group_sync import GroupSync
from glidepath.sessions.own_segment import disk_error, segment_path, sync_file
from glidepath.sessions.owner import FORKS, GONE, LEASE, SHORT, this_owner
from glidepath.sessions.segment_catalog import SegmentCatalog, SegmentWallets
from glidepath.sessions.segment_clean import clean
from glidepath.sessions.segment_desk import SegmentDesk
from glidepath.sessions.segment_folder import SegmentFolder, is_corrupt
from glidepath.sessions.segment_mending import replace_end_of
from glidepath.sessions.segment_sessions import (
    PendingClaim,
    claim_sessions,
    cut_session,
    entry_of,
    flag_session,
    give_back,
    keep_journal,
    pick_commits,
    post_note,
    read_notes,
    read_session,
    remove_session,
    taken_over,
    write_commit,
)
from glidepath.sessions.session_ids import keepable_reason
from glidepath.sessions.sqlite import SqliteStore
from glidepath.sessions.sqlite_says import explained
from glidepath.spi.sessions import Commit, Entry, Lease, Note, Sign

__all__ = ["SegmentStore", "default_folder"]

T = TypeVar("T")
_FIRST_WAIT, _LONGEST_WAIT = 0.005, 0.1
_LOOK = 0.4  # seconds between two looks whether the files are still there
_TIDY = 64  # sessions removed before the folder is cleaned up


def default_folder() -> Path:
    """The default place for sessions: in the user's data folder of this platform."""
    from glidepath.sessions.sqlite import default_file

    return default_file().with_suffix("")


class _Gone(StoreError):  # noqa: N818 - seen as a StoreError
    """The files that leases were given out on are not there any more."""


class SegmentStore(CanFork, SegmentCatalog, SegmentWallets):
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
        if os.name == "nt":
            raise ConfigurationError("SegmentStore needs the file locks of Linux or macOS; use SqliteStore(path)")
        self._lease = lease
        self._busy = busy
        self._clock = clock
        self._lock = threading.RLock()
        self._desk: SegmentDesk | None = None
        self._sync: GroupSync | None = None
        self._asked: dict[Any, list[PendingClaim]] = {}
        self._gone: _Gone | None = None
        self._looked = GONE
        self._removed = 0
        self._forks = FORKS.count
        SegmentWallets.__init__(self)

    # --- opening ----------------------------------------------------------------------------------------------

    def _open(self) -> SegmentDesk:
        if self._forks != FORKS.count:
            self._forked()
        desk = self._desk
        if desk is None:
            if self._home:
                Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            desk = self._desk = SegmentDesk(self.path)
        return desk

    def _forked(self) -> None:
        """Files of the parent are the parent's: they are left alone, and what it holds is not held here."""
        # Kept, so that nothing closes them: SQLite forbids even that in a fork.
        self._abandoned = (self._desk, self._sync)
        self._desk = self._sync = self._gone = None
        self._asked = {}
        self._lock = threading.RLock()
        self._forks = FORKS.count

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
                f"{error.object!r:.80} is not valid Unicode: it cannot be in a store", kind="missing"
            ) from None
        except (TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
            raise StoreError(f"the session store {self.path} is damaged ({told(error)})", kind="damaged") from error

    def _with(self, work: Callable[[SegmentDesk], T], *, again: bool = True) -> T:
        """Do something with the open files. An index that turns out to be damaged is made again, once.

        When the folder was removed or replaced, whatever is there now is opened, or made; with `again` False, as a
        lease needs it, `StoreError` (`missing`) is raised instead.
        """
        with self._lock, self._errors():
            desk = self._open()
            # Before any work: writing into a folder that was removed would succeed, and nobody would ever find it.
            if self._gone is not None or desk.lost():
                if not again:
                    raise self._lost()
                desk = self._start_anew(desk)
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

    def _looking(self, work: Callable[[SegmentDesk], T]) -> T:
        """Read something. Where the index cannot be written, one in memory does: reading needs no room."""
        try:
            return self._with(work)
        except StoreError as error:
            if error.kind not in ("full", "read_only", "unavailable") or not SegmentFolder(self.path).exists():
                raise
        with self._errors():
            desk = SegmentDesk(self.path, view=True)
            try:
                return work(desk)
            finally:
                desk.close()

    def _lost(self) -> _Gone:
        if self._gone is None:
            what = f"the session store {self.path} was removed or replaced while it was in use"
            self._gone = _Gone(what, kind="missing")
        return self._gone

    def _start_anew(self, desk: SegmentDesk) -> SegmentDesk:
        """The store was removed: leases on it are void."""
        self._gone = None
        desk.close()
        self._desk = None
        return self._open()

    async def _patiently(
        self, work: Callable[[SegmentDesk], T], how: Callable[[Callable[[SegmentDesk], T]], T] | None = None
    ) -> T:
        """Do it, and retry while another process is working, without blocking the event loop."""
        until, wait = time.monotonic() + self._busy, _FIRST_WAIT
        while True:
            try:
                return (how or self._with)(work)
            except StoreError as error:
                if error.kind != "locked" or time.monotonic() >= until:
                    raise
            await asyncio.sleep(wait)
            wait = min(_LONGEST_WAIT, wait * 2)

    def _must_exist(self, session_id: str = "") -> None:
        if not SegmentFolder(self.path).exists():
            whose = f"there is no session {session_id!r}: " if session_id else ""
            raise StoreError(f"{whose}there is no session store at {self.path}", kind="missing")

    # --- owning -----------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner. Claims of one turn of the event loop are written together."""
        if not create:
            self._must_exist(session_id)
        loop = asyncio.get_running_loop()
        asked = PendingClaim(session_id, owner, create, loop.create_future())
        waiting = self._asked.setdefault(loop, [])
        waiting.append(asked)
        if len(waiting) == 1:
            loop.call_soon(self._claim_all, loop, time.monotonic() + self._busy, _FIRST_WAIT)
        try:
            return await asked.answer  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if asked.answer.done() and not asked.answer.cancelled() and asked.answer.exception() is None:
                with suppress(StoreError):  # nobody will ever give it back
                    self._with(lambda desk: give_back(desk, asked.answer.result(), self._clock()))
            raise

    def _claim_all(self, loop: asyncio.AbstractEventLoop, until: float, wait: float) -> None:
        asked = [one for one in self._asked.pop(loop, []) if not one.answer.done()]
        found: Sequence[Lease | BaseException] = []
        try:
            if asked:
                found = self._with(lambda desk: claim_sessions(desk, asked, self._clock(), self._lease))
        except StoreError as error:
            if error.kind == "locked" and time.monotonic() < until:
                self._asked.setdefault(loop, [])[:0] = asked  # in front of those who have asked since
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

    def _leased(self, work: Callable[[SegmentDesk], T]) -> T:
        """Do something with a lease on what is open now."""
        return self._with(work, again=False)

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Renew the leases."""
        renew = renew or self._lease < SHORT
        desk = self._desk
        if desk is not None and self._forks == FORKS.count and time.monotonic() - self._looked < _LOOK:
            with self._lock, self._errors():  # somebody has just made sure that the files are there
                return self._beat(desk, leases, renew)
        return await self._patiently(lambda desk: self._beat(desk, leases, renew), self._leased)

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
                flag, mail = row.flag, desk.index.mail(row.key)
                if held is not None and held.token == lease.token:
                    held.stirred, held.flag, held.mail = stirred, flag, mail
            else:
                flag, mail = held.flag, held.mail
            if renew:
                desk.leases.hold(lease.key, lease.token, now + self._lease)
            if flag is not None or mail:
                signs.append(Sign(session_id=lease.session_id, stop=flag, mail=mail))
        return signs

    def _look_around(self, desk: SegmentDesk) -> None:
        """Notice that our files were removed or replaced; raises `StoreError` (`missing`)."""
        now = time.monotonic()
        if self._gone is None and now - self._looked >= _LOOK:
            self._looked = now
            if desk.gone():
                raise self._lost()
        if self._gone is not None:
            raise self._gone

    def let_go(self, lease: Lease) -> bool:
        """Give the lease back at once, as `release` does; False when that takes waiting."""
        if self._forks != FORKS.count:
            return False
        with self._lock:
            desk = self._desk
            if desk is None or self._gone is not None or self._sync is not None or lease.key not in desk.held:
                return False
            give_back(desk, lease, self._clock())
        return True

    async def release(self, lease: Lease) -> None:
        """Give the lease back."""
        if self._forks != FORKS.count:
            return
        with suppress(_Gone):
            await self._patiently(lambda desk: give_back(desk, lease, self._clock()), self._leased)
        desk = self._desk
        if self._sync is not None and (desk is None or not desk.held):
            self._stop_sync()

    # --- writing ----------------------------------------------------------------------------------------------

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit: one write, in line. With "full" it is then waited for the disk, once for all who wait."""
        if self._forks != FORKS.count:
            self._forked()
        try:
            with self._lock:
                desk = self._desk
                if (
                    desk is None
                    or summary is not None
                    or self._gone is not None
                    or (held := desk.held.get(lease.key)) is None
                    or held.token != lease.token
                ):
                    self._append(desk, lease, commit, summary)
                else:
                    write_commit(desk, held, commit, None, self._clock(), self._lease)
        except Exception as error:
            self._must_be_locked(error)
            return self._append_later(lease, commit, summary, durability)
        return None if durability != "full" else self._on_disk()

    async def _append_later(
        self, lease: Lease, commit: Commit, summary: Mapping[str, Any] | None, durability: str
    ) -> None:
        await self._patiently(lambda _: self._append(self._desk, lease, commit, summary))
        if durability == "full":
            await self._on_disk()

    def _append(
        self, desk: SegmentDesk | None, lease: Lease, commit: Commit, summary: Mapping[str, Any] | None
    ) -> None:
        if desk is None or self._gone or (held := desk.held.get(lease.key)) is None or held.token != lease.token:
            raise self._refused(lease)
        # A commit with a summary begins or ends something: worth a look whether the folder is still there.
        if summary is not None:
            self._looked = GONE
            self._look_around(desk)
        write_commit(desk, held, commit, summary, self._clock(), self._lease)

    def _must_be_locked(self, error: Exception) -> None:
        """Raise this error as a store says it, unless it only says that another process is working on the index."""
        try:
            with self._errors():
                raise error
        except StoreError as said:
            if said.kind != "locked":
                raise

    def _refused(self, lease: Lease) -> StoreError:
        if self._gone is not None:
            return self._gone
        with suppress(StoreError):
            row = self._with(lambda desk: desk.index.keyed(lease.key))
            if row is None:
                return StoreError(f"session {lease.session_id!r} was removed", kind="missing")
        return taken_over(lease)

    async def _on_disk(self) -> None:
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
            own = desk.own
            # A session may have commits in a segment that a dead process never synced: ours are worth nothing alone.
            # So may one whose segment became full before anybody waited for it.
            waiting = [held for held in desk.held.values() if held.elder]
            before = {*desk.unsynced, *(held.elder for held in waiting)} - {own.number}
            # Synced without the lock, or every append would wait for the disk: under a descriptor that stays open.
            handle = own.duplicate()
        try:
            for number in before:
                with suppress(FileNotFoundError):
                    sync_file(segment_path(self.path, number))
            handle.sync(listed=own.known and not before)
        except OSError as error:
            own.torn = True  # the next sync of this file would not tell what this one has lost: another one is begun
            raise disk_error(error, self.path) from error
        finally:
            handle.close()
        own.known = True
        desk.unsynced -= before
        for held in waiting:
            held.elder = 0

    # --- reading and housekeeping -----------------------------------------------------------------------------

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The journal, from commit `since` on."""
        self._must_exist(session_id)
        return await self._patiently(lambda desk: read_session(desk, session_id, since), self._looking)

    async def pick(self, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
        """The commits with these numbers."""
        self._must_exist(session_id)
        return await self._patiently(lambda desk: pick_commits(desk, session_id, numbers), self._looking)

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions, the last written first."""
        self._must_exist()

        def work(desk: SegmentDesk) -> list[Entry]:
            rows = [row for row in desk.latest_of_all() if row.id.startswith(prefix)]
            return [entry_of(desk, row) for row in sorted(rows, key=lambda row: (-row.updated, row.id))]

        return await self._patiently(work, self._looking)

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop."""
        self._must_exist(session_id)
        await self._patiently(lambda desk: flag_session(desk, session_id, keepable_reason(reason), self._clock()))

    async def post(self, session_id: str, note: Note) -> int:
        """Put a note into a session's inbox."""
        self._must_exist(session_id)
        return await self._patiently(lambda desk: post_note(desk, session_id, note, self._clock()))

    async def notes(self, session_id: str, after: int = 0) -> Sequence[Note]:
        """The notes above a number."""
        self._must_exist(session_id)
        return await self._patiently(lambda desk: read_notes(desk, session_id, after), self._looking)

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`."""
        await self._patiently(lambda desk: cut_session(desk, lease, head, hash_, self._clock()), self._leased)

    async def replace_end(self, lease: Lease, end: Commit, summary: Mapping[str, Any]) -> None:
        """Put this commit in place of all from its number on. The lease is void after this."""
        await self._patiently(lambda desk: replace_end_of(desk, lease, end, summary, self._clock()), self._leased)

    async def remove(self, session_id: str) -> None:
        """Forget a session. Unused files are deleted after many removals, or when the store is closed."""
        self._must_exist(session_id)
        await self._patiently(lambda desk: remove_session(desk, session_id, self._clock()))
        await self._tidied(1)

    async def _tidied(self, count: int) -> None:
        """This many sessions are gone: clean up when that is worth it."""
        self._removed += count
        if self._removed >= _TIDY:
            await self._patiently(self._tidy)

    async def keep(self, entry: Entry, commits: Sequence[Commit]) -> None:
        """Write a journal as another store had it, or the rest of one: its commits, its summary, its time."""
        lease = await self.claim(entry.session_id, this_owner())
        try:
            await self._patiently(lambda desk: keep_journal(desk, lease, entry, commits, self._lease), self._leased)
        except BaseException:
            await self.release(lease)
            raise

    def _tidy(self, desk: SegmentDesk) -> None:
        self._removed = 0
        with suppress(StoreError), self._errors():  # another time
            clean(desk)

    async def close(self) -> None:
        """Close the files; they are opened again when the store is used again."""
        if self._forks != FORKS.count:
            self._forked()
        self._stop_sync()
        await self.accounts.close()
        with self._lock:
            desk = self._desk
            if desk is None:
                return
            desk.flush_if_due(now=True)
            if desk.held:
                return  # their holder keeps writing
            self._desk = None
            if self._removed:
                desk.lay_down()
                self._tidy(desk)
            desk.retire()
            desk.close()

    def opened_accounts(self) -> SqliteStore:
        """The accounts of wallets, in a folder that is a store."""
        self._with(lambda _: None)
        return self.accounts

    def _stop_sync(self) -> None:
        with self._lock:
            sync, self._sync = self._sync, None
        if sync is not None:
            sync.stop()

    def __del__(self) -> None:
        if getattr(self, "_forks", None) == FORKS.count and self._desk is not None:
            with suppress(Exception):
                self._desk.close()

    def __repr__(self) -> str:
        return f"<SegmentStore {self.path}>"
