"""Speaks HTTP to the upstreams: headers unchanged, credentials by the upstream's mode, one pool of connections."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import aiohttp
from yarl import URL

from glidepath.apps.gate.governing import Headers
from glidepath.apps.gate.upstreams import CREDENTIALS, KeyReference, Upstream
from glidepath.values import ConfigurationError, GlidepathError

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_NOT_SENT = HOP_BY_HOP | {b"host", b"content-length", b"accept-encoding", b"expect"}
_OURS = b"x-glidepath-"
NO_KEY = "no-key"
"""Sent where no key is configured: local servers take any, but many want to see one."""
_KEEP_ALIVE = 4.0  # seconds: less than any server's, so that a POST rarely meets a connection that is being closed
_WITH_REPLY = (200, 201, 202, 203)
_LONGEST_LINE = 65_536  # bytes of a header that an upstream may send


class UpstreamError(GlidepathError):
    """An upstream did not answer as it should. `status` is what the client gets for it."""

    def __init__(self, message: str, *, status: int = 502, kind: str = "upstream_error") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class UpstreamReply:
    """The reply of an upstream: its head is there, its body comes chunk by chunk."""

    def __init__(self, response: aiohttp.ClientResponse, upstream: Upstream, secret: bytes = b"") -> None:
        self._response = response
        self._upstream = upstream
        self._secret = secret
        self._read = response.content.readany
        self.status = response.status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Its headers unchanged, names in lower case, without those that are about the connection only.

        Without those that are ours, too: only the gate says how a run landed.
        """
        raw = [(name.lower(), value) for name, value in self._response.raw_headers]
        dropped = list_connection_headers(raw)
        kept = [
            pair
            for pair in raw
            if pair[0] not in HOP_BY_HOP and pair[0] not in dropped and not pair[0].startswith(_OURS)
        ]
        if self._secret and any(self._secret in value for _, value in kept):
            return [(name, self.hide_key(value)) for name, value in kept]
        return kept

    def hide_key(self, text: bytes) -> bytes:
        """What an upstream says without the provider's key, which it may quote in an error; as long as it was."""
        return text.replace(self._secret, b"*" * len(self._secret)) if self._secret else text

    def header(self, name: str) -> str | None:
        """One header."""
        return self._response.headers.get(name)

    async def read(self) -> bytes:
        """The next chunk; empty at the proper end. Raises `UpstreamError`."""
        try:
            return await self._read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UpstreamError(f"upstream {self._upstream.name} broke off in its reply ({_why(error)})") from None

    async def read_whole(self, bound: int) -> bytes:
        """The rest of the body; raises `UpstreamError` when it is longer than this."""
        found = bytearray()
        while chunk := await self.read():
            found += chunk
            if len(found) > bound:
                raise UpstreamError(f"upstream {self._upstream.name} sent more than {bound} bytes in one reply")
        return bytes(found)

    def close(self) -> None:
        """Drop the connection, unless the reply was read to its end."""
        self._response.close()


