"""What SQLite's errors mean for a session store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath.errors import StoreError

if TYPE_CHECKING:
    import sqlite3

BUSY, READ_ONLY, CANNOT_OPEN = 5, 8, 14
_WAIT = 0.005  # seconds between two tries
_KINDS = {  # SQLite's primary result codes
    BUSY: ("locked", "is locked by another process"),
    6: ("locked", "is locked"),
    READ_ONLY: ("read_only", "is read-only"),
    10: ("unavailable", "cannot be read or written"),
    11: ("damaged", "is damaged"),
    13: ("full", "cannot grow: the disk is full"),
    CANNOT_OPEN: ("unavailable", "cannot be opened"),
    26: ("damaged", "is not an SQLite database"),
}


def code_of(error: BaseException) -> int:
    """SQLite's primary result code."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def explained(error: BaseException, path: str, *, fixed: bool = False) -> StoreError:
    """What SQLite's error means; `fixed`: its folder is read-only."""
    code = code_of(error)
    kind, what = _KINDS.get(code, ("unavailable", "failed"))
    if code == CANNOT_OPEN and fixed:
        kind, what = "read_only", "cannot be opened: its folder is read-only"
    elif code == CANNOT_OPEN and not (folder := Path(path).parent).is_dir():
        what = f"cannot be opened: there is no folder {folder}"
    return StoreError(f"the session store {path} {what} ({error})", kind=kind)


def write_ahead(connection: sqlite3.Connection, seconds: float) -> None:
    """Turn the write-ahead log on, and wait up to `seconds` for another connection that is making the same file.

    SQLite's own busy timeout does not cover this: a switch that finds the file locked for writing fails at once.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except Exception as error:
            if code_of(error) != BUSY or time.monotonic() >= until:
                raise
        time.sleep(_WAIT)
