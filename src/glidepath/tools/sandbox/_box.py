"""The launcher: becomes the sandboxed program's parent, holds it to its limits, and leaves nothing of it running.

A script, started by path with the number of a descriptor that has the job (JSON): it imports nothing but the standard
library. Inside bubblewrap it is the first process: when it ends, everything in the sandbox does. Without bubblewrap it
gives up its rights by Landlock. Either way the program itself starts without privileges, under a filter for system
calls, without a terminal, with no descriptor but the first three and those that were named.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any

try:
    import resource
except ImportError:  # Windows has none, and no sandbox of this kind
    resource = None  # type: ignore[assignment]

_libc: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_TICK = 0.05
_NR = {"x86_64": (126, 444), "aarch64": (91, 444)}  # capset, landlock_create_ruleset
_READ = (1 << 0) | (1 << 2) | (1 << 3)  # execute, read a file, read a folder
_FILE_ONLY = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
_FS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}


def main(descriptor: int) -> int:
    """Run the job; the exit status of its program."""
    with os.fdopen(descriptor, "rb") as file:
        job: dict[str, Any] = json.load(file)
    kept: list[int] = job["keep"]
    os.close(os.open(os.devnull, os.O_WRONLY))  # the guard of names, if there is one, begins here: before the program
    if job["bridge"] is not None:
        _run_bridge(job["bridge"]["port"], job["bridge"]["socket"])
    for door in job["doors"]:
        _run_bridge(door["port"], door["socket"])
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asked: list[int] = []
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    child = os.fork()
    if child == 0:
        try:
            _exec_program(job, kept)
        except BaseException as error:
            os.write(2, f"the program was not started: {error}\n".encode())
        os._exit(126)
    for number in (0, 1, 2, *kept):  # they belong to the program: their readers must see its end
        with suppress(OSError):
            os.close(number)
    with suppress(OSError):
        for _ in range(3):
            os.open(os.devnull, os.O_RDWR)
    try:
        return _watch(child, job, asked, woken)
    finally:
        _end()


def _watch(child: int, job: dict[str, Any], asked: list[int], woken: int) -> int:
    """Wait for the program's end, or for the limit it breaks."""
    limits, parent = job["limits"], os.getppid()
    told = False
    while True:
        ended = _reap_children(child)
        if ended is not None:
            return os.waitstatus_to_exitcode(ended) if os.WIFEXITED(ended) else 128 + os.WTERMSIG(ended)
        if asked and not told:
            told = True
            for pid in _descendants(os.getpid()):
                _send(pid, signal.SIGTERM)
        if os.getppid() != parent:
            return 125
        found = _descendants(os.getpid())
        if len(found) > limits["processes"] or sum(map(_resident_memory_of, found)) > limits["memory"]:
            return 124
        with suppress(OSError):
            select.select([woken], [], [], _TICK)
            os.read(woken, 4096)


def _reap_children(child: int) -> int | None:
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended if ended is not None else 0
        if pid == 0:
            return ended
        if pid == child:
            ended = status


def _end() -> None:
    """Kill everything that came from the program."""
    until = time.monotonic() + 2
    while (found := _descendants(os.getpid())) and time.monotonic() < until:
        for pid in found:
            _send(pid, signal.SIGSTOP)
        for pid in {*found, *_descendants(os.getpid())}:
            _send(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


def _send(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)


def _descendants(root: int) -> list[int]:
    found: list[int] = []
    todo = [root]
    while todo:
        pid = todo.pop()
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                    below = list(map(int, file.read().split()))
                found += below
                todo += below
        except OSError:
            continue
    return found


def _resident_memory_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            numbers = file.read().split()
        return (int(numbers[1]) - int(numbers[2])) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


# --- in the child -----------------------------------------------------------------------------------------------


def _exec_program(job: dict[str, Any], kept: list[int]) -> None:
    """Drop all privileges, and become the program."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    with suppress(OSError):
        os.setsid()
    limits = job["limits"]
    for which, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits["file_size"]),
        (resource.RLIMIT_DATA, limits["memory"]),
        (resource.RLIMIT_NPROC, limits["processes"] * 4),
        (resource.RLIMIT_NOFILE, limits["files"]),
        (resource.RLIMIT_MEMLOCK, 1 << 20),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        _lower(which, value)
    os.chdir(job["cwd"])
    ruleset = None if job["landlock"] is None else _ruleset(job["landlock"])
    _close_all(3, {*kept, *(() if ruleset is None else (ruleset,))})
    _drop_capabilities(job["machine"])
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if ruleset is not None:
        if _libc.syscall(446, ruleset, 0):
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
        os.close(ruleset)
    _install_filter(bytes.fromhex(job["filter"]))
    os.execve(_find_program(job["words"][0], job["env"]), job["words"], job["env"])  # noqa: S606 - it is what we are for


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _close_all(first: int, kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else map(str, range(first, 4096)):
        number = int(name)
        if number >= first and number not in kept:
            with suppress(OSError):
                os.close(number)


def _drop_capabilities(machine: str) -> None:
    """Drop every privilege of root for good."""
    for number in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    _libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    header = struct.pack("=II", 0x20080522, 0)
    _libc.syscall(_NR[machine][0], ctypes.c_char_p(header), ctypes.c_char_p(bytes(24)))


def _install_filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    words = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if _libc.prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(words), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def _ruleset(job: dict[str, Any]) -> int:
    """A Landlock ruleset: what may be read, and what may be written; nothing else of any file system."""
    abi = min(job["abi"], 6)
    handled = _FS[min(abi, 5)]
    net = 3 if abi >= 4 and not job["network"] else 0  # noqa: PLR2004
    scoped = 3 if abi >= 6 else 0  # noqa: PLR2004
    attribute = struct.pack("=QQQ", handled, net, scoped)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]  # noqa: PLR2004
    ruleset = _libc.syscall(444, ctypes.c_char_p(attribute), len(attribute), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for paths, access in ((job["read"], _READ), (job["write"], handled), (job["devices"], _READ | 2 | (1 << 15))):
        for path in paths:
            _add_rule(ruleset, path, access & handled)
    return int(ruleset)


def _add_rule(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            access &= _FILE_ONLY
        rule = struct.pack("=Qi", access, descriptor)
        if _libc.syscall(445, ruleset, 1, ctypes.c_char_p(rule), 0):
            raise OSError(ctypes.get_errno(), f"landlock_add_rule {path}")
    finally:
        os.close(descriptor)


def _find_program(program: str, environment: dict[str, str]) -> str:
    if "/" in program:
        return program
    for folder in environment.get("PATH", os.defpath).split(":"):
        candidate = f"{folder}/{program}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(f"there is no command {program!r} in the sandbox")


# --- the way to the proxy ---------------------------------------------------------------------------------------


def _run_bridge(port: int, path: str) -> None:
    """In its own process: what connects to this port inside is passed on to the proxy outside."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    if os.fork():
        listener.close()
        return
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    while True:
        inner, _ = listener.accept()
        threading.Thread(target=_connect_proxy, args=(inner, path), daemon=True).start()


def _connect_proxy(inner: socket.socket, path: str) -> None:
    outer = socket.socket(socket.AF_UNIX)
    try:
        outer.connect(path)
    except OSError:
        inner.close()
        return
    back = threading.Thread(target=_copy, args=(outer, inner), daemon=True)
    back.start()
    _copy(inner, outer)
    back.join()
    inner.close()
    outer.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65_536):
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1])))
