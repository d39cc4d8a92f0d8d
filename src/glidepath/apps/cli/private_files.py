"""Writes files that hold transcripts: only their owner can read them, as a store's files."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Write a file that nobody else can read, also in place of one that everybody could; raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if os.name == "posix":
            os.fchmod(descriptor, 0o600)
        file.write(data)
