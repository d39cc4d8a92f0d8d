"""Streamable HTTP within bounds: a body, an event or a compressed bomb that is too large ends the request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from glidepath import _wire
from glidepath.mcp.large_messages import SMALL, is_large, slim_bytes
from glidepath.mcp.mcp_server import ServerLink
from glidepath.mcp.oauth_login import provider_for
from glidepath.mcp.thread_calls import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

HTTP_FAILED = -32018  # in the range of JSON-RPC that is ours to use: HTTP itself failed
_NO_SSE = "there is no streamable HTTP at this address, and the older SSE transport is not supported"
KEPT = ("www-authenticate", "retry-after")


class HttpTransport:
    """Opens the HTTP client and the SDK's transport on entering; closes both on leaving."""

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Any:
        link = self._link
        timeout = httpx2.Timeout(link.connect_timeout, read=None)  # idle and absolute times are the call's own
        client = httpx2.AsyncClient(
            transport=_Bounded(httpx2.AsyncHTTPTransport(), link.max_message_bytes),
            headers={**link.headers, "accept-encoding": "identity"},
            timeout=timeout,
            auth=provider_for(link),
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(client)
            transport: AbstractAsyncContextManager[Any] = streamable_http_client(
                str(link.url), http_client=client, max_sse_event_size=link.max_message_bytes
            )
            streams = await stack.enter_async_context(transport)
            self._stack = stack.pop_all()
            return streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


class _Bounded(httpx2.AsyncBaseTransport):
    """Reads bodies up to the limit; a stream of events is bounded event by event instead.

    What goes wrong below HTTP becomes an answer with an error for that one request: raised, it would take down the
    SDK's connection and every call that is in flight on it.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            return _make_error_response(request, 502, f"the server cannot be reached: {_describe_error(error)}")
        kind = response.headers.get("content-type", "").lower()
        if not response.is_error and kind.startswith("text/event-stream"):
            response.stream = _Slim(response.stream, self._limit)
            return response
        try:
            body = await self._body(response)
        except (httpx2.TransportError, _TooLong) as error:
            return _make_error_response(request, 502, _describe_error(error))
        finally:
            await response.aclose()
        begins = request.method == "POST" and "mcp-session-id" not in request.headers
        if begins and response.status_code in (httpx2.codes.NOT_FOUND, httpx2.codes.METHOD_NOT_ALLOWED):
            said = f"HTTP {response.status_code} {response.reason_phrase}".strip()
            return _make_error_response(request, response.status_code, f"{said}: {_NO_SSE}", response.headers)
        gone = response.status_code == httpx2.codes.NOT_FOUND  # which the SDK reads as the end of the session
        if response.is_error and not gone and not kind.startswith("application/json"):
            said = f"HTTP {response.status_code} {response.reason_phrase}".strip()
            return _make_error_response(request, response.status_code, said, response.headers)
        if is_large(body):
            body = await run_in_thread(partial(slim_bytes, body))
        dropped = (b"transfer-encoding", b"content-length")
        headers = [pair for pair in response.headers.raw if pair[0].lower() not in dropped]
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    async def _body(self, response: httpx2.Response) -> bytes:
        encoding = response.headers.get("content-encoding", "")
        if encoding not in ("", "identity"):
            raise _TooLong(f"the server compressed its answer ({encoding}) although it was asked not to")
        length = response.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._limit:
            raise _make_too_long_error(self._limit)
        body = bytearray()
        async for chunk in response.stream:  # type: ignore[union-attr]
            body += chunk
            if len(body) > self._limit:
                raise _make_too_long_error(self._limit)
        return bytes(body)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Slim(httpx2.AsyncByteStream):
    """A stream of events in which messages with very many parts are made smaller; the SDK bounds each event."""

    def __init__(self, inner: Any, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        line = bytearray()
        async for chunk in self._inner:
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                line += chunk[start : end + 1]
                start = end + 1
                yield await _slim(bytes(line))
                line = bytearray()
            line += chunk[start:]
            if len(line) > self._limit or (len(line) > SMALL and not line.startswith(b"data:")):  # not ours to read
                yield bytes(line)
                line = bytearray()
        yield bytes(line)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _slim(line: bytes) -> bytes:
    if not line.startswith(b"data:") or not is_large(line):
        return line
    return b"data: " + await run_in_thread(partial(slim_bytes, line[5:].strip())) + b"\n"


class _TooLong(Exception):  # noqa: N818 - never leaves this module
    """The body is longer than we read."""


def _make_too_long_error(limit: int) -> _TooLong:
    return _TooLong(f"the server sent a message of more than {limit} bytes; raise max_message_bytes to allow it")


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__


def _make_error_response(
    request: httpx2.Request, status: int, why: str, headers: Mapping[str, str] | None = None
) -> httpx2.Response:
    """An HTTP answer that carries a JSON-RPC error; challenges for OAuth are kept."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": HTTP_FAILED, "message": why}}
    kept = {} if headers is None else {name: value for name, value in headers.items() if name in KEPT}
    kept["content-type"] = "application/json"
    return httpx2.Response(status, headers=kept, content=_wire.encode(error), request=request)
