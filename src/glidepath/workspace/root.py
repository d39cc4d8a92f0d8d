"""A folder that nothing leaves: every path is walked from it step by step, on open folders, never by name twice.

A symbolic link inside the folder is followed only as far as its target lies inside, too. Because each step opens a
folder below one that is open already, nobody can swap a folder for a link between a check and its use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glidepath.errors import ConfigurationError, ToolError

__all__ = ["Workspace"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MOST_LINKS = 40
_MOST_PATH = 4096


class Workspace:
    """A folder for tools to work in. `root` is where it really is."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        try:
            self.root = Path(root).resolve(strict=True)
        except (OSError, TypeError, ValueError) as error:
            raise ConfigurationError(f"workspace {root!r:.100} cannot be used: {error}") from None
        if not self.root.is_dir():
            raise ConfigurationError(f"workspace {str(root)!r} is not a folder")

    # --- opening --------------------------------------------------------------------------------------------------

    @contextmanager
    def file(self, path: str) -> Iterator[int]:
        """An open descriptor of a regular file, for reading; raises `ToolError` for everything else."""
        with self._parent(path) as (folder, name):
            try:
                found = os.open(name or ".", _FILE, dir_fd=folder)
            except OSError as error:
                raise _error(path, error) from None
            try:
                kind = os.fstat(found).st_mode
                if stat.S_ISDIR(kind):
                    raise ToolError(f"{path} is a folder: use list")
                if not stat.S_ISREG(kind):
                    raise ToolError(f"{path} is not a regular file")
                yield found
            finally:
                os.close(found)

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """An open descriptor of a folder."""
        with self._parent(path) as (above, name):
            try:
                found = os.open(name or ".", _FOLDER, dir_fd=above)
            except OSError as error:
                raise _error(path, error) from None
            try:
                yield found
            finally:
                os.close(found)

    @contextmanager
    def place(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder in which a file is to be written, made if asked for, and the file's name there."""
        with self._parent(path, make=make) as (folder, name):
            if not name:
                raise ToolError(f"{path} is the workspace itself: name a file in it")
            with contextlib.suppress(FileNotFoundError):
                kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if not stat.S_ISREG(kind):
                    raise ToolError(f"{path} is not a regular file and cannot be written")
            yield folder, name

    # --- walking --------------------------------------------------------------------------------------------------

    def _steps(self, path: str) -> list[str]:
        if not isinstance(path, str) or not path.strip():
            raise ToolError("the path is empty: name a file or folder in the workspace")
        if "\0" in path or len(path) > _MOST_PATH:
            raise ToolError("the path contains a NUL character, or is too long")
        if path.startswith("/"):
            inside = os.path.normpath(path)
            if inside != str(self.root) and not inside.startswith(f"{self.root}/".replace("//", "/")):
                raise _outside(path)
            path = os.path.relpath(inside, self.root)
        return path.split("/")

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder that holds the last step of a path, and the last step's name: never a link, `..` or `.`.

        The name is empty for the root itself.
        """
        steps = self._steps(path)[::-1]
        folders = [os.open(self.root, _FOLDER)]
        links = 0
        name = ""
        names: list[str] = []
        try:
            while steps:
                step = steps.pop()
                if step in ("", "."):
                    continue
                if step == "..":
                    if not names:
                        raise _outside(path)
                    names.pop()
                    os.close(folders.pop())
                    continue
                target = _link(step, folders[-1])
                if target is not None:
                    links += 1
                    if links > _MOST_LINKS:
                        raise ToolError(f"{path}: too many symbolic links")
                    if target.startswith("/"):
                        raise _outside(path)
                    steps += target.split("/")[::-1]
                    continue
                if any(rest not in ("", ".") for rest in steps):
                    folders.append(_enter(step, folders[-1], path, make=make))
                    names.append(step)
                else:
                    name = step
            yield (folders[-1], name) if name else (folders[-1], "")
        finally:
            for folder in folders:
                os.close(folder)


def _link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None  # not a link, or not there: opening it will tell


def _enter(name: str, folder: int, path: str, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            try:
                os.mkdir(name, dir_fd=folder)
            except FileExistsError:
                raise
            except OSError as error:
                raise _error(path, error) from None
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        raise _error(path, error) from None


def _outside(path: str) -> ToolError:
    return ToolError(f"{path!r:.200} leads out of the workspace: use a path inside it, such as 'src/main.py'")


def _error(path: str, error: OSError) -> ToolError:
    shown = f"{path!r:.200}"
    if error.errno == errno.ENOENT:
        return ToolError(f"{shown} does not exist: list the folder to see what is there")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return ToolError(f"{shown}: a part of it is not a folder")
    return ToolError(f"{shown}: {error.strerror}")
