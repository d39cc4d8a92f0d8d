"""The official SDKs drive the scripted upstream through whole tool loops."""

import json
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types
from tests.testing.upstream.talk import SHELL, run

from glidepath.testing import ScriptedUpstream

pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession"
)  # google-genai, where aiohttp is
DONE = "SCRIPTED-ANSWER after 3 tool calls"


async def loop_anthropic(client: anthropic.AsyncAnthropic, *, stream: bool) -> tuple[str, int]:
    messages: list[Any] = [{"role": "user", "content": "do it"}]
    spent = 0
    fixed: dict[str, Any] = {"model": "claude", "max_tokens": 2000, "tools": [{"name": "Bash", "input_schema": SHELL}]}
    fixed["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    for _ in range(9):
        if stream:
            async with client.messages.stream(messages=messages, **fixed) as told:
                reply = await told.get_final_message()
        else:
            reply = await client.messages.create(messages=messages, **fixed)
        usage = reply.usage
        spent += usage.input_tokens + usage.output_tokens
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            assert reply.stop_reason == "end_turn"
            return "".join(block.text for block in reply.content if block.type == "text"), spent
        assert reply.stop_reason == "tool_use"
        messages.append(
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in reply.content]}
        )
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"} for call in calls]
        messages.append({"role": "user", "content": results})
    raise AssertionError("no answer")


async def loop_chat(client: openai.AsyncOpenAI, *, stream: bool) -> tuple[str, int]:
    messages: list[Any] = [{"role": "user", "content": "do it"}]
    spent = 0
    fixed: dict[str, Any] = {
        "model": "gpt",
        "tools": [{"type": "function", "function": {"name": "Bash", "parameters": SHELL}}],
    }
    for _ in range(9):
        if stream:
            async with client.chat.completions.stream(
                messages=messages, stream_options={"include_usage": True}, **fixed
            ) as told:
                reply = await told.get_final_completion()
        else:
            reply = await client.chat.completions.create(messages=messages, **fixed)
        spent += reply.usage.total_tokens
        message = reply.choices[0].message
        if not message.tool_calls:
            assert reply.choices[0].finish_reason == "stop"
            return message.content or "", spent
        assert reply.choices[0].finish_reason == "tool_calls"
        calls = [
            {"id": c.id, "type": "function", "function": c.function.model_dump(include={"name", "arguments"})}
            for c in message.tool_calls
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
    raise AssertionError("no answer")


async def loop_responses(client: openai.AsyncOpenAI, *, stream: bool) -> tuple[str, int]:
    items: list[Any] = [{"role": "user", "content": "do it"}]
    spent = 0
    fixed: dict[str, Any] = {
        "model": "gpt",
        "tools": [{"type": "function", "name": "Bash", "parameters": SHELL, "strict": False}],
    }
    fixed |= {"store": False, "reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]}
    for _ in range(9):
        if stream:
            async with client.responses.stream(input=items, **fixed) as told:
                reply = await told.get_final_response()
        else:
            reply = await client.responses.create(input=items, **fixed)
        spent += reply.usage.total_tokens
        assert reply.usage.output_tokens_details.reasoning_tokens == 12
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            assert reply.status == "completed"
            return reply.output_text, spent
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in reply.output]
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": "ok"} for call in calls]
    raise AssertionError("no answer")


async def continue_responses(client: openai.AsyncOpenAI, *, stream: bool) -> tuple[str, int]:
    given: Any = "do it"
    before = None
    spent = 0
    tools = [{"type": "function", "name": "Bash", "parameters": SHELL, "strict": False}]
    for _ in range(9):
        fixed: dict[str, Any] = {"model": "gpt", "tools": tools, "previous_response_id": before, "input": given}
        if stream:
            async with client.responses.stream(**fixed) as told:
                reply = await told.get_final_response()
        else:
            reply = await client.responses.create(**fixed)
        spent += reply.usage.total_tokens
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return reply.output_text, spent
        before = reply.id
        given = [{"type": "function_call_output", "call_id": call.call_id, "output": "ok"} for call in calls]
    raise AssertionError("no answer")


async def loop_gemini(client: genai.client.AsyncClient, *, stream: bool) -> tuple[str, int]:
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="Bash", parameters_json_schema=SHELL)])
    config = types.GenerateContentConfig(tools=[tool], thinking_config=types.ThinkingConfig(thinking_budget=100))
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text="do it")])]
    spent = 0
    for _ in range(9):
        if stream:
            told = [
                one
                async for one in await client.models.generate_content_stream(
                    model="gemini-3-pro", contents=contents, config=config
                )
            ]
            parts = [part for one in told for part in one.candidates[0].content.parts or ()]
            last = told[-1]
        else:
            last = await client.models.generate_content(model="gemini-3-pro", contents=contents, config=config)
            parts = last.candidates[0].content.parts
        spent += last.usage_metadata.total_token_count
        assert last.candidates[0].finish_reason == types.FinishReason.STOP
        calls = [part for part in parts if part.function_call]
        if not calls:
            return "".join(part.text or "" for part in parts), spent
        contents.append(types.Content(role="model", parts=calls))
        answers = [
            types.Part.from_function_response(name=part.function_call.name, response={"ok": True}) for part in calls
        ]
        contents.append(types.Content(role="user", parts=answers))
    raise AssertionError("no answer")


