"""Keeps results that are too long for a model: files in a folder of bounded size."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MOST_BYTES = 256 << 20  # of all artifacts of one server in one process


class Artifacts:
    """The folder of one server's artifacts; made when the first one is kept, readable by this user only."""

    def __init__(self, folder: str | None, server: str) -> None:
        self._wanted = folder
        self._server = server
        self._folder: Path | None = None
        self._kept: list[tuple[Path, int]] = []
        self._count = 0

    def keep(self, data: bytes, suffix: str, what: str) -> str:
        """Write it to a file and say where it is; the oldest make room when there are too many."""
        try:
            folder = self._made()
            self._count += 1
            path = folder / f"{self._server}-{os.getpid()}-{self._count}.{suffix}"
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
        except OSError as error:
            return f"[{what}; it could not be kept as a file: {error}]"
        self._kept.append((path, len(data)))
        while len(self._kept) > 1 and sum(size for _, size in self._kept) > MOST_BYTES:
            self._kept.pop(0)[0].unlink(missing_ok=True)
        return f"[kept as an artifact: {path} ({what})]"

    def _made(self) -> Path:
        if self._folder is None:
            if self._wanted is None:
                self._folder = Path(tempfile.mkdtemp(prefix="glidepath-mcp-"))
            else:
                self._folder = Path(self._wanted)
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder
