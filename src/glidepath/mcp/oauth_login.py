"""OAuth for servers that ask for it: the SDK's client, tokens in a file of this user, a login with the browser.

A run never opens a browser, and asks nobody but the server. It uses the tokens of an earlier login and renews them;
without any it says what to do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from glidepath import _wire
from glidepath.mcp.mcp_server import ServerLink
from glidepath.tools import SourceError

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
    from pydantic import BaseModel

    from glidepath.mcp.careful_auth import CarefulAuth

__all__ = ["Login", "forget_login", "provider_for", "token_file"]

PATIENCE = 300.0  # seconds a person has to log in
MOST_READ = 16 << 10
_DONE = b"You are logged in. You can close this page.\n"


def token_file(link: ServerLink) -> Path:
    """Where the tokens of a server are: one file for each address, readable by this user only."""
    from glidepath.sessions import default_file

    address = sha256(str(link.url).encode()).hexdigest()[:16]
    return default_file().parent / "mcp" / f"{link.name}-{address}.json"


def forget_login(link: ServerLink) -> bool:
    """Delete the tokens of a server; False when there were none."""
    path = token_file(link)
    known = path.exists()
    path.unlink(missing_ok=True)
    return known


class _Tokens:
    """What the SDK stores: tokens, and what the server knows this client as."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _read(self) -> dict[str, Any]:
        try:
            found = _wire.loads(self._path.read_bytes())
        except Exception:  # missing, or useless: log in again
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, name: str, value: BaseModel) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = {**self._read(), name: value.model_dump(mode="json", exclude_none=True)}
        unfinished = self._path.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(_wire.encode(kept))
        unfinished.replace(self._path)

    async def get_tokens(self) -> Any:
        from mcp.shared.auth import OAuthToken

        said = self._read().get("tokens")
        return None if said is None else OAuthToken.model_validate(said)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write("tokens", tokens)

    async def get_client_info(self) -> Any:
        from mcp.shared.auth import OAuthClientInformationFull

        said = self._read().get("client")
        return None if said is None else OAuthClientInformationFull.model_validate(said)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write("client", client_info)


def provider_for(link: ServerLink) -> Any:
    """What authorizes a request: what the server was given, or the SDK's OAuth client with stored tokens."""
    if isinstance(link.auth, Login):
        return link.auth.provider(link)
    if link.auth != "oauth":
        return link.auth

    from glidepath.mcp.careful_auth import CarefulAuth, needs_login

    async def nobody(_address: str) -> None:
        raise needs_login(link)

    async def never() -> Any:
        raise needs_login(link)

    return CarefulAuth(_provider(link, "http://127.0.0.1:0/callback", nobody, never), link, login=False)


def _provider(
    link: ServerLink, redirect: str, visit: Callable[[str], Awaitable[None]], wait: Callable[[], Awaitable[Any]]
) -> OAuthClientProvider:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    metadata = OAuthClientMetadata(
        client_name="glidepath",
        redirect_uris=[redirect],  # type: ignore[list-item]
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",  # noqa: S106 - the name of a method
    )
    return OAuthClientProvider(str(link.url), metadata, _Tokens(token_file(link)), visit, wait)


class Login:
    """A login: `visit(address)` sends a person there; the page it returns to is served on this machine."""

    def __init__(self, visit: Callable[[str], Awaitable[None]]) -> None:
        self._visit = visit
        self._server: asyncio.Server | None = None
        self._came: asyncio.Future[dict[str, str]] | None = None
        self._address = ""

    async def __aenter__(self) -> Login:  # noqa: PYI034 - not made for subclasses
        self._came = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    def provider(self, link: ServerLink) -> CarefulAuth:
        """The SDK's client, with this login."""
        from glidepath.mcp.careful_auth import CarefulAuth, check_login_address

        async def visit(address: str) -> None:
            check_login_address(link, address)
            await self._visit(address)

        return CarefulAuth(_provider(link, self._address, visit, self._wait), link, login=True)

    async def _wait(self) -> Any:
        from mcp.client.auth import AuthorizationCodeResult

        came: Any = self._came
        async with asyncio.timeout(PATIENCE):
            said = await asyncio.shield(came)
        if "code" not in said:
            raise SourceError(f"the login was refused: {said.get('error', 'no code came back')}")
        return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of the browser; only the one that carries an answer counts."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            target = head[:MOST_READ].split(b" ")[1].decode()
            asked = urlsplit(target)
            said = {name: values[0] for name, values in parse_qs(asked.query).items()}
            answered = asked.path == "/callback" and ("code" in said or "error" in said)
            if answered and self._came is not None and not self._came.done():
                self._came.set_result(said)
            status, body = (b"200 OK", _DONE) if answered else (b"404 Not Found", b"")
            writer.write(
                b"HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)
            )
            await writer.drain()
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # not a browser with an answer
        finally:
            writer.close()
