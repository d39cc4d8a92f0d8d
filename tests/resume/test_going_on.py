"""Runs that were limited, cancelled or failed go on where they stopped (SPEC 0, 14.4, G4, G6)."""

import asyncio
from decimal import Decimal

import pytest

from glidepath import (
    AgentState,
    Budget,
    CancelToken,
    ConfigurationError,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    Plugin,
    RunResult,
    Session,
    Usage,
    approve,
    tool,
)
from glidepath.errors import RejectedError
from glidepath.events import BudgetReserved, ContextShaped, GuardTripped
from glidepath.messages import AssistantMessage, CustomMessage, TextBlock, UserMessage
from glidepath.sessions import MemoryStore
from glidepath.testing import call, calls, fail, hang, say, transcript_errors, virtual
from glidepath.values import decode, encode, replace

from .desk import Desk, ids, results


def works(count, first=0):
    return [call("look", n=first + n) for n in range(count)]


@virtual
async def test_a_run_that_reached_its_turn_limit_goes_on_with_a_higher_one():
    desk = Desk([*works(3), "landed", *works(2, 3), "finished"], limits=Limits(max_iterations=3))
    landed = await desk.run()
    assert (landed.state, landed.outcome, landed.text) == (AgentState.MAX_STEPS, LoopOutcome.WRAPPED_UP, "landed")
    result = await desk.resume(landed, limits=Limits(max_iterations=20))
    assert (result.outcome, result.text, result.cause) == (LoopOutcome.DONE, "finished", None)
    assert (result.iterations, result.tool_calls, result.landing_calls) == (
        6,
        4,
        1,
    )  # one call was withdrawn on the last turn
    assert (result.run_id, len(result.new_messages)) == (landed.run_id, len(result.messages))
    told = desk.model.requests[4].messages[-1]
    assert (told.reason, told.internal) == ("resumed", True)


@virtual
async def test_a_run_whose_limit_still_holds_ends_as_before_and_makes_no_call():
    desk = Desk([*works(3), "landed"], limits=Limits(max_iterations=3))
    landed = await desk.run()
    again = await desk.resume(landed)
    assert (again.state, again.outcome, again.text, again.cause) == (
        landed.state,
        landed.outcome,
        landed.text,
        landed.cause,
    )
    assert (len(desk.model.requests), again.usage) == (4, landed.usage)


@virtual
async def test_g4_resuming_again_and_again_never_spends_more_than_the_budget():
    usage = Usage(400, 100)
    turns = [call("look", n=n).with_usage(usage) for n in range(40)]
    desk = Desk(turns, limits=Limits(max_tokens=6000))
    desk.model.forever(say("landed", usage=Usage(300, 50)))
    result = await desk.run()
    assert result.state is AgentState.BUDGET_EXCEEDED
    for _ in range(4):
        result = await desk.resume(result)
        assert result.usage.total <= 6000
    assert result.state is AgentState.BUDGET_EXCEEDED


@virtual
async def test_budgets_are_not_reset_by_a_pause():
    used = Usage(500, 50)
    desk = Desk(
        [call("send", to="a").with_usage(used), *[call("look", n=n).with_usage(used) for n in range(30)]],
        limits=Limits(max_tokens=9000, max_cost="0.01"),
        prices={"scripted": (1, 2)},
    )
    desk.model.forever(say("landed", usage=Usage(100, 10)))
    paused = await desk.run()
    assert (paused.usage, paused.cost) == (used, Decimal("0.0006"))
    result = await desk.resume(paused, decisions={ids(paused)[0]: approve()})
    assert result.usage.total <= 9000
    assert result.cost <= Decimal("0.01")
    assert result.iterations > 2
    assert result.cost == sum(spend.cost for spend in result.breakdown)


@virtual
async def test_a_cancelled_run_goes_on():
    token = CancelToken()
    asyncio.get_running_loop().call_later(1, token.cancel)
    desk = Desk([*works(1), hang("half"), "whole"], limits=Limits(max_iterations=9, timeout=100))
    cancelled = await desk.run(cancel=token)
    assert (cancelled.outcome, cancelled.text) == (LoopOutcome.CANCELLED, "half")
    result = await desk.resume(cancelled)
    assert (result.outcome, result.text, result.iterations) == (LoopOutcome.DONE, "whole", 2)


