"""Admission: one function decides for every listener who comes in, from the head of the request alone.

The order: the host name, the origin of the page that asks, then the secret. What a visitor may do is a question for
the [roles](roles.py); what it may spend one for its [allowance](allowance.py).
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping

from glidepath._wire import Value
from glidepath.apps.server.locks.addresses import host_of
from glidepath.apps.server.locks.keys import MARK, KeyRing, digest_of
from glidepath.apps.server.locks.roles import ROLES
from glidepath.apps.server.locks.visitor import Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.values import ConfigurationError, StoreError

__all__ = ["Admitted", "Doorkeeper", "check_tokens"]

LEAST_TOKEN = 16  # characters
READ = ("GET", "HEAD")
_METHODS = b"GET, POST, DELETE"
_HEADERS = b"authorization, content-type, last-event-id, mcp-session-id, mcp-protocol-version, traceparent, tracestate"
_SHOWN = b"mcp-session-id, retry-after"
_REMEMBERED = b"600"  # seconds that a browser need not ask again


class Admitted(Value, frozen=True, kw_only=True):
    """A request that was let in. A `preflight` is answered with these headers and nothing else."""

    visitor: Visitor | None = None
    preflight: tuple[tuple[bytes, bytes], ...] = ()


_NOBODY = Admitted()


class Doorkeeper:
    """Decides who comes in. `is_private` says which paths need a secret; `open_paths` need nothing at all.

    A request to a path of `unlock` brings its own secret, and must come from our own page or from no page.
    """

    def __init__(
        self,
        *,
        tokens: Mapping[str, Visitor],
        hosts: frozenset[str],
        is_private: Callable[[str], bool],
        keys: KeyRing | None = None,
        origins: frozenset[str] = frozenset(),
        open_paths: frozenset[str] = frozenset(),
        unlock: frozenset[str] = frozenset(),
        mark: str = MARK,
    ) -> None:
        self._tokens = [(secret.encode(), visitor) for secret, visitor in tokens.items()]
        self._hosts = hosts
        self._origins = origins
        self._keys = keys
        self._is_private = is_private
        self._open = open_paths
        self._unlock = unlock
        self._mark = mark  # how a secret begins that is looked for among the keys

    async def admit(self, method: str, path: str, headers: Mapping[str, list[str]]) -> Admitted:
        """Let a request in, or raise `HttpError`. Without a secret only the files of the page are served."""
        if path in self._open:
            return _NOBODY
        host = self._check_host(headers)
        private = self._is_private(path)
        elsewhere = self._check_origin(method, host, headers, private=private)
        if elsewhere and method == "OPTIONS" and "access-control-request-method" in headers:
            return Admitted(preflight=_make_preflight_headers(headers))
        if path in self._unlock and not elsewhere:  # the request brings a one-time code instead
            return _NOBODY
        if private:
            return Admitted(visitor=await self._visitor(headers))
        if method not in READ:
            raise HttpError(405, "method_not_allowed", "this path can only be read")
        return _NOBODY

    def cors_headers(self, headers: Mapping[str, list[str]]) -> tuple[tuple[bytes, bytes], ...]:
        """What every answer needs so that a page of an allowed origin can read it, an error as well."""
        if not self._origins:
            return ()
        origin = headers.get("origin", [None])[-1]
        if origin is None or origin not in self._origins:
            return ()
        named = (b"access-control-allow-origin", origin.encode())
        return (named, (b"access-control-expose-headers", _SHOWN), (b"vary", b"Origin"))

    def _check_host(self, headers: Mapping[str, list[str]]) -> str:
        hosts = headers.get("host", [])
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            raise HttpError(
                421, "wrong_host", "this server does not answer to that host name; start it with --allowed-host NAME"
            )
        return hosts[0]

    def _check_origin(self, method: str, host: str, headers: Mapping[str, list[str]], *, private: bool) -> bool:
        """True for a page of another origin that may ask, False for our own or none at all; raises `HttpError`."""
        origin, site = headers.get("origin", [None])[-1], headers.get("sec-fetch-site", [None])[-1]
        if origin is not None and origin in self._origins:
            return True
        if origin is not None and not _is_same_origin(origin, host):
            raise HttpError(
                403, "wrong_origin", "pages of other origins are refused; to allow one: --allow-origin ORIGIN"
            )
        navigates = method in READ and headers.get("sec-fetch-mode", [""])[-1] == "navigate"
        if site not in (None, "same-origin", "none") and not (navigates and not private):
            raise HttpError(403, "wrong_origin", "requests from pages of other sites are refused")
        return False

    async def _visitor(self, headers: Mapping[str, list[str]]) -> Visitor:
        said = headers.get("authorization", [])
        scheme, _, secret = (said[0] if len(said) == 1 else "").partition(" ")
        secret = secret.strip()
        given, found = secret.encode("latin-1", "replace"), None
        for known, visitor in self._tokens:  # all of them, however early one fits
            if hmac.compare_digest(known, given):
                found = visitor
        if scheme.lower() == "bearer":
            if found is not None:
                return found
            if secret.startswith(self._mark) and self._keys is not None:
                return await self._find_key_holder(secret)
        raise HttpError(401, "unauthorized", "send the server's token or a key: Authorization: Bearer TOKEN")

    async def _find_key_holder(self, secret: str) -> Visitor:
        """The holder of a key; raises `HttpError`, also when keys cannot be read now."""
        assert self._keys is not None  # noqa: S101 - its caller has looked
        try:
            key = await self._keys.find(digest_of(secret))
        except StoreError as error:
            raise HttpError(503, "keys_unavailable", str(error), 1) from None
        if key is None:
            raise HttpError(
                401, "unauthorized", "this key is not known here; `glidepath keys list` shows those that are"
            )
        fault = key.fault(time.time())
        if fault is not None:
            raise HttpError(401, "key_void", f"{fault}: ask the operator for another one")
        return Visitor(key.name, key.role, key.tenant, key)


def _make_preflight_headers(headers: Mapping[str, list[str]]) -> tuple[tuple[bytes, bytes], ...]:
    """What a page of an allowed origin may send. There are no cookies here, so credentials are never allowed."""
    told = (
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _HEADERS),
        (b"access-control-max-age", _REMEMBERED),
    )
    if "access-control-request-private-network" in headers:
        return (*told, (b"access-control-allow-private-network", b"true"))
    return told


def _is_same_origin(origin: str, host: str) -> bool:
    scheme, _, where = origin.partition("://")
    return scheme in ("http", "https") and where.lower() == host.strip().lower()


def check_tokens(token: str | Mapping[str, str]) -> dict[str, Visitor]:
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
            raise ConfigurationError(f"a token's role must be one of {', '.join(ROLES)}, not {role!r:.80}")
        name, _, tenant = name.partition("@")
        found[secret] = Visitor(name or word, word, tenant or None)
    return found
