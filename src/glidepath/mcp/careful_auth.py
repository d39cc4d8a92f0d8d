"""Where OAuth may send requests. A server's 401 names addresses, and the SDK's client would go to any of them.

In a run, which nobody watches, it goes nowhere: tokens of a login are used and renewed at the server itself, and a
server that wants more is told about. In a login a person has named the server and sees the page. There other hosts are
allowed, because that is how OAuth is used, but only over TLS, and never this machine or a private address, unless the
server is there itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import httpx2

from glidepath.mcp.mcp_server import ServerLink
from glidepath.tools import SourceError
from glidepath.values import is_public, read_address

__all__ = ["CarefulAuth", "check_login_address", "needs_login"]


def needs_login(link: ServerLink) -> SourceError:
    """What to do about a server that wants a login."""
    return SourceError(f"MCP server {link.name!r} needs a login: run `glidepath mcp login {link.name}`")


class CarefulAuth(httpx2.Auth):
    """An OAuth client of the SDK whose own requests are checked before they are sent; a `login` has a person."""

    def __init__(self, inner: httpx2.Auth, link: ServerLink, *, login: bool) -> None:
        self._inner = inner
        self._link = link
        self._login = login

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The inner flow; raises `SourceError` instead of sending what is not allowed."""
        flow = self._inner.async_auth_flow(request)
        answered = False
        try:
            outgoing = await flow.__anext__()
            while True:
                if outgoing is not request:
                    self._check(outgoing, answered=answered)
                response = yield outgoing
                answered = answered or outgoing is request
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _check(self, outgoing: httpx2.Request, *, answered: bool) -> None:
        address = str(outgoing.url)
        if self._login:
            check_login_address(self._link, address)
        elif answered or _origin(address) != _origin(str(self._link.url)):
            raise needs_login(self._link)  # all a run does by itself is renew a token before it asks


def check_login_address(link: ServerLink, address: str) -> None:
    """Raise `SourceError` for an address that a server must not send a login to."""
    server = str(link.url)
    if _origin(address) == _origin(server):
        return
    parts = urlsplit(address)
    near, its = _classify_reach(parts.hostname or ""), _classify_reach(urlsplit(server).hostname or "")
    if parts.scheme != "https" and not (parts.scheme == "http" and near == its == "loopback"):
        why = "it is not https"
    elif near not in ("public", its):
        why = f"it is a {near} address, and the server's own is not"
    else:
        return
    raise SourceError(f"MCP server {link.name!r} sends the login to {address!r:.200}, which is refused: {why}")


def _origin(address: str) -> tuple[str, str, int | None]:
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = -1
    return parts.scheme, parts.hostname or "", port or {"http": 80, "https": 443}.get(parts.scheme)


def _classify_reach(host: str) -> str:
    """How far an address reaches: `loopback`, `private` or `public`. Names are not resolved."""
    plain = host.strip("[]").rstrip(".").lower()
    if plain == "localhost" or plain.endswith(".localhost"):
        return "loopback"
    try:
        found = read_address(plain)
    except ValueError:
        return "loopback" if plain.replace(".", "").isdigit() or plain.startswith("0x") else "public"
    return "loopback" if found.is_loopback or found.is_unspecified else "public" if is_public(found) else "private"
