"""Names the owner of a session, unique to this process, and tells whether another owner is alive."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

LEASE = 10.0  # seconds an owner may be silent
SHORT = 6.0  # a shorter lease is renewed with every heartbeat, not with every sixth
GONE = 0.0  # an `expires` that is always past
_SEPARATOR = "|"
_MOST_GIVEN_UP = 10_000
_given_up: dict[str, None] = {}  # owners of this process whose leases could not be given back, the oldest first


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    return ""


class _Forks:
    """Counts the forks between the process that loaded this module and the one that looks."""

    count = 0

    def add(self) -> None:
        """This process is a new fork."""
        self.count += 1


FORKS = _Forks()
"""Tells a fork from its parent, once a commit: asking the system for the process id would take a call each time."""
if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=FORKS.add)


@lru_cache(maxsize=1)
def _host(_forks: int) -> str:
    """This machine since its last boot, and the process namespace: within it, a process id is unambiguous.

    Read once in each process: a fork may be in another namespace.
    """
    boot, namespace = _read("/proc/sys/kernel/random/boot_id")[:8], ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - what it says is not a path
    return f"{socket.gethostname()}/{boot}/{namespace}".replace(_SEPARATOR, "_")


@lru_cache(maxsize=1)
def _process(forks: int) -> str:
    """A name for this process."""
    pid = os.getpid()
    return _SEPARATOR.join((_host(forks), str(pid), _start_time_of(pid)))


def _start_time_of(pid: int) -> str:
    """When a process started, to recognize a reused process id; empty if unknown."""
    stat = _read(f"/proc/{pid}/stat")
    return stat.rpartition(")")[2].split()[19] if ")" in stat else ""


def this_owner() -> str:
    """A name for the caller in this process; different at every call."""
    return f"{_process(FORKS.count)}{_SEPARATOR}{os.urandom(4).hex()}"


def is_of_this_process(owner: str | None) -> bool:
    """True for a name that `this_owner` gave out in this process."""
    return (owner or "").rpartition(_SEPARATOR)[0] == _process(FORKS.count)


def give_up(owner: str) -> None:
    """Nobody here holds a lease under this name any more, though its store could not be told: a full disk, perhaps."""
    if is_of_this_process(owner):  # any other name may be used by somebody else, too
        _given_up[owner] = None
        if len(_given_up) > _MOST_GIVEN_UP:
            del _given_up[next(iter(_given_up))]


def is_alive(owner: str | None) -> bool:
    """False when the owner is a process of this host that is dead, or gave its lease up in this one; else True."""
    return _find_state(owner) is not False


def _find_state(owner: str | None) -> bool | None:
    """Whether the owner is known to be alive, or known to be dead; None for one of another host."""
    if owner in _given_up:
        return False
    parts = (owner or "").split(_SEPARATOR)
    if len(parts) != 4 or parts[0] != _host(FORKS.count) or not parts[1].isdigit():  # noqa: PLR2004 - as made above
        return None
    pid, birth = int(parts[1]), parts[2]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    if _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["Z"]:  # dead, but not yet reaped by its parent
        return False
    return not birth or _start_time_of(pid) in ("", birth)


def is_claimable(owner: str | None, expires: float, now: float, length: float | None = None) -> bool:
    """True if a session may be claimed: it has no owner, or the owner is dead or was silent too long.

    A lease cannot end later than its `length` from now. One that does was written by a clock that was fast: unless
    its owner is known to be alive, and renews it soon, it is over.
    """
    if owner is None or now >= expires:
        return True
    state = _find_state(owner)
    return state is False or (state is None and length is not None and expires > now + length)
