"""Requests that a vendor accepts: combinations that are refused are never sent, and odd names are mapped."""

import json
from typing import ClassVar

import openai
import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, Limits, LoopOutcome, Tool
from glidepath.errors import TransientError
from glidepath.messages import AssistantMessage, StopReason, ToolCall, ToolResultMessage, UserMessage
from glidepath.models import AnthropicModel, ModelRequest, OpenAIChatModel, ToolNames, ToolSpec, make_legal_name

from .dialects import DIALECTS, KEY, Anthropic, Chat
from .server import Answer, Wire, run

every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
SPEC = ToolSpec("search", "Search.", {"type": "object", "properties": {}})
HI = UserMessage("hi")
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig"}


def opaque(item, text=0, calls=0):
    return json.dumps({"at": [text, calls], "item": item})


async def sent(dialect, request, **keywords):
    async with Wire([Answer([*dialect.text("ok"), *dialect.end()])]) as wire:
        model = dialect.model(wire.url, **keywords)
        async for _ in model.stream(request):
            pass
        await model.aclose()
        return wire.requests[0].body


def anthropic_body(*, name="claude-sonnet-4-5", **fields):
    class Named(Anthropic):
        def model(self, url, **keywords):
            return AnthropicModel(name, base_url=url, api_key=KEY)

    return run(lambda: sent(Named(), ModelRequest(**{"messages": [HI], "reasoning": "high", **fields})))


# --- Anthropic: thinking ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["claude-sonnet-4-5", "claude-opus-4-8"])
@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"tools": (SPEC,)}, True),
        ({"tools": (SPEC,), "tool_choice": "none"}, True),
        ({"tools": (SPEC,), "tool_choice": "required"}, False),
        ({"tools": (SPEC,), "tool_choice": "search"}, False),
        ({"temperature": 1}, True),
        ({"temperature": 1.0}, True),
        ({"temperature": 0.2}, False),
        ({"temperature": 0}, False),
    ],
)
def test_thinking_is_left_out_where_anthropic_refuses_it(name, fields, thinks):
    body = anthropic_body(name=name, **fields)
    thinks = thinks or (name == "claude-opus-4-8" and "temperature" in fields)  # it is sent none
    assert (body["thinking"]["type"] != "disabled") is thinks
    kept = fields.get("temperature") if name == "claude-sonnet-4-5" else None
    assert body.get("temperature") == kept, "what the person set stays, where the model takes it"
    if "tool_choice" in fields:
        assert body["tool_choice"]["type"] in ("any", "tool", "none")


def loop(*items):
    from glidepath.messages import ReasoningBlock

    blocks = [ReasoningBlock(opaque=opaque(item), vendor="anthropic") for item in items]
    call = ToolCall("a", "search", {})
    return [HI, AssistantMessage((*blocks, call)), ToolResultMessage("a", "search", "found")]


def test_a_fallback_in_the_middle_of_a_tool_loop_does_not_think():
    """Its last turn begins with the call of another vendor's model, which is refused when thinking is on."""
    assert anthropic_body(messages=loop(), tools=(SPEC,))["thinking"] == {"type": "disabled"}
    body = anthropic_body(messages=[*loop(), AssistantMessage("Done."), UserMessage("And now?")], tools=(SPEC,))
    assert body["thinking"]["type"] == "enabled", "the next task may think again"
    assert anthropic_body(messages=loop(SIGNED), tools=(SPEC,))["thinking"]["type"] == "enabled"


def test_adaptive_thinking_takes_a_loop_that_began_without_thoughts():
    body = anthropic_body(name="claude-opus-4-8", messages=loop(), tools=(SPEC,))
    assert body["thinking"]["type"] == "adaptive"


def test_a_request_that_does_not_think_holds_no_thoughts_of_earlier_turns():
    body = anthropic_body(messages=loop(SIGNED), tools=(SPEC,), tool_choice="required")
    assert body["thinking"] == {"type": "disabled"}
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
    body = anthropic_body(messages=loop(SIGNED), tools=(SPEC,))
    assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "tool_use"]


def test_what_was_left_out_is_logged_once(caplog):
    model = AnthropicModel("claude-sonnet-4-5", api_key=KEY)
    request = ModelRequest(messages=[HI], reasoning="high", temperature=0.2)
    model._body(request)
    model._body(request)
    (logged,) = [record.message for record in caplog.records]
    said = "does not think in a request with a temperature other than 1"
    assert logged.startswith(f"AnthropicModel('claude-sonnet-4-5') {said}")


# --- Anthropic: pause_turn ----------------------------------------------------------------------------------------


class Paused(Anthropic):
    stops: ClassVar = {**Anthropic.stops, "pause": "pause_turn"}


def test_a_paused_turn_is_sent_back_as_it_came_and_continued():
    dialect = Paused()
    used = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"type": "x", "url": "u"}]}
    query = [{"type": "input_json_delta", "partial_json": part} for part in ('{"que', 'ry": "a"}')]
    first = [*dialect.text("Let me search. "), *dialect.block(1, used, *query), *dialect.block(2, found)]
    answers = [
        Answer([*first, *dialect.end("pause")]),
        Answer([*dialect.text("Found it."), *dialect.end()]),
    ]

    async def fly():
        async with Wire(answers) as wire:
            model = dialect.model(wire.url)
            result = await Agent(model=model, limits=Limits(max_iterations=5)).run("Search for a.")
            await model.aclose()
            return result, [request.body for request in wire.requests]

    result, bodies = run(fly)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "Let me search. Found it.")
    assert [m.stop_reason for m in result.messages if m.role == "assistant"] == [
        StopReason.PAUSE_TURN,
        StopReason.END_TURN,
    ]
    assert bodies[1]["messages"][-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "Let me search. "}, {**used, "input": {"query": "a"}}, found],
    }


