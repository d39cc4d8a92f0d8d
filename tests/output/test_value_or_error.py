"""With an `output_type`, `unwrap()` returns a value of it or raises: whatever the model said, and whoever ran it."""

import asyncio
from dataclasses import dataclass

import pytest

from glidepath import Agent, Limits, LoopOutcome, Session, ToolContext, ToolResult, tool
from glidepath.errors import RunNotCompleted
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, empty, refuse, say, truncated


@dataclass
class Weather:
    city: str


@dataclass
class Place:
    street: str


@tool
def done() -> ToolResult:
    """End the run."""
    return ToolResult("finished", terminate=True)


@tool
def look(n: int) -> str:
    """Look."""
    return "x"


RIGHT = '{"city": "Ulm"}'
SCRIPTS = {
    "a refusal": [refuse("I cannot.")],
    "a refusal that is a value": [refuse(RIGHT)],
    "a refusal after work": [call("look", n=1), refuse("I cannot.")],
    "a refusal of the repair": [say("warm"), refuse("I cannot.")],
    "a cut": [truncated('{"city": "U')] * 8,
    "nothing": [empty()] * 8,
    "a wrong value, twice": [say('{"city": 3}'), say('{"town": "Ulm"}')],
    "a text, twice": [say("warm"), say("warm")],
    "a terminal tool": [call("done"), call("done")],
    "a landing in words": [call("look", n=1), call("look", n=2), call("look", n=3), say("words"), say("words")],
    "a value": [say(RIGHT)],
    "a value at the second try": [say("warm"), say(RIGHT)],
    "a landing with a value": [*[call("look", n=n) for n in range(3)], say(RIGHT), say(RIGHT)],
}


VALUES = ("a value", "a value at the second try", "a landing with a value")


def agent(script, **keywords):
    limits = keywords.pop("limits", Limits(max_iterations=3))
    return Agent(model=ScriptedModel(script), tools=[done, look], output_type=Weather, limits=limits, **keywords)


def run_sync(script):
    return agent(script).run_sync("x")


def run(script):
    return asyncio.run(agent(script).run("x"))


def stream_sync(script):
    with agent(script).stream_sync("x") as stream:
        list(stream)
    return stream.result


def stream(script):
    async def main():
        async with agent(script).stream("x") as events:
            async for _ in events:
                pass
        return events.result

    return asyncio.run(main())


def child(script):
    found = []

    @tool
    async def delegate(context: ToolContext) -> str:
        """Ask the child."""
        found.append(await context.spawn(agent(script), "x"))
        return "asked"

    boss = Agent(model=ScriptedModel([call("delegate"), say("ok")]), tools=[delegate], limits=Limits(max_iterations=9))
    boss.run_sync("x")
    return found[0]


def resumed(script):
    """The result of a run, resumed at once: done runs are returned, others meet the same limit."""
    one = agent(script)
    return one.resume_sync(one.run_sync("x"))


def resumed_from_a_store(script):
    one = agent(script, store=MemoryStore())
    return one.resume_sync(one.run_sync("x", session="s").session_id)


WAYS = (run_sync, run, stream_sync, stream, child, resumed, resumed_from_a_store)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_value_of_the_type_or_an_error(name, way):
    result = way(SCRIPTS[name])
    assert (
        result.ok
        == (type(result.output) is Weather)
        == ("value" in name and "refusal" not in name and "wrong" not in name)
    )
    if result.ok:
        assert result.unwrap() == Weather("Ulm")
    else:
        with pytest.raises(RunNotCompleted):
            result.unwrap()


def test_a_refusal_is_named_as_the_cause():
    result = run_sync([refuse("I cannot.")])
    assert (result.outcome, result.cause.action, result.text) == (LoopOutcome.FAILED, "refuse", "I cannot.")
    assert result.stop_reason == "refusal"


def test_without_a_type_a_refusal_is_done_with_its_text_as_before():
    result = Agent(model=ScriptedModel([refuse("No.")]), limits=Limits(max_iterations=3)).run_sync("x")
    assert (result.outcome, result.unwrap()) == (LoopOutcome.DONE, "No.")


@pytest.mark.parametrize("stored", [False, True])
def test_a_done_run_of_another_type_is_read_as_this_agents_type_or_has_failed(stored):
    store = {"store": MemoryStore()} if stored else {}
    limits = Limits(max_iterations=3)
    other = ({"output_type": Place}, '{"street": "A"}', False)
    for first, text, fits in (({}, RIGHT, True), ({}, "warm", False), other):
        before = Agent(model=ScriptedModel([say(text)]), limits=limits, **first, **store)
        session = Session()
        done = before.run_sync("x", session=session.id if stored else session)
        result = agent([], **store).resume_sync(session.id if stored else done)
        assert (result.ok, result.output) == (fits, Weather("Ulm") if fits else None)


def test_a_team_does_not_take_a_refusal_for_a_result():
    from glidepath.teams import Team, TeamExecutionPlan, TeamExecutionRequest, TeamStep

    step = TeamStep(id="a", description="do it")
    plan = TeamExecutionPlan(steps=(step,))
    team = Team([agent([refuse("I cannot.")] * 9, agent_name="m")])
    result = asyncio.run(team.run(TeamExecutionRequest(goal="go", plan=plan)))
    assert [one.state.name for one in result.step_outcomes] == ["FAILED"]
