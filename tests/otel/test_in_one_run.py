"""What one run can hold beside its turns, as spans: calls in the background, hand-offs, reviews, and many items."""

import asyncio
from contextlib import suppress

import pytest

from glidepath import Agent, Limits, Rules, tool
from glidepath.testing import ScriptedModel, call, say, virtual

from .kit import Recorded, tokens

FEW = Limits(max_iterations=9, max_cost="1")


@pytest.fixture(params=[True, False], ids=["light", "sdk"])
def recorded(request):
    return Recorded(light=request.param)


def scripted(*script, **settings):
    return ScriptedModel(script, price=("1", "2"), **settings)


@tool(background=True)
async def build(n: int) -> str:
    """Build it."""
    await asyncio.sleep(10)
    if n > 1:
        raise ValueError("too many")
    return f"built {n}"


def seconds(span):
    return (span.end_time - span.start_time) / 1e9


@pytest.mark.parametrize("n", [1, 2])
def test_a_call_in_the_background_has_a_span_until_it_ends(recorded, n):
    script = [call("build", n=n), call("collect", id="bg-1"), say("Done.")]

    @virtual
    async def go():
        await Agent(model=scripted(*script), tools=[build], plugins=[recorded.plugin], limits=FEW).run("Go.")

    go()
    (long,), (started,) = recorded.named("background build"), recorded.named("execute_tool build")
    assert long.parent.span_id == started.context.span_id
    assert (long.attributes["glidepath.background.id"], long.attributes["gen_ai.tool.name"]) == ("bg-1", "build")
    assert "gen_ai.operation.name" not in long.attributes, "the call is counted once"
    assert seconds(started) < 1
    assert 9 < seconds(long) < 11
    assert long.attributes.get("error.type") == (None if n == 1 else "ValueError")
    assert long.status.is_ok is (n == 1)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_call_that_the_run_does_not_wait_for_ends_with_it(recorded, stubborn):
    release = []

    @tool(background=True)
    async def wander() -> str:
        """Never come back."""
        while not release:
            with suppress(asyncio.CancelledError if stubborn else ()):
                await asyncio.sleep(1)
        return ""

    @virtual
    async def go():
        script = [call("wander"), say("Done."), say("Really done.")]
        await Agent(model=scripted(*script), tools=[wander], plugins=[recorded.plugin], limits=FEW).run("Go.")
        release.append(True)
        await asyncio.sleep(5)

    go()
    (long,), (run,) = recorded.named("background wander"), recorded.named("invoke_agent")
    assert long.attributes["error.type"] == ("not_stopped" if stubborn else "cancelled")
    assert long.end_time <= run.end_time


def test_a_hand_off_is_an_event_and_later_calls_name_the_agent_that_speaks(recorded):
    @tool
    async def refund(order: int) -> str:
        """Refund."""
        return f"refunded {order}"

    billing = Agent(
        model=scripted(call("refund", order=7), say("Refunded."), name="second"),
        tools=[refund], agent_name="billing", limits=FEW,
    )  # fmt: skip
    first = scripted(call("transfer_to_billing", reason="a refund"), name="first")
    result = Agent(
        model=first, handoffs=[billing], agent_name="triage", plugins=[recorded.plugin], limits=FEW
    ).run_sync("Refund 7.")
    (run,) = recorded.named("invoke_agent")
    events = {event.name: dict(event.attributes) for event in run.events}
    assert events["glidepath.handoff"] == {"from": "triage", "to": "billing"}
    names = [(one.name, one.attributes.get("gen_ai.agent.name")) for one in recorded.spans if one is not run]
    assert names == [
        ("chat first", None),
        ("execute_tool transfer_to_billing", None),
        ("chat second", "billing"),
        ("execute_tool refund", "billing"),
        ("chat second", "billing"),
    ]
    assert run.attributes["gen_ai.agent.name"] == "triage"
    assert tokens(recorded.spans) == (result.usage.input, result.usage.output, int(result.cost * 10**12))


def test_a_reviewer_is_a_run_below_with_its_own_cost(recorded):
    @tool(requires_approval=True)
    def look(x: str) -> str:
        """Look something up."""
        return f"found {x}"

    result = Agent(
        model=scripted(call("look", x="a"), say("done")),
        tools=[look],
        limits=FEW,
        approvals=Rules(reviewer=scripted(say("ALLOW"), name="judge")),
        plugins=[recorded.plugin],
    ).run_sync("go")
    (asked,) = recorded.named("chat judge")
    inner, outer = (one for one in recorded.spans if one.name.startswith("invoke_agent"))
    assert asked.parent.span_id == inner.context.span_id
    assert inner.context.trace_id == outer.context.trace_id
    assert inner.attributes["glidepath.cost"] > 0
    assert tokens(recorded.spans) == (result.usage.input, result.usage.output, int(result.cost * 10**12))


def test_each_item_of_a_map_is_a_run_of_its_own(recorded):
    model = ScriptedModel(price=("1", "2")).forever(lambda _: say("ok"))
    agent = Agent(model=model, limits=FEW, plugins=[recorded.plugin])

    @virtual
    async def go():
        return [one async for one in agent.map(["a", "b", "c"], budget=Limits(max_cost="1"))]

    results = go()
    assert len(results) == 3
    assert len(recorded.named("invoke_agent")) == 3
    assert len(recorded.named("chat")) == 3
