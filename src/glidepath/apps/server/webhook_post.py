"""One signed POST to an address that an operator has named: no redirects, no private address that was not asked for.

Names are resolved once, and the connection goes to the very address that was checked: what a name stands for can
change between two looks at it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from glidepath._version import VERSION
from glidepath._wire import Value
from glidepath.values import ConfigurationError, GlidepathError, is_public, read_address

__all__ = ["HookAddress", "PostFailed", "post_signed", "read_key", "sign"]

SECONDS = 10.0  # of one attempt, from the name to the answer
CONNECTING = 3.0  # of these for one address of a name, when there are others to try
_MOST_HEAD = 16_384
_SECRET = "whsec_"  # noqa: S105 - how other programs mark the secret of a webhook
_AGAIN = frozenset({408, 425, 429})


class PostFailed(GlidepathError):  # noqa: N818 - not an error of ours
    """A delivery that did not arrive. `again`: it may arrive later."""

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


class HookAddress(Value, frozen=True, kw_only=True):
    """Where a webhook goes: its parts, and whether the operator has named a private address."""

    host: str
    port: int
    path: str
    tls: bool
    private: bool = False

    @classmethod
    def read(cls, url: object, *, private: bool = False) -> HookAddress:
        """The address of a webhook; raises `ConfigurationError` for one that may not be called."""
        if not isinstance(url, str) or not url.isascii() or any(sign <= " " for sign in url):
            raise ConfigurationError(f"a webhook's url must be an https:// address, not {url!r:.80}")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host, port, parts = "", None, urlsplit("")
        if parts.scheme not in ("https", "http") or not host or parts.username is not None or parts.fragment:
            raise ConfigurationError(f"a webhook's url must be an https:// address without a password: {url!r:.80}")
        if parts.scheme == "http" and not _is_loopback_name(host):
            raise ConfigurationError(
                f"webhook {host!r:.80}: use https: plain http is for this machine only (127.0.0.1, localhost)"
            )
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        tls = parts.scheme == "https"
        return cls(host=host, port=port or (443 if tls else 80), path=path, tls=tls, private=private)

    def check(self, found: str) -> None:
        """Raise `PostFailed` for an address of the name that must not be called."""
        address = read_address(found)
        if not self.tls or _is_loopback_name(self.host):
            allowed = address.is_loopback
        elif self.private:
            allowed = not (address.is_multicast or address.is_unspecified)
        else:
            allowed = is_public(address)
        if not allowed:
            why = f"{self.host} stands for {address}, which is not a public address: set private = true if you mean it"
            raise PostFailed(why, again=False)


def _is_loopback_name(host: str) -> bool:
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def read_key(secret: str) -> bytes:
    """The key that a secret stands for; raises `ValueError`. One that begins with whsec_ is base64 behind that."""
    if not secret.startswith(_SECRET):
        return secret.encode()
    return base64.b64decode(secret.removeprefix(_SECRET), validate=True)


def sign(secret: str, delivery: str, when: int, body: bytes) -> str:
    """The signature of a delivery: over its id, the time and the body, as the Standard Webhooks have it."""
    key = read_key(secret)
    said = b"%s.%d." % (delivery.encode(), when) + body
    return "v1," + base64.b64encode(hmac.new(key, said, hashlib.sha256).digest()).decode()


async def post_signed(address: HookAddress, secret: str, delivery: str, body: bytes) -> int:
    """Send it once; the status of the answer. Raises `PostFailed` for anything but a 2xx."""
    try:
        status = await asyncio.wait_for(_post(address, secret, delivery, body), SECONDS)
    except TimeoutError:
        raise PostFailed(f"no answer within {SECONDS:g} seconds", again=True) from None
    except ssl.SSLCertVerificationError as error:
        raise PostFailed(f"its certificate is not accepted: {error.verify_message}", again=False) from None
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        raise PostFailed(f"{type(error).__name__}: {error}"[:200], again=True) from None
    if 300 <= status < 400:  # noqa: PLR2004 - the redirects
        raise PostFailed(f"HTTP {status}: redirects are not followed; correct the url", again=False)
    if not 200 <= status < 300:  # noqa: PLR2004
        raise PostFailed(f"HTTP {status}", again=status in _AGAIN or status >= 500)  # noqa: PLR2004
    return status


async def _post(address: HookAddress, secret: str, delivery: str, body: bytes) -> int:
    reader, writer = await _connect(address, await _resolve(address))
    try:
        writer.write(_write_head(address, secret, delivery, body) + body)
        await writer.drain()
        return await _read_answer(reader)
    finally:
        writer.close()


async def _resolve(address: HookAddress) -> list[str]:
    """The addresses that the name stands for now; every one of them must be allowed."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    targets = list(dict.fromkeys(str(one[4][0]) for one in found))
    for target in targets:
        address.check(target)
    if not targets:
        raise PostFailed(f"{address.host} has no address", again=True)
    return targets


async def _connect(address: HookAddress, targets: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first of these that answers: localhost is often two, and only one has a receiver."""
    context = ssl.create_default_context() if address.tls else None
    name = address.host if address.tls else None
    for place, target in enumerate(targets, 1):
        connecting = asyncio.open_connection(target, address.port, ssl=context, server_hostname=name, limit=_MOST_HEAD)
        try:
            return await asyncio.wait_for(connecting, CONNECTING if place < len(targets) else SECONDS)
        except ssl.SSLCertVerificationError:
            raise  # it is there, and somebody else
        except (OSError, TimeoutError):
            if place == len(targets):
                raise
    raise AssertionError("there is at least one")


async def _read_answer(reader: asyncio.StreamReader) -> int:
    """The status of the answer; hints that come before it are passed over."""
    while True:
        status = _read_status(await reader.readline())
        if not 100 <= status < 200 or status == 101:  # noqa: PLR2004 - which is final: nobody asked for it
            return status
        while (await reader.readline()).strip():
            pass


def _write_head(address: HookAddress, secret: str, delivery: str, body: bytes) -> bytes:
    when = int(time.time())
    host = f"[{address.host}]" if ":" in address.host else address.host
    usual = address.port == (443 if address.tls else 80)
    lines = [
        f"POST {address.path} HTTP/1.1",
        f"host: {host}" + ("" if usual else f":{address.port}"),
        f"user-agent: glidepath/{VERSION}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"webhook-id: {delivery}",
        f"webhook-timestamp: {when}",
        f"webhook-signature: {sign(secret, delivery, when, body)}",
        "connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _read_status(line: bytes) -> int:
    """The status of an answer; raises `ValueError` when it is not HTTP."""
    words = line.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():  # noqa: PLR2004
        raise ValueError(f"the answer is not HTTP: {line[:40]!r}")
    return int(words[1][:3])
