"""The vendors' own SDKs as judges: what a client makes of bytes that come over HTTP."""

import json
from typing import Any

from tests.wire.server import SSE, Answer, Wire, run

from glidepath.values import Value

KEY = "sk-planted-0123456789abcdef"


class Parsed(Value, frozen=True, kw_only=True):
    """A reply as an SDK hands it to a program."""

    text: str
    calls: list[tuple[str, str, Any]]
    stop: str
    output: int | None
    raw: Any


def asked(speaker: Any, answer: Any, **more: Any) -> Parsed:
    """Send the speaker's request through its SDK to a server that answers with these bytes."""
    streamed = answer.content_type.startswith(SSE)
    chunks = [answer.body[start : start + 700] for start in range(0, len(answer.body), 700)]

    async def talk() -> Parsed:
        kind = SSE if streamed else "application/json"
        async with Wire([Answer(chunks, status=answer.status, kind=kind)]) as wire:
            return await ASK[speaker.name](wire.url, speaker.body(**more), streamed)

    return run(talk)


async def ask_anthropic(url: str, body: dict[str, Any], streamed: bool) -> Parsed:
    import anthropic

    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        if streamed:
            async with client.messages.stream(**body) as stream:
                message = await stream.get_final_message()
        else:
            message = await client.messages.create(**body)
    texts = [block.text for block in message.content if block.type == "text"]
    calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
    assert message.role == "assistant"
    assert all(texts)
    return Parsed(
        text="".join(texts), calls=calls, stop=message.stop_reason, output=message.usage.output_tokens, raw=message
    )


async def ask_chat(url: str, body: dict[str, Any], streamed: bool) -> Parsed:
    import openai

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        if streamed:
            async with client.chat.completions.stream(**body) as stream:
                whole = await stream.get_final_completion()
        else:
            whole = await client.chat.completions.create(**body)
    (choice,) = whole.choices
    made = choice.message.tool_calls or []
    calls = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in made]
    return Parsed(
        text=choice.message.content or "",
        calls=calls,
        stop=choice.finish_reason,
        output=None if whole.usage is None else whole.usage.completion_tokens,
        raw=whole,
    )


async def ask_responses(url: str, body: dict[str, Any], streamed: bool) -> Parsed:
    import openai

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        if streamed:
            async with client.responses.stream(**body) as stream:
                done = [event async for event in stream if event.type == "response.output_item.done"]
                whole = await stream.get_final_response()
            # Agents take items from these events, programs from the response: they must be the same.
            assert [event.item.id for event in done] == [item.id for item in whole.output]
            assert [event.output_index for event in done] == list(range(len(done)))
        else:
            whole = await client.responses.create(**body)
    made = [item for item in whole.output if item.type == "function_call"]
    calls = [(call.call_id, call.name, json.loads(call.arguments)) for call in made]
    return Parsed(text=whole.output_text, calls=calls, stop=whole.status, output=whole.usage.output_tokens, raw=whole)


async def ask_gemini(url: str, body: dict[str, Any], streamed: bool) -> Parsed:
    import httpx2
    from google import genai

    options: Any = {"base_url": url, "api_version": "v1beta", "httpx_async_client": httpx2.AsyncClient()}
    client = genai.Client(api_key=KEY, http_options=options)
    functions = body["tools"][0]["functionDeclarations"]
    named = [genai.types.FunctionDeclaration(name=one["name"]) for one in functions]
    config = genai.types.GenerateContentConfig(tools=[genai.types.Tool(function_declarations=named)])
    given: Any = {"model": "gemini-2.0-flash", "contents": "hi", "config": config}
    try:
        if streamed:
            chunks = [chunk async for chunk in await client.aio.models.generate_content_stream(**given)]
        else:
            chunks = [await client.aio.models.generate_content(**given)]
    finally:
        await options["httpx_async_client"].aclose()
        client.close()
    candidates = [candidate for chunk in chunks for candidate in chunk.candidates or ()]
    parts = [part for one in candidates if one.content for part in one.content.parts or ()]
    (stop,) = [one.finish_reason.value for one in candidates if one.finish_reason]
    used = chunks[-1].usage_metadata
    return Parsed(
        text="".join([part.text for part in parts if part.text and not part.thought]),
        calls=[
            (part.function_call.id, part.function_call.name, part.function_call.args)
            for part in parts
            if part.function_call
        ],
        stop=stop,
        output=(used.candidates_token_count or 0) + (used.thoughts_token_count or 0),
        raw=chunks[-1],
    )


ASK = {"gemini": ask_gemini, "anthropic": ask_anthropic, "openai-chat": ask_chat, "openai-responses": ask_responses}
