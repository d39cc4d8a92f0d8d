"""Whole runs over real sockets: tools, budgets, cancellation, time limits, retries, one loop after another."""

import asyncio
import json
import time

import msgspec
import pytest

from glidepath import Agent, AgentState, CancelToken, Limits, LoopOutcome, tool
from glidepath.events import AttemptDiscarded, RetryScheduled, StreamChunk
from glidepath.testing import no_leftovers

from .dialects import DIALECTS, Anthropic, Chat, Google, Responses
from .server import Answer, Wire, error, run

every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def ended(dialect, *parts, stop="end"):
    return Answer([*dialect.text(*parts), *dialect.end(stop)])


@every
def test_a_tool_loop_of_several_turns_sends_every_result_next_to_its_call(dialect):
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def loop():
        first = [("c1", "add", '{"a": 1, "b": 2}'), ("c2", "add", '{"a": 30, "b": 4}')]
        answers = [
            Answer([*dialect.text("Adding."), *dialect.calls(*first), *dialect.end("tools")]),
            Answer([*dialect.calls(("c3", "add", '{"a": 3, "b": 34}')), *dialect.end("tools")]),
            ended(dialect, "It is ", "37."),
        ]
        if isinstance(dialect, Anthropic):
            answers[1].chunks = [*dialect.start(), *answers[1].chunks]
        async with Wire(answers) as wire:
            agent = Agent(
                model=dialect.model(wire.url), tools=[add], limits=Limits(max_iterations=5, max_tokens=50_000)
            )
            async with no_leftovers(abandoned=["wire-*"]):
                result = await agent.run("sum")
            return result, [request.raw.decode() for request in wire.requests]

    result, bodies = run(loop)
    assert (result.text, result.outcome) == ("It is 37.", LoopOutcome.DONE)
    assert (result.iterations, result.tool_calls) == (3, 3)
    assert result.usage.total == 3 * 52
    assert not result.usage.estimated
    for wanted in ("Adding.", '"34"', '"3"'):
        assert wanted in bodies[1]
    assert '"37"' in bodies[2]
    assert "37" not in bodies[1]


@every
def test_a_call_that_was_cut_never_runs_and_is_asked_for_again_smaller(dialect):
    """G8, on every wire: the arguments break off, or are whole and the reply is not."""
    ran = []

    @tool
    def write(text: str) -> str:
        """Write."""
        ran.append(text)
        return "written"

    cut = '{"text": "all of it"}' if isinstance(dialect, Google) else '{"text": "half of'

    async def loop():
        opening = dialect.start() if isinstance(dialect, Anthropic) else []
        first = Answer([*opening, *dialect.calls(("c1", "write", cut)), *dialect.end("length")])
        async with Wire([first, ended(dialect, "Sorry, here it is.")]) as wire:
            agent = Agent(model=dialect.model(wire.url), tools=[write], limits=Limits(max_iterations=5))
            return await agent.run("write")

    result = run(loop)
    assert ran == []
    assert result.text == "Sorry, here it is."


@every
def test_a_truncated_text_goes_on_and_is_stitched(dialect):
    async def loop():
        async with Wire([ended(dialect, "One, two, ", stop="length"), ended(dialect, "three.")]) as wire:
            agent = Agent(model=dialect.model(wire.url), limits=Limits(max_iterations=5), max_output_tokens=50)
            result = await agent.run("count")
            caps = [json.dumps(request.body) for request in wire.requests]
            return result, caps

    result, bodies = run(loop)
    assert result.text == "One, two, three."
    assert all(": 50" in body for body in bodies)  # a cap that was asked for is sent


@every
def test_a_rate_limit_is_waited_out_as_long_as_it_says(dialect):
    events = []

    async def loop():
        limited = error(429, {"error": {"message": "slow down"}}, retry_after="0.2")
        async with Wire([limited, ended(dialect, "Thanks.")]) as wire:
            agent = Agent(model=dialect.model(wire.url), limits=Limits(max_iterations=2), event_sink=events.append)
            begun = time.monotonic()
            return await agent.run("hi"), time.monotonic() - begun

    result, took = run(loop)
    assert result.text == "Thanks."
    assert took >= 0.2
    assert next(event for event in events if type(event) is RetryScheduled).delay >= 0.2


@every
def test_a_stalled_stream_is_given_up_and_its_connection_closed(dialect):
    events = []

    async def loop():
        async with Wire([Answer(dialect.text("Half an answ"), ending="hang")]) as wire:
            agent = Agent(
                model=dialect.model(wire.url),
                limits=Limits(max_iterations=2),
                max_retries=0,
                stall_timeout=0.2,
                event_sink=events.append,
            )
            async with no_leftovers(abandoned=["wire-*"]):
                result = await agent.run("hi")
            async with asyncio.timeout(2):
                await wire.closed.wait()
            return result

    result = run(loop)
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert result.text == "Half an answ"
    assert result.partial
    assert [event for event in events if type(event) is AttemptDiscarded]


@every
def test_a_cancelled_run_closes_its_connection_and_keeps_its_text(dialect):
    async def loop():
        cancel = CancelToken()

        def stop(event):
            if type(event) is StreamChunk and event.text:
                asyncio.get_running_loop().call_soon(cancel.cancel)

        async with Wire([Answer(dialect.text("So far"), ending="hang")]) as wire:
            agent = Agent(model=dialect.model(wire.url), limits=Limits(max_iterations=2), event_sink=stop)
            async with no_leftovers(abandoned=["wire-*"]):
                result = await agent.run("hi", cancel=cancel)
            async with asyncio.timeout(2):
                await wire.closed.wait()
            return result

    result = run(loop)
    assert (result.outcome, result.text) == (LoopOutcome.CANCELLED, "So far")


