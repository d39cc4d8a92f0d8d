"""The landing before a deadline: warned, then the window, then the hard deadline (SPEC 7.4)."""

import asyncio

import pytest

from glidepath import Agent, AgentState, ExecutionMode, Limits, LoopOutcome, Texts, tool
from glidepath.errors import TransientError
from glidepath.events import NoticeSent
from glidepath.testing import ScriptedModel, call, calls, fail, hang, no_leftovers, say, virtual

from .pilots import ANSWER, fly, told, work

TIMED = AgentState.TIMED_OUT
TIME_NOTICE = Texts().fill("wind_down", limit="time")
WRAPPED, CUT, DONE = LoopOutcome.WRAPPED_UP, LoopOutcome.CUT_OFF, LoopOutcome.DONE


@tool
async def slow(seconds: float = 3600) -> str:
    """Be slow."""
    await asyncio.sleep(seconds)
    return f"slept {seconds} s"


def paced(seconds, decide=told, **options):
    """A worker whose every turn takes so long."""
    count = iter(range(1, 10**6))

    def step(request):
        number = next(count)
        if decide(request):
            return say(ANSWER)
        return call("slow", seconds=seconds + number / 1000).with_text(f"step {number}")

    return ScriptedModel(**options).forever(step)


@pytest.mark.parametrize(
    ("given", "soft"),
    [
        ({"timeout": 100}, 60),  # the landing takes 20 s, and one such time before it the notice is due
        ({"timeout": 40}, 20),  # at most a quarter of the timeout: 10 s
        ({"timeout": 100, "landing_seconds": 5}, 90),
    ],
)
@virtual
async def test_one_landing_time_before_the_window_the_model_is_told_once(given, soft):
    model = paced(1.0)
    result, recorder = await fly(model, Limits(**given), tools=[slow])
    assert (result.state, result.outcome, result.cause.source) == (AgentState.COMPLETED, WRAPPED, "TimeoutConstraint")
    assert result.cause.action == "wind_down"
    assert [event.text for event in recorder.of(NoticeSent)] == [TIME_NOTICE]
    assert soft <= result.elapsed < soft + 2
    assert model.requests[-1].tools == ()


@virtual
async def test_a_model_that_ignores_the_notice_is_landed_after_one_turn():
    model = paced(1.0, decide=lambda _: False)
    result, _ = await fly(model, Limits(timeout=100), tools=[slow])
    assert (result.state, result.outcome, result.landing_calls) == (TIMED, CUT, 1)
    assert 60 <= result.elapsed < 64


@virtual
async def test_when_the_window_opens_running_tools_are_cancelled_and_answered_and_the_landing_call_is_made():
    model = ScriptedModel([calls(call("slow"), call("work", item=1)), say(ANSWER)])
    async with no_leftovers():
        result, _ = await fly(
            model, Limits(timeout=40), tools=[slow, work], default_execution_mode=ExecutionMode.PARALLEL
        )
    assert (result.state, result.outcome, result.text) == (TIMED, WRAPPED, ANSWER)
    assert (result.cause.source, result.cause.action) == ("TimeoutConstraint", "graceful_exit")
    assert result.elapsed == pytest.approx(30, abs=0.1)
    results = [message for message in result.messages if message.role == "tool_result"]
    assert [(m.tool_name, m.is_error) for m in results] == [("slow", True), ("work", False)]


