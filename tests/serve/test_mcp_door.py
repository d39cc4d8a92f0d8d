"""MCP is a door of the server: the same locks, the same store, the same deck."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

from glidepath import Agent, Limits
from glidepath.apps.server import config_for
from glidepath.mcp import McpServer
from glidepath.serve import app
from glidepath.serve.locks import MemoryKeys, make_key
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, say

from .deck import TOKEN, Doors, agent, code, flown
from .live import free_port

INIT = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a stranger", "version": "1"},
    },
}
HEAD = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}


@asynccontextmanager
async def listening(*agents, **options):
    """The application on a real socket; gives a client of its API."""
    application = app(agents=list(agents), token={TOKEN: "control:ada", "view-token-0123456789": "view"}, **options)
    port = free_port()
    server = uvicorn.Server(config_for(application, host="127.0.0.1", port=port))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    headers = {"authorization": f"Bearer {TOKEN}"}
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20) as client:
            client.application = application
            client.mcp_url = f"http://127.0.0.1:{port}/mcp"
            yield client
    finally:
        server.should_exit = True
        await task


def caller(url, secret, *turns):
    """An agent of ours that calls the agents of a server, as any MCP client would."""
    server = McpServer("other", url=url, headers={"authorization": f"Bearer {secret}"})
    return Agent(model=ScriptedModel([*turns, say("ok")]), tool_sources=[server], limits=Limits(max_iterations=5))


def answer_of(result):
    (text,) = [message.text for message in result.messages if message.role.startswith("tool")]
    return text


@flown
async def test_a_call_is_a_run_of_the_server_in_the_name_of_its_key():
    secret, key = make_key("editor", "run", tenant="acme")
    async with listening(agent(), store=MemoryStore(), keys=MemoryKeys([key])) as client:
        result = await caller(client.mcp_url, secret, call("helper", task="go")).run("x")
        assert "done" in answer_of(result)
        (card,) = (await client.get("/api/runs")).json()["runs"]
        assert (card["who"], card["outcome"], card["task"]) == ("editor", "done", "go")
        assert set(card["tags"]) == {"key:editor", "tenant:acme"}


@flown
async def test_a_key_is_shown_its_own_agents_and_no_other():
    secret, key = make_key("web", "run", agents=("help desk",))
    agents = agent(name="help desk"), agent(name="payer"), agent(name="vault")
    async with listening(*agents, keys=MemoryKeys([key])) as client:
        for who, seen in ((secret, ["help_desk"]), (TOKEN, ["help_desk", "payer", "vault"])):
            listed = await asked(client, who, "tools/list")
            assert [one["name"] for one in listed["tools"]] == seen


async def asked(client, secret, method, **params):
    """The answer to one request in an MCP session of its own."""
    headers = {**HEAD, "authorization": f"Bearer {secret}"}
    began = await client.post("/mcp", json=INIT, headers=headers)
    headers["mcp-session-id"] = began.headers["mcp-session-id"]
    await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
    ask = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
    return answered(await client.post("/mcp", json=ask, headers=headers))


def answered(response):
    """The result in the one message of an event stream."""
    (line,) = [line for line in response.text.splitlines() if line.startswith("data: {")]
    return json.loads(line.removeprefix("data: "))["result"]


@pytest.mark.parametrize("secret", ["x", "wrong-token-0123456789", "view-token-0123456789"])
@flown
async def test_nobody_calls_without_a_secret_that_may_start_runs(secret):
    async with listening(agent()) as client:
        headers = {**HEAD, "authorization": f"Bearer {secret}"}
        answer = await client.post("/mcp", json=INIT, headers=headers)
        assert code(answer) == ((403, "view_only") if secret.startswith("view") else (401, "unauthorized"))
        for method in ("GET", "DELETE"):
            assert (await client.request(method, "/mcp", headers=headers)).status_code in (401, 403)
        assert not client.application.state.hub.feeds


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
    ],
    ids=["rebinding", "origin", "site", "form"],
)
@flown
async def test_the_rules_about_hosts_and_origins_hold_here_too(headers, status):
    async with listening(agent()) as client:
        answer = await client.post("/mcp", content=json.dumps(INIT), headers={**HEAD, **JSON, **headers})
        assert answer.status_code == status


JSON = {"content-type": "application/json"}


@flown
async def test_a_session_is_of_use_only_to_the_key_that_opened_it():
    (one, first), (two, second) = make_key("one", "run"), make_key("two", "run")
    async with listening(agent(), keys=MemoryKeys([first, second])) as client:
        mine = {**HEAD, "authorization": f"Bearer {one}"}
        opened = await client.post("/mcp", json=INIT, headers=mine)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        theirs = {**HEAD, "authorization": f"Bearer {two}", **session}
        assert (await client.post("/mcp", json=ping, headers=theirs)).status_code == 404
        assert (await client.delete("/mcp", headers=theirs)).status_code == 404
        assert (await client.post("/mcp", json=ping, headers={**mine, **session})).status_code == 200
        assert (await client.delete("/mcp", headers={**mine, **session})).status_code == 200


@pytest.mark.parametrize(("asked", "most"), [(2, 2), (50, 4)])
@flown
async def test_limits_go_down_and_never_up(asked, most):
    secret, key = make_key("editor", "run")
    one = agent(*[call("search", query=str(n)) for n in range(most)], say("landed"), limits=Limits(max_iterations=4))
    async with listening(one, keys=MemoryKeys([key])) as client:
        await caller(client.mcp_url, secret, call("helper", task="go", max_turns=asked)).run("x")
        (card,) = (await client.get("/api/runs")).json()["runs"]
        turns = next(gauge for gauge in card["gauges"] if gauge["kind"] == "turns")
        assert turns["limit"] == most


@flown
async def test_what_the_server_refuses_is_an_error_of_the_call():
    secret, key = make_key("editor", "run", agents=("other",))
    async with listening(agent(), agent(name="other"), keys=MemoryKeys([key])) as client:
        refused = await asked(client, secret, "tools/call", name="helper", arguments={"task": "go"})
        assert refused["isError"]
        assert "has no agent 'helper'; it has other" in refused["content"][0]["text"]
        await client.post("/api/kill", json={"scope": "fleet", "active": True, "reason": "fire"})
        result = await caller(client.mcp_url, secret, call("other", task="go")).run("x")
        assert "the kill switch is thrown: fire" in answer_of(result)
        assert not client.application.state.hub.feeds


@flown
async def test_a_call_that_is_cancelled_lands_its_run():
    doors = Doors()
    one = agent(call("wait"), say("x"), tools=doors.tools())
    async with listening(one, store=MemoryStore()) as client:
        running = asyncio.create_task(caller(client.mcp_url, TOKEN, call("helper", task="go")).run("x"))
        await asyncio.wait_for(doors.entered.wait(), 10)
        running.cancel()
        await asyncio.wait([running])
        for _ in range(200):
            (card,) = (await client.get("/api/runs")).json()["runs"]
            if card["state"] == "ended":
                break
            await asyncio.sleep(0.02)
        assert card["cause"]["reason"] == "the caller cancelled the call"


@flown
async def test_an_agent_without_limits_is_not_offered():
    free = Agent(model=ScriptedModel([]), unbounded=True, agent_name="free")
    async with listening(agent(), free) as client:
        opened = await client.post("/mcp", json=INIT, headers=HEAD)
        session = {**HEAD, "mcp-session-id": opened.headers["mcp-session-id"]}
        listed = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=session)
        assert '"name":"helper"' in listed.text
        assert '"name":"free"' not in listed.text
