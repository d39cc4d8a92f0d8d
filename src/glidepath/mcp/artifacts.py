"""Keeps results that are too long for a model: files in a folder of bounded size."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from glidepath.values import ConfigurationError, ToolError
from glidepath.workspace import Workspace

MOST_BYTES = 256 << 20  # of all artifacts of one server in one process
_OWN = ".glidepath"


class Artifacts:
    """The folder of one server's artifacts; made when the first one is kept, readable by this user only.

    It is opened as files of a workspace are: no link that somebody has put there leads a server's bytes out of it.
    """

    def __init__(self, folder: str | None, server: str) -> None:
        self._wanted = folder
        self._server = server
        self._place: tuple[Workspace, str] | None = None
        self._kept: list[tuple[str, int]] = []
        self._count = 0

    def keep(self, data: bytes, suffix: str, what: str) -> str:
        """Write it to a file and say where it is; the oldest make room when there are too many."""
        try:
            workspace, below = self._open_folder()
            self._count += 1
            path = f"{below}{self._server}-{os.getpid()}-{self._count}.{suffix}"
            with workspace.place(path, make=True) as (folder, name):
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
                with os.fdopen(file, "wb") as stream:
                    stream.write(data)
        except (OSError, ToolError, ConfigurationError) as error:
            return f"[{what}; it could not be kept as a file: {error}]"
        self._kept.append((path, len(data)))
        while len(self._kept) > 1 and sum(size for _, size in self._kept) > MOST_BYTES:
            self._drop(workspace, self._kept.pop(0)[0])
        return f"[kept as an artifact: {workspace.root / path} ({what})]"

    def _drop(self, workspace: Workspace, path: str) -> None:
        try:
            with workspace.place(path) as (folder, name):
                os.unlink(name, dir_fd=folder)
        except (OSError, ToolError):
            return  # it is gone already, or somebody has put something else there

    def _open_folder(self) -> tuple[Workspace, str]:
        """The workspace that the artifacts are in, and their folder below it."""
        if self._place is None:
            if self._wanted is None:
                self._place = Workspace(tempfile.mkdtemp(prefix="glidepath-mcp-")), ""
            else:
                self._place = _place_of(Path(self._wanted).absolute())
        return self._place


def _place_of(folder: Path) -> tuple[Workspace, str]:
    """A folder in `.glidepath` belongs to the workspace around it, whose files anybody may have made."""
    steps = folder.parts
    if _OWN not in steps:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Workspace(folder), ""
    where = len(steps) - 1 - steps[::-1].index(_OWN)
    below = "/".join(steps[where:])
    return Workspace(Path(*steps[:where]), allow_protected=[below]), f"{below}/"
