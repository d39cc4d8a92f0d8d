"""A turn with one plain call takes the short way, and every rule of the long way holds there."""

import asyncio
from decimal import Decimal

import pytest

from glidepath import Agent, CancelToken, ExecutionMode, GuardrailsConfig, Limits, LoopOutcome, tool
from glidepath.events import GuardTripped, MessageAdded
from glidepath.messages import AssistantMessage, ReplyInfo, StreamEnd, ToolCallDelta, Usage
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, raw, say, truncated, virtual
from glidepath.values import Price

ran = []


@tool
async def look(what: str) -> str:
    """Look at something."""
    ran.append(what)
    return f"seen {what}"


@pytest.fixture(autouse=True)
def _nothing_yet():
    ran.clear()


def agent(script, tools=(look,), **settings):
    settings.setdefault("limits", Limits(max_iterations=12))
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    return Agent(model=model, tools=list(tools), **settings)


@virtual
async def test_g4_the_limit_on_tool_calls_holds():
    script = [call("look", what=str(number)) for number in range(4)]
    result = await agent([*script, say("done")], limits=Limits(max_iterations=12, max_tool_calls=2)).run("Go.")
    assert ran == ["0", "1"]
    assert result.tool_calls == 2


@virtual
async def test_a_call_that_does_not_count_is_not_counted_against_the_limit():
    free = tool(look.fn, name="look", description="Look.", counts_toward_limit=False)
    script = [call("look", what=str(number)) for number in range(4)]
    limits = Limits(max_iterations=12, max_tool_calls=2)
    result = await agent([*script, say("done")], tools=[free], limits=limits).run("Go.")
    assert len(ran) == 4
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_a_call_that_works_ends_a_series_of_rescues():
    cut = truncated("half an")
    script = [cut, call("look", what="a"), cut, call("look", what="b"), cut, call("look", what="c"), say("done")]
    guardrails = GuardrailsConfig(max_tokens_recoveries=1)
    result = await agent(script, guardrails=guardrails).run("Go.")
    assert ran == ["a", "b", "c"]
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_g11_a_tool_that_only_fails_brings_the_run_down():
    @tool
    async def broken() -> str:
        """Fail."""
        raise ValueError("no such thing")

    def stubborn(request):
        return call("broken") if request.tools else say("It does not work.")

    events = EventRecorder()
    flown = agent(
        ScriptedModel().forever(stubborn), tools=[broken], event_sink=events, limits=Limits(max_iterations=60)
    )
    result = await flown.run("Go.")
    assert result.iterations < 60
    assert any(isinstance(event, GuardTripped) for event in events.events)


@virtual
async def test_g7_a_run_that_is_cancelled_with_the_reply_starts_no_tool():
    token = CancelToken()

    def hear(event):
        if isinstance(event, MessageAdded) and isinstance(event.message, AssistantMessage):
            token.cancel("enough")

    result = await agent([call("look", what="a"), say("done")], event_sink=hear).run("Go.", cancel=token)
    assert ran == []
    assert result.outcome is LoopOutcome.CANCELLED


@virtual
async def test_what_a_search_of_the_web_costs_is_in_the_price_of_an_ordinary_turn():
    async def cost(info):
        asked = raw(
            ToolCallDelta(0, "call_1", "look", '{"what": "a"}'),
            StreamEnd("tool_use", Usage(input=100, output=10), info),
        )
        model = ScriptedModel([asked, say("done")], price=("1", "2", None, None, "10"))
        result = await agent(model, limits=Limits(max_iterations=5, max_cost="1")).run("Go.")
        assert result.outcome is LoopOutcome.DONE
        return result.cost

    assert await cost(ReplyInfo(web_searches=2)) - await cost(ReplyInfo()) == Decimal("0.02")


@pytest.mark.parametrize("width", [1, 2])
@virtual
async def test_g7_calls_side_by_side_that_wait_their_turn_do_not_start_after_a_cancel(width):
    token = CancelToken()

    @tool
    async def stop(what: str) -> str:
        """Stop the run."""
        ran.append(what)
        await asyncio.sleep(1)
        token.cancel("enough")
        return what

    reply = calls(call("stop", what="a"), call("stop", what="b"), call("stop", what="c"))
    settings = {"default_execution_mode": ExecutionMode.PARALLEL, "max_parallel_tools": width}
    result = await agent([reply, say("done")], tools=[stop], **settings).run("Go.", cancel=token)
    assert ran == ["a", "b"][:width]
    assert result.outcome is LoopOutcome.CANCELLED


@virtual
async def test_g4_a_longer_prompt_is_reserved_and_paid_at_the_price_of_its_tier():
    tiered = Price(10**6, 10**6, tier_start=20, tier=Price(5 * 10**6, 5 * 10**6))
    model = ScriptedModel([call("look", what="a"), say("done")])
    flown = agent(
        model, limits=Limits(max_iterations=5, max_cost="1"), prices={"scripted": tiered}, max_output_tokens=50
    )
    result = await flown.run("Look at this, please. " * 20)
    assert result.cost == Decimal(result.usage.total * 5) / 10**6


@virtual
async def test_g4_a_tiered_price_never_lets_a_run_spend_more_than_it_may():
    tiered = Price(10**6, 10**6, tier_start=20, tier=Price(50 * 10**6, 50 * 10**6))
    model = ScriptedModel().forever(lambda request: call("look", what=str(len(request.messages))))
    limits = Limits(max_iterations=50, max_cost="0.2")
    result = await agent(model, limits=limits, prices={"scripted": tiered}, max_output_tokens=400).run("Look. " * 40)
    assert result.cost <= Decimal("0.2")


@virtual
async def test_g12_a_long_call_id_is_metered():
    short = await flown_with_id("call_1")
    long = await flown_with_id("c" * 4_000)
    assert long.usage.total > short.usage.total + 500


async def flown_with_id(call_id):
    model = ScriptedModel([call("look", what="a").with_id(call_id), say("done")], usage="missing")
    return await agent(model, limits=Limits(max_iterations=5, max_tokens=100_000)).run("Go.")


@virtual
async def test_g12_a_report_of_a_class_of_its_own_is_looked_at_as_any_other():
    class Mine(Usage, frozen=True, gc=False):
        """What an adapter of somebody else reports."""

    model = ScriptedModel([say("done " * 20)], usage=Mine(input=30, output=25))
    result = await agent(model).run("Go. " * 30)
    assert (result.usage.input, result.usage.output) == (30, 25)
