"""The embedded store: one SQLite file with a write-ahead log, shared by any number of processes of one machine."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.sessions.copies import CanFork
from glidepath.sessions.group_commit import GroupCommit, give_space_back
from glidepath.sessions.memory import check_durability, make_busy_error, make_conflict_error
from glidepath.sessions.owner import FORKS, GONE, LEASE, SHORT, give_up, is_claimable
from glidepath.sessions.session_ids import check_storable_id, keepable_reason
from glidepath.sessions.sqlite_catalog import SqliteCatalog, note_summary
from glidepath.sessions.sqlite_file import SqliteFile, default_file, identify_file
from glidepath.sessions.sqlite_notes import SqliteInbox, last_note
from glidepath.sessions.sqlite_wallets import SqliteWallets
from glidepath.sessions.store_calls import StoreAnswer
from glidepath.spi import Commit, Lease, Sign
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.sessions.sqlite_file import Connection

__all__ = ["SqliteStore", "default_file"]

_MAKE = (
    "INSERT OR IGNORE INTO sessions(id, head, hash, token, expires, lease, updated, summary) "
    "VALUES(?, 0, x'', 0, 0, 0, ?, '{}')"
)
_TAKE = "UPDATE sessions SET token = ?, owner = ?, expires = ?, lease = ?, head = ?, hash = ? WHERE key = ?"
_LEASED = "SELECT token FROM sessions WHERE key = ?"
_APPEND = "INSERT INTO commits(session, number, hash, body) VALUES(?, ?, ?, ?)"
_ADVANCE = "UPDATE sessions SET head = ?, hash = ?, updated = ?, expires = ?, owner = ? WHERE key = ?"
_DISOWN = "UPDATE sessions SET owner = '', expires = ? WHERE owner = ?"
_RELEASE = "UPDATE sessions SET owner = NULL, expires = ?, updated = ?, head = ?, hash = ? WHERE key = ? AND token = ?"


class _Held:
    """A lease that this store has given out, in this process."""

    __slots__ = ("connection", "hash", "head", "lease", "renew", "version")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.head: int | None = lease.head
        """The last commit; None when a write has failed: then the file is asked."""
        self.hash = lease.hash
        self.renew = GONE  # when a commit renews the lease next
        self.connection: object = None
        self.version = 0
        """Which connection has last seen that the lease is held, and at which version of the file."""


class SqliteStore(CanFork, SqliteCatalog, SqliteInbox, SqliteWallets):
    """Keeps journals and wallets in one SQLite file, which is made when it is first used.

    Without a `path` it is `sessions.db` in the user's data folder of this platform. What runs write in one pass of the
    event loop is one transaction. `busy` is how many seconds to wait for another process's lock before a write fails;
    the event loop does not wait meanwhile. The file must be on a local disk.
    """

    def __dir__(self) -> list[str]:
        from glidepath.values import OF_STORES, list_for_people

        return list_for_people(self, (*OF_STORES, "path"))

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        lease: float = LEASE,
        busy: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = SqliteFile(path)
        self.path = self._file.path
        self._group = GroupCommit(self._file, busy)
        self._lease = lease
        self._clock = clock
        self._reset_process_state()

    def _reset_process_state(self) -> None:
        self._held: dict[int, _Held] = {}  # by the key of the session
        self._draws: set[str] = set()
        self._opened: tuple[int, int] | None = None  # which file the leases are on
        self._gone: StoreError | None = None
        self._forks = FORKS.count

    def _check_fork(self) -> None:
        """What the parent holds is not held here."""
        if self._forks != FORKS.count:
            self._group.check_fork()
            self._reset_process_state()

    def _must_be_there(self) -> None:
        """Raise `StoreError` when the open file is no longer the one at this path: the journal would be lost."""
        if self._opened is not None and self._opened != identify_file(self.path):
            what = f"the session store {self.path} was removed or replaced while it was in use"
            self._gone = StoreError(what, kind="missing")
        if self._gone is not None:
            raise self._gone

    def _open_anew(self) -> None:
        """Reopen the path after its file was removed or replaced; leases on the old file are void."""
        opened = self._opened or self._group.opened
        if opened is not None and opened != identify_file(self.path):
            self._group.close()
            self._reset_process_state()

    def _open_or_require(self) -> None:
        """As `_must_be_there` while somebody holds something, else as `_open_anew`."""
        self._check_fork()
        if self._held or self._draws:
            self._opened = self._opened or self._group.opened
            self._must_be_there()
        else:
            self._open_anew()

    # --- owning -----------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner. Claims of one pass of the event loop are written together."""
        self._check_fork()
        if not create:
            self._file.must_exist(session_id)
        self._open_anew()
        answer = self._group.submit(partial(self._claim, session_id, owner, create), self._hold)
        try:
            return await answer  # type: ignore[no-any-return]
        except (asyncio.CancelledError, GeneratorExit):
            answer.call_when_done(self._return)  # nobody will ever give it back
            raise
        except BaseException as error:
            # It may still be committed: what a signal handler raises comes at any moment.
            if getattr(error, "kind", "") not in ("busy", "missing", "locked"):
                give_up(owner)
                with suppress(StoreError):
                    await self._group.submit(lambda connection: connection.execute(_DISOWN, (GONE, owner)).rowcount)
            self._stop_if_idle()
            raise

    def _claim(self, session_id: str, owner: str, create: bool, connection: Connection) -> Lease:
        now, execute = self._clock(), connection.execute
        if create:
            execute(_MAKE, (check_storable_id(session_id), now))
        entry, key, length = self._row(connection, session_id)
        if not is_claimable(entry.owner, entry.expires, now, length):
            raise make_busy_error(entry)
        # Larger with every claim: a write with an older token finds no row and changes nothing.
        token, expires = entry.token + 1, now + self._lease
        execute(_TAKE, (token, owner, expires, self._lease, entry.head, entry.hash, key))
        return Lease(session_id, token, owner, expires, entry.head, entry.hash, key, last_note(connection, key))

    def _hold(self, lease: Lease) -> None:
        if self._opened is None:
            self._opened = self._group.opened or identify_file(self.path)
        self._held[lease.key] = _Held(lease)

    def _return(self, answer: StoreAnswer) -> None:
        if answer.error is None:
            self._group.submit(partial(self._give_back, answer.value), partial(self._drop, answer.value))

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Renew the leases."""
        renew = renew or self._lease < SHORT
        self._must_be_there()
        work = partial(self._renew_leases, leases, renew)
        return await (self._group.submit(work) if renew else self._group.read(work))

    def _renew_leases(self, leases: Sequence[Lease], renew: bool, connection: Connection) -> list[Sign]:
        now, signs, execute = self._clock(), [], connection.execute
        mail = execute("SELECT 1 FROM notes LIMIT 1").fetchone() is not None
        for lease in leases:
            row = execute("SELECT token, flag FROM sessions WHERE key = ?", (lease.key,)).fetchone()
            if row is None or row[0] != lease.token:
                signs.append(Sign(session_id=lease.session_id, lost=True))
                continue
            if renew:
                execute("UPDATE sessions SET expires = ? WHERE key = ?", (now + self._lease, lease.key))
            last = last_note(connection, lease.key) if mail else 0
            if row[1] is not None or last:
                signs.append(Sign(session_id=lease.session_id, stop=row[1], mail=last))
        return signs

    def let_go(self, lease: Lease) -> bool | StoreAnswer:
        """Give the lease back, as `release` does: at once, or together with others; False when that takes more."""
        held = self._held
        if self._forks != FORKS.count or self._gone is not None or lease.key not in held:
            return False
        if len(held) > 1:
            answer = self._group.submit(partial(self._give_back, lease), partial(self._drop, lease))
            answer.call_when_done(partial(self._after_release, lease))
            return answer
        if not self._group.is_idle() or self._group.needs_settling():
            return False
        with suppress(StoreError):  # `release` tells what is wrong
            self._group.run_now(partial(self._give_back, lease))
            self._drop(lease)
            return True
        return False

    async def release(self, lease: Lease) -> None:
        """Give the lease back, after everything is written."""
        if self._forks != FORKS.count:
            return
        answer = self._group.submit(partial(self._give_back, lease), partial(self._drop, lease))
        answer.call_when_done(partial(self._after_release, lease))
        try:
            await answer
        finally:
            if not self._held:
                await self._group.settle()

    def _give_back(self, lease: Lease, connection: Connection) -> None:
        held = self._held.get(lease.key)
        known = held is not None and held.lease.token == lease.token and lease.key not in connection.heads
        if known and held is not None and held.head is not None:
            head, hash_ = held.head, held.hash
        else:
            head, hash_ = self._last(connection, lease.key)
        connection.execute(_RELEASE, (GONE, self._clock(), head, hash_, lease.key, lease.token))

    def _drop(self, lease: Lease, _: object = None) -> None:
        held = self._held.get(lease.key)
        if held is not None and held.lease.token == lease.token:
            del self._held[lease.key]

    def _after_release(self, lease: Lease, answer: StoreAnswer) -> None:
        self._drop(lease)
        if answer.error is not None:
            give_up(lease.owner)  # a full disk, perhaps: another run of this process may have it
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if not self._held and not self._draws and self._group.is_idle():
            self._group.stop(join=True)

    # --- writing ----------------------------------------------------------------------------------------------

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit: at once for a run that is alone, else with all others of this pass of the event loop."""
        full = durability != "sync" and check_durability(durability)
        if self._forks != FORKS.count:
            self._check_fork()
        # Only with a summary, at the beginning and end of a run: not worth its time at every commit.
        if summary is not None or self._gone is not None:
            self._must_be_there()
        held = self._held.get(lease.key)
        if held is None or held.lease.token != lease.token:
            raise self._explain_void_lease(lease)
        work, group = partial(self._append, held, commit, summary), self._group
        if not full and len(self._held) == 1 and group.is_idle():
            try:
                group.run_now(work)
                return None
            except StoreError as error:
                if error.kind != "locked":
                    raise
        return group.submit(work, full=full)

    def _append(self, held: _Held, commit: Commit, summary: Mapping[str, Any] | None, connection: Connection) -> None:
        lease, execute = held.lease, connection.execute
        key, number = lease.key, commit.number
        # Only who has written since then can have taken it: another connection, or this store itself.
        if held.version != connection.version or held.connection is not connection or self._held.get(key) is not held:
            row = execute(_LEASED, (key,)).fetchone()
            if row is None or row[0] != lease.token:
                raise self._explain_refusal(connection, lease)
            held.connection, held.version = connection, connection.version
        # What we know of the head is forgotten until the commit has landed: if it does not, the file is asked.
        written = connection.heads.get(key)
        head, held.head = held.head if written is None else written[1], None
        if head is None:
            head = self._last(connection, key)[0]
        if number != head + 1:
            raise make_conflict_error(lease.session_id, number, head)
        seq = execute(_APPEND, (key, number, commit.hash, commit.body)).lastrowid
        connection.heads[key] = (held, number, commit.hash)
        now = self._clock()
        if summary is not None or now >= held.renew:
            # The head in the row may be behind; until the next time, so may be the lease: it is good for four times.
            execute(_ADVANCE, (number, commit.hash, now, now + self._lease, lease.owner, key))
            held.renew = now + self._lease / 4
        if summary is not None:
            note_summary(execute, key, lease.session_id, summary, now)
            execute("UPDATE sessions SET summary = ? WHERE key = ?", (_wire.encode(summary), key))
        self._index_if_due(connection, seq)  # type: ignore[arg-type]

    def _explain_void_lease(self, lease: Lease) -> StoreError:
        """Why a lease is worth nothing here."""
        with suppress(StoreError):
            return self._group.read_now(lambda connection: self._explain_refusal(connection, lease))
        return self._gone or StoreError(f"session {lease.session_id!r} was taken over by another owner", kind="fenced")

    def _explain_refusal(self, connection: Connection, lease: Lease) -> StoreError:
        if connection.execute(_LEASED, (lease.key,)).fetchone() is None:
            return StoreError(f"session {lease.session_id!r} was removed", kind="missing")
        return StoreError(f"session {lease.session_id!r} was taken over by another owner", kind="fenced")

    # --- housekeeping -----------------------------------------------------------------------------------------

    async def transact(self, work: Callable[[Connection], Any]) -> Any:
        """Do something with other data kept in the same file, in one transaction."""
        self._open_or_require()
        return await self._write_without_lease(work)

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop."""

        def work(connection: Connection) -> None:
            _, key, _ = self._row(connection, session_id)
            connection.execute("UPDATE sessions SET flag = ? WHERE key = ?", (keepable_reason(reason), key))

        self._file.must_exist(session_id)
        await self._write_without_lease(work)

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`."""

        def work(connection: Connection) -> None:
            moved = connection.execute(
                "UPDATE sessions SET head = ?, hash = ?, token = token + 1, owner = NULL, expires = ? "
                "WHERE key = ? AND token = ?",
                (head, hash_, GONE, lease.key, lease.token),
            ).rowcount
            if moved != 1:
                raise self._explain_refusal(connection, lease)
            self._delete_commits(connection, lease.key, after=head)

        await self._write_without_lease(work)
        self._drop(lease)

    async def replace_end(self, lease: Lease, end: Commit, summary: Mapping[str, Any]) -> None:
        """Put this commit in place of all from its number on, as a repair does. The lease is void after this."""
        key, now = lease.key, self._clock()

        def work(connection: Connection) -> None:
            execute = connection.execute
            row = (end.number, end.hash, GONE, now, _wire.encode(summary), key, lease.token)
            moved = execute(
                "UPDATE sessions SET head = ?, hash = ?, token = token + 1, owner = NULL, expires = ?, updated = ?, "
                "summary = ? WHERE key = ? AND token = ?",
                row,
            ).rowcount
            if moved != 1:
                raise self._explain_refusal(connection, lease)
            self._delete_commits(connection, key, after=end.number - 1)
            execute(_APPEND, (key, end.number, end.hash, end.body))
            note_summary(execute, key, lease.session_id, summary, now)

        await self._write_without_lease(work)
        self._drop(lease)

    async def remove(self, session_id: str) -> None:
        """Forget a session; nothing of it is left in the file."""

        def work(connection: Connection) -> None:
            entry, key, length = self._row(connection, session_id)
            if not is_claimable(entry.owner, entry.expires, self._clock(), length):
                raise make_busy_error(entry)
            self._forget(connection, key)
            self._held.pop(key, None)

        self._file.must_exist(session_id)
        await self._write_without_lease(work)
        await self._reclaim_space()

    async def _reclaim_space(self) -> None:
        """Give the room of what was deleted back. Never fails: another time will do."""
        with suppress(StoreError):
            await self._group.run_apart(partial(give_space_back, self._file))
        if not self._held:
            await self._group.settle()

    async def close(self) -> None:
        """Close the file; it is opened again when the store is used again."""
        self._check_fork()
        if self._group.is_open:
            await self._group.settle()
        self._group.close()
        if not self._held:
            self._opened = self._gone = None

    def __del__(self) -> None:
        if getattr(self, "_forks", None) == FORKS.count:
            with suppress(Exception):
                self._group.close()

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path}>"