@virtual
async def test_a_failed_run_goes_on_when_the_provider_is_back():
    desk = Desk([*works(1), fail(RejectedError("broken")), "back"])
    failed = await desk.run()
    assert (failed.state, failed.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    result = await desk.resume(failed)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "back")


@virtual
async def test_a_run_that_was_asked_to_finish_up_goes_on_with_its_work():
    token = CancelToken()
    token.wind_down("later, please")
    desk = Desk([call("look", n=1), "so far", call("look", n=2), "all"])
    wrapped = await desk.run(cancel=token)
    assert wrapped.outcome is LoopOutcome.WRAPPED_UP
    result = await desk.resume(wrapped)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "all")
    assert ("look", 2) in desk.done


@virtual
async def test_a_timeout_counts_the_time_before_and_after_but_not_between():
    @tool
    async def wait(n: int) -> str:
        await asyncio.sleep(n)
        return "waited"

    desk = Desk([call("wait", n=200), "landed", call("wait", n=50), "end"], limits=Limits(timeout=100), tools=[wait])
    late = await desk.run()
    assert late.state is AgentState.TIMED_OUT
    await asyncio.sleep(5000)
    again = await desk.resume(late)
    assert (again.state, again.text, len(desk.model.requests)) == (AgentState.TIMED_OUT, late.text, 2)
    result = await desk.resume(again, limits=Limits(timeout=400))
    assert (result.outcome, round(result.elapsed - late.elapsed)) == (LoopOutcome.DONE, 50)


@virtual
async def test_steering_that_was_not_delivered_is_delivered_when_the_run_goes_on():
    class Steer(Plugin):
        said = 0

        def steering(self, context):
            self.said += 1
            return ["hurry"] if self.said == 2 else None

    desk = Desk([call("look"), "landed", "thanks"], limits=Limits(max_iterations=1), plugins=[Steer()])
    limited = await desk.run()
    waiting = limited.undelivered
    result = await desk.resume(limited, limits=Limits(max_iterations=5))
    texts = [m.text for m in result.messages if isinstance(m, UserMessage)]
    assert texts.count("hurry") == 1
    assert result.undelivered == ()
    assert waiting in ((), (UserMessage("hurry"),))


@virtual
async def test_g11_what_guards_have_counted_and_withdrawn_is_remembered_over_every_pause():
    desk = Desk([call("fail")] * 6 + ["I give up"], guardrails=GuardrailsConfig(max_repeated_tool_steps=0))
    result = await desk.run()
    pauses = 0
    while result.outcome is LoopOutcome.PAUSED:
        pauses += 1
        result = decode(encode(result), RunResult)  # as good as another process
        result = await desk.resume(result, decisions={ids(result)[0]: approve()})
    assert (pauses, len(desk.done)) == (5, 5)
    assert [event.action for event in desk.recorder.of(GuardTripped)] == ["nudge", "withdraw", "land"]
    assert (result.state, result.outcome, result.cause.source) == (
        AgentState.ERROR,
        LoopOutcome.WRAPPED_UP,
        "error_streak",
    )


@virtual
async def test_a_run_on_a_budget_goes_on_under_it_and_not_without():
    budget = Budget(Limits(max_tokens=50_000))
    desk = Desk([call("send", to="a"), "ok"])
    paused = await desk.run(parent=budget)
    spent = budget.meter.tokens
    with pytest.raises(ConfigurationError, match="pass it again"):
        await desk.agent.resume(paused, decisions={ids(paused)[0]: approve()})
    result = await desk.resume(paused, decisions={ids(paused)[0]: approve()}, parent=budget)
    assert result.outcome is LoopOutcome.DONE
    assert budget.meter.tokens == result.usage.total > spent
    assert (budget.meter.aside_tokens, budget.meter.reserved_tokens) == (0, 0)


@virtual
async def test_g4_a_budget_that_is_spent_refuses_a_resumed_run_without_a_landing_call():
    budget = Budget(Limits(max_tokens=6000))
    desk = Desk([call("send", to="a").with_usage(Usage(1000, 100))])
    paused = await desk.run(parent=budget)
    budget.meter.tokens = 5990
    result = await desk.resume(paused, decisions={ids(paused)[0]: approve()}, parent=budget)
    assert (result.state, result.outcome) == (AgentState.BUDGET_EXCEEDED, LoopOutcome.CUT_OFF)
    assert (desk.done, [kind for _, kind, _ in results(result)]) == ([], ["cancelled"])
    assert budget.meter.tokens == 5990


