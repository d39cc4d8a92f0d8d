"""A budget that many runs share bounds them all together: turns, tool calls, time, tokens; and the queue for it."""

import asyncio
from itertools import count

import pytest

from glidepath import Agent, AgentState, Budget, CancelToken, Limits, LoopOutcome, Session, ToolContext, Usage, tool
from glidepath.messages import AssistantMessage, TextBlock, UserMessage
from glidepath.testing import ScriptedModel, call, calls, hang, no_leftovers, say, transcript_errors, virtual

from .family import child_of, delegating

numbers = count(1)


@tool
async def work(item: int) -> str:
    """Work."""
    return f"item {item} is done"


def worker(width=1, limits=None, **more):
    """Works as long as it has tools, then answers."""
    model = ScriptedModel().forever(
        lambda request: (
            calls(*[call("work", item=next(numbers)) for _ in range(width)]) if request.tools else say("what I have")
        )
    )
    return Agent(model=model, tools=[work], limits=limits or Limits(max_iterations=40), **more)


@virtual
async def test_the_turns_of_a_budget_are_those_of_all_its_runs():
    budget = Budget(Limits(max_iterations=6))
    agent = worker(limits=Limits(max_iterations=4, grace_iterations=0))
    first = await agent.run("go", parent=budget)
    second = await agent.run("go", parent=budget)
    third = await agent.run("go", parent=budget)
    assert [result.iterations for result in (first, second, third)] == [4, 2, 0]
    assert {result.state for result in (first, second, third)} == {AgentState.MAX_STEPS}
    assert (second.text, third.landing_calls) == ("what I have", 0)
    assert third.cause.source == "MaxIterationConstraint"


@virtual
async def test_a_run_lands_when_the_tool_calls_of_its_budget_are_used_up():
    budget = Budget(Limits(max_tool_calls=3))
    first = await worker(width=2).run("go", parent=budget)
    second = await worker(width=2).run("go", parent=budget)
    for result, ran, turns in ((first, 3, 2), (second, 0, 1)):
        assert (result.state, result.outcome, result.text) == (
            AgentState.MAX_STEPS,
            LoopOutcome.WRAPPED_UP,
            "what I have",
        )
        assert (result.cause.source, result.tool_calls, result.iterations) == ("ToolCallLimitConstraint", ran, turns)
        assert transcript_errors(result.messages) == []


@virtual
async def test_a_child_lands_when_the_tool_calls_of_its_parent_are_used_up():
    parent, results = delegating(worker(width=3), limits=Limits(max_iterations=99, max_tool_calls=2))
    result = await parent.run("go")
    assert (results[0].state, results[0].tool_calls, results[0].text) == (AgentState.MAX_STEPS, 1, "what I have")
    assert result.cause.source == "ToolCallLimitConstraint"


@virtual
async def test_its_own_tool_limit_speaks_for_itself_also_below_a_budget():
    budget = Budget(Limits(max_tool_calls=30))
    result = await worker(width=3, limits=Limits(max_iterations=9, max_tool_calls=2)).run("go", parent=budget)
    assert result.cause.metrics == {"tool_calls": 2, "max_tool_calls": 2}


@virtual
async def test_the_time_of_a_budget_runs_for_all_from_its_first_run_on():
    budget = Budget(Limits(timeout=40))
    agent = Agent(model=ScriptedModel([say("a b c", delay=6.0), hang("so far ")]), limits=Limits(max_iterations=5))
    first = await agent.run("go", parent=budget)
    second = await agent.run("go", parent=budget)
    assert (first.outcome, second.state, second.text) == (LoopOutcome.DONE, AgentState.TIMED_OUT, "so far ")
    assert first.elapsed + second.elapsed == pytest.approx(40, abs=0.2)


@virtual
async def test_a_run_on_a_budget_whose_time_is_over_makes_no_call():
    budget = Budget(Limits(timeout=10))
    await Agent(model=ScriptedModel([hang("x")]), limits=Limits(max_iterations=5)).run("go", parent=budget)
    late = ScriptedModel([])
    result = await Agent(model=late, limits=Limits(max_iterations=5)).run("go", parent=budget)
    assert (result.state, result.outcome, late.calls) == (AgentState.TIMED_OUT, LoopOutcome.CUT_OFF, 0)


