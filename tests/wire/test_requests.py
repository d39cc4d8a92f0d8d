"""What each adapter sends: the request bodies, field by field."""

import base64
import json

import anthropic
import openai
import pytest

from glidepath import Agent, Limits, ProtocolPolicy, tool
from glidepath.errors import RejectedError, TransientError
from glidepath.messages import (
    AssistantMessage,
    ImageBlock,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from glidepath.models import (
    AnthropicModel,
    GoogleModel,
    ModelRequest,
    OpenAIChatModel,
    OpenAIResponsesModel,
    ToolSpec,
)

from .dialects import DIALECTS, KEY, SIGNATURE, Anthropic, Chat, Google, Responses
from .server import Answer, Wire, error, run

every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
PICTURE = b"\x89PNG picture"
DATA = base64.b64encode(PICTURE).decode()
SPEC = ToolSpec("search", "Search.", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})
HISTORY = [
    SystemMessage("Be brief."),
    UserMessage((TextBlock("What is this?"), ImageBlock("image/png", PICTURE))),
    AssistantMessage(
        (
            ReasoningBlock(opaque='{"at":[0,0],"item":{"foreign":true}}', vendor="elsewhere"),
            ThinkingBlock("hm"),
            TextBlock("Let me look."),
            ToolCall("call_a", "search", {"q": "a"}),
            ToolCall("call_b", "search", {"q": "b"}),
        )
    ),
    ToolResultMessage("call_a", "search", "found", details={"secret": 1}, narration="for people"),
    ToolResultMessage("call_b", "search", (TextBlock("seen"), ImageBlock("image/png", PICTURE)), is_error=True),
    AssistantMessage(()),
    UserMessage("Go on.", internal=True, reason="wind_down"),
]
FULL = ModelRequest(
    system_prompt="You are terse.",
    messages=HISTORY,
    tools=(SPEC,),
    tool_choice="required",
    max_output_tokens=3000,
    temperature=0.5,
    extras={"user": "u1", "store": None},
)


async def sent(dialect, request, **keywords):
    async with Wire([Answer([*dialect.text("ok"), *dialect.end()])]) as wire:
        model = dialect.model(wire.url, **keywords)
        async for _ in model.stream(request):
            pass
        await model.aclose()
        return wire.requests[0]


def body_of(dialect, request, **keywords):
    return run(lambda: sent(dialect, request, **keywords)).body


def nulls(value, path="$"):
    if value is None:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from nulls(inner, f"{path}.{key}")


@every
def test_a_plain_request_sends_no_null_and_no_cap_that_nobody_asked_for(dialect):
    body = body_of(dialect, ModelRequest(messages=[UserMessage("hi")]))
    assert list(nulls(body)) == []
    text = json.dumps(body)
    assert "temperature" not in text
    assert "tool" not in text
    if dialect.name != "anthropic":  # there a cap is obligatory
        assert "tokens" not in text.lower()
    else:
        assert body["max_tokens"] == 64_000


@every
def test_a_full_request_sends_no_null_and_nothing_that_is_for_people(dialect):
    request = run(lambda: sent(dialect, FULL))
    assert list(nulls(request.body)) == []
    assert request.body["user"] == "u1"
    assert "store" not in request.body
    for hidden in ("secret", "for people", "foreign", '"hm"', "wind_down"):
        assert hidden not in request.raw.decode()


def test_chat_completions_body():
    body = body_of(Chat(), FULL)
    assert body == {
        "model": "gpt-test",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "You are terse."},
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
                ],
            },
            {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [
                    {"id": "call_a", "type": "function", "function": {"name": "search", "arguments": '{"q":"a"}'}},
                    {"id": "call_b", "type": "function", "function": {"name": "search", "arguments": '{"q":"b"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "call_a", "content": "found"},
            {"role": "tool", "tool_call_id": "call_b", "content": "seen"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Images from the result of search (call_b):"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
                ],
            },
            {"role": "user", "content": "Go on."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "search", "description": "Search.", "parameters": dict(SPEC.parameters)},
            }
        ],
        "tool_choice": "required",
        "max_tokens": 3000,
        "temperature": 0.5,
        "user": "u1",
    }


