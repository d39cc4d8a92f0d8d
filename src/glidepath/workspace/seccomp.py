"""The filter for system calls that a command in the sandbox runs under: a BPF program, as the kernel wants it.

A network namespace of its own leaves doors open. A UNIX socket is reached by its path (D-Bus, PostgreSQL, a container
engine: for them the command is you), and vsock by number. So a command can make only internet and netlink sockets,
which end in its own empty network. Pairs of connected sockets work, because its own processes talk through them, but
not pairs of datagram sockets: those can send to any address. io_uring could make sockets behind the filter's back. A
new user namespace would open much more of the kernel to attack. Other architectures number their system calls
differently, so a program that uses them is killed.
"""

from __future__ import annotations

import errno
import struct


class _Machine:
    """The numbers of one architecture."""

    def __init__(self, audit: int, table: dict[str, int], *, other_abi: int | None = None) -> None:
        self.audit = audit
        self.table = table
        self.other_abi = other_abi


_COMMON = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "clone3": 435}
MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        {
            "socket": 41,
            "socketpair": 53,
            "clone": 56,
            "unshare": 272,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "perf_event_open": 298,
            "setns": 308,
            "bpf": 321,
            "userfaultfd": 323,
            **_COMMON,
        },
        other_abi=0x4000_0000,  # x32: the same audit word, other numbers
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            "socket": 198,
            "socketpair": 199,
            "clone": 220,
            "unshare": 97,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "perf_event_open": 241,
            "setns": 268,
            "bpf": 280,
            "userfaultfd": 282,
            **_COMMON,
        },
    ),
}
"""The machines with a filter, by `platform.machine()`."""

# Not EPERM: after ENOSYS libraries assume an old kernel and use another way.
_ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
_REFUSED = ("add_key", "request_key", "keyctl", "perf_event_open", "setns", "bpf", "userfaultfd")

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_NUMBER, _AUDIT, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; of arguments, the low word
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _TYPE_BITS = 1, 5, 0xF
_NEW_USER = 0x1000_0000

_Step = tuple[int, int, int, int]


def filter_program(machine: str) -> bytes | None:
    """The filter program for a machine; None if there is none."""
    known = MACHINES.get(machine)
    if known is None:
        return None
    refuse, absent = _back(_ERRNO | errno.EPERM), _back(_ERRNO | errno.ENOSYS)
    steps: list[_Step] = [(_LOAD, 0, 0, _AUDIT), (_EQUAL, 1, 0, known.audit), _back(_KILL), (_LOAD, 0, 0, _NUMBER)]
    if known.other_abi is not None:
        steps += [(_AT_LEAST, 0, 1, known.other_abi), absent]
    for name in _ABSENT:
        steps += [(_EQUAL, 0, 1, known.table[name]), absent]
    for name in _REFUSED:
        steps += [(_EQUAL, 0, 1, known.table[name]), refuse]
    families: list[_Step] = [(_LOAD, 0, 0, _FIRST)]
    for family in (_INET, _INET6, _NETLINK):
        families += [(_EQUAL, 0, 1, family), _back(_ALLOW)]
    steps += _steps_for_call(known.table["socket"], [*families, refuse])
    pair: list[_Step] = [(_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, _UNIX), refuse, (_LOAD, 0, 0, _SECOND)]
    pair.append((_AND, 0, 0, _TYPE_BITS))
    for kind in (_STREAM, _SEQPACKET):
        pair += [(_EQUAL, 0, 1, kind), _back(_ALLOW)]
    steps += _steps_for_call(known.table["socketpair"], [*pair, refuse])
    for name in ("clone", "unshare"):
        flags: list[_Step] = [(_LOAD, 0, 0, _FIRST), (_ANY_BIT, 0, 1, _NEW_USER), refuse, _back(_ALLOW)]
        steps += _steps_for_call(known.table[name], flags)
    steps.append(_back(_ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _back(value: int) -> _Step:
    return (_RETURN, 0, 0, value)


def _steps_for_call(number: int, steps: list[_Step]) -> list[_Step]:
    """Steps for one system call; they have to end in an answer, because they load something else."""
    return [(_EQUAL, 0, len(steps), number), *steps]