@virtual
async def test_what_is_left_of_an_inherited_deadline_is_told():
    seen = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look at the clock."""
        seen.append(context.remaining().seconds)
        return "seen"

    child = child_of(call("look"), say("done"), tools=[look])
    parent, _ = delegating(child, limits=Limits(timeout=60, max_iterations=9))
    await parent.run("go")
    assert 0 < seen[0] <= 45
    unlimited = child_of(call("look"), say("done"), tools=[look])
    await unlimited.run("go")
    assert seen[1] is None


# --- the queue ----------------------------------------------------------------------------------------------------


def holder(seconds):
    """An agent that holds nearly all of a budget of 6,000 tokens for a while."""
    model = ScriptedModel([say("x", delay=seconds)], max_output_tokens=4_500)
    return Agent(model=model, limits=Limits(max_iterations=3))


def waiter(**limits):
    model = ScriptedModel([say("served")], max_output_tokens=2_000)
    return Agent(model=model, limits=Limits(max_iterations=3, **limits)), model


@virtual
async def test_a_run_waits_until_what_is_in_flight_comes_back():
    budget = Budget(Limits(max_tokens=8_000))
    holding = asyncio.ensure_future(holder(10.0).run("go", parent=budget))
    await asyncio.sleep(1)
    agent, _ = waiter()
    result = await agent.run("go", parent=budget)
    assert (result.outcome, result.elapsed) == (LoopOutcome.DONE, pytest.approx(9, abs=0.1))
    assert (await holding).outcome is LoopOutcome.DONE


@virtual
async def test_g7_a_run_that_waits_for_budget_can_be_cancelled_and_the_next_one_moves_up():
    budget = Budget(Limits(max_tokens=8_000))
    holding = asyncio.ensure_future(holder(10.0).run("go", parent=budget))
    await asyncio.sleep(1)
    token = CancelToken()
    (one, model), (two, _) = waiter(), waiter()
    first = asyncio.ensure_future(one.run("go", parent=budget, cancel=token))
    second = asyncio.ensure_future(two.run("go", parent=budget))
    await asyncio.sleep(1)
    token.cancel()
    result = await first
    assert (result.outcome, result.elapsed, model.calls) == (LoopOutcome.CANCELLED, pytest.approx(1, abs=0.05), 0)
    async with no_leftovers():
        assert (await second).outcome is LoopOutcome.DONE
        await holding
    assert list(budget.meter.tree.queue) == []
    assert (budget.meter.reserved_tokens, budget.meter.aside_tokens, budget.meter.pledged_tokens) == (0, 0, 0)


@virtual
async def test_g7_a_run_that_waits_for_budget_is_stopped_by_its_own_deadline():
    budget = Budget(Limits(max_tokens=8_000))
    holding = asyncio.ensure_future(holder(100.0).run("go", parent=budget))
    await asyncio.sleep(1)
    agent, model = waiter(timeout=8)
    result = await agent.run("go", parent=budget)
    assert (result.state, model.calls) == (AgentState.TIMED_OUT, 0)
    assert result.elapsed <= 8
    assert list(budget.meter.tree.queue) == []
    await holding


@virtual
async def test_waiting_runs_are_served_in_the_order_they_came():
    budget = Budget(Limits(max_tokens=8_000))
    holding = asyncio.ensure_future(holder(10.0).run("go", parent=budget))
    await asyncio.sleep(1)
    order = []

    async def wait(name):
        agent, _ = waiter()
        await agent.run("go", parent=budget)
        order.append(name)

    waiting = []
    for name in "abcde":
        waiting.append(asyncio.ensure_future(wait(name)))
        await asyncio.sleep(0.1)
    await asyncio.gather(holding, *waiting)
    assert order == list("abcde")


# --- a session on a budget ----------------------------------------------------------------------------------------


@virtual
async def test_a_long_session_is_compacted_to_board_a_tight_budget_rather_than_refused():
    session = Session()
    session.messages.append(UserMessage("the first task"))
    for number in range(40):
        session.messages.append(AssistantMessage((TextBlock(f"answer {number} " + "x" * 900),)))
        session.messages.append(UserMessage(f"question {number}"))
    model = ScriptedModel([say("the answer")])
    agent = Agent(model=model, limits=Limits(max_iterations=3))
    result = await agent.run("the last task", session=session, parent=Budget(Limits(max_tokens=5_000)))
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "the answer")
    texts = [message.text for message in model.requests[0].messages]
    assert "the first task" in texts
    assert "the last task" in texts
    assert result.usage.total <= 5_000


@virtual
async def test_a_prompt_that_is_larger_than_the_whole_budget_is_refused_without_a_call():
    model = ScriptedModel([])
    agent = Agent(model=model, limits=Limits(max_iterations=3))
    result = await agent.run("word " * 10_000, parent=Budget(Limits(max_tokens=5_000)))
    assert (result.state, result.outcome, model.calls) == (AgentState.BUDGET_EXCEEDED, LoopOutcome.CUT_OFF, 0)
    assert (result.cause.source, result.cause.metrics["limit"]) == ("TokenBudgetConstraint", 5_000)


@virtual
async def test_the_cause_of_a_refusal_names_the_limit_that_was_short_not_the_queue():
    budget = Budget(Limits(max_tokens=6_000))
    holding = asyncio.ensure_future(holder(10.0).run("go", parent=budget))
    await asyncio.sleep(1)
    heavy = ScriptedModel([say("x", usage=Usage(input=2_000, output=2_500))], max_output_tokens=2_000)
    agent = Agent(model=heavy, limits=Limits(max_iterations=3))
    others = [asyncio.ensure_future(agent.run("word " * 900, parent=budget)) for _ in range(3)]
    results = [await holding, *[await other for other in others]]
    refused = [result for result in results if not result.iterations]
    assert refused
    assert {result.cause.metrics["limit"] for result in refused} == {6_000}
    assert all("queue" not in result.cause.reason for result in refused)
