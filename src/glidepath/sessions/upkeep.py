"""Looking after a store: a copy of it while runs are in flight, and giving back the room that deleted sessions took."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from glidepath._wire import Value
from glidepath.sessions.finding import remove_unfinished
from glidepath.sessions.owner import GONE, is_claimable
from glidepath.sessions.postgres import PostgresStore
from glidepath.sessions.sqlite import SqliteStore
from glidepath.sessions.sqlite_file import SqliteFile
from glidepath.spi import SessionStore
from glidepath.values import ConfigurationError, StoreError, pluralize

_WAIT = 5.0  # seconds for another process's lock
_SLICE = 1000  # pages given back in one transaction: others write in between
_INCREMENTAL = 2  # SQLite's auto_vacuum
_ELSEWHERE = {
    "backup": "use pg_dump --format=custom --file=sessions.dump DATABASE, and pg_restore to bring it back",
    "compact": "PostgreSQL does that itself (autovacuum); to have the room back at once: VACUUM (FULL) "
    "glidepath_commits",
}


class BackedUp(Value, frozen=True, kw_only=True):
    """A copy that was made: where, and how much is in it."""

    path: str
    size: int
    sessions: int
    wallets: int
    identity: str


class Compacted(Value, frozen=True, kw_only=True):
    """What compacting did: bytes on the disk before and after, and the unfinished copies that it removed.

    `is_log_empty` is False when another process was reading: deleted text can still be in the log until it is done.
    """

    before: int
    after: int
    removed: tuple[str, ...] = ()
    is_log_empty: bool = True


async def backup(store: SessionStore, target: str | os.PathLike[str]) -> BackedUp:
    """Copy a whole `SqliteStore`, its wallets included, into a new file, while runs are in flight.

    The copy is one moment of the store, has nothing that was deleted, and is a store with its own identity: the leases
    of the original mean nothing in it. It appears under its name when it is complete. Raises `ConfigurationError` for
    another kind of store and for a file that exists, and `StoreError`.
    """
    source = _file_of(store, "backup")
    return await asyncio.to_thread(_copy, source, Path(target))


async def compact(store: SessionStore) -> Compacted:
    """Remove unfinished copies, give free pages of a `SqliteStore` back, and empty its log: deleted text is gone.

    Runs may be in flight where the file can shrink a slice at a time; a file that has to be rewritten as a whole
    needs a moment without them: `StoreError` of kind `busy`. Raises `ConfigurationError` for another kind of store.
    """
    path = _file_of(store, "compact")
    removed = await remove_unfinished(store)
    entries = await store.entries()
    now = store_time(store)
    flying = [entry.session_id for entry in entries if not is_claimable(entry.owner, entry.expires, now)]
    await store.close()  # what this process has open itself must not be in the way
    before, after, is_empty = await asyncio.to_thread(_shrink, path, flying)
    return Compacted(before=before, after=after, removed=tuple(removed), is_log_empty=is_empty)


def renew_identity(connection: sqlite3.Connection) -> str:
    """Make a copy of a store another store: a new identity, and no lease of the original is valid in it."""
    identity = os.urandom(8).hex()
    connection.execute("CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
    connection.execute("DELETE FROM meta WHERE name = 'inode'")  # it is another file
    connection.execute("INSERT OR REPLACE INTO meta VALUES('store', ?)", (identity,))
    # A larger token: a process that holds a lease on the original and finds this file in its place is fenced.
    # It keeps its owner's name, which says that the run did not end in order: what it wrote last has to be looked for.
    connection.execute("UPDATE sessions SET expires = ?, token = token + 1 WHERE owner IS NOT NULL", (GONE,))
    return identity


def store_inside(store: SessionStore) -> SessionStore:
    """The store itself; of one that redacts, the one it writes to."""
    return getattr(store, "store", store)


def _file_of(store: SessionStore, what: str) -> str:
    inner = store_inside(store)
    if isinstance(inner, PostgresStore):
        raise ConfigurationError(f"{what} is for the file of a SqliteStore, and this is PostgreSQL: {_ELSEWHERE[what]}")
    if not isinstance(inner, SqliteStore):
        raise ConfigurationError(f"{what} is for the file of a SqliteStore, and this is {type(inner).__name__}")
    if not Path(inner.path).exists():
        raise StoreError(f"there is no session store at {inner.path}", kind="missing")
    return inner.path


def store_time(store: SessionStore) -> float:
    """The time by which its leases are counted."""
    clock: Any = getattr(store, "_clock", time.time)
    return float(clock())


@contextmanager
def _open_database(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection to an existing file; SQLite's errors are explained."""
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=_WAIT, isolation_level=None)
        ) as connection:
            yield connection
    except sqlite3.Error as error:
        raise SqliteFile(str(path)).translate_error(error) from error
    except OSError as error:
        raise StoreError(f"{path}: {error}", kind="unavailable") from error


def _copy(source: str, place: Path) -> BackedUp:
    place = place.absolute()
    if place.exists():
        raise ConfigurationError(f"{place} exists: name a new file, or remove that one first")
    if not place.parent.is_dir():
        raise ConfigurationError(f"{place} cannot be made: there is no folder {place.parent}")
    partial = place.with_name(f"{place.name}.partial")
    with suppress(FileNotFoundError):
        partial.unlink()  # of a backup that was killed
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be made: {error.strerror}") from None
    try:
        with _open_database(source) as connection:
            # One read transaction, in which others write on. The copy has no free pages: nothing deleted is in it.
            connection.execute("VACUUM INTO ?", (str(partial),))
        with _open_database(partial) as copy:
            copy.execute("BEGIN IMMEDIATE")
            identity = renew_identity(copy)
            copy.execute("COMMIT")
            copy.execute("PRAGMA journal_mode = WAL")
            sessions, wallets = _count(copy, "sessions"), _count(copy, "wallets")
        _sync(partial)
        partial.rename(place)
        _sync(place.parent)
    finally:
        for left in (partial, Path(f"{partial}-wal"), Path(f"{partial}-shm"), Path(f"{partial}-journal")):
            with suppress(OSError):
                left.unlink()
    size = place.stat().st_size
    return BackedUp(path=str(place), size=size, sessions=sessions, wallets=wallets, identity=identity)


def _count(connection: sqlite3.Connection, table: str) -> int:
    known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] if known else 0  # noqa: S608 - our names


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _shrink(path: str, flying: list[str]) -> tuple[int, int, bool]:
    """Make the file smaller; returns its size with its log before and after, and whether the log is empty."""
    before = _size(path)
    with _open_database(path) as connection:
        if connection.execute("PRAGMA auto_vacuum").fetchone()[0] == _INCREMENTAL:
            while connection.execute("PRAGMA freelist_count").fetchone()[0]:
                connection.execute(f"PRAGMA incremental_vacuum({_SLICE})").fetchall()
        elif flying:
            what = f"{path} has {pluralize(len(flying), 'run')} in flight, such as {flying[0]!r:.80}"
            raise StoreError(f"{what}: compact it when they have ended", kind="busy")
        else:
            connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")  # from now on a slice at a time will do
            connection.execute("VACUUM")
        is_blocked = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    return before, _size(path), not is_blocked


def _size(path: str) -> int:
    found = 0
    for file in (path, f"{path}-wal"):
        with suppress(OSError):
            found += Path(file).stat().st_size
    return found
