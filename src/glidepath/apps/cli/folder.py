"""Files in a folder that would steer an agent: read once, so that the trusted bytes are the ones used."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from glidepath.tools import list_files_below, read_regular_file

CONFIGURATION = ("glidepath.toml", "glidepath.json")
COVERED = (*CONFIGURATION, ".mcp.json", "AGENTS.md")
COMMANDS = (".claude/commands", ".glidepath/commands")
"""Folders of slash commands; of two with a name, the one in the later folder counts."""
SKILLS = (".agents/skills", ".claude/skills", ".glidepath/skills")
AGENTS = (".claude/agents", ".glidepath/agents")
STEERING = (*COMMANDS, *SKILLS, *AGENTS)
"""One decision covers the files above and everything under these folders."""
SKILL_FILE = "SKILL.md"
MOST_BYTES = 1_000_000
_MOST_FILES, _MOST_IN_ALL = 1_000, 10_000_000


class Folder:
    """A folder and the bytes of its covered files. Use these bytes: the files may have changed since.

    `links` says where a file that is a symbolic link leads. `unread` has the files that could not be read and why; with
    any of them the folder cannot be trusted, because nobody could say to what.
    """

    def __init__(self, path: Path, files: dict[str, bytes], links: dict[str, str], unread: dict[str, str]) -> None:
        self.path = path
        self.files = files
        self.links = links
        self.unread = unread

    @property
    def digest(self) -> str:
        """One digest over all names and bytes; it changes when anything does."""
        whole = hashlib.sha256(b"glidepath folder 1\n")
        for name in sorted(self.files):
            for part in (os.fsencode(name), self.files[name]):
                whole.update(len(part).to_bytes(8, "big") + part)
        return f"sha256:{whole.hexdigest()}"


def read_folder(path: Path) -> Folder:
    """Read the covered files of a folder: regular files only, and never more than the limits above."""
    folder = Folder(path.resolve(), {}, {}, {})
    left = _MOST_IN_ALL
    for number, name in enumerate((*COVERED, *_list_steering_files(folder))):
        if number >= _MOST_FILES:
            folder.unread[_top(name)] = f"has, with the others, more than {_MOST_FILES:,} files"
            break
        data = _read(folder, name)
        if data is None:
            continue
        left -= len(data)
        if left < 0:
            folder.unread[_top(name)] = f"has, with the others, more than {_MOST_IN_ALL:,} bytes"
            break
        folder.files[name] = data
    return folder


def _top(name: str) -> str:
    """The folder of commands, skills or agents that a file is in."""
    return next((place for place in STEERING if name.startswith(f"{place}/")), ".")


def _list_steering_files(folder: Folder) -> Iterator[str]:
    """The names of the files in the folders that steer an agent. Links to folders are not followed."""
    for place in STEERING:
        steps = Path(place).parts
        if not any(folder.path.joinpath(*steps[: number + 1]).is_symlink() for number in range(len(steps))):
            yield from list_files_below(folder.path, place, folder.unread)
    if (folder.path / SKILL_FILE).is_file():  # a skill by itself: all of it is what the agent reads
        yield from (name for name in list_files_below(folder.path, "", folder.unread) if name not in COVERED)


def _read(folder: Folder, name: str) -> bytes | None:
    """The bytes of a regular file; None for one that is not there, or is something else."""
    path = folder.path / name
    try:
        data = read_regular_file(path, MOST_BYTES)
        if data is not None and path.is_symlink():
            folder.links[name] = str(path.readlink())
    except OSError as error:
        folder.unread[name] = f"cannot be read: {error.strerror or error}"
        return None
    if data is not None and len(data) > MOST_BYTES:
        folder.unread[name] = f"is larger than {MOST_BYTES:,} bytes"
        return None
    return data
