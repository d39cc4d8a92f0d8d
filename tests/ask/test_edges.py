"""Seldom, but real: models that are built otherwise, and streams that end in odd ways."""

import asyncio

import pytest

from glidepath import (
    Agent,
    CancelToken,
    Limits,
    LoopOutcome,
    MaxTokensRecovery,
    Plugin,
    Session,
    TokenScaling,
    Usage,
    tool,
)
from glidepath.errors import ContextOverflowError
from glidepath.events import (
    ContextShaped,
    GateApplied,
    GateConflictResolved,
    HookFailed,
    OutputTokensEscalated,
    StreamChunk,
)
from glidepath.messages import AssistantMessage, StreamEnd, TextBlock, TextDelta, ThinkingDelta, UserMessage
from glidepath.spi import Gate
from glidepath.testing import EventRecorder, ScriptedModel, call, fail, no_leftovers, raw, say, truncated, virtual

LIMITS = Limits(max_iterations=4)


@tool
async def a() -> str:
    return "a"


@tool
async def b() -> str:
    return "b"


class Awaited:
    """`stream` is a coroutine that gives the iterator, as some SDKs have it."""

    name = "awaited"

    def __init__(self, *deltas, connect=1.0, stubborn=False):
        self.deltas = deltas
        self.connect = connect
        self.stubborn = stubborn
        self.calls = 0

    async def stream(self, request):
        self.calls += 1
        until = asyncio.get_running_loop().time() + self.connect
        while (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
        return Plain(self.deltas)


class Plain:
    """An async iterator that is no generator: it has no aclose."""

    def __init__(self, deltas):
        self._left = list(deltas)

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0)
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop(0)


@pytest.mark.parametrize("thinking_tags", [False, True])
@virtual
async def test_a_model_may_give_its_stream_from_a_coroutine(thinking_tags):
    model = Awaited(TextDelta("hello"), StreamEnd("end_turn"), connect=5)
    result = await Agent(model=model, limits=LIMITS, thinking_tags=thinking_tags).run("go")
    assert (result.outcome, result.text, result.elapsed) == (LoopOutcome.DONE, "hello", 5)


@virtual
async def test_an_iterator_without_aclose_may_stop_early():
    model = Awaited(TextDelta("hel"))
    result = await Agent(model=model, limits=LIMITS, max_retries=1).run("go")
    assert (result.outcome, result.text, model.calls) == (LoopOutcome.FAILED, "hel", 2)


@virtual
async def test_a_connection_that_ignores_cancellation_is_let_go_of_and_comes_too_late():
    model = Awaited(TextDelta("late"), StreamEnd("end_turn"), connect=100, stubborn=True)
    recorder = EventRecorder()
    agent = Agent(model=model, limits=LIMITS, connect_timeout=2, max_retries=0, event_sink=recorder)
    result = await agent.run("go")
    assert (result.outcome, result.elapsed) == (LoopOutcome.FAILED, 3)
    assert [item.kind for item in result.abandoned] == ["stream"]
    events = len(recorder)
    await asyncio.sleep(500)
    assert len(recorder) == events


@pytest.mark.parametrize("delta", [TextDelta("x" * 50), ThinkingDelta("hm")])
@pytest.mark.parametrize("heard", [False, True])
@virtual
async def test_a_stream_that_was_let_go_of_goes_on_unheard_whatever_it_says(delta, heard):
    said = 0

    class Stubborn:
        name = "stubborn"

        async def stream(self, request):
            nonlocal said
            for _ in range(2_000):
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue
                said += 1
                yield delta

    token, recorder = CancelToken(), EventRecorder()
    asyncio.get_running_loop().call_later(1, token.cancel)
    agent = Agent(model=Stubborn(), limits=Limits(max_tokens=100_000), event_sink=recorder if heard else None)
    result = await agent.run("go", cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    spent, events, so_far = result.usage, len(recorder), said
    await asyncio.sleep(100)
    assert (result.usage, len(recorder)) == (spent, events)
    assert said < so_far + 1_000, "nobody listens: it is closed at one of its next deltas"


@virtual
async def test_deltas_after_the_end_are_ignored():
    result = await Agent(model=ScriptedModel([raw(TextDelta("a"), StreamEnd(), TextDelta("b"))]), limits=LIMITS).run(
        "go"
    )
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "a")