def test_a_turn_that_is_paused_for_ever_is_bounded_by_the_turn_limit():
    dialect = Paused()

    async def fly():
        answer = Answer([*dialect.text("Wait. "), *dialect.end("pause")])
        async with Wire([answer] * 10) as wire:
            model = dialect.model(wire.url)
            result = await Agent(model=model, limits=Limits(max_iterations=4)).run("Search.")
            await model.aclose()
            return result

    result = run(fly)
    assert (result.iterations, result.outcome) == (4, LoopOutcome.WRAPPED_UP)
    assert "Wait." in result.text


# --- Azure --------------------------------------------------------------------------------------------------------


def chat_body(model, cap=500):
    return model._body(ModelRequest(messages=[HI], max_output_tokens=cap))


def test_azure_takes_the_cap_under_its_new_name():
    client = openai.AsyncAzureOpenAI(
        api_key="k", api_version="2025-04-01-preview", azure_endpoint="https://x.openai.azure.com"
    )
    body = chat_body(OpenAIChatModel("my-deployment", client=client))
    assert (body["max_completion_tokens"], "max_tokens" in body) == (500, False)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("gpt-5-mini", "max_completion_tokens"),
        ("openai/o4-mini", "max_completion_tokens"),
        ("openai/gpt-5", "max_completion_tokens"),
        ("qwen3", "max_tokens"),
        ("ollama-model", "max_tokens"),
    ],
)
def test_a_reasoning_model_behind_a_gateway_gets_the_cap_it_takes(name, field):
    model = OpenAIChatModel(name, base_url="http://127.0.0.1:9/v1", api_key="k")
    assert field in chat_body(model)


# --- names --------------------------------------------------------------------------------------------------------

ODD = "files/read.text:v2"


@pytest.mark.parametrize("name", ["plain", "with-dash_1", "a" * 64])
def test_a_legal_name_is_sent_as_it_is(name):
    assert make_legal_name(name) == name


def test_names_that_no_provider_takes_become_different_legal_ones():
    names = [ODD, "files/read_text:v2", "files.read.text:v2", "a" * 65, "a" * 66, "9lives", "über", "a/b", "a.b", "a:b"]
    mapped = [make_legal_name(name) for name in names]
    assert len(set(mapped)) == len(names)
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in mapped)
    assert all(name.isascii() and not name[0].isdigit() for name in mapped)


@given(st.lists(st.text(alphabet="ab_/.0f", min_size=1, max_size=12), unique=True, max_size=6))
def test_no_two_names_become_one(names):
    sent_ones = [make_legal_name(name) for name in names]
    sent_ones += [make_legal_name(name) for name in sent_ones if name not in names]
    assert len(set(sent_ones)) == len(sent_ones)


def test_a_tool_cannot_pass_for_another_one():
    impostor = make_legal_name(ODD)
    assert make_legal_name(impostor) != impostor
    names = ToolNames([ODD, impostor])
    assert (names.ours(make_legal_name(ODD)), names.ours(make_legal_name(impostor))) == (ODD, impostor)


@every
def test_an_odd_name_goes_out_legal_and_comes_back_as_ours(dialect):
    called = []

    async def read(**arguments):
        called.append(arguments)
        return "the text"

    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    odd = Tool(name=ODD, description="Read.", parameters=schema, fn=read)
    legal = make_legal_name(ODD)

    async def fly():
        answers = [
            Answer([*dialect.text("Look. "), *dialect.calls(("c1", legal, '{"q":"a"}')), *dialect.end("tools")]),
            Answer([*dialect.text("Done."), *dialect.end()]),
        ]
        async with Wire(answers) as wire:
            model = dialect.model(wire.url)
            agent = Agent(model=model, tools=[odd], limits=Limits(max_iterations=5), tool_choice=ODD)
            result = await agent.run("Read it.")
            await model.aclose()
            return result, [request.raw.decode() for request in wire.requests]

    result, bodies = run(fly)
    assert (result.outcome, called) == (LoopOutcome.DONE, [{"q": "a"}])
    assert [call.name for m in result.messages if m.role == "assistant" for call in m.tool_calls] == [ODD]
    for body in bodies:
        assert ODD not in body
        assert legal in body
    assert bodies[1].count(legal) >= 3, "as a definition, as the choice and in the history"


# --- a line that breaks -------------------------------------------------------------------------------------------


@every
def test_malformed_json_in_a_good_answer_is_tried_again(dialect):
    async def ask():
        async with Wire([Answer([b'{"choices": [{"delta'], kind="application/json")]) as wire:
            model = dialect.model(wire.url)
            try:
                async for _ in model.stream(ModelRequest(messages=[HI])):
                    pass
            finally:
                await model.aclose()

    with pytest.raises(TransientError):
        run(ask)


def test_a_whole_answer_that_is_not_a_stream_is_still_refused():
    from glidepath.errors import RejectedError

    async def ask():
        async with Wire([Answer([b'{"choices": []}'], kind="application/json")]) as wire:
            model = Chat().model(wire.url)
            try:
                async for _ in model.stream(ModelRequest(messages=[HI])):
                    pass
            finally:
                await model.aclose()

    with pytest.raises(RejectedError, match="instead of an event stream"):
        run(ask)
