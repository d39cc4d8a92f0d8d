"""The `summarize` strategy in whole runs: a checkpoint by the model, reserved, charged, raced, and never needed."""

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import Agent, AgentState, CancelToken, Limits, LoopOutcome, Session, tool
from glidepath.constraints import KillSwitchConstraint
from glidepath.context import Summarize
from glidepath.errors import ContextOverflowError, RefusedError, TransientError
from glidepath.events import BudgetReserved, BudgetSettled, ContextShaped, StreamChunk, StreamStarted
from glidepath.kernel.context import SYSTEM_PROMPT
from glidepath.messages import UserMessage
from glidepath.sessions import MemoryStore
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    VirtualClock,
    call,
    empty,
    fail,
    hang,
    no_leftovers,
    refuse,
    say,
    transcript_errors,
    virtual,
)

from .grammar import Counted, asks, cases, gives, healthy, owners, places, quick, say as said, sizes_of, user

TASK = "the task that must never be forgotten"


@tool
async def read(doc: int) -> str:
    """Read a document."""
    return f"document {doc}: " + "lorem ipsum " * 120


def is_summary(request):
    return request.system_prompt == SYSTEM_PROMPT


def reader(turns, checkpoint=None, overflow=None):
    """Reads documents one after the other, and writes checkpoints when asked to."""
    state = {"read": 0, "checkpoints": 0}

    def step(request):
        size = len(request.system_prompt) + sum(len(message.text) for message in request.messages)
        if overflow is not None and size > overflow:
            raise ContextOverflowError("too long")
        if is_summary(request):
            state["checkpoints"] += 1
            if callable(checkpoint):
                return checkpoint(request)
            return checkpoint or say(f"GIST {state['checkpoints']}: documents were read.")
        state["read"] += 1
        done = state["read"] > turns or not request.tools
        return say("read everything") if done else call("read", doc=state["read"])

    return ScriptedModel().forever(step)


async def fly(model, *, session=None, prompt=TASK, cancel=None, strategy="summarize", **more):
    recorder = EventRecorder()
    more.setdefault("limits", Limits(max_iterations=500))
    more.setdefault("context_window", 4_000)
    more.setdefault("max_output_tokens", 200)
    agent = Agent(
        model=model, tools=[read], event_sink=recorder, system_prompt="Be brief.", context_strategy=strategy, **more
    )
    result = await agent.run(prompt, session=session, cancel=cancel)
    recorder.assert_legal()
    assert transcript_errors(result.messages) == []
    for request in work(model):
        assert transcript_errors(request.messages) == []
        assert prompt in [message.text for message in request.messages]
        assert request.system_prompt == "Be brief."
    return result, recorder


def work(model):
    return [request for request in model.requests if not is_summary(request)]


def summaries(model):
    return [request for request in model.requests if is_summary(request)]


def checkpoints(request):
    return [message for message in request.messages if message.role == "user" and message.reason == "checkpoint"]


@virtual
async def test_the_model_goes_on_from_its_own_checkpoint():
    model = reader(60)
    result, recorder = await fly(model)
    assert (result.outcome, result.text, result.iterations) == (LoopOutcome.DONE, "read everything", 61)
    assert 2 <= len(summaries(model)) <= 30
    assert {event.strategy for event in recorder.of(ContextShaped)} == {"summarize"}
    last = work(model)[-1].messages
    assert last[0].text == TASK
    [checkpoint] = checkpoints(work(model)[-1])
    assert f"GIST {len(summaries(model))}:" in checkpoint.text
    assert checkpoint.internal
    assert last[-1].text.startswith("document 60: ")
    assert len(result.messages) == 1 + 60 * 2 + 1  # the transcript itself is whole, and has no checkpoint


@pytest.mark.parametrize("window", [2_000, 4_000, 16_000])
@virtual
async def test_g15_nothing_that_is_sent_outgrows_the_window(window):
    model = reader(80, lambda _request: say("GIST " + "of the documents " * 40))
    _, recorder = await fly(model, context_window=window)
    for request in model.requests:
        size = len(request.system_prompt) + sum(len(message.text) for message in request.messages)
        assert size // 4 + 200 <= window
    assert len(recorder.of(ContextShaped)) < 50


