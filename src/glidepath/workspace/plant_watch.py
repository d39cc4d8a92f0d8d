"""Watches a workspace while a sandboxed command runs: a protected file that it makes loses its name at once.

This is for systems where `name_guard` does not work, which keeps such a name from appearing at all. The survey after
the command finds everything, but until then a planted `.git` would be there for an editor, or a prompt that shows the
branch, which run `git status` all the time. So the kernel tells us of every new name, and what is protected is
renamed within moments, however long the command still runs. Every step is taken on open folders, never through a
link: the command is still running, and could swap one in.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import select
import stat
import struct
import sys
import threading
from collections.abc import Iterator, Sequence

from glidepath.workspace.file_survey import ADVICE, FileSurvey
from glidepath.workspace.gitconfig import MOST_CONFIG, is_harmless
from glidepath.workspace.protected import Protection
from glidepath.workspace.protected_names import GIT_PARTS, fold_name
from glidepath.workspace.root import Workspace

_WRITTEN, _MOVED_IN, _MADE, _IS_FOLDER, _LOST = 0x8, 0x80, 0x100, 0x4000_0000, 0x4000
_ONLY_FOLDERS, _NO_LINKS = 0x0100_0000, 0x0200_0000
_WATCHED = _WRITTEN | _MOVED_IN | _MADE | _ONLY_FOLDERS | _NO_LINKS
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_EVENT = struct.Struct("iIII")
_MOST_FOLDERS = 20_000
_DEEPEST = 64
_ASIDE = ".set-aside"
_GIT_WORD = "git runs the commands that are named there"
_OF_GIT = frozenset({"head", "config", "commondir", "objects", "refs", "hooks"})

Steps = tuple[str, ...]


class PlantWatch:
    """Renames what a running command plants. `stop` says what that was; without inotify there is nothing to say."""

    def __init__(self, workspace: Workspace, before: FileSurvey) -> None:
        self._root = str(workspace.root)
        self._protection: Protection = workspace.protection
        self._known = {one.path for one in before.found}
        self._folders: dict[int, Steps] = {}
        self._said: list[str] = []
        self._thread: threading.Thread | None = None
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._events = -1 if self._libc is None else self._libc.inotify_init1(_FLAGS)
        self._end, self._ring = os.pipe()
        if self._events >= 0 and self._protection.closed is None:
            for folder in sorted(before.listed, key=len)[:_MOST_FOLDERS]:
                self._watch(self._steps(folder))
            self._thread = threading.Thread(target=self._run, name="glidepath-plants", daemon=True)
            self._thread.start()

    def stop(self) -> list[str]:
        """End it; what was renamed, in words for the model."""
        os.close(self._ring)
        if self._thread is not None:
            self._thread.join()
        os.close(self._end)
        if self._events >= 0:
            os.close(self._events)
        return self._said

    # --- what the kernel says -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._events, self._end], [], [])
            with contextlib.suppress(BlockingIOError):
                data = os.read(self._events, 1 << 16)
                while data:
                    number, mask, _, length = _EVENT.unpack_from(data)
                    name = data[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode(errors="surrogateescape")
                    data = data[_EVENT.size + length :]
                    self._on_event(number, mask, name)
            if self._end in ready:
                return

    def _on_event(self, number: int, mask: int, name: str) -> None:
        if mask & _LOST:
            self._enter(())  # too much at once: look at everything
        folder = self._folders.get(number)
        if folder is None or not name:
            return
        self._check_path((*folder, name), is_folder=bool(mask & _IS_FOLDER))

    # --- what is planted ------------------------------------------------------------------------------------------

    def _check_path(self, steps: Steps, *, is_folder: bool) -> None:
        if "/".join([self._root, *steps]) in self._known:
            return
        git = self._git_around(steps)
        if git is not None:
            self._judge(git)
            if is_folder and len(steps) <= len(git) + 1:
                self._watch(steps)
            return
        why = (
            self._protection.explain_refusal(steps, entering=is_folder)
            if self._protection.may_hold(steps[-1])
            else None
        )
        if why is not None and is_folder and fold_name(steps[-1]) == ".git":
            self._enter_git(steps)
        elif why is not None and not self._protection.is_own(steps):
            self._set_aside(steps, why)
        elif is_folder:
            self._enter(steps)
        if fold_name(steps[-1]) in _OF_GIT and len(steps) > 1 and not self._protection.is_allowed(steps):
            self._judge(steps[:-1], bare=True)

    def _git_around(self, steps: Steps) -> Steps | None:
        """The new repository's own folder that this is in; None when it is in none."""
        for end in range(1, len(steps)):
            if fold_name(steps[end - 1]) == ".git":
                inside = "/".join([self._root, *steps[:end]]) in self._known or self._protection.is_allowed(steps[:end])
                return None if inside else steps[:end]
        return None

    def _enter(self, steps: Steps) -> None:
        """Watch a new folder, and look at what is in it already."""
        if len(steps) > _DEEPEST or not self._watch(steps):
            return
        for name, is_folder in self._list_folder(steps):
            self._check_path((*steps, name), is_folder=is_folder)

    def _enter_git(self, steps: Steps) -> None:
        self._watch(steps)
        for name, is_folder in self._list_folder(steps):
            if is_folder and fold_name(name) in ("hooks", "info"):
                self._watch((*steps, name))
        self._judge(steps)

    def _judge(self, git: Steps, *, bare: bool = False) -> None:
        """Rename a repository's own folder once it names a command. An unfinished one names none."""
        with self._open_folder(git) as folder:
            if folder is None or (bare and not _is_repository(folder)) or not _names_a_command(folder):
                return
        if "/".join([self._root, *git]) not in self._known:
            self._set_aside((*git, "HEAD") if bare else git, _GIT_WORD, git if bare else None)

    def _set_aside(self, steps: Steps, why: str, whole: Steps | None = None) -> None:
        """Rename the last of these; `whole` is what loses its meaning by that, if it is something else."""
        shown = "/".join(whole or steps)
        with self._open_folder(steps[:-1]) as folder:
            if folder is None:
                return
            other = _free_name(steps[-1], folder)
            try:
                os.rename(steps[-1], other, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                return  # it is gone again
            except OSError as error:
                self._said.append(f"{shown!r:.200} is protected ({why}), and could NOT be renamed ({error.strerror})")
                return
        if not any(_ASIDE in step for step in steps[:-1]):  # else it was told of as a whole
            what = "it" if whole is None else "its HEAD"
            renamed = f"the command made it, so {what} was renamed to {other!r:.200} at once"
            self._said.append(f"{shown!r:.200} is protected ({why}): {renamed}{ADVICE}")

    # --- folders, never through a link ----------------------------------------------------------------------------

    def _watch(self, steps: Steps) -> bool:
        if self._libc is None or len(self._folders) >= _MOST_FOLDERS:
            return False
        with self._open_folder(steps) as folder:
            if folder is None:
                return False
            number = self._libc.inotify_add_watch(self._events, f"/proc/self/fd/{folder}/.".encode(), _WATCHED)
        if number >= 0:
            self._folders[number] = steps
        return bool(number >= 0)

    @contextlib.contextmanager
    def _open_folder(self, steps: Sequence[str]) -> Iterator[int | None]:
        """The folder, walked to from the root; None when it is not there, or a link is in the way."""
        found: int | None = None
        try:
            found = os.open(self._root, _FOLDER)
            for step in steps:
                inner = os.open(step, _FOLDER, dir_fd=found)
                os.close(found)
                found = inner
        except OSError:
            if found is not None:
                os.close(found)
            found = None
        try:
            yield found
        finally:
            if found is not None:
                os.close(found)

    def _list_folder(self, steps: Steps) -> list[tuple[str, bool]]:
        with self._open_folder(steps) as folder:
            if folder is None:
                return []
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        return []

    def _steps(self, path: str) -> Steps:
        return tuple(step for step in path[len(self._root) :].split("/") if step)


def _free_name(name: str, folder: int) -> str:
    """Another name in this folder for what is set aside."""
    taken = set(os.listdir(folder))
    names = itertools.chain([f"{name}{_ASIDE}"], (f"{name}{_ASIDE}-{number}" for number in itertools.count(2)))
    return next(other for other in names if other not in taken)


def _is_repository(folder: int) -> bool:
    names = {name.lower() for name in os.listdir(folder)}
    return "head" in names and ({"objects", "refs"} <= names or "commondir" in names)


def _names_a_command(folder: int) -> bool:
    """True for a repository's folder from which git would run something."""
    try:
        names = set(os.listdir(folder))
        if names & ({*GIT_PARTS[2:]} - {"info"}):
            return True
        if "hooks" in names and _hooks_of(folder):
            return True
        return "config" in names and not _is_harmless_config(folder)
    except FileNotFoundError:
        return False  # it is being made, or is gone
    except OSError:
        return True


def _hooks_of(folder: int) -> list[str]:
    hooks = os.open("hooks", _FOLDER, dir_fd=folder)
    try:
        return [name for name in os.listdir(hooks) if not name.endswith(".sample")]  # noqa: PTH208 - an open folder
    finally:
        os.close(hooks)


def _is_harmless_config(folder: int) -> bool:
    with os.fdopen(os.open("config", _FILE, dir_fd=folder), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return False
        data = file.read(MOST_CONFIG + 1)
    return len(data) <= MOST_CONFIG and is_harmless(data.decode(errors="replace"))
