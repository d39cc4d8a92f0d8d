"""A stream that is silent, slow or endless is bounded: connect, first chunk, stall, whole call, deadline (13.2)."""

import asyncio

import pytest

from glidepath import Agent, AgentState, Limits, LoopOutcome
from glidepath.errors import TransientError
from glidepath.events import AttemptDiscarded
from glidepath.messages import StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, fail, hang, no_leftovers, say, virtual

LIMITS = Limits(max_iterations=5)
ONCE = {"max_retries": 0}


def at(start, coroutine):
    """Run on a clock that does not begin at 0: a limit must not depend on what time it is."""
    return VirtualClock(start=start).run(coroutine)


async def run(model, *, limits=LIMITS, **settings):
    recorder = EventRecorder()
    async with no_leftovers():
        result = await Agent(model=model, limits=limits, plugins=[recorder.as_plugin()], **settings).run("go")
    recorder.assert_legal()
    return result


def assert_stalled(result, seconds, text=None):
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "provider")
    assert "TransientError: the stream stalled" in result.cause.reason
    assert result.elapsed == pytest.approx(seconds, abs=0.01)
    if text is not None:
        assert (result.text, result.partial) == (text, True)


class Connecting:
    name = "connecting"

    async def stream(self, request):
        await asyncio.sleep(10_000)


@pytest.mark.parametrize("start", [0, 12_345.678])
class TestEachLimit:
    def test_connect(self, start):
        assert_stalled(at(start, run(Connecting(), connect_timeout=4, **ONCE)), 4)

    def test_first_chunk(self, start):
        assert_stalled(at(start, run(ScriptedModel([hang()]), first_chunk_timeout=7, **ONCE)), 7)

    def test_stall(self, start):
        result = at(start, run(ScriptedModel([hang("so far")]), stall_timeout=3, **ONCE))
        assert result.elapsed <= 3 * 1.2
        assert_stalled(result, result.elapsed, "so far")

    def test_whole_call_of_a_slow_drip(self, start):
        drip = ScriptedModel([say("word " * 500, delay=0.5)])
        result = at(start, run(drip, call_timeout=5, **ONCE))
        assert_stalled(result, 5)
        assert 8 <= result.text.count("word") <= 10

    def test_whole_call_without_the_other_limits(self, start):
        drip = ScriptedModel([say("word " * 500, delay=0.5)])
        result = at(start, run(drip, call_timeout=5, first_chunk_timeout=None, stall_timeout=None, **ONCE))
        assert_stalled(result, 5)

    def test_whole_call_before_the_first_chunk(self, start):
        assert_stalled(at(start, run(ScriptedModel([hang()]), call_timeout=5, **ONCE)), 5)

    def test_deadline_of_a_hang(self, start):
        result = at(start, run(ScriptedModel([hang("so far")]), limits=Limits(timeout=40), landing="off", **ONCE))
        assert (result.state, result.outcome, result.text) == (AgentState.TIMED_OUT, LoopOutcome.CUT_OFF, "so far")
        assert result.elapsed == 40


@virtual
async def test_a_stream_within_its_limits_is_left_alone():
    model = ScriptedModel([say("a b c d", delay=50)], first_chunk_delay=60)
    result = await run(model, first_chunk_timeout=120, stall_timeout=60, call_timeout=1000)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "a b c d")


@virtual
async def test_a_stalled_stream_is_tried_again():
    result = await run(ScriptedModel([hang("half"), "answer"]), stall_timeout=5)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "answer")


@pytest.mark.parametrize("delta", [ThinkingDelta("hm"), ToolCallDelta(0, "a", "b", "{"), TextDelta("")])
@virtual
async def test_every_kind_of_delta_is_a_sign_of_life(delta):
    class Slow:
        name = "slow"

        async def stream(self, request):
            for _ in range(10):
                await asyncio.sleep(4)
                yield delta
            yield TextDelta("answer")
            yield StreamEnd("end_turn")

    recorder = EventRecorder()
    agent = Agent(model=Slow(), limits=Limits(max_iterations=1), stall_timeout=5, event_sink=recorder, landing="off")
    await agent.run("go")
    assert recorder.of(AttemptDiscarded) == []


