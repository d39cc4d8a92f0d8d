"""OAuth: tokens of a login are used, a run never opens a browser, and nothing else of this user's is touched."""

import asyncio
import json
import stat

import pytest

from glidepath.errors import ConfigurationError
from glidepath.events import ToolsChanged
from glidepath.mcp import McpServer
from glidepath.mcp.careful_auth import check_login_address
from glidepath.mcp.oauth_login import Login, forget_login, token_file
from glidepath.testing import say
from glidepath.tools import SourceError

from .http_servers import raw_server, response
from .servers import agent_with, collect


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def guarded(_method, headers, body):
    """A server that wants a token, and knows nothing of how to get one."""
    if headers.get("authorization") != "Bearer good":
        return response("401 Unauthorized", "", "text/plain", **{"www-authenticate": "Bearer"})
    asked = json.loads(body)
    more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if asked["method"] == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **more}
    else:
        result = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}], **more}
    return response("200 OK", json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))


async def test_stored_tokens_are_used():
    async with raw_server(guarded) as url:
        server = McpServer("web", url=url, auth="oauth")
        path = token_file(server.link)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"tokens": {"access_token": "good", "token_type": "Bearer"}}))
        supply = server.open()
        assert [tool.name for tool in await supply.tools()] == ["go"]
        await supply.close()
    assert forget_login(server.link)
    assert not forget_login(server.link)


async def test_without_a_login_a_run_goes_on_and_says_what_to_do():
    async with raw_server(guarded) as url:
        result, events = await collect(agent_with([say("ok")], McpServer("web", url=url, auth="oauth")))
    [event] = [event for event in events if isinstance(event, ToolsChanged)]
    assert result.text == "ok"
    assert "'web'" in event.reason


def sends_elsewhere(address):
    """A server that wants a token, and names an address of its choice for how to get one."""
    challenge = f'Bearer resource_metadata="{address}"'
    return lambda *_: response("401 Unauthorized", "", "text/plain", **{"www-authenticate": challenge})


async def test_a_run_sends_nothing_to_where_a_server_points():
    """Neither the server's 401 nor what it serves itself makes an unattended run ask anybody else."""
    asked = []

    def internal(method, headers, body):
        asked.append((method, headers, body))
        return response("200 OK", "{}")

    async with raw_server(internal) as inside, raw_server(sends_elsewhere(inside)) as url:
        result, events = await collect(agent_with([say("ok")], McpServer("web", url=url, auth="oauth")))
    [event] = [event for event in events if isinstance(event, ToolsChanged)]
    assert asked == []
    assert result.text == "ok"
    assert "needs a login: run `glidepath mcp login web`" in event.reason


async def test_a_token_is_renewed_at_the_server_and_nowhere_else():
    asked = []

    def renews(method, headers, body):
        if b"grant_type=refresh_token" in body:
            asked.append(method)
            return response("200 OK", json.dumps({"access_token": "good", "token_type": "Bearer"}))
        return guarded(method, headers, body)

    async with raw_server(renews) as url:
        server = McpServer("web", url=url, auth="oauth")
        path = token_file(server.link)
        path.parent.mkdir(parents=True)
        client = {"client_id": "c", "redirect_uris": ["http://127.0.0.1:0/callback"]}
        tokens = {"access_token": "", "token_type": "Bearer", "refresh_token": "r"}
        path.write_text(json.dumps({"tokens": tokens, "client": client}))
        supply = server.open()
        assert [tool.name for tool in await supply.tools()] == ["go"]
        await supply.close()
    assert asked == ["POST"]


@pytest.mark.parametrize(
    ("server", "address", "said"),
    [
        ("https://mcp.example.com/mcp", "https://login.example.org/authorize", None),
        ("https://mcp.example.com/mcp", "https://mcp.example.com/.well-known/x", None),
        ("http://127.0.0.1:8000/mcp", "http://127.0.0.1:9000/authorize", None),
        ("http://localhost:8000/mcp", "http://[::1]:9000/authorize", None),
        ("https://10.0.0.5/mcp", "https://10.0.0.6/authorize", None),
        ("https://mcp.example.com/mcp", "http://login.example.org/authorize", "it is not https"),
        ("https://mcp.example.com/mcp", "file:///etc/passwd", "it is not https"),
        ("https://mcp.example.com/mcp", "javascript:alert(1)", "it is not https"),
        ("https://mcp.example.com/mcp", "https://127.0.0.1:9000/x", "loopback address"),
        ("https://mcp.example.com/mcp", "https://localhost/x", "loopback address"),
        ("https://mcp.example.com/mcp", "https://2130706433/x", "loopback address"),
        ("https://mcp.example.com/mcp", "https://[::ffff:127.0.0.1]/x", "loopback address"),
        ("https://mcp.example.com/mcp", "https://169.254.169.254/latest/meta-data", "private address"),
        ("https://mcp.example.com/mcp", "https://[64:ff9b::a9fe:a9fe]/latest/meta-data", "private address"),
        ("https://mcp.example.com/mcp", "https://[::7f00:1]/authorize", "loopback address"),
        ("https://mcp.example.com/mcp", "https://192.168.1.1/admin", "private address"),
        ("http://127.0.0.1:8000/mcp", "http://192.168.1.1/admin", "it is not https"),
        ("http://127.0.0.1:8000/mcp", "https://192.168.1.1/admin", "private address"),
    ],
)
def test_a_login_goes_only_where_a_server_may_send_it(server, address, said):
    link = McpServer("web", url=server, auth="oauth").link
    if said is None:
        check_login_address(link, address)
    else:
        with pytest.raises(SourceError, match=said):
            check_login_address(link, address)


async def test_a_login_that_is_sent_astray_asks_nobody_and_opens_no_page():
    visited = []

    async def visit(address):
        visited.append(address)

    async with raw_server(sends_elsewhere("http://192.168.1.1/latest")) as url, Login(visit) as login:
        supply = McpServer("web", url=url, auth=login).open()
        with pytest.raises(SourceError, match=r"192\.168\.1\.1/latest.*is refused: it is not https"):
            await supply.tools()
        await supply.close()
    assert visited == []


async def test_the_way_back_from_the_browser_takes_one_answer():
    async def visit(_address):
        """Nobody goes anywhere."""

    async with Login(visit) as login:
        port = int(login._address.rpartition(":")[2].partition("/")[0])

        async def get(target):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            said = await reader.read(4_000)
            writer.close()
            return said.split(b"\r\n")[0]

        assert await get("/favicon.ico") == b"HTTP/1.1 404 Not Found"
        assert await get("/callback?code=abc&state=s") == b"HTTP/1.1 200 OK"
        assert await get("/callback?code=evil") == b"HTTP/1.1 200 OK"
        came = await login._wait()
        assert (came.code, came.state) == ("abc", "s")


def test_the_token_file_is_this_users_only():
    from mcp.shared.auth import OAuthToken

    from glidepath.mcp.oauth_login import _Tokens

    path = token_file(McpServer("web", url="https://example.com/mcp").link)
    asyncio.run(_Tokens(path).set_tokens(OAuthToken(access_token="secret", token_type="Bearer")))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert asyncio.run(_Tokens(path).get_tokens()).access_token == "secret"


def test_a_token_in_the_wrong_place_is_said():
    with pytest.raises(ConfigurationError, match="a token belongs in headers"):
        McpServer("web", url="https://example.com/mcp", auth="abc123")
