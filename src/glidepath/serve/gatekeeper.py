"""Access control: host, origin, token, role, content type and size are checked before any route.

Every answer leaves with headers that keep a browser from doing anything but showing our own page.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from glidepath import _wire
from glidepath._wire import Value
from glidepath.errors import ConfigurationError
from glidepath.serve.caller_trace import in_trace_of_caller
from glidepath.serve.refusals import Refused

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 1_000_000
MAX_HEAD = 32_768  # bytes of headers
DRAINED = 20  # this many times the limit is read and dropped, to answer a client that sends too much
BODY_SECONDS = 10.0  # in which a body must have arrived
LEAST_TOKEN = 16  # characters
ROLES = ("view", "control")
OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that need neither a token nor a known host: health checks for the operator."""
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


class Visitor(Value, frozen=True):
    """The caller: the name of the token, and what it may do."""

    name: str
    role: str


def checked_tokens(token: Any) -> dict[str, Visitor]:
    """Every secret with its visitor; raises `ConfigurationError` for one that is too easy to guess."""
    given = {token: "control"} if isinstance(token, str) else token
    if not isinstance(given, Mapping) or not given:
        raise ConfigurationError(f"token must be a str, or a mapping of tokens to roles, not {type(token).__name__}")
    found: dict[str, Visitor] = {}
    for secret, role in given.items():
        if not isinstance(secret, str) or len(secret) < LEAST_TOKEN or not secret.isascii() or not secret.isprintable():
            raise ConfigurationError(f"a token must be at least {LEAST_TOKEN} printable ASCII characters long")
        word, _, name = str(role).partition(":")
        if word not in ROLES:
            raise ConfigurationError(f"a token's role must be 'view' or 'control', not {role!r:.80}")
        found[secret] = Visitor(name or word, word)
    return found


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    if host.lower() in ("localhost", "ip6-localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def allowed_hosts(extra: Any = ()) -> frozenset[str]:
    """The host names that a request may name, in lower case, without a port."""
    if isinstance(extra, str):
        extra = (extra,)
    return frozenset({"localhost", "127.0.0.1", "[::1]", *[_host(str(one)) for one in extra]})


def _host(value: str) -> str:
    """The host of a Host header, without its port."""
    value = value.strip().lower().rstrip(".")
    if value.startswith("["):
        return value.partition("]")[0] + "]"
    return value.rpartition(":")[0] if value.count(":") == 1 else value


class Gatekeeper:
    """The ASGI application around all routes."""

    def __init__(
        self,
        app: App,
        *,
        tokens: Mapping[str, Visitor],
        hosts: frozenset[str],
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
        prefix: str = "",
    ) -> None:
        self.app = app
        self._prefix = prefix
        self._tokens = [(secret.encode(), visitor) for secret, visitor in tokens.items()]
        self._hosts = hosts
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
        began = False

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                message["headers"] = _protected(list(message.get("headers", ())))
            await send(message)

        try:
            if sum([len(name) + len(value) for name, value in scope["headers"]]) > MAX_HEAD:
                raise Refused(431, "large_headers", f"the headers may have {MAX_HEAD} bytes at most")
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            bare = bool(self._prefix) and path == self._prefix
            if self._prefix and (bare or path.startswith(f"{self._prefix}/")):
                path = path.removeprefix(self._prefix) or "/"  # the proxy has left it on
                scope = {**scope, "path": path, "root_path": ""}
            if path not in OPEN:
                self._check(scope, path)
                if bare:
                    await redirect(f"{self._prefix}/", scope, sent)
                    return
                if scope["method"] not in _READ:
                    receive = await self._body(scope, receive)
                    with in_trace_of_caller(_headers(scope)):
                        await self.app(scope, receive, sent)
                    return
            await self.app(scope, receive, sent)
        except Refused as refused:
            if began:
                raise
            await refuse(refused, sent)

    # --- the checks -------------------------------------------------------------------------------------------

    def _check(self, scope: Scope, path: str) -> None:
        headers = _headers(scope)
        hosts = headers.get("host", [])
        if len(hosts) != 1 or _host(hosts[0]) not in self._hosts:
            raise Refused(
                421, "wrong_host", "this server does not answer to that host name; start it with --allowed-host NAME"
            )
        origin, site = headers.get("origin", [None])[-1], headers.get("sec-fetch-site", [None])[-1]
        if origin is not None and not self._same_origin(origin, hosts[0]):
            raise Refused(403, "wrong_origin", "requests from pages of other origins are refused")
        navigates = scope["method"] in _READ and headers.get("sec-fetch-mode", [""])[-1] == "navigate"
        if site not in (None, "same-origin", "none") and not (navigates and not is_private(path)):
            raise Refused(403, "wrong_origin", "requests from pages of other sites are refused")
        if not is_private(path):
            if scope["method"] not in _READ:
                raise Refused(405, "method_not_allowed", "this path can only be read")
            return
        visitor = self._visitor(headers)
        if visitor.role != "control" and scope["method"] not in _READ:
            raise Refused(403, "view_only", "this token is read-only; use a token with the role control")
        scope.setdefault("state", {})["visitor"] = visitor

    def _same_origin(self, origin: str, host: str) -> bool:
        scheme, _, where = origin.partition("://")
        return scheme in ("http", "https") and where.lower() == host.strip().lower()

    def _visitor(self, headers: Mapping[str, list[str]]) -> Visitor:
        said = headers.get("authorization", [])
        scheme, _, secret = (said[0] if len(said) == 1 else "").partition(" ")
        given, found = secret.strip().encode("latin-1", "replace"), None
        for known, visitor in self._tokens:  # all of them, however early one fits
            if hmac.compare_digest(known, given):
                found = visitor
        if scheme.lower() != "bearer" or found is None:
            raise Refused(401, "unauthorized", "send the server's token: Authorization: Bearer TOKEN")
        return found

    async def _body(self, scope: Scope, receive: Receive) -> Receive:
        """Read the whole body, bounded in size and time, and hand it on as one message."""
        headers = _headers(scope)
        kind = headers.get("content-type", [""])[-1].partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, "not_json", "send JSON: Content-Type: application/json")
        length = headers.get("content-length", ["0"])[-1]
        if not length.isdigit() or int(length[:20]) > DRAINED * self._max_body:
            raise Refused(413, "too_large", f"the body may have {self._max_body} bytes at most")
        try:
            body = await asyncio.wait_for(self._read(receive), self._body_seconds)
        except TimeoutError:
            raise Refused(408, "too_slow", f"the body did not arrive within {self._body_seconds:g} seconds") from None
        whole = False

        async def handed() -> MutableMapping[str, Any]:
            nonlocal whole
            if not whole:
                whole = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        return handed

    async def _read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "incomplete", "the body ended before it was whole")
            part = message.get("body", b"")
            size += len(part)
            if size <= self._max_body:
                parts.append(part)
            else:  # read and dropped: a client still writing when we hang up sees a broken pipe instead of the error
                parts.clear()
            more = message.get("more_body", False)
            if size > self._max_body and (not more or size > DRAINED * self._max_body):
                raise Refused(413, "too_large", f"the body may have {self._max_body} bytes at most")
            if not more:
                return b"".join(parts)


def is_private(path: str) -> bool:
    """True for what needs a token: everything but the page's own files."""
    return path.startswith(("/api/", "/v1/", "/agui")) or path in ("/api", "/v1", "/metrics", "/openapi.json")


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope.get("headers", ()):
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _protected(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    given = {name.lower() for name, _ in headers}
    if b"cache-control" not in given:
        headers.append((b"cache-control", b"no-store"))
    return [*headers, *[one for one in _HEADERS if one[0] not in given]]


async def redirect(path: str, scope: Scope, send: Send) -> None:
    """Send the browser to a path: the page's addresses are relative, and need the slash at its end."""
    query = scope.get("query_string", b"")
    location = path.encode() + (b"?" + query if query else b"")
    headers = [(b"location", location), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 308, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def refuse(refused: Refused, send: Send) -> None:
    """Answer with an error."""
    body = _wire.encode(refused.body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:  # noqa: PLR2004 - the one that must say how
        headers.append((b"www-authenticate", b'Bearer realm="glidepath"'))
    if refused.retry_after is not None:
        headers.append((b"retry-after", str(refused.retry_after).encode()))
    if refused.status in (408, 413, 415, 431):  # the body was not read: this connection is of no further use
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
