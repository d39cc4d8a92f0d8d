"""Where a server keeps the events of runs beside an embedded store: they are deleted with their sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from glidepath import _wire
from glidepath._wire import WireError


def events_folder(store: object) -> Path | None:
    """The folder beside a store that is a file or a folder itself; None for any other."""
    path = getattr(store, "path", None)
    return Path(path).with_name(f"{Path(path).name}-events") if isinstance(path, str) and path else None


async def forget_events(store: object, sessions: Collection[str]) -> None:
    """Remove the events of the runs of these sessions. The first line of a file says whose it is."""
    folder = events_folder(store)
    if sessions and folder is not None and folder.is_dir():
        await asyncio.to_thread(_forget, folder, frozenset(sessions))


def _forget(folder: Path, sessions: frozenset[str]) -> None:
    for file in folder.glob("*.jsonl"):
        with suppress(OSError, WireError, ValueError):
            with file.open("rb") as opened:
                head = _wire.loads(opened.readline())
            if isinstance(head, dict) and head.get("session_id") in sessions:
                file.unlink()
