"""The file of an SQLite store: opening it, who may read it, which file it is, and what SQLite's errors mean."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from glidepath import _wire
from glidepath.sessions.chain import make_layout_error
from glidepath.sessions.owner import GONE
from glidepath.sessions.sqlite_tables import APPLICATION, LAYOUT, TABLES, UPGRADES
from glidepath.values import ConfigurationError, StoreError, describe_error, install_line

BUSY, READ_ONLY, FULL, CANNOT_OPEN = 5, 8, 13, 14
_WAIT = 0.005  # seconds between two tries
_OTHERS = stat.S_IROTH | stat.S_IWOTH
_KINDS = {  # SQLite's primary result codes
    BUSY: ("locked", "is locked by another process"),
    6: ("locked", "is locked"),
    READ_ONLY: ("read_only", "is read-only"),
    10: ("unavailable", "cannot be read or written"),
    11: ("damaged", "is damaged"),
    FULL: ("full", "cannot grow: the disk is full"),
    CANNOT_OPEN: ("unavailable", "cannot be opened"),
    26: ("damaged", "is not an SQLite database"),
}
_NETWORK = {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ceph", "ncpfs", "lustre", "beegfs", "gpfs"}
_NETWORK |= {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "davfs"}


class Head(Protocol):
    """Knows the last commit of a session, once it is committed."""

    head: int | None
    hash: bytes


class Connection(sqlite3.Connection):
    """A connection to a store's file."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.heads: dict[int, tuple[Head, int, bytes]] = {}
        """The last commit that the open transaction has added to each session, and who wants to know it."""
        self.version = 0
        """A number that is another one in each transaction before which another connection has written."""
        self.synchronous = ""

    def __del__(self) -> None:
        """A store that is dropped needs no `close`: from 3.13 on, Python would warn about its connection."""
        with suppress(Exception):
            self.close()

    def commit_all(self) -> None:
        """Commit the transaction, and tell what has become the last commit of each session."""
        self.execute("COMMIT")
        for held, number, digest in self.heads.values():
            held.head, held.hash = number, digest


def default_file() -> Path:
    """The default place for sessions: in the user's data folder of this platform."""
    try:
        import platformdirs
    except ImportError:
        raise ConfigurationError(
            f"platformdirs is needed to find your data folder: {install_line('cli')}, or name the store's file"
        ) from None
    return platformdirs.user_data_path("glidepath") / "sessions.db"


def is_segment_folder(path: str | os.PathLike[str]) -> bool:
    """True when this folder holds segments, in which sessions were kept before there was a release."""
    return Path(path, "STORE").is_file() or Path(path, "segments").is_dir()


def code_of(error: BaseException) -> int:
    """SQLite's primary result code."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def identify_file(path: str) -> tuple[int, int] | None:
    """Which file is at this path: its inode and device; None if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked with every heartbeat
    except OSError:
        return None
    return found.st_ino, found.st_dev


def _is_own_file(connection: sqlite3.Connection, inode: int) -> bool:
    """Whether the store in this file knows that this is its file."""
    known = connection.execute("SELECT value FROM meta WHERE name = 'inode'").fetchone()
    return known is not None and known[0] == str(inode)


