"""Under which name a command may make something: a protected thing never appears under its own.

What is protected by its name gets another one from the beginning. A new repository is allowed, because git makes them
in honest work, until it would name a command: then the whole of it loses its name *before* that happens. Its
configuration is never the file that the command writes into: it is judged, and what is found in the repository is a
copy that nobody has open. Folders are open descriptors, and names in them are not links, so nothing can be swapped.

Only one process uses this at a time, and all names that the command makes go through it. Only the standard library and
modules like this one are imported: it is loaded by path, outside of the package.
"""

from __future__ import annotations

import itertools
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress

from glidepath.workspace.gitconfig import MOST_CONFIG, is_harmless
from glidepath.workspace.protected_names import GIT_PARTS, GIT_WORD, NameRules, fold_name

__all__ = ["ASIDE", "NewNames", "free_name"]

ASIDE = ".set-aside"
_ADVICE = "; a person can allow it by name with allow_protected"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_COMMANDS = frozenset({"commondir", "config.worktree", "modules"})  # a repository of this kind never has them
_OF_GIT = frozenset({"head", "objects", "refs", "hooks", "config", *_COMMANDS})
_MOST_SAID = 200

Steps = tuple[str, ...]
Identity = tuple[int, int]


class NewNames:
    """Decides about the names that a command makes. `kind` is `file`, `folder`, `link`, `twin` (hard link) or `other`.

    `known` are the repositories' own folders that were there before, by device and inode; `awaited` are paths from
    which git would take commands if they were there. `said` tells what was renamed, in words for the model.
    """

    def __init__(
        self, root: str, rules: NameRules, *, known: Iterable[Identity], awaited: Iterable[Steps], own: int
    ) -> None:
        self._root = root
        self._rules = rules
        self._known = frozenset(known)
        self._awaited = frozenset(tuple(fold_name(step) for step in path) for path in awaited)
        self._own = own  # an open folder: /proc/self of this process
        self.aliases: dict[str, str] = {}
        """The names that things have got, by the path that the command wanted."""
        self.said: list[str] = []
        self._unsaid: tuple[str, str, str] | None = None  # path, other name, words: until it has happened

    # --- where ----------------------------------------------------------------------------------------------------

    def path_of(self, descriptor: int) -> str:
        """The path of something open."""
        return os.readlink(f"fd/{descriptor}", dir_fd=self._own)

    def steps_of(self, folder: int) -> Steps | None:
        """The steps from the workspace to an open folder; None when it is not in there."""
        path = self.path_of(folder)
        if path == self._root:
            return ()
        return tuple(path[len(self._root) + 1 :].split("/")) if path.startswith(f"{self._root}/") else None

    def is_config(self, folder: int, name: str) -> bool:
        """True for the configuration of a repository that the command has made, or makes."""
        steps = self.steps_of(folder) if fold_name(name) == "config" else None
        if not steps or self._rules.is_allowed((*steps, name)) or _identify(folder) in self._known:
            return False
        return fold_name(steps[-1]) == ".git" or _is_repository(_lower_names(folder))

    def _is_mounted(self, folder: int, name: str) -> bool:
        """True for what is there and has its own mount: it is read-only, and the kernel refuses by itself."""
        try:
            found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            return False
        try:
            return self._mount_of(found) != self._mount_of(folder)
        finally:
            os.close(found)

    def _mount_of(self, descriptor: int) -> bytes:
        file = os.open(f"fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._own)
        try:
            return next(line for line in os.read(file, 4096).split(b"\n") if line.startswith(b"mnt_id:"))
        finally:
            os.close(file)

    # --- which name -----------------------------------------------------------------------------------------------

    def choose(self, folder: int, name: str, kind: str, source: int | None = None) -> str:
        """The name that something new gets in an open folder; `source` is the open folder that is moved there.

        Whatever must lose its own name first has lost it when this returns. Raises `OSError` when that is impossible.
        """
        steps = self.steps_of(folder)
        if steps is None or self._rules.is_allowed((*steps, name)) or self._is_mounted(folder, name):
            return name
        at = next((end for end, step in enumerate(steps, 1) if fold_name(step) == ".git"), None)
        if at is None or self._rules.is_allowed(steps[:at]):
            chosen = self._check_by_name(folder, (*steps, name), kind, source)
        else:
            chosen = self._check_inside_git(folder, steps, at, name, kind, source)
        if chosen != name:
            return chosen
        return self._check_beside_head(folder, steps, name, kind, source)

    def _check_by_name(self, folder: int, full: Steps, kind: str, source: int | None) -> str:
        name = full[-1]
        entering = kind == "folder"
        why = self._rules.explain_refusal(full, entering=entering) if self._rules.may_hold(name) else None
        if why is None and any(tuple(map(fold_name, full[:end])) in self._awaited for end in range(1, len(full) + 1)):
            why = GIT_WORD
        if why is None and kind in ("folder", "link"):
            why = self._explain_protected_path(full, kind, source)
        if why is None:
            return name
        if entering and fold_name(name) == ".git":
            if source is None:
                return name
            if self._is_harmless(source):
                self._freeze(source)
                return name
        return self._choose_other_name(folder, full, why)

    def _explain_protected_path(self, full: Steps, kind: str, source: int | None) -> str | None:
        """Why a folder or a link must not get this name: with what is in it, it would be a protected path."""
        rests = self._rules.list_protected_below(full)
        names = tuple(map(fold_name, full))
        rests += [(path[len(names) :], GIT_WORD) for path in self._awaited if path[: len(names)] == names != path]
        for rest, why in rests:
            if kind == "link" or (source is not None and _contains(source, rest)):
                return why
        return None

    def _check_inside_git(self, folder: int, steps: Steps, at: int, name: str, kind: str, source: int | None) -> str:
        part = tuple(fold_name(step) for step in (*steps[at:], name))
        git = os.open("/".join([".", *[".."] * (len(steps) - at)]), _FOLDER, dir_fd=folder)
        try:
            known = _identify(git) in self._known
            if known and len(part) == 1 and part[0] in GIT_PARTS:
                return self._choose_other_name(folder, (*steps, name), GIT_WORD)
            if not _is_command(part, name, kind, source):
                return name
            if known:
                return self._choose_other_name(folder, (*steps, name), GIT_WORD)
            self.set_aside(git)
        finally:
            os.close(git)
        return name

    def _check_beside_head(self, folder: int, steps: Steps, name: str, kind: str, source: int | None) -> str:
        """A folder is a repository, whatever its name, if it has the right things in it."""
        low = fold_name(name)
        hook = bool(steps) and fold_name(steps[-1]) == "hooks" and len(steps) > 1
        if low not in _OF_GIT and not hook:
            return name
        place = folder if low in _OF_GIT else os.open("..", _FOLDER, dir_fd=folder)
        try:
            above = steps if place == folder else steps[:-1]
            names = _lower_names(place) | ({low} if place == folder else set())
            if (
                (above and fold_name(above[-1]) == ".git")
                or _identify(place) in self._known
                or not _is_repository(names)
            ):
                return name
            part = (low,) if place == folder else ("hooks", low)
            if _is_command(part, name, kind, source) or not self._is_harmless(place):
                if low == "head":
                    return self._choose_other_name(folder, (*steps, name), GIT_WORD, whole=above)
                self.set_aside(place)
            elif low != "config":
                self._freeze(place)
        finally:
            if place != folder:
                os.close(place)
        return name

    # --- other names ----------------------------------------------------------------------------------------------

    def _choose_other_name(self, folder: int, full: Steps, why: str, whole: Steps | None = None) -> str:
        """The name that this gets instead, the same one as before if it has one."""
        path = "/".join((self._root, *full))
        other = self.aliases.get(path)
        if other is not None and _is_there(folder, other):
            return other
        other = free_name(full[-1], folder)
        shown = "/".join(full if whole is None else whole)
        self._unsaid = (path, other, _describe(shown, why, other, "it" if whole is None else "its HEAD"))
        return other

    def forget(self) -> None:
        """Another call begins: what the last one wanted was not made."""
        self._unsaid = None

    def confirm(self) -> None:
        """What `choose` gave another name was made."""
        if self._unsaid is not None:
            path, other, words = self._unsaid
            self.aliases[path] = other
            self._add_sentence(words)
            self._unsaid = None

    def set_aside(self, repository: int) -> None:
        """Make a repository one no longer: its HEAD loses its name, and its own folder, too. Raises `OSError`."""
        path = self.path_of(repository)
        name = path.rpartition("/")[2]
        shown = "/".join(self.steps_of(repository) or (name,))
        heads = [self._rename(repository, one) for one in names_in(repository) if fold_name(one) == "head"]
        if fold_name(name) != ".git":
            for head in heads:
                self._add_sentence(_describe(shown, GIT_WORD, head, "its HEAD"))
            return
        up = os.open("..", _FOLDER, dir_fd=repository)
        try:
            self.aliases[path] = self._rename(up, name)
        finally:
            os.close(up)
        self._add_sentence(_describe(shown, GIT_WORD, self.aliases[path], "it"))

    def _rename(self, folder: int, name: str) -> str:
        other = free_name(name, folder)
        os.rename(name, other, src_dir_fd=folder, dst_dir_fd=folder)
        return other

    def _add_sentence(self, words: str) -> None:
        if len(self.said) < _MOST_SAID:
            self.said.append(words)

    # --- configurations -------------------------------------------------------------------------------------------

    def publish(self, repository: int, data: bytes, mode: int = 0o644) -> None:
        """Give a repository this configuration, in a file that nobody has open. One that names a command ends it."""
        if not _is_harmless_text(data):
            self.set_aside(repository)
        unfinished = f"config.{secrets.token_hex(8)}.new"
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o666, dir_fd=repository)
        try:
            os.write(file, data)
        finally:
            os.close(file)
        os.rename(unfinished, "config", src_dir_fd=repository, dst_dir_fd=repository)

    def _freeze(self, repository: int) -> None:
        """Exchange the configuration for a copy: the command may still have the one that it wrote open."""
        with suppress(FileNotFoundError):
            data, mode = read_file(repository, "config")
            self.publish(repository, data, mode)

    def _is_harmless(self, repository: int) -> bool:
        """True for a repository's folder in which nothing names a command so far; it may have no configuration yet."""
        names = _lower_names(repository)
        if names & _COMMANDS or "worktrees" in names:
            return False
        try:
            if "hooks" in names and not _are_samples(names_in(repository, "hooks")):
                return False
            return "config" not in names or _is_harmless_text(read_file(repository, "config")[0])
        except OSError:
            return False