@virtual
async def test_the_children_of_a_run_stay_in_its_result_and_its_bill():
    child = Desk(["child says"])
    desk = Desk(
        [call("expert", task="x"), call("send", to="a"), "ok"],
        tools=[child.agent.as_tool("expert", "An expert.")],
    )
    paused = await desk.run()
    result = await desk.resume(paused, decisions={ids(paused)[0]: approve()})
    assert [one.text for one in result.children] == ["child says"]
    assert result.usage.total > paused.usage.total
    assert [(spend.kind, spend.calls) for spend in result.breakdown] == [
        ("model", 3),
        ("child", 1),
        ("tool", 1),
        ("tool", 1),
    ]


@virtual
async def test_a_session_in_flight_cannot_be_resumed():
    session = Session()
    desk = Desk([call("send", to="a"), hang("x")], limits=Limits(timeout=50), landing="off")
    paused = await desk.run(session=session)
    running = asyncio.create_task(desk.agent.resume(session, decisions={ids(paused)[0]: approve()}))
    await asyncio.sleep(1)
    with pytest.raises(ConfigurationError, match="in flight"):
        await desk.agent.resume(session)
    await running


@virtual
async def test_a_resumed_run_without_any_limit_is_refused():
    desk = Desk([call("send", to="a")])
    paused = await desk.run()
    with pytest.raises(ConfigurationError, match="no limit at all"):
        await desk.agent.resume(paused, limits=Limits())


@virtual
async def test_a_call_approved_on_the_last_turn_runs_and_then_the_run_lands():
    desk = Desk([call("send", to="a"), "landed"], limits=Limits(max_iterations=1))
    paused = await desk.run()
    result = await desk.resume(paused, decisions={ids(paused)[0]: approve()})
    assert (result.state, result.outcome, result.text) == (AgentState.MAX_STEPS, LoopOutcome.WRAPPED_UP, "landed")
    assert (desk.done, result.landing_calls) == ([("send", "a", 0)], 1)


@virtual
async def test_limits_raised_with_the_decision_let_the_run_go_on_with_its_work():
    desk = Desk([call("send", to="a"), call("look"), "all done"], limits=Limits(max_iterations=1))
    paused = await desk.run()
    result = await desk.resume(paused, decisions={ids(paused)[0]: approve()}, limits=Limits(max_iterations=9))
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "all done")


@virtual
async def test_a_paused_child_can_be_resumed_by_itself_with_limits_of_its_own():
    child = Desk([call("send", to="eve"), "sent after all"])
    parent = Desk([call("expert", task="x"), "ok"], tools=[child.agent.as_tool("expert", "An expert.")])
    paused = (await parent.run()).children[0]
    decisions = {ids(paused)[0]: approve()}
    with pytest.raises(ConfigurationError, match="its own limits"):
        await child.agent.resume(paused, decisions=decisions)
    result = await child.agent.resume(paused, decisions=decisions, limits=Limits(max_iterations=5))
    assert (result.outcome, result.text, child.done) == (LoopOutcome.DONE, "sent after all", [("send", "eve", 0)])


@virtual
async def test_a_result_that_lost_its_messages_is_refused():
    desk = Desk([call("look"), fail(RejectedError("x"))])
    failed = await desk.run()
    with pytest.raises(ConfigurationError, match="messages of its run are missing"):
        await desk.agent.resume(replace(failed, messages=()))


@virtual
async def test_g7_the_callers_own_cancellation_lands_a_resumed_run_and_goes_on():
    @tool(requires_approval=True)
    async def slow() -> str:
        await asyncio.sleep(100)
        return "never"

    session = Session()
    desk = Desk([calls(call("slow"), call("look"))], tools=[slow])
    paused = await desk.run(session=session)
    task = asyncio.create_task(desk.agent.resume(session, decisions={ids(paused)[0]: approve()}))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    desk.checked(session.last)
    assert (session.last.outcome, session.in_flight) == (LoopOutcome.CANCELLED, False)


