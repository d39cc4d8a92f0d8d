"""A minimal HTTP client for our own server on loopback: one request, one streamed reply.

No client library is needed for one known peer, and importing one costs more than the whole start of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from glidepath import _wire
from glidepath.models.faults import Faults
from glidepath.models.local.server import Address
from glidepath.values import RejectedError, TransientError, describe_error

FAULTS = Faults("llama.cpp", (), "it is glidepath's own server")
_LIMIT = 1 << 22  # maximum bytes of a line
_BAD_REQUEST, _UNAUTHORIZED = 400, 401


class Response:
    """A reply whose head has been read. Closing it stops the server's work on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    async def send(self, request: bytes) -> None:
        """Send the request and read the head of the reply."""
        self._writer.write(request)
        await self._writer.drain()
        self.status = int((await self._line()).split(" ", 2)[1])
        while line := await self._line():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the connection ended")
        return line.decode("latin-1").strip()

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """The pieces of the body."""
        with _translate_broken_connection():
            if self.headers.get("transfer-encoding") != "chunked":
                yield await self._reader.readexactly(int(self.headers["content-length"]))
                return
            while size := int((await self._line()).partition(";")[0], 16):
                yield (await self._reader.readexactly(size + 2))[:-2]

    async def body(self) -> Any:
        """The whole body, read as JSON; text that is not JSON as a string."""
        data = b"".join([piece async for piece in self.iter_bytes()])
        try:
            return _wire.loads(data)
        except _wire.WireError:
            return data.decode("utf-8", "replace")

    async def close(self) -> None:
        """Close the connection."""
        self._writer.transport.abort()  # not close(): unsent data no longer matters
        with suppress(OSError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@contextmanager
def _translate_broken_connection() -> Iterator[None]:
    """A broken connection is a `TransientError`: the server is ours, so it has crashed."""
    try:
        yield
    except (OSError, EOFError, ValueError, LookupError, asyncio.LimitOverrunError) as error:
        raise TransientError(f"the connection to the model server broke: {describe_error(error)}") from error


async def post(address: Address, path: str, body: object) -> Response:
    """Send one request; raises the error that the reply tells."""
    try:
        data = _wire.encode(body)
    except (TypeError, ValueError, RecursionError, _wire.WireError) as error:
        raise RejectedError(f"the request cannot be written as JSON: {error}") from error
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {address.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    with _translate_broken_connection():
        response = Response(*await asyncio.open_connection("127.0.0.1", address.port, limit=_LIMIT))
    try:
        with _translate_broken_connection():
            await response.send(head.encode("ascii") + data)
        if response.status == _UNAUTHORIZED:
            raise TransientError("another server has taken the place of the model server")
        if response.status >= _BAD_REQUEST:
            raise FAULTS.refusal(response.status, await response.body())
    except BaseException:
        await response.close()
        raise
    return response


async def ask(address: Address, path: str, body: object) -> Any:
    """One request and the content of its reply."""
    async with await post(address, path, body) as response:
        return await response.body()
