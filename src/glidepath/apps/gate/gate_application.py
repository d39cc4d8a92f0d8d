"""The gate as an ASGI application: locks, paths and bodies; what is governed begins behind it.

It can be mounted under any prefix. The segments of a path before `/v1` name the line (`/acme/ann/run-77/v1/...`); the
first of them may be the key itself, for clients whose own credentials are passed through.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from glidepath._wire import Record
from glidepath.apps.gate.bodies import (
    BODY_SECONDS,
    MAX_BODY,
    PATIENCE,
    BadBodyError,
    ClientGone,
    Receive,
    decompress,
    read_body,
)
from glidepath.apps.gate.exchange_watch import ExchangeWatch
from glidepath.apps.gate.exchanges import DRAINED, Desk, Exchange, Send
from glidepath.apps.gate.gate_routes import GateRoute, guess_dialect, read_route
from glidepath.apps.gate.governing import GateAnswer, GateRequest, Governor
from glidepath.apps.gate.recordings.taps import Tap
from glidepath.apps.gate.upstream_client import UpstreamClient
from glidepath.apps.server.locks import Doorkeeper, KeyRing, Visitor
from glidepath.apps.server.locks.key_watch import KeyWatch, OpenRequest
from glidepath.apps.server.refusals import HttpError

OWN_HEADER = b"x-glidepath-key"
"""Where a client whose own credentials are passed on can put the gate's key, if not into the path."""
_LEAST_SECRET = 16  # characters of a path segment that may be a key
_MOST_SECRETS = 8  # credentials of one request that are looked at
_NO_KEY = (
    "send the key of this gate: as `Authorization: Bearer KEY`, `x-api-key`, `x-goog-api-key`, `x-glidepath-key`, or "
    "as the first segment of the base URL's path"
)
_NO_PATH = (
    "this gate has no such path: it serves /v1/messages, /v1/messages/count_tokens, /v1/chat/completions, "
    "/v1/responses, /v1beta/models/MODEL:generateContent and :streamGenerateContent, and /v1/models"
)


class RequestHead(Record, kw_only=True):
    """What the head of a request says, read once."""

    locks: dict[str, list[str]]
    secrets: list[str]
    """Credentials, from headers and the query."""
    length: bytes | None = None
    encoding: str = ""
    is_upgrade: bool = False
    is_anthropic: bool = False
    is_google: bool = False


