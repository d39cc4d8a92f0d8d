"""HTTP/1.1 on one connection: requests are read whole, replies written as bytes or as a paced stream of pieces."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl, unquote

from glidepath._wire import Record

LARGEST_HEAD = 64 * 1024
LARGEST_BODY = 64 * 1024 * 1024
END_OF_HEAD = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
REASONS = {status.value: status.phrase.encode() for status in HTTPStatus} | {529: b"Overloaded"}


class HttpRequest(Record):
    """A request, whole. Names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    raw_headers: list[tuple[str, str]]
    body: bytes = b""
    is_last: bool = False


class HttpReply(Record):
    """A reply: `body` or `chunks` at once, or the pieces of `stream` as they come.

    `is_broken` closes the connection before the reply is complete.
    """

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    chunks: list[bytes] | None = None
    stream: AsyncIterator[bytes] | None = None
    is_broken: bool = False


Responder = Callable[[HttpRequest], HttpReply]


class BadHttpError(Exception):
    """Bytes that are not a request of HTTP/1.1, with the status to answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpConnection(asyncio.Protocol):
    """One client. Requests on it are answered in order; a client that leaves ends the stream it was reading."""

    def __init__(self, respond: Responder, connections: set[HttpConnection]) -> None:
        self._respond = respond
        self._connections = connections
        self._buffer = bytearray()
        self._head: HttpRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Called by asyncio."""
        self._connections.discard(self)
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Called by asyncio: the client reads more slowly than we write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._buffer += data
        if self._task is None:
            self._proceed()

    def close(self) -> None:
        """Drop the client."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Return once nothing of it is left."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _proceed(self) -> None:
        """Answer every request that is in the buffer."""
        try:
            while self._transport is not None and (request := self._take_request()):
                self._answer(request)
                if self._task is not None:
                    return
        except BadHttpError as error:
            if self._transport is not None:
                self._transport.write(write_head(error.status, {"content-type": "text/plain", "connection": "close"}))
                self._transport.write(str(error).encode())
                self._transport.close()

    def _take_request(self) -> HttpRequest | None:
        if self._head is None:
            end = self._buffer.find(END_OF_HEAD)
            if end < 0:
                if len(self._buffer) > LARGEST_HEAD:
                    raise BadHttpError(431, f"the head of a request may have {LARGEST_HEAD} bytes")
                return None
            self._head = read_head(bytes(self._buffer[:end]))
            del self._buffer[: end + len(END_OF_HEAD)]
            if self._head.headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        taken = take_body(self._buffer, self._head.headers)
        if taken is None:
            return None
        request, self._head = self._head, None
        request.body = decompress(taken, request.headers.get("content-encoding", "identity"))
        return request

    def _answer(self, request: HttpRequest) -> None:
        transport = self._transport
        if transport is None:
            return
        reply = self._respond(request)
        ending = {"connection": "close"} if request.is_last else {}
        if reply.stream is not None:
            self._task = asyncio.get_running_loop().create_task(self._stream(request, reply, ending))
            return
        if reply.chunks is None:
            size, body = {"content-length": str(len(reply.body))}, reply.body
        else:
            size = {"transfer-encoding": "chunked"}
            body = b"".join([b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in reply.chunks]) + LAST_CHUNK
        head = write_head(reply.status, {**reply.headers, **size, **ending})
        transport.write(head if request.method == "HEAD" else head + body)
        if request.is_last:
            transport.close()

    async def _stream(self, request: HttpRequest, reply: HttpReply, ending: dict[str, str]) -> None:
        pieces = cast("AsyncIterator[bytes]", reply.stream)
        is_whole = "content-length" in reply.headers
        head = write_head(
            reply.status, {**reply.headers, **({} if is_whole else {"transfer-encoding": "chunked"}), **ending}
        )
        try:
            async for piece in pieces:
                await self._writable.wait()
                if self._transport is None or self._transport.is_closing():
                    return
                framed = piece if is_whole else b"%x\r\n%b\r\n" % (len(piece), piece)
                self._transport.write(head + framed if head else framed)
                head = b""
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()
        self._finish_stream(request, reply, head, is_whole=is_whole)

    def _finish_stream(self, request: HttpRequest, reply: HttpReply, head: bytes, *, is_whole: bool) -> None:
        self._task = None
        if self._transport is None:
            return
        if reply.is_broken:
            if head:
                self._transport.write(head)
            self._transport.close()  # what was written still arrives; the last chunk never does
            return
        self._transport.write(head + (b"" if is_whole else LAST_CHUNK))
        if request.is_last:
            self._transport.close()
        else:
            self._proceed()


def read_head(data: bytes) -> HttpRequest:
    """Read the request line and the headers."""
    lines = data.decode("latin-1").lstrip("\r\n").split("\r\n")
    method, _, rest = lines[0].partition(" ")
    target, _, version = rest.partition(" ")
    if not target or not version.startswith("HTTP/1."):
        raise BadHttpError(400, "this is not a request of HTTP/1.1")
    raw = []
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadHttpError(400, f"{line[:80]!r} is not a header")
        raw.append((name, value.strip()))
        headers[name.lower()] = value.strip()
    path, _, query = target.partition("?")
    wishes = headers.get("connection", "").lower()
    return HttpRequest(
        method=method,
        path=unquote(path),
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers=headers,
        raw_headers=raw,
        is_last="close" in wishes or (version == "HTTP/1.0" and "keep-alive" not in wishes),
    )


def take_body(buffer: bytearray, headers: Mapping[str, str]) -> bytes | None:
    """Take a body from the buffer; None when it is not there yet."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return take_chunks(buffer)
    length = headers.get("content-length", "0")
    if not length.isdigit():
        raise BadHttpError(400, f"content-length: {length!r} is not a number")
    size = int(length)
    if size > LARGEST_BODY:
        raise BadHttpError(413, f"a body may have {LARGEST_BODY} bytes")
    if len(buffer) < size:
        return None
    body = bytes(buffer[:size])
    del buffer[:size]
    return body


def take_chunks(buffer: bytearray) -> bytes | None:
    """Take a chunked body from the buffer; None when its last chunk is not there yet."""
    if len(buffer) > LARGEST_BODY:
        raise BadHttpError(413, f"a body may have {LARGEST_BODY} bytes")
    parts: list[bytes] = []
    place = 0
    while True:
        end = buffer.find(b"\r\n", place)
        if end < 0:
            return None
        try:
            size = int(buffer[place:end].split(b";")[0], 16)
        except ValueError:
            raise BadHttpError(400, "a chunk begins without its size") from None
        place = end + 2
        if len(buffer) < place + size + 2:
            return None
        if size == 0:
            del buffer[: place + 2]
            return b"".join(parts)
        parts.append(bytes(buffer[place : place + size]))
        place += size + 2


def decompress(body: bytes, encoding: str) -> bytes:
    """The body as it was before it was compressed."""
    try:
        if encoding in ("", "identity"):
            return body
        if encoding == "gzip":
            return gzip.decompress(body)
        if encoding == "deflate":
            return zlib.decompress(body)
    except (OSError, zlib.error, EOFError) as error:
        raise BadHttpError(400, f"the body is not {encoding}: {error}") from None
    raise BadHttpError(415, f"content-encoding {encoding!r} is not supported; use gzip or deflate")


def write_head(status: int, headers: Mapping[str, str]) -> bytes:
    """The status line and the headers."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, REASONS.get(status, b"Unknown"), lines.encode("latin-1"))
