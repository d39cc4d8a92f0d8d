"""The segment that one process writes: append-only, and written by others only for fences.

What makes this safe among processes is the order of a file's appends. The system decides it, no matter who writes:
whatever was put into this file by others before our frame lies in front of it. So the place where our frame begins
tells whether anybody has fenced us, without a lock and without a word about memory.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import NamedTuple

from glidepath.errors import StoreError
from glidepath.sessions.frames import Frame, Gap, Kind, mended, packed, salt_of, scan
from glidepath.sessions.lease_table import identity, is_another

__all__ = ["Intrusion", "OwnSegment", "disk_error", "is_free", "segment_path", "sync_file"]

_HERE = os.SEEK_CUR
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


def segment_path(folder: str, number: int) -> str:
    """Where a segment is."""
    return f"{folder}/segments/{number:08d}.seg"


def is_free(fd: int, *, wait: bool = False) -> bool:
    """Take the lock that a segment's writer holds for as long as it lives, wherever it runs; False when it is held."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def disk_error(error: OSError, path: str) -> StoreError:
    """What the system said, as a store says it."""
    kind = "full" if error.errno in _FULL else "read_only" if error.errno in _READ_ONLY else "unavailable"
    what = {"full": "cannot grow: the disk is full", "read_only": "cannot be written"}.get(kind, "failed")
    return StoreError(f"the session store {path} {what} ({error})", kind=kind)


class Intrusion(NamedTuple):
    """What others have put in front of our frame: fences, by session and token."""

    fences: list[Frame]
    rubbish: bool
    at: int


class OwnSegment:
    """An open segment. `end` is where our last frame ended; all offsets are those of the file."""

    def __init__(self, folder: str, store: str, number: int, *, new: bool) -> None:
        self.folder, self.number = folder, number
        self.path = segment_path(folder, number)
        self.salt = salt_of(store, number)
        self.known = False
        """The folder's entry for this file is on the disk."""
        self.torn = False
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        if new:
            flags |= os.O_CREAT | os.O_EXCL
        self.fd = os.open(self.path, flags, 0o600)
        if new:
            # A journal holds what people said: nobody else on this machine may read it.
            os.fchmod(self.fd, 0o600)  # whatever the umask
        self.end = os.fstat(self.fd).st_size
        self._identity = identity(self.fd)
        if not is_free(self.fd, wait=new):
            self.close()
            raise BlockingIOError(errno.EWOULDBLOCK, "another process has this segment open", self.path)

    def append(self, frames: bytes) -> tuple[int, Intrusion | None]:
        """Write; where it begins, and what others have put in front of it. Raises `StoreError`."""
        before, size = self.end, len(frames)
        start = self.put(frames) - size
        return start, self.between(before, start) if start != before else None

    def put(self, frames: bytes) -> int:
        """Write; where it ends: if that is not `end` and its length, see `between`. Raises `StoreError`."""
        try:
            written = os.write(self.fd, frames)
            # The position after an O_APPEND write is where this write ended, even if another process has written.
            end = os.lseek(self.fd, 0, _HERE)
        except OSError as error:
            self.torn = self.torn or os.fstat(self.fd).st_size != self.end
            raise disk_error(error, self.folder) from error
        if written != len(frames):
            self.torn = True
            raise disk_error(OSError(errno.ENOSPC, "only a part of it could be written"), self.folder)
        self.end = end
        return end

    def between(self, before: int, start: int) -> Intrusion:
        """What others have put between our last frame and the one that begins at `start`."""
        if start < before:
            self.torn = True
            raise StoreError(f"{self.path} was truncated by another program", kind="damaged")
        return self._intrusion(os.pread(self.fd, start - before, before), before)

    def _intrusion(self, data: bytes, before: int) -> Intrusion:
        found, end = scan(data, self.salt, before)
        fences = [item for item in found if type(item) is Frame and item.kind == Kind.FENCE]
        rubbish = end != before + len(data) or any(type(item) is Gap or not item.sound for item in found)  # type: ignore[union-attr]
        return Intrusion(fences, rubbish, before)

    def mend(self, start: int, end: int) -> tuple[int, Intrusion | None]:
        """Mark this range, left by others, as void; the answer is that of `append`."""
        # Nothing in a segment is ever overwritten, so the hole is declared and not filled.
        return self.append(packed(self.salt, Kind.MEND, body=mended(start, end)))

    def look(self) -> Intrusion | None:
        """What others have put behind our last frame."""
        size = os.fstat(self.fd).st_size
        return None if size <= self.end else self._intrusion(os.pread(self.fd, size - self.end, self.end), self.end)

    def sync(self, *, listed: bool = False) -> None:
        """Wait until the disk has it, and the folder's list of files unless that is there; raises `OSError`."""
        getattr(os, "fdatasync", os.fsync)(self.fd)
        if not listed:
            sync_folder(f"{self.folder}/segments")

    def duplicate(self) -> OwnSegment:
        """The same file under another descriptor, which stays valid when this one is closed."""
        other = object.__new__(OwnSegment)
        other.__dict__.update(self.__dict__)
        other.fd = os.dup(self.fd)
        return other

    def replaced(self) -> bool:
        """True when the file at this path is another one, or none."""
        return self.fd < 0 or is_another(self.path, self._identity)

    def close(self) -> None:
        """Close the file."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)


def sync_file(path: str) -> None:
    """Wait until the disk has a file that another process wrote."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: str) -> None:
    """Wait until the disk has what a folder lists."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
