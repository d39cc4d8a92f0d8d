"""OAuth: tokens of a login are used, a run never opens a browser, and nothing else of this user's is touched."""

import asyncio
import json
import stat

import pytest

from glidepath.errors import ConfigurationError
from glidepath.events import ToolsChanged
from glidepath.mcp import McpServer
from glidepath.mcp.oauth_login import Login, forget_login, token_file
from glidepath.testing import say

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