@virtual
async def test_a_reply_that_only_fails_to_close_is_not_waited_for():
    class Open:
        name = "open"

        async def stream(self, request):
            yield TextDelta("answer")
            yield StreamEnd("end_turn")
            await asyncio.sleep(10_000)

    result = await run(Open())
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "answer")
    assert result.elapsed <= 1


@pytest.mark.parametrize(
    ("deltas", "kind"),
    [([TextDelta("x"), StreamEnd("error")], "TransientError"), ([StreamEnd()], "EmptyResponseError")],
)
@virtual
async def test_a_reply_that_is_no_answer_is_none_either_when_it_fails_to_close(deltas, kind):
    class Open:
        name = "open"

        async def stream(self, request):
            for delta in deltas:
                yield delta
            await asyncio.sleep(10_000)

    result = await run(Open(), **ONCE)
    assert (result.outcome, result.cause.metrics["error"]) == (LoopOutcome.FAILED, kind)


# --- the deadline of the run ----------------------------------------------------------------------------------


@virtual
async def test_silence_is_replaced_by_the_landing_call_when_the_window_opens():
    with ScriptedModel([hang(), "landed"]) as model:
        result = await run(model, limits=Limits(timeout=40, landing_seconds=10))
    assert (result.state, result.outcome, result.text) == (AgentState.TIMED_OUT, LoopOutcome.WRAPPED_UP, "landed")
    assert (result.elapsed, result.landing_calls, result.partial) == (30, 1, False)


@virtual
async def test_a_stream_that_shows_text_may_run_to_the_hard_deadline():
    with ScriptedModel([say("one two three four five six", delay=6)]) as model:
        result = await run(model, limits=Limits(timeout=40, landing_seconds=10))
    assert (result.outcome, result.elapsed, result.landing_calls) == (LoopOutcome.DONE, 36, 0)


@virtual
async def test_at_the_hard_deadline_a_showing_stream_is_cut_and_its_text_kept():
    with ScriptedModel([say("one two three four five six seven", delay=6)]) as model:
        result = await run(model, limits=Limits(timeout=40, landing_seconds=10))
    assert (result.state, result.outcome) == (AgentState.TIMED_OUT, LoopOutcome.CUT_OFF)
    assert (result.text, result.partial, result.elapsed) == ("one two three four five six ", True, 40)


@virtual
async def test_calls_that_come_after_the_window_has_opened_do_not_run():
    from glidepath import tool
    from glidepath.testing import call, calls

    ran = []

    @tool
    async def work() -> str:
        ran.append(1)
        await asyncio.sleep(100)
        return "worked"

    turn = calls(call("work"), text="one two three four", delay=8)
    with ScriptedModel([turn, "landed"]) as model:
        result = await run(model, tools=[work], limits=Limits(timeout=60, landing_seconds=15))
    assert (result.state, result.outcome, result.text) == (AgentState.TIMED_OUT, LoopOutcome.WRAPPED_UP, "landed")
    assert result.elapsed < 60
    assert ran == []


@virtual
async def test_back_off_never_sleeps_past_the_landing_window():
    script = [fail(TransientError("x"))] * 10
    result = await run(ScriptedModel(script), limits=Limits(timeout=4, landing_seconds=1), max_retries=10)
    assert result.outcome is LoopOutcome.FAILED
    assert result.elapsed < 3


@virtual
async def test_an_endless_stream_is_bounded_by_the_token_budget():
    class Endless:
        name = "endless"

        async def stream(self, request):
            while True:
                await asyncio.sleep(0.001)
                yield TextDelta("and on ")

    result = await run(Endless(), limits=Limits(max_tokens=20_000))
    assert (result.state, result.outcome) == (AgentState.BUDGET_EXCEEDED, LoopOutcome.CUT_OFF)
    assert result.cause.source == "TokenBudgetConstraint"
    assert result.text.startswith("and on and on")
    assert result.usage.total <= 20_000
