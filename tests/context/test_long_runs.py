"""Context shaping in whole runs: a long run stays inside the window, an overflow is answered, pairs stay together."""

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import Agent, AgentState, Limits, LoopOutcome, Plugin, Session, tool
from glidepath.errors import ContextOverflowError
from glidepath.events import AttemptDiscarded, ContextShaped, HookFailed
from glidepath.messages import AssistantMessage, ToolCall, ToolResultMessage, Usage, UserMessage
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    VirtualClock,
    call,
    calls,
    fail,
    say,
    transcript_errors,
    virtual,
)

TASK = "the task that must never be forgotten"


@tool
async def read(doc: int) -> str:
    """Read a document."""
    return f"document {doc}: " + "lorem ipsum " * 120  # about 360 tokens


def chars(request):
    return len(request.system_prompt) + sum(len(message.text) for message in request.messages)


def reading(turns, window=None):
    """Reads documents, one after the other, and overflows past `window` characters as a provider would."""
    numbers = iter(range(10**6))

    def step(request):
        if window is not None and chars(request) > window:
            raise ContextOverflowError("prompt is too long")
        number = next(numbers)
        return call("read", doc=number) if request.tools and number < turns else say("read everything")

    return ScriptedModel().forever(step)


async def fly(model, *, prompt=TASK, session=None, **more):
    recorder = EventRecorder()
    more.setdefault("limits", Limits(max_iterations=500))
    agent = Agent(model=model, tools=[read], event_sink=recorder, system_prompt="Be brief.", **more)
    result = await agent.run(prompt, session=session)
    recorder.assert_legal()
    assert transcript_errors(result.messages) == []
    for request in model.requests:
        assert transcript_errors(request.messages) == []
        assert TASK in [message.text for message in request.messages]
        assert request.system_prompt == "Be brief."
    return result, recorder