def test_responses_body():
    body = body_of(Responses(), FULL)
    assert body == {
        "model": "gpt-5-test",
        "stream": True,
        "instructions": "You are terse.",
        "include": ["reasoning.encrypted_content"],
        "input": [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
                ],
            },
            {"role": "assistant", "content": "Let me look."},
            {"type": "function_call", "call_id": "call_a", "name": "search", "arguments": '{"q":"a"}'},
            {"type": "function_call", "call_id": "call_b", "name": "search", "arguments": '{"q":"b"}'},
            {"type": "function_call_output", "call_id": "call_a", "output": "found"},
            {
                "type": "function_call_output",
                "call_id": "call_b",
                "output": [
                    {"type": "input_text", "text": "seen"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
                ],
            },
            {"role": "user", "content": "Go on."},
        ],
        "tools": [
            {
                "type": "function",
                "name": "search",
                "description": "Search.",
                "parameters": dict(SPEC.parameters),
                "strict": False,
            }
        ],
        "tool_choice": "required",
        "max_output_tokens": 3000,
        "temperature": 0.5,
        "user": "u1",
    }


def test_nothing_is_stored_at_openai():
    assert body_of(Responses(), ModelRequest(messages=[UserMessage("hi")]))["store"] is False


def test_anthropic_body():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
    mark = {"type": "ephemeral"}
    body = body_of(Anthropic(), FULL)
    assert body == {
        "model": "claude-sonnet-4-5",
        "stream": True,
        "max_tokens": 3000,
        "system": [{"type": "text", "text": "You are terse.\n\nBe brief.", "cache_control": mark}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {**image, "cache_control": mark}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "call_a", "name": "search", "input": {"q": "a"}},
                    {"type": "tool_use", "id": "call_b", "name": "search", "input": {"q": "b"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_a", "content": [{"type": "text", "text": "found"}]},
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_b",
                        "content": [{"type": "text", "text": "seen"}, image],
                        "is_error": True,
                    },
                    {"type": "text", "text": "Go on.", "cache_control": mark},
                ],
            },
        ],
        "tools": [{"name": "search", "description": "Search.", "input_schema": dict(SPEC.parameters)}],
        "tool_choice": {"type": "any"},
        "temperature": 0.5,
        "user": "u1",
    }


def test_anthropic_without_its_cache_has_no_marks():
    assert "cache_control" not in json.dumps(body_of(Anthropic(), FULL, cache=False))


