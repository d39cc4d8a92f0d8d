"""A team inside a tool of a run spends from that run."""

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.errors import ConfigurationError
from glidepath.sessions import MemoryStore
from glidepath.teams import Team, TeamStatus
from glidepath.testing import ScriptedModel, call, say, virtual


def asking(team, results, limits, *, way=None, **more):
    @tool
    async def ask_team() -> str:
        """Ask the team."""
        results.append(await (way(team) if way is not None else team.run("the goal")))
        return results[-1].text

    model = ScriptedModel([call("ask_team"), say("done")], name="chief")
    return Agent(model=model, tools=[ask_team], limits=limits, **more)


def one_member(text="word " * 50):
    return Agent(model=ScriptedModel(name="member").forever(say(text)), limits=Limits(max_iterations=5), agent_name="m")


@virtual
async def test_g12_the_members_of_a_team_inside_a_tool_are_children():
    results = []
    result = await asking(Team([one_member()]), results, Limits(max_iterations=20)).run("go")
    assert results[0].status is TeamStatus.COMPLETED
    assert result.children
    assert {child.outcome for child in result.children} == {LoopOutcome.DONE}
    assert result.usage.total > sum(child.usage.total for child in result.children) > 0
    assert sum(child.usage.total for child in result.children) == results[0].usage.total


@virtual
async def test_g12_a_team_inside_a_tool_is_held_by_the_limits_of_the_run():
    results = []
    team = Team([one_member("word " * 2000)])
    result = await asking(team, results, Limits(max_iterations=20, max_tokens=5000)).run("go")
    assert result.usage.total <= 5000
    results.clear()
    result = await asking(team, results, Limits(max_iterations=2)).run("go")
    assert sum(child.iterations for child in result.children) <= 1
    results.clear()
    result = await asking(team, results, Limits(max_iterations=20, max_descendants=1)).run("go")
    assert sum(bool(child.iterations) for child in result.children) == 1


@virtual
async def test_a_team_with_parent_none_is_on_its_own():
    results = []
    agent = asking(Team([one_member()]), results, Limits(max_iterations=3), way=lambda team: team.run("x", parent=None))
    result = await agent.run("go")
    assert results[0].status is TeamStatus.COMPLETED
    assert result.children == ()


@virtual
async def test_a_team_takes_no_other_parent():
    with pytest.raises(ConfigurationError, match="INHERIT or None"):
        await Team([one_member()]).run("x", parent=3)


@virtual
async def test_g7_a_team_that_its_call_leaves_behind_is_stopped():
    @tool
    async def rest() -> str:
        """Rest."""
        await asyncio.sleep(1000)
        return "rested"

    left = []
    resting = Agent(model=ScriptedModel().forever(call("rest")), tools=[rest], limits=Limits(max_iterations=5))

    async def leave(team):
        left.append(asyncio.create_task(team.run("x")))
        await asyncio.sleep(1)
        raise ValueError("gone")

    result = await asking(Team([resting]), [], Limits(max_iterations=20), way=leave).run("go")
    assert result.outcome is LoopOutcome.DONE
    assert asyncio.get_running_loop().time() < 20
    await asyncio.wait(left, timeout=1)
    assert left[0].done()


def test_g12_a_team_in_a_blocking_tool_is_held_too():
    team, results = Team([one_member()]), []

    @tool
    def ask_team() -> str:
        """Ask the team."""
        results.append(asyncio.run(team.run("the goal")))
        return results[-1].text

    model = ScriptedModel([call("ask_team"), say("done")])
    result = Agent(model=model, tools=[ask_team], limits=Limits(max_iterations=20)).run_sync("go")
    assert results[0].status is TeamStatus.COMPLETED
    assert sum(child.usage.total for child in result.children) == results[0].usage.total > 0


@virtual
async def test_a_team_inside_a_run_with_a_journal_works_with_and_without_a_store():
    for store in (None, MemoryStore()):
        results = []
        agent = asking(Team([one_member()], store=store), results, Limits(max_iterations=20), store=MemoryStore())
        result = await agent.run("go", session="s")
        assert (result.outcome, results[0].status) == (LoopOutcome.DONE, TeamStatus.COMPLETED)
        assert result.children


def test_g1_a_team_in_a_thread_that_blocks_the_loop_of_its_run_is_still_part_of_that_run(monkeypatch):
    monkeypatch.setattr("glidepath.run.nested.ANSWERS_WITHIN", 0.1)
    results, team = [], Team([one_member()])

    async def block(team):
        with ThreadPoolExecutor(1) as pool:
            there = contextvars.copy_context()
            return pool.submit(there.run, lambda: asyncio.run(team.run("the goal"))).result()

    result = asking(team, results, Limits(max_iterations=20), way=block).run_sync("go")
    assert results[0].status is TeamStatus.COMPLETED
    assert result.usage.total > results[0].usage.total > 0
