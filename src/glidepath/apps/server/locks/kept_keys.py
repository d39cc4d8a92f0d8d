"""Where keys are kept: a file beside an embedded store, a table of PostgreSQL, or the memory of the process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath import _wire
from glidepath._wire import WireError
from glidepath.apps.server.locks.keys import AccessKey, KeyRing, MemoryKeys, make_name_taken_error, revoke_key
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.sessions import PostgresStore

__all__ = ["FileKeys", "PostgresKeys", "keys_for"]

FILE = "access-keys.journal"
FRESH = 1.0  # seconds in which a table is not read again
_THERE = "SELECT to_regclass('glidepath_keys') IS NOT NULL"
_TABLE = "CREATE TABLE IF NOT EXISTS glidepath_keys(name text PRIMARY KEY, line text NOT NULL)"
_ALL = "SELECT coalesce(string_agg(line, E'\\n' ORDER BY name), '') FROM glidepath_keys"
_ADD = "INSERT INTO glidepath_keys(name, line) VALUES($1, $2) ON CONFLICT (name) DO NOTHING RETURNING name"
_SET = "UPDATE glidepath_keys SET line = $2 WHERE name = $1 RETURNING name"


class FileKeys:
    """A file that only grows, mode 0600: the last line of a name counts. Another process is heard at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._named: dict[str, AccessKey] = {}
        self._by_digest: dict[str, AccessKey] = {}

    async def find(self, digest: str) -> AccessKey | None:
        """The key with this digest."""
        self._read()
        return self._by_digest.get(digest)

    async def keys(self) -> Sequence[AccessKey]:
        """Every key."""
        self._read()
        return [self._named[name] for name in sorted(self._named)]

    async def add(self, key: AccessKey) -> None:
        """Keep a new key."""

        def new(named: dict[str, AccessKey]) -> AccessKey:
            if key.name in named:
                raise make_name_taken_error(key.name)
            return key

        self._write(new)

    async def revoke(self, name: str) -> AccessKey:
        """Never let it in again."""
        self._read()
        revoke_key(self._named.get(name), name)  # raises for a name that nobody has, before a file is made for it
        return self._write(lambda named: revoke_key(named.get(name), name))

    def _read(self) -> None:
        try:
            found = self.path.stat()
            if os.name != "nt" and (found.st_mode & 0o022 or found.st_uid not in (os.geteuid(), 0)):
                raise _make_unusable_error(self.path, "trusted: other users can write it", OSError(0, "run chmod 600"))
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._named = _parse_keys(self.path.read_bytes())
                self._by_digest = {key.digest: key for key in self._named.values()}
                self._stamp = stamp
        except (FileNotFoundError, NotADirectoryError):
            self._named, self._by_digest, self._stamp = {}, {}, None
        except OSError as error:
            raise _make_unusable_error(self.path, "read", error) from None

    def _write(self, change: Callable[[dict[str, AccessKey]], AccessKey]) -> AccessKey:
        """Append the line that a change makes of the keys there are; two processes do this one after the other."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
            file = os.open(self.path, flags, 0o600)
            try:
                _lock(file)
                before = os.pread(file, os.fstat(file).st_size, 0) if hasattr(os, "pread") else self.path.read_bytes()
                key = change(_parse_keys(before))
                torn = b"" if not before or before.endswith(b"\n") else b"\n"  # a crash in the middle of a line
                os.write(file, torn + _wire.encode(key) + b"\n")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise _make_unusable_error(self.path, "written", error) from None
        return key


def _lock(file: int) -> None:
    try:
        import fcntl
    except ImportError:  # not on this platform: the last of two writers at once counts
        return
    fcntl.flock(file, fcntl.LOCK_EX)


def _parse_keys(data: bytes) -> dict[str, AccessKey]:
    named: dict[str, AccessKey] = {}
    for line in data.splitlines():
        with suppress(WireError, ValueError):
            key = _wire.decode(line, AccessKey)
            named[key.name] = key
    return named


def _make_unusable_error(path: Path, what: str, error: OSError) -> StoreError:
    why = error.strerror or type(error).__name__
    return StoreError(f"the keys in {path} cannot be {what} ({why}): no key is let in", kind="unavailable")


class PostgresKeys:
    """A table beside the journals, for servers on any machine. What it says is believed for a second."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._looked = 0.0
        self._named: dict[str, AccessKey] = {}
        self._by_digest: dict[str, AccessKey] = {}

    async def find(self, digest: str) -> AccessKey | None:
        """The key with this digest."""
        if time.monotonic() - self._looked > FRESH:
            await self.keys()
        return self._by_digest.get(digest)

    async def keys(self) -> Sequence[AccessKey]:
        """Every key."""
        lines = await self._store.asked(_ALL) if await self._store.asked(_THERE) else ""
        self._named = _parse_keys(lines.encode())
        self._by_digest = {key.digest: key for key in self._named.values()}
        self._looked = time.monotonic()
        return list(self._named.values())

    async def add(self, key: AccessKey) -> None:
        """Keep a new key."""
        if not await self._store.asked(_THERE):
            await self._store.asked(_TABLE)
        if await self._store.asked(_ADD, key.name, _wire.encode(key).decode()) is None:
            raise make_name_taken_error(key.name)
        self._looked = 0.0

    async def revoke(self, name: str) -> AccessKey:
        """Never let it in again."""
        await self.keys()
        key = revoke_key(self._named.get(name), name)
        await self._store.asked(_SET, name, _wire.encode(key).decode())
        self._looked = 0.0
        return key


def keys_for(store: object) -> KeyRing:
    """The keys that belong to a store; those of a store that is not kept live as long as the process."""
    from glidepath.sessions import PostgresStore, RedactingStore, events_folder

    while isinstance(store, RedactingStore):  # what it keeps elsewhere, keys are kept beside
        store = store.store
    if isinstance(store, PostgresStore):
        return PostgresKeys(store)
    folder = events_folder(store)
    return MemoryKeys() if folder is None else FileKeys(folder / FILE)