def test_gemini_body():
    image = {"inlineData": {"mimeType": "image/png", "data": DATA}}
    unsigned = base64.b64encode(b"skip_thought_signature_validator").decode()
    request = run(lambda: sent(Google(), FULL))
    assert request.path.startswith("/v1beta/models/gemini-3-test:streamGenerateContent")
    assert request.body == {
        "systemInstruction": {"parts": [{"text": "You are terse.\n\nBe brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "What is this?"}, image]},
            {
                "role": "model",
                "parts": [
                    {"text": "Let me look."},
                    {
                        "functionCall": {"id": "call_a", "name": "search", "args": {"q": "a"}},
                        "thoughtSignature": unsigned,
                    },
                    {"functionCall": {"id": "call_b", "name": "search", "args": {"q": "b"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "call_a", "name": "search", "response": {"output": "found"}}},
                    {"functionResponse": {"id": "call_b", "name": "search", "response": {"error": "seen"}}},
                    {"text": "Images from the result of search (call_b):"},
                    image,
                    {"text": "Go on."},
                ],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "search", "description": "Search.", "parametersJsonSchema": dict(SPEC.parameters)}
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {"maxOutputTokens": 3000, "temperature": 0.5},
        "user": "u1",
    }


@pytest.mark.parametrize(
    ("dialect", "choice", "field", "value"),
    [
        (Chat(), "search", "tool_choice", {"type": "function", "function": {"name": "search"}}),
        (Chat(), "none", "tool_choice", "none"),
        (Responses(), "search", "tool_choice", {"type": "function", "name": "search"}),
        (Anthropic(), "search", "tool_choice", {"type": "tool", "name": "search"}),
        (Anthropic(), "none", "tool_choice", {"type": "none"}),
        (Anthropic(), "auto", "tool_choice", {"type": "auto"}),
        (
            Google(),
            "search",
            "toolConfig",
            {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["search"]}},
        ),
        (Google(), "none", "toolConfig", {"functionCallingConfig": {"mode": "NONE"}}),
    ],
)
def test_tool_choice_in_each_protocol(dialect, choice, field, value):
    request = ModelRequest(messages=[UserMessage("hi")], tools=(SPEC,), tool_choice=choice)
    assert body_of(dialect, request)[field] == value


def test_a_landing_without_tools_declares_the_used_ones_to_anthropic_and_forbids_them():
    """A history with calls is refused there when no tools are declared."""
    body = body_of(Anthropic(), ModelRequest(messages=HISTORY))
    assert body["tools"] == [{"name": "search", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


def test_call_ids_of_another_vendor_fit_anthropics_letters():
    history = [
        UserMessage("hi"),
        AssistantMessage((ToolCall("functions.search:0", "search", {}),)),
        ToolResultMessage("functions.search:0", "search", ""),
    ]
    messages = body_of(Anthropic(), ModelRequest(messages=history))["messages"]
    assert messages[1]["content"][0]["id"] == messages[2]["content"][0]["tool_use_id"] == "functions_search_0"


def test_blank_text_is_not_sent_to_anthropic():
    history = [UserMessage(""), AssistantMessage((TextBlock(" \n"),)), UserMessage((TextBlock(""), TextBlock("x")))]
    messages = body_of(Anthropic(), ModelRequest(messages=history), cache=False)["messages"]
    assert messages == [
        {"role": "user", "content": [{"type": "text", "text": "(empty)"}, {"type": "text", "text": "x"}]}
    ]


# --- reasoning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "effort", "cap", "path", "value"),
    [
        (Chat(), "low", None, ["reasoning_effort"], "low"),
        (Responses(), "high", None, ["reasoning"], {"effort": "high"}),
        (Anthropic(), "high", None, ["thinking"], {"type": "enabled", "budget_tokens": 16_384}),
        (Anthropic(), "high", 4000, ["thinking"], {"type": "enabled", "budget_tokens": 2000}),
        (Anthropic(), "high", 600, ["thinking"], {"type": "disabled"}),
        (Anthropic(), "none", None, ["thinking"], {"type": "disabled"}),
        (
            Google(),
            "xhigh",
            None,
            ["generationConfig", "thinkingConfig"],
            {"includeThoughts": True, "thinkingLevel": "high"},
        ),
    ],
)
def test_reasoning_effort_in_each_protocol(dialect, effort, cap, path, value):
    body = body_of(dialect, ModelRequest(messages=[UserMessage("hi")], reasoning=effort, max_output_tokens=cap))
    for key in path:
        body = body[key]
    assert body == value


def test_later_claude_models_take_an_effort_and_earlier_gemini_models_a_budget():
    request = ModelRequest(messages=[UserMessage("hi")], reasoning="medium")

    class Later(Anthropic):
        def model(self, url, **keywords):
            model = super().model(url, **keywords)
            model.name = "claude-opus-5"
            return model

    class Earlier(Google):
        def model(self, url, **keywords):
            model = super().model(url, **keywords)
            model.name = "gemini-2.5-flash"
            return model

    body = body_of(Later(), request)
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "medium"}
    settings = body_of(Earlier(), request)["generationConfig"]
    assert settings == {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8192}}


def reasoning_turns():
    """For each protocol: a first reply with reasoning around text and a call, and how the next body must show it."""
    thinking = {"type": "thinking", "thinking": "step one", "signature": "c2ln\u00e9"}
    redacted = {"type": "redacted_thinking", "data": "b64=="}
    anthropic = Anthropic()
    first = [
        *anthropic.start(),
        *anthropic.block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "step "},
            {"type": "thinking_delta", "thinking": "one"},
            {"type": "signature_delta", "signature": "c2ln\u00e9"},
        ),
        *anthropic.block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Looking."}),
        *anthropic.block(2, redacted),
        *anthropic.block(
            3,
            {"type": "tool_use", "id": "call_a", "name": "look", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"q": "x"}'},
        ),
        *anthropic.end("tools"),
    ]
    use = {"type": "tool_use", "id": "call_a", "name": "look", "input": {"q": "x"}}
    yield (
        anthropic,
        first,
        lambda body: body["messages"][1]["content"],
        [
            thinking,
            {"type": "text", "text": "Looking."},
            redacted,
            use,
        ],
    )

    responses = Responses()
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}]}
    item = {**item, "encrypted_content": "gAAA\u2028=="}
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": "look", "arguments": '{"q": "x"}'}
    first = [
        responses.say("response.output_item.added", output_index=0, item={**item, "status": None}),
        responses.say("response.reasoning_summary_text.delta", output_index=0, delta="s"),
        responses.say("response.output_item.done", output_index=0, item={**item, "status": None}),
        responses.say("response.output_item.done", output_index=1, item=call),
        *responses.end(),
    ]
    replayed = {"type": "function_call", "call_id": "call_a", "name": "look", "arguments": '{"q": "x"}'}
    yield responses, first, lambda body: body["input"][1:3], [item, replayed]

    google = Google()
    made = {"functionCall": {"id": "call_a", "name": "look", "args": {"q": "x"}}, "thoughtSignature": SIGNATURE}
    first = [
        google.chunk({"text": "thinking", "thought": True}),
        google.chunk({"text": "Look", "thoughtSignature": SIGNATURE}, made),
        google.chunk({"text": "", "thoughtSignature": SIGNATURE}),
        *google.end("tools"),
    ]
    yield (
        google,
        first,
        lambda body: body["contents"][1]["parts"],
        [
            {"text": "Look", "thoughtSignature": SIGNATURE},
            made,
            {"text": "", "thoughtSignature": SIGNATURE},
        ],
    )

    chat = Chat()
    first = [
        chat.chunk({"reasoning_content": "step "}),
        chat.chunk({"reasoning_content": "one"}),
        *chat.calls(("call_a", "look", '{"q": "x"}')),
        *chat.end("tools"),
    ]
    function = {"name": "look", "arguments": '{"q": "x"}'}
    yield (
        chat,
        first,
        lambda body: body["messages"][1],
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_a", "type": "function", "function": function}],
            "reasoning_content": "step one",
        },
    )


