"""The file tools, on a `Workspace`: a model is shown their parameters and docstrings."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, BinaryIO

from glidepath._wire import Meta
from glidepath.tools import NeedsInput, ToolContext
from glidepath.values import ToolError, pluralize
from glidepath.workspace.root import Workspace
from glidepath.workspace.secret_files import SecretFileError

MOST_READ = 256_000
"""Maximum bytes of one read."""
MOST_EDIT = 2_000_000
"""Maximum bytes of a file to edit."""
MOST_WRITE = 2_000_000
MOST_LISTED = 500
MOST_LINES = 2000
MOST_PASSED = 1 << 30
"""Maximum bytes to skip to reach a line."""
MOST_IN_FOLDER = 100_000
"""Maximum entries of one folder to look at."""
MOST_HITS = 200
_MOST_SEARCHED = 5_000_000
_MOST_LINE = 300
_DEPTH = 40
_FEW = 5
_PROBE = 8192
_PIECE = 1 << 18
PATIENCE = 20.0
"""Seconds that a read or a listing may take."""
_HIDDEN = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache"})


class SearchPatience:
    """How long a file tool may work: until a deadline, or until its call is abandoned. Its thread cannot be killed."""

    def __init__(self, context: ToolContext | None) -> None:
        self._context = context
        self._end = time.monotonic() + PATIENCE

    def check(self) -> None:
        """Raise `ToolError` when time is up."""
        if self._context is not None and self._context.cancelled:
            raise ToolError("the call was stopped")
        if time.monotonic() > self._end:
            raise ToolError(f"this took longer than {PATIENCE:g} seconds: ask for less at once")


def read_file(
    workspace: Workspace,
    path: Annotated[str, Meta(description="a file in the workspace, such as src/main.py")],
    first_line: Annotated[int | None, Meta(description="where to begin; 1 unless given")] = None,
    lines: Annotated[int | None, Meta(description="how many lines; 500 unless given")] = None,
    context: ToolContext | None = None,
) -> str:
    """Read lines of a text file."""
    patience = SearchPatience(context)
    first_line = 1 if first_line is None else first_line
    lines = min(500 if lines is None else lines, MOST_LINES)
    if first_line < 1 or lines < 1:
        raise ToolError("first_line and lines count from 1")
    asked = context is not None and context.continuation is not None  # and a person said yes
    with _ask_about_secrets(workspace.file(path, secrets=asked)) as found, os.fdopen(os.dup(found), "rb") as file:
        size = os.fstat(found).st_size
        _refuse_binary(path, file.read(_PROBE), size)
        file.seek(0)
        _pass_over(file, path, first_line, size, patience)
        kept: list[bytes] = []
        room = MOST_READ
        while len(kept) < lines and room > 0 and (line := file.readline(room)):
            kept.append(line)
            room -= len(line)
        more = bool(file.read(1))
    text = b"".join(kept).decode(errors="replace")
    if size and not text:
        raise ToolError(f"{path} ends before line {first_line}")
    if not more:
        return text or "(the file is empty)"
    last = first_line + len(kept) - 1
    where = f"continue with first_line={last + 1}" if kept[-1].endswith(b"\n") else "line too long to show in full"
    return text + f"\n[lines {first_line} to {last}, {size} bytes in all: {where}]"


@contextlib.contextmanager
def _ask_about_secrets(opening: contextlib.AbstractContextManager[int]) -> Iterator[int]:
    """Open a file; a person is asked about one that may hold secrets."""
    try:
        found = opening.__enter__()
    except SecretFileError as error:
        why = f"{str(error).partition(' may hold')[0]} may hold secrets: what is read goes to the model's provider"
        raise NeedsInput(why, form={"type": "object", "properties": {}}) from None
    try:
        yield found
    finally:
        opening.__exit__(None, None, None)


def _pass_over(file: BinaryIO, path: str, first_line: int, size: int, patience: SearchPatience) -> None:
    """Seek to the start of a line. Lines may be as long as the file, and sparse files larger than any disk."""
    missing = first_line - 1
    passed = 0
    while missing:
        piece = file.read(_PIECE)
        if not piece:
            raise ToolError(f"{path} ends before line {first_line}")
        if piece.count(0) == len(piece):  # a hole in a sparse file, which may be larger than any disk
            raise ToolError(f"{path} is a binary file of {size} bytes: it has holes before line {first_line}")
        found = piece.count(b"\n")
        if found >= missing:
            end = -1
            for _ in range(missing):
                end = piece.index(b"\n", end + 1)
            file.seek(passed + end + 1)
            return
        missing -= found
        passed += len(piece)
        if passed >= MOST_PASSED:
            raise ToolError(
                f"line {first_line} of {path} is more than {MOST_PASSED} bytes away: use other means, such as the shell"
            )
        patience.check()


def write_file(workspace: Workspace, path: str, content: str) -> str:
    """Write a whole file in the workspace: a new one, or in place of the old one. Folders are made as needed."""
    data = _encode_content(content)
    with workspace.place(path, make=True) as (folder, name):
        _replace(folder, name, data)
    return f"wrote {pluralize(len(data), 'byte')} to {path}"


def edit_file(
    workspace: Workspace,
    path: str,
    old: Annotated[str, Meta(description="the text to replace, exactly as it stands, found only once")],
    new: Annotated[str, Meta(description="the text to put there")],
    every: Annotated[bool, Meta(description="replace it everywhere in the file")] = False,
) -> str:
    """Replace a piece of text in a file of the workspace."""
    if not old:
        raise ToolError("old is empty: give the text to replace, with enough context to be unique")
    if old == new:
        raise ToolError("old and new are the same: nothing would change")
    with workspace.file(path) as found, os.fdopen(os.dup(found), "rb") as file:
        size = os.fstat(found).st_size
        if size > MOST_EDIT:
            raise ToolError(f"{path} has {size} bytes; at most {MOST_EDIT} can be edited")
        data = file.read(MOST_EDIT + 1)
    _refuse_binary(path, data, size)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not UTF-8 text (byte {error.start})") from None
    count = text.count(old)
    if count == 0:
        raise ToolError(f"{path} does not contain that text: read it again, and copy the text exactly")
    if count > 1 and not every:
        raise ToolError(f"{path} contains that text {count} times: include more context, or set every=true")
    changed = _encode_content(text.replace(old, new))
    with workspace.place(path) as (folder, name):
        _replace(folder, name, changed)
    places = pluralize(count, "place")
    return f"changed {places} in {path}"


def list_folder(
    workspace: Workspace,
    path: str = ".",
    pattern: Annotated[str | None, Meta(description="only names like this, such as *.py")] = None,
    depth: Annotated[int | None, Meta(description="how many folders deep, 1 to 10; 1 unless given")] = None,
    context: ToolContext | None = None,
) -> str:
    """List the files and folders in a folder of the workspace."""
    rows: list[str] = []
    patience = SearchPatience(context)
    with workspace.folder(path) as folder:
        for name, is_folder in walk(folder, "", max(1, min(depth or 1, 10))):
            patience.check()
            if pattern and not fnmatch.fnmatch(name.rpartition("/")[2], pattern):
                continue
            if len(rows) == MOST_LISTED:
                rows.append(f"[more than {MOST_LISTED} entries: name a folder further down, or give a pattern]")
                break
            rows.append(name + "/" if is_folder else name)
    return "\n".join(rows) or ("(nothing matches)" if pattern else "(the folder is empty)")


def walk(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, bool]]:
    """Everything below an open folder, sorted; links are not followed."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(islice(found, MOST_IN_FOLDER), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        name = entry.name.encode(errors="replace").decode()
        is_folder = entry.is_dir(follow_symlinks=False)
        yield prefix + name, is_folder
        if is_folder and depth > 1 and entry.name not in _HIDDEN:
            try:
                below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            except OSError:
                continue
            try:
                yield from walk(below, f"{prefix}{name}/", depth - 1)
            finally:
                os.close(below)