@virtual
async def test_a_checkpoint_is_made_from_the_one_before_and_from_what_is_about_to_go():
    model = reader(60)
    await fly(model)
    first, second = summaries(model)[:2]
    assert "document 1: " in first.messages[0].text
    assert 'assistant called read]\n{"doc":1}' in first.messages[0].text
    assert "GIST" not in first.messages[0].text
    assert "GIST 1" in second.messages[0].text
    assert "document 1: " not in second.messages[0].text
    assert first.tools == second.tools == ()
    assert first.max_output_tokens is not None


@virtual
async def test_g12_it_is_reserved_before_and_charged_to_the_run():
    model = reader(60)
    model.price = (1, 10)
    result, recorder = await fly(model)
    assert len(recorder.of(BudgetReserved)) == len(recorder.of(BudgetSettled)) == len(model.requests)
    assert result.usage.total == sum(event.usage.total for event in recorder.of(BudgetSettled))
    assert result.cost == sum(event.cost for event in recorder.of(BudgetSettled))
    [spend] = [item for item in result.breakdown if item.kind == "model"]
    assert spend.calls == len(model.requests) == 61 + len(summaries(model))


@virtual
async def test_it_is_no_iteration_and_no_part_of_the_answer():
    model = reader(30)
    result, recorder = await fly(model, limits=Limits(max_iterations=31))
    assert (result.iterations, result.outcome) == (31, LoopOutcome.WRAPPED_UP)
    assert summaries(model)
    assert len(recorder.of(StreamStarted)) == 31
    assert "GIST" not in "".join(event.text for event in recorder.of(StreamChunk))


@pytest.mark.parametrize(
    "checkpoint",
    [
        empty(),
        say("   \n"),
        refuse("I will not."),
        fail(TransientError("down")),
        fail(TransientError("down"), text="half a che"),
        fail(RefusedError("no")),
        fail(ContextOverflowError("too long")),
        fail(ConnectionResetError("raw")),
        fail(SystemExit(1)),
        fail(asyncio.CancelledError()),
        hang("half a che"),
    ],
    ids=lambda turn: turn.describe()[:40],
)
@virtual
async def test_what_does_not_help_is_tried_twice_in_a_row_and_then_the_context_is_compacted(checkpoint):
    model = reader(60, checkpoint)
    result, recorder = await fly(model)
    assert (result.outcome, result.iterations) == (LoopOutcome.DONE, 61)
    assert len(summaries(model)) == 2
    assert {event.strategy for event in recorder.of(ContextShaped)} == {"compact"}
    assert checkpoints(work(model)[-1]) == []
    assert len(recorder.of(StreamStarted)) == 61


@virtual
async def test_one_that_helps_starts_the_count_again():
    answers = iter([empty(), say("GIST"), empty(), say("GIST"), empty(), empty(), *[say("never asked for")] * 99])
    model = reader(80, lambda _request: next(answers))
    _, recorder = await fly(model)
    assert len(summaries(model)) == 6
    assert [event.strategy for event in recorder.of(ContextShaped)][:4] == ["compact", "summarize"] * 2


@virtual
async def test_an_overflow_without_a_known_window_is_answered_by_a_checkpoint():
    model = reader(30, overflow=16_000)
    result, recorder = await fly(model, context_window=None)
    assert result.outcome is LoopOutcome.DONE
    assert summaries(model)
    assert "summarize" in {event.strategy for event in recorder.of(ContextShaped)}


@given(
    limit=st.integers(3_000, 40_000),
    window=st.sampled_from([2_000, 4_000, 8_000]),
    turns=st.integers(0, 40),
    answer=st.sampled_from([None, empty(), say("word " * 400), fail(TransientError("x"), text="some words")]),
)
@settings(max_examples=40, deadline=None)
def test_g4_checkpoints_never_break_a_budget_and_never_the_landing(limit, window, turns, answer):
    model = reader(turns, answer)

    async def run():
        return await fly(model, context_window=window, limits=Limits(max_tokens=limit, max_iterations=60))

    result, _ = VirtualClock().run(run())
    assert result.usage.total <= limit
    assert result.text
    assert result.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP, LoopOutcome.CUT_OFF)


# --- stopping -----------------------------------------------------------------------------------------------------


