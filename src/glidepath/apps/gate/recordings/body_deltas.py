"""Bodies of a conversation, stored by their differences: each request repeats nearly all of the one before it."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping

from glidepath._wire import Value

_STEP = 4096
_MOST_BASES = 6
"""Bodies that a new one is compared with: the last ones, of whichever agent."""
_LEAST = 64
"""Bytes that must be shared for a body to be written as a difference."""
LARGEST_BODY = 64 << 20
"""Bytes of a request or a reply that is recorded, or unpacked: a journal from elsewhere must not fill the memory."""


class Delta(Value, frozen=True, kw_only=True):
    """A body as a difference; see `TapedCall`."""

    base: int = 0
    prefix: int = 0
    suffix: int = 0
    middle: bytes = b""


class DeltaWriter:
    """Writes bodies as differences to one of the last ones."""

    def __init__(self) -> None:
        self._recent: OrderedDict[int, bytes] = OrderedDict()

    def write(self, number: int, body: bytes) -> Delta:
        """The body of the call `number`, as a difference to the body that shares most with it."""
        best, shared = (0, 0, 0), _LEAST
        for base, other in self._recent.items():
            prefix = count_common_prefix(other, body)
            suffix = count_common_suffix(other, body, prefix)
            if prefix + suffix > shared:
                best, shared = (base, prefix, suffix), prefix + suffix
        base, prefix, suffix = best
        self._recent[number] = body
        if len(self._recent) > _MOST_BASES:
            self._recent.popitem(last=False)
        middle = body[prefix : len(body) - suffix]
        return Delta(base=base, prefix=prefix, suffix=suffix, middle=pack(middle))


class DeltaReader:
    """Puts bodies together again, in any order; the last ones are kept, because the next one needs them."""

    def __init__(self, deltas: Mapping[int, Delta]) -> None:
        self._deltas = deltas
        self._recent: OrderedDict[int, bytes] = OrderedDict()

    def read(self, number: int) -> bytes:
        """The body of this call; raises `ValueError` when it cannot be put together."""
        wanted: list[int] = []
        at = number
        while at not in self._recent:
            delta = self._deltas.get(at)
            if delta is None or delta.base >= at:
                raise ValueError(f"call {at} is missing")
            wanted.append(at)
            if not delta.base:
                break
            at = delta.base
        for one in reversed(wanted):
            delta = self._deltas[one]
            before = self._recent[delta.base] if delta.base else b""
            if not 0 <= delta.prefix <= len(before) or not 0 <= delta.suffix <= len(before) - delta.prefix:
                raise ValueError(f"call {one} does not fit call {delta.base}")
            middle = unpack(delta.middle)
            if delta.prefix + len(middle) + delta.suffix > LARGEST_BODY:
                raise ValueError(f"call {one} is longer than {LARGEST_BODY} bytes")
            self._keep(one, before[: delta.prefix] + middle + before[len(before) - delta.suffix :])
        return self._recent[number]

    def _keep(self, number: int, body: bytes) -> None:
        self._recent[number] = body
        if len(self._recent) > _MOST_BASES * 2:
            self._recent.popitem(last=False)


def pack(data: bytes) -> bytes:
    """Compressed bytes."""
    return zlib.compress(data, 3) if data else b""


def unpack(data: bytes) -> bytes:
    """What `pack` has compressed; raises `ValueError`."""
    if not data:
        return b""
    machine = zlib.decompressobj()
    try:
        found = machine.decompress(data, LARGEST_BODY)
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from None
    if not machine.eof:
        raise ValueError(f"it is cut off, or longer than {LARGEST_BODY} bytes")
    return found


def count_common_prefix(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    most, at, step = min(len(one), len(other)), 0, _STEP
    while at < most:  # large steps by comparing in C, then smaller ones around the difference
        if one[at : at + step] == other[at : at + step] and at + step <= most:
            at += step
        elif step == 1:
            break
        else:
            step = max(1, step // 16)
    return at


def count_common_suffix(one: bytes, other: bytes, prefix: int) -> int:
    """How many bytes both end with, of those behind a prefix that they share."""
    most, at, step = min(len(one), len(other)) - prefix, 0, _STEP
    while at < most:
        ours, theirs = len(one) - at, len(other) - at
        if at + step <= most and one[ours - step : ours] == other[theirs - step : theirs]:
            at += step
        elif step == 1:
            break
        else:
            step = max(1, step // 16)
    return at
