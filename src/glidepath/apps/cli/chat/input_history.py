"""The input history of this chat and earlier ones."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

_MOST, _LONGEST = 1_000, 20_000


class InputHistory:
    """Lines that were sent, the last one last; kept in a file that only its owner can read, when there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self.lines: list[str] = []
        self._path = path
        self._at: int | None = None
        self._draft = ""
        if path is not None:
            with contextlib.suppress(OSError, ValueError, UnicodeDecodeError):
                found = [json.loads(line) for line in path.read_text("utf-8").splitlines()[-_MOST:]]
                self.lines = [line for line in found if isinstance(line, str)]

    def add(self, line: str) -> None:
        """Add a line that was sent."""
        self._at = None
        if not line.strip() or len(line) > _LONGEST or (self.lines and self.lines[-1] == line):
            return
        self.lines = [*self.lines[-_MOST + 1 :], line]
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def older(self, draft: str) -> str | None:
        """The line before the one that is shown; None when there is none. `draft` is what comes back at the end."""
        if self._at is None:
            self._draft = draft
        at = len(self.lines) if self._at is None else self._at
        if at == 0:
            return None
        self._at = at - 1
        return self.lines[self._at]

    def newer(self) -> str | None:
        """The line after it, and after the last one what was being typed; None when nothing older is shown."""
        if self._at is None:
            return None
        self._at += 1
        if self._at < len(self.lines):
            return self.lines[self._at]
        self._at = None
        return self._draft

    def forget_place(self) -> None:
        """Leave the history: what is typed from here on is a new line."""
        self._at = None

    def search(self, words: str, before: int | None = None) -> int | None:
        """The place of the last line with these words, before a place if one is given; None when there is none."""
        wanted = words.casefold()
        end = len(self.lines) if before is None else before
        for place in range(end - 1, -1, -1):
            if wanted in self.lines[place].casefold():
                return place
        return None
