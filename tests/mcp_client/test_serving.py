"""Agents as an MCP server: one tool each, the server's own limits, progress, cancel, how it ended."""

import asyncio
import io
import json
import sys
import textwrap

import pytest
from mcp import Client

from glidepath import Agent, Limits, tool
from glidepath.apps.cli import CliContext
from glidepath.cli import main
from glidepath.errors import ConfigurationError
from glidepath.events import ToolProgress
from glidepath.mcp import McpServer, agent_server
from glidepath.testing import ScriptedModel, call, hang, say

from .http_servers import sdk_server
from .servers import agent_with, collect, results

pytestmark = pytest.mark.process


@tool
async def look(page: int = 1) -> str:
    """Look something up."""
    return f"page {page}"


def served(turns, **settings):
    settings.setdefault("limits", Limits(max_iterations=4, max_tokens=20_000))
    return Agent(model=ScriptedModel(turns), tools=[look], agent_name="helper", system_prompt="You help.", **settings)


async def test_an_agent_is_one_tool_and_says_how_it_ended():
    async with Client(agent_server({"helper": served([call("look"), say("the answer")])})) as client:
        [offered] = (await client.list_tools()).tools
        assert (offered.name, offered.input_schema["required"]) == ("helper", ["task"])
        assert "4 turns, 20000 tokens" in offered.description
        answer = await client.call_tool("helper", {"task": "go"})
    assert answer.content[0].text == "the answer"
    said = answer.structured_content
    assert (said["outcome"], said["state"], said["iterations"], said["tool_calls"]) == ("done", "completed", 2, 1)
    assert (said["cause"], said["usage"]["total"] > 0, answer.is_error) == (None, True, False)


async def test_a_caller_can_lower_the_limits_and_never_raise_them():
    model_turns = [call("look", page=n) for n in range(9)]
    for asked, most in ((2, 2), (50, 4)):
        agent = served([*model_turns[:most], say("landed")])
        async with Client(agent_server({"helper": agent})) as client:
            answer = await client.call_tool("helper", {"task": "go", "max_turns": asked})
        said = answer.structured_content
        assert (said["iterations"], said["outcome"]) == (most, "wrapped_up"), asked
        assert said["cause"]["source"] == "MaxIterationConstraint"
        agent.config.model._turns = []


async def test_a_limit_that_cannot_be_is_an_error_for_the_caller():
    async with Client(agent_server({"helper": served([])})) as client:
        answer = await client.call_tool("helper", {"task": "go", "max_turns": 0})
    assert answer.is_error
    assert "max_iterations" in answer.content[0].text


def test_an_agent_without_limits_is_not_served():
    with pytest.raises(ConfigurationError, match="needs its own limits"):
        agent_server({"helper": Agent(model=ScriptedModel([]), unbounded=True)})
    with pytest.raises(ConfigurationError, match="expected an Agent, got str"):
        agent_server({"helper": "agent"})


def test_the_logging_of_the_process_is_left_alone():
    import logging

    root = logging.getLogger()
    kept, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        agent_server({"helper": served([])})
        assert (root.handlers, root.level) == ([], level)
    finally:
        root.handlers[:] = kept


async def test_progress_is_phase_turn_and_budget():
    async with sdk_server(agent_server({"helper": served([call("look"), say("done")])})) as url:
        caller = agent_with([call("helper", task="go"), say("ok")], McpServer("other", url=url))
        result, events = await collect(caller)
    said = [event.progress["message"] for event in events if isinstance(event, ToolProgress)]
    assert said[0] == "thinking, turn 1 of 4, 0 tokens of 20,000"
    assert any(line.startswith("calling look, turn 1 of 4") for line in said)
    assert json.loads(results(result)[0].text.splitlines()[-1])["outcome"] == "done"


async def test_g7_cancelling_the_call_lands_the_run():
    landed = []
    agent = served([hang()], event_sink=lambda event: landed.append(type(event).__name__))
    async with Client(agent_server({"helper": agent})) as client:
        task = asyncio.create_task(client.call_tool("helper", {"task": "go"}))
        while "StreamStarted" not in landed:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
    assert landed[-1] == "RunEnded"


async def test_a_paused_run_says_what_it_waits_for():
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    agent = Agent(model=ScriptedModel([call("pay", amount=3)]), tools=[pay], limits=Limits(max_iterations=3))
    async with Client(agent_server({"payer": agent})) as client:
        answer = await client.call_tool("payer", {"task": "go"})
    assert answer.is_error
    assert answer.structured_content["pending"][0]["tool"] == "pay"


AGENTS = textwrap.dedent("""
    from glidepath import Agent, Limits
    from glidepath.testing import ScriptedModel, say
    helper = Agent(model=ScriptedModel([say("served")]), limits=Limits(max_iterations=3))
    free = Agent(model=ScriptedModel([]), unbounded=True)
""")


async def test_the_command_serves_on_stdio(tmp_path):
    (tmp_path / "my_agents.py").write_text(AGENTS)
    command = ["-m", "glidepath", "mcp", "serve", "--agent", "my_agents:helper"]
    server = McpServer("served", command=sys.executable, args=command, cwd=tmp_path)
    result = await agent_with([call("helper", task="go"), say("ok")], server).run("go")
    assert "served" in results(result)[0].text


@pytest.mark.parametrize(
    ("name", "said"),
    [("wrong_agents:free", "needs its own limits"), ("wrong_agents:none", "none"), ("nowhere", "expected")],
)
def test_the_command_says_what_is_wrong(tmp_path, name, said):
    (tmp_path / "wrong_agents.py").write_text(AGENTS)
    err = io.StringIO()
    world = CliContext(environ={}, stdin=io.StringIO(), stdout=io.StringIO(), stderr=err, folder=tmp_path)
    assert main(("mcp", "serve", "--agent", name), world) == 2
    assert said in err.getvalue()
