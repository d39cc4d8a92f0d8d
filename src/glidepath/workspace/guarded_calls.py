"""The system calls that make names, and the filter that stops at them. Only the standard library: loaded by path."""

from __future__ import annotations

import errno
import struct

__all__ = ["CALLS", "notify_program"]

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CALLS = {
    "x86_64": {
        2: "open",
        49: "bind",
        82: "rename",
        83: "mkdir",
        85: "creat",
        86: "link",
        88: "symlink",
        133: "mknod",
        257: "openat",
        258: "mkdirat",
        259: "mknodat",
        264: "renameat",
        265: "linkat",
        266: "symlinkat",
        316: "renameat2",
    },
    "aarch64": {
        33: "mknodat",
        34: "mkdirat",
        36: "symlinkat",
        37: "linkat",
        38: "renameat",
        56: "openat",
        200: "bind",
        276: "renameat2",
    },
}
"""What is stopped at, by machine and number."""
_OPENAT2 = 437  # its flags are in memory, where a filter cannot look; after ENOSYS libraries use openat
_WRITING = 0x43  # O_WRONLY, O_RDWR, O_CREAT
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO, _NOTIFY = 0x7FFF_0000, 0x0005_0000, 0x7FC0_0000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


def notify_program(machine: str) -> bytes | None:
    """The filter for a machine; None if there is none. Other architectures are not its business: another filter's."""
    calls = CALLS.get(machine)
    if calls is None:
        return None
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _AUDIT[machine]), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, 1, _OPENAT2), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for number, name in calls.items():
        if name not in ("open", "openat"):
            steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
            continue
        flags = _ARGUMENTS + 8 * (1 if name == "open" else 2)
        steps += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, flags), (_ANY_BIT, 0, 1, _WRITING)]
        steps += [(_RETURN, 0, 0, _NOTIFY), (_RETURN, 0, 0, _ALLOW)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
