"""Slash commands from files: a text that is sent when a person types its name. Loaded where it means the same here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from glidepath._wire import Value
from glidepath.agent.skills.front_matter import (
    VARIABLE,
    Fields,
    FileFormatError,
    decode_text,
    name_inline_command,
    read_front_matter,
)
from glidepath.tools import read_regular_file

_MOST_TEXT = 64_000
_POSITION = re.compile(r"\$(ARGUMENTS\[|\d)")
_ELSEWHERE = {
    "allowed-tools": "nothing is approved in advance",
    "model": "the model of the chat stays",
    "argument-hint": "nothing is shown while you type",
    "disable-model-invocation": "only a person starts a command anyway",
    "hooks": "a file runs nothing by itself; write a plugin",
}


class CommandFile(Value, frozen=True, kw_only=True):
    """A slash command from a file."""

    name: str
    text: str
    description: str = ""
    remarks: tuple[str, ...] = ()
    """What in it has no effect here, and why."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> CommandFile:
        """The command in a file, named as the file; raises `ConfigurationError`."""
        place = Path(path)
        try:
            data = read_regular_file(place, 4 * _MOST_TEXT)
        except (OSError, ValueError) as error:
            raise FileFormatError(str(path), None, f"it cannot be read: {error}") from None
        if data is None:
            raise FileFormatError(str(path), None, "there is no such file")
        return cls.from_bytes(data, str(path), place.stem)

    @classmethod
    def from_bytes(cls, data: bytes, path: str, name: str) -> CommandFile:
        """The command of a file that was read; raises `FileFormatError` where it would mean something else here."""
        found = read_front_matter(decode_text(data, path), path, required=False)
        fields = Fields(found, path)
        description = fields.text("description")
        if not name or set(name) & set(" :\t"):
            raise FileFormatError(path, None, f"{name!r} cannot be typed as the name of a command; rename the file")
        said = [
            remark for row in enumerate(found.body.split("\n"), found.body_line) for remark in _check_row(path, *row)
        ]
        if len(found.body) > _MOST_TEXT:
            raise FileFormatError(path, None, f"it has {len(found.body):,} characters, at most {_MOST_TEXT:,} are sent")
        return cls(
            name=name, text=found.body, description=description, remarks=(*fields.list_others(_ELSEWHERE), *said)
        )

    @property
    def about(self) -> str:
        """What a person is told about it: its description, else its text."""
        return self.description or self.text

    def fill_in(self, arguments: str) -> str:
        """The text with what was typed behind its name: for $ARGUMENTS, else below it."""
        said = arguments.strip()
        if "$ARGUMENTS" in self.text:
            return self.text.replace("$ARGUMENTS", said)
        return f"{self.text.rstrip()}\n\n{said}" if said else self.text


def _check_row(path: str, number: int, row: str) -> Iterator[str]:
    """What in a line of a command has no effect here; raises for what would make it another command."""
    if (form := name_inline_command(row)) is not None:
        raise FileFormatError(path, number, f"{form} would run a command before you see it; ask the agent to run it")
    if (place := _POSITION.search(row)) is not None:
        raise FileFormatError(path, number, f"{place[0]!r} counts arguments; only $ARGUMENTS is known here")
    for variable in VARIABLE.findall(row):
        yield f"line {number}: {variable} is not filled in, the model reads it as it is"
