"""Limits, system prompt and model for one run; whose words a result's text is."""

import pytest

from glidepath import Agent, AgentState, Budget, Limits, LoopOutcome, approve, tool
from glidepath.errors import ConfigurationError
from glidepath.outcome import TextOrigin
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, say, virtual

FEW = Limits(max_iterations=5)


@tool
async def look() -> str:
    """Look."""
    return "seen"


def looking(**settings):
    model = ScriptedModel([call("look"), call("look"), call("look"), say("done")], name="own")
    return Agent(**{"model": model, "tools": [look], "limits": FEW, **settings})


@virtual
async def test_limits_of_one_run_hold_for_it_and_for_no_other():
    agent = looking(landing="off")
    first = await agent.run("Go.", limits=Limits(max_iterations=1))
    assert (first.state, first.iterations) == (AgentState.MAX_STEPS, 1)
    assert (await agent.run("Go.")).outcome is LoopOutcome.DONE


@virtual
async def test_a_system_prompt_and_a_model_of_one_run_are_used_in_it_alone():
    own, other = ScriptedModel([say("own")], name="own"), ScriptedModel([say("other")], name="other")
    agent = Agent(model=own, system_prompt="Be kind.", limits=FEW)
    result = await agent.run("Hi.", model=other, system_prompt="Be brief.")
    assert result.text == "other"
    assert other.requests[0].system_prompt == "Be brief."
    await agent.run("Hi.")
    assert own.requests[0].system_prompt == "Be kind."


@virtual
async def test_a_stream_takes_them_too():
    async with looking(landing="off").stream("Go.", limits=Limits(max_iterations=1)) as stream:
        async for _ in stream:
            pass
    assert stream.result.iterations == 1


def test_run_sync_takes_them_too():
    assert looking(landing="off").run_sync("Go.", limits=Limits(max_iterations=2)).iterations == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limits": 3}, "limits must be a Limits"),
        ({"system_prompt": 3}, "system_prompt must be a str"),
        ({"system_prompt": "a\0"}, "NUL"),
        ({"model": 3}, "model must have a method stream"),
        ({"model": "nonsense"}, "nonsense"),
    ],
    ids=["limits", "prompt", "nul", "model", "name"],
)
@virtual
async def test_what_is_wrong_for_one_run_is_refused_before_the_first_call(given, said):
    agent = looking()
    with pytest.raises(ConfigurationError, match=said):
        await agent.run("Go.", **given)
    assert agent.config.model.requests == []


@virtual
async def test_they_hold_after_a_resume_that_does_not_repeat_them():
    @tool(requires_approval=True)
    async def sell() -> str:
        """Sell."""
        return "sold"

    model = ScriptedModel([call("sell"), call("look"), call("look"), say("done")], name="own")
    agent = Agent(model=model, tools=[look, sell], limits=FEW, store=MemoryStore(), landing="off")
    paused = await agent.run("Go.", session="s", limits=Limits(max_iterations=2), system_prompt="Be brief.")
    result = await agent.resume("s", decisions={paused.pending[0].call.id: approve()})
    assert (result.state, result.iterations) == (AgentState.MAX_STEPS, 2)
    assert {request.system_prompt for request in model.requests} == {"Be brief."}
    assert result.changes == ()


@virtual
async def test_resume_can_replace_them():
    agent = looking(store=MemoryStore(), landing="off")
    cut = await agent.run("Go.", session="s", limits=Limits(max_iterations=1))
    assert cut.iterations == 1
    assert (await agent.resume("s", limits=FEW)).outcome is LoopOutcome.DONE


@virtual
async def test_a_child_inside_a_tool_takes_them_within_its_parents():
    inner = looking(agent_name="inner", landing="off")

    @tool
    async def delegate() -> str:
        """Delegate."""
        return (await inner.run("Go.", limits=Limits(max_iterations=1))).state.name

    outer = Agent(model=ScriptedModel([call("delegate"), say("ok")]), tools=[delegate], limits=Limits(max_iterations=9))
    assert (await outer.run("Go.")).children[0].iterations == 1


@virtual
async def test_a_budget_still_bounds_a_run_with_limits_of_its_own():
    budget = Budget(Limits(max_iterations=1))
    result = await looking(landing="off").run("Go.", parent=budget, limits=FEW)
    assert result.iterations == 1


@virtual
async def test_the_models_answer_is_the_models():
    result = await looking().run("Go.")
    assert result.text_origin is TextOrigin.MODEL


@virtual
async def test_a_summary_is_the_runtimes():
    result = await looking(landing="off").run("Go.", limits=Limits(max_iterations=1))
    assert result.text.startswith("No answer was written.")
    assert result.text_origin is TextOrigin.RUNTIME


@virtual
async def test_the_last_result_of_a_terminal_tool_is_the_tools():
    @tool(terminal=True)
    async def submit() -> str:
        """Submit."""
        return "submitted"

    result = await Agent(model=ScriptedModel([call("submit")]), tools=[submit], limits=FEW).run("Go.")
    assert (result.text, result.text_origin) == ("submitted", TextOrigin.TOOL)


@virtual
async def test_a_landing_answer_is_the_models_and_survives_a_resume():
    agent = looking(model=ScriptedModel([call("look"), say("so far"), say("done")]), store=MemoryStore())
    landed = await agent.run("Go.", session="s", limits=Limits(max_iterations=1))
    assert (landed.text, landed.text_origin) == ("so far", TextOrigin.MODEL)
    again = await agent.resume("s")
    assert (again.text, again.text_origin) == ("so far", TextOrigin.MODEL)
