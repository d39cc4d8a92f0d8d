"""The filter for system calls that every sandboxed program gets: a seccomp program, made here, loaded by the launcher.

Refused is what no tool needs and what has been a way out of sandboxes: mounts, namespaces, tracing, keys, kernel
modules, sockets of other families, and typing into a terminal.
"""

from __future__ import annotations

import errno
import struct
from typing import Literal

Network = Literal["none", "inet"]

_NEW = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "clone3": 435, "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443,
}  # fmt: skip
_X86 = {
    "ioctl": 16, "socket": 41, "socketpair": 53, "clone": 56, "ptrace": 101, "syslog": 103,
    "pivot_root": 155, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167,
    "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "clock_settime": 227, "kexec_load": 246,
    "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
    **_NEW,
}  # fmt: skip
_ARM = {
    "ioctl": 29, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "quotactl": 60, "acct": 89,
    "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112,
    "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161, "setdomainname": 162, "settimeofday": 170,
    "socket": 198, "socketpair": 199, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224,
    "swapoff": 225, "perf_event_open": 241, "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266,
    "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280,
    "userfaultfd": 282, "kexec_file_load": 294, **_NEW,
}  # fmt: skip
_RIGHTS_NEW = {"fchmodat2": 452, "setxattrat": 463, "removexattrat": 466, "file_setattr": 469}
_RIGHTS = {
    "x86_64": {
        "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "utime": 132, "setxattr": 188,
        "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "utimes": 235,
        "fchownat": 260, "futimesat": 261, "fchmodat": 268, "utimensat": 280, **_RIGHTS_NEW,
    },
    "aarch64": {
        "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
        "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88, **_RIGHTS_NEW,
    },
}  # fmt: skip
"""Calls that change a file's rights, owner, times or attributes. Landlock does not look at them, so that where it is
all there is, a file that may only be read, or not even that, could be opened to everybody."""
KNOWN_MACHINES = {"x86_64": (0xC000003E, _X86, 0x4000_0000), "aarch64": (0xC00000B7, _ARM, None)}
"""By `platform.machine()`: the audit word, the numbers, and where another set of numbers begins (x32)."""

# Not EPERM: libraries take ENOSYS for an old kernel and do it another way.
_ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
_SPECIAL = ("socket", "socketpair", "clone", "unshare", "ioctl", *_ABSENT)
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_NUMBER, _AUDIT, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; of arguments, the low word
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DGRAM, _SEQPACKET, _TYPE_BITS = 1, 2, 5, 0xF
_NAMESPACES = 0x7E02_0080  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_Step = tuple[int, int, int, int]


def syscall_filter(machine: str, network: Network, *, rights: bool = True) -> bytes | None:
    """The program for a machine; None when there is none. `network`: whether there may be internet sockets at all.

    `rights`: whether rights, owners, times and attributes of files may be changed.
    """
    known = KNOWN_MACHINES.get(machine)
    if known is None:
        return None
    audit, table, other_abi = known
    refuse, absent = _back(_ERRNO | errno.EPERM), _back(_ERRNO | errno.ENOSYS)
    steps: list[_Step] = [(_LOAD, 0, 0, _AUDIT), (_EQUAL, 1, 0, audit), _back(_KILL), (_LOAD, 0, 0, _NUMBER)]
    if other_abi is not None:
        steps += [(_AT_LEAST, 0, 1, other_abi), absent]
    for name in _ABSENT:
        steps += [(_EQUAL, 0, 1, table[name]), absent]
    for name in table:
        if name not in _SPECIAL:
            steps += [(_EQUAL, 0, 1, table[name]), refuse]
    for number in () if rights else _RIGHTS[machine].values():
        steps += [(_EQUAL, 0, 1, number), refuse]
    steps += _steps_for_call(table["socket"], [*_sockets(network), refuse])
    pair: list[_Step] = [(_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, _UNIX), refuse, (_LOAD, 0, 0, _SECOND)]
    pair.append((_AND, 0, 0, _TYPE_BITS))
    for kind in (_STREAM, _SEQPACKET):
        pair += [(_EQUAL, 0, 1, kind), _back(_ALLOW)]
    steps += _steps_for_call(table["socketpair"], [*pair, refuse])
    for name in ("clone", "unshare"):
        flags: list[_Step] = [(_LOAD, 0, 0, _FIRST), (_ANY_BIT, 0, 1, _NAMESPACES), refuse, _back(_ALLOW)]
        steps += _steps_for_call(table[name], flags)
    typed: list[_Step] = [(_LOAD, 0, 0, _SECOND)]
    for request in (_TIOCSTI, _TIOCLINUX):
        typed += [(_EQUAL, 0, 1, request), refuse]
    steps += _steps_for_call(table["ioctl"], [*typed, _back(_ALLOW)])
    steps.append(_back(_ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _sockets(network: Network) -> list[_Step]:
    """Streams and datagrams of the internet, where there may be any; what resolvers ask the kernel; nothing else."""
    if network == "none":
        return []
    steps: list[_Step] = [(_LOAD, 0, 0, _FIRST), (_EQUAL, 0, 1, _NETLINK), _back(_ALLOW)]
    steps += [(_EQUAL, 2, 0, _INET), (_EQUAL, 1, 0, _INET6), _back(_ERRNO | errno.EPERM)]
    steps += [(_LOAD, 0, 0, _SECOND), (_AND, 0, 0, _TYPE_BITS)]
    for kind in (_STREAM, _DGRAM):
        steps += [(_EQUAL, 0, 1, kind), _back(_ALLOW)]
    return steps


def _back(value: int) -> _Step:
    return (_RETURN, 0, 0, value)


def _steps_for_call(number: int, steps: list[_Step]) -> list[_Step]:
    """Steps for one system call; they have to end in an answer, because they load something else."""
    return [(_EQUAL, 0, len(steps), number), *steps]
