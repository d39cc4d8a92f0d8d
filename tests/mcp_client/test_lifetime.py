"""When a server is started, by whom it is shared, and when it is closed."""

import asyncio

import pytest

from glidepath import Agent, Limits
from glidepath.outcome import LoopOutcome
from glidepath.testing import ScriptedModel, call, no_leftovers, say

from .servers import agent_with, fake, results

pytestmark = pytest.mark.process


def forever(**settings):
    model = ScriptedModel([]).forever(
        lambda request: call("echo", text="x") if len(request.messages) == 1 else say("ok")
    )
    return Agent(model=model, limits=Limits(max_iterations=5), **settings)


def starts(path):
    return len(path.read_bytes()) if path.exists() else 0


async def test_nothing_is_started_before_the_first_run(tmp_path):
    count = tmp_path / "starts"
    agent = forever(tools=[fake(setup={"count": str(count)})])
    async with agent:
        assert starts(count) == 0
    assert starts(count) == 0


async def test_runs_at_the_same_time_share_one_process(tmp_path):
    count = tmp_path / "starts"
    agent = forever(tools=[fake(setup={"count": str(count)})])
    done = await asyncio.gather(*[agent.run(f"task {number}") for number in range(5)])
    assert {one.outcome for one in done} == {LoopOutcome.DONE}
    assert starts(count) == 1


async def test_g17_without_async_with_the_server_ends_with_the_last_run(tmp_path):
    count, log = tmp_path / "starts", tmp_path / "log"
    agent = forever(tools=[fake(setup={"count": str(count), "log": str(log)})])
    async with no_leftovers():
        await agent.run("one")
    assert "end of input" in log.read_text()
    await agent.run("two")
    assert starts(count) == 2


async def test_g17_async_with_keeps_the_server_until_its_end(tmp_path):
    count = tmp_path / "starts"
    agent = forever(tools=[fake(setup={"count": str(count)})])
    async with no_leftovers(), agent:
        await agent.run("one")
        await agent.run("two")
        assert starts(count) == 1


async def test_the_plan_is_made_once_for_the_same_tools():
    agent = forever(tools=[fake()])
    async with agent:
        await agent.run("one")
        first = agent._outfit._known
        await agent.run("two")
        assert agent._outfit._known is first


def test_run_sync_has_its_own_server():
    agent = agent_with([call("echo", text="a"), say("ok")], fake())
    assert agent.run_sync("go").text == "ok"


async def test_a_child_has_the_tools_of_its_own_servers():
    child = agent_with([call("echo", text="inside"), say("the child")], fake())
    parent = agent_with([call("helper", task="do it"), say("done")], child.as_tool("helper", "Help."))
    async with no_leftovers():
        result = await parent.run("go")
    assert (results(result)[0].text, result.text) == ("the child", "done")


async def test_cancelling_the_caller_closes_the_server(tmp_path):
    log = tmp_path / "log"
    agent = agent_with([call("silent")], fake(setup={"tools": ["silent"], "log": str(log)}))
    async with no_leftovers():
        task = asyncio.create_task(agent.run("go"))
        while not (log.exists() and "call silent" in log.read_text()):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_cancelling_while_it_connects_leaves_nothing_behind():
    agent = agent_with([], fake(setup={"never_answers": True}))
    async with no_leftovers():
        task = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_stream_that_is_left_early_closes_the_server():
    agent = agent_with([call("silent")], fake(setup={"tools": ["silent"]}))
    async with no_leftovers(), agent.stream("go") as stream:
        async for event in stream:
            if type(event).__name__ == "ToolStarted":
                break


async def test_a_tool_may_be_chosen_by_name_although_it_is_known_only_later():
    agent = agent_with([call("add", a=1, b=1), say("ok")], fake())
    result = await agent.run("go", tool_choice="add")
    assert results(result)[0].text == "2"
