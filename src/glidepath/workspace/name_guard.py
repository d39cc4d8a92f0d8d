"""Makes every name for a sandboxed command, so that a protected one never appears. Its own process, on Linux.

The kernel stops the command at each system call that makes a name and hands the call to us (a seccomp listener). We
read its arguments once, make the name ourselves, and answer with the result: the command cannot change a path between
our look and the kernel's, because the kernel never looks at it. We do it in the command's own view of the file system
(its mount namespace) and with its rights and no other, so it gains nothing by asking us.

If this process fails, what it should have made is not made: the command's calls fail.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import socket
import stat
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from glidepath.workspace.guarded_calls import CALLS
from glidepath.workspace.new_names import NewNames, read_file
from glidepath.workspace.protected_names import NameRules
from glidepath.workspace.stopped_calls import CallListener, StoppedCall, check, install, libc, read_memory, read_path

try:
    import fcntl
except ImportError:  # Windows has none, and no sandbox of this kind
    fcntl = None  # type: ignore[assignment]

__all__ = ["NameGuard", "guard", "install"]

_NEW_USER, _NEW_MOUNTS, _OWNER = 0x1000_0000, 0x0002_0000, 0xB701
_CAPSET, _TAKE_DESCRIPTOR = {"x86_64": 126, "aarch64": 91}, 438
_PTRACE = 1 << 19  # the one capability that is kept: it reads the command's memory, and gives no right to files
_HERE, _FOLLOW, _EMPTY_PATH = -100, 0x400, 0x1000
_PATH = os.O_PATH | os.O_CLOEXEC
_FOLDER = _PATH | os.O_DIRECTORY
_TMPFILE = 0o20000000
_MOST_LINKS = 40
_CLOSED_AFTER_WRITING = 0x8
_EVENT = struct.Struct("iIII")
_NOREPLACE = 1
_UNIX = 1
_STREAMS = {f"/dev/{name}": f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))}


class _Place(NamedTuple):
    """A name in an open folder. Without a name it is the folder itself."""

    folder: int
    name: str


class _Staged(NamedTuple):
    """A configuration that the command is writing, and the repository that gets it when it is closed."""

    repository: int
    name: str


class NameGuard:
    """Serves one command from its first name to its last process."""

    def __init__(self, job: dict[str, Any], listener: int) -> None:
        self._listener = CallListener(listener)
        self._machine: str = job["machine"]
        self._program = _identify(os.stat(job["program"]))  # noqa: PTH116
        self._processes = os.open("/proc", _FOLDER)
        self._own = os.open("/proc/self", _FOLDER)
        self._namespace = os.stat("/proc/self/ns/mnt").st_ino  # noqa: PTH116
        self._armed = False
        self._root = self._proc = -1
        rules = NameRules(job["rules"]["allowed"], job["rules"]["above"], job["rules"]["own"])
        known, awaited = map(tuple, job["known"]), map(tuple, job["awaited"])
        self._names = NewNames(job["root"], rules, known=known, awaited=awaited, own=self._own)
        self._watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._staged: dict[int, _Staged] = {}
        self._calls: dict[int, Callable[[StoppedCall], int | None]] = {
            number: getattr(self, f"_{name}") for number, name in CALLS[self._machine].items()
        }
        os.fchdir(self._own)  # so that a descriptor has a path for calls that take no other
        os.umask(0)

    @property
    def said(self) -> list[str]:
        """What was renamed, in words for the model."""
        return self._names.said

    def serve(self) -> None:
        """Answer until no process of the command is left."""
        poll = select.poll()
        listener = self._listener.descriptor
        poll.register(listener, select.POLLIN)
        poll.register(self._watch, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            self._take_closed()  # first: who asks now may have closed a configuration just before
            if ready.get(listener, 0) & select.POLLIN:
                self._answer()
            elif listener in ready:
                break
        for number in list(self._staged):
            self._publish(number)

    def _answer(self) -> None:
        call = self._listener.receive()
        if call is None:
            return
        try:
            if not self._armed and not self._is_armed(call.task):
                self._listener.continue_call(call)
                return
            self._names.forget()
            value = self._calls[call.number](call)
            if value is not None:
                self._names.confirm()
                self._listener.answer(call, value)
        except OSError as error:
            self._listener.answer(call, error=error.errno or errno.EPERM)
        except Exception:  # a defect of ours must not let anything pass
            self._listener.answer(call, error=errno.EPERM)

    # --- entering ---------------------------------------------------------------------------------------------

    def _is_armed(self, task: int) -> bool:
        """True when the sandbox stands and something runs in it; we are in there then, too. Until then ours prepare it.

        The first thing that runs in there is ours as well, and asks for a name before the command can.
        """
        mounts = os.stat(f"{task}/ns/mnt", dir_fd=self._processes).st_ino
        if mounts == self._namespace or _identify(os.stat(f"{task}/exe", dir_fd=self._processes)) == self._program:
            return False
        namespace = os.open(f"{task}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._processes)
        owner = fcntl.ioctl(namespace, _OWNER)
        if os.fstat(owner).st_ino != os.stat("ns/user", dir_fd=self._own).st_ino:
            check(libc.setns(owner, _NEW_USER))
        check(libc.setns(namespace, _NEW_MOUNTS))
        os.close(owner)
        os.close(namespace)
        header, rights = struct.pack("=II", 0x2008_0522, 0), struct.pack("=6I", _PTRACE, _PTRACE, 0, 0, 0, 0)
        check(libc.syscall(_CAPSET[self._machine], ctypes.c_char_p(header), ctypes.c_char_p(rights)))
        os.fchdir(self._own)
        self._root = os.open("/", _FOLDER)
        self._proc = os.stat("/proc").st_dev  # noqa: PTH116
        self._armed = True
        return True

    # --- arguments --------------------------------------------------------------------------------------------

    def _open_base(self, call: StoppedCall, descriptor: int) -> int:
        """The folder that a relative path begins in."""
        number = ctypes.c_int(descriptor & 0xFFFF_FFFF).value
        where = f"{call.task}/cwd" if number == _HERE else f"{call.task}/fd/{number}"
        try:
            return os.open(where, _FOLDER, dir_fd=self._processes)
        except FileNotFoundError:
            raise OSError(errno.EBADF, "descriptor") from None

    def _read_status(self, task: int, field: str) -> str:
        file = os.open(f"{task}/status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._processes)
        try:
            text = os.read(file, 8192).decode(errors="replace")
        finally:
            os.close(file)
        return next(line.partition(":")[2].strip() for line in text.split("\n") if line.startswith(f"{field}:"))

    def _apply_umask(self, call: StoppedCall, mode: int) -> int:
        return mode & 0o7777 & ~int(self._read_status(call.task, "Umask"), 8)

    # --- paths ------------------------------------------------------------------------------------------------

    def _find(self, call: StoppedCall, descriptor: int, address: int, *, follow: bool = False) -> _Place:
        """Where a path leads: an open folder, and a name in it that is not a link if links are to be followed."""
        text = read_path(call, address)
        folder = os.dup(self._root) if text.startswith("/") else self._open_base(call, descriptor)
        try:
            self._listener.check_alive(call)
            for _ in range(_MOST_LINKS):
                if not text:
                    raise OSError(errno.ENOENT, "empty path")
                text = self._translate(call, text)
                if text.startswith("/"):
                    folder = _close_and_replace(folder, os.dup(self._root))
                head, _, name = text.strip("/").rpartition("/")
                if name in ("", ".", ".."):
                    head, name = f"{head}/{name}".strip("/"), ""
                folder = _close_and_replace(folder, self._enter(folder, head))
                target = _read_link(folder, name) if follow and name else None
                if target is None or os.fstat(folder).st_dev == self._proc:
                    return _Place(folder, name)
                text = target
            raise OSError(errno.ELOOP, "links")
        except BaseException:
            os.close(folder)
            raise

    def _translate(self, call: StoppedCall, text: str) -> str:
        """What `/proc/self` and the like are for the command: for us they would be ourselves, or nobody."""
        text = _STREAMS.get(text, text)
        if text.startswith("/dev/fd/"):
            text = f"/proc/self/{text[5:]}"
        if text.startswith(("/proc/self/", "/proc/thread-self/")):
            group = self._read_status(call.task, "NStgid").split()[-1]
            text = f"/proc/{group}/{text.partition('self/')[2]}"
        return text

    def _enter(self, folder: int, path: str) -> int:
        """The folder at a path from an open one; where something has got another name, by that."""
        try:
            return os.open(path or ".", _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not self._names.aliases:
                raise
        found = os.dup(folder)
        for step in path.split("/"):
            try:
                inner = os.open(step or ".", _FOLDER, dir_fd=found)
            except FileNotFoundError:
                other = self._names.aliases.get(f"{self._names.path_of(found)}/{step}")
                if other is None:
                    os.close(found)
                    raise
                inner = os.open(other, _FOLDER, dir_fd=found)
            found = _close_and_replace(found, inner)
        return found

    # --- calls ------------------------------------------------------------------------------------------------

    def _open(self, call: StoppedCall) -> None:
        path, flags, mode = call.arguments[:3]
        self._open_at(call, _HERE, path, flags, mode)

    def _creat(self, call: StoppedCall) -> None:
        path, mode = call.arguments[:2]
        self._open_at(call, _HERE, path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)

    def _openat(self, call: StoppedCall) -> None:
        folder, path, flags, mode = call.arguments[:4]
        self._open_at(call, folder, path, flags, mode)

    def _open_at(self, call: StoppedCall, descriptor: int, path: int, flags: int, mode: int) -> None:
        flags &= 0xFFFF_FFFF
        new = flags & os.O_CREAT
        follow = not flags & os.O_NOFOLLOW and not (new and flags & os.O_EXCL)
        place = self._find(call, descriptor, path, follow=follow)
        try:
            if not place.name or flags & _TMPFILE or os.fstat(place.folder).st_dev == self._proc:
                self._listener.hand_over(call, self._reopen(place, flags, mode, call), flags)
                return
            there = _find_kind(place)
            if self._names.is_config(place.folder, place.name) and (new or there is not None):
                self._stage_configuration(call, place, flags, mode)
                return
            name = place.name
            if new and there is None:
                name, mode = self._names.choose(place.folder, name, "file"), self._apply_umask(call, mode)
            elif there == stat.S_IFIFO:
                self._open_apart(call, _Place(os.dup(place.folder), name), flags)
                return
            elif follow and there == stat.S_IFLNK:
                raise OSError(errno.ELOOP, "swapped")
            opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode & 0o7777, dir_fd=place.folder)
            self._names.confirm()
            self._listener.hand_over(call, opened, flags)
        finally:
            os.close(place.folder)

    def _reopen(self, place: _Place, flags: int, mode: int, call: StoppedCall) -> int:
        """What is open already, or a folder: by its descriptor, once it is known what it is."""
        found = os.open(place.name or ".", _PATH, dir_fd=place.folder)
        try:
            self._check_not_frozen(found)
            if flags & _TMPFILE:
                mode = self._apply_umask(call, mode)
            if not flags & _TMPFILE:
                flags &= ~(os.O_CREAT | os.O_EXCL)
            return os.open(f"fd/{found}", (flags & ~os.O_NOFOLLOW) | os.O_CLOEXEC, mode & 0o7777, dir_fd=self._own)
        finally:
            os.close(found)

    def _check_not_frozen(self, found: int) -> None:
        """Raise `OSError` for the configuration of a new repository, however it was reached."""
        if not stat.S_ISREG(os.fstat(found).st_mode):
            return
        up, _, name = self._names.path_of(found).rpartition("/")
        with suppress(FileNotFoundError, NotADirectoryError):
            folder = os.open(up or "/", _FOLDER)
            try:
                if self._names.is_config(folder, name):
                    raise OSError(errno.EPERM, "frozen")
            finally:
                os.close(folder)

    def _open_apart(self, call: StoppedCall, place: _Place, flags: int) -> None:
        """A pipe waits for its other end, which may ask us for something first."""

        def wait() -> None:
            try:
                opened = os.open(place.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.folder)
                self._listener.hand_over(call, opened, flags)
            except OSError as error:
                self._listener.answer(call, error=error.errno or errno.EPERM)
            finally:
                os.close(place.folder)

        threading.Thread(target=wait, daemon=True).start()

    def _mkdir(self, call: StoppedCall) -> int:
        return self._make_folder(call, _HERE, *call.arguments[:2])

    def _mkdirat(self, call: StoppedCall) -> int:
        return self._make_folder(call, *call.arguments[:3])

    def _make_folder(self, call: StoppedCall, descriptor: int, path: int, mode: int) -> int:
        with _Closing(self._find(call, descriptor, path)) as place:
            if not place.name or _find_kind(place) is not None:
                raise OSError(errno.EEXIST, "there already")
            name = self._names.choose(place.folder, place.name, "folder")
            os.mkdir(name, self._apply_umask(call, mode), dir_fd=place.folder)
        return 0

    def _mknod(self, call: StoppedCall) -> int:
        return self._make_node(call, _HERE, *call.arguments[:2])

    def _mknodat(self, call: StoppedCall) -> int:
        return self._make_node(call, *call.arguments[:3])

    def _make_node(self, call: StoppedCall, descriptor: int, path: int, mode: int) -> int:
        kind = stat.S_IFMT(mode) or stat.S_IFREG
        if kind not in (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
            raise OSError(errno.EPERM, "device")
        with _Closing(self._find(call, descriptor, path)) as place:
            if not place.name or _find_kind(place) is not None:
                raise OSError(errno.EEXIST, "there already")
            name = self._names.choose(place.folder, place.name, "other")
            os.mknod(name, kind | self._apply_umask(call, mode), dir_fd=place.folder)
        return 0

    def _symlink(self, call: StoppedCall) -> int:
        target, path = call.arguments[:2]
        return self._make_link(call, target, _HERE, path)

    def _symlinkat(self, call: StoppedCall) -> int:
        return self._make_link(call, *call.arguments[:3])

    def _make_link(self, call: StoppedCall, target: int, descriptor: int, path: int) -> int:
        text = read_path(call, target)
        with _Closing(self._find(call, descriptor, path)) as place:
            if not place.name or _find_kind(place) is not None:
                raise OSError(errno.EEXIST, "there already")
            os.symlink(text, self._names.choose(place.folder, place.name, "link"), dir_fd=place.folder)
        return 0

    def _link(self, call: StoppedCall) -> int:
        old, new = call.arguments[:2]
        return self._make_twin(call, _HERE, old, _HERE, new, 0)

    def _linkat(self, call: StoppedCall) -> int:
        return self._make_twin(call, *call.arguments[:5])

    def _make_twin(self, call: StoppedCall, from_: int, old: int, to: int, new: int, flags: int) -> int:
        if flags & _EMPTY_PATH:
            raise OSError(errno.ENOENT, "by descriptor")  # which takes a capability; there is another way
        follow = bool(flags & _FOLLOW)
        from_here = self._find(call, from_, old, follow=follow)
        with _Closing(from_here) as source, _Closing(self._find(call, to, new)) as place:
            if not place.name or _find_kind(place) is not None:
                raise OSError(errno.EEXIST, "there already")
            found = os.open(source.name or ".", _PATH | (0 if follow else os.O_NOFOLLOW), dir_fd=source.folder)
            try:
                self._check_not_frozen(found)  # by its other name it could be written
                name = os.fsencode(self._names.choose(place.folder, place.name, "twin"))
                if stat.S_ISLNK(os.fstat(found).st_mode):
                    check(libc.linkat(source.folder, os.fsencode(source.name), place.folder, name, 0))
                else:
                    check(libc.linkat(self._own, f"fd/{found}".encode(), place.folder, name, _FOLLOW))
            finally:
                os.close(found)
        return 0

    def _rename(self, call: StoppedCall) -> int:
        old, new = call.arguments[:2]
        return self._move(call, _HERE, old, _HERE, new, 0)

    def _renameat(self, call: StoppedCall) -> int:
        from_, old, to, new = call.arguments[:4]
        return self._move(call, from_, old, to, new, 0)

    def _renameat2(self, call: StoppedCall) -> int:
        return self._move(call, *call.arguments[:5])

    def _move(self, call: StoppedCall, from_: int, old: int, to: int, new: int, flags: int) -> int:
        if flags & ~_NOREPLACE:
            raise OSError(errno.EINVAL, "exchange")
        with _Closing(self._find(call, from_, old)) as source, _Closing(self._find(call, to, new)) as place:
            kind = _find_kind(source)
            if not source.name or not place.name:
                raise OSError(errno.EBUSY, "a folder that is in use")
            if kind is None:
                raise OSError(errno.ENOENT, "not there")
            if kind == stat.S_IFREG and self._names.is_config(place.folder, place.name):
                if flags & _NOREPLACE and _find_kind(place) is not None:
                    raise OSError(errno.EEXIST, "there already")
                data, mode = read_file(source.folder, source.name)
                self._names.publish(place.folder, data, mode)
                os.unlink(source.name, dir_fd=source.folder)
                return 0
            name = self._new_name(source, place, kind)
            ends = (source.folder, os.fsencode(source.name), place.folder, os.fsencode(name), flags & _NOREPLACE)
            check(libc.renameat2(*ends))
        return 0

    def _new_name(self, source: _Place, place: _Place, kind: int) -> str:
        if kind != stat.S_IFDIR:
            word = {stat.S_IFREG: "file", stat.S_IFLNK: "link"}.get(kind, "other")
            return self._names.choose(place.folder, place.name, word)
        moved = os.open(source.name, _FOLDER | os.O_NOFOLLOW, dir_fd=source.folder)
        try:
            return self._names.choose(place.folder, place.name, "folder", moved)
        finally:
            os.close(moved)

    def _bind(self, call: StoppedCall) -> int:
        """An address of a socket. One that is a path would make a name; the command has no use for such sockets."""
        number, address, size = call.arguments[:3]
        data = read_memory(call.task, address, min(size & 0xFFFF_FFFF, 128))
        if len(data) >= 2 and struct.unpack_from("=H", data)[0] == _UNIX:  # noqa: PLR2004
            raise OSError(errno.EPERM, "no such sockets")
        group = int(self._read_status(call.task, "Tgid"))
        process = os.pidfd_open(group)
        try:
            self._listener.check_alive(call)
            found = check(libc.syscall(_TAKE_DESCRIPTOR, process, ctypes.c_int(number & 0xFFFF_FFFF).value, 0))
        finally:
            os.close(process)
        with socket.socket(fileno=found):
            check(libc.bind(found, ctypes.c_char_p(data), len(data)))
        return 0

    # --- configurations that are being written ------------------------------------------------------------------

    def _stage_configuration(self, call: StoppedCall, place: _Place, flags: int, mode: int) -> None:
        """Let the command write a configuration elsewhere. The repository gets it a moment after it is closed."""
        there = _find_kind(place)
        if there is not None and flags & os.O_EXCL and flags & os.O_CREAT:
            raise OSError(errno.EEXIST, "there already")
        if there not in (None, stat.S_IFREG):
            raise OSError(errno.EPERM, "not a file")
        name = f"config.{os.urandom(8).hex()}.new"
        mode = self._apply_umask(call, mode) if there is None else mode & 0o7777
        plain = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        if there is not None and not flags & os.O_TRUNC:
            data, mode = read_file(place.folder, place.name)
            copy = os.open(name, plain, mode, dir_fd=place.folder)
            os.write(copy, data)
        else:
            copy = os.open(name, plain, mode, dir_fd=place.folder)
        os.close(copy)
        kept = flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
        opened = os.open(name, kept | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.folder)
        watched = check(libc.inotify_add_watch(self._watch, f"fd/{opened}".encode(), _CLOSED_AFTER_WRITING))
        self._staged[watched] = _Staged(os.dup(place.folder), name)
        self._listener.hand_over(call, opened, flags)

    def _take_closed(self) -> None:
        with suppress(BlockingIOError):
            data = os.read(self._watch, 1 << 16)
            while data:
                number, mask, _, length = _EVENT.unpack_from(data)
                data = data[_EVENT.size + length :]
                if mask & _CLOSED_AFTER_WRITING:
                    self._publish(number)

    def _publish(self, number: int) -> None:
        staged = self._staged.pop(number, None)
        if staged is None:
            return
        try:
            with suppress(OSError):  # it was removed meanwhile, with its repository perhaps
                data, mode = read_file(staged.repository, staged.name)
                self._names.publish(staged.repository, data, mode)
                os.unlink(staged.name, dir_fd=staged.repository)
        finally:
            os.close(staged.repository)


class _Closing:
    """Closes the folder of a place at the end."""

    def __init__(self, place: _Place) -> None:
        self._place = place

    def __enter__(self) -> _Place:
        return self._place

    def __exit__(self, *_: object) -> None:
        os.close(self._place.folder)


def _close_and_replace(old: int, new: int) -> int:
    if old >= 0:
        os.close(old)
    return new


def _read_link(folder: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None


def _find_kind(place: _Place) -> int | None:
    """What there is at a place; None when there is nothing."""
    if not place.name:
        return stat.S_IFDIR
    try:
        return stat.S_IFMT(os.lstat(place.name, dir_fd=place.folder).st_mode)
    except FileNotFoundError:
        return None


def _identify(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def guard(line: socket.socket, report: int, job: dict[str, Any]) -> None:
    """Wait for the listener of a command, guard it to its end, and report what was renamed."""
    failed = ""
    names: list[str] = []
    try:
        _, given, _, _ = socket.recv_fds(line, 1, 1)
        if given:
            keeper = NameGuard(job, given[0])
            with suppress(OSError):  # a command that was stopped before it began hears nothing, and needs no guard
                line.send(b".")
            line.close()
            keeper.serve()
            names = keeper.said
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    os.write(report, json.dumps({"planted": names, "failed": failed}).encode())
