"""Faults of a provider are absorbed inside one turn: retried with jitter, inside the deadline, and announced (13.1)."""

import asyncio
import random

import pytest

from glidepath import Agent, AgentState, Limits, LoopOutcome, tool
from glidepath.errors import (
    ContextOverflowError,
    EmptyResponseError,
    InconsistentHistoryError,
    ModelError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    TransientError,
)
from glidepath.events import AttemptDiscarded, RetryScheduled, StreamChunk, StreamStarted
from glidepath.messages import StopReason, StreamEnd, TextDelta, Usage
from glidepath.run import LONGEST_RETRY_AFTER
from glidepath.testing import EventRecorder, ScriptedModel, call, empty, fail, no_end, raw, say, truncated, virtual

LIMITS = Limits(max_iterations=5)


async def run(script, *, limits=LIMITS, **settings):
    recorder = EventRecorder()
    model = ScriptedModel(script)
    result = await Agent(model=model, limits=limits, plugins=[recorder.as_plugin()], **settings).run("go")
    recorder.assert_legal()
    return result, recorder, model


RETRYABLE = [
    fail(TransientError("502")),
    fail(TransientError("502"), text="half an answer"),
    fail(RateLimitedError("slow down")),
    fail(EmptyResponseError("nothing")),
    fail(ConnectionResetError("raw, not mapped by the adapter")),
    fail(asyncio.CancelledError()),
    fail(SystemExit(1)),
    fail(GeneratorExit()),
    no_end("half an answer"),
    no_end(),
    empty(),
    raw(TextDelta("so"), StreamEnd("error")),
    raw(TextDelta("so"), StreamEnd("aborted")),
]


@pytest.mark.parametrize("turn", RETRYABLE, ids=lambda turn: turn.describe()[:40])
@virtual
async def test_a_passing_fault_is_tried_again_inside_the_turn(turn):
    result, recorder, model = await run([turn, "answer"])
    model.check()
    assert (result.outcome, result.text, result.iterations) == (LoopOutcome.DONE, "answer", 1)
    assert [event.attempt for event in recorder.of(StreamStarted)] == [1, 2]
    assert [event.attempt for event in recorder.of(AttemptDiscarded)] == [1]
    assert recorder.one(RetryScheduled).attempt == 2
    assert [message.text for message in result.messages] == ["go", "answer"]


FINAL = [
    RejectedError("bad request"),
    RefusedError("policy"),
    InconsistentHistoryError("orphan"),
    ContextOverflowError("too long"),
    ModelError("some kind"),
]


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
@virtual
async def test_what_cannot_pass_is_never_tried_again(error):
    result, recorder, model = await run([fail(error, text="begun")])
    assert model.calls == 1
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert (result.cause.source, result.cause.reason) == ("provider", f"{type(error).__name__}: {error}")
    assert (result.text, result.partial, result.iterations) == ("begun", True, 0)
    assert result.stop_reason is (StopReason.REFUSAL if isinstance(error, RefusedError) else StopReason.ERROR)
    assert recorder.of(RetryScheduled) == []


@pytest.mark.parametrize("end", [(), (StreamEnd("end_turn"),)], ids=["no end", "an end"])
@virtual
async def test_a_delta_that_is_no_text_is_a_mistake_of_the_model_object_and_never_tried_again(end):
    result, recorder, model = await run([raw(TextDelta("so"), TextDelta(None), *end)])
    assert (model.calls, recorder.of(RetryScheduled)) == (1, [])
    assert (result.state, result.outcome, result.text) == (AgentState.ERROR, LoopOutcome.FAILED, "so")
    assert result.cause.reason == "ModelError: the model streamed a delta with a NoneType instead of text"


@virtual
async def test_after_the_last_retry_the_run_fails_with_its_longest_text():
    script = [no_end("one two"), fail(TransientError("x"), text="one two three"), no_end("one"), no_end("")]
    result, recorder, model = await run(script)
    assert model.calls == 4
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "provider")
    assert (result.text, result.partial, result.iterations) == ("one two three", True, 0)
    assert len(recorder.of(AttemptDiscarded)) == 4
    assert len(recorder.of(RetryScheduled)) == 3


