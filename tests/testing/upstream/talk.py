"""Plain requests in each dialect, and what came back; no SDK."""

import asyncio
import json
from typing import Any

import httpx

SHELL = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "description": {"type": "string"}},
    "required": ["command"],
}
KEYS = {"x-api-key": "k", "anthropic-version": "2023-06-01", "authorization": "Bearer k", "x-goog-api-key": "k"}
DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini")


def run(coroutine, seconds: float = 30) -> Any:
    async def bounded():
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(bounded())


def build(
    dialect: str,
    task: str = "do it",
    *,
    stream: bool = False,
    tools: bool = True,
    choice: str = "auto",
    most: int | None = 4000,
):
    """Path and body of a first request."""
    choices = {
        "anthropic": {"auto": {"type": "auto"}, "none": {"type": "none"}, "any": {"type": "any"}},
        "openai-chat": {"auto": "auto", "none": "none", "any": "required"},
        "openai-responses": {"auto": "auto", "none": "none", "any": "required"},
        "gemini": {"auto": "AUTO", "none": "NONE", "any": "ANY"},
    }
    picked = choices[dialect][choice]
    if dialect == "anthropic":
        body = {
            "model": "m",
            "max_tokens": most or 64000,
            "stream": stream,
            "messages": [{"role": "user", "content": task}],
        }
        if tools:
            body |= {"tools": [{"name": "Bash", "input_schema": SHELL}], "tool_choice": picked}
        return "/v1/messages", body
    if dialect == "openai-chat":
        body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": task}]}
        body |= {"max_completion_tokens": most} if most else {}
        body |= {"stream_options": {"include_usage": True}} if stream else {}
        if tools:
            body |= {
                "tools": [{"type": "function", "function": {"name": "Bash", "parameters": SHELL}}],
                "tool_choice": picked,
            }
        return "/v1/chat/completions", body
    if dialect == "openai-responses":
        body = {"model": "m", "stream": stream, "input": task} | ({"max_output_tokens": most} if most else {})
        if tools:
            body |= {"tools": [{"type": "function", "name": "Bash", "parameters": SHELL}], "tool_choice": picked}
        return "/v1/responses", body
    body = {"contents": [{"role": "user", "parts": [{"text": task}]}], "generationConfig": {"maxOutputTokens": most}}
    if tools:
        body |= {
            "tools": [{"functionDeclarations": [{"name": "Bash", "parametersJsonSchema": SHELL}]}],
            "toolConfig": {"functionCallingConfig": {"mode": picked}},
        }
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/m:{method}", body


async def post(url: str, path: str, body, headers=None) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
        return await client.post(url + path, json=body, headers=headers or KEYS)


def events(text: str) -> list[dict]:
    """The JSON of the events of a stream."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
    return [json.loads(line) for line in lines]


def calls_of(dialect: str, reply: dict) -> list[tuple[str, Any]]:
    """Names and arguments of the tool calls in a whole reply."""
    if dialect == "anthropic":
        return [(one["name"], one["input"]) for one in reply["content"] if one["type"] == "tool_use"]
    if dialect == "openai-chat":
        calls = reply["choices"][0]["message"].get("tool_calls") or []
        return [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in calls]
    if dialect == "openai-responses":
        calls = [one for one in reply["output"] if one["type"] == "function_call"]
        return [(one["name"], json.loads(one["arguments"])) for one in calls]
    parts = reply["candidates"][0]["content"]["parts"]
    return [(one["functionCall"]["name"], one["functionCall"]["args"]) for one in parts if "functionCall" in one]


def text_of(dialect: str, reply: dict) -> str:
    """The text of a whole reply."""
    if dialect == "anthropic":
        return "".join(one["text"] for one in reply["content"] if one["type"] == "text")
    if dialect == "openai-chat":
        return reply["choices"][0]["message"]["content"] or ""
    if dialect == "openai-responses":
        parts = [part for one in reply["output"] if one["type"] == "message" for part in one["content"]]
        return "".join(part["text"] for part in parts)
    return "".join(one.get("text", "") for one in reply["candidates"][0]["content"]["parts"])


def usage_of(dialect: str, reply: dict) -> tuple[int, int, int] | None:
    """Input, cached and output tokens as the reply reports them; None when it does not."""
    usage = reply.get("usageMetadata") if dialect == "gemini" else reply.get("usage")
    if usage is None:
        return None
    if dialect == "anthropic":
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        return usage["input_tokens"] + read + written, read, usage["output_tokens"]
    if dialect == "openai-chat":
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]
    if dialect == "openai-responses":
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"]
    hidden = usage.get("thoughtsTokenCount", 0)
    return usage["promptTokenCount"], usage.get("cachedContentTokenCount", 0), usage["candidatesTokenCount"] + hidden


def stop_of(dialect: str, reply: dict) -> str:
    if dialect == "anthropic":
        return reply["stop_reason"]
    if dialect == "openai-chat":
        return reply["choices"][0]["finish_reason"]
    if dialect == "openai-responses":
        return (reply["incomplete_details"] or {}).get("reason") or reply["status"]
    return reply["candidates"][0]["finishReason"]