def search(
    root: str, pattern: str, path: str, glob: str | None, ignore_case: bool, secrets: list[str] | None = None
) -> str:
    """`file:line: text` for every line that matches, at most 200 of them.

    It runs in its own process: a bad pattern can take forever and hold the GIL.
    """
    try:
        wanted = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise ToolError(f"the pattern is not a regular expression: {error}") from None
    workspace = Workspace(root, secrets=secrets)
    hits: list[str] = []
    passed: list[str] = []
    for name in _files(workspace, path):
        if glob and not fnmatch.fnmatch(name, glob) and not fnmatch.fnmatch(name.rpartition("/")[2], glob):
            continue
        for number, line in _lines(workspace, name, passed):
            if wanted.search(line):
                if len(hits) == MOST_HITS:
                    hits.append(f"[more than {MOST_HITS} lines match: narrow the pattern or the path]")
                    return "\n".join([*hits, *_describe_skipped(passed)])
                hits.append(f"{name}:{number}: {line.strip()[:_MOST_LINE]}")
    return "\n".join([*(hits or ["(nothing matches)"]), *_describe_skipped(passed)])


def _describe_skipped(passed: list[str]) -> list[str]:
    if not passed:
        return []
    more = f" and {len(passed) - _FEW} more" if len(passed) > _FEW else ""
    return [f"[not searched, because they may hold secrets: {', '.join(passed[:_FEW])}{more}; read asks a person]"]