class GateApplication:
    """Serves the gate. `stop` ends all runs at once; `drain` waits for calls in flight, and no run ends by it."""

    def __init__(
        self,
        governor: Governor,
        client: UpstreamClient,
        doorkeeper: Doorkeeper,
        *,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
        patience: float = PATIENCE,
        keys: KeyRing | None = None,
        tap: Tap | None = None,
    ) -> None:
        self.governor = governor
        self._desk = Desk(governor, client, patience)
        self._client = client
        self._doorkeeper = doorkeeper
        self._max_body = max_body
        self._body_seconds = body_seconds
        self._watch = ExchangeWatch()
        self._tap = tap
        self._key_watch = None if keys is None else KeyWatch(keys)
        self._stopped: str | None = None
        self._is_draining = False

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """One connection's worth of ASGI."""
        kind = scope["type"]
        if kind == "http":
            await self._serve(scope, receive, send)
        elif kind == "lifespan":
            await self._live(receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    def change(self, *, max_body: int, body_seconds: float) -> None:
        """Let other bounds hold for the requests that come."""
        self._max_body, self._body_seconds = max_body, body_seconds

    @property
    def in_flight(self) -> int:
        """How many calls are on their way."""
        return len(self._watch.exchanges)

    async def stop(self, reason: str) -> None:
        """No further call; those in flight end now, each in its dialect."""
        self._stopped = reason
        await self.governor.stop(reason)
        self._watch.check(asyncio.get_running_loop().time())
        for one in tuple(self._watch.exchanges):  # those that had no head yet, or a governor that forgot them
            one.interrupt("cut")

    async def drain(self, seconds: float) -> None:
        """Take no further call and wait for those in flight, but not longer than this; then break them off.

        No run ends by that: its agent asks again, and the gate that serves then continues with what the run has spent.
        """
        self._is_draining = True
        await self._watch.wait_idle(seconds)
        for one in tuple(self._watch.exchanges):
            one.interrupt(DRAINED)
        await self._watch.wait_idle(1)

    async def close(self) -> None:
        """Settle what is being settled and close the connections to the upstreams."""
        if self._desk.settling:
            await asyncio.wait(tuple(self._desk.settling), timeout=5)
        if self._tap is not None:
            await self._tap.close()
        await self._client.close()

    async def _serve(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        raw_path = _own_path(scope)
        method = scope["method"]
        head = _read_head(scope)
        route = read_route(method, raw_path)
        request = _make_request(scope, route or GateRoute(line=(), dialect=guess_dialect(raw_path)), head)
        try:
            keys = await self._let_in(scope, route, head, request)
            if route is None:
                raise HttpError(404, "not_found_error", _NO_PATH)
            if not route.dialect:  # the base URL: clients look whether somebody is there
                await _reply(send, GateAnswer(status=200, body=b""))
                return
            wire_body = _hide_keys(request, await self._read(receive, head, request), keys)
        except ClientGone:
            return
        except (HttpError, BadBodyError) as error:
            kind = error.code if isinstance(error, HttpError) else error.kind
            await _reply(send, self._desk.refuse(request, error.status, kind, str(error)), closes=True)
            return
        await self._fly(request, wire_body, receive, send)

    async def _fly(self, request: GateRequest, wire_body: bytes, receive: Receive, send: Send) -> None:
        if self._tap is None:
            await self._exchange(request, wire_body, receive, send)
            return

        async def fly(request: GateRequest, send: Send) -> None:
            await self._exchange(request, wire_body, receive, send)

        await self._tap.pass_call(request, receive, send, fly)

    async def _exchange(self, request: GateRequest, wire_body: bytes, receive: Receive, send: Send) -> None:
        exchange = Exchange(self._desk, request, wire_body, send)
        self._watch.add(exchange)
        watcher = asyncio.ensure_future(_await_leaving(receive, exchange))
        try:
            if self._key_watch is None or request.key is None or request.key.key is None:
                await exchange.fly()
                return
            with self._key_watch.watch_request(request.key.key) as opened:
                opened.ending = functools.partial(_cut_void, exchange, opened)
                await exchange.fly()
        finally:
            self._watch.discard(exchange)
            watcher.cancel()

    async def _let_in(
        self, scope: dict[str, Any], route: GateRoute | None, head: RequestHead, request: GateRequest
    ) -> list[bytes]:
        """Check host, origin and key; keys of this gate are taken out of the request's head, and returned."""
        if self._stopped is not None:
            raise HttpError(403, "stopped", f"this gate takes no more calls: {self._stopped}")
        if self._is_draining:
            raise HttpError(503, "shutting_down", DRAINED)
        if route is not None and not route.dialect:
            await self._check_key(scope, head, None)
            return []
        if head.is_upgrade:
            raise HttpError(426, "upgrade_refused", "this gate speaks HTTP only: send the request without an upgrade")
        visitor, keys = await self._find_visitor(scope, route, head)
        secrets = _take_out(request, keys)
        visitor.must("start")
        if visitor.key is not None and visitor.key.agents:
            raise HttpError(403, "permission_error", _describe_agents(visitor))
        request.key = visitor
        return secrets

    async def _find_visitor(
        self, scope: dict[str, Any], route: GateRoute | None, head: RequestHead
    ) -> tuple[Visitor, list[str]]:
        """Who calls, by the first key that opens this gate, and every such key in the request."""
        segment = route.line[0] if route is not None and route.line else ""
        if len(segment) >= _LEAST_SECRET:
            head.secrets.insert(0, segment)
        refused = HttpError(401, "authentication_error", _NO_KEY)
        found, keys = None, []
        for secret in head.secrets[:_MOST_SECRETS] or [""]:
            try:
                visitor = await self._check_key(scope, head, secret)
            except HttpError as error:
                if found is None and (error.status in (421, 503) or error.code in ("wrong_origin", "key_void")):
                    raise
            else:
                if visitor is not None:
                    found = found or visitor
                    keys.append(secret)
        if found is None:
            raise refused
        return found, keys

    async def _check_key(self, scope: dict[str, Any], head: RequestHead, secret: str | None) -> Visitor | None:
        """Ask the doorkeeper, who checks host and origin first; without a secret nothing but these."""
        head.locks["authorization"] = [f"Bearer {secret}"]
        try:
            return (await self._doorkeeper.admit(scope["method"], scope["path"], head.locks)).visitor
        except HttpError as error:
            if secret is None and error.status == 401:  # noqa: PLR2004
                return None
            raise

    async def _read(self, receive: Receive, head: RequestHead, request: GateRequest) -> bytes:
        """Read the body into the request, decompressed; what came over the wire is returned."""
        try:
            async with asyncio.timeout(self._body_seconds):
                body = await read_body(receive, self._max_body, head.length)
        except TimeoutError:
            raise BadBodyError(
                408, "request_timeout", f"the request's body did not arrive in {self._body_seconds:g} s"
            ) from None
        request.body = body
        if head.encoding not in ("", "identity") and body:
            request.body = decompress(body, head.encoding, self._max_body)
            request.is_verbatim = False
        return body

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _await_leaving(receive: Callable[[], Awaitable[Any]], exchange: Exchange) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    exchange.interrupt("gone")


def _cut_void(exchange: Exchange, opened: OpenRequest) -> None:
    """End a call whose key is void in its dialect; it settles in its own time."""
    exchange.cut(opened.why or "its key is void")
    opened.close()


def _describe_agents(visitor: Visitor) -> str:
    return (
        f"key {visitor.name} is for the agents {', '.join(visitor.key.agents if visitor.key else ())}, and a gate has "
        "no agents: make a key without --agent for it"
    )


def _own_path(scope: dict[str, Any]) -> bytes:
    """The path below the mount, still percent-encoded."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    root = quote(scope.get("root_path", "")).encode()
    return raw[len(root) :] if root and raw.startswith(root) else raw


def _read_head(scope: dict[str, Any]) -> RequestHead:
    head = RequestHead(locks={}, secrets=[])
    for name, value in scope["headers"]:
        if name in (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode"):
            head.locks.setdefault(name.decode(), []).append(value.decode("latin-1"))
        elif name == b"authorization":
            scheme, _, secret = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                head.secrets.append(secret.strip())
        elif name in (b"x-api-key", b"x-goog-api-key", OWN_HEADER):
            head.secrets.append(value.decode("latin-1").strip())
            head.is_google = head.is_google or name == b"x-goog-api-key"
        elif name == b"content-length":
            head.length = value
        elif name == b"content-encoding":
            head.encoding = f"{head.encoding},{value.decode('latin-1')}" if head.encoding else value.decode("latin-1")
        elif name == b"upgrade":
            head.is_upgrade = True
        elif name == b"anthropic-version":
            head.is_anthropic = True
    query = scope.get("query_string", b"")
    if b"key=" in query:
        given = [part[4:] for part in query.split(b"&") if part.startswith(b"key=")]
        head.secrets.extend([unquote_to_bytes(one).decode("latin-1") for one in given])
        head.is_google = True
    return head


def _take_out(request: GateRequest, keys: list[str]) -> list[bytes]:
    """Remove keys of this gate from the head: none of them goes to an upstream, or into a journal."""
    secrets = [key.encode("latin-1") for key in keys]
    request.line = tuple([one for one in request.line if one not in keys])
    request.headers = [pair for pair in request.headers if not any(one in pair[1] for one in secrets)]
    if request.query and any(one in unquote_to_bytes(request.query) for one in secrets):
        kept = [one for one in request.query.split(b"&") if not any(key in unquote_to_bytes(one) for key in secrets)]
        request.query = b"&".join(kept)
    return secrets


def _hide_keys(request: GateRequest, wire_body: bytes, keys: list[bytes]) -> bytes:
    """The body to forward. A key in it, which a tool of the client has printed, becomes stars of its length."""
    found = [key for key in keys if key in request.body]
    if not found:
        return wire_body
    for key in found:
        request.body = request.body.replace(key, b"*" * len(key))
    request.is_verbatim = False
    request.headers = [pair for pair in request.headers if pair[0] != b"content-encoding"]
    return request.body


def _make_request(scope: dict[str, Any], route: GateRoute, head: RequestHead) -> GateRequest:
    dialect = route.dialect or "openai-chat"
    if route.operation == "models" and dialect == "openai-chat":  # three vendors have this path
        if head.is_anthropic:
            dialect = "anthropic"
        elif head.is_google:
            dialect = "gemini"
    return GateRequest(
        dialect=dialect,
        operation=route.operation,
        line=route.line,
        method=scope["method"],
        path=route.path,
        query=scope.get("query_string", b""),
        headers=scope["headers"],
        body=b"",
        path_model=route.path_model,
        is_streamed_by_path=route.is_streamed_by_path,
    )


async def _reply(send: Send, answer: GateAnswer, *, closes: bool = False) -> None:
    """A whole answer. One that was given before the body was read closes the connection."""
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        *answer.headers,
    ]
    if closes:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
