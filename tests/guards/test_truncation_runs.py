"""Replies that were cut off: the ladder of caps, the continuation, and what becomes of a run that stays truncated."""

import pytest

from glidepath import (
    AgentState,
    ConfigurationError,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    MaxTokensRecovery,
    TokenScaling,
    tool,
)
from glidepath.events import AttemptDiscarded, GuardTripped, OutputTokensEscalated, ToolStarted
from glidepath.guards import join_parts
from glidepath.testing import ScriptedModel, call, calls, say, truncated, virtual

from .loops import fly

Double, Linear, Fixed = TokenScaling.Double(), TokenScaling.Linear, TokenScaling.Fixed


def ladder(attempts, scaling, ceiling=None):
    return MaxTokensRecovery(max_attempts=attempts, scaling=scaling, ceiling=ceiling)


# --- the ladder by itself: the five cases of the seed, and its edges -----------------------------------------------


@pytest.mark.parametrize(
    ("recovery", "steps"),
    [
        (MaxTokensRecovery.doubling(), [(4096, 0, 8192), (8192, 1, 16384), (16384, 2, 32768)]),
        (ladder(3, Double, 10_000), [(4096, 0, 8192), (8192, 1, 10_000), (10_000, 2, None)]),
        (ladder(3, Linear(2_000)), [(4096, 0, 6_096), (6_096, 1, 8_096)]),
        (ladder(4, Fixed([8_000, 16_000])), [(4_096, 0, 8_000), (8_000, 1, 16_000), (16_000, 2, None)]),
        (ladder(3, Linear(0)), [(4_096, 0, None)]),
        (ladder(3, Fixed([2_000, 9_000])), [(4_096, 0, None), (4_096, 1, 9_000)]),
        (ladder(3, Double, 4_000), [(4_096, 0, None)]),
        (ladder(3, Linear(10**30)), [(1, 0, 1 + 10**30)]),
    ],
)
def test_the_next_cap_is_larger_or_there_is_none(recovery, steps):
    assert [recovery.next_cap(cap, attempt) for cap, attempt, _ in steps] == [expected for _, _, expected in steps]


def test_doubling_is_three_attempts_without_a_ceiling():
    assert MaxTokensRecovery.doubling() == ladder(3, Double)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ladder(0, Double),
        lambda: ladder(-1, Double),
        lambda: ladder(True, Double),
        lambda: ladder(3, "double"),
        lambda: ladder(3, Double, 0),
        lambda: Linear(-1),
        lambda: Linear(2.5),
        lambda: Fixed([]),
        lambda: Fixed("12"),
        lambda: Fixed([0]),
        lambda: Fixed([True]),
    ],
)
def test_a_ladder_that_makes_no_sense_is_a_configuration_error(wrong):
    with pytest.raises(ConfigurationError):
        wrong()


# --- escalation in a run ------------------------------------------------------------------------------------------


async def escalated(turns, recovery, cap=100, **more):
    with ScriptedModel(turns) as model:
        result, recorder = await fly(model, max_output_tokens=cap, max_output_tokens_recovery=recovery, **more)
    return model, result, recorder


@virtual
async def test_a_truncated_reply_is_discarded_and_asked_for_again_with_a_larger_cap():
    turns = [truncated("the first ha"), truncated("the first half and a bi"), say("the whole")]
    model, result, recorder = await escalated(turns, MaxTokensRecovery.doubling())
    assert [request.max_output_tokens for request in model.requests] == [100, 200, 400]
    assert (result.outcome, result.text, result.iterations) == (LoopOutcome.DONE, "the whole", 1)
    assert [(e.attempt, e.previous_cap, e.next_cap) for e in recorder.of(OutputTokensEscalated)] == [
        (1, 100, 200),
        (2, 200, 400),
    ]
    assert len(recorder.of(AttemptDiscarded)) == 2
    assert [m.text for m in result.messages if m.role == "assistant"] == ["the whole"]


@virtual
async def test_what_was_discarded_is_charged():
    _, result, _ = await escalated([truncated("word " * 80), say("whole")], MaxTokensRecovery.doubling())
    assert result.usage.output >= 100
    assert result.breakdown[0].calls == 2


@virtual
async def test_when_the_ladder_ends_the_truncated_reply_is_accepted_and_continued():
    turns = [truncated("aaa "), truncated("aaa bbb "), say("ccc")]
    _, result, _ = await escalated(turns, ladder(1, Double))
    assert (result.outcome, result.text, result.iterations) == (LoopOutcome.DONE, "aaa bbb ccc", 2)


@virtual
async def test_the_ladder_begins_anew_with_every_turn():
    turns = [truncated("a"), say("one", stop_reason="end_turn")]
    model, result, _ = await escalated(
        [truncated("x"), call("search", query="q"), truncated("y"), say("done")], ladder(1, Double)
    )
    assert [request.max_output_tokens for request in model.requests] == [100, 200, 100, 200]
    assert (result.outcome, len(turns)) == (LoopOutcome.DONE, 2)


