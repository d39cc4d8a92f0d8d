"""Finds what is protected in a workspace right now, and what a command in the sandbox has changed there.

Protected files that exist are mounted read-only in the sandbox. Those that do not exist yet cannot be mounted: a mount
needs a mount point, so that eighty empty files would appear in the person's folder, in every `git status` and `git add`
of the command, and stay there when we are killed; and below folders that do not exist yet nothing can be mounted at
all. A guard keeps them from appearing (`name_guard`). The folder is looked through before and after anyway: there
are systems without such a guard. What was not there before is renamed, so that nothing mistakes it for what it
pretended to be, nothing is lost, and the result of the command is an error that tells of it. This also catches a folder
that was moved away, mounts and all, and made again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from pathlib import Path

from glidepath.workspace.gitconfig import MOST_CONFIG, find_command_places, is_harmless
from glidepath.workspace.protected import Protection
from glidepath.workspace.protected_names import GIT_PARTS, fold_name
from glidepath.workspace.root import Workspace, find_places_used_from_above

MOST_ENTRIES = 200_000
"""How many entries of a workspace are looked at, upper folders first."""
MOST_MOUNTS = 200

Signature = tuple[object, ...]

_GIT_WORD = "git runs the commands that are named there"
_REBASE_WORD = "`git rebase --continue` runs the commands that are named there"
_REBASE = "rebase-merge/git-rebase-todo"
_WORKTREE_PARTS = ("config.worktree", "commondir", "gitdir")
ADVICE = "; a person can allow it by name with allow_protected"


class FoundFile:
    """One protected thing: where, what it is (for comparison), in which folder, why, and whether git lives there."""

    def __init__(
        self, path: str, signature: Signature, why: str, *, git: bool = False, own: bool = False, part_of: str = ""
    ) -> None:
        self.path = path
        self.signature = signature
        self.folder = _identity(os.path.dirname(path))
        self.why = why
        self.git = git
        self.own = own
        self.part_of = part_of


class FileSurvey:
    """The protected things of a workspace."""

    def __init__(self, workspace: Workspace, before: FileSurvey | None = None) -> None:
        self.root = str(workspace.root)
        self.found: list[FoundFile] = []
        self.complete = True
        self.listed: set[str] = set()
        """The folders that were looked into."""
        self.seen: set[str] = {self.root}
        """The folders that were noticed."""
        self.unlisted: set[str] = set()
        """The folders that could not be listed."""
        self.fixed: list[str] = []
        """Folders in which git works, and which must stay where they are."""
        self.readonly: list[str] = []
        """Paths that must not be changed; for a link, its target."""
        self.writable: list[str] = []
        """What a person allowed inside a read-only path."""
        self.awaited: list[str] = []
        """Paths from which git would take commands, if they were there."""
        self._protection: Protection = workspace.protection
        self._left = MOST_ENTRIES
        self._before = before
        self._links: list[str] = []

    # --- looking ----------------------------------------------------------------------------------------------------

    def scan(self) -> FileSurvey:
        """Look through the workspace and decide what to mount."""
        sent = find_places_used_from_above(Path(self.root))
        if self._protection.closed is not None or self.root in sent:
            self.readonly = [self.root]
            self.writable = [f"{self.root}/{rest}" for rest in self._protection.list_allowed_below([])]
            return self
        self._walk()
        for path in sent:
            if self._protection.is_allowed(self._steps(path)):
                continue
            if os.path.lexists(path):
                self.found.append(FoundFile(path, self._signature(path), _GIT_WORD))
            else:
                self.awaited.append(path)
        self.fixed = [one.path for one in self.found if one.git][:MOST_MOUNTS]
        paths = [os.path.realpath(path) for path in [one.path for one in self.found if not one.git] + self._links]
        inside = [path for path in paths if path.startswith(f"{self.root}/")]
        self.readonly = list(dict.fromkeys(inside))[:MOST_MOUNTS]
        for one in self.found:
            allowed = [f"{one.path}/{rest}" for rest in self._protection.list_allowed_below(self._steps(one.path))]
            self.writable += [path for path in allowed if os.path.lexists(path) and not os.path.islink(path)]
        return self

    def _walk(self) -> None:
        """The upper folders first; links are not followed. Past the limit, only folders that were looked into before.

        So that no flood of new files keeps us from looking where something could be planted.
        """
        known = self._before.listed if self._before is not None else set()
        todo = deque([self.root])
        while todo:
            folder = todo.popleft()
            if not self.complete and folder not in known:
                continue
            entries = self._entries(folder)
            if entries is None:
                continue
            self._has_room(len(entries))
            self.listed.add(folder)
            names = {entry.name.lower() for entry in entries}
            if "head" in names and ({"objects", "refs"} <= names or "commondir" in names):
                self._scan_git_folder(folder)
                continue
            for entry in entries:
                steps = self._steps(entry.path) if self._protection.may_hold(entry.name) else []
                is_folder = entry.is_dir(follow_symlinks=False)
                why = self._protection.explain_refusal(steps, entering=is_folder) if steps else None
                if why is not None:
                    self._note(entry.path, why, is_folder=is_folder, name=entry.name)
                elif is_folder and not (steps and self._protection.is_allowed(steps)):
                    self.seen.add(entry.path)
                    todo.append(entry.path)

    def _entries(self, folder: str) -> list[os.DirEntry[str]] | None:
        """The entries of a folder; None if it cannot be listed. One that a command has locked is unlocked."""
        for attempt in range(2):
            try:
                with os.scandir(folder) as listing:
                    return list(listing)
            except PermissionError:
                if attempt or self._before is None or folder in self._before.unlisted:
                    break
                with contextlib.suppress(OSError):
                    os.chmod(folder, stat.S_IMODE(os.lstat(folder).st_mode) | stat.S_IRWXU)
            except OSError:
                break
        self.unlisted.add(folder)
        return None

    def _note(self, path: str, why: str, *, is_folder: bool, name: str) -> None:
        if is_folder and fold_name(name) == ".git":
            self._scan_git_folder(path)
        else:
            own = self._protection.is_own(self._steps(path))
            signature = _identity(path) if own else self._signature(path)
            self.found.append(FoundFile(path, signature, why, own=own))

    def _scan_git_folder(self, folder: str) -> None:
        """A folder in which git has to be able to write, but not to what it takes commands from."""
        self.found.append(FoundFile(folder, _identity(folder), _GIT_WORD, git=True))
        for name in GIT_PARTS:
            path = f"{folder}/{name}"
            if os.path.lexists(path) and not self._protection.is_allowed(self._steps(path)):
                self.found.append(FoundFile(path, self._signature(path), _GIT_WORD, part_of=folder))
        for place in (folder, *_folders(f"{folder}/worktrees")):
            if _runs_commands(f"{place}/{_REBASE}"):
                path = f"{place}/{_REBASE}"
                self.found.append(FoundFile(path, self._signature(path), _REBASE_WORD, part_of=folder))
        for tree in _folders(f"{folder}/worktrees"):
            for name in _WORKTREE_PARTS:
                if os.path.lexists(f"{tree}/{name}"):
                    path = f"{tree}/{name}"
                    self.found.append(FoundFile(path, self._signature(path), _GIT_WORD, part_of=folder))
        for path in find_command_places(_configuration(folder) or "", os.path.dirname(folder)):
            inside = path.startswith(f"{self.root}/") and not path.startswith(f"{folder}/")
            if not inside or self._protection.is_allowed(self._steps(path)):
                continue
            if os.path.lexists(path):
                self.found.append(FoundFile(path, self._signature(path), _GIT_WORD, part_of=folder))
            else:
                self.awaited.append(path)

    def _signature(self, path: str) -> Signature:
        """What cannot stay the same when something is changed: not even its owner can set a change time.

        Of a folder, everything in it that nobody allowed.
        """
        try:
            found = os.lstat(path)
        except OSError:
            return ()
        if not stat.S_ISDIR(found.st_mode):
            return (found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_ctime_ns)
        below: list[Signature] = []
        todo = [path]
        while todo:
            try:
                with os.scandir(todo.pop()) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError:
                continue
            if not self._has_room(len(entries)):
                break
            for entry in entries:
                if self._protection.is_allowed(self._steps(entry.path)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.append((entry.name, entry.inode()))
                    todo.append(entry.path)
                    continue
                if entry.is_symlink():
                    self._links.append(entry.path)
                try:
                    one = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                below.append((entry.name, one.st_ino, one.st_mode, one.st_size, one.st_ctime_ns))
        return (found.st_dev, found.st_ino, found.st_mode, hash(tuple(below)))

    def _has_room(self, entries: int) -> bool:
        self._left -= entries
        if self._left < 0:
            self.complete = False
        return self.complete

    def describe_guard(self, program: str, machine: str) -> dict[str, object]:
        """What the guard of names has to know, in plain data; `program` is what makes the sandbox."""
        known = [os.stat(one.path) for one in self.found if one.git and os.path.isdir(one.path)]
        return {
            "root": self.root,
            "machine": machine,
            "program": program,
            "rules": self._protection.describe(),
            "known": [[found.st_dev, found.st_ino] for found in known],
            "awaited": [self._steps(path) for path in self.awaited],
        }

    def _steps(self, path: str) -> list[str]:
        return path[len(self.root.rstrip("/")) + 1 :].split("/")


def find_protected_entries(workspace: Workspace) -> FileSurvey:
    """What is protected in a workspace right now."""
    return FileSurvey(workspace).scan()


def set_forbidden_aside(workspace: Workspace, before: FileSurvey) -> tuple[list[str], bool]:
    """Set aside what a command has made, and say so; say what was changed although it was read-only.

    Also whether all of the workspace could be looked at.
    """
    after = FileSurvey(workspace, before).scan()
    known = {one.signature for one in before.found}
    held = {*before.fixed, *before.readonly}
    mounted = {one.path: one for one in before.found if one.path in held}
    settled: set[str] = set()
    said = []
    for one in after.found:
        if one.signature in known or one.part_of in settled:
            continue
        if not before.complete and not _is_new(one.path, before):
            continue  # it may have been there before
        shown = os.path.relpath(one.path, before.root)
        old = mounted.get(one.path)
        if one.own and (old is not None or os.path.isfile(one.path)):
            continue  # a store: we write it while a command runs
        if old is not None and old.folder == one.folder:
            # It was read-only for the command and is in the same place: another process has changed it.
            said.append(f"{shown!r:.200} is protected and was changed from outside the sandbox while the command ran")
        elif one.git and is_harmless_git_folder(one.path):
            settled.add(one.path)
        else:
            settled.add(one.path)
            said.append(f"{shown!r:.200} is protected ({one.why}): {_set_aside(one)}{ADVICE}")
    if before.complete and not after.complete:
        said.append(
            "the command made too many files to look through all of them for protected ones: remove what it made"
        )
    return said, before.complete and after.complete


def _is_new(path: str, before: FileSurvey) -> bool:
    """True when the first survey would have seen it, had it been there: it looked into the folder above."""
    folder = os.path.dirname(path)
    while folder not in before.listed and folder.startswith(before.root):
        above = os.path.dirname(folder)
        if above in before.listed:
            return folder not in before.seen
        folder = above
    return folder in before.listed


def _set_aside(one: FoundFile) -> str:
    """Rename it so that nothing finds it. A git folder also loses its HEAD, so git no longer accepts it."""
    what = "it"
    try:
        if one.git:
            what, new = "its HEAD", _move_aside(f"{one.path}/HEAD")
        if not one.git or fold_name(os.path.basename(one.path)) == ".git":
            what, new = "it", _move_aside(one.path)
    except OSError as error:
        return f"the command made it, and it could NOT be renamed ({error.strerror}): remove it"
    return f"the command made it, so {what} was renamed to {new!r:.200}"


def _move_aside(path: str) -> str:
    other = f"{path}.set-aside"
    number = 1
    while os.path.lexists(other):
        number += 1
        other = f"{path}.set-aside-{number}"
    if os.path.lexists(path):
        os.rename(path, other)
    return os.path.basename(other)


def is_harmless_git_folder(folder: str) -> bool:
    """True for a git folder that is as `git init` or `git clone` makes it: nothing in it names a command."""
    if os.path.islink(folder) or any(os.path.lexists(f"{folder}/{name}") for name in GIT_PARTS[2:] if name != "info"):
        return False
    if os.path.lexists(f"{folder}/worktrees") or _runs_commands(f"{folder}/{_REBASE}"):
        return False
    try:
        hooks = os.listdir(f"{folder}/hooks") if os.path.lexists(f"{folder}/hooks") else []
    except OSError:
        return False
    text = _configuration(folder)
    return text is not None and all(name.endswith(".sample") for name in hooks) and is_harmless(text)


def _configuration(folder: str) -> str | None:
    """The configuration of a git folder; None if it cannot be judged."""
    config = Path(folder, "config")
    try:
        if config.is_symlink() or not config.is_file() or config.stat().st_size > MOST_CONFIG:
            return None
        return config.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _runs_commands(todo: str) -> bool:
    """True for an unfinished rebase that contains commands or cannot be read."""
    if not os.path.lexists(todo):
        return False
    try:
        with open(os.open(todo, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            text = file.read(MOST_CONFIG + 1)
    except OSError:
        return True
    return len(text) > MOST_CONFIG or any(line.split(None, 1)[:1] in ([b"exec"], [b"x"]) for line in text.splitlines())


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as found:
            return [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _identity(path: str) -> Signature:
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode))