@pytest.mark.parametrize("turn", list(reasoning_turns()), ids=lambda turn: turn[0].name)
def test_reasoning_goes_back_as_it_came_and_where_it_stood(turn):
    dialect, first, find, expected = turn

    @tool
    def look(q: str) -> str:
        """Look."""
        return f"saw {q}"

    async def loop():
        async with Wire([Answer(first), Answer([*dialect.text("done"), *dialect.end()])]) as wire:
            agent = Agent(model=dialect.model(wire.url), tools=[look], limits=Limits(max_iterations=4))
            result = await agent.run("go")
            assert result.text == "done", result.cause
            return wire.requests[1].body

    assert find(run(loop)) == expected


def test_reasoning_that_led_to_nothing_is_not_sent_back():
    opaque = '{"at":[0,0],"item":{"type":"reasoning","id":"rs_1"}}'
    history = [
        UserMessage("hi"),
        AssistantMessage((ReasoningBlock(opaque=opaque, vendor="openai"),)),
        UserMessage("go"),
    ]
    items = body_of(Responses(), ModelRequest(messages=history))["input"]
    assert [item.get("role") for item in items] == ["user", "user"]


# --- structured output ----------------------------------------------------------------------------------------

SCHEMA = {
    "$ref": "#/$defs/Answer",
    "$defs": {
        "Answer": {
            "title": "Answer",
            "type": "object",
            "properties": {"city": {"type": "string"}, "note": {"type": "string", "default": ""}},
            "required": ["city"],
        }
    },
}
CLOSED = {
    "$ref": "#/$defs/Answer",
    "$defs": {
        "Answer": {
            "title": "Answer",
            "type": "object",
            "properties": {"city": {"type": "string"}, "note": {"type": "string"}},
            "required": ["city", "note"],
            "additionalProperties": False,
        }
    },
}


