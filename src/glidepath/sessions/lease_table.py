"""The table of leases: until when each session of a segment store is held. Renewing one is a write of 24 bytes.

Every session has two cells, for tokens that are even and odd: an owner that was replaced and wakes up late renews its
own cell, never that of its successor. It is read and written as a file and not mapped into memory: a mapped
file that somebody truncates kills the process that looks at it.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from zlib import crc32

_TITLE = b"glidepath leases 1\n".ljust(32)
_STIRRED = 32  # where the counter is
_FIRST = 64
_CELL = struct.Struct("<Qd")
_CHECK = struct.Struct("<QdI4x")
_SESSION = 2 * _CHECK.size
_CHUNK = 1 << 17  # bytes that are asked for at a time, so that giving a lease back never needs room on the disk
_COUNTER = struct.Struct("<Q")


class LeaseTable:
    """The file, open. `stirred` counts what holders of leases must look up: takeovers, stops, messages."""

    def __init__(self, path: str, *, writable: bool) -> None:
        self.path = path
        self._fd = private_file(path) if writable else os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._size = os.fstat(self._fd).st_size
        if writable and not self._size:
            os.pwrite(self._fd, _TITLE, 0)
            self.reserve(1)

    def reserve(self, key: int) -> None:
        """Make sure that there is room for this session's cells."""
        needed = _FIRST + (key + 1) * _SESSION
        if needed <= self._size:
            return
        size = -(-needed // _CHUNK) * _CHUNK
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, size)
        else:
            os.ftruncate(self._fd, size)
        self._size = size

    def expires(self, key: int, token: int) -> float | None:
        """Until when the owner with this token holds it; None when the table does not know."""
        at = _FIRST + key * _SESSION + (token & 1) * _CHECK.size
        for _ in range(3):  # somebody may be writing it
            data = os.pread(self._fd, _CHECK.size, at)
            if len(data) < _CHECK.size:
                return None
            held, expires, check = _CHECK.unpack(data)
            if check == crc32(data[: _CELL.size]):
                return expires if held == token else None
        return None

    def hold(self, key: int, token: int, expires: float) -> None:
        """Note until when; raises `OSError`."""
        data = _CELL.pack(token, expires)
        at = _FIRST + key * _SESSION + (token & 1) * _CHECK.size
        os.pwrite(self._fd, _CHECK.pack(token, expires, crc32(data)), at)

    def stirred(self) -> int:
        """A number that changes whenever a holder has something to look up."""
        data = os.pread(self._fd, _COUNTER.size, _STIRRED)
        return _COUNTER.unpack(data)[0] if len(data) == _COUNTER.size else -1

    def stir(self) -> None:
        """Change that number; only one process at a time may do this."""
        os.pwrite(self._fd, _COUNTER.pack((self.stirred() + 1) % 2**63), _STIRRED)

    def replaced(self) -> bool:
        """True when the file at this path is another one, or none."""
        return replaced(self._fd, self.path)

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)


def private_file(path: str) -> int:
    """Our own file, open, made with mode 0600 whatever the umask."""
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    os.fchmod(fd, 0o600)
    return fd


def replaced(fd: int, path: str) -> bool:
    """True when this open file is no longer the one at this path."""
    try:
        return is_another(path, identity(fd))
    except OSError:
        return True


def identity(fd: int) -> tuple[int, int]:
    """What tells an open file from all others."""
    found = os.fstat(fd)
    return found.st_ino, found.st_dev


def is_another(path: str, ours: tuple[int, int]) -> bool:
    """True when the file at this path is not ours, or there is none."""
    try:
        there = os.stat(path)  # noqa: PTH116 - asked with every heartbeat, and when a run begins and ends
    except OSError:
        return True
    return (there.st_ino, there.st_dev) != ours
