"""A store in one SQLite file: write-ahead log, committed inline, shared by any number of processes."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from glidepath import _wire
from glidepath.errors import ConfigurationError, StoreError, install_line, told
from glidepath.sessions.chain import other_layout
from glidepath.sessions.copies import CanFork
from glidepath.sessions.memory import busy, conflict
from glidepath.sessions.owner import GONE, LEASE, SHORT, free, give_up
from glidepath.sessions.session_ids import keepable, keepable_reason
from glidepath.sessions.sqlite_catalog import SHIFT, SqliteCatalog, note_summary, prepare
from glidepath.sessions.sqlite_notes import SqliteInbox, drop_notes, last_note
from glidepath.sessions.sqlite_rows import blob, entry_in
from glidepath.sessions.sqlite_says import explained, write_ahead
from glidepath.sessions.sqlite_wallets import SqliteWallets
from glidepath.sessions.writer import Writer
from glidepath.spi.sessions import Commit, Entry, Lease, Sign

if TYPE_CHECKING:
    import sqlite3

LAYOUT = 1  # of the tables; the journal inside has its own version
APPLICATION = 0x676C6964  # "glid": what the file says it is
IMPATIENT = 20  # milliseconds the event loop may block on another process's lock
_FIRST_WAIT, _LONGEST_WAIT = 0.005, 0.1
_OTHERS = stat.S_IROTH | stat.S_IWOTH
_LOG = 1 << 18  # bytes in the log that are worth a checkpoint when nobody writes

_TABLES = """
CREATE TABLE IF NOT EXISTS sessions(
  key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
  head INTEGER NOT NULL, hash BLOB NOT NULL, token INTEGER NOT NULL,
  owner TEXT, expires REAL NOT NULL, updated REAL NOT NULL, flag TEXT, summary BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS commits(place INTEGER PRIMARY KEY, hash BLOB NOT NULL, body BLOB NOT NULL);
"""
_ENTRY = "SELECT id, head, hash, token, owner, expires, updated, flag, summary, key FROM sessions"
_APPEND = (  # a commit's place is its session and its number; it needs the lease and the commit before it
    "INSERT INTO commits(place, hash, body) SELECT ?, ?, ? FROM sessions WHERE key = ? AND token = ? "
    "AND (? = 1 OR EXISTS(SELECT 1 FROM commits WHERE place = ?))"
)
_ADVANCE = "UPDATE sessions SET head = ?, hash = ?, updated = ?, expires = ?, owner = ? WHERE key = ?"
_LAST = "SELECT place, hash FROM commits WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1"
MOST = (1 << SHIFT) - 1


def default_file() -> Path:
    """The default place for sessions: in the user's data folder of this platform."""
    try:
        import platformdirs
    except ImportError:
        raise ConfigurationError(
            f"platformdirs is needed to find your data folder: {install_line('cli')}, or name the store's file"
        ) from None
    return platformdirs.user_data_path("glidepath") / "sessions.db"


def identity(path: str, *, size: bool = False) -> tuple[int, int] | None:
    """Which file is at this path: its inode and device, or its size; None if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked with every heartbeat
    except OSError:
        return None
    return (found.st_ino, found.st_size if size else found.st_dev)


def _make_private(path: str) -> None:
    """Create the file with mode 0600, whatever the umask, if there is none. SQLite gives its log the same mode."""
    with suppress(OSError):  # SQLite's own error is better
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
        os.chmod(path, 0o600)  # noqa: PTH101 - a umask may even take the owner's rights


def _close_to_others(path: str) -> None:
    """Leave a store that everybody could read to its owner; one that its group may write is shared on purpose."""
    for file in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(OSError):
            mode = os.stat(file).st_mode  # noqa: PTH116
            if stat.S_ISREG(mode) and mode & _OTHERS:
                os.chmod(file, mode & (0o770 if mode & stat.S_IWGRP else 0o600))  # noqa: PTH101


class SqliteStore(CanFork, SqliteCatalog, SqliteInbox, SqliteWallets):
    """Keeps journals in one SQLite file, which is made when it is first used.

    Without a `path` it is `sessions.db` in the user's data folder of this platform.
    `busy` is how many seconds to wait for another process's lock before a write fails.
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
            self.path = os.fspath(default_file() if path is None else path)
        except TypeError:
            raise ConfigurationError(f"SqliteStore takes the path of a file, not {path!r:.100}") from None
        if not isinstance(self.path, str) or not self.path.strip() or "\0" in self.path:
            raise ConfigurationError(f"SqliteStore takes the path of a file, not {path!r:.100}")
        if self.path == ":memory:":
            raise ConfigurationError("SqliteStore takes the path of a file; for memory use MemoryStore()")
        self._lease = lease
        self._busy = busy
        self._clock = clock
        self._lock = threading.RLock()
        self._inline: Any = None
        self._full: Any = None
        self._writer: Writer | None = None
        self._leases = 0
        self._renewals: dict[int, float] = {}  # when each lease is renewed next
        self._file: tuple[int, int] | None = None  # which one is open
        self._gone: StoreError | None = None
        self._pid = os.getpid()
        SqliteWallets.__init__(self, self.path)

    # --- connections ------------------------------------------------------------------------------------------

    def _connection(self) -> sqlite3.Connection:
        if self._inline is None or self._pid != os.getpid():
            self._forked()
            self._inline = self._open("NORMAL", IMPATIENT)
            self._file = identity(self.path)
        return self._inline  # type: ignore[no-any-return]

    def _forked(self) -> None:
        """A connection does not survive a fork; the parent's is left alone, never closed here."""
        if self._pid != os.getpid():
            self._abandoned = (self._inline, self._full)
            self._inline = self._full = self._writer = None
            self._lock = threading.RLock()
            self._leases, self._pid = 0, os.getpid()
            self._gone = None

    def _must_be_there(self) -> None:
        """Raise `StoreError` when the open file is no longer the one at this path: the journal would be lost."""
        if self._inline is not None and self._file != identity(self.path):
            what = f"the session store {self.path} was removed or replaced while it was in use"
            self._gone = StoreError(what, kind="missing")
        if self._gone is not None:
            raise self._gone

    def _open_anew(self) -> None:
        """Reopen the path after its file was removed or replaced; leases on the old file are void."""
        if self._inline is not None and self._pid == os.getpid() and self._file != identity(self.path):
            self._stop_writer()
            with self._lock:
                self._inline.close()
                self._inline = None
            self._renewals.clear()
            self._gone = None

    def _open(self, synchronous: str, wait: int) -> sqlite3.Connection:
        import sqlite3

        with self._errors():
            if self._home:
                Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_private(self.path)
            connection = sqlite3.connect(
                self._address(),
                uri=True,
                timeout=self._busy,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
            try:
                self._prepare(connection)
                _close_to_others(self.path)  # now that it is known to be a store
                self._catalogued = prepare(connection)
                connection.execute(f"PRAGMA synchronous = {synchronous}")
                connection.execute(f"PRAGMA busy_timeout = {wait}")
                connection.execute("PRAGMA secure_delete = ON")  # deleted data does not stay in free pages
            except BaseException:
                connection.close()
                raise
        return connection

    def _address(self) -> str:
        """Open the file; in a read-only folder it is only read, provided that its log is empty."""
        address = f"file:{quote(os.path.abspath(self.path))}"  # noqa: PTH100 - as cheap as it can be
        if not self._fixed() or not os.path.exists(self.path):  # noqa: PTH110
            return address
        log = f"{self.path}-wal"
        left = os.path.exists(log) and os.path.getsize(log)  # noqa: PTH110, PTH202
        return address if left else f"{address}?immutable=1"

    def _fixed(self) -> bool:
        """True when the folder is there and read-only: SQLite needs to make files beside its own."""
        folder = os.path.dirname(os.path.abspath(self.path))  # noqa: PTH100, PTH120
        return os.path.isdir(folder) and not os.access(folder, os.W_OK)  # noqa: PTH112

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a new file; refuse a file that is something else, or of another layout."""
        connection.execute("BEGIN")  # read it all at once: another process may be creating the tables right now
        try:
            layout = connection.execute("PRAGMA user_version").fetchone()[0]
            owner = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        finally:
            connection.execute("COMMIT")
        if layout == LAYOUT and owner == APPLICATION:
            return
        if layout > LAYOUT and owner == APPLICATION:
            raise other_layout(f"{self.path} has", layout, LAYOUT)
        if tables and owner != APPLICATION:
            raise StoreError(f"{self.path} is another program's database: choose another file", kind="damaged")
        write_ahead(connection, self._busy)
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {LAYOUT}")
        connection.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(error) from error
        except OSError as error:
            raise StoreError(f"the session store {self.path}: {error}", kind="unavailable") from error
        except UnicodeEncodeError as error:
            raise StoreError(
                f"{error.object!r:.80} is not valid Unicode: it cannot be in a store", kind="missing"
            ) from None
        except (TypeError, ValueError, AttributeError, OverflowError, MemoryError, _wire.WireError) as error:
            what = told(error)  # another type, or bytes that are not text: we never wrote that
            raise StoreError(f"the session store {self.path} is damaged ({what})", kind="damaged") from error

    def _explained(self, error: BaseException) -> StoreError:
        """What SQLite's error means."""
        return explained(error, self.path, fixed=self._fixed())

    async def _patiently(self, work: Callable[[], Any]) -> Any:
        """Do it, and retry while another process holds the lock, without blocking the event loop."""
        until, wait = time.monotonic() + self._busy, _FIRST_WAIT
        while True:
            try:
                return work()
            except StoreError as error:
                if error.kind != "locked" or time.monotonic() >= until:
                    raise
            await asyncio.sleep(wait)
            wait = min(_LONGEST_WAIT, wait * 2)

    def _transaction(self, connection: sqlite3.Connection, work: Callable[[Any], Any]) -> Any:
        with self._lock, self._errors():
            # Take the lock at once: a transaction that reads first and writes later can be refused midway.
            connection.execute("BEGIN IMMEDIATE")
            try:
                found = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with suppress(Exception):
                        connection.execute("ROLLBACK")
                raise
            return found

    def _do(self, work: Callable[[Any], Any]) -> Any:
        return self._transaction(self._connection(), work)

    # --- owning -----------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner."""

        def work(connection: sqlite3.Connection) -> Lease:
            now = self._clock()
            if create:
                connection.execute(
                    "INSERT OR IGNORE INTO sessions(id, head, hash, token, expires, updated, summary) "
                    "VALUES(?, 0, x'', 0, 0, ?, '{}')",
                    (keepable(session_id), now),
                )
            entry, key = self._entry(connection, session_id)
            if not free(entry.owner, entry.expires, now):
                raise busy(entry)
            # Larger with every claim: a write with an older token finds no row and changes nothing.
            token, expires = entry.token + 1, now + self._lease
            connection.execute(
                "UPDATE sessions SET token = ?, owner = ?, expires = ? WHERE key = ?", (token, owner, expires, key)
            )
            return Lease(session_id, token, owner, expires, entry.head, entry.hash, key, last_note(connection, key))

        if not create:
            self._must_exist(session_id)
        self._open_anew()
        lease: Lease = await self._patiently(lambda: self._do(work))
        self._leases += 1
        self._renewals.pop(lease.key, None)
        return lease

    def _entry(self, connection: sqlite3.Connection, session_id: str) -> tuple[Entry, int]:
        row = connection.execute(f"{_ENTRY} WHERE id = ?", (session_id,)).fetchone()
        if row is None:
            raise StoreError(f"there is no session {session_id!r} in {self.path}", kind="missing")
        return self._current(connection, row), row[9]

    def _current(self, connection: sqlite3.Connection, row: Sequence[Any]) -> Entry:
        """The entry with its current head; a head behind the one noted before means that commits were lost."""
        entry = entry_in(row)
        number, digest = self._last(connection, row[9])
        return entry if number <= entry.head else _wire.replace(entry, head=number, hash=digest)

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Renew the leases."""
        renew = renew or self._lease < SHORT
        self._must_be_there()

        def work(connection: sqlite3.Connection) -> list[Sign]:
            now, signs = self._clock(), []
            for lease in leases:
                row = connection.execute("SELECT token, flag FROM sessions WHERE key = ?", (lease.key,)).fetchone()
                if row is None or row[0] != lease.token:
                    signs.append(Sign(session_id=lease.session_id, lost=True))
                    continue
                if renew:
                    connection.execute("UPDATE sessions SET expires = ? WHERE key = ?", (now + self._lease, lease.key))
                mail = last_note(connection, lease.key)
                if row[1] is not None or mail:
                    signs.append(Sign(session_id=lease.session_id, stop=row[1], mail=mail))
            return signs

        if renew:
            return await self._patiently(lambda: self._do(work))  # type: ignore[no-any-return]
        return self._look(work)  # type: ignore[no-any-return]

    def _look(self, work: Callable[[Any], Any]) -> Any:
        """Reads only, so it needs no lock on the file."""
        with self._lock, self._errors():
            return work(self._connection())

    async def release(self, lease: Lease) -> None:
        """Give the lease back, after everything is written."""
        if self._pid != os.getpid():
            return
        writer = self._writer
        try:
            # Everything queued for this session first: a write after the release would be refused.
            if writer is not None:
                await writer.do(lease.session_id, lambda: None)
            await self._patiently(
                lambda: self._do(
                    lambda connection: connection.execute(
                        "UPDATE sessions SET owner = NULL, expires = ?, updated = ? WHERE key = ? AND token = ?",
                        (GONE, self._clock(), lease.key, lease.token),
                    )
                )
            )
        except StoreError:
            give_up(lease.owner)  # a full disk, perhaps: another run of this process may have it
            raise
        finally:
            self._leases = max(0, self._leases - 1)
            if writer is not None:
                writer.forget(lease.session_id)
            if not self._leases:
                await self._settle()

    async def _settle(self) -> None:
        """With no writer left, move the log into the file, where damage is noticed. Never fails."""
        log = identity(f"{self.path}-wal", size=True)
        if log is not None and log[1] >= _LOG:
            writer = self._writer = self._writer or Writer()
            with suppress(StoreError):
                await writer.do("", lambda: self._durable(full=False).execute("PRAGMA wal_checkpoint(PASSIVE)"))
        if not self._leases:
            self._stop_writer()

    # --- writing ----------------------------------------------------------------------------------------------

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit: inline, or on the writer's thread for "full" and "async"."""
        # Only with a summary, at the beginning and end of a run: not worth its time at every commit.
        if summary is not None or self._gone is not None:
            self._must_be_there()
        if durability == "sync":
            try:
                self._append(self._connection(), lease, commit, summary)
            except StoreError as error:
                if error.kind != "locked":
                    raise
                return self._patiently(lambda: self._append(self._connection(), lease, commit, summary))
            return None
        self._connection()  # and whatever a fork left behind is gone
        writer = self._writer
        if writer is None:
            writer = self._writer = Writer()
        if durability == "async":
            writer.put(lease.session_id, lambda: self._append(self._durable(full=False), lease, commit, summary))
            return None
        return writer.do(lease.session_id, lambda: self._append(self._durable(full=True), lease, commit, summary))

    def _durable(self, *, full: bool) -> Any:
        """The writer's own connection."""
        if self._full is None:
            self._full = self._open("NORMAL", int(self._busy * 1000))
        self._full.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        return self._full

    def _append(
        self, connection: sqlite3.Connection, lease: Lease, commit: Commit, summary: Mapping[str, Any] | None
    ) -> None:
        """One row; while the lease is fresh, this single statement is the whole commit."""
        key, number = lease.key, commit.number
        place = (key << SHIFT) + number
        # The statement itself checks the token and that the commit before is there: no read, no transaction.
        row = (place, commit.hash, commit.body, key, lease.token, number, place - 1)
        now = self._clock()
        execute = connection.execute
        if summary is None and now < self._renewals.get(key, GONE):
            with self._lock:
                try:
                    if execute(_APPEND, row).rowcount == 1:
                        return
                except Exception as error:
                    if not isinstance(error, self._duplicate()):
                        raise self._explained(error) from error

        def work(connection: sqlite3.Connection) -> None:
            try:
                written = execute(_APPEND, row).rowcount
            except self._duplicate():
                written = 0
            if written != 1:
                raise self._refused(connection, lease, number)
            execute(_ADVANCE, (number, commit.hash, now, now + self._lease, lease.owner, key))
            if summary is not None:
                if self._catalogued:
                    note_summary(execute, key, lease.session_id, summary, now, number)
                execute("UPDATE sessions SET summary = ? WHERE key = ?", (_wire.encode(summary), key))

        self._transaction(connection, work)
        # Until then commits leave the lease alone: it is good for four times as long.
        self._renewals[key] = now + self._lease / 4

    def _duplicate(self) -> type[Exception]:
        import sqlite3

        return sqlite3.IntegrityError

    def _refused(self, connection: sqlite3.Connection, lease: Lease, number: int) -> StoreError:
        row = connection.execute("SELECT token FROM sessions WHERE key = ?", (lease.key,)).fetchone()
        if row is None:
            return StoreError(f"session {lease.session_id!r} was removed", kind="missing")
        if row[0] != lease.token:
            return StoreError(f"session {lease.session_id!r} was taken over by another owner", kind="fenced")
        return conflict(lease.session_id, number, self._last(connection, lease.key)[0])

    def _last(self, connection: sqlite3.Connection, key: int) -> tuple[int, bytes]:
        """The number and hash of the last commit."""
        row = connection.execute(_LAST, (key << SHIFT, (key + 1 << SHIFT) - 1)).fetchone()
        return (0, b"") if row is None else (row[0] - (key << SHIFT), blob(row[1]))

    # --- reading and housekeeping -----------------------------------------------------------------------------

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The journal, from commit `since` on."""

        def work(connection: sqlite3.Connection) -> tuple[Entry, Sequence[Commit]]:
            connection.execute("BEGIN")  # one snapshot for both
            try:
                entry, key = self._entry(connection, session_id)
                rows = connection.execute(
                    "SELECT place - ?, body, hash FROM commits WHERE place BETWEEN ? AND ? ORDER BY place",
                    (key << SHIFT, (key << SHIFT) + min(since, MOST), (key + 1 << SHIFT) - 1),
                ).fetchall()
            finally:
                connection.execute("COMMIT")
            return entry, tuple([Commit(number, blob(body), blob(digest)) for number, body, digest in rows])

        self._must_exist(session_id)
        return await self._patiently(lambda: self._look(work))  # type: ignore[no-any-return]

    def _must_exist(self, session_id: str = "") -> None:
        if not os.path.exists(self.path):  # noqa: PTH110 - reading must not make a file
            whose = f"there is no session {session_id!r}: " if session_id else ""
            raise StoreError(f"{whose}there is no session store at {self.path}", kind="missing")

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions, the last written first."""

        def work(connection: sqlite3.Connection) -> list[Entry]:
            rows = connection.execute(f"{_ENTRY} ORDER BY updated DESC, id").fetchall()
            return [self._current(connection, row) for row in rows if row[0].startswith(prefix)]

        self._must_exist()
        return await self._patiently(lambda: self._look(work))  # type: ignore[no-any-return]

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop."""

        def work(connection: sqlite3.Connection) -> None:
            _, key = self._entry(connection, session_id)
            connection.execute("UPDATE sessions SET flag = ? WHERE key = ?", (keepable_reason(reason), key))

        self._must_exist(session_id)
        await self._patiently(lambda: self._do(work))

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`."""

        def work(connection: sqlite3.Connection) -> None:
            moved = connection.execute(
                "UPDATE sessions SET head = ?, hash = ?, token = token + 1, owner = NULL, expires = ? "
                "WHERE key = ? AND token = ?",
                (head, hash_, GONE, lease.key, lease.token),
            ).rowcount
            if moved != 1:
                raise self._refused(connection, lease, head)
            first, last = (lease.key << SHIFT) + head, (lease.key + 1 << SHIFT) - 1
            connection.execute("DELETE FROM commits WHERE place > ? AND place <= ?", (first, last))

        await self._patiently(lambda: self._do(work))
        self._leases = max(0, self._leases - 1)

    async def remove(self, session_id: str) -> None:
        """Forget a session."""

        def work(connection: sqlite3.Connection) -> None:
            entry, key = self._entry(connection, session_id)
            if not free(entry.owner, entry.expires, self._clock()):
                raise busy(entry)
            self._forget(connection, key)

        self._must_exist(session_id)
        await self._patiently(lambda: self._do(work))

    def _forget(self, connection: sqlite3.Connection, key: int) -> None:
        first, last = key << SHIFT, (key + 1 << SHIFT) - 1
        connection.execute("DELETE FROM commits WHERE place BETWEEN ? AND ?", (first, last))
        connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
        drop_notes(connection, key)

    async def close(self) -> None:
        """Close the file; it is opened again when the store is used again."""
        self._forked()
        self._stop_writer()
        self._close_desk()
        with self._lock:
            inline, self._inline = self._inline, None
            if inline is not None:
                inline.close()

    def _stop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()
        full, self._full = self._full, None
        if full is not None:
            full.close()

    def __del__(self) -> None:
        if getattr(self, "_pid", None) == os.getpid():
            for connection in (self._inline, self._full):
                if connection is not None:
                    with suppress(Exception):
                        connection.close()

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path}>"