@virtual
async def test_g7_a_cancel_during_the_checkpoint_stops_it_and_it_is_charged():
    token = CancelToken()

    def checkpoint(_request):
        asyncio.get_running_loop().call_later(3, token.cancel, "enough")
        return hang("half a che")

    model = reader(60, checkpoint)
    async with no_leftovers():
        result, recorder = await fly(model, cancel=token)
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert model.open_streams == 0
    assert len(recorder.of(BudgetReserved)) == len(recorder.of(BudgetSettled))
    assert recorder.of(BudgetSettled)[-1].usage.estimated


@virtual
async def test_g7_a_cancel_by_an_observer_comes_before_the_checkpoint_goes_out():
    token = CancelToken()
    model = reader(60)

    def stop(event):
        if isinstance(event, BudgetReserved) and is_checkpoint(event):
            token.cancel()

    def is_checkpoint(event):
        return event.max_output_tokens not in (None, 200)

    agent = Agent(
        model=model, tools=[read], event_sink=stop, context_strategy="summarize", context_window=4_000,
        max_output_tokens=200, limits=Limits(max_iterations=100, max_tokens=900_000),
    )  # fmt: skip
    result = await agent.run(TASK, cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    assert summaries(model) == []


@pytest.mark.parametrize("throws", [False, True])
@virtual
async def test_g7_a_kill_switch_that_is_thrown_meanwhile_comes_before_the_checkpoint(throws):
    thrown = []
    model = reader(30)

    def overflow(request):
        if not is_summary(request) and sum(len(message.text) for message in request.messages) > 8_000:
            thrown.append(throws)  # between two looks of the run
            raise ContextOverflowError("too long")
        return answer(request)

    answer = model._then
    model.forever(overflow)
    agent = Agent(
        model=model, tools=[read], constraints=[KillSwitchConstraint(lambda: any(thrown))], max_output_tokens=200,
        context_strategy="summarize", limits=Limits(max_iterations=100),
    )  # fmt: skip
    result = await agent.run(TASK)
    assert (result.outcome is LoopOutcome.CANCELLED) is throws
    assert (summaries(model) == []) is throws


@virtual
async def test_g7_the_deadline_ends_the_checkpoint_and_the_run_lands():
    model = reader(60, hang())
    result, _ = await fly(model, limits=Limits(timeout=40), first_chunk_timeout=None)
    assert (result.state, result.outcome, result.text) == (
        AgentState.TIMED_OUT,
        LoopOutcome.WRAPPED_UP,
        "read everything",
    )
    assert result.elapsed <= 40


@virtual
async def test_the_callers_own_cancellation_goes_on_after_landing():
    asked = asyncio.Event()

    def checkpoint(_request):
        asked.set()
        return hang()

    async def somebody():  # what a model itself cancels would be the model's own
        await asked.wait()
        await asyncio.sleep(3)
        task.cancel()

    model = reader(60, checkpoint)
    task = asyncio.create_task(fly(model))
    stopper = asyncio.create_task(somebody())
    with pytest.raises(asyncio.CancelledError):
        await task
    await stopper
    assert model.open_streams == 0


@virtual
async def test_no_checkpoint_is_asked_for_in_the_landing():
    session = Session(messages=[UserMessage(f"note {n} " + "y" * 900) for n in range(40)])
    token = CancelToken()
    token.wind_down("enough")
    model = reader(0)
    result, _ = await fly(model, session=session, cancel=token, landing="force", context_window=3_000)
    assert result.landing_calls == 1
    assert summaries(model) == []


# --- over runs ----------------------------------------------------------------------------------------------------


@virtual
async def test_the_next_run_of_a_session_begins_with_the_checkpoint_and_asks_for_none():
    session = Session()
    model = reader(40)
    await fly(model, session=session)
    left = f"GIST {len(summaries(model))}"
    again = reader(1)
    result, _ = await fly(again, session=session, prompt="and now this", context_window=8_000)
    assert summaries(again) == []
    first = again.requests[0].messages
    assert [message.text for message in (first[0], first[-1])] == [TASK, "and now this"]
    assert left in checkpoints(again.requests[0])[0].text
    assert len(result.messages) == 82 + 4


@pytest.mark.parametrize(
    "left",
    [
        *[None, 7, "x", {}, {"text": 3, "upto": 3}, {"text": "x"}],
        *[{"text": "x", "upto": upto} for upto in (10**9, -1, 0, True, "3", 2)],
    ],
    ids=repr,
)
@virtual
async def test_a_checkpoint_that_cannot_be_right_is_ignored(left):
    session = Session()
    await fly(reader(3), session=session, context_window=50_000)
    session.metadata["guardrails"]["checkpoint"] = left
    model = reader(0)
    await fly(model, session=session, prompt="next", context_window=50_000)
    assert checkpoints(model.requests[0]) == []
    assert len(model.requests[0].messages) == 9


@virtual
async def test_g13_with_a_store_the_checkpoint_and_its_reservation_are_in_the_journal():
    store = MemoryStore()
    model = reader(40)
    result, _ = await fly(model, session="s1", store=store)
    left = f"GIST {len(summaries(model))}"
    assert result.outcome is LoopOutcome.DONE
    again = reader(1)
    await fly(again, session="s1", prompt="and now this", store=store, context_window=8_000)
    assert summaries(again) == []
    assert left in checkpoints(again.requests[0])[0].text


@virtual
async def test_another_strategy_does_not_use_it():
    session = Session()
    await fly(reader(40), session=session)
    model = reader(1)
    await fly(model, session=session, prompt="next", strategy="compact")
    assert checkpoints(model.requests[0]) == []


# --- the parts ----------------------------------------------------------------------------------------------------


@quick
@given(case=cases(healthy()), share=st.floats(0, 1), text=st.text(max_size=200))
def test_g15_a_view_under_a_checkpoint_has_whole_groups_and_the_pinned_messages(case, share, text):
    messages, pinned, budget = case
    heads = [i for i, message in enumerate(messages) if message.role != "tool_result"]
    upto = heads[int(share * (len(heads) - 1))]
    strategy = Summarize()
    gist = strategy.restore(text, upto)
    shown, sizes, pins = strategy.apply_checkpoint(gist, messages, sizes_of(messages), pinned)
    assert [shown[i] for i in pins if shown[i] is not gist.message] == [messages[i] for i in pinned]
    assert gist.message in [shown[i] for i in pins]
    view = strategy.shape(shown, sizes, budget, pins)
    found = set(places(view.messages, messages))
    assert set(pinned) <= found
    assert any(message is gist.message for message in view.messages)
    for result, head in owners(messages).items():
        assert (result in found) == (head in found)
    again = strategy.apply_checkpoint(gist, messages, sizes_of(messages), pinned)
    assert (list(again[0]), again[2]) == (shown, pins)


@quick
@given(case=cases(healthy()), room=st.integers(0, 5_000))
def test_a_brief_fits_its_room_and_cuts_between_groups(case, room):
    messages, pinned, budget = case
    brief = Summarize().checkpoint_request(messages, sizes_of(messages), budget, pinned, room)
    if brief is None:
        return
    assert brief.size <= room
    assert 0 < brief.upto <= len(messages)
    for result, head in owners(messages).items():
        assert (result < brief.upto) == (head < brief.upto)


def test_g19_a_brief_reads_no_more_than_it_tells():
    turns = [message for n in range(33_333) for message in (asks(f"c{n}"), gives(f"c{n}", "a page"), user("on"))]
    messages = Counted([user("the task"), *turns])
    sizes = Counted(sizes_of(messages.items))
    brief = Summarize().checkpoint_request(messages, sizes, 3_000, [0], 4_000)
    assert brief is not None
    assert "earlier messages are not shown" in brief.prompt
    assert messages.reads < 2_000
    assert sizes.reads < 2_000


def test_a_huge_result_takes_a_share_of_the_brief_only():
    messages = [
        user("task"),
        asks("a"),
        gives("a", "x" * 500_000),
        *[said(f"note {n} " + "y" * 300) for n in range(60)],
    ]
    brief = Summarize().checkpoint_request(messages, sizes_of(messages), 3_000, [0], 9_000)
    assert "characters left out" in brief.prompt
    assert "note 0" in brief.prompt


def test_a_checkpoint_must_be_smaller_than_what_it_replaces():
    messages = [user("task"), *[said(f"note {n} " + "y" * 300) for n in range(60)]]
    brief = Summarize().checkpoint_request(messages, sizes_of(messages), 3_000, [0], 9_000)
    assert Summarize().checkpoint_from("short", brief).upto == brief.upto
    assert Summarize().checkpoint_from("x" * 3 * brief.replaces, brief) is None
    assert Summarize().checkpoint_from(" \n", brief) is None