@virtual
async def test_a_ladder_without_a_cap_to_start_from_is_not_used():
    with ScriptedModel([truncated("aaa "), say("bbb")]) as model, pytest.warns(UserWarning, match="max_output_tokens"):
        result, recorder = await fly(model, max_output_tokens_recovery=MaxTokensRecovery.doubling())
    assert recorder.of(OutputTokensEscalated) == []
    assert result.text == "aaa bbb"


@virtual
async def test_a_truncated_tool_call_is_escalated_and_runs_once_when_it_is_whole():
    turns = [truncated(call("search", query="abcdef")), call("search", query="abcdef"), say("done")]
    _, result, recorder = await escalated(turns, MaxTokensRecovery.doubling())
    assert [event.arguments for event in recorder.of(ToolStarted)] == [{"query": "abcdef"}]
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_g4_escalation_stays_within_the_budget():
    model = ScriptedModel().forever(truncated("word " * 300))
    result, _ = await fly(
        model,
        Limits(max_tokens=4_000, max_iterations=50),
        max_output_tokens=400,
        max_output_tokens_recovery=ladder(9, Double),
    )
    assert result.usage.total <= 4_000
    assert result.text.startswith("word word")


# --- continuation -------------------------------------------------------------------------------------------------


@virtual
async def test_a_truncated_answer_is_continued_exactly_there_and_stitched_into_one():
    with ScriptedModel([truncated("one two "), truncated("three four "), say("five")]) as model:
        result, _ = await fly(model)
    assert (result.state, result.outcome, result.text, result.partial) == (
        AgentState.COMPLETED,
        LoopOutcome.DONE,
        "one two three four five",
        False,
    )
    assert result.iterations == 3  # a continuation is an iteration
    asked = [message for message in result.messages if message.role == "user" and message.internal]
    assert [message.reason for message in asked] == ["max_tokens_recovery"] * 2
    assert "exactly" in asked[0].text


@virtual
async def test_an_answer_that_stays_truncated_is_cut_off_with_all_its_parts():
    with ScriptedModel([truncated("one "), truncated("two "), truncated("three ")]) as model:
        result, recorder = await fly(model)
    assert (result.state, result.outcome, result.text) == (AgentState.COMPLETED, LoopOutcome.CUT_OFF, "one two three ")
    assert (result.partial, result.cause.source, result.stop_reason.value) == (True, "truncation", "max_tokens")
    assert [event.action for event in recorder.of(GuardTripped)] == ["recover"] * 2


@pytest.mark.parametrize("recoveries", [0, 1, 2, 5])
@virtual
async def test_the_number_of_continuations_is_what_it_says(recoveries):
    model = ScriptedModel().forever(truncated("more "))
    result, _ = await fly(model, guardrails=GuardrailsConfig(max_tokens_recoveries=recoveries))
    assert (model.calls, result.text) == (recoveries + 1, "more " * (recoveries + 1))


@virtual
async def test_a_productive_batch_gives_the_continuations_back():
    turns = [truncated("a "), truncated("b "), call("search", query="q"), truncated("c "), truncated("d "), say("e")]
    with ScriptedModel(turns) as model:
        result, _ = await fly(model)
    assert result.outcome is LoopOutcome.DONE
    assert result.text == "c d e"


@virtual
async def test_a_continuation_never_goes_past_the_turn_limit():
    model = ScriptedModel().forever(truncated("more "))
    result, _ = await fly(model, Limits(max_iterations=2, grace_iterations=0))
    assert result.iterations == 2
    assert result.text.startswith("more more ")


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["abc", "def"], "abcdef"),
        (["one two three four five", "three four five six"], "one two three four fivethree four five six"),
        (["the quick brown fox jumps", "quick brown fox jumps over"], "the quick brown fox jumps over"),
        (["", "abc"], "abc"),
        (["abc", ""], "abc"),
        ([], ""),
        (["aaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaab"], "aaaaaaaaaaaaaaaaaaaaaaaab"),
    ],
)
def test_parts_are_joined_without_what_a_part_repeats_of_the_end_before_it(parts, whole):
    assert join_parts(parts) == whole


# --- cut tool calls (G8) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, 0, 999])
@virtual
async def test_g8_a_cut_call_never_runs_is_asked_for_again_once_and_then_the_run_is_cut_off(cut):
    ran = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    cut_call = truncated(call("pay", amount=5).with_text("paying "), cut=cut)
    with ScriptedModel([cut_call, cut_call]) as model:
        result, _ = await fly(model, tools=[pay])
    assert ran == []
    assert (result.state, result.outcome, result.cause.source) == (
        AgentState.COMPLETED,
        LoopOutcome.CUT_OFF,
        "truncation",
    )
    refused = [message for message in result.messages if message.role == "tool_result"]
    assert [(message.is_error, message.kind) for message in refused] == [(True, "cut")] * 2
    assert "smaller" in refused[0].text


@virtual
async def test_a_cut_call_that_is_sent_again_whole_runs():
    turns = [
        truncated(calls(call("search", query="a"), call("search", query="b"))),
        call("search", query="b"),
        say("done"),
    ]
    with ScriptedModel(turns) as model:
        result, recorder = await fly(model)
    assert len(recorder.of(ToolStarted)) == 1
    assert result.outcome is LoopOutcome.DONE
