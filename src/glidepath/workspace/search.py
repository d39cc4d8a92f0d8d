"""The search behind `grep`. It runs in its own process: a bad pattern can take forever and hold the GIL."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator

from glidepath.errors import ToolError
from glidepath.workspace.file_tools import walk
from glidepath.workspace.root import Workspace

MOST_HITS = 200
_MOST_FILE = 5_000_000
_MOST_LINE = 300
_DEPTH = 40
_PROBE = 8192


def search(root: str, pattern: str, path: str, glob: str | None, ignore_case: bool) -> str:
    """`file:line: text` for every line that matches, at most 200 of them."""
    try:
        wanted = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise ToolError(f"the pattern is not a regular expression: {error}") from None
    workspace = Workspace(root)
    hits: list[str] = []
    for name in _files(workspace, path):
        if glob and not fnmatch.fnmatch(name, glob) and not fnmatch.fnmatch(name.rpartition("/")[2], glob):
            continue
        for number, line in _lines(workspace, name):
            if wanted.search(line):
                if len(hits) == MOST_HITS:
                    return "\n".join([*hits, f"[more than {MOST_HITS} lines match: narrow the pattern or the path]"])
                hits.append(f"{name}:{number}: {line.strip()[:_MOST_LINE]}")
    return "\n".join(hits) or "(nothing matches)"


def _files(workspace: Workspace, path: str) -> Iterator[str]:
    """The files to search, lazily: there may be very many."""
    try:
        with workspace.folder(path) as folder:
            prefix = "" if path in (".", "") else f"{path.rstrip('/')}/"
            yield from (prefix + name for name, is_folder in walk(folder, "", _DEPTH) if not is_folder)
    except ToolError:
        with workspace.file(path):
            yield path


def _lines(workspace: Workspace, name: str) -> list[tuple[int, str]]:
    try:
        with workspace.file(name) as found, os.fdopen(os.dup(found), "rb") as file:
            if os.fstat(found).st_size > _MOST_FILE:
                return []
            data = file.read(_MOST_FILE)
    except ToolError:
        return []
    if b"\0" in data[:_PROBE]:
        return []
    return list(enumerate(data.decode(errors="replace").splitlines(), 1))
