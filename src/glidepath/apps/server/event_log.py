"""Event logs: every event of every run, numbered without gaps, written before anyone sees it.

A log outlives the server's process. Numbers of a run only ever rise by one, so that a reader who comes back with the
last number it has seen misses nothing and sees nothing twice, whichever process answers.
"""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from glidepath import _wire
from glidepath._wire import Value, WireError
from glidepath.values import StoreError

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_CACHED = 64  # runs whose line starts are remembered
_OPEN = 256  # files that are kept open
_KIND = re.compile(rb'\{"event":"([A-Za-z]+)"')


def kind_of(line: bytes) -> str:
    """The kind of an event that was written as JSON."""
    found = _KIND.match(line)
    return found.group(1).decode() if found else "UnknownEvent"


class LogHead(Value, frozen=True, kw_only=True):
    """What a log knows about a run before its events."""

    run_id: str
    session_id: str
    agent: str = ""
    parent: str | None = None
    who: str | None = None
    """The name of the token or key that started it."""


class EventLog(Protocol):
    """Where events are kept. Lines are JSON without a line break; the first line of a run has number 1."""

    name: str
    is_remote: bool
    """Writing takes a round trip to another process."""

    def append(self, head: LogHead, lines: Sequence[bytes]) -> Awaitable[None] | None:
        """Write lines after the last; None when they are written, or something to await until they are."""
        ...

    async def head(self, run_id: str) -> LogHead | None:
        """What is known about the run; None when it has no log."""
        ...

    async def count(self, run_id: str) -> int:
        """The number of the last line; 0 when there is none."""
        ...

    async def read(self, run_id: str, after: int, limit: int) -> list[bytes]:
        """Up to `limit` lines behind number `after`."""
        ...

    def release(self, run_id: str) -> None:
        """The run has ended, and writes no more for a while."""
        ...

    async def prune(self, older_than: float) -> None:
        """Forget the events of runs that wrote none for this many seconds."""
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...


class MemoryLog:
    """Keeps events in memory, of the latest runs: for servers without a store."""

    name = "memory"
    is_remote = False

    def __init__(self, runs: int = 4_000) -> None:
        self._runs = runs
        self._lines: OrderedDict[str, tuple[LogHead, list[bytes]]] = OrderedDict()

    def append(self, head: LogHead, lines: Sequence[bytes]) -> None:
        """Keep them."""
        known = self._lines.get(head.run_id)
        if known is None:
            known = self._lines[head.run_id] = (head, [])
            while len(self._lines) > self._runs:
                self._lines.popitem(last=False)
        known[1].extend(lines)

    async def head(self, run_id: str) -> LogHead | None:
        """What is known about the run."""
        known = self._lines.get(run_id)
        return None if known is None else known[0]

    async def count(self, run_id: str) -> int:
        """How many lines there are."""
        known = self._lines.get(run_id)
        return 0 if known is None else len(known[1])

    async def read(self, run_id: str, after: int, limit: int) -> list[bytes]:
        """Some of them."""
        known = self._lines.get(run_id)
        return [] if known is None else known[1][after : after + limit]

    def release(self, run_id: str) -> None:
        """Nothing is open."""

    async def prune(self, older_than: float) -> None:
        """There are never more than this many runs."""

    async def close(self) -> None:
        """Nothing is open."""


