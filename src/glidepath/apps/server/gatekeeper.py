"""The ASGI application around all routes: admission, then the content type and the size of a body.

What a key has open ends with the key, at whichever door: nothing more is sent then.

Every answer leaves with headers that keep a browser from doing anything but showing our own page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, TypeAlias

from glidepath import _wire
from glidepath.apps.server.caller_trace import continue_caller_trace
from glidepath.apps.server.locks import Doorkeeper
from glidepath.apps.server.locks.key_watch import KeyWatch, OpenRequest
from glidepath.apps.server.refusals import HttpError

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 1_000_000
MAX_HEAD = 32_768  # bytes of headers
DRAINED = 20  # this many times the limit is read and dropped, to answer a client that sends too much
BODY_SECONDS = 10.0  # in which a body must have arrived
OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that need neither a token nor a known host: health checks for the operator."""
UNLOCK = "/api/unlock"
"""Where a one-time code is exchanged for the token."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"x-frame-options", b"DENY"),
)
_READ = ("GET", "HEAD")
_PRIVATE = ("/api/", "/v1/", "/agui", "/mcp")


class _Answer:
    """What is sent back: with our own headers, and nothing more once the key of its reader is `void`."""

    def __init__(self, send: Send, path: str, shared: tuple[tuple[bytes, bytes], ...]) -> None:
        self._send = send
        self.path = path
        self._shared = shared
        self.began = False
        self.ended = False
        self.void = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        """Send one message."""
        if self.void:
            return
        if message["type"] == "http.response.start":
            self.began = True
            message["headers"] = _add_security_headers([*message.get("headers", ()), *self._shared])
        elif not message.get("more_body", False):
            self.ended = True
        await self._send(message)

    async def end(self, why: str) -> None:
        """Tell a reader whose key is void, or end what it was sent so far."""
        self.void = False
        if not self.began:
            await refuse(HttpError(401, "key_void", f"{why}: ask the operator for another one"), self, self.path)
        elif not self.ended:
            await self({"type": "http.response.body", "body": b"", "more_body": False})


async def _answer_while_good(request: OpenRequest, answer: _Answer, work: Coroutine[Any, Any, None]) -> None:
    """Have a request answered for as long as its key is good."""
    request.ending = lambda: setattr(answer, "void", True)
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if request.why is None or task is None or task.uncancel():
            raise  # somebody else wants it to end
    finally:
        request.close()
    if request.why is not None and answer.void:
        await answer.end(request.why)


class Gatekeeper:
    """The ASGI application around all routes."""

    def __init__(
        self,
        app: App,
        *,
        admission: Doorkeeper,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
        prefix: str = "",
        watch: KeyWatch | None = None,
    ) -> None:
        self.app = app
        self._watch = watch
        self._prefix = prefix
        self._admission = admission
        self._max_body = max_body
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let it pass, or answer with the error."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = _headers(scope)
        answer = _Answer(send, self._find_path(scope), self._admission.cors_headers(headers))
        try:
            await self._answer(scope, headers, receive, answer)
        except HttpError as refused:
            if answer.began:
                raise
            await refuse(refused, answer, answer.path)

    def _find_path(self, scope: Scope) -> str:
        """The path without the prefix, which the proxy may have left on."""
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if self._prefix and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            return path.removeprefix(self._prefix) or "/"
        return path

    async def _answer(self, scope: Scope, headers: Mapping[str, list[str]], receive: Receive, answer: _Answer) -> None:
        """Admit a request and have it answered; raises `HttpError`."""
        if sum([len(name) + len(value) for name, value in scope["headers"]]) > MAX_HEAD:
            raise HttpError(431, "large_headers", f"the headers may have {MAX_HEAD} bytes at most")
        path, given = answer.path, scope["path"].removeprefix(scope.get("root_path", ""))
        bare = bool(self._prefix) and given == self._prefix
        if path != given:
            scope = {**scope, "path": path, "root_path": ""}
        admitted = await self._admission.admit(scope["method"], path, headers)
        visitor = admitted.visitor
        if visitor is not None:
            scope.setdefault("state", {})["visitor"] = visitor
        if admitted.preflight:
            await send_empty(204, admitted.preflight, answer)
        elif bare:
            await redirect(f"{self._prefix}/", scope, answer)
        elif visitor is not None and visitor.key is not None and self._watch is not None:
            with self._watch.watch_request(visitor.key) as request:
                await _answer_while_good(
                    request, answer, self._pass_on(scope, headers, request.receive_until_void(receive), answer)
                )
        else:
            await self._pass_on(scope, headers, receive, answer)

    async def _pass_on(self, scope: Scope, headers: Mapping[str, list[str]], receive: Receive, send: Send) -> None:
        if scope["method"] in _READ or (scope["method"] == "DELETE" and not _has_body(headers)):
            await self.app(scope, receive, send)
            return
        receive = await self._read_body(headers, receive)
        with continue_caller_trace(headers):
            await self.app(scope, receive, send)

    async def _read_body(self, headers: Mapping[str, list[str]], receive: Receive) -> Receive:
        """Read the whole body, bounded in size and time, and hand it on as one message."""
        kind = headers.get("content-type", [""])[-1].partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HttpError(415, "not_json", "send JSON: Content-Type: application/json")
        length = headers.get("content-length", ["0"])[-1]
        if not length.isdigit() or int(length[:20]) > DRAINED * self._max_body:
            raise HttpError(413, "too_large", f"the body may have {self._max_body} bytes at most")
        try:
            body = await asyncio.wait_for(self._read(receive), self._body_seconds)
        except TimeoutError:
            raise HttpError(408, "too_slow", f"the body did not arrive within {self._body_seconds:g} seconds") from None
        whole = False

        async def receive_body() -> MutableMapping[str, Any]:
            nonlocal whole
            if not whole:
                whole = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        return receive_body

    async def _read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HttpError(400, "incomplete", "the body ended before it was whole")
            part = message.get("body", b"")
            size += len(part)
            if size <= self._max_body:
                parts.append(part)
            else:  # read and dropped: a client still writing when we hang up sees a broken pipe instead of the error
                parts.clear()
            more = message.get("more_body", False)
            if size > self._max_body and (not more or size > DRAINED * self._max_body):
                raise HttpError(413, "too_large", f"the body may have {self._max_body} bytes at most")
            if not more:
                return b"".join(parts)


def is_private(path: str) -> bool:
    """True for what needs a token: everything but the page's own files."""
    return path.startswith(_PRIVATE) or path in ("/api", "/v1", "/metrics", "/openapi.json")


