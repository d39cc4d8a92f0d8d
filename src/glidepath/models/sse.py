"""Server-sent events: bytes in, events out."""

from __future__ import annotations

import re

from glidepath.values import TransientError

LARGEST = 64 * 1024 * 1024  # bytes of one event: no reply is that long
_BREAK = re.compile(rb"\r\n|\n|\r")


class Lines:
    """Splits a byte stream into lines, at the three line ends of the format and nothing else."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete with this chunk."""
        # Joined once, when the line ends: the cost of an event of many chunks is linear.
        self._pending.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        text = b"".join(self._pending)
        held = b""
        if text.endswith(b"\r"):  # the \n of a pair may come with the next chunk
            text, held = text[:-1], b"\r"
        lines = _BREAK.split(text)
        rest = lines.pop() + held
        self._pending = [rest] if rest else []
        return lines

    def finish(self) -> list[bytes]:
        """What is left when the stream has ended."""
        tail = b"".join(self._pending)
        self._pending = []
        return _BREAK.split(tail)


class Events:
    """Splits a byte stream into events. `feed` returns the (name, data) pairs that are complete."""

    __slots__ = ("_data", "_lines", "_name", "_size")

    def __init__(self) -> None:
        self._lines = Lines()
        self._size = 0
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[tuple[str, str]]:
        """The events that are complete with this chunk; raises `TransientError` for one that never ends."""
        self._size += len(chunk)
        if self._size > LARGEST:
            raise TransientError(f"the provider sent an event of more than {LARGEST} bytes")
        return [event for line in self._lines.feed(chunk) if (event := self._line(line)) is not None]

    def finish(self) -> list[tuple[str, str]]:
        """The last event, if the stream ended without the blank line after it."""
        events = [self._line(line) for line in (*self._lines.finish(), b"")]
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> tuple[str, str] | None:
        if not line:
            name, data, self._name = self._name, self._data, ""
            self._data, self._size = [], 0
            return (name, b"\n".join(data).decode("utf-8", "replace")) if data else None
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None
