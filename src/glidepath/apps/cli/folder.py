"""Files in a folder that would steer an agent: read once, so that the trusted bytes are the ones used."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

CONFIGURATION = ("glidepath.toml", "glidepath.json")
COVERED = (*CONFIGURATION, ".mcp.json", "AGENTS.md")
COMMANDS = ".glidepath/commands"
"""One decision covers these files and everything under this folder."""
MOST_BYTES = 1_000_000
_MOST_FILES, _MOST_IN_ALL, _MOST_DEEP = 1_000, 10_000_000, 8
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)


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
    for number, name in enumerate((*COVERED, *_commands(folder))):
        if number >= _MOST_FILES:
            folder.unread[COMMANDS] = f"has more than {_MOST_FILES:,} files"
            break
        data = _read(folder, name)
        if data is None:
            continue
        left -= len(data)
        if left < 0:
            folder.unread[COMMANDS] = f"has files of more than {_MOST_IN_ALL:,} bytes in all"
            break
        folder.files[name] = data
    return folder


def _commands(folder: Folder) -> Iterator[str]:
    """The names of the files in the folder of commands. Links to folders are not followed."""
    if any((folder.path / part).is_symlink() for part in (".glidepath", COMMANDS)):
        return
    waiting = [(COMMANDS, 0)]
    while waiting:
        name, deep = waiting.pop()
        try:
            with os.scandir(folder.path / name) as listed:
                entries = list(islice(listed, _MOST_FILES + 1))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            folder.unread[name] = f"cannot be read: {error.strerror or error}"
            continue
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield f"{name}/{entry.name}"
            elif deep < _MOST_DEEP:
                waiting.append((f"{name}/{entry.name}", deep + 1))
            else:
                folder.unread[name] = f"has folders more than {_MOST_DEEP} deep"


def _read(folder: Folder, name: str) -> bytes | None:
    """The bytes of a regular file; None for one that is not there, or is something else."""
    path = folder.path / name
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a device or a pipe may do something
            return None
        descriptor = os.open(path, _FLAGS)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(MOST_BYTES + 1)
        if path.is_symlink():
            folder.links[name] = str(path.readlink())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:  # a link that leads to itself leads to nothing
            folder.unread[name] = f"cannot be read: {error.strerror or error}"
        return None
    if len(data) > MOST_BYTES:
        folder.unread[name] = f"is larger than {MOST_BYTES:,} bytes"
        return None
    return data
