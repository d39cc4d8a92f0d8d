"""What a hostile user or network does: cancel at every step, close at every delta, many at once, hostile events."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath import Agent, Limits, LoopOutcome
from glidepath.errors import ModelError
from glidepath.messages import AssistantMessage, ReasoningBlock, TextBlock, ToolCall, UserMessage
from glidepath.models import Faults, ModelRequest
from glidepath.models.anthropic import _Reader as AnthropicReader
from glidepath.models.content import iterate_pieces
from glidepath.models.exchange import _read_guarded
from glidepath.models.openai_chat import ChatReader
from glidepath.models.openai_responses import _Reader as ResponsesReader
from glidepath.models.strictness import make_strict
from glidepath.testing import no_leftovers

from .dialects import DIALECTS
from .server import Answer, Wire, run

every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
REQUEST = ModelRequest(messages=[UserMessage("hello")])


@every
def test_a_cancel_at_any_step_leaves_nothing_and_the_next_call_works(dialect):
    whole = Answer([*dialect.text("one", "two", "three"), *dialect.end()])

    async def collect(model):
        return [delta async for delta in model.stream(REQUEST)]

    async def cancel_everywhere():
        async with Wire([whole] * 400) as wire:
            model = dialect.model(wire.url)
            await collect(model)  # lazy imports and the first connection
            finished = 0
            for steps in range(0, 48, 3):
                async with no_leftovers(abandoned=["wire-*"]):
                    task = asyncio.create_task(collect(model))
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    try:
                        await task
                        finished += 1
                    except asyncio.CancelledError:
                        pass
            assert len(await collect(model)) >= 4
            await model.aclose()
            await wire.left()
            return finished

    run(cancel_everywhere, seconds=60)


@every
def test_closing_after_any_delta_leaves_nothing(dialect):
    whole = Answer([*dialect.text("one", "two", "three"), *dialect.end()])

    async def close_everywhere():
        async with Wire([whole] * 20) as wire:
            model = dialect.model(wire.url)
            for taken in range(6):
                stream = model.stream(REQUEST)
                async with no_leftovers(abandoned=["wire-*"]):
                    for _ in range(taken):
                        if await anext(stream, None) is None:
                            break
                    await stream.aclose()
            await model.aclose()
            await wire.left()

    run(close_everywhere, seconds=60)


@every
def test_many_runs_share_one_model(dialect):
    async def many():
        def scripted(request):
            name = json.dumps(request.body).split("run number ")[1].split('"')[0].split(".")[0]
            return Answer([*dialect.text(f"answer {name}"), *dialect.end()])

        async with Wire([scripted] * 60) as wire:
            agent = Agent(model=dialect.model(wire.url), limits=Limits(max_iterations=2))
            async with no_leftovers(abandoned=["wire-*"]):
                results = await asyncio.gather(*[agent.run(f"run number {number}.") for number in range(60)])
            assert [result.text for result in results] == [f"answer {number}" for number in range(60)]
            assert {result.outcome for result in results} == {LoopOutcome.DONE}

    run(many, seconds=60)


# --- events out of nowhere ------------------------------------------------------------------------------------

WORDS = [
    "type", "index", "delta", "choices", "content", "tool_calls", "function", "arguments", "finish_reason", "usage",
    "content_block", "content_block_delta", "content_block_start", "content_block_stop", "message_start",
    "message_delta",
    "message_stop", "text_delta", "input_json_delta", "thinking_delta", "signature_delta", "stop_reason", "message",
    "response.output_text.delta", "response.output_item.added", "response.output_item.done", "response.completed",
    "response.failed", "response.incomplete", "output_index", "item", "function_call", "reasoning", "call_id", "name",
    "response", "error", "code", "reasoning_details", "reasoning_content", "id", "text", "tool_use", "thinking",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.sampled_from(WORDS) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.parametrize("reader", [ChatReader, ResponsesReader, AnthropicReader])
@given(events=st.lists(JSON, max_size=6))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_event_makes_a_reader_raise_anything_but_a_model_error(reader, events):
    faults = Faults("x", [], "")
    made = reader(REQUEST, faults, set())
    try:
        for data in events:
            _read_guarded(made.read, faults, "", json.dumps(data))
        _read_guarded(made.finish, faults)
    except ModelError:
        pass


@given(
    text=st.text(max_size=30),
    calls=st.integers(0, 4),
    items=st.lists(st.tuples(st.integers(-2, 40), st.integers(-2, 6)), max_size=4),
)
def test_reasoning_anywhere_loses_no_text_and_no_call(text, calls, items):
    """The place of an item may be nonsense (another version wrote it): all else is still sent once, and in order."""
    made = [ToolCall(f"c{number}", "f", {}) for number in range(calls)]
    reasoning = [
        ReasoningBlock(opaque=json.dumps({"at": list(place), "item": {"n": number}}), vendor="v")
        for number, place in enumerate(items)
    ]
    message = AssistantMessage((*reasoning, TextBlock(text), *made))
    found = list(iterate_pieces(message, "v"))
    assert "".join([piece for kind, piece in found if kind == "text"]) == text
    assert [piece for kind, piece in found if kind == "call"] == made
    assert [piece["n"] for kind, piece in found if kind == "item"] == list(range(len(items)))


@pytest.mark.parametrize(
    "opaque", ["", "{", "7", "[]", '{"at": 5}', '{"at": [0], "item": {}}', '{"at": ["a", 0], "item": {}}']
)
def test_reasoning_that_somebody_else_wrote_is_left_out(opaque):
    message = AssistantMessage((ReasoningBlock(opaque=opaque, vendor="v"), TextBlock("hi")))
    assert list(iterate_pieces(message, "v")) == [("text", "hi")]


@given(schema=JSON)
@settings(max_examples=100)
def test_any_schema_can_be_looked_at(schema):
    make_strict(schema)
