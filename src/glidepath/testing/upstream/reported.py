"""What a reply reports about itself, and the pieces it is sent in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from glidepath._wire import Value
from glidepath.testing.upstream.spoken import BYTES_PER_TOKEN

Piece: TypeAlias = tuple[bytes, int]
"""Bytes to send, and how many tokens of output are on the wire once they are sent."""


class Reported(Value):
    """The usage that the upstream reports; a fault may make it differ from what was used, or leave it out."""

    input: int
    cached: int
    written: int
    output: int
    hidden: int = 0
    is_told: bool = True


def meter_pieces(pieces: Iterable[str], before: int = 0) -> Iterator[tuple[str, int]]:
    """Each piece with the tokens up to its end, `before` included: at the end as many as the whole text has."""
    size = 0
    for piece in pieces:
        size += len(piece.encode())
        yield piece, before - (-size // BYTES_PER_TOKEN)


def split_text(text: str, size: int) -> Iterator[str]:
    """A text in pieces of `size` characters."""
    for start in range(0, len(text), size):
        yield text[start : start + size]