class FolderLog:
    """Keeps events in a folder of append-only files beside an embedded store, one file for each run.

    A line is written with one `write`, so that it survives the death of the process. A torn last line, which only a
    crash of the machine or a full disk leaves behind, is cut off before the next one is written.
    """

    name = "folder"
    is_remote = False

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._files: OrderedDict[str, int] = OrderedDict()
        self._starts: OrderedDict[str, list[int]] = OrderedDict()

    def _path(self, run_id: str) -> Path:
        name = run_id if _SAFE.match(run_id) else f"x-{blake2b(run_id.encode(), digest_size=16).hexdigest()}"
        return self.folder / f"{name}.jsonl"

    def append(self, head: LogHead, lines: Sequence[bytes]) -> None:
        """Write them, all with one system call where the system takes them whole; raises `StoreError`."""
        data = b"\n".join(lines) + b"\n"
        try:
            file = self._files.get(head.run_id)
            if file is None:
                file = self._open_file(head)
            written = os.write(file, data)
            while written < len(data):
                written += os.write(file, data[written:])
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise StoreError(
                f"events cannot be written to {self.folder} ({why}); free some space, or make the folder writable",
                kind="unavailable",
            ) from None

    def _open_file(self, head: LogHead) -> int:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(head.run_id)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)
        size = os.fstat(file).st_size
        if not size:
            os.write(file, _wire.encode(head) + b"\n")
        else:
            _cut_torn_line(file, size)
        self._files[head.run_id] = file
        while len(self._files) > _OPEN:
            os.close(self._files.popitem(last=False)[1])
        return file

    async def head(self, run_id: str) -> LogHead | None:
        """The first line of the file."""
        try:
            with self._path(run_id).open("rb") as file:
                found = _wire.decode(file.readline(), LogHead)
        except (OSError, WireError):
            return None
        return found if found.run_id == run_id else None

    async def count(self, run_id: str) -> int:
        """How many whole lines there are behind the first."""
        return max(0, len(self._index(run_id)) - 2)

    async def read(self, run_id: str, after: int, limit: int) -> list[bytes]:
        """Read some of the events; the rest stays in the file."""
        starts = self._index(run_id)
        first, last = 1 + max(0, after), min(1 + max(0, after) + limit, len(starts) - 1)
        if first >= last:
            return []
        with self._path(run_id).open("rb") as file:
            file.seek(starts[first])
            data = file.read(starts[last] - starts[first])
        return data[:-1].split(b"\n")

    def _index(self, run_id: str) -> list[int]:
        """Where lines begin, and where the last whole one ends."""
        starts = self._starts.get(run_id)
        if starts is None:
            starts = self._starts[run_id] = [0]
            while len(self._starts) > _CACHED:
                self._starts.popitem(last=False)
        self._starts.move_to_end(run_id)
        try:
            with self._path(run_id).open("rb") as file:
                if file.seek(0, os.SEEK_END) == starts[-1]:
                    return starts
                file.seek(starts[-1])
                data, base = file.read(), starts[-1]
        except OSError:
            return [0]
        at = data.find(b"\n")
        while at >= 0:
            starts.append(base + at + 1)
            at = data.find(b"\n", at + 1)
        return starts

    def release(self, run_id: str) -> None:
        """The run has ended: close its file."""
        file = self._files.pop(run_id, None)
        if file is not None:
            os.close(file)

    async def prune(self, older_than: float) -> None:
        """Remove the files of runs that wrote nothing for this many seconds."""
        before = time.time() - older_than
        for path in list(self.folder.glob("*.jsonl")) if self.folder.is_dir() else []:
            with suppress(OSError):
                if path.stat().st_mtime < before:
                    path.unlink()

    async def close(self) -> None:
        """Close all files."""
        while self._files:
            os.close(self._files.popitem()[1])


def _cut_torn_line(file: int, size: int) -> None:
    """Cut off a last line that was not written whole."""
    tail, at = b"", size
    while at > 0 and b"\n" not in tail:
        step = min(at, 65_536)
        at -= step
        tail = os.pread(file, step, at) + tail
    whole = at + tail.rfind(b"\n") + 1
    if whole < size:
        os.ftruncate(file, whole)


def log_for(store: Any) -> EventLog:
    """The log that belongs to a store: beside an embedded one, a table of PostgreSQL, else in memory.

    A store that redacts has its log in memory: events would otherwise be on disk verbatim.
    """
    from glidepath.sessions import PostgresStore, SqliteStore, events_folder, redactor_of

    if store is None or redactor_of(store) is not None:
        return MemoryLog()
    folder = events_folder(store) if isinstance(store, SqliteStore) else None
    if folder is not None:
        return FolderLog(folder)
    if isinstance(store, PostgresStore):
        from glidepath.apps.server.postgres_log import PostgresLog

        return PostgresLog(store.dsn)
    return MemoryLog()
