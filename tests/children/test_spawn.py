"""A child is a run of its own on its parent's budget; its result and its spend are in the parent's result."""

from decimal import Decimal

import pytest

from glidepath import Agent, AgentState, ConfigurationError, Limits, LoopOutcome, ToolContext, Usage, tool
from glidepath.errors import RejectedError
from glidepath.events import ChildEnded, ChildStarted, RunStarted, ToolEnded
from glidepath.testing import EventRecorder, ScriptedModel, call, fail, no_leftovers, say, transcript_errors, virtual

from .family import child_of, delegating, fanning


@virtual
async def test_the_childs_result_is_returned_to_the_tool_and_kept_in_the_parents_result():
    parent, results = delegating(child_of(say("the child's answer")))
    result = await parent.run("go")
    assert [child.text for child in results] == ["the child's answer"]
    assert result.children == tuple(results)
    assert (result.text, result.outcome) == ("the parent's answer", LoopOutcome.DONE)


@virtual
async def test_the_spend_of_a_child_is_part_of_the_parents_and_stands_in_its_breakdown():
    child = Agent(
        model=ScriptedModel([say("yes", usage=Usage(input=30, output=20))], name="child-model", price=(1, 1)),
        limits=Limits(max_iterations=3),
        agent_name="child",
    )
    parent, _ = delegating(child, prices={"parent-model": (0, 0)})
    result = await parent.run("go")
    by_kind = {(spend.kind, spend.name): spend for spend in result.breakdown}
    assert by_kind["child", "child"].usage.total == 50
    assert by_kind["child", "child"].cost == Decimal("0.00005") == result.cost
    assert result.usage.total == sum(spend.usage.total for spend in result.breakdown)


@virtual
async def test_the_events_of_a_child_tell_whose_it_is_and_are_legal_by_themselves():
    recorder = EventRecorder()
    parent, _ = delegating(child_of(say("a")), child_of(say("b")), plugins=[recorder.as_plugin(children=True)])
    result = await parent.run("go")
    recorder.assert_legal()
    started = recorder.of(RunStarted)
    assert [event.depth for event in started] == [0, 1, 1]
    assert {event.parent_id for event in started} == {None, result.run_id}
    assert [event.child_id for event in recorder.of(ChildStarted)] == [child.run_id for child in result.children]
    assert [(event.state, event.outcome) for event in recorder.of(ChildEnded)] == [("COMPLETED", "DONE")] * 2


@virtual
async def test_a_childs_own_limits_end_it_and_not_the_parent():
    @tool
    async def work() -> str:
        """Work."""
        return "more"

    child = Agent(
        model=ScriptedModel().forever(lambda request: call("work") if request.tools else say("what I have")),
        tools=[work],
        limits=Limits(max_iterations=2, grace_iterations=0),
    )
    parent, results = delegating(child)
    result = await parent.run("go")
    assert (results[0].state, results[0].outcome, results[0].iterations) == (
        AgentState.MAX_STEPS,
        LoopOutcome.WRAPPED_UP,
        2,
    )
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_limits_given_to_spawn_replace_the_childs_own():
    child = child_of(say("x"), say("y"), limits=Limits(max_iterations=50))
    parent, results = delegating(child, child_limits=Limits(max_iterations=1, max_tokens=2000))
    await parent.run("go")
    assert results[0].outcome is LoopOutcome.DONE
    assert child.config.limits == Limits(max_iterations=50)


@virtual
async def test_limits_of_a_wrong_type_are_a_tool_error_and_start_no_child():
    parent, results = delegating(child_of(), child_limits={"max_iterations": 3})
    result = await parent.run("go")
    (message,) = [m for m in result.messages if m.role == "tool_result"]
    assert message.is_error
    assert "Limits" in message.text
    assert (results, result.children) == ([], ())


@virtual
async def test_spawning_something_that_is_no_agent_is_a_tool_error():
    parent, _ = delegating("not an agent")
    result = await parent.run("go")
    (message,) = [m for m in result.messages if m.role == "tool_result"]
    assert message.is_error
    assert "Agent" in message.text


