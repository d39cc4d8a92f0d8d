"""Streams that try to never end: deltas with nothing in them, calls without end, deltas that hold no text at all."""

import asyncio
from itertools import count

import pytest

from glidepath import Agent, AgentState, CancelToken, Limits, LoopOutcome, Usage, tool
from glidepath.kernel.model_call import Attempt
from glidepath.messages import ReasoningDelta, StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from glidepath.sessions import MemoryStore, read_journal
from glidepath.testing import no_leftovers, transcript_errors, virtual
from glidepath.values import SATURATED

STEPS = 200_000  # far more than any budget here pays for


class SubText(TextDelta, frozen=True):
    """A subclass takes another way through the delta loop."""


class Endless:
    """Streams what `make` gives, for ever and without a pause; its landing call answers."""

    name = "endless"

    def __init__(self, make, *, pause=False):
        self.make = make
        self.pause = pause
        self.sent = 0

    async def stream(self, request):
        if not request.tools:
            yield TextDelta("landed")
            yield StreamEnd("end_turn", usage=Usage(100, 5))
            return
        for number in count():
            self.sent += 1
            assert self.sent < STEPS, "nothing has stopped it"
            if self.pause:
                await asyncio.sleep(0)
            yield self.make(number)


@tool
async def act(n: int = 0) -> str:
    return f"done {n}"


NOTHING = {
    "text": lambda _: TextDelta(""),
    "a subclass of text": lambda _: SubText(""),
    "thinking": lambda _: ThinkingDelta(""),
    "reasoning": lambda _: ReasoningDelta("", "", "x"),
    "fragments of one call": lambda _: ToolCallDelta(0, "c", "act", ""),
    "new calls": lambda number: ToolCallDelta(number, f"c{number}", "act", ""),
    "new calls with arguments": lambda number: ToolCallDelta(number, f"c{number}", "act", "{}"),
    "one letter of thinking": lambda _: ThinkingDelta("x"),
}


@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.parametrize("kind", NOTHING)
@virtual
async def test_g4_a_reply_of_deltas_with_nothing_in_them_ends_by_its_budget(kind, pause):
    model = Endless(NOTHING[kind], pause=pause)
    async with no_leftovers():
        result = await Agent(model=model, tools=[act], limits=Limits(max_tokens=20_000)).run("go")
    assert (result.state, result.outcome) == (AgentState.BUDGET_EXCEEDED, LoopOutcome.WRAPPED_UP)
    assert result.text == "landed"
    assert result.tool_calls == 0
    assert result.usage.total <= 20_000
    assert model.sent <= 20_000
    assert transcript_errors(result.messages) == []


@pytest.mark.parametrize("kind", NOTHING)
@virtual
async def test_a_reply_of_nothing_ends_far_beyond_its_output_cap(kind):
    model = Endless(NOTHING[kind])
    limits = Limits(max_iterations=3)
    result = await Agent(model=model, tools=[act], limits=limits, max_output_tokens=1000).run("go")
    assert result.outcome in (LoopOutcome.CUT_OFF, LoopOutcome.WRAPPED_UP)
    assert model.sent < 20_000


@pytest.mark.parametrize("kind", NOTHING)
@virtual
async def test_g7_a_stream_of_nothing_that_never_pauses_lets_a_cancel_through(kind):
    cancel = CancelToken()
    model = Endless(NOTHING[kind])
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, cancel.cancel)
    result = await Agent(model=model, tools=[act], limits=Limits(max_iterations=3)).run("go", cancel=cancel)
    assert result.outcome is LoopOutcome.CANCELLED
    assert model.sent < 5_000


@virtual
async def test_calls_are_counted_once_when_the_reply_is_charged():
    class Honest(Endless):
        async def stream(self, request):
            for number in range(10):
                yield ToolCallDelta(number, f"c{number}", "act", "{}")
            yield StreamEnd("max_tokens")

    result = await Agent(model=Honest(None), tools=[act], limits=Limits(max_tokens=20_000, max_iterations=1)).run("go")
    calls = next(message for message in result.messages if message.role == "assistant")
    assert calls.usage.output == 10 * (8 + 1)


