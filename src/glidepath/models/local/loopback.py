"""A minimal HTTP client for our own server on loopback: one request, one streamed reply.

No client library is needed for one known peer, and importing one costs more than the whole start of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from glidepath import _wire
from glidepath.errors import RejectedError, TransientError, told
from glidepath.models.local.server import Address

_LIMIT = 1 << 22  # maximum bytes of a line
_BODY = 1 << 26  # maximum bytes of a reply that is read at once


class Response:
    """A reply whose head has been read."""

    def __init__(self, reader: asyncio.StreamReader, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status
        self._reader = reader
        self._chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        self._over = False
        self._length = int(headers.get(b"content-length", b"-1"))

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end. Raises `EOFError` when the connection ends before it does."""
        if self._over:
            return b""
        reader = self._reader
        if not self._chunked:
            self._over = True
            return await (reader.read(_BODY) if self._length < 0 else reader.readexactly(self._length))
        size = int((await _line(reader)).partition(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        self._over = not size
        return data[:-2]

    async def body(self) -> Any:
        """The whole body, read as JSON; text that is not JSON as a string."""
        data = b""
        while piece := await self.read():
            data += piece
        try:
            return _wire.loads(data)
        except _wire.WireError:
            return data.decode("utf-8", "replace")


async def _line(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the connection ended")
    return line.strip()


@asynccontextmanager
async def post(address: Address, path: str, body: object) -> AsyncIterator[Response]:
    """Send one request; leaving the block closes the connection, which stops the server's work on it.

    A broken connection is a `TransientError`: the server is ours, so it has crashed.
    """
    try:
        data = _wire.encode(body)
    except (TypeError, ValueError, RecursionError, _wire.WireError) as error:
        raise RejectedError(f"the request cannot be written as JSON: {error}") from error
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {address.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port, limit=_LIMIT)
        writer.write(head.encode("ascii") + data)
        await writer.drain()
        status = int((await _line(reader)).split(b" ", 2)[1])
        headers = {}
        while line := await _line(reader):
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        yield Response(reader, status, headers)
    except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as error:
        raise TransientError(f"the connection to the model server broke: {told(error)}") from error
    finally:
        if writer is not None:
            writer.transport.abort()  # not close(): unsent data no longer matters
            with suppress(OSError):
                await writer.wait_closed()


async def ask(address: Address, path: str, body: object) -> tuple[int, Any]:
    """One request and its whole reply: status and content."""
    async with post(address, path, body) as response:
        return response.status, await response.body()
