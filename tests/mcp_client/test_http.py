"""Servers reached by HTTP, in both eras: headers, bounded bodies, failures of one request."""

import json

import pytest
from mcp.server import MCPServer

from glidepath.events import ToolsChanged
from glidepath.mcp import McpServer
from glidepath.testing import call, say
from glidepath.tools import SourceError

from .http_servers import raw_server, response, sdk_server
from .servers import agent_with, collect, results

MODES = ("legacy", "2026-07-28", "auto")


def calculator():
    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool()
    def big(size: int) -> str:
        """Big."""
        return "z" * size

    return server


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_of_an_http_server_is_called_like_any_other(mode):
    async with sdk_server(calculator()) as url:
        server = McpServer("web", url=url, mode=mode)
        result = await agent_with([call("add", a=2, b=3), say("ok")], server).run("go")
    assert results(result)[0].text == "5"


async def test_a_server_that_has_forgotten_its_session_gets_a_new_one():
    """With the older protocol a restarted server answers 404: that call's outcome is unknown, the next one works."""
    forgotten = []

    def answer(method, headers, body):
        asked = json.loads(body) if body else {}
        name = asked.get("method")
        if method != "POST":
            return response("405 Method Not Allowed", "")
        if name == "server/discover":
            error = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "Method not found"}}
            return response("200 OK", json.dumps(error))
        if name == "initialize":
            info = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "1"},
            }
            return response("200 OK", rpc(body, info), **{"mcp-session-id": f"s{len(forgotten)}"})
        if name == "tools/list":
            return response("200 OK", rpc(body, {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}))
        if name == "tools/call" and not forgotten:
            forgotten.append(headers["mcp-session-id"])
            return response("404 Not Found", "", "text/plain")
        if "id" not in asked:
            return response("202 Accepted", "")
        return response("200 OK", rpc(body, {"content": [{"type": "text", "text": headers["mcp-session-id"]}]}))

    async with raw_server(answer) as url:
        result = await agent_with([call("go"), call("go"), say("ok")], McpServer("web", url=url)).run("go")
    first, second = results(result)
    assert (first.kind, second.text, forgotten) == ("unknown_effect", "s1", ["s0"])


def rpc(body, result):
    return json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": result})


def modern(answer_call):
    """A server of the newer protocol that answers calls as it is told."""

    def answer(_method, headers, body):
        asked = json.loads(body) if body else {}
        seen.append((asked.get("method"), headers))
        more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if asked.get("method") == "server/discover":
            return response(
                "200 OK", rpc(body, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **more})
            )
        if asked.get("method") == "tools/list":
            tools = [
                {"name": "go", "inputSchema": {"type": "object"}},
                {"name": "ok", "inputSchema": {"type": "object"}},
            ]
            return response("200 OK", rpc(body, {"tools": tools, **more}))
        if asked["params"]["name"] == "ok":
            return response(
                "200 OK", rpc(body, {"resultType": "complete", "content": [{"type": "text", "text": "fine"}]})
            )
        return answer_call(body)

    seen = answer.seen = []
    return answer


async def test_headers_are_sent_with_every_request():
    answer = modern(lambda body: response("200 OK", rpc(body, {"resultType": "complete", "content": []})))
    async with raw_server(answer) as url:
        server = McpServer("web", url=url, headers={"Authorization": "Bearer abc"})
        await agent_with([call("go"), say("ok")], server).run("go")
    assert [headers["authorization"] for _, headers in answer.seen] == ["Bearer abc"] * len(answer.seen)
    assert {headers["accept-encoding"] for _, headers in answer.seen} == {"identity"}


def events(body):
    """The answer as a stream of events, with very many parts."""
    parts = {"resultType": "complete", "content": [{"type": "text", "text": "x"}] * 20_000}
    return response("200 OK", f"event: message\r\ndata: {rpc(body, parts)}\r\n\r\n", "text/event-stream")


def crumbs(body):
    """The same as plain JSON."""
    return response(
        "200 OK", rpc(body, {"resultType": "complete", "content": [{"type": "text", "text": "x"}] * 20_000})
    )


@pytest.mark.parametrize("answer", [events, crumbs], ids=["events", "json"])
async def test_a_message_of_very_many_parts_is_made_smaller(answer):
    async with raw_server(modern(answer)) as url:
        result = await agent_with([call("go"), say("done")], McpServer("web", url=url)).run("go")
    assert "[19801 more parts of this result were left out]" in results(result)[0].text


def endless(_body):
    yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    for _ in range(64):
        yield b"x" * (1 << 20)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (endless, "more than 4194304 bytes"),
        (lambda _: response("200 OK", b"x", **{"content-encoding": "gzip"}), "compressed its answer (gzip)"),
        (lambda _: response("503 Service Unavailable", "try later", "text/plain"), "HTTP 503 Service Unavailable"),
        (lambda _: response("401 Unauthorized", "", "text/plain"), "HTTP 401 Unauthorized"),
        (lambda _: response("200 OK", "{no json"), "Failed to parse JSON response"),
        (lambda _: response("200 OK", "<html>", "text/html"), "Unexpected content type"),
        (lambda _: b"", "cannot be reached"),
    ],
    ids=["endless", "gzip", "503", "401", "no-json", "html", "dropped"],
)
async def test_a_request_that_fails_is_that_calls_error_and_nothing_else(answer, said):
    async with raw_server(modern(answer)) as url:
        result = await agent_with([call("go"), call("ok"), say("done")], McpServer("web", url=url)).run("go")
    first, second = results(result)
    assert first.is_error
    assert said in first.text
    assert "'web'" in first.text
    assert second.text == "fine"


async def test_a_page_that_is_no_server_is_said():
    async with raw_server(lambda *_: response("404 Not Found", "nothing here", "text/plain")) as url:
        result, events = await collect(agent_with([say("ok")], McpServer("web", url=url)))
    [event] = [event for event in events if isinstance(event, ToolsChanged)]
    assert result.text == "ok"
    assert "MCP server 'web'" in event.reason


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed"])
async def test_a_server_of_the_older_transport_is_named_as_such(status):
    def answer(_method, _headers, _body):
        return response(status, b"Not Found", "text/plain")

    async with raw_server(answer) as url:
        supply = McpServer("old", url=url).open()
        with pytest.raises(SourceError, match="older SSE transport is not supported"):
            await supply.tools()
        await supply.close()