# --- the window ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["compact", "sliding_window"])
@pytest.mark.parametrize("window", [2_000, 4_000, 16_000])
@virtual
async def test_g15_a_long_run_never_sends_more_than_the_window_holds(window, strategy):
    model = reading(60)
    result, recorder = await fly(model, context_window=window, context_strategy=strategy, max_output_tokens=200)
    assert (result.outcome, result.iterations) == (LoopOutcome.DONE, 61)
    assert max(chars(request) // 4 for request in model.requests) <= window
    assert recorder.of(ContextShaped)
    assert len(result.messages) == 1 + 60 * 2 + 1  # the transcript itself is whole


@pytest.mark.parametrize("share", [1, 2, 3])
@virtual
async def test_a_provider_that_counts_more_or_less_than_we_do_is_believed_within_reason(share):
    """Its count decides how much is sent: never more than the window by that, nor by four characters a token."""
    model = reading(80)
    honest = model._report_usage

    def report(turn, request, said):
        usage = honest(turn, request, said)
        return Usage(usage.input * share if share < 3 else usage.input // 2, usage.output)

    model._report_usage = report
    result, _ = await fly(model, context_window=6_000, max_output_tokens=200)
    assert result.outcome is LoopOutcome.DONE
    sent = [chars(request) // 4 for request in model.requests]
    assert max(sent) <= 6_000
    assert max(sent) * share <= 6_000 if share == 2 else max(sent) > 3_300


@virtual
async def test_what_is_dropped_leaves_one_marker_and_the_newest_documents():
    model = reading(60)
    await fly(model, context_window=4_000, max_output_tokens=200)
    last = model.requests[-1].messages
    markers = [message for message in last if message.role == "user" and message.reason == "compacted"]
    assert len(markers) == 1
    assert last[-1].text.startswith("document 59: ")
    assert last[0].text == TASK


@virtual
async def test_shaping_is_not_done_again_at_every_turn():
    model = reading(60)
    _, recorder = await fly(model, context_window=16_000, max_output_tokens=200)
    assert 1 <= len(recorder.of(ContextShaped)) <= 12


@virtual
async def test_a_window_that_is_never_filled_changes_nothing():
    model = reading(5)
    _, recorder = await fly(model, context_window=100_000)
    assert recorder.of(ContextShaped) == []
    assert [len(request.messages) for request in model.requests] == [1, 3, 5, 7, 9, 11]


@virtual
async def test_the_window_of_the_model_is_used_when_none_is_configured():
    model = reading(60)
    model.context_window = 4_000
    model.max_output_tokens = 200
    await fly(model)
    assert max(chars(request) // 4 for request in model.requests) <= 4_000


@virtual
async def test_the_results_of_one_turn_share_what_the_window_has_left():
    @tool
    async def huge(doc: int) -> str:
        """Return a lot."""
        return f"document {doc}: " + "x" * 200_000

    model = ScriptedModel([calls(*[call("huge", doc=n) for n in range(4)]), say("done")])
    agent = Agent(model=model, tools=[huge], limits=Limits(max_iterations=5), context_window=8_000)
    result = await agent.run(TASK)
    assert result.outcome is LoopOutcome.DONE
    assert chars(model.requests[-1]) // 4 <= 8_000


@virtual
async def test_both_the_first_task_of_a_session_and_the_prompt_of_this_run_stay():
    session = Session()
    await fly(reading(20), session=session, context_window=4_000, max_output_tokens=200)
    model = reading(20)
    agent = Agent(
        model=model,
        tools=[read],
        limits=Limits(max_iterations=50),
        context_window=4_000,
        max_output_tokens=200,
    )
    await agent.run("the second task", session=session)
    for request in model.requests:
        texts = [message.text for message in request.messages]
        assert TASK in texts
        assert "the second task" in texts
        assert transcript_errors(request.messages) == []


# --- overflow -----------------------------------------------------------------------------------------------------


@virtual
async def test_an_overflow_is_answered_by_compacting_and_asking_once_more():
    model = reading(30, window=12_000)
    result, recorder = await fly(model)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "read everything")
    shaped = recorder.of(ContextShaped)
    assert shaped
    assert all(event.after_tokens <= 0.75 * event.before_tokens for event in shaped)
    assert len(recorder.of(AttemptDiscarded)) == len(shaped)
    assert result.iterations == 31  # the overflows are not iterations


@virtual
async def test_the_view_stays_small_after_an_overflow():
    model = reading(12, window=12_000)
    _, recorder = await fly(model)
    first = next(i for i, request in enumerate(model.requests) if chars(request) > 12_000)
    assert chars(model.requests[first + 1]) < 0.8 * chars(model.requests[first])
    assert chars(model.requests[first + 2]) < chars(model.requests[first]) * 1.2
    assert len(recorder.of(ContextShaped)) < 12


@virtual
async def test_a_second_overflow_of_the_same_call_stands():
    turns = [call("read", doc=1), call("read", doc=2), *[fail(ContextOverflowError("too long"))] * 2]
    with ScriptedModel(turns) as model:
        result, _ = await fly(model)
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "provider")
    assert "ContextOverflowError" in result.cause.reason


@virtual
async def test_an_overflow_that_cannot_shrink_stands_at_once():
    with ScriptedModel([fail(ContextOverflowError("too long"))]) as model:
        result, _ = await fly(model)
    assert result.outcome is LoopOutcome.FAILED


@virtual
async def test_without_a_strategy_an_overflow_stands_at_once():
    with ScriptedModel([call("read", doc=1), fail(ContextOverflowError("too long"))]) as model:
        result, _ = await fly(model, context_strategy="none")
    assert result.outcome is LoopOutcome.FAILED


class Forgets(Plugin):
    """Keeps the task and nothing else."""

    def context_overflow_recovery(self, context):
        return [message for message in context.messages if message.text == TASK]


@virtual
async def test_a_recovery_plugin_comes_before_the_strategy():
    model = reading(30, window=12_000)
    result, recorder = await fly(model, plugins=[Forgets()])
    assert result.outcome is LoopOutcome.DONE
    assert {event.strategy for event in recorder.of(ContextShaped)} == {"forgets"}
    after = [i + 1 for i, request in enumerate(model.requests) if chars(request) > 12_000]
    assert after
    assert all(len(model.requests[i].messages) == 1 for i in after)


@pytest.mark.parametrize(
    "answer", [lambda c: 1 / 0, lambda c: None, lambda c: list(c.messages), lambda c: "text", lambda c: [1, 2]]
)
@virtual
async def test_a_recovery_plugin_that_does_not_help_leaves_it_to_the_strategy(answer):
    class Helpless(Plugin):
        def context_overflow_recovery(self, context):
            return answer(context)

    model = reading(30, window=12_000)
    result, recorder = await fly(model, plugins=[Helpless()])
    assert result.outcome is LoopOutcome.DONE
    assert {event.strategy for event in recorder.of(ContextShaped)} == {"compact"}
    assert {event.effect for event in recorder.of(HookFailed)} <= {"skipped"}


@virtual
async def test_a_recovery_plugin_that_separates_a_call_from_its_result_is_repaired():
    class Careless(Plugin):
        def context_overflow_recovery(self, context):
            return [context.messages[0], *context.messages[-1:]]

    model = reading(30, window=12_000)
    result, _ = await fly(model, plugins=[Careless()])
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_an_overflow_in_the_landing_call_leaves_the_best_text():
    turns = [call("read", doc=1).with_text("so far"), fail(ContextOverflowError("too long"))]
    with ScriptedModel(turns) as model:
        result, _ = await fly(model, limits=Limits(max_iterations=1))
    assert (result.state, result.outcome, result.text) == (AgentState.MAX_STEPS, LoopOutcome.CUT_OFF, "so far")


# --- any history --------------------------------------------------------------------------------------------------


def history(plan):
    """A session of calls and results, some of them damaged as a crash leaves them."""
    messages = [UserMessage(TASK)]
    for number, (width, answered, size) in enumerate(plan):
        ids = [f"c{number}_{k}" for k in range(width)]
        blocks = tuple(ToolCall(call_id, "read", {"doc": number}) for call_id in ids)
        messages.append(AssistantMessage(blocks))
        messages += [ToolResultMessage(call_id, "read", "x" * size) for call_id in ids[:answered]]
    return messages


@given(
    plan=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.sampled_from([0, 10, 3_000])), max_size=12),
    window=st.sampled_from([1_500, 3_000, 20_000]),
    turns=st.integers(0, 4),
    overflow=st.sampled_from([None, 4_000, 12_000]),
)
@settings(max_examples=40, deadline=None)
def test_g15_whatever_the_history_and_the_window_the_model_sees_whole_groups_and_the_task(
    plan, window, turns, overflow
):
    model = reading(turns, overflow)
    session = Session()
    session.messages.extend(history(plan))

    async def run():
        return await fly(
            model, prompt="go on", session=session, context_window=window, max_output_tokens=100, max_retries=0
        )

    result, _ = VirtualClock().run(run())
    assert result.text
    assert result.outcome in (LoopOutcome.DONE, LoopOutcome.FAILED)
