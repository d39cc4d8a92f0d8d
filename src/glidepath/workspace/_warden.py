"""Runs one command within its limits, and leaves nothing of it running. A script, started by path.

It stands between us and the command because only a parent process can adopt what the command leaves behind: it makes
itself the reaper of its descendants, so that even a daemon in its own session comes back to it. Without that,
children that call setsid outlive the command. It also outlives us for a moment: when our process is killed, it notices
and ends the command.

It reads a job (JSON) from standard input and writes a report (JSON) to the descriptor it is given. SIGTERM asks the
command to end and kills it after a grace, SIGUSR1 kills it now.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import Any

try:
    import resource
except ImportError:  # Windows has none, and no sandbox of this kind
    resource = None  # type: ignore[assignment]

FILTER_FD = 9
"""Where the sandbox program finds the filter for system calls."""
MARK = "GLIDEPATH_COMMAND"
"""The variable by which leftovers of a command are found if its warden was killed."""

_TICK = 0.2
_PATIENCE = 2.0
_LOOKS = 3
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"


class Warden:
    """One command, from its start to the end of the last process that came from it."""

    def __init__(self, job: dict[str, Any], report: int) -> None:
        self._job = job
        self._limits: dict[str, int] = job["limits"]
        self._report = report
        self._parent = os.getppid()
        self._main = 0
        self._status: int | None = None
        self._asked: float | None = None  # when the end was requested
        self._now = False
        self._free = 0
        self._home: str | None = None
        self._line: Any = None  # to the guard of names, until the command has started
        self._guard = -1  # what it reports

    def run(self) -> int:
        """The exit status of the command."""
        woken, wake = os.pipe()
        for end in (woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGUSR1, self._ask)
        if self._job.get("guard") is not None:
            self._start_name_guard()
        become_subreaper()
        stopped = None
        try:
            self._start()
            stopped = self._watch(woken)
        finally:
            left = self._end()
            if self._home is not None:
                remove(self._home)
        code = -1 if self._status is None else os.waitstatus_to_exitcode(self._status)
        found = {"status": code, "stopped": stopped, "left": left, **self._read_guard()}
        os.write(self._report, json.dumps(found).encode())
        return code if code >= 0 else 128 - code

    def _ask(self, number: int, _: object) -> None:
        if number == signal.SIGUSR1:
            self._now = True
        elif self._asked is None:
            self._asked = time.monotonic()

    def _start_name_guard(self) -> None:
        """Start the guard of names. It must be none of our descendants, who are killed and counted."""
        import socket

        self._line, other = socket.socketpair()
        self._guard, report = os.pipe()
        first = os.fork()
        if first == 0:
            pid = os.fork()
            if pid:
                os.write(report, f"{pid}\n".encode())  # told for it: it can be ended before it has done anything
                os._exit(0)
            try:
                os.setsid()
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
                    signal.signal(number, signal.SIG_DFL)
                for end in (self._report, self._guard, self._line.detach()):
                    os.close(end)
                for stream in range(3):  # who waits for the command's output must not wait for us
                    os.dup2(os.open(os.devnull, os.O_RDWR), stream)
                name_guard().guard(other, report, self._job["guard"])
            finally:
                os._exit(0)
        os.waitpid(first, 0)
        other.close()
        os.close(report)

    def _read_guard(self) -> dict[str, Any]:
        """What the guard reports, now that no process of the command is left."""
        if self._guard < 0:
            return {}
        if self._line is not None:
            self._line.close()
        data, part, deadline = b"", b".", time.monotonic() + _PATIENCE
        while part and select.select([self._guard], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = os.read(self._guard, 65_536)
            data += part
        pid, _, said = data.partition(b"\n")
        failed = "it did not end with the command"
        if not part:  # it has ended, whether it has reported or not
            with contextlib.suppress(ValueError):
                return {"guard": json.loads(said)}
            failed = "it ended before the command, or was killed"
        elif pid.isdigit():
            send(int(pid), signal.SIGKILL)
        return {"guard": {"planted": [], "failed": failed}}

    def _start(self) -> None:
        environment: dict[str, str] = self._job["env"]
        if self._job["home"] is not None:
            os.mkdir(self._job["home"], 0o700)  # it must be new: nobody has put anything into it
            self._home = environment["HOME"] = self._job["home"]
        self._free = free_bytes_of(self._job["cwd"])
        self._main = os.fork()
        if self._main == 0:
            try:
                self._exec_command(environment)
            except BaseException as error:
                os.write(2, f"the command cannot be started: {error}\n".encode())
            os._exit(127)

    def _exec_command(self, environment: dict[str, str]) -> None:
        os.setsid()  # so that a command that kills its own group spares us
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if self._line is not None:
            self._install_name_filter()  # and its line is closed, before a number is taken that could be its own
        if self._job["filter"] is not None:
            source, sink = os.pipe()
            os.write(sink, bytes.fromhex(self._job["filter"]))
            os.close(sink)
            os.dup2(source, FILTER_FD)
        lower(resource.RLIMIT_CORE, 0)
        lower(resource.RLIMIT_FSIZE, self._limits["file_size"])
        lower(resource.RLIMIT_DATA, self._limits["memory"])  # not AS: runtimes reserve far more than they use
        os.chdir(self._job["cwd"])
        os.execve(self._job["words"][0], self._job["words"], environment)  # noqa: S606 - it is what we are for

    def _install_name_filter(self) -> None:
        """From here on, whatever makes a name asks the guard; raises `OSError` unless there is one."""
        import socket

        listener = name_guard().install(self._job["guard"]["machine"])
        socket.send_fds(self._line, [b"."], [listener])
        os.close(listener)
        if not self._line.recv(1):
            raise OSError("nobody guards the names that it makes")
        self._line.close()

    def _watch(self, woken: int) -> str | None:
        """Wait for the end of the command; returns the limit that stopped it, if any."""
        told = False
        looked = time.monotonic()
        while not self._now:
            select.select([woken], [], [], _TICK)
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            self._reap()
            now = time.monotonic()
            if self._status is not None or os.getppid() != self._parent:
                break
            if self._asked is not None and not told:
                told = True
                self._ask_to_end()
            if self._asked is not None and now > self._asked + self._job["grace"]:
                break
            if now >= looked + _TICK:
                looked = now
                over = self._find_exceeded_limit()
                if over is not None:
                    return over
        return None

    def _reap(self) -> bool:
        """Reap ended children; True while any are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._status = status

    def _ask_to_end(self) -> None:
        for pid in self._list_processes():
            if not name_of(pid).startswith("bwrap"):  # it would not wait for what runs inside
                send(pid, signal.SIGTERM)

    def _list_processes(self) -> list[int]:
        return list_descendants(os.getpid()) if _LINUX else [self._main]

    def _find_exceeded_limit(self) -> str | None:
        """The limit that the command exceeds, if any."""
        if not _LINUX:
            return None
        found = self._list_processes()
        if len(found) > self._limits["processes"]:
            return f"it ran more than {self._limits['processes']} processes at once"
        most = self._limits["memory"]
        # The sum counts memory shared by forks several times: it is cheap but too high, so a second look decides.
        if sum(map(resident_memory_of, found)) > most and sum(map(proportional_memory_of, found)) > most:
            return f"it used more than {most} bytes of memory"
        if self._free - free_bytes_of(self._job["cwd"]) > self._limits["disk"]:
            return f"the disk lost more than {self._limits['disk']} bytes while it ran"
        return None

    def _end(self) -> int:
        """Kill everything that came from the command; returns how many could not be killed in time."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            found = self._list_processes()
            for pid in found:
                send(pid, signal.SIGSTOP)  # stop processes first, or they might fork faster than they can be killed
            for pid in {*found, *self._list_processes()}:
                send(pid, signal.SIGKILL)
            if not _LINUX and self._main:
                with contextlib.suppress(OSError):
                    os.killpg(self._main, signal.SIGKILL)
            if not self._reap():
                return 0
            if time.monotonic() > deadline:
                return len(self._list_processes())
            time.sleep(0.002)


def name_guard() -> Any:
    """The module of that name, from the folder of this script. Its package is not imported: that takes long."""
    import types

    here = os.path.dirname(os.path.abspath(__file__))
    for name, folder in (("glidepath", os.path.dirname(here)), ("glidepath.workspace", here)):
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [folder]
    from importlib import import_module

    return import_module("glidepath.workspace.name_guard")


def become_subreaper() -> None:
    """Become the parent of orphans among our descendants."""
    if _LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def lower(which: int, value: int) -> None:
    """Set a limit, unless it is already lower."""
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def list_descendants(root: int) -> list[int]:
    """Every descendant of this process, including those in their own session."""
    found: list[int] = []
    todo = [root]
    while todo:
        below = list_children(todo.pop())
        found += below
        todo += below
    return found


def list_children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return found  # it has just ended
        return [other for other in list_processes() if parent_of(other) == pid]  # a kernel without that file
    except OSError:
        pass
    return found


def list_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent_of(pid: int) -> int:
    text = _read(f"/proc/{pid}/stat")
    return int(text.rpartition(")")[2].split()[1]) if text else 0


def name_of(pid: int) -> str:
    return _read(f"/proc/{pid}/comm").strip()


def resident_memory_of(pid: int) -> int:
    """Bytes of memory in use, without the file cache."""
    total = 0
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            total += int(line.split()[1]) * 1024
    return total


def proportional_memory_of(pid: int) -> int:
    """Bytes of memory in use, with shared memory divided among its users."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return resident_memory_of(pid)