WRONG = {
    "text None": TextDelta(None),
    "text int": TextDelta(7),
    "text bytes": TextDelta(b"x"),
    "thinking None": ThinkingDelta(None),
    "thinking bytes": ThinkingDelta(b"x"),
    "reasoning None": ReasoningDelta(None, "", "x"),
    "opaque dict": ReasoningDelta("x", {"a": 1}, "x"),
    "opaque bytes": ReasoningDelta("x", b"x", "x"),
    "opaque surrogate": ReasoningDelta("\ud800", "\ud800", "x"),
    "vendor None": ReasoningDelta("x", "", None),
    "arguments None": ToolCallDelta(0, "c", "act", None),
    "arguments dict": ToolCallDelta(0, "c", "act", {"n": 1}),
    "name None": ToolCallDelta(0, "c", None, "{}"),
    "id None": ToolCallDelta(0, None, "act", "{}"),
    "id int": ToolCallDelta(0, 5, "act", "{}"),
    "index None": ToolCallDelta(None, "c", "act", "{}"),
    "index list": ToolCallDelta([], "c", "act", "{}"),
    "index str": ToolCallDelta("0", "c", "act", "{}"),
}


@pytest.mark.parametrize("beside", [None, TextDelta("hello"), ToolCallDelta(0, "k", "act", '{"n":1}')])
@pytest.mark.parametrize("kind", WRONG)
@virtual
async def test_a_delta_that_holds_something_else_is_the_models_fault_and_is_charged(kind, beside):
    class Wrong:
        name = "wrong"
        calls = 0

        async def stream(self, request):
            self.calls += 1
            if beside is not None:
                yield beside
            yield WRONG[kind]
            yield StreamEnd("end_turn", usage=Usage(100, 50))

    store, limits = MemoryStore(), Limits(max_iterations=3, max_tokens=50_000)
    agent = Agent(model=Wrong(), tools=[act], limits=limits, max_retries=1, store=store)
    async with no_leftovers():
        result = await agent.run("go")
    assert result.cause is None or result.cause.source not in ("internal", "store"), result.cause
    assert transcript_errors(result.messages) == []
    assert (await read_journal(store, result.session_id)).folded.result == result


class Thorn:
    """Raises whatever is done to it."""

    def __repr__(self):
        return "Thorn()"  # no address: the test has the same name in every process

    def __bool__(self):
        raise ZeroDivisionError

    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __add__ = __int__ = __index__ = __bool__
    __hash__ = None


@pytest.mark.parametrize("part", ["input", "output", "cache_read", "cache_write", "reasoning", "estimated"])
@pytest.mark.parametrize(
    "figure",
    [None, True, False, 0.0, "", "7", -1, 1.5, float("inf"), float("nan"), 10**400, -(10**400), [], Thorn()],
    ids=repr,
)
@virtual
async def test_g12_figures_of_any_type_are_charged_and_written(figure, part):
    class Lies:
        name = "lies"

        async def stream(self, request):
            yield TextDelta("some text that is a little longer than a word")
            figures = {"input": 50, "output": 12, part: figure}
            yield StreamEnd("end_turn", usage=Usage(**figures))

    store, limits = MemoryStore(), Limits(max_iterations=3, max_tokens=5_000, max_cost="1")
    agent = Agent(model=Lies(), limits=limits, store=store, prices={"lies": ("1", "2")})
    result = await agent.run("go")
    assert result.outcome is LoopOutcome.DONE
    most = (
        SATURATED if type(figure) is int and figure > 10**9 and part in ("input", "output") else 1_000
    )  # the higher bill is believed
    assert all(type(count) is int and 0 <= count <= most for count in (result.usage.input, result.usage.output))
    assert type(result.usage.estimated) is bool
    assert result.usage.total > 0
    assert (await read_journal(store, result.session_id)).folded.result == result


def test_an_attempt_that_was_let_go_of_counts_what_has_come():
    attempt = Attempt(parts=["a", "", "bcdefgh"])
    attempt.abandon()
    assert attempt.size == 4 + 4 + 7
