"""Landing because a person asks for it; and what is left when the landing call gives no answer."""

import asyncio

import pytest

from glidepath import AgentState, CancelToken, Limits, LoopOutcome, Texts, tool
from glidepath.errors import RateLimitedError, RejectedError, TransientError
from glidepath.events import LandingStarted, NoticeSent, StreamStarted
from glidepath.models import StreamEnd, TextDelta
from glidepath.testing import (
    ScriptedModel,
    call,
    calls,
    empty,
    fail,
    hang,
    no_end,
    raw,
    refuse,
    say,
    thinking,
    truncated,
    virtual,
)

from .pilots import ANSWER, deaf, fly, obedient, slow_to_notice

WRAPPED, CUT, DONE = LoopOutcome.WRAPPED_UP, LoopOutcome.CUT_OFF, LoopOutcome.DONE


def asking_after(turns, token, reason="please"):
    """A tool that, at its n-th call, has the person ask for the end."""
    count = iter(range(1, 10**6))

    @tool
    async def work(item: int) -> str:
        """Work."""
        if next(count) == turns:
            token.wind_down(reason)
        return f"item {item} is done"

    return work


# --- wind_down() --------------------------------------------------------------------------------------------------


@virtual
async def test_a_person_who_asks_for_the_end_gets_an_answer_on_the_next_turn():
    token, model = CancelToken(), obedient()
    result, recorder = await fly(model, tools=[asking_after(2, token)], cancel=token)
    assert (result.state, result.outcome, result.text) == (AgentState.COMPLETED, WRAPPED, ANSWER)
    assert (result.cause.source, result.cause.reason, model.calls) == ("person", "please", 3)
    assert [event.text for event in recorder.of(NoticeSent)] == [Texts().finish_up]
    assert model.requests[-1].tools == ()


@virtual
async def test_a_model_that_does_not_listen_to_the_person_is_landed():
    token, model = CancelToken(), slow_to_notice()
    result, _ = await fly(model, tools=[asking_after(2, token)], cancel=token)
    assert (result.state, result.outcome, result.text) == (AgentState.CANCELLED, WRAPPED, ANSWER)
    assert (result.cause.source, result.landing_calls, model.calls) == ("person", 1, 4)


@virtual
async def test_a_model_that_ignores_the_person_is_cut_off():
    token, model = CancelToken(), deaf()
    result, _ = await fly(model, tools=[asking_after(2, token)], cancel=token)
    assert (result.state, result.outcome, result.partial) == (AgentState.CANCELLED, CUT, True)
    assert model.calls == 4


@virtual
async def test_a_run_that_is_asked_to_finish_before_it_began_answers_from_what_it_knows():
    token, model = CancelToken(), obedient()
    token.wind_down("no time")
    result, _ = await fly(model, cancel=token)
    assert (result.outcome, result.cause.source, model.calls) == (WRAPPED, "person", 1)


@virtual
async def test_an_answer_that_was_on_its_way_is_the_answer():
    token = CancelToken()
    asyncio.get_running_loop().call_later(1.5, token.wind_down)
    model = ScriptedModel([say("one two three", delay=1.0)])
    result, _ = await fly(model, cancel=token)
    assert (result.outcome, result.text, result.cause) == (DONE, "one two three", None)


@pytest.mark.parametrize("landing", ["withdraw", "steer", "force", "off"])
@virtual
async def test_every_mode_obeys_a_person(landing):
    token, model = CancelToken(), obedient()
    result, _ = await fly(model, tools=[asking_after(2, token)], cancel=token, landing=landing)
    assert (result.outcome, result.text, model.calls) == (WRAPPED, ANSWER, 3)
    assert result.landing_calls == (landing == "force")


@virtual
async def test_a_cancel_makes_no_further_call_also_during_the_landing():
    token = CancelToken()
    asyncio.get_running_loop().call_later(1, token.cancel, "enough")
    model = ScriptedModel([call("work", item=1).with_text("step 1"), hang("in sh")])
    result, _ = await fly(model, Limits(max_iterations=1), cancel=token)
    assert (result.state, result.outcome, result.cause.reason) == (
        AgentState.CANCELLED,
        LoopOutcome.CANCELLED,
        "enough",
    )
    assert (result.text, model.calls) == ("in sh", 2)


@virtual
async def test_a_cancel_after_the_notice_lands_without_a_call():
    token, model = CancelToken(), deaf()

    @tool
    async def work(item: int) -> str:
        """Work."""
        if item == 9:
            token.cancel()
        return f"item {item} is done"

    result, recorder = await fly(model, Limits(max_iterations=20, grace_iterations=15), tools=[work], cancel=token)
    assert (result.outcome, model.calls) == (LoopOutcome.CANCELLED, 9)
    assert recorder.of(LandingStarted) == []