@virtual
async def test_a_cancel_gets_through_to_a_stream_that_never_pauses():
    token = CancelToken()

    class Firehose:
        name = "firehose"
        said = 0

        async def stream(self, request):
            while True:
                self.said += 1
                yield TextDelta("word ")

    class Stopper(Plugin):
        events = (StreamChunk,)
        seen = 0

        def event_observer(self, event):
            self.seen += 1
            if self.seen == 10:
                token.cancel("enough")

    model = Firehose()
    async with no_leftovers():
        result = await Agent(model=model, limits=LIMITS, plugins=[Stopper()]).run("go", cancel=token)
    assert (result.outcome, result.cause.reason) == (LoopOutcome.CANCELLED, "enough")
    assert model.said < 5_000


@virtual
async def test_a_subclass_of_a_text_delta_is_text_also_when_nobody_listens():
    class Marked(TextDelta, frozen=True, tag="marked"):
        pass

    result = await Agent(model=ScriptedModel([raw(Marked("a"), Marked(""), StreamEnd())]), limits=LIMITS).run("go")
    assert result.text == "a"


@virtual
async def test_figures_with_a_fraction_are_rounded_up_and_flagged():
    result = await Agent(model=ScriptedModel([say("hello there", usage=Usage(20.2, 4.5))]), limits=LIMITS).run("go")
    assert (result.usage.input, result.usage.output, result.usage.estimated) == (21, 5, True)


@virtual
async def test_the_ladder_of_caps_ends_at_its_ceiling_and_the_cut_reply_is_accepted():
    recorder = EventRecorder()
    ladder = MaxTokensRecovery(max_attempts=5, scaling=TokenScaling.Double(), ceiling=500)
    script = [truncated("one"), truncated("one two"), " three"]
    with ScriptedModel(script) as model:
        agent = Agent(
            model=model, limits=LIMITS, max_output_tokens=300, max_output_tokens_recovery=ladder, event_sink=recorder
        )
        result = await agent.run("go")
    assert (result.text, result.iterations) == ("one two three", 2)
    escalated = recorder.one(OutputTokensEscalated)
    assert (escalated.previous_cap, escalated.next_cap) == (300, 500)


def long_history(turns):
    history = [UserMessage("task")]
    for number in range(turns):
        history += [AssistantMessage((TextBlock(f"answer {number} " + "x" * 400),)), UserMessage(f"more {number}")]
    return history


@pytest.mark.parametrize("strategy", ["none", "compact", "sliding_window"])
@virtual
async def test_a_view_is_shaped_to_the_window_unless_nobody_wants_that(strategy):
    recorder = EventRecorder()
    with ScriptedModel(["ok"], context_window=3_000) as model:
        agent = Agent(model=model, limits=LIMITS, context_strategy=strategy, event_sink=recorder)
        await agent.run("go", session=Session(messages=long_history(40)))
    assert len(recorder.of(ContextShaped)) == (strategy != "none")
    assert (len(model.requests[0].messages) == 82) == (strategy == "none")


class Recovery(Plugin):
    def __init__(self, answer):
        self.answer = answer

    async def context_overflow_recovery(self, context):
        if self.answer == "crash":
            raise ValueError("no idea")
        return {"none": None, "smaller": context.messages[-1:], "same": list(context.messages), "odd": "text"}[
            self.answer
        ]


@pytest.mark.parametrize("answer", ["none", "smaller", "same", "odd", "crash"])
@virtual
async def test_a_plugin_may_answer_an_overflow_and_what_does_not_help_is_passed_over(answer):
    recorder = EventRecorder()
    with ScriptedModel([fail(ContextOverflowError("too long")), "ok"]) as model:
        agent = Agent(model=model, limits=LIMITS, plugins=[Recovery(answer)], event_sink=recorder)
        result = await agent.run("go", session=Session(messages=long_history(20)))
    assert result.outcome is LoopOutcome.DONE
    assert recorder.one(ContextShaped).strategy == ("recovery" if answer == "smaller" else "compact")
    assert len(recorder.of(HookFailed)) == (answer in ("odd", "crash"))


