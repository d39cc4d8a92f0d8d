"""The file that opens the deck: only its owner can read it, so the browser's command line holds no secret.

It sends the browser to the server with a one-time code. When the code was used, the next one is written, so that the
file opens the page as often as its owner likes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from html import escape
from pathlib import Path

from glidepath.values import ConfigurationError

_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>glidepath</title>
<p><a href="{address}">Open the flight deck</a></p>
"""


class WayIn:
    """A page of one line, mode 0600, in a folder of the same user."""

    def __init__(self, path: Path, address: str) -> None:
        self.path = path
        self.address = address

    @classmethod
    def make(cls, address: str, port: int) -> WayIn:
        """In the user's data folder, or where that cannot be written, in a new temporary one."""
        from glidepath.sessions import default_file

        name = f"open-deck-{port}.html"
        try:
            folder = default_file().parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(folder)
        except (OSError, ConfigurationError):
            import tempfile

            folder = Path(tempfile.mkdtemp(prefix="glidepath-"))
        return cls(folder / name, address)

    def write(self, code: str) -> None:
        """Write the page with this code, all of it or nothing."""
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with suppress(FileNotFoundError):
            fresh.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        file = os.open(fresh, flags, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            opened.write(_PAGE.format(address=escape(f"{self.address}#code={code}", quote=True)))
        fresh.replace(self.path)

    def remove(self) -> None:
        """The server has ended."""
        with suppress(OSError):
            self.path.unlink()
