"""The sandbox of a replay: a copy of the workspace in its place, the agent, and no network but the gate."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from glidepath._wire import Value
from glidepath.tools import Boxed, Sandbox
from glidepath.tools.sandbox import explain_unusable
from glidepath.values import ConfigurationError

LARGEST_COPY = 4 << 30
"""Bytes of a workspace that are copied."""
HOME_FILES: Mapping[str, tuple[str, ...]] = {
    # Not all of `.config/git`: git keeps logins there.
    "": (
        ".gitconfig",
        ".config/git/config",
        ".config/git/ignore",
        ".config/git/attributes",
        ".profile",
        ".bashrc",
        ".bash_profile",
        ".zshrc",
        ".zshenv",
    ),
    "claude-code": (
        ".claude/settings.json",
        ".claude/CLAUDE.md",
        ".claude/agents",
        ".claude/commands",
        ".claude/hooks",
        ".claude/output-styles",
        ".claude/plugins",
        ".claude/rules",
        ".claude/skills",
        ".claude/projects/{folder}/memory",
    ),
    "codex": (".codex/config.toml", ".codex/AGENTS.md", ".codex/prompts", ".codex/rules", ".codex/skills"),
    "opencode": (".config/opencode",),
    "gemini-cli": (".gemini/settings.json", ".gemini/GEMINI.md", ".gemini/commands", ".gemini/extensions"),
    "qwen-code": (".qwen/settings.json", ".qwen/QWEN.md", ".qwen/commands"),
}
"""What of the home folder an agent sees, for every program and for those of this name. No logins."""
OWN_SANDBOXES: Mapping[str, tuple[str, ...]] = {
    "codex": ("danger-full-access", "--dangerously-bypass-approvals-and-sandbox", "--yolo"),
}
"""Agents that put commands into a sandbox themselves, each with the words that tell it not to."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE")
_LEADS_OUT = re.compile(r"(?i:.*_PROXY)|SSH_.*|DBUS_.*|XDG_RUNTIME_DIR|DISPLAY|WAYLAND_DISPLAY|TMPDIR|VIRTUAL_ENV")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc", "/dev", "/proc", "/sys", "/boot")
_MEMORY, _PROCESSES, _FILES = 16 << 30, 1024, 8192
_HEAD = 256


class Isolation(Value, frozen=True, kw_only=True):
    """Where things are: outside, and inside of the sandbox."""

    copy: Path
    """The copy of the workspace."""
    folder: str
    """Where it is inside: where the workspace was when it was recorded."""
    home_copy: Path
    home: str
    read: tuple[str, ...]
    """What else can be read: the agent, its interpreter, overlays."""

    def enter(self, command: Sequence[str], environ: Mapping[str, str], port: int) -> Boxed:
        """The command in its sandbox, where only this port is reached; raises `SandboxError`."""
        places = {self.home: ("--bind", str(self.home_copy)), self.folder: ("--bind", str(self.copy))}
        for path in self.read:
            if not _is_inside(path, self.folder) and path not in places:
                places[path] = ("--ro-bind", path)
        binds: list[str] = []
        for path in sorted(places):  # a folder before what is in it
            how, source = places[path]
            binds += [how, source, path]
        # After everything: the command begins in its folder, which is there only inside.
        words = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', self.folder, *command]
        sandbox = Sandbox(
            memory=_MEMORY, processes=_PROCESSES, file_size=LARGEST_COPY, files=_FILES, by=("bubblewrap",)
        )
        return sandbox.enter(words, env={**environ, "HOME": self.home}, binds=binds, doors=[port])


def explain_no_sandbox() -> str:
    """Why a replay cannot be isolated here; empty when it can."""
    return explain_unusable("bubblewrap")


def explain_own_sandbox(agent: str, command: Sequence[str]) -> str:
    """What to do about an agent whose own sandbox cannot start inside this one; empty when it starts none."""
    words = OWN_SANDBOXES.get(agent)
    if words is None or any(word in text for text in command for word in words):
        return ""
    return (
        f"{agent} puts commands into a sandbox itself, which cannot start inside this one: record it with "
        f"{words[0]}, or replay it with --run-tools-again"
    )