@virtual
async def test_an_overflow_without_a_strategy_stands():
    model = ScriptedModel([fail(ContextOverflowError("too long"))])
    result = await Agent(model=model, limits=LIMITS, context_strategy="none").run("go")
    assert (result.outcome, result.cause.metrics["error"]) == (LoopOutcome.FAILED, "ContextOverflowError")


class Transform(Plugin):
    def __init__(self, answer):
        self.answer = answer

    def context_transform(self, context):
        return [UserMessage("something else")] if self.answer == "view" else self.answer


@pytest.mark.parametrize(("answer", "sent"), [("view", "something else"), (None, "go"), ("text", "go"), ([7], "go")])
@virtual
async def test_a_transform_changes_what_is_sent_and_never_what_is_kept(answer, sent):
    recorder = EventRecorder()
    with ScriptedModel(["ok"]) as model:
        agent = Agent(model=model, limits=LIMITS, plugins=[Transform(answer)], event_sink=recorder)
        result = await agent.run("go")
    assert [message.text for message in model.requests[0].messages] == [sent]
    assert result.messages[0].text == "go"
    assert len(recorder.of(HookFailed)) == (answer in ("text", [7]))


# --- gates ----------------------------------------------------------------------------------------------------


def gate(name, answer):
    kind = type(name, (Plugin,), {"tool_gate": lambda self, context: answer, "name": name})
    return kind()


def allow(*names, **options):
    return Gate(allowed=frozenset(names), **options)


GATES = {
    "no opinion": ([None], ["a", "b"], None),
    "a set of names": ([{"a"}], ["a"], None),
    "intersection": ([allow("a", "b"), allow("b")], ["b"], None),
    "nothing left by required gates": ([allow("a"), allow("b")], [], None),
    "an empty allow-list is no tools": ([allow()], [], None),
    "advisory gates give way to the highest priority": (
        [allow("a", required=False, priority=1), allow("b", required=False, priority=2)],
        ["b"],
        "g1",
    ),
    "required holds, advisory narrows": ([allow("a", "b"), allow("a", required=False)], ["a"], None),
    "a suppressing gate removes weaker advice": (
        [allow("a", required=False, priority=1), allow("b", required=False, priority=5, suppresses=True)],
        ["b"],
        None,
    ),
    "nonsense allows nothing": (["a"], [], None),
    "names that are no names allow nothing": ([{1}], [], None),
    "a gate without a set allows nothing": ([Gate(allowed="ab")], [], None),
}


@pytest.mark.parametrize("case", GATES)
@virtual
async def test_gates_decide_which_tools_the_model_sees(case):
    answers, wanted, winner = GATES[case]
    recorder = EventRecorder()
    with ScriptedModel([call("a"), "ok"]) as model:
        plugins = [gate(f"g{number}", answer) for number, answer in enumerate(answers)]
        agent = Agent(model=model, tools=[a, b], limits=LIMITS, plugins=plugins, event_sink=recorder)
        result = await agent.run("go")
    assert sorted(model.requests[0].tools) == wanted
    assert result.messages[2].kind == (None if "a" in wanted else "hidden_tool")
    assert bool(recorder.of(GateApplied)) == (wanted != ["a", "b"])
    assert [event.winner for event in recorder.of(GateConflictResolved)][:1] == ([winner] if winner else [])


@virtual
async def test_a_price_with_tiers_is_found_and_charged():
    pytest.importorskip("genai_prices")
    with ScriptedModel([say("ok", usage=Usage(1_000, 100))], name="gemini-2.5-pro") as model:
        result = await Agent(model=model, limits=Limits(max_cost="1"), system_prompt="x" * 3_000).run("go")
    assert result.outcome is LoopOutcome.DONE
    assert 0 < result.cost < 1