@virtual
async def test_a_child_that_fails_is_a_result_not_an_exception():
    parent, results = delegating(child_of(fail(RejectedError("no"))))
    result = await parent.run("go")
    assert (results[0].state, results[0].outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_a_run_can_be_given_its_parent_as_a_context():
    child = child_of(say("the child's answer"))

    @tool
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        return (await child.run("a task", parent=context)).text

    parent = Agent(
        model=ScriptedModel([call("delegate"), say("done")]), tools=[delegate], limits=Limits(max_iterations=5)
    )
    result = await parent.run("go")
    assert [kid.text for kid in result.children] == ["the child's answer"]


@virtual
async def test_nothing_can_be_spawned_once_the_run_has_ended():
    kept = []

    @tool
    async def keep(context: ToolContext) -> str:
        """Keep the context."""
        kept.append(context)
        return "kept"

    parent = Agent(model=ScriptedModel([call("keep"), say("done")]), tools=[keep], limits=Limits(max_iterations=5))
    await parent.run("go")
    with pytest.raises(Exception, match="ended"):
        await kept[0].spawn(child_of(), "late")


# --- as a tool ----------------------------------------------------------------------------------------------------


def expert(*turns, limits=None, **more):
    return child_of(*turns, limits=limits or Limits(max_iterations=3), **more).as_tool("expert", "Ask the expert.")


def asking(tool_, **more):
    model = ScriptedModel([call("expert", task="think"), say("the parent's answer")])
    return Agent(model=model, tools=[tool_], limits=Limits(max_iterations=5), **more)


async def told(tool_):
    result = await asking(tool_).run("go")
    assert transcript_errors(result.messages) == []
    return next(message.text for message in result.messages if message.role == "tool_result")


@virtual
async def test_an_agent_as_a_tool_hands_over_its_answer_as_it_is_when_it_is_done():
    assert await told(expert(say("forty-two"))) == "forty-two"


@virtual
async def test_a_partial_answer_begins_with_one_line_that_says_so_and_names_the_limit():
    @tool
    async def work() -> str:
        """Work."""
        return "more"

    tool_ = Agent(
        model=ScriptedModel().forever(lambda request: call("work") if request.tools else say("half of it")),
        tools=[work],
        limits=Limits(max_iterations=1),
    ).as_tool("expert", "Ask the expert.")
    first, _, rest = (await told(tool_)).partition("\n")
    assert "partial" in first
    assert "MaxIterationConstraint" in first
    assert rest == "half of it"


@virtual
async def test_an_answer_written_after_the_notice_is_told_as_partial_too():
    @tool
    async def work() -> str:
        """Work."""
        return "more"

    turns = [call("work"), say("in short")]
    tool_ = expert(*turns, limits=Limits(max_iterations=2, grace_iterations=1), tools=[work])
    text = await told(tool_)
    assert "GracefulTurnLimit" in text.partition("\n")[0]


@virtual
async def test_the_tool_takes_one_task_and_has_the_name_and_description_it_was_given():
    tool_ = expert()
    assert (tool_.name, tool_.spec.description) == ("expert", "Ask the expert.")
    assert list(tool_.spec.parameters["properties"]) == ["task"]


@virtual
async def test_limits_given_to_as_tool_bound_the_child():
    @tool
    async def work() -> str:
        """Work."""
        return "more"

    child = child_of(call("work"), say("landed"), tools=[work], limits=Limits(max_iterations=50))
    tool_ = child.as_tool("expert", "Ask.", limits=Limits(max_iterations=1))
    result = await asking(tool_).run("go")
    assert result.children[0].state is AgentState.MAX_STEPS


# --- siblings -----------------------------------------------------------------------------------------------------


@virtual
async def test_siblings_run_at_the_same_time():
    child = Agent(model=ScriptedModel(delay=1.0).forever(say("one")), limits=Limits(max_iterations=2))
    parent, results = fanning(child, 10)
    result = await parent.run("go")
    assert result.elapsed == pytest.approx(1.0, abs=0.01)
    assert len(results) == 10


@virtual
async def test_a_gather_of_siblings_is_not_torn_down_by_one_that_is_not_started():
    parent, results = fanning(child_of(*[say("x")] * 3), 5, limits=Limits(max_iterations=50, max_descendants=3))
    result = await parent.run("go")
    assert [child.outcome for child in results].count(LoopOutcome.DONE) == 3
    refused = [child for child in results if child.outcome is LoopOutcome.CUT_OFF]
    assert [(child.state, child.iterations, child.cause.source) for child in refused] == [
        (AgentState.BUDGET_EXCEEDED, 0, "max_descendants")
    ] * 2
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_g17_siblings_leave_nothing_behind():
    async with no_leftovers():
        parent, results = fanning(child_of(*[say("x")] * 20), 20)
        await parent.run("go")
    assert len(results) == 20


@virtual
async def test_every_call_that_spawns_ends_with_exactly_one_result():
    recorder = EventRecorder()
    parent, _ = delegating(*[child_of(say("x")) for _ in range(4)], at_once=True, event_sink=recorder)
    result = await parent.run("go")
    recorder.assert_legal()
    assert len(recorder.of(ToolEnded)) == 4
    assert transcript_errors(result.messages) == []


def test_a_parent_that_is_no_budget_and_no_context_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match="parent"):
        child_of().run_sync("go", parent="nobody")
