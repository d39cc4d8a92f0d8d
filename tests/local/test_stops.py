"""Stop means stop, with a real model: budget, deadline and cancel end a stream, and the server stops computing."""

import asyncio
import time

import pytest

from glidepath import Agent, AgentState, CancelToken, Limits, LoopOutcome
from glidepath.events import StreamChunk
from glidepath.models import LocalModel
from glidepath.testing import no_leftovers

from .talk import ENDLESS, begun, busy, collect, request, soon

pytestmark = pytest.mark.process
LONG = "Tell me a long story."


@pytest.fixture
def writer(model):
    """An agent whose model writes on and on."""

    def make(**limits):
        limits = {"max_iterations": 1, **limits}
        settings = {"extras": ENDLESS, "temperature": 0.0, "landing": "off", "min_output_tokens": 16}
        return Agent(model=model, limits=Limits(**limits), **settings)

    yield make
    assert soon(lambda: busy(model) == 0), "the server still writes"


async def until_written(stream, pieces=3):
    async for event in stream:
        pieces -= isinstance(event, StreamChunk)
        if not pieces:
            return


def test_g7_cancel_ends_a_stream_and_the_generation(writer, model):
    async def scenario():
        token = CancelToken()
        async with no_leftovers(abandoned=["asyncio_*"]), writer().stream(LONG, cancel=token) as stream:
            await until_written(stream)
            assert await asyncio.to_thread(busy, model) == 1
            began = time.monotonic()
            token.cancel("enough")
            async for _ in stream:
                pass
            return stream.result, time.monotonic() - began

    asyncio.run(collect(model, request(max_output_tokens=1)))  # the server is there, and is none of the leftovers
    result, took = asyncio.run(scenario())
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert result.text
    assert took < 1.0
    assert soon(lambda: busy(model) == 0, 2.0)


def test_g7_a_deadline_ends_a_stream_and_the_generation(writer):
    result = asyncio.run(writer(timeout=1.5).run(LONG))
    assert result.state is AgentState.TIMED_OUT
    assert result.text
    assert result.elapsed < 3


def test_a_token_budget_ends_a_stream_and_the_generation(writer):
    result = asyncio.run(writer(max_tokens=160).run(LONG))
    assert result.state is AgentState.BUDGET_EXCEEDED
    assert result.text
    assert result.usage.estimated, "it was cut while it wrote"
    assert result.usage.total <= 160 + 4  # by our own estimate of the bytes, which the last piece may cross


def test_closing_the_iterator_stops_the_generation(model):
    async def scenario():
        stream = model.stream(request(LONG, max_output_tokens=1000, extras=ENDLESS))
        await anext(stream)
        working = await asyncio.to_thread(busy, model)
        await stream.aclose()
        return working

    assert asyncio.run(scenario()) == 1
    assert soon(lambda: busy(model) == 0, 2.0)


def test_a_stream_nobody_closes_ends_with_its_loop(model):
    async def scenario():
        stream = model.stream(request(LONG, max_output_tokens=1000, extras=ENDLESS))
        await anext(stream)
        return stream  # kept alive: only the loop's end closes it

    kept = asyncio.run(scenario())
    assert soon(lambda: busy(model) == 0, 2.0)
    del kept


def test_cancelling_while_the_server_starts_is_prompt_and_the_start_goes_on(weights):
    with LocalModel(weights, threads=1, context_window=512) as fresh:

        async def scenario():
            task = asyncio.create_task(collect(fresh, request(max_output_tokens=2)))
            await begun(fresh)
            began = time.monotonic()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            return time.monotonic() - began

        assert asyncio.run(scenario()) < 0.5
        starting = fresh.pid
        assert asyncio.run(collect(fresh, request(max_output_tokens=2)))
        assert fresh.pid == starting