@every
def test_a_reply_that_outgrows_its_budget_is_cut_kept_and_its_connection_closed(dialect):
    words = ["Lorem ipsum dolor sit amet. " * 20] * 200

    async def loop():
        async with Wire([Answer(dialect.text(*words), ending="hang"), ended(dialect, "In short: lorem.")]) as wire:
            agent = Agent(
                model=dialect.model(wire.url),
                limits=Limits(max_tokens=9_000, landing_tokens=600),
                min_output_tokens=64,
            )
            async with no_leftovers(abandoned=["wire-*"]):
                result = await agent.run("talk")
            async with asyncio.timeout(2):
                await wire.closed.wait()
            return result

    result = run(loop)
    assert result.state is AgentState.BUDGET_EXCEEDED
    assert "Lorem ipsum" in result.text or "In short" in result.text
    assert result.usage.total <= 9_000


@every
def test_a_deadline_stops_a_stream(dialect):
    async def loop():
        async with Wire([Answer(dialect.text("So far"), ending="hang")] * 2) as wire:
            agent = Agent(model=dialect.model(wire.url), limits=Limits(timeout=0.4, landing_seconds=0.1))
            return await agent.run("hi")

    result = run(loop)
    assert result.state is AgentState.TIMED_OUT
    assert result.text == "So far"


@every
def test_one_agent_runs_in_one_loop_after_another(dialect):
    """Connections belong to a loop: `run_sync` makes a new one every time."""
    import threading

    ready, stop = threading.Event(), threading.Event()
    box = {}

    def serve():
        async def main():
            async with Wire([ended(dialect, "Hello.")] * 4) as wire:
                box["url"] = wire.url
                ready.set()
                await asyncio.to_thread(stop.wait)
                box["requests"] = len(wire.requests)

        asyncio.run(main())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        ready.wait(5)
        agent = Agent(model=dialect.model(box["url"]), limits=Limits(max_iterations=2))
        assert [agent.run_sync("hi").text for _ in range(3)] == ["Hello."] * 3
    finally:
        stop.set()
        thread.join()
    assert box["requests"] == 3


@pytest.mark.parametrize("dialect", [Chat(), Responses(), Anthropic()], ids=lambda dialect: dialect.name)
def test_thinking_is_shown_apart_from_the_answer(dialect):
    thoughts = {
        "openai-chat": lambda: [Chat.chunk({"reasoning": "Hm."})],
        "openai-responses": lambda: [dialect.say("response.reasoning_text.delta", delta="Hm.")],
        "anthropic": lambda: [
            *dialect.start(),
            *dialect.block(9, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "Hm."}),
        ],
    }[dialect.name]()
    chunks = []

    async def loop():
        async with Wire([Answer([*thoughts, *dialect.text("Yes."), *dialect.end()])]) as wire:
            model = dialect.model(wire.url)
            agent = Agent(model=model, limits=Limits(max_iterations=2), event_sink=chunks.append)
            return await agent.run("hi")

    assert run(loop).text == "Yes."
    shown = [(event.text, event.thinking) for event in chunks if type(event) is StreamChunk and event.text]
    assert shown == [("Hm.", True), ("Yes.", False)]


def test_servers_that_number_every_call_zero_or_not_at_all_lose_none():
    chat = Chat()

    def call(call_id, arguments, **index):
        function = {"name": "add", "arguments": arguments}
        return chat.chunk({"tool_calls": [{**index, "id": call_id, "type": "function", "function": function}]})

    got = []

    @tool
    def add(a: int) -> str:
        """Add."""
        got.append(a)
        return "ok"

    async def loop(**index):
        first = Answer([call("x", '{"a": 1}', **index), call("y", '{"a": 2}', **index), *chat.end("end")])
        async with Wire([first, ended(chat, "done")]) as wire:
            agent = Agent(model=chat.model(wire.url), tools=[add], limits=Limits(max_iterations=3))
            return await agent.run("go")

    assert run(lambda: loop(index=0)).text == "done"
    assert run(loop).text == "done"
    assert got == [1, 2, 1, 2]


def test_a_thousand_words_of_thought_and_a_model_priced_by_its_name_stay_within_money():
    """A money limit with the price from the price list: what is charged is what the usage says."""

    async def loop():
        async with Wire([ended(Anthropic(), "Hello.")]) as wire:
            agent = Agent(model=Anthropic().model(wire.url), limits=Limits(max_cost="0.50"))
            return await agent.run("hi")

    result = run(loop)
    assert result.cost is not None
    # 32 fresh tokens at 3, 8 read from the cache at 0.30, 12 out at 15 dollars per million
    assert float(result.cost) == pytest.approx((32 * 3 + 8 * 0.3 + 12 * 15) / 1e6)


class Weather(msgspec.Struct):
    city: str
    degrees: float
    note: str = ""


@every
def test_an_output_type_is_asked_of_the_provider_itself_and_decoded(dialect):
    async def loop():
        async with Wire([ended(dialect, '{"city": "Oslo", ', '"degrees": -3.5, "note": ""}')]) as wire:
            agent = Agent(model=dialect.model(wire.url), limits=Limits(max_iterations=3), output_type=Weather)
            return await agent.run("weather"), json.dumps(wire.requests[0].body)

    result, body = run(loop)
    assert result.output == Weather("Oslo", -3.5)
    field = {"openai-chat": "response_format", "openai-responses": "format", "anthropic": "output_config"}
    assert field.get(dialect.name, "responseJsonSchema") in body
    assert "degrees" in body
