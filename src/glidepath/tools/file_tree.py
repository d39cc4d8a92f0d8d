"""Reads the files of a folder that others may have written: regular files only, and within limits."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MOST_FILES, MOST_DEEP = 1_000, 8
_LEFT_OUT = (".git", "__pycache__")  # what git and Python keep for themselves: nobody is given it
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)


def list_files_below(root: Path, folder: str, unread: dict[str, str]) -> Iterator[str]:
    """The names of all files below a folder of `root`, as paths from there.

    Links to folders are named, not followed; `.git` and `__pycache__` are left out. `unread` gets what could not be
    listed, and why.
    """
    waiting = [(folder, 0)]
    while waiting:
        name, deep = waiting.pop()
        try:
            with os.scandir(root / name) as listed:
                entries = list(islice(listed, MOST_FILES + 1))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            unread[name] = f"cannot be read: {error.strerror or error}"
            continue
        for entry in entries:
            if entry.name in _LEFT_OUT:
                continue
            inner = f"{name}/{entry.name}" if name else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield inner
            elif deep < MOST_DEEP:
                waiting.append((inner, deep + 1))
            else:
                unread[name] = f"has folders more than {MOST_DEEP} deep"


def read_regular_file(path: Path, most: int) -> bytes | None:
    """The bytes of a regular file, one more than `most` for a larger one; None for what is missing or something else.

    A link is read where it leads; one that leads to itself leads to nothing. Raises `OSError`.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a device or a pipe may do something
            return None
        descriptor = os.open(path, _FLAGS)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(most + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
