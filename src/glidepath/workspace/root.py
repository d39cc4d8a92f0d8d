"""A folder that nothing can escape: every path is walked from it, step by step, on open folders.

A symbolic link inside the folder is followed only as far as its target lies inside, too. Because each step opens a
folder below one that is open already, nobody can swap a folder for a link between a check and its use. For the same
reason protected files are recognized by the names that were really walked, after all links.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from glidepath.values import ConfigurationError, ToolError
from glidepath.workspace.gitconfig import MOST_CONFIG, find_command_places
from glidepath.workspace.protected import Protection, is_git_folder
from glidepath.workspace.protected_names import LINKABLE, fold_name
from glidepath.workspace.secret_files import SecretFileError, SecretFiles

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MOST_LINKS = 40
_MOST_PATH = 4096
_MOST_LISTED = 1000


class Workspace:
    """A folder for tools to work in. `root` is where it really is.

    Nothing writes its protected files (`.git`, glidepath's own configuration, start files of shells, tasks of editors)
    unless `allow_protected` names them by their path, or names a folder above them. `protect` adds files of yours: a
    configuration, a store. A person is asked before a file in `secrets` is read: names and patterns such as `.env` and
    `*.pem`, by default `glidepath.workspace.secret_files.SECRET_FILES`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        allow_protected: Iterable[str] = (),
        protect: Iterable[str | os.PathLike[str]] = (),
        secrets: Iterable[str] | None = None,
    ) -> None:
        try:
            self.root = Path(root).resolve(strict=True)
        except (OSError, TypeError, ValueError) as error:
            raise ConfigurationError(f"workspace {root!r:.100} cannot be used: {error}") from None
        if not self.root.is_dir():
            raise ConfigurationError(f"workspace {str(root)!r} is not a folder")
        self.secrets = SecretFiles() if secrets is None else SecretFiles(secrets)
        inside, closed = _find_own_places(self.root, [*(os.fspath(one) for one in protect), *_data_folders()])
        self.protection = Protection(allow_protected, above=self.root.parts[1:], own=inside, closed=closed)

    # --- opening --------------------------------------------------------------------------------------------------

    @contextmanager
    def file(self, path: str, *, secrets: bool = True) -> Iterator[int]:
        """An open descriptor of a regular file, for reading; raises `ToolError` for everything else.

        Without `secrets`, `SecretFileError` for a file that a person is to be asked about.
        """
        with self._open_path(path, _FILE, secrets=secrets) as found:
            kind = os.fstat(found).st_mode
            if stat.S_ISDIR(kind):
                raise ToolError(f"{path} is a folder: use list")
            if not stat.S_ISREG(kind):
                raise ToolError(f"{path} is not a regular file")
            yield found

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """An open descriptor of a folder."""
        with self._open_path(path, _FOLDER) as found:
            yield found

    @contextmanager
    def _open_path(self, path: str, flags: int, *, secrets: bool = True) -> Iterator[int]:
        with self._parent(path, secrets=secrets) as (folder, name):
            try:
                found = os.open(name or ".", flags, dir_fd=folder)
            except OSError as error:
                raise _make_path_error(path, error) from None
            try:
                yield found
            finally:
                os.close(found)

    @contextmanager
    def place(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder of a file to write, created on request, and the file's name there."""
        with self._parent(path, make=make, writing=True) as (folder, name):
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
                raise _make_outside_error(path)
            path = os.path.relpath(inside, self.root)
        return path.split("/")

    @contextmanager
    def _parent(
        self, path: str, *, make: bool = False, writing: bool = False, secrets: bool = True
    ) -> Iterator[tuple[int, str]]:
        """The open folder that holds the last step of a path, and the last step's name: never a link, `..` or `.`.

        The name is empty for the root itself.
        """
        steps = self._steps(path)[::-1]
        if make and (
            why := self.protection.explain_refusal([step for step in reversed(steps) if step not in ("", ".")])
        ):
            raise _make_protected_error(path, why)  # the walk would notice, too, but only after making folders
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
                        raise _make_outside_error(path)
                    names.pop()
                    os.close(folders.pop())
                    continue
                last = all(rest in ("", ".") for rest in steps)
                if writing:
                    self._refuse_protected([*names, step], folders[-1], entering=not last)
                target = _link(step, folders[-1])
                if target is not None:
                    links += 1
                    if links > _MOST_LINKS:
                        raise ToolError(f"{path}: too many symbolic links")
                    if target.startswith("/"):
                        raise _make_outside_error(path)
                    steps += target.split("/")[::-1]
                    continue
                if last:
                    name = step
                else:
                    folders.append(_enter(step, folders[-1], path, make=make))
                    names.append(step)
            if writing and name:
                self._refuse_target(folders, names, name)
            if not secrets and self.secrets.has([*names, name]):
                raise SecretFileError(f"{'/'.join([*names, name])!r:.200} may hold secrets, and nobody was asked")
            yield folders[-1], name
        finally:
            for folder in folders:
                os.close(folder)

    def _refuse_protected(self, steps: list[str], folder: int, *, entering: bool) -> None:
        """Reject a protected step before it is made, entered or followed: not even a folder is made on the way."""
        why = self.protection.explain_refusal(steps, entering=entering)
        if why is None and is_git_folder(folder) and not self.protection.is_allowed(steps):
            why = "its folder is a git repository's own, and git runs the commands that are named there"
        if why is not None and not (entering and self.protection.list_allowed_below(steps)):
            raise _make_protected_error("/".join(steps), why)

    def _refuse_target(self, folders: list[int], names: list[str], name: str) -> None:
        """Reject the target of a protected link further up, and files that a git configuration points to."""
        steps = [*names, name]
        self._refuse_from_above(steps)
        for depth, folder in enumerate(folders):
            for place in _find_places_named_by_git(folder, "/".join([str(self.root), *names[:depth]])):
                there = [fold_name(step) for step in steps[depth : depth + len(place)]]
                if there == [fold_name(step) for step in place] and not self.protection.is_allowed(steps):
                    raise _make_protected_error(
                        "/".join(steps), "the repository's configuration has git take commands from it"
                    )
        try:
            target = os.stat(name, dir_fd=folders[-1], follow_symlinks=False)
        except OSError:
            return
        for depth, folder in enumerate(folders):
            for row, link in _find_protected_links(folder):
                there = [*names[:depth], *link.split("/")]
                if self.protection.is_allowed(there):
                    continue
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.stat(link, dir_fd=folder), target):
                        why = f"{'/'.join([*names, name])!r:.200} is what it links to, and {LINKABLE[row]}"
                        raise _make_protected_error("/".join(there), why)

    def _refuse_from_above(self, steps: list[str]) -> None:
        """Reject files from which a repository around the workspace has git take commands."""
        if self.protection.is_allowed(steps):
            return
        target = os.path.realpath(self.root.joinpath(*steps))
        for place in find_places_used_from_above(self.root):
            if target == place or target.startswith(f"{place}/"):
                raise _make_protected_error(
                    "/".join(steps), "the repository around the workspace has git take commands from it"
                )