@pytest.mark.parametrize(
    ("dialect", "field", "value"),
    [
        (
            Chat(),
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "Answer", "schema": CLOSED, "strict": True}},
        ),
        (Responses(), "text", {"format": {"type": "json_schema", "name": "Answer", "schema": CLOSED, "strict": True}}),
        (Anthropic(), "output_config", {"format": {"type": "json_schema", "schema": CLOSED}}),
        (
            Google(),
            "generationConfig",
            {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_output_schema_uses_the_providers_own_structured_output(dialect, field, value):
    assert body_of(dialect, ModelRequest(messages=[UserMessage("hi")], output_schema=SCHEMA))[field] == value


def test_a_schema_with_free_keys_is_sent_as_it_is_and_not_as_strict():
    free = {"type": "object", "additionalProperties": {"type": "integer"}}
    body = body_of(Chat(), ModelRequest(messages=[UserMessage("hi")], output_schema=free))
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": free, "strict": False}


class OldClaude(Anthropic):
    name = "old-anthropic"

    def model(self, url, **keywords):
        return AnthropicModel("claude-3-haiku-20240307", base_url=url, api_key=KEY, **keywords)


class OldGemini(Google):
    name = "old-google"

    def model(self, url, **keywords):
        return GoogleModel("gemini-2.5-flash", base_url=url, api_key=KEY, **keywords)


@pytest.mark.parametrize(
    ("dialect", "tools"), [(OldClaude(), ()), (OldGemini(), (SPEC,))], ids=["claude-3", "gemini-2"]
)
def test_a_model_that_cannot_be_held_to_a_schema_is_told_it(dialect, tools):
    request = ModelRequest(system_prompt="Terse.", messages=[UserMessage("hi")], output_schema=SCHEMA, tools=tools)
    body = body_of(dialect, request)
    assert "output_config" not in body
    assert not body.get("generationConfig")
    system = json.dumps(body.get("system") or body["systemInstruction"])
    assert "Terse." in system
    assert "fits this schema" in system
    assert "city" in system


def test_an_old_gemini_without_tools_is_held_to_the_schema():
    body = body_of(OldGemini(), ModelRequest(messages=[UserMessage("hi")], output_schema=SCHEMA))
    assert body["generationConfig"]["responseJsonSchema"] == SCHEMA


# --- what cannot be sent --------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("extras", [{"x": object()}, {"x": float("nan")}, {"x": b"bytes"}, {"x": "\ud800"}])
def test_extras_that_cannot_be_written_are_rejected_and_never_tried_again(dialect, extras):
    with pytest.raises(RejectedError):
        body_of(dialect, ModelRequest(messages=[UserMessage("hi")], extras=extras))


@every
def test_an_image_without_bytes_or_address_is_rejected(dialect):
    with pytest.raises(RejectedError, match="image"):
        body_of(dialect, ModelRequest(messages=[UserMessage((ImageBlock("image/png"),))]))


@every
def test_an_image_by_address_is_sent_by_address(dialect):
    image = ImageBlock("image/png", url="https://example.com/a.png")
    assert "https://example.com/a.png" in json.dumps(body_of(dialect, ModelRequest(messages=[UserMessage((image,))])))


@pytest.mark.parametrize("dialect", [Chat(), Responses(), Anthropic()], ids=lambda dialect: dialect.name)
def test_a_client_of_ones_own_is_used_without_its_retries_and_left_open(dialect):
    async def ask():
        async with Wire([error(503, {}), Answer([*dialect.text("ok"), *dialect.end()])]) as wire:
            if isinstance(dialect, Anthropic):
                client = anthropic.AsyncAnthropic(api_key=KEY, base_url=wire.url)
                model = AnthropicModel("claude-opus-5", client=client)
            else:
                client = openai.AsyncOpenAI(api_key=KEY, base_url=f"{wire.url}/v1")
                made = OpenAIChatModel if isinstance(dialect, Chat) else OpenAIResponsesModel
                model = made("gpt-test", client=client)
            with pytest.raises(TransientError):
                _ = [delta async for delta in model.stream(ModelRequest(messages=[UserMessage("hi")]))]
            assert len(wire.requests) == 1
            _ = [delta async for delta in model.stream(ModelRequest(messages=[UserMessage("hi")]))]
            await model.aclose()
            assert not client.is_closed()
            await client.close()

    run(ask)


class Repaired(ProtocolPolicy):
    def normalize_tool_calls(self, calls, _tool_names):
        return [ToolCall(call.id, "search", call.arguments) for call in calls]


@every
def test_a_result_answers_the_call_under_the_name_it_was_called_by(dialect):
    """A policy may repair an alias. The reply in the history keeps what was said, so its answer must name that."""

    @tool
    async def search(q: str) -> str:
        """Search."""
        return f"found {q}"

    async def two_turns():
        answers = [
            Answer([*dialect.calls(("id_1", "Search_Web", '{"q": "x"}')), *dialect.end("tools")]),
            Answer([*dialect.text("Done."), *dialect.end()]),
        ]
        async with Wire(answers) as wire:
            model = dialect.model(wire.url)
            agent = Agent(model=model, tools=[search], protocol_policy=Repaired(), limits=Limits(max_iterations=3))
            result = await agent.run("go")
            await model.aclose()
            return result, wire.requests[1].body

    result, body = run(two_turns)
    assert result.text == "Done."
    sent = json.dumps(body.get("messages") or body.get("input") or body["contents"])
    assert "found x" in sent
    assert '"name": "search"' not in sent
    assert '"name": "Search_Web"' in sent