def check_inside(folder: str, home: str) -> None:
    """Raise `ConfigurationError` for a place that a copy of the workspace cannot have."""
    for what, said in (("working folder", folder), ("home folder", home)):
        is_plain = said.startswith("/") and not said.startswith("//") and "\0" not in said
        if not is_plain or os.path.normpath(said) != (said.rstrip("/") or "/"):
            raise ConfigurationError(
                f"the {what} of the recording, {said!r:.120}, is not a plain absolute path: no copy can take its "
                "place. Replay it with --run-tools-again, which runs the tools as you"
            )
    path = os.path.normpath(folder)
    if not path.startswith("/") or path == "/" or any(_is_inside(path, one) for one in _SYSTEM) or path == "/tmp":  # noqa: S108
        raise ConfigurationError(
            f"the recording was made in {folder!r:.120}, which is part of the system: no copy can take its place. "
            "Replay it with --run-tools-again, which runs the tools as you"
        )
    if os.path.normpath(home) == "/" or any(_is_inside(os.path.normpath(home), one) for one in _SYSTEM):
        raise ConfigurationError(
            f"the home folder of the recording, {home!r:.120}, is part of the system: no copy can take its place. "
            "Replay it with --run-tools-again, which runs the tools as you"
        )
    if path == os.path.normpath(home):
        raise ConfigurationError(
            f"the recording was made in the home folder, {folder!r:.120}: a copy of all of it would be needed. Replay "
            "it with --run-tools-again, which runs the tools as you"
        )


def copy_workspace(source: Path, target: Path) -> None:
    """Copy a folder with its times and links; raises `ConfigurationError` for one that is too large."""
    if _is_inside(os.path.realpath(target), os.path.realpath(source)):  # it would be copied into itself without end
        raise ConfigurationError(
            f"the workspace {source} cannot be copied to {target}, which is inside it: name another folder with --keep "
            "or --workspace"
        )
    size = 0
    for place, folders, files in os.walk(source):
        for name in (*files, *folders):
            about = os.lstat(Path(place) / name)
            size += about.st_size if stat.S_ISREG(about.st_mode) else 0
            if size > LARGEST_COPY:
                raise ConfigurationError(
                    f"{source} has more than {LARGEST_COPY >> 30} GiB: name a smaller folder with --workspace"
                )

    def skip(place: str, names: list[str]) -> list[str]:
        return [name for name in names if not _is_copied(Path(place) / name)]

    try:
        shutil.copytree(source, target, symlinks=True, ignore=skip, dirs_exist_ok=False)
    except (OSError, shutil.Error) as error:
        raise ConfigurationError(f"the workspace {source} cannot be copied: {_first_reason(error)}") from None


def _first_reason(error: OSError | shutil.Error) -> str:
    reasons = error.args[0] if isinstance(error, shutil.Error) and error.args else None
    return str(reasons[0][2]) if isinstance(reasons, list) and reasons else str(error)


def _is_copied(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def copy_home(source: Path, target: Path, agent: str, folder: str) -> None:
    """Copy what an agent reads in the home folder, and no login of anybody."""
    target.mkdir(mode=0o700, parents=True)
    slug = re.sub(r"[^A-Za-z0-9]", "-", folder)
    names = (*HOME_FILES[""], *HOME_FILES.get(agent, ()))
    for name in [one.format(folder=slug) for one in names]:
        found, made = source / name, target / name
        if found.is_dir():
            copy_workspace(found, made)
        elif found.is_file():
            made.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, made)


def choose_environment(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The variables inside: those of outside without secrets and ways out, and what the gate has set."""
    changed = {name: value for name, value in given.items() if environ.get(name) != value}
    kept = {
        name: value
        for name, value in given.items()
        if not _SECRET.search(name.upper()) and not _LEADS_OUT.fullmatch(name)
    }
    return {**kept, **{name: value for name, value in changed.items() if not _LEADS_OUT.fullmatch(name)}}


def find_programs(command: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The folders that a command line is made of: where its programs are installed, and their interpreters."""
    found: dict[str, None] = {}
    todo = [command[0], *[word for word in command[1:] if word.startswith("/")]]
    for _ in range(_HEAD):
        if not todo:
            break
        word = todo.pop(0)
        path = shutil.which(word, path=environ.get("PATH")) if "/" not in word else word
        if path is None or not os.path.isfile(path):  # noqa: PTH113
            continue
        for place in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):  # noqa: PTH100
            root = _find_root(Path(place), environ.get("HOME", ""))
            if root in found:
                continue
            found[root] = None
            todo += _find_interpreters(Path(place))
    return [one for one in found if not any(_is_inside(one, place) for place in ("/usr", "/bin", "/lib", "/opt"))]


def _find_root(path: Path, home: str) -> str:
    """The folder that a program needs to see of its installation; the file alone where others have theirs beside it."""
    parts = path.parts
    if "node_modules" in parts:
        return str(Path(*parts[: parts.index("node_modules") + 1]))
    shared = {home, f"{home}/.local", "/usr", "/usr/local", "/"}
    if path.parent.name == "bin" and str(path.parent.parent) not in shared:
        return str(path.parent.parent)
    return str(path)


def _find_interpreters(path: Path) -> Iterator[str]:
    """What runs a script: the words of its first line."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return
    if head.startswith(b"#!"):
        words = head[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split()
        yield from [word for word in words if not word.startswith("-") and word != "/usr/bin/env"]
    if (path.parent.parent / "pyvenv.cfg").is_file():
        yield os.path.realpath(path.parent / "python")


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
