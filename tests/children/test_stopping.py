"""What stops a parent stops its children, at once; what stops a child does not stop its parent."""

import asyncio

import pytest

from glidepath import Agent, AgentState, CancelToken, Limits, LoopOutcome, ToolContext, tool
from glidepath.constraints import KillSwitchConstraint
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    call,
    calls,
    hang,
    no_leftovers,
    say,
    transcript_errors,
    virtual,
)

from .family import ROOMY, child_of, delegating, fanning, stubborn_tool


def later(seconds, function):
    asyncio.get_running_loop().call_later(seconds, function)


@pytest.mark.parametrize("width", [1, 3])
@virtual
async def test_g7_a_cancel_of_the_parent_reaches_streaming_children_without_another_model_call(width):
    token = CancelToken()
    children = [child_of(hang("so far ")) for _ in range(width)]
    parent, _ = delegating(*children, at_once=True)
    later(3, token.cancel)
    async with no_leftovers():
        result = await parent.run("go", cancel=token)
    assert result.elapsed == pytest.approx(3.0, abs=0.05)
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert [child.outcome for child in result.children] == [LoopOutcome.CANCELLED] * width
    assert [child.text for child in result.children] == ["so far "] * width
    assert [child.config.model.calls for child in children] == [1] * width
    assert transcript_errors(result.messages) == []


@pytest.mark.parametrize("at_once", [True, False])
@virtual
async def test_g7_a_cancel_reaches_grandchildren(at_once):
    token = CancelToken()
    grandchild = child_of(hang())
    child, _ = delegating(grandchild)
    parent, _ = delegating(*[child] * (2 if at_once else 1), at_once=at_once)
    later(3, token.cancel)
    async with no_leftovers():
        result = await parent.run("go", cancel=token)
    assert result.elapsed == pytest.approx(3.0, abs=0.05)
    grandchildren = [kid for kid in result.children for kid in kid.children]
    assert grandchildren
    assert {kid.outcome for kid in grandchildren} == {LoopOutcome.CANCELLED}


@pytest.mark.parametrize("width", [1, 3])
@virtual
async def test_the_callers_own_cancellation_reaches_the_children_and_goes_on(width):
    children = [child_of(hang("so far ")) for _ in range(width)]
    recorder = EventRecorder()
    parent, _ = delegating(*children, at_once=True, plugins=[recorder.as_plugin(children=True)])
    async with no_leftovers():
        running = asyncio.ensure_future(parent.run("go"))
        await asyncio.sleep(2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    recorder.assert_legal()
    assert [child.config.model.calls for child in children] == [1] * width


@virtual
async def test_a_child_that_is_stopped_by_its_own_deadline_does_not_disturb_its_parent():
    child = child_of(hang("so far "), limits=Limits(timeout=5))
    parent, results = delegating(child)
    result = await parent.run("go")
    assert (results[0].state, results[0].text) == (AgentState.TIMED_OUT, "so far ")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "the parent's answer")
    assert asyncio.current_task().cancelling() == 0


@virtual
async def test_a_child_inherits_its_parents_deadline_and_leaves_it_time_to_land():
    parent, results = delegating(child_of(hang()), limits=Limits(timeout=60, max_iterations=10))
    result = await parent.run("go")
    assert results[0].state is AgentState.TIMED_OUT
    assert results[0].elapsed < 45  # the parent's own landing window is the last quarter
    assert result.text == "the parent's answer"
    assert result.elapsed < 60


@virtual
async def test_a_child_with_an_inherited_deadline_is_not_told_to_hurry_before_half_of_it_has_passed():
    child = child_of(say("the child's answer"))
    parent, results = delegating(child, limits=Limits(timeout=60, max_iterations=10))
    await parent.run("go")
    assert results[0].outcome is LoopOutcome.DONE
    slow = child_of(call("nothing").with_delay(10.0), say("late"))
    parent, results = delegating(slow, limits=Limits(timeout=60, max_iterations=10))
    await parent.run("go")
    assert (results[0].outcome, results[0].cause) == (LoopOutcome.DONE, None)


@virtual
async def test_when_the_parents_window_opens_its_children_are_stopped_and_the_landing_call_is_made():
    @tool
    async def delegate(context: ToolContext) -> str:
        """Delegate, and do not give up when it fails."""
        while True:
            await context.spawn(child_of(hang()), "again")
            await asyncio.sleep(5)

    model = ScriptedModel([call("delegate"), say("what I have")])
    parent = Agent(model=model, tools=[delegate], limits=Limits(timeout=40, max_iterations=99))
    async with no_leftovers():
        result = await parent.run("go")
    assert (result.state, result.outcome, result.text) == (AgentState.TIMED_OUT, LoopOutcome.WRAPPED_UP, "what I have")
    assert result.elapsed < 40
    assert transcript_errors(result.messages) == []