def use_openai(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


def use_anthropic(url: str) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)


def use_google(url: str) -> genai.client.AsyncClient:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url, api_version="v1beta")).aio


LOOPS = [
    (loop_anthropic, use_anthropic),
    (loop_chat, use_openai),
    (loop_responses, use_openai),
    (continue_responses, use_openai),
    (loop_gemini, use_google),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("loop", "use"), LOOPS)
def test_an_sdk_drives_a_whole_tool_loop_to_its_answer(loop, use, stream):
    async def main():
        async with ScriptedUpstream("honest:calls=3", delta=5) as up:
            async with use(up.url) as client:
                answer, spent = await loop(client, stream=stream)
            assert answer == DONE
            assert spent == up.usage.tokens  # what the SDK read is what was served
            assert [len(one.said) for one in up.calls] == [1, 1, 1, 0]
            assert (up.usage.calls, up.usage.refused, up.usage.open) == (4, 0, 0)

    run(main())


def test_every_argument_of_a_tool_call_is_json_that_fits_its_schema():
    schema = {
        "$defs": {"Kind": {"enum": ["a", "b"]}},
        "type": "object",
        "properties": {
            "kind": {"$ref": "#/$defs/Kind"},
            "count": {"type": "integer", "minimum": 3, "maximum": 9},
            "names": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "inner": {
                "type": "object",
                "properties": {"deep": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}},
                "required": ["deep"],
            },
            "ignored": {"type": "string"},
        },
        "required": ["kind", "count", "names", "inner"],
    }

    async def main():
        async with ScriptedUpstream("loop") as up, use_openai(up.url) as client:
            tools: Any = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
            reply = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x"}], tools=tools
            )
            return json.loads(reply.choices[0].message.tool_calls[0].function.arguments)

    assert run(main()) == {"kind": "a", "count": 3, "names": ["step 1", "step 1"], "inner": {"deep": False}}


def test_models_are_listed_to_each_sdk():
    async def main():
        async with (
            ScriptedUpstream() as up,
            use_openai(up.url) as one,
            use_anthropic(up.url) as two,
            use_google(up.url) as three,
        ):
            chat, messages, google = await one.models.list(), await two.models.list(), await three.models.list()
            return [one.id for one in chat.data], [one.id for one in messages.data], [one.name async for one in google]

    chat, messages, google = run(main())
    assert chat == messages
    assert "gpt-5" in chat
    assert google == [f"models/{name}" for name in chat]


def test_tokens_are_counted_without_a_call():
    async def main():
        async with ScriptedUpstream() as up, use_anthropic(up.url) as client, use_google(up.url) as other:
            messages: Any = [{"role": "user", "content": "four" * 100}]
            counted = await client.messages.count_tokens(model="m", messages=messages)
            reply = await client.messages.create(model="m", max_tokens=10, messages=messages)
            google = await other.models.count_tokens(model="g", contents="four" * 100)
            assert counted.input_tokens == reply.usage.input_tokens
            assert 100 < google.total_tokens < 120
            assert (up.usage.calls, up.usage.counted) == (1, 2)

    run(main())