# --- a landing call without an answer -----------------------------------------------------------------------------

BAD_LANDINGS = {
    "fails": [fail(RejectedError("no"))],
    "fails every time": [fail(TransientError("no"))] * 4,
    "is rate limited past its time": [fail(RateLimitedError("slow down", retry_after=500))],
    "is empty": [empty()] * 4,
    "is blank": [say("   \n ")],
    "only thinks": [thinking("hm")],
    "calls a tool": [call("work", item=9)],
    "hangs": [hang()],
    "raises something else": [fail(ZeroDivisionError())] * 4,
    "has no end": [no_end()] * 4,
}


@pytest.mark.parametrize("how", BAD_LANDINGS)
@virtual
async def test_a_landing_call_that_gives_no_text_leaves_the_best_text_so_far(how):
    model = ScriptedModel([call("work", item=1).with_text("so far"), *BAD_LANDINGS[how]])
    result, _ = await fly(model, Limits(max_iterations=1))
    assert (result.state, result.outcome, result.text) == (AgentState.MAX_STEPS, CUT, "so far")
    assert (result.partial, result.landing_calls, result.cause.source) == (True, 1, "MaxIterationConstraint")


@pytest.mark.parametrize("how", BAD_LANDINGS)
@virtual
async def test_with_no_text_at_all_the_result_is_a_factual_summary(how):
    model = ScriptedModel([calls(call("work", item=1), call("work", item=2)), *BAD_LANDINGS[how]])
    result, _ = await fly(model, Limits(max_iterations=1))
    assert (result.outcome, result.partial) == (CUT, True)
    assert "1 model turn" in result.text
    assert "2 tool calls" in result.text or "3 tool calls" in result.text
    assert "item 2 is done" in result.text


@virtual
async def test_a_landing_call_that_is_retried_and_answers_is_an_answer():
    model = ScriptedModel([call("work", item=1), fail(TransientError("x")), say(ANSWER)])
    result, recorder = await fly(model, Limits(max_iterations=1))
    assert (result.outcome, result.text, result.landing_calls) == (WRAPPED, ANSWER, 1)
    assert [event.attempt for event in recorder.of(StreamStarted) if event.landing] == [1, 2]


@virtual
async def test_a_landing_answer_that_is_cut_is_partial():
    model = ScriptedModel([call("work", item=1).with_text("so far"), truncated("the beginning of an ans")])
    result, _ = await fly(model, Limits(max_iterations=1))
    assert (result.outcome, result.partial, result.text) == (CUT, True, "the beginning of an ans")


@virtual
async def test_a_landing_call_that_dies_in_the_middle_leaves_its_fragment():
    model = ScriptedModel([call("work", item=1), *[fail(TransientError("x"), text="the beginning")] * 4])
    result, _ = await fly(model, Limits(max_iterations=1))
    assert (result.outcome, result.partial, result.text) == (CUT, True, "the beginning")


@virtual
async def test_a_refusal_in_the_landing_call_is_what_the_model_said():
    model = ScriptedModel([call("work", item=1), refuse("I will not.")])
    result, _ = await fly(model, Limits(max_iterations=1))
    assert (result.outcome, result.text, result.stop_reason.value) == (WRAPPED, "I will not.", "refusal")


@virtual
async def test_the_landing_call_is_counted_and_charged():
    model = obedient()
    result, _ = await fly(model, Limits(max_iterations=2, grace_iterations=0))
    assert (result.iterations, result.landing_calls, model.calls) == (2, 1, 3)
    assert result.breakdown[0].calls == 3
    assert result.new_messages[-1].text == ANSWER


@virtual
async def test_a_huge_summary_stays_short():
    @tool
    async def huge() -> str:
        """Return a lot."""
        return "fact " * 100_000

    model = ScriptedModel([calls(call("huge"), call("huge")), empty(), empty(), empty(), empty()])
    result, _ = await fly(model, Limits(max_iterations=1), tools=[huge])
    assert len(result.text) < 2_000
    assert "huge returned" in result.text


@virtual
async def test_a_run_that_is_stopped_before_anything_happened_says_so():
    token = CancelToken()
    token.cancel("not today")
    model = ScriptedModel([])
    result, _ = await fly(model, cancel=token)
    assert (result.outcome, model.calls, result.cause.reason) == (LoopOutcome.CANCELLED, 0, "not today")
    assert "0 model turns" in result.text


@virtual
async def test_a_reply_that_only_ends_is_no_answer_and_one_with_an_empty_delta_is_none_either():
    silent = raw(TextDelta(""), StreamEnd())
    model = ScriptedModel([call("work", item=1).with_text("so far"), silent])
    result, _ = await fly(model, Limits(max_iterations=1))
    assert (result.outcome, result.text) == (CUT, "so far")
