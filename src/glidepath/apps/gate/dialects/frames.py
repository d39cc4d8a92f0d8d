"""Server-sent events as bytes: whole events in, the same bytes out, whatever the network cuts."""

from __future__ import annotations

import re

from glidepath.models.sse import LARGEST, Events
from glidepath.values import TransientError

_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\Z))")
"""The blank line after an event. A \\r at the end may be half of a pair, so that it waits for the next byte."""


_LONGEST_END = 4
_PAIRS = b"\r\n\r\n"
_LINES = 2


class FrameSplitter:
    """Splits a stream into frames: an event with the blank line after it, byte for byte."""

    __slots__ = ("_pending", "_size")

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The frames that are complete with this chunk; raises `TransientError` for one that never ends."""
        if not self._pending and chunk[-2:] == b"\n\n" and b"\r" not in chunk:
            if chunk.find(b"\n\n") == len(chunk) - 2:  # one event, as it usually comes: the very same object
                return [chunk]
            return [piece + b"\n\n" for piece in chunk[:-2].split(b"\n\n")]
        if not self._pending and chunk[-4:] == _PAIRS and chunk.count(b"\n") == chunk.count(b"\r") == _LINES:
            return [chunk]  # one line of data, as Google writes it
        return self._join(chunk)

    def finish(self) -> bytes:
        """What is left when the stream has ended: an event without its blank line, or a part of one."""
        rest = b"".join(self._pending)
        self._pending, self._size = [], 0
        return rest

    def _join(self, chunk: bytes) -> list[bytes]:
        if not chunk:
            return []
        self._size += len(chunk)
        if self._size > LARGEST:
            raise TransientError(f"the provider sent an event of more than {LARGEST} bytes")
        # Joined only when an end can be in sight: the cost of an event of many chunks is linear.
        # Four chunks, each of at least a byte, hold what an end needs from before this one.
        last = b"".join(self._pending[-_LONGEST_END:])[-_LONGEST_END:] if self._pending else b""
        self._pending.append(chunk)
        if _END.search(last + chunk) is None:
            return []
        text = b"".join(self._pending)
        frames, start = [], 0
        for end in _END.finditer(text):
            frames.append(text[start : end.end()])
            start = end.end()
        self._pending = [text[start:]] if start < len(text) else []
        self._size = len(text) - start
        return frames


def data_of(frame: bytes) -> bytes:
    """The data of an event; empty for a comment."""
    if b"data" not in frame:
        return b""  # at once: a provider may send a million of these to keep a connection alive
    if frame.startswith(b"data: "):
        data = frame[6:].strip()
    else:
        start = frame.find(b"\ndata: ")
        data = frame[start + 7 :].strip() if start >= 0 else b"\n"
    if b"\n" not in data and b"\r" not in data:
        return data
    events = Events()  # more lines than usual, or written in another way
    found = events.feed(frame) + events.finish()
    return found[0][1].encode() if found else b""


def frame_of(data: bytes, name: str = "") -> bytes:
    """An event as bytes."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data