def _files(workspace: Workspace, path: str) -> Iterator[str]:
    """The files to search, lazily: there may be very many."""
    try:
        with workspace.folder(path) as folder:
            prefix = "" if path in (".", "") else f"{path.rstrip('/')}/"
            yield from (prefix + name for name, is_folder in walk(folder, "", _DEPTH) if not is_folder)
    except ToolError:
        with workspace.file(path):
            yield path


def _lines(workspace: Workspace, name: str, passed: list[str]) -> list[tuple[int, str]]:
    try:
        with workspace.file(name, secrets=False) as found, os.fdopen(os.dup(found), "rb") as file:
            if os.fstat(found).st_size > _MOST_SEARCHED:
                return []
            data = file.read(_MOST_SEARCHED)
    except SecretFileError:
        passed.append(name)
        return []
    except ToolError:
        return []
    if b"\0" in data[:_PROBE]:
        return []
    return list(enumerate(data.decode(errors="replace").splitlines(), 1))


def _encode_content(content: str) -> bytes:
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise ToolError("the text contains a lone surrogate: remove it") from None
    if len(data) > MOST_WRITE:
        raise ToolError(f"{len(data)} bytes are too many: write at most {MOST_WRITE} at once")
    return data


def _replace(folder: int, name: str, data: bytes) -> None:
    """Write a temporary file and rename it: readers see the old text or the new one, never a part.

    The file keeps its mode; other hard links keep the old text.
    """
    beside = f".{secrets.token_hex(8)}.part"
    mode = 0o666
    with contextlib.suppress(OSError):
        mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        made = os.open(beside, flags, mode, dir_fd=folder)
        try:
            with os.fdopen(made, "wb") as file:
                file.write(data)
                if mode != 0o666:  # noqa: PLR2004 - a new file gets what the umask leaves
                    os.fchmod(file.fileno(), mode)
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=folder)
            raise
    except OSError as error:
        raise ToolError(f"{name} cannot be written: {error.strerror}") from None


def _refuse_binary(path: str, probe: bytes, size: int) -> None:
    if b"\0" in probe:
        raise ToolError(f"{path} is a binary file of {size} bytes and cannot be shown as text")