@virtual
async def test_max_retries_0_means_one_call():
    result, _, model = await run([fail(TransientError("x"))], max_retries=0)
    assert (model.calls, result.outcome) == (1, LoopOutcome.FAILED)


@virtual
async def test_the_delays_grow_and_have_jitter():
    random.seed(7)
    delays = []
    for _ in range(30):
        result, recorder, _ = await run([fail(TransientError("x"))] * 4 + ["x"], max_retries=4)
        assert result.outcome is LoopOutcome.DONE
        delays.append([event.delay for event in recorder.of(RetryScheduled)])
    for position, (least, most) in enumerate([(0.25, 0.5), (0.5, 1), (1, 2), (2, 4)]):
        column = [row[position] for row in delays]
        assert least <= min(column) < max(column) <= most
        assert len(set(column)) > 10


@pytest.mark.parametrize("kind", [RateLimitedError, TransientError])
@virtual
async def test_retry_after_is_honoured(kind):
    result, recorder, _ = await run([fail(kind("wait", retry_after=30)), "answer"])
    assert 30 <= recorder.one(RetryScheduled).delay <= 30.1
    assert 30 <= result.elapsed <= 30.1


@pytest.mark.parametrize("retry_after", [None, 0, -5, float("nan"), "soon"])
@virtual
async def test_a_retry_after_that_says_nothing_is_ignored(retry_after):
    result, recorder, _ = await run([fail(RateLimitedError("wait", retry_after=retry_after)), "answer"])
    assert result.outcome is LoopOutcome.DONE
    assert recorder.one(RetryScheduled).delay <= 0.5


NO_DEADLINE = Limits(max_iterations=3)
TOO_LONG = [LONGEST_RETRY_AFTER + 1, 3600.0, 86_400 * 365, 10**400, float("inf")]


@pytest.mark.parametrize("retry_after", TOO_LONG, ids=lambda value: f"{value:.0e}" if value < 1e300 else "huge")
@virtual
async def test_g7_without_a_deadline_a_retry_after_beyond_five_minutes_fails_at_once(retry_after):
    result, _, _ = await run([fail(RateLimitedError("wait", retry_after=retry_after))], limits=NO_DEADLINE)
    assert (result.outcome, result.elapsed) == (LoopOutcome.FAILED, 0)
    assert result.cause.metrics["error"] == "RateLimitedError"


@virtual
async def test_without_a_deadline_a_retry_after_of_five_minutes_is_honoured():
    wait = fail(RateLimitedError("wait", retry_after=LONGEST_RETRY_AFTER))
    result, _, _ = await run([wait, "answer"], limits=NO_DEADLINE)
    assert (result.text, result.elapsed >= LONGEST_RETRY_AFTER) == ("answer", True)


@virtual
async def test_a_retry_after_that_is_too_long_goes_to_the_fallback():
    wait = fail(RateLimitedError("wait", retry_after=86_400))
    spare = ScriptedModel(["from the other"], name="spare")
    result, _, _ = await run([wait], limits=NO_DEADLINE, fallback_models=[spare])
    assert (result.text, result.elapsed) == ("from the other", 0)


@virtual
async def test_within_a_deadline_a_long_retry_after_is_honoured():
    wait = fail(RateLimitedError("wait", retry_after=600))
    result, _, _ = await run([wait, "answer"], limits=Limits(timeout=3_600))
    assert (result.text, result.elapsed >= 600) == ("answer", True)


@pytest.mark.parametrize("retry_after", [50, 101, 10**9, float("inf")])
@virtual
async def test_a_retry_after_beyond_the_deadline_fails_at_once(retry_after):
    limits = Limits(timeout=60)
    result, recorder, model = await run(
        [fail(RateLimitedError("wait", retry_after=retry_after), text="begun")], limits=limits
    )
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "provider")
    assert (result.elapsed, model.calls, result.text) == (0, 1, "begun")
    assert recorder.of(RetryScheduled) == []


