"""Frames: how a segment file is written. The one place that knows their bytes.

A frame is a header and a payload, each under its own checksum. The header's checksum starts from the number of
its store and its segment, so that a frame in a strange place is not taken for one. A frame says where the frame before
it of the same session is: the last one leads to all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

MAGIC = b"gS"
_HEADER = struct.Struct("<2sBBIIQQIIQ16sdI")
_COMMITTED = struct.Struct("<4sIIQQIIQ16sdI")  # the same, with all that a commit's header begins with in one
_SEAL = struct.Struct("<I")
_RANGE = struct.Struct("<QQ")
_pack, _pack_commit, _seal = _HEADER.pack, _COMMITTED.pack, _SEAL.pack
HEADER_SIZE = _HEADER.size + _SEAL.size
HASH_SIZE = 16
MAX_PAYLOAD = 2**32 - 1


class Kind(IntEnum):
    """What a frame says."""

    HEAD = 1  # who writes this segment from here on
    CLAIM = 2  # a session has an owner; its commits follow the one that this frame links to
    COMMIT = 3
    RELEASE = 4  # the owner gave the session back: nothing of it is missing
    CUT = 5  # the journal ends with the commit that this frame links to
    REMOVE = 6  # the session is gone
    FENCE = 7  # written by the process that takes a session over, into its owner's segment
    MEND = 8  # the bytes in this range are what is left of a fence whose writer died
    COPY = 9  # a commit that was written again; it counts through the cut that links to the last of them
    FLAG = 10  # a stop is asked for, or taken back
    LABEL = 11  # what a person called the session
    NOTE = 12  # something for the run, from anywhere


_COMMIT = MAGIC + bytes([Kind.COMMIT, HASH_SIZE])


class Frame(NamedTuple):
    """A frame without its payload: `at` and `size` say where that is. `link` is the place of the one before it."""

    kind: int
    key: int
    token: int
    number: int
    link: tuple[int, int]
    """Segment and offset; (0, 0) for none."""
    hash: bytes
    time: float
    extra: int
    """Bytes of the payload that come before the body."""
    size: int
    at: int
    sound: bool = True
    """The payload fits its checksum."""

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.at + HEADER_SIZE + self.size


class Gap(NamedTuple):
    """Bytes that are not a frame, with whole frames behind them."""

    at: int
    end: int


class Scan(NamedTuple):
    """What is in a stretch of a segment: frames and gaps in order, and where what is whole ends."""

    found: list[Frame | Gap]
    end: int


def salt_of(store: str, segment: int) -> int:
    """What the header checksums of a segment start from."""
    return crc32(f"{store}/{segment}".encode())


def packed(  # noqa: PLR0917 - once a commit: names would cost as much as the checksum
    salt: int,
    kind: int,
    key: int = 0,
    token: int = 0,
    number: int = 0,
    link: tuple[int, int] = (0, 0),
    digest: bytes = b"",
    time: float = 0.0,
    first: bytes = b"",
    body: bytes = b"",
) -> bytes:
    """The bytes of a frame. `first` is the part of the payload that comes before the body."""
    extra, check = (len(first), crc32(body, crc32(first))) if first else (0, crc32(body))
    size, (segment, offset) = extra + len(body), link
    head = _pack(MAGIC, kind, len(digest), size, check, key, token, number, segment, offset, digest, time, extra)
    return b"".join((head, _seal(crc32(head, salt)), first, body))


def packed_commit(  # noqa: PLR0917 - as `packed`
    salt: int, key: int, token: int, number: int, segment: int, offset: int, digest: bytes, time: float, body: bytes
) -> bytes:
    """As `packed`, for a commit without a summary and with a digest of full size: twice a turn."""
    head = _pack_commit(_COMMIT, len(body), crc32(body), key, token, number, segment, offset, digest, time, 0)
    return head + _seal(crc32(head, salt)) + body


def resealed(frames: bytes, old: int, new: int) -> bytes:
    """The same frames for another segment."""
    pieces, at = [], 0
    while at < len(frames):
        end = at + needed_at(frames, at, old)
        head = frames[at : at + _HEADER.size]
        pieces += [head, _SEAL.pack(crc32(head, new)), frames[at + HEADER_SIZE : end]]
        at = end
    return b"".join(pieces)


def mended(start: int, end: int) -> bytes:
    """The payload of a MEND frame."""
    return _RANGE.pack(start, end)


def frame_at(data: bytes, at: int, salt: int, base: int = 0) -> Frame | None:
    """The frame at this place of `data`, which begins at `base`; None when there is none, or not a whole one."""
    if len(data) - at < HEADER_SIZE or data[at : at + 2] != MAGIC:
        return None
    if crc32(data[at : at + _HEADER.size], salt) != _SEAL.unpack_from(data, at + _HEADER.size)[0]:
        return None
    _, kind, length, size, check, key, token, number, segment, offset, digest, time, extra = _HEADER.unpack_from(
        data, at
    )
    start = at + HEADER_SIZE
    if len(data) - start < size:
        return None
    sound = crc32(memoryview(data)[start : start + size]) == check
    return Frame(kind, key, token, number, (segment, offset), digest[:length], time, extra, size, base + at, sound)


def needed_at(data: bytes, at: int, salt: int) -> int:
    """How many bytes the frame at this place has by its header; 0 when it has no header."""
    if (
        len(data) - at < HEADER_SIZE
        or crc32(data[at : at + _HEADER.size], salt) != _SEAL.unpack_from(data, at + _HEADER.size)[0]
    ):
        return 0
    return HEADER_SIZE + int(_HEADER.unpack_from(data, at)[3])


def scan(data: bytes, salt: int, base: int = 0) -> Scan:
    """Everything in `data`, which begins at `base`. What is broken at the end was torn, and is not reported.

    Broken bytes with a whole frame behind them are a gap; fences are no such frame, since anybody may have put them
    behind what a dying process left.
    """
    found: list[Frame | Gap] = []
    torn = -1  # how much was found before what may turn out to be a torn end
    for item in _items(data, salt, base):
        broken = type(item) is Gap or (type(item) is Frame and not item.sound)
        if broken and torn < 0:
            torn = len(found)
        elif not broken and item.kind != Kind.FENCE:  # type: ignore[union-attr]
            torn = -1
        found.append(item)
    if torn >= 0:
        return Scan(_without_mended(found[:torn], data, base), found[torn].at)
    return Scan(_without_mended(found, data, base), found[-1].end if found else base)


def _items(data: bytes, salt: int, base: int) -> Iterator[Frame | Gap]:
    at = 0
    while at < len(data):
        frame = frame_at(data, at, salt, base)
        if frame is None:
            after = _next_frame(data, at + 1, salt)
            yield Gap(base + at, base + (len(data) if after is None else after))
            if after is None:
                return
            at = after
            continue
        yield frame
        at = frame.end - base
        if not frame.sound:  # bytes may be missing in it: then the next one begins before its end
            after = _next_frame(data, frame.at - base + HEADER_SIZE, salt)
            at = at if after is None else min(at, after)


def _next_frame(data: bytes, at: int, salt: int) -> int | None:
    while (at := data.find(MAGIC, at)) >= 0:
        frame = frame_at(data, at, salt)
        if frame is not None and frame.sound:
            return at
        at += 1
    return None


def _without_mended(found: list[Frame | Gap], data: bytes, base: int) -> list[Frame | Gap]:
    ranges = [
        _RANGE.unpack_from(data, item.at - base + HEADER_SIZE)
        for item in found
        if type(item) is Frame and item.kind == Kind.MEND and item.size == _RANGE.size
    ]
    if not ranges:
        return found
    return [
        item
        for item in found
        if type(item) is not Gap or not any(start <= item.at and item.end <= end for start, end in ranges)
    ]