@pytest.mark.parametrize("alone", [True, False])
@virtual
async def test_a_tool_that_ignores_its_cancellation_is_let_go_and_listed(alone):
    @tool
    async def stubborn() -> str:
        """Never give up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + 500
        while loop.time() < until:
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                continue
        return "late"

    asked = [call("stubborn")] if alone else [call("stubborn"), call("work", item=1)]
    model = ScriptedModel([calls(*asked), say(ANSWER)])
    result, _ = await fly(model, Limits(timeout=40), tools=[stubborn, work])
    assert (result.state, result.outcome, result.text) == (TIMED, WRAPPED, ANSWER)
    assert [work.tool_name for work in result.abandoned] == ["stubborn"]
    assert result.elapsed <= 32
    assert "did not stop" in next(m.text for m in result.messages if m.role == "tool_result")


@virtual
async def test_a_stream_that_shows_text_when_the_window_opens_may_run_to_the_hard_deadline():
    words = "word " * 36
    model = ScriptedModel([say(words.strip(), delay=1.0)])
    result, _ = await fly(model, Limits(timeout=40))
    assert (result.state, result.outcome, result.text) == (AgentState.COMPLETED, DONE, words.strip())
    assert 30 < result.elapsed < 40


@virtual
async def test_a_stream_that_shows_text_is_cut_at_the_hard_deadline_and_its_text_is_kept():
    model = ScriptedModel([say("word " * 100, delay=1.0)])
    async with no_leftovers():
        result, _ = await fly(model, Limits(timeout=40))
    assert (result.state, result.outcome, result.cause.action) == (TIMED, CUT, "emergency_stop")
    assert result.elapsed == pytest.approx(40, abs=0.1)
    assert result.text.startswith("word word")
    assert (result.landing_calls, result.partial) == (0, True)


@virtual
async def test_a_call_that_shows_no_text_when_the_window_opens_is_replaced_by_the_landing_call():
    model = ScriptedModel([hang(), say(ANSWER)])
    result, _ = await fly(model, Limits(timeout=40))
    assert (result.state, result.outcome, result.text) == (TIMED, WRAPPED, ANSWER)
    assert result.elapsed == pytest.approx(30, abs=0.1)
    assert model.closed_early == 1


@virtual
async def test_a_back_off_is_ended_by_the_window():
    model = ScriptedModel([call("slow", seconds=25), *[fail(TransientError("x"))] * 3]).forever(say(ANSWER))
    result, _ = await fly(model, Limits(timeout=40, max_iterations=9), tools=[slow])
    assert result.elapsed <= 40
    assert result.outcome in (WRAPPED, LoopOutcome.FAILED)


@virtual
async def test_a_landing_call_that_hangs_is_stopped_by_the_hard_deadline():
    model = ScriptedModel([call("slow"), hang("in short: ")])
    async with no_leftovers():
        result, _ = await fly(model, Limits(timeout=40), tools=[slow])
    assert (result.state, result.outcome, result.text) == (TIMED, CUT, "in short: ")
    assert result.elapsed == pytest.approx(40, abs=0.1)


@virtual
async def test_a_landing_call_has_the_landing_time_also_without_a_deadline():
    model = ScriptedModel([call("work", item=1), hang("in short: ")])
    result, _ = await fly(model, Limits(max_iterations=1, landing_seconds=7))
    assert (result.state, result.outcome, result.text) == (AgentState.MAX_STEPS, CUT, "in short: ")
    assert result.elapsed == pytest.approx(7, abs=0.1)


@virtual
async def test_a_landing_call_that_drips_is_stopped_when_its_time_is_up():
    model = ScriptedModel([call("work", item=1), say("drip " * 500, delay=0.5)])
    result, _ = await fly(model, Limits(max_iterations=1, landing_seconds=7))
    assert (result.outcome, result.partial) == (CUT, True)
    assert result.elapsed == pytest.approx(7, abs=0.1)
    assert result.text.startswith("drip drip")


@virtual
async def test_an_answer_that_comes_after_the_window_opened_is_an_answer():
    model = ScriptedModel([say("a b c", delay=11.0)])
    result, _ = await fly(model, Limits(timeout=40))
    assert (result.outcome, result.text) == (DONE, "a b c")


@virtual
async def test_turn_and_time_limits_together_send_one_notice():
    model = paced(10.0, decide=lambda request: not request.tools)
    result, recorder = await fly(model, Limits(timeout=100, max_iterations=8, grace_iterations=4), tools=[slow])
    assert [event.text for event in recorder.of(NoticeSent)] == [Texts().fill("wind_down", limit="turn budget")]
    assert result.text == ANSWER
    assert result.elapsed < 100


@pytest.mark.parametrize("seconds", [0.01, 0.1, 1, 10])
@virtual
async def test_however_short_the_timeout_the_run_ends_in_time_with_its_transcript_intact(seconds):
    model = paced(3600, decide=lambda request: not request.tools)
    result, _ = await fly(model, Limits(timeout=seconds), tools=[slow])
    assert result.elapsed <= seconds + 0.1
    assert result.state in (TIMED, AgentState.COMPLETED)


@pytest.mark.parametrize("seconds", [1e-300, 1e-9, 1e-7])
def test_g7_no_call_begins_after_the_deadline_not_even_the_landing(seconds):
    for _ in range(20):  # in real time, which goes on by itself
        model = ScriptedModel().forever("too late")
        result = asyncio.run(Agent(model=model, limits=Limits(timeout=seconds)).run("go"))
        assert (result.state, result.outcome) == (TIMED, CUT)
        assert (result.landing_calls, result.usage.total, model.requests) == (0, 0, [])