@virtual
async def test_text_of_a_discarded_attempt_is_announced_and_not_doubled():
    """G16: chunks of an attempt stand between its start and one finished chunk; a discard follows, then the next."""
    _, recorder, _ = await run([fail(TransientError("dropped"), text="one two"), "one two three"])
    wanted = StreamStarted, StreamChunk, AttemptDiscarded
    lines = [line for line, event in zip(recorder.compact(), recorder, strict=True) if isinstance(event, wanted)]
    assert lines == [
        "StreamStarted scripted 1",
        'StreamChunk "one "',
        'StreamChunk "two"',
        "StreamChunk finished",
        "AttemptDiscarded 1 TransientError: dropped",
        "StreamStarted scripted 2",
        'StreamChunk "one "',
        'StreamChunk "two "',
        'StreamChunk "three"',
        "StreamChunk finished",
    ]


@virtual
async def test_the_calls_of_a_dropped_connection_never_run():
    ran = []

    @tool
    async def effect() -> str:
        ran.append(1)
        return "done"

    result, _, _ = await run([no_end(call("effect")), "answer"], tools=[effect])
    assert (ran, result.text, result.tool_calls) == ([], "answer", 0)


@virtual
async def test_what_goes_wrong_after_the_end_of_a_reply_cannot_take_it_back():
    class Late:
        name = "late"
        calls = 0

        async def stream(self, request):
            self.calls += 1
            yield TextDelta("complete")
            yield StreamEnd("end_turn")
            raise TransientError("the connection broke while closing")

    model = Late()
    result = await Agent(model=model, limits=LIMITS).run("go")
    assert (result.outcome, result.text, model.calls) == (LoopOutcome.DONE, "complete", 1)


@virtual
async def test_all_attempts_are_charged_but_those_that_failed_before_their_first_delta():
    script = [
        fail(TransientError("refused at the door")),
        raw(TextDelta("a b c d"), StreamEnd("error", Usage(100, 10))),
        say("answer", usage=Usage(100, 20)),
    ]
    result, _, _ = await run(script)
    assert result.usage == Usage(200, 30)
    assert [(spend.calls, spend.usage.total) for spend in result.breakdown] == [(2, 230)]


@virtual
async def test_a_retry_is_not_a_turn():
    script = [fail(TransientError("x")), "a"]
    result, _, model = await run(script, limits=Limits(max_iterations=1))
    assert (result.outcome, result.iterations, model.calls) == (LoopOutcome.DONE, 1, 2)


@virtual
async def test_a_truncated_attempt_in_a_ladder_is_discarded_and_asked_for_again_with_a_larger_cap():
    from glidepath import MaxTokensRecovery

    result, recorder, model = await run(
        [truncated("one"), truncated("one two"), "one two three"],
        max_output_tokens=300,
        max_output_tokens_recovery=MaxTokensRecovery.doubling(),
    )
    assert (result.outcome, result.text, result.iterations) == (LoopOutcome.DONE, "one two three", 1)
    assert [request.max_output_tokens for request in model.requests] == [300, 600, 1200]
    assert [event.reason for event in recorder.of(AttemptDiscarded)] == ["truncated at its output cap"] * 2


@virtual
async def test_an_overflow_is_answered_with_a_smaller_view_once():
    from glidepath import Session
    from glidepath.events import ContextShaped
    from glidepath.messages import AssistantMessage, TextBlock, UserMessage

    history = [UserMessage("task")]
    for number in range(20):
        history += [AssistantMessage((TextBlock(f"answer {number} " + "x" * 400),)), UserMessage(f"more {number}")]
    recorder = EventRecorder()
    model = ScriptedModel([fail(ContextOverflowError("too long")), "answer"])
    agent = Agent(model=model, limits=LIMITS, plugins=[recorder.as_plugin()])
    result = await agent.run("go", session=Session(messages=history))
    assert result.outcome is LoopOutcome.DONE
    assert len(model.requests[1].messages) < len(model.requests[0].messages)
    shaped = recorder.one(ContextShaped)
    assert shaped.after_tokens < shaped.before_tokens
    recorder.assert_legal()
    again = ScriptedModel([fail(ContextOverflowError("too long"))] * 2)
    result = await Agent(model=again, limits=LIMITS).run("go", session=Session(messages=history))
    assert (result.outcome, result.cause.metrics["error"], again.calls) == (
        LoopOutcome.FAILED,
        "ContextOverflowError",
        2,
    )