def size_of(path: str) -> int:
    """How many bytes a file has; 0 if there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def file_system_of(path: str, mounts: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that this path is on, such as `ext4`; empty where the system does not tell."""
    place, found, longest = os.path.realpath(path), "", -1
    with suppress(OSError, ValueError, IndexError), open(mounts, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
        for line in lines:
            before, _, after = line.partition(" - ")
            point = before.split(" ")[4].replace("\\040", " ").rstrip("/")
            if len(point) >= longest and (place == point or place.startswith(f"{point}/")):
                found, longest = after.split(" ")[0], len(point)
    return found


class SqliteFile:
    """One SQLite file that is, or becomes, a session store. Its path is absolute: a tool may change the folder."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._home = path is None
        try:
            given = os.fspath(default_file() if path is None else path)
        except TypeError:
            raise ConfigurationError(f"SqliteStore takes the path of a file, not {path!r:.100}") from None
        if not isinstance(given, str) or not given.strip() or "\0" in given:
            raise ConfigurationError(f"SqliteStore takes the path of a file, not {path!r:.100}")
        if given == ":memory:":
            raise ConfigurationError("SqliteStore takes the path of a file; for memory use MemoryStore()")
        try:
            self.path = os.path.abspath(given)  # noqa: PTH100 - links are not resolved
        except OSError as error:
            why = error.strerror or error
            raise ConfigurationError(
                f"SqliteStore({given!r:.100}) is in the current folder, and that is gone ({why}): pass an absolute path"
            ) from None
        self.log = f"{self.path}-wal"
        self._kind: str | None = None  # of its file system

    def exists(self) -> bool:
        """True when there is a file at this path."""
        return os.path.exists(self.path)  # noqa: PTH110

    def must_exist(self, session_id: str = "") -> None:
        """Raise `StoreError` (`missing`) when there is no file: reading must not make one."""
        if not self.exists():
            whose = f"there is no session {session_id!r}: " if session_id else ""
            raise StoreError(f"{whose}there is no session store at {self.path}", kind="missing")

    # --- opening ----------------------------------------------------------------------------------------------

    def connect(self, wait: int, *, alone: bool = False) -> Connection:
        """A new connection that waits this many milliseconds for a lock; the tables are made if there are none.

        `alone`: without the file that connections share. It takes no room on the disk, and nobody else may be there.
        """
        with self.translate_errors():
            self._must_be_local()
            if self._home:
                Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_private()
            connection = sqlite3.connect(
                self._address(),
                uri=True,
                timeout=wait / 1000,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
                factory=Connection,
            )
            try:
                if alone:
                    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._prepare(connection, wait / 1000)
                self._close_to_others()  # now that it is known to be a store
                connection.execute("PRAGMA secure_delete = ON")  # deleted data does not stay in free pages
                connection.execute("PRAGMA wal_autocheckpoint = 0")  # a thread does it: the event loop must not wait
                sync_with(connection, "NORMAL")
                self._give_new_identity(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _must_be_local(self) -> None:
        if os.path.isdir(self.path):  # noqa: PTH112
            what = "a folder of segments, which this version does not read" if is_segment_folder(self.path) else None
            raise StoreError(
                f"{self.path} is {what or 'a folder'}: sessions are kept in one file, such as {self.path}.db",
                kind="unavailable",
            )
        if self._kind is None:
            self._kind = file_system_of(self.path)
        if self._kind in _NETWORK:
            raise StoreError(
                f"{self.path} is on a network file system ({self._kind}), where SQLite's locks do not hold: "
                "use a local disk, or PostgresStore to share sessions among machines",
                kind="unavailable",
            )

    def _make_private(self) -> None:
        """Create the file with mode 0600, whatever the umask, if there is none. SQLite gives its log the same mode."""
        with suppress(OSError):  # SQLite's own error is better
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
            os.chmod(self.path, 0o600)  # noqa: PTH101 - a umask may even take the owner's rights

    def _close_to_others(self) -> None:
        """Leave a store that everybody could read to its owner; one that its group may write is shared on purpose."""
        for file in (self.path, self.log, f"{self.path}-shm"):
            with suppress(OSError):
                mode = os.stat(file).st_mode  # noqa: PTH116
                if stat.S_ISREG(mode) and mode & _OTHERS:
                    os.chmod(file, mode & (0o770 if mode & stat.S_IWGRP else 0o600))  # noqa: PTH101

    def _address(self) -> str:
        """Open the file; in a read-only folder it is only read, provided that its log is empty."""
        address = f"file:{quote(self.path)}"
        if not self._is_read_only() or not self.exists():
            return address
        return address if size_of(self.log) else f"{address}?immutable=1"

    def _is_read_only(self) -> bool:
        """True when the folder is there and read-only: SQLite needs to make files beside its own."""
        folder = os.path.dirname(self.path)  # noqa: PTH120
        return os.path.isdir(folder) and not os.access(folder, os.W_OK)  # noqa: PTH112

    def _prepare(self, connection: Connection, wait: float) -> None:
        """Make the tables of a new file; refuse a file that is something else, or of another layout."""
        try:
            connection.execute("BEGIN")  # read it all at once: another process may be creating the tables right now
            layout = connection.execute("PRAGMA user_version").fetchone()[0]
            owner = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        finally:
            roll_back(connection)
        if layout == LAYOUT and owner == APPLICATION:
            return
        if tables and owner != APPLICATION:
            raise StoreError(f"{self.path} is another program's database: choose another file", kind="damaged")
        if layout and owner == APPLICATION:
            if layout not in UPGRADES:
                raise make_layout_error(f"{self.path} has", layout, LAYOUT)
            self._upgrade(connection)
            return
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before the first table: what is freed is given back
        _write_ahead(connection, wait)
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise

    def _upgrade(self, connection: Connection) -> None:
        """Bring the tables of an earlier layout up to date."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have done it since.
            layout = connection.execute("PRAGMA user_version").fetchone()[0]
            for statement in UPGRADES.get(layout, ()):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise

    def _give_new_identity(self, connection: Connection) -> None:
        """Give a copy of a store its own identity: leases that were given out on the original mean nothing here."""
        if (self._kind or "").startswith(("fuse", "9p", "virtiofs")):  # inodes come and go there
            return
        here = identify_file(self.path)
        if here is None or _is_own_file(connection, here[0]):
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Asked again now that nobody else can write: another process that opened the same new file may have given
            # it its identity, and leases.
            if _is_own_file(connection, here[0]):
                return
            connection.execute("INSERT OR REPLACE INTO meta VALUES('inode', ?)", (str(here[0]),))
            connection.execute("INSERT OR REPLACE INTO meta VALUES('store', ?)", (os.urandom(8).hex(),))
            # Without an owner, but not given back: the head in the row may be behind.
            connection.execute(
                "UPDATE sessions SET owner = '', expires = ?, token = token + 1 WHERE owner IS NOT NULL", (GONE,)
            )
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if code_of(error) not in (READ_ONLY, FULL):  # then it is only read, and nobody gets a lease
                raise
        finally:
            roll_back(connection)

    # --- errors -----------------------------------------------------------------------------------------------

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise every error as the `StoreError` that it means."""
        try:
            yield
        except Exception as error:
            raise self.translate_error(error) from error

    def translate_error(self, error: Exception) -> StoreError:
        """What an error means for the store."""
        if isinstance(error, StoreError):
            return error
        if isinstance(error, sqlite3.Error):
            return self._translate_sqlite_error(error)
        if isinstance(error, OSError):
            return StoreError(f"the session store {self.path}: {error}", kind="unavailable")
        if isinstance(error, UnicodeEncodeError):
            what = f"{error.object!r:.80} is not valid Unicode: it cannot be in a store"
            return StoreError(what, kind="missing")
        if isinstance(error, (TypeError, ValueError, AttributeError, OverflowError, MemoryError, _wire.WireError)):
            # Another type, or bytes that are not text: we never wrote that.
            return StoreError(f"the session store {self.path} is damaged ({describe_error(error)})", kind="damaged")
        return StoreError(f"the session store {self.path} failed: {describe_error(error)}")

    def _translate_sqlite_error(self, error: sqlite3.Error) -> StoreError:
        code = code_of(error)
        kind, what = _KINDS.get(code, ("unavailable", "failed"))
        if code == CANNOT_OPEN and self._is_read_only():
            kind, what = "read_only", "cannot be opened: its folder is read-only"
        elif code == CANNOT_OPEN and not (folder := Path(self.path).parent).is_dir():
            what = f"cannot be opened: there is no folder {folder}"
        return StoreError(f"the session store {self.path} {what} ({error})", kind=kind)


def roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction that was left open, if there is one. Never fails."""
    if connection.in_transaction:
        with suppress(Exception):
            connection.execute("ROLLBACK")


def sync_with(connection: Connection, how: str) -> None:
    """NORMAL: a commit outlives the process. FULL: it outlives a power cut. Outside a transaction."""
    if connection.synchronous != how:
        connection.execute(f"PRAGMA synchronous = {how}")
        connection.synchronous = how


def _write_ahead(connection: Connection, seconds: float) -> None:
    """Turn the write-ahead log on, and wait up to `seconds` for another connection that is making the same file.

    SQLite's own busy timeout does not cover this: a switch that finds the file locked for writing fails at once.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.Error as error:
            if code_of(error) != BUSY or time.monotonic() >= until:
                raise
        time.sleep(_WAIT)
