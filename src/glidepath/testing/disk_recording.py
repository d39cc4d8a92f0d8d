"""Records with strace what processes do to the files of a store.

Why strace: it sees every write and sync of every process and thread, in one order, whatever language or library made
it, and changes nothing in the program under test. Of the alternatives, a VFS of SQLite's sees only SQLite, and only
where Python's library can be loaded a second time; a preloaded library needs a compiler and misses calls inside the C
library; patches of `os` miss everything written in C.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.testing.disk import SimulatedDisk

_FILES = "open,openat,creat,lseek,write,pwrite64,writev,pwritev,truncate,ftruncate,fallocate,mmap"
_NAMES = "rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,chdir,fchdir"
_SYNCS = "fsync,fdatasync,sync,syncfs"
_ELSE = "clone,clone3,fork,vfork,copy_file_range,sendfile,splice,pwritev2,openat2"
_TRACED = ",".join(f"?{name}" for name in f"{_FILES},{_NAMES},{_SYNCS},{_ELSE}".split(","))  # ?: not on every machine
_FILLING = "pwrite64,pwritev,fallocate"
_CALL = re.compile(r"^(\d+)\s+(\w+)\((.*)\)\s+= (-?\d+)")
_FIRST_HALF = re.compile(r"^(\d+)\s+(.*?) ?<unfinished \.\.\.>$")
_SECOND_HALF = re.compile(r"^(\d+)\s+<\.\.\. \w+ resumed>(.*)$")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2})*)>")
_PLACE = re.compile(r"(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>, ")
_UNKNOWN = frozenset({"copy_file_range", "sendfile", "splice", "pwritev2", "openat2", "symlink", "symlinkat"})
_CUT = '"...'  # strace's sign that it did not print everything


def trace(
    disk: SimulatedDisk, command: Sequence[str], timeout: float, full_after: int | None
) -> subprocess.CompletedProcess[str]:
    """Run a program and add what it does to the disk; see `SimulatedDisk.record`."""
    strace = shutil.which("strace")
    if strace is None:
        raise ConfigurationError(
            "SimulatedDisk.record needs strace, which runs on Linux: install the package strace, "
            "or give the operations by hand (create, write, sync, ...)"
        )
    with tempfile.TemporaryDirectory(prefix="glidepath-disk-") as place:
        log = Path(place) / "trace"
        options = ["-f", "-y", "-xx", "-qq", "-s", str(1 << 24), "--seccomp-bpf", "-o", str(log)]
        if full_after is not None:
            options += ["-e", f"inject={_FILLING}:error=ENOSPC:when={full_after + 1}+"]
        line = [strace, *options, "-e", f"trace={_TRACED}", "-e", "signal=none", "--", *command]
        done = _run(line, timeout)
        if not log.exists() or not log.stat().st_size:
            said = done.stdout.strip()[-300:] or "it wrote nothing"
            raise ConfigurationError(f"strace could not trace {command[0]!r}: {said}")
        _Reader(disk, Path.cwd()).read(log)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout)


def _run(line: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run it to its end in a separate process group, so that nothing of it is left when it takes too long."""
    with subprocess.Popen(  # noqa: S603 - the program under test
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as running:
        try:
            said, _ = running.communicate(timeout=timeout)
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(line, running.returncode, said.decode(errors="replace"))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _name(text: str) -> str:
    return os.fsdecode(_bytes(text))


class _Reader:
    """Reads the lines of strace and hands the store's operations to the disk."""

    def __init__(self, disk: SimulatedDisk, folder: Path) -> None:
        self._disk = disk
        self._root = str(disk.folder.resolve())
        self._marks = None if disk.marks_file is None else str(disk.marks_file.resolve())
        self._process: dict[str, str] = {}  # thread -> process
        self._parent: dict[str, str] = {}  # process -> the one that started it
        self._folder: dict[str, str] = {}
        self._start = str(folder)
        self._position: dict[tuple[str, str], int | None] = {}  # of an open file; None when it appends
        self._is_eager: set[tuple[str, str]] = set()  # opened with O_SYNC

    def read(self, log: Path) -> None:
        with log.open(encoding="ascii", errors="replace") as lines:
            self._know_processes(lines)
        with log.open(encoding="ascii", errors="replace") as lines:
            for began, line in self._calls(lines):
                found = _CALL.match(line)
                if found is not None and int(found[4]) >= 0:
                    self._take(found[1], found[2], found[3], int(found[4]), began)

    def _know_processes(self, lines: Iterable[str]) -> None:
        """Find out first who is whose thread: the first calls of a thread can come before the end of its `clone`."""
        halves: dict[str, str] = {}
        for line in lines:
            if "clone" not in line and "fork" not in line:
                continue
            if half := _FIRST_HALF.match(line.rstrip("\n")):
                halves[half[1]] = half[2]
            rest = _SECOND_HALF.match(line)
            whole = f"{rest[1]} {halves.pop(rest[1], '')}{rest[2]}" if rest else line
            found = _CALL.match(whole)
            if found is not None and int(found[4]) > 0:
                is_thread = "CLONE_THREAD" in found[3]
                (self._process if is_thread else self._parent)[found[4]] = found[1]

    def _calls(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Whole calls in the order of their ends, each with the number of operations that were over at its start."""
        halves: dict[str, tuple[int, str]] = {}
        for line in lines:
            text = line.rstrip("\n")
            if half := _FIRST_HALF.match(text):
                halves[half[1]] = (len(self._disk.operations), half[2])
            elif rest := _SECOND_HALF.match(text):
                began, start = halves.pop(rest[1], (0, ""))
                yield began, f"{rest[1]} {start}{rest[2]}"
            else:
                yield len(self._disk.operations), text

    def _owner(self, thread: str) -> str:
        while thread in self._process:
            thread = self._process[thread]
        return thread

    def _path_inside_store(self, path: str) -> str | None:
        """The path below the store's folder; None for any other."""
        path = os.path.normpath(path)
        if path == self._root:
            return ""
        return path[len(self._root) + 1 :] if path.startswith(f"{self._root}/") else None

    def _take(self, thread: str, call: str, arguments: str, result: int, began: int) -> None:
        owner = self._owner(thread)
        if call in ("open", "openat", "creat"):
            self._open(owner, call, arguments, str(result))
        elif call in ("chdir", "fchdir"):
            text = _TEXT.search(arguments) or _FD.match(arguments)
            if text is not None:
                self._folder[owner] = os.path.join(self._cwd(owner), _name(text[text.lastindex or 1]))  # noqa: PTH118
        elif call == "sync":
            self._disk.sync_all(began=began)
        elif call in _NAMES.split(","):
            self._rename(owner, call, arguments)
        elif call in ("mmap", "truncate"):
            self._touch(owner, call, arguments)
        elif found := _FD.match(arguments):
            path = _name(found[2])
            if path == self._marks and call == "write":
                for line in _data(arguments)[:result].decode(errors="replace").splitlines():
                    self._disk.mark(line)
            elif (inside := self._path_inside_store(path)) is not None:
                self._change(owner, found[1], inside, call, arguments, result, began)

    def _cwd(self, owner: str) -> str:
        while owner not in self._folder and owner in self._parent:
            owner = self._owner(self._parent[owner])
        return self._folder.get(owner, self._start)

    def _open(self, owner: str, call: str, arguments: str, fd: str) -> None:
        path = self._path_inside_store(next(self._paths(owner, arguments)))
        if path is None:
            return
        if "O_CREAT" in arguments or call == "creat":
            self._disk.create(path)
        if "O_TRUNC" in arguments or call == "creat":
            self._disk.truncate(path, 0)
        self._position[owner, fd] = None if "O_APPEND" in arguments else 0
        is_eager = "O_SYNC" in arguments or "O_DSYNC" in arguments
        (self._is_eager.add if is_eager else self._is_eager.discard)((owner, fd))

    def _paths(self, owner: str, arguments: str) -> Iterator[str]:
        """The paths that a call names, each with the folder that it starts from."""
        places = [_name(one) for one in _PLACE.findall(arguments)]
        for number, text in enumerate(_TEXT.findall(arguments)):
            start = places[min(number, len(places) - 1)] if places else self._cwd(owner)
            yield os.path.join(start, _name(text))  # noqa: PTH118

    def _rename(self, owner: str, call: str, arguments: str) -> None:
        inside = [self._path_inside_store(path) for path in self._paths(owner, arguments)]
        if all(path is None for path in inside):
            return
        path, target = inside[0], inside[-1]
        if call in _UNKNOWN or path is None or target is None or "RENAME_EXCHANGE" in arguments:
            raise ConfigurationError(f"SimulatedDisk has no {call} of {arguments:.200}")
        if call.startswith("mkdir"):
            if path:
                self._disk.make_folder(path)
        elif call.startswith("rename"):
            self._disk.rename(path, target)
        elif call.startswith("link"):
            self._disk.link(path, target)
        else:
            self._disk.unlink(path)

    def _touch(self, owner: str, call: str, arguments: str) -> None:
        if call == "truncate":
            path = self._path_inside_store(next(self._paths(owner, arguments)))
            if path is not None:
                self._disk.truncate(path, int(arguments.rpartition(", ")[2]))
        elif "MAP_SHARED" in arguments and "PROT_WRITE" in arguments:
            mapped = re.search(r"\d+<((?:\\x[0-9a-f]{2})*)>", arguments)
            path = None if mapped is None else self._path_inside_store(_name(mapped[1]))
            if path is not None:
                self._disk.map(path)

    def _change(self, owner: str, fd: str, path: str, call: str, arguments: str, result: int, began: int) -> None:
        disk, last = self._disk, arguments.rpartition(", ")[2]
        if call in _UNKNOWN:
            raise ConfigurationError(f"SimulatedDisk has no {call} (of {path})")
        if call in ("fsync", "fdatasync"):
            disk.sync(path, began=began)
        elif call == "syncfs":
            disk.sync_all(began=began)
        elif call == "ftruncate":
            disk.truncate(path, int(last))
        elif call == "lseek":
            if self._place(owner, fd) is not None:
                self._position[owner, fd] = result
        elif call == "fallocate":
            _, mode, start, length = arguments.split(", ")
            if mode not in ("0", "FALLOC_FL_KEEP_SIZE"):
                raise ConfigurationError(f"SimulatedDisk has no fallocate with {mode} (of {path})")
            if mode == "0":
                disk.extend(path, int(start) + int(length))
        else:
            data = _data(arguments)[:result]
            place = int(last) if call.startswith("pwrite") else self._place(owner, fd)
            if place is None:
                disk.append(path, data)
            else:
                disk.write(path, place, data)
            if not call.startswith("pwrite") and place is not None:
                self._position[owner, fd] = place + result
            if (owner, fd) in self._is_eager:
                disk.sync(path)

    def _place(self, owner: str, fd: str) -> int | None:
        """Where the next `write` goes; a process has the open files of the one that started it."""
        while (owner, fd) not in self._position and owner in self._parent:
            owner = self._owner(self._parent[owner])
        return self._position.get((owner, fd), 0)


def _data(arguments: str) -> bytes:
    """What a write wrote, in one or several pieces."""
    if _CUT in arguments:
        raise ConfigurationError("SimulatedDisk cannot record a write of more than 16 MB at once")
    return b"".join(_bytes(text) for text in _TEXT.findall(arguments))
