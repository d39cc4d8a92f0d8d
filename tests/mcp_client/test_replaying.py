"""A replay of a run whose tools came from servers: they are listed again, and none is called."""

import pytest

from glidepath.agent.replay import replay
from glidepath.sessions import MemoryStore
from glidepath.testing import call, say

from .servers import agent_with, fake, results
from .test_many_tools import crowded, real

pytestmark = pytest.mark.process
ECHO = {"name": "echo", "description": "Say it back.", "inputSchema": {"type": "object"}}
SCRIPT = [call("echo", text="a"), call("echo", text="b"), say("done")]


async def flown(server, store, script=SCRIPT):
    result = await agent_with(list(script), server, store=store).run("go", session="s")
    assert result.text == "done"
    return result


async def test_a_run_with_tools_of_a_server_is_replayed_without_calling_one(tmp_path):
    store, log = MemoryStore(), tmp_path / "calls"
    server = fake(setup={"tools": [ECHO], "log": str(log)})
    result = await flown(server, store)
    replayed = await replay(agent_with([], server), store, "s")
    assert (replayed.same, replayed.whole, replayed.difference, replayed.until) == (True, True, "", "")
    assert replayed.result.text == result.text
    entry, commits = await store.load("s")
    assert replayed.commits == len(commits) == entry.head


async def test_a_tool_that_has_changed_since_is_a_difference():
    store = MemoryStore()
    await flown(fake(setup={"tools": [ECHO]}), store)
    other = {**ECHO, "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
    replayed = await replay(agent_with([], fake(setup={"tools": [other]})), store, "s")
    assert not replayed.same
    assert replayed.difference


async def test_a_server_that_is_not_there_is_told_and_nothing_is_compared():
    from glidepath.mcp import McpServer

    store = MemoryStore()
    await flown(fake(setup={"tools": [ECHO]}), store)
    gone = McpServer("fake", command="/nowhere/to-be-found")
    replayed = await replay(agent_with([], gone), store, "s")
    assert (replayed.same, replayed.whole, replayed.commits) == (True, False, 0)
    assert "'fake'" in replayed.until
    assert replayed.result.text == "done"


async def test_tools_behind_two_doors_are_replayed():
    store = MemoryStore()
    script = [call("find_tools", query="say something back"), real(text="hi"), say("ok")]
    result = await crowded(script, store=store).run("go", session="s")
    assert [one.is_error for one in results(result)] == [False, False]
    replayed = await replay(crowded([]), store, "s")
    assert (replayed.same, replayed.difference) == (True, "")