def find_places_used_from_above(root: Path) -> list[str]:
    """Files and folders in the workspace from which a repository around it takes commands."""
    places = []
    for folder in root.parents:
        git = folder / ".git"
        if not git.is_dir():
            continue
        with contextlib.suppress(OSError), (git / "config").open(encoding="utf-8", errors="replace") as file:
            places += find_command_places(file.read(MOST_CONFIG), str(folder))
        with contextlib.suppress(OSError), os.scandir(git / "hooks") as entries:
            places += [entry.path for entry in islice(entries, _MOST_LISTED) if entry.is_symlink()]
    found = [os.path.realpath(place) for place in places]
    return [place for place in found if Path(place).is_relative_to(root)]


def _find_own_places(root: Path, places: Iterable[str]) -> tuple[list[list[str]], str | None]:
    """The places inside the workspace, as steps from it; or the reason why the whole workspace is protected."""
    inside = []
    for place in places:
        if "\0" in place:
            continue  # there is no such file
        for path in {os.path.abspath(place), os.path.realpath(place)}:  # noqa: PTH100 - a link, and what it leads to
            if root.is_relative_to(path):
                return [], "it belongs to glidepath itself"
            if Path(path).is_relative_to(root):
                inside.append(os.path.relpath(path, root).split("/"))
    for folder in root.parents:
        if (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir():
            return [], "its folder is a git repository's own, and git runs the commands that are named there"
    return inside, None


def _data_folders() -> list[str]:
    """Where glidepath keeps sessions and the list of trusted folders, on any system."""
    home = os.path.expanduser("~")  # noqa: PTH111 - where there is no home, there is no error
    data = os.environ.get("XDG_DATA_HOME", "")
    names = [f"{home}/.local/share", f"{home}/Library/Application Support", data]
    return [f"{name}/glidepath" for name in names if name.startswith("/")]


def _find_places_named_by_git(folder: int, top: str) -> list[list[str]]:
    """Paths below this folder that its repository's configuration points git to."""
    try:
        found = os.open(".git/config", _FILE, dir_fd=folder)
    except OSError:
        return []
    with os.fdopen(found, "rb") as file:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            return []
        text = file.read(MOST_CONFIG).decode(errors="replace")
    places = [os.path.relpath(place, top) for place in find_command_places(text, top)]
    return [place.split("/") for place in places if not place.startswith("..")]


def _find_protected_links(folder: int) -> Iterator[tuple[str, str]]:
    """Every protected name in this folder that is a link or contains links, with those links."""
    for row in LINKABLE:
        if _link(row, folder) is not None:
            yield row, row
            continue
        for place in (row, f"{row}/hooks") if row == ".git" else (row,):
            try:
                found = os.open(place, _FOLDER, dir_fd=folder)
            except OSError:
                continue
            try:
                with os.scandir(found) as entries:
                    links = [entry.name for entry in islice(entries, _MOST_LISTED) if entry.is_symlink()]
            finally:
                os.close(found)
            for name in links:
                yield row, f"{place}/{name}"


def _link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None  # not a link, or not there: opening it will tell


def _enter(name: str, folder: int, path: str, *, make: bool) -> int:
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        raise _make_path_error(path, error) from None


def _make_protected_error(place: str, why: str) -> ToolError:
    return ToolError(
        f"{place!r:.200} is protected and nothing was written: {why}. Do without it, or ask the person, who can allow "
        "it by name: --allow-protected on the command line, allow_protected in the configuration file, or "
        "Workspace(..., allow_protected=[...])"
    )


def _make_outside_error(path: str) -> ToolError:
    return ToolError(f"{path!r:.200} leads out of the workspace: use a path inside it, such as 'src/main.py'")


def _make_path_error(path: str, error: OSError) -> ToolError:
    shown = f"{path!r:.200}"
    if error.errno == errno.ENOENT:
        return ToolError(f"{shown} does not exist: list the folder to see what is there")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return ToolError(f"{shown}: a part of it is not a folder")
    return ToolError(f"{shown}: {error.strerror}")