@virtual
async def test_a_kill_switch_of_the_parent_kills_the_children():
    thrown = []
    switch = KillSwitchConstraint(lambda: bool(thrown))
    child = child_of(hang("so far "))
    parent, _ = delegating(child, constraints=[switch])
    later(2.5, lambda: thrown.append(1))
    result = await parent.run("go")
    assert result.elapsed == pytest.approx(2.5, abs=0.1)
    assert result.state is AgentState.CANCELLED
    assert [kid.outcome for kid in result.children] == [LoopOutcome.CANCELLED]


# --- children that are left behind --------------------------------------------------------------------------------


def leaving(child, *, wait=0.01, more=()):
    """A parent whose tool call starts a child and does not wait for it."""

    @tool
    async def start(context: ToolContext) -> str:
        """Start a child and return at once."""
        asyncio.ensure_future(context.spawn(child, "a task"))  # noqa: RUF006 - this is the bug under test
        await asyncio.sleep(wait)
        return "started"

    model = ScriptedModel([calls(call("start"), *more), say("the parent's answer")])
    return Agent(model=model, tools=[start], limits=ROOMY)


@virtual
async def test_a_child_still_running_when_its_tool_call_ends_is_cancelled_and_awaited():
    child = child_of(hang("so far "))
    async with no_leftovers():
        result = await leaving(child).run("go")
    assert [(kid.outcome, kid.text) for kid in result.children] == [(LoopOutcome.CANCELLED, "so far ")]
    assert "tool call" in result.children[0].cause.reason
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_each_of_two_calls_takes_its_own_children_with_it():
    child = child_of(hang("a "), hang("b "))
    async with no_leftovers():
        result = await leaving(child, more=[call("start")]).run("go")
    assert sorted(kid.text for kid in result.children) == ["a ", "b "]


@virtual
async def test_g17_work_of_a_child_that_does_not_stop_is_listed_in_the_parents_result():
    child = child_of(call("stubborn"), tools=[stubborn_tool()])
    async with no_leftovers(abandoned=["glidepath-abandoned"]):
        result = await leaving(child).run("go")
    assert [(work.tool_name, work.kind) for work in result.abandoned] == [("stubborn", "task")]
    assert result.abandoned == result.children[0].abandoned
    assert result.elapsed < 2


@virtual
async def test_g17_a_cancel_through_two_generations_lists_what_did_not_stop():
    token = CancelToken()
    child = child_of(call("stubborn"), tools=[stubborn_tool()])
    parent, _ = delegating(child)
    later(1, token.cancel)
    result = await parent.run("go", cancel=token)
    assert "stubborn" in [work.tool_name for work in result.abandoned]
    assert result.elapsed < 3


@virtual
async def test_a_parent_cancelled_in_the_middle_of_many_children_ends_every_one_of_them():
    token = CancelToken()
    child = Agent(model=ScriptedModel().forever(hang("x ")), limits=Limits(max_iterations=5))
    parent, results = fanning(child, 64)
    later(1, token.cancel)
    async with no_leftovers():
        result = await parent.run("go", cancel=token)
    assert result.elapsed == pytest.approx(1.0, abs=0.3)
    assert [kid.outcome for kid in result.children] == [LoopOutcome.CANCELLED] * 64
    assert results == []
    assert child.config.model.calls == 64


# --- a tool's own futures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("twice", [False, True])
@virtual
async def test_a_tool_may_catch_what_a_task_it_awaits_raises(twice):
    async def failing():
        await asyncio.sleep(1)
        raise ValueError("inner")

    @tool
    async def careful() -> str:
        """Be careful."""
        try:
            await asyncio.ensure_future(failing())
        except ValueError:
            return "handled"
        return "not raised"

    asked = [call("careful")] * (2 if twice else 1)
    agent = Agent(model=ScriptedModel([calls(*asked), say("ok")]), tools=[careful], limits=Limits(max_iterations=3))
    result = await agent.run("go")
    assert {m.text for m in result.messages if m.role == "tool_result"} == {"handled"}
    assert result.outcome is LoopOutcome.DONE