def free_bytes_of(folder: str) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def sweep(mark: str) -> None:
    """Kill every process that has our mark in its environment, and what came from it.

    One look is not enough: a process may fork after the list was made, and has no environment for a moment while it
    becomes another program. So this looks again until it has found nothing several times.
    """
    wanted, clean = f"{MARK}={mark}".encode(), 0
    deadline = time.monotonic() + _PATIENCE
    while _LINUX and clean < _LOOKS and time.monotonic() < deadline:
        marked = [pid for pid in list_processes() if wanted in environment_of(pid).split(b"\0")]
        for pid in marked:
            send(pid, signal.SIGSTOP)  # what is stopped has no more children
        below = [child for pid in marked for child in list_descendants(pid)]
        for pid in {*marked, *below}:
            send(pid, signal.SIGKILL)
        clean = 0 if marked else clean + 1
        time.sleep(0.005)


def environment_of(pid: int) -> bytes:
    """Its variables as it was started with them; empty if it has ended, is not ours, or is just being started."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def remove(folder: str) -> None:
    """Remove a folder whatever the command did to it; links in it are removed, not followed."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(folder):
        for above, _, _ in os.walk(folder, onerror=None):
            with contextlib.suppress(OSError):
                os.chmod(above, 0o700)
                for entry in os.scandir(above):
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _report = int(sys.argv[1])
    os.set_inheritable(_report, False)
    os._exit(Warden(json.load(sys.stdin.buffer), _report).run())