@virtual
async def test_a_result_that_comes_late_takes_its_place_in_a_smaller_view_as_well():
    budget = Budget(Limits(max_tokens=5000))
    old = AssistantMessage((TextBlock("an old answer " * 900),))
    session = Session(messages=[UserMessage("old"), old, CustomMessage("note", {"x": 1})])
    used = Usage(100, 10)
    desk = Desk(
        [calls(call("send", to="a"), call("look"), call("send", to="b")).with_usage(used), say("ok", usage=used)],
    )
    paused = await desk.run(session=session, parent=budget)
    assert paused.outcome is LoopOutcome.PAUSED
    shaped = len(desk.recorder.of(ContextShaped))
    result = await desk.resume(session, decisions=dict.fromkeys(ids(paused), approve()), parent=budget)
    assert result.outcome is LoopOutcome.DONE
    assert len(desk.recorder.of(ContextShaped)) > shaped > 0
    assert transcript_errors(desk.model.requests[-1].messages) == []
    assert [m.text for m in desk.model.requests[-1].messages[-3:]] == ["sent to a", "saw 0", "sent to b"]


@virtual
async def test_descendants_are_counted_on_over_a_pause():
    child = Desk(["first", "second"])
    desk = Desk(
        [call("expert", task="x"), call("send", to="a"), call("expert", task="y"), "ok"],
        tools=[child.agent.as_tool("expert", "An expert.")],
        limits=Limits(max_iterations=9, max_descendants=1),
    )
    paused = await desk.run()
    result = await desk.resume(paused, decisions={ids(paused)[0]: approve()})
    assert [one.text for one in result.children] == ["first", "Not started: the limit on descendants is reached."]


@virtual
async def test_a_withdrawal_from_before_a_pause_still_makes_the_end_a_wrap_up():
    @tool
    async def broken() -> str:
        raise ValueError("no")

    guardrails = GuardrailsConfig(max_error_streak=1, max_repeated_tool_steps=0)
    desk = Desk([call("broken"), call("send", to="a"), "ok"], tools=[broken], guardrails=guardrails)
    paused = await desk.run()
    assert paused.snapshot.withdrawn == ("broken",)
    result = await desk.resume(paused, decisions={ids(paused)[0]: approve()})
    assert (result.outcome, result.cause.source) == (LoopOutcome.WRAPPED_UP, "error_streak")


@pytest.mark.parametrize(("left", "calls_made"), [(60, 0), (700, 1)])
@virtual
async def test_g4_a_resumed_run_lands_only_with_what_its_limit_leaves(left, calls_made):
    used = 3000
    desk = Desk([call("send", to="a").with_usage(Usage(used - 10, 10)), say("landed", usage=Usage(100, 20))])
    paused = await desk.run()
    limits = Limits(max_tokens=used + left)
    result = await desk.resume(paused, decisions={ids(paused)[0]: approve()}, limits=limits)
    assert result.state is AgentState.BUDGET_EXCEEDED
    assert result.landing_calls == len(desk.model.requests) - 1 == calls_made
    assert result.usage.total <= used + left
    reserved = [event.tokens for event in desk.recorder.of(BudgetReserved)][1:]
    assert all(tokens <= left for tokens in reserved)


@pytest.mark.parametrize("store", [None, MemoryStore], ids=["no store", "store"])
@virtual
async def test_a_decision_about_a_run_that_is_done_is_not_swallowed(store):
    """Somebody approves a call that no longer waits: nothing will run, and that must be said."""
    session = Session("s")
    desk = Desk([call("send", to="eve"), "never mind"], store=store and store())
    paused = await desk.run(session=session)
    [call_id] = ids(paused)
    await desk.agent.run("forget it", session=session)
    target = session if store is None else "s"
    with pytest.raises(ConfigurationError, match="the run is done and nothing is pending"):
        await desk.agent.resume(target, decisions={call_id: approve()})
    with pytest.raises(ConfigurationError, match="decisions must be a mapping"):
        await desk.agent.resume(target, decisions=7)
    assert (await desk.agent.resume(target)).text == "never mind"
    assert desk.done == []


@virtual
async def test_a_result_does_not_stand_for_a_later_run_of_its_session():
    """Or what a person approved would be another run's call, when the two have the same id."""
    store = MemoryStore()
    desk = Desk([call("send", to="eve"), "never mind", call("send", to="mallory")], store=store)
    paused = await desk.run(session="s")
    await desk.agent.run("forget it", session="s")
    later = await desk.agent.run("once more", session="s")
    assert later.outcome is LoopOutcome.PAUSED
    with pytest.raises(ConfigurationError, match="has had another run since"):
        await desk.agent.resume(paused, decisions={ids(later)[0]: approve()})
    assert desk.done == []
