"""System calls that the kernel has stopped and hands to us: receiving them, reading their arguments, answering.

Only the standard library and modules like this one are imported: it is loaded by path, outside of the package.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from contextlib import suppress
from typing import Any, NamedTuple

from glidepath.workspace.guarded_calls import notify_program

try:
    import fcntl
except ImportError:  # Windows has none, and no sandbox of this kind
    fcntl = None  # type: ignore[assignment]

__all__ = ["CallListener", "StoppedCall", "check", "install", "libc", "read_memory", "read_path"]

libc: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
_NO_NEW_PRIVS, _SECCOMP = 38, {"x86_64": 317, "aarch64": 277}
_LISTENER, _KILLABLE = 1 << 3, 1 << 5
_RECEIVE, _SEND, _IS_VALID, _ADD = 0xC050_2100, 0xC018_2101, 0x4008_2102, 0x4018_2103
_REQUEST = struct.Struct("=QIIiIQ6Q")  # id, pid, flags; number, architecture, instruction, arguments
_ANSWER = struct.Struct("=QqiI")
_GIVEN = struct.Struct("=QIIII")
_CONTINUE, _ANSWER_WITH_IT = 1, 2
_LONGEST, _PAGE = 4096, 4096


def install(machine: str) -> int:
    """Stop at every call that makes a name, from here on and in all children; gives the listener. Raises `OSError`.

    A call that we have received cannot be interrupted but by killing: it would be made twice (Linux 5.19).
    """
    program = notify_program(machine)
    if program is None:
        raise OSError(errno.ENOSYS, "no such filter")
    check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    buffer = ctypes.create_string_buffer(program, len(program))
    words = ctypes.c_char_p(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    return check(libc.syscall(_SECCOMP[machine], 1, _LISTENER | _KILLABLE, words))


class StoppedCall(NamedTuple):
    """A call that waits for us: its id, the task that made it, its number and arguments."""

    id: int
    task: int
    number: int
    arguments: tuple[int, ...]


class CallListener:
    """Where the calls arrive. From several threads, each with its own call."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def receive(self) -> StoppedCall | None:
        """The next call; None when its task was killed meanwhile."""
        buffer = bytearray(_REQUEST.size)
        try:
            fcntl.ioctl(self.descriptor, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        call, task, _, number, _, _, *arguments = _REQUEST.unpack(buffer)
        return StoppedCall(call, task, number, tuple(arguments))

    def check_alive(self, call: StoppedCall) -> None:
        """Raise `OSError` unless what we looked at was still the task that called, not another with its number."""
        fcntl.ioctl(self.descriptor, _IS_VALID, struct.pack("=Q", call.id))

    def answer(self, call: StoppedCall, value: int = 0, error: int = 0) -> None:
        """Tell the task how it endeds call."""
        with suppress(OSError):  # it was killed meanwhile
            fcntl.ioctl(self.descriptor, _SEND, bytearray(_ANSWER.pack(call.id, value, -error, 0)))

    def continue_call(self, call: StoppedCall) -> None:
        """Let the kernel make the call after all: only for programs of ours, which do not change it meanwhile."""
        with suppress(OSError):
            fcntl.ioctl(self.descriptor, _SEND, bytearray(_ANSWER.pack(call.id, 0, 0, _CONTINUE)))

    def hand_over(self, call: StoppedCall, opened: int, flags: int) -> None:
        """Give the task a descriptor, which is the answer to its call; ours is closed."""
        try:
            given = _GIVEN.pack(call.id, _ANSWER_WITH_IT, opened, 0, flags & os.O_CLOEXEC)
            fcntl.ioctl(self.descriptor, _ADD, given)
        except OSError as error:
            self.answer(call, error=error.errno or errno.EPERM)
        finally:
            os.close(opened)


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def read_memory(task: int, address: int, size: int) -> bytes:
    """What is in a task's memory, as much of it as there is; raises `OSError`."""
    buffer = ctypes.create_string_buffer(size)
    here, there = _Piece(ctypes.addressof(buffer), size), _Piece(address, size)
    got = check(libc.process_vm_readv(task, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))
    if not got:
        raise OSError(errno.EFAULT, "memory")
    return buffer.raw[:got]


def read_path(call: StoppedCall, address: int) -> str:
    """A path in a task's memory, read once; raises `OSError`."""
    found = b""
    while len(found) < _LONGEST:
        size = _PAGE - (address + len(found)) % _PAGE
        found += read_memory(call.task, address + len(found), size)
        if b"\0" in found:
            return os.fsdecode(found[: found.index(0)])
    raise OSError(errno.ENAMETOOLONG, "path")


def check(value: int) -> int:
    """What a call of the C library gave; raises `OSError` when it failed."""
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(value)