class UpstreamClient:
    """Sends requests to upstreams. Open it in the loop that uses it, and close it there."""

    def __init__(self, upstreams: Iterable[Upstream], environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._ways: dict[str, _Way] = {}
        self._gone: set[bytes] = set()
        self._session: aiohttp.ClientSession | None = None
        self.change(upstreams)

    def change(self, upstreams: Iterable[Upstream]) -> None:
        """Send to these from now on; raises `ConfigurationError`, and then nothing has changed."""
        old = self._ways
        self._ways = {
            one.name: old[one.name] if one.name in old and old[one.name].upstream == one else _Way(one, self._environ)
            for one in upstreams
        }
        self._gone.update([way.secret for way in old.values() if way.secret])  # replies to them may still be read

    async def send(
        self, method: str, upstream: Upstream, path: str, query: bytes, headers: Headers, body: bytes
    ) -> UpstreamReply:
        """Send a request and wait for the head of the reply. Raises `UpstreamError`, and refuses redirects."""
        way = self._find_way(upstream)
        upstream = way.upstream
        query = way.pass_query(query)
        address = upstream.address(path) + (f"?{query.decode('ascii', 'replace')}" if query else "")
        try:
            response = await self._open_session().request(
                method,
                URL(address, encoded=True),
                data=body or None,
                headers=way.pass_headers(headers),
                allow_redirects=False,
                ssl=way.tls,
                proxy=way.proxy,
                timeout=way.timeout,
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise _connect_error(upstream, error) from None
        if response.status not in _WITH_REPLY and response.status < 300:  # noqa: PLR2004
            response.close()
            raise UpstreamError(
                f"upstream {upstream.name} answered with status {response.status}, which brings no reply of a model"
            )
        if response.status in (301, 302, 303, 307, 308):
            response.close()
            raise UpstreamError(
                f"upstream {upstream.name} answered with a redirect ({response.status}), which the gate does not "
                "follow: configure the address it redirects to",
                kind="upstream_redirect",
            )
        return UpstreamReply(response, upstream, way.secret)

    def list_secrets(self) -> list[bytes]:
        """The providers' keys that were sent: none of them may be written anywhere."""
        return [*self._gone, *[way.secret for way in self._ways.values() if way.secret]]

    def _find_way(self, upstream: Upstream) -> _Way:
        """How this one is reached now; raises `UpstreamError` for one that was taken away while a call waited."""
        way = self._ways.get(upstream.name)
        if way is None or way.upstream.dialect != upstream.dialect:
            raise UpstreamError(
                f"upstream {upstream.name} is no longer configured", status=400, kind="upstream_removed"
            )
        return way

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
                auto_decompress=False,
                trust_env=False,  # it would also take credentials from ~/.netrc
                max_line_size=_LONGEST_LINE,
                max_field_size=_LONGEST_LINE,
            )
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class _Way:
    """How one upstream is reached: certificates, proxy, timeouts, credentials."""

    def __init__(self, upstream: Upstream, environ: Mapping[str, str]) -> None:
        self.upstream = upstream
        self.key = KeyReference(upstream, environ)
        self.key.read()  # a missing key is an error before the first call
        self.secret = b""
        """The key that was sent last, which no client may see."""
        self.tls = _tls_context(upstream)
        self.proxy = _find_proxy(upstream, environ)
        self.timeout = aiohttp.ClientTimeout(total=None, sock_connect=upstream.connect_timeout, ceil_threshold=3600)

    def pass_headers(self, headers: Headers) -> list[tuple[str, str]]:
        """What goes to the upstream: all headers that are not about this connection, and the right credentials."""
        swaps = self.upstream.mode == "swap"
        dropped = list_connection_headers(headers)
        passed = [
            (name.decode("ascii"), value.decode())
            for name, value in headers
            if name not in _NOT_SENT
            and name not in dropped
            and not (swaps and name in CREDENTIALS)
            and not name.startswith(_OURS)
        ]
        passed.append(("accept-encoding", "identity"))  # what is metered must be readable
        if swaps:
            try:
                secret = self.key.read()
            except ConfigurationError as error:
                raise UpstreamError(str(error), kind="upstream_key") from None
            self.secret = (secret or "").encode()
            name, value = self.upstream.key_header(secret or NO_KEY)
            passed.append((name.decode(), value.decode()))
        return passed

    def pass_query(self, query: bytes) -> bytes:
        """The query; in `swap` without a key of the client's."""
        return strip_query(query, b"key") if self.upstream.mode == "swap" and b"key=" in query else query


def list_connection_headers(headers: Headers) -> Sequence[bytes]:
    """The headers that a Connection header declares to be about the connection."""
    found = [value for name, value in headers if name == b"connection"]
    return [word.strip().lower() for value in found for word in value.split(b",")] if found else ()


def strip_query(query: bytes, name: bytes) -> bytes:
    """A query without one of its parameters; the rest stays as it was, byte for byte."""
    return b"&".join([part for part in query.split(b"&") if part.partition(b"=")[0] != name])


def _tls_context(upstream: Upstream) -> ssl.SSLContext | bool:
    if not upstream.url.startswith("https:"):
        return True
    try:
        context = ssl.create_default_context(cafile=upstream.ca_file)  # without one: SSL_CERT_FILE, else the system's
        if upstream.client_cert is not None:
            context.load_cert_chain(upstream.client_cert, upstream.client_key)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"upstream {upstream.name!r:.60}: ca_file, client_cert or client_key cannot be used: {why}"
        ) from None
    return context


def _find_proxy(upstream: Upstream, environ: Mapping[str, str]) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name for it."""
    scheme = upstream.url.partition(":")[0]
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    proxy = next((environ[name] for name in names if environ.get(name)), None)
    if proxy is None or is_bypassed(upstream.host, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def is_bypassed(host: str, no_proxy: str) -> bool:
    """True when NO_PROXY names this host: itself, a domain above it, a network, or `*`."""
    for rule in [word.strip().lower() for word in no_proxy.split(",") if word.strip()]:
        name = rule if "/" in rule or rule.count(":") > 1 else rule.partition(":")[0]
        domain = name.removeprefix("*").lstrip(".")
        if rule == "*" or host == domain or (domain and host.endswith(f".{domain}")):
            return True
        try:
            if "/" in name and ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False):
                return True
        except ValueError:
            continue
    return False


def _connect_error(upstream: Upstream, error: Exception) -> UpstreamError:
    name, host = upstream.name, upstream.host
    if isinstance(error, TimeoutError):
        return UpstreamError(
            f"upstream {name} ({host}) did not accept a connection in {upstream.connect_timeout:g} s", status=504
        )
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return UpstreamError(
            f"upstream {name} ({host}) has a certificate that cannot be trusted ({_why(error)}): set ca_file or "
            "SSL_CERT_FILE to the authority that signed it"
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return UpstreamError(f"upstream {name} ({host}) cannot be reached ({_why(error)})")
    if isinstance(error, UnicodeDecodeError):
        return UpstreamError(
            "a header of the request is not UTF-8 text: send it encoded", status=400, kind="bad_header"
        )
    return UpstreamError(f"upstream {name} ({host}) did not answer as HTTP demands ({_why(error)})")


def _why(error: BaseException) -> str:
    """What went wrong, without an address that may hold a secret."""
    inner: Any = getattr(error, "os_error", None) or error
    reason = getattr(inner, "strerror", None) or getattr(inner, "verify_message", None)
    return str(reason) if reason else type(inner).__name__
