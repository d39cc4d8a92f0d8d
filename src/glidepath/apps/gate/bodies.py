"""Reads request bodies: bounded in size and time, and decompressed where a client compresses."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from typing import Any

from glidepath.values import GlidepathError

Receive = Callable[[], Awaitable[Any]]
MIB = 1 << 20
MAX_BODY = 32 * MIB
BODY_SECONDS = 60.0  # in which a body must have arrived
PATIENCE = 5.0  # seconds without a header, then 200 and signs of life
_MOST_CODINGS = 3  # of one body: each may cost as much as the largest body
_STEP = 256 * 1024  # bytes that are decompressed before the bound is looked at
_ZSTD = ("compression.zstd", "backports.zstd", "zstandard")


class BadBodyError(GlidepathError):
    """A body that is not taken; `status` says why."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class ClientGone(Exception):  # noqa: N818 - what happened
    """The client has closed its connection."""


async def read_body(receive: Receive, bound: int, declared: bytes | None) -> bytes:
    """The whole body; raises `BadBodyError` when it is longer than the bound, `ClientGone` when it never ends."""
    if declared is not None and declared.isdigit() and int(declared) > bound:
        raise too_long(bound)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    if not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > bound:
            raise too_long(bound)
        return body
    parts, size = [], 0
    while True:
        part = message.get("body", b"")
        size += len(part)
        if size > bound:
            raise too_long(bound)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone


def too_long(bound: int) -> BadBodyError:
    """The error for a body beyond the bound."""
    return BadBodyError(
        413, "request_too_large", f"the request is larger than {bound / MIB:g} MiB, the most this gate takes (max_body)"
    )


def decompress(body: bytes, encoding: str, bound: int) -> bytes:
    """The body before the client compressed it; raises `BadBodyError`, also for what would fill the memory."""
    codings = [word.strip().lower() for word in encoding.split(",") if word.strip()]
    if len(codings) > _MOST_CODINGS:
        raise BadBodyError(
            415, "unsupported_encoding", f"the body is encoded {len(codings)} times over: send it with one encoding"
        )
    for one in reversed(codings):
        if one == "identity":
            continue
        body = _inflate(body, one, bound)
    return body


def _inflate(body: bytes, encoding: str, bound: int) -> bytes:
    found = bytearray()
    try:
        for piece in _pieces(body, encoding):
            found += piece
            if len(found) > bound:
                raise too_long(bound)
    except BadBodyError:
        raise
    except Exception as error:  # each library has its own
        raise BadBodyError(
            400, "bad_encoding", f"the body is not what content-encoding {encoding!r:.30} says ({type(error).__name__})"
        ) from None
    return bytes(found)


def _pieces(body: bytes, encoding: str) -> Iterator[bytes]:
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _zlib_pieces(body, encoding)
    if encoding == "zstd":
        library = next((found for found in map(_find, _ZSTD) if found is not None), None)
        if library is not None:
            return _zstd_pieces(body, library)
    if encoding == "br":
        library = _find("brotli")
        if hasattr(getattr(library, "Decompressor", None), "can_accept_more_data"):  # older ones cannot be bounded
            return _brotli_pieces(body, library)
    raise BadBodyError(
        415,
        "unsupported_encoding",
        f"this gate cannot read content-encoding {encoding!r:.30}: send the request uncompressed, or with gzip",
    )


def _zlib_pieces(body: bytes, encoding: str) -> Iterator[bytes]:
    bits = 31 if "gzip" in encoding else 15
    if encoding == "deflate" and body[:1] and body[0] & 0x0F != 8:  # noqa: PLR2004 - no zlib header: raw deflate
        bits = -15
    machine = zlib.decompressobj(bits)
    piece = machine.decompress(body, _STEP)
    while piece:
        yield piece
        piece = machine.decompress(machine.unconsumed_tail, _STEP)
    if not machine.eof or machine.unused_data:
        raise ValueError("cut off, or something after its end")


def _zstd_pieces(body: bytes, library: Any) -> Iterator[bytes]:
    if hasattr(library, "ZstdDecompressor") and hasattr(library.ZstdDecompressor, "stream_reader"):  # zstandard
        reader = library.ZstdDecompressor(max_window_size=128 * MIB).stream_reader(body)
        while piece := reader.read(_STEP):
            yield piece
        return
    machine = library.ZstdDecompressor()
    data = body
    while not machine.eof:
        piece = machine.decompress(data, max_length=_STEP)
        data = b""
        if not piece and machine.needs_input:
            raise ValueError("cut off")
        yield piece


def _brotli_pieces(body: bytes, library: Any) -> Iterator[bytes]:
    machine = library.Decompressor()
    piece = machine.process(body, output_buffer_limit=_STEP)
    while piece:
        yield piece
        piece = b"" if machine.is_finished() else machine.process(b"", output_buffer_limit=_STEP)
    if not machine.is_finished():
        raise ValueError("cut off")


def _find(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        return None
