"""A stream that does not end with its reply: what comes after the terminal event is bounded, and so is closing."""

import asyncio

import pytest

from glidepath import Agent, CancelToken, Limits, LoopOutcome, Usage
from glidepath.kernel.model_call import MOST_AFTER_END
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta
from glidepath.testing import no_leftovers, virtual

LIMITS = Limits(max_iterations=3, timeout=60)
END = StreamEnd("end_turn", Usage(input=5, output=2))
MUCH = 5_000


class Flood:
    """Sends its answer, its terminal event, and then deltas without a pause."""

    name = "flood"

    def __init__(self, delta, most=MUCH):
        self.delta = delta
        self.most = most
        self.sent = 0
        self.closed = False

    async def stream(self, request):
        try:
            yield TextDelta("ANSWER")
            yield END
            while self.sent < self.most:
                self.sent += 1
                yield self.delta
            raise AssertionError("nobody has stopped it")
        finally:
            self.closed = True


FLOODS = {
    "text": TextDelta("more "),
    "calls": ToolCallDelta(0, "c", "act", "{}"),
    "ends": END,
    "nonsense": object(),
}


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("tags", [False, True])
@virtual
async def test_g7_deltas_after_the_end_are_dropped_and_the_stream_is_closed(kind, tags):
    model = Flood(FLOODS[kind])
    async with no_leftovers():
        result = await Agent(model=model, limits=LIMITS, thinking_tags=tags).run("go")
    assert (result.outcome, result.text, result.usage.output) == (LoopOutcome.DONE, "ANSWER", 2)
    assert model.sent <= MOST_AFTER_END + 2
    assert model.closed


@virtual
async def test_g7_the_event_loop_turns_while_deltas_come_after_the_end():
    model, token = Flood(TextDelta("more ")), CancelToken()
    turns = 0

    async def beside():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(beside())
    await Agent(model=model, limits=LIMITS).run("go", cancel=token)
    task.cancel()
    assert turns >= MOST_AFTER_END


@virtual
async def test_a_few_deltas_after_the_end_are_no_reason_to_cut_the_connection():
    ended = []

    class Chatty:
        name = "chatty"

        async def stream(self, request):
            yield TextDelta("ANSWER")
            yield END
            yield TextDelta("late")
            ended.append("by itself")

    result = await Agent(model=Chatty(), limits=LIMITS).run("go")
    assert (result.text, ended) == ("ANSWER", ["by itself"])


class Sticky:
    """An endless reply, or a complete one that floods; its `aclose` hangs, and obeys a cancellation or does not."""

    name = "sticky"

    def __init__(self, *, ends, obeys):
        self.ends = ends
        self.obeys = obeys

    def stream(self, request):
        self.started = False
        return self

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.ends and self.started:
            return END
        self.started = True
        return TextDelta("ANSWER " if self.ends else "word " * 400)

    async def aclose(self):
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                if self.obeys:
                    raise


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("ends", [True, False])
@virtual
async def test_g7_a_stream_whose_close_hangs_costs_a_second_at_most(ends, obeys):
    limits = Limits(max_iterations=3, max_tokens=20_000)
    result = await Agent(model=Sticky(ends=ends, obeys=obeys), limits=limits, landing="off").run("go")
    assert result.elapsed <= 1
    assert result.outcome is (LoopOutcome.DONE if ends else LoopOutcome.CUT_OFF)
    assert result.text.startswith("ANSWER" if ends else "word")
    assert [work.kind for work in result.abandoned] == ([] if obeys else ["stream"])
    assert result.usage.total <= 20_000
    await asyncio.sleep(3)


@virtual
async def test_a_cut_reply_is_kept_when_closing_its_stream_raises():
    class Broken(Sticky):
        async def aclose(self):
            raise OSError("the socket is gone")

    limits = Limits(max_iterations=3, max_tokens=20_000)
    result = await Agent(model=Broken(ends=False, obeys=True), limits=limits, landing="off", max_retries=0).run("go")
    assert (result.outcome, result.cause.source) == (LoopOutcome.CUT_OFF, "TokenBudgetConstraint")


@virtual
async def test_g7_a_cancel_ends_the_wait_for_a_stream_that_does_not_end():
    class Open:
        name = "open"

        async def stream(self, request):
            yield TextDelta("ANSWER")
            yield END
            await asyncio.sleep(600)

    token = CancelToken()
    asyncio.get_running_loop().call_later(0.1, token.cancel)
    result = await Agent(model=Open(), limits=LIMITS).run("go", cancel=token)
    assert (result.outcome, result.text, result.elapsed) == (LoopOutcome.CANCELLED, "ANSWER", 0.1)