def _has_body(headers: Mapping[str, list[str]]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", ["0"])[-1] != "0"


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope.get("headers", ()):
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _add_security_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    given = {name.lower() for name, _ in headers}
    if b"cache-control" not in given:
        headers.append((b"cache-control", b"no-store"))
    return [*headers, *[one for one in _HEADERS if one[0] not in given]]


async def redirect(path: str, scope: Scope, send: Send) -> None:
    """Send the browser to a path: the page's addresses are relative, and need the slash at its end."""
    query = scope.get("query_string", b"")
    location = path.encode() + (b"?" + query if query else b"")
    await send_empty(308, ((b"location", location),), send)


async def send_empty(status: int, headers: tuple[tuple[bytes, bytes], ...], send: Send) -> None:
    """Answer without a body."""
    length = () if status == 204 else ((b"content-length", b"0"),)  # noqa: PLR2004 - which never has a length
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b""})


async def refuse(refused: HttpError, send: Send, path: str) -> None:
    """Answer with an error, as the protocol behind this path has it."""
    body = _wire.encode(refused.body_for(path))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:  # noqa: PLR2004 - the one that must say how
        headers.append((b"www-authenticate", b'Bearer realm="glidepath"'))
    if refused.retry_after is not None:
        headers.append((b"retry-after", str(refused.retry_after).encode()))
    if refused.status in (408, 413, 415, 431):  # the body was not read: this connection is of no further use
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