def _describe(shown: str, why: str, other: str, what: str) -> str:
    renamed = f"the command made it, so {what} was renamed to {other!r:.200} at once"
    return f"{shown!r:.200} is protected ({why}): {renamed}{_ADVICE}"


def read_file(folder: int, name: str) -> tuple[bytes, int]:
    """What a plain file begins with, a little more than a configuration may have, and its mode; raises `OSError`."""
    file = os.open(name, _FILE, dir_fd=folder)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(22, "not a file")
        return os.read(file, MOST_CONFIG + 1), stat.S_IMODE(found.st_mode)
    finally:
        os.close(file)


def free_name(name: str, folder: int) -> str:
    """Another name in this folder for what is set aside."""
    taken = set(names_in(folder))
    names = itertools.chain([f"{name}{ASIDE}"], (f"{name}{ASIDE}-{number}" for number in itertools.count(2)))
    return next(other for other in names if other not in taken)


def _is_harmless_text(data: bytes) -> bool:
    return len(data) <= MOST_CONFIG and is_harmless(data.decode(errors="replace"))


def _is_command(part: Sequence[str], name: str, kind: str, source: int | None) -> bool:
    """True for a part of a repository from which git would run something. `part` is its folded path in there."""
    if part[-1] == "config.worktree" or (len(part) == 1 and part[0] in _COMMANDS):
        return True
    if part == ("config",):
        return kind != "file"
    if part == ("hooks",):
        return kind != "folder" or (source is not None and not _are_samples(names_in(source)))
    return len(part) == 2 and part[0] == "hooks" and not name.endswith(".sample")  # noqa: PLR2004


def _are_samples(names: Iterable[str]) -> bool:
    return all(name.endswith(".sample") for name in names)


def _is_repository(names: set[str]) -> bool:
    return "head" in names and ({"objects", "refs"} <= names or "commondir" in names)


def _lower_names(folder: int) -> set[str]:
    return {fold_name(name) for name in names_in(folder)}


def names_in(folder: int, name: str = ".") -> list[str]:
    """The names in a folder of an open folder, which need not be open for reading; raises `OSError`."""
    inner = os.open(name, _FOLDER, dir_fd=folder)
    try:
        return os.listdir(inner)  # noqa: PTH208 - an open folder
    finally:
        os.close(inner)


def _contains(folder: int, rest: Sequence[str]) -> bool:
    """True when this path is below an open folder, in any spelling."""
    for name in names_in(folder):
        if fold_name(name) != rest[0]:
            continue
        if len(rest) == 1:
            return True
        with suppress(OSError):
            inner = os.open(name, _FOLDER, dir_fd=folder)
            try:
                if _contains(inner, rest[1:]):
                    return True
            finally:
                os.close(inner)
    return False


def _is_there(folder: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _identify(folder: int) -> Identity:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino
