"""Requests and streamed replies as the providers write them, for all dialects."""

import json
from typing import Any

from glidepath.apps.gate.dialects import DIALECTS

TEXT = ["Hello", " wörld 🌦", ', "quoted"\n']
SAID = "".join(TEXT)
CALLS = [("call_one", "look", {"path": "a.txt", "deep": {"n": [1, 2]}}), ("call_two", "send", {"to": "ann"})]
USAGE = {"input": 40, "output": 12, "cached": 8, "thought": 4}


def sse(data: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"{head}data: {text}\n\n".encode()


def halves(text: str) -> list[str]:
    middle = max(1, len(text) // 2)
    return [part for part in (text[:middle], text[middle:]) if part]


class Anthropic:
    """One reply. `thought`, `said` and `called` are the frames of its parts."""

    name = "anthropic"
    final = "end_turn"
    calling = "tool_use"
    path = "/v1/messages"

    def body(self, **more: Any) -> dict[str, Any]:
        tools = [
            {"name": name, "description": "", "input_schema": {"type": "object"}} for name in ("look", "send", "done")
        ]
        given = {"model": "claude-sonnet-4-6", "max_tokens": 1000, "tools": tools}
        return {**given, "messages": [{"role": "user", "content": "hi"}], **more}

    def history(self) -> list[dict[str, Any]]:
        call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"b": 1, "a": 2}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen"}
        return [
            {"role": "user", "content": "<note>of the agent</note>"},
            {"role": "user", "content": [{"type": "text", "text": "Fix the bug"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
            {"role": "user", "content": [result]},
        ]

    field = "messages"

    @staticmethod
    def say(kind: str, **fields: Any) -> bytes:
        return sse({"type": kind, **fields}, kind)

    def begin(self) -> list[bytes]:
        usage = {"input_tokens": 32, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 8, "output_tokens": 1}
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5-20250929",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, "service_tier": "standard"},
        }
        return [self.say("message_start", message=message), self.say("ping")]

    def block(self, index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
        grown = [self.say("content_block_delta", index=index, delta=delta) for delta in deltas]
        start = self.say("content_block_start", index=index, content_block=block)
        return [start, *grown, self.say("content_block_stop", index=index)]

    def thought(self, index: int = 0) -> list[bytes]:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "EqQB"}]
        return self.block(index, block, *deltas)

    def said(self, index: int = 1) -> list[bytes]:
        return self.block(
            index, {"type": "text", "text": ""}, *[{"type": "text_delta", "text": piece} for piece in TEXT]
        )

    def called(self, number: int = 0, index: int = 2) -> list[bytes]:
        call_id, name, arguments = CALLS[number]
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *halves(json.dumps(arguments))]]
        return self.block(index, block, *deltas)

    def end(self, stop: str) -> list[bytes]:
        used = {"output_tokens": 12, "output_tokens_details": {"thinking_tokens": 4}}
        delta = {"stop_reason": stop, "stop_sequence": None}
        return [self.say("message_delta", delta=delta, usage=used), self.say("message_stop")]

    def answer(self) -> list[bytes]:
        return [*self.begin(), *self.thought(), *self.said(), *self.end(self.final)]

    def calls(self) -> list[bytes]:
        both = [*self.called(0, 2), *self.called(1, 3)]
        return [*self.begin(), *self.thought(), *self.said(), *both, *self.end(self.calling)]


class Chat:
    name = "openai-chat"
    final = "stop"
    calling = "tool_calls"
    path = "/v1/chat/completions"
    field = "messages"

    def body(self, **more: Any) -> dict[str, Any]:
        tools = [
            {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
            for name in ("look", "send", "done")
        ]
        options = {"stream_options": {"include_usage": True}} if more.get("stream") else {}
        return {
            "model": "gpt-4o-mini",
            "tools": tools,
            "messages": [{"role": "user", "content": "hi"}],
            **options,
            **more,
        }

    def history(self) -> list[dict[str, Any]]:
        call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"b": 1, "a": 2}'}}
        return [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Fix the bug"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
        ]

    @staticmethod
    def chunk(delta: dict[str, Any] | None, finish: str | None = None, usage: Any = None) -> bytes:
        choices = []
        if delta is not None:
            choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1760000000}
        more = {"model": "gpt-4o-mini-2024-07-18", "service_tier": "default", "system_fingerprint": "fp_1"}
        return sse({**head, **more, "choices": choices, "usage": usage})

    def begin(self) -> list[bytes]:
        return [self.chunk({"role": "assistant", "content": "", "refusal": None})]

    def thought(self, index: int = 0) -> list[bytes]:
        return [self.chunk({"reasoning_content": "Hm."})]

    def said(self, index: int = 0) -> list[bytes]:
        return [self.chunk({"content": piece}) for piece in TEXT]

    def called(self, number: int = 0, index: int = 0) -> list[bytes]:
        call_id, name, arguments = CALLS[number]
        start = {"index": number, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        rest = [{"index": number, "function": {"arguments": piece}} for piece in halves(json.dumps(arguments))]
        return [self.chunk({"tool_calls": [piece]}) for piece in (start, *rest)]

    def end(self, stop: str) -> list[bytes]:
        used = {
            "prompt_tokens": 40,
            "completion_tokens": 12,
            "total_tokens": 52,
            "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 4},
        }
        return [self.chunk({}, stop), self.chunk(None, usage=used), sse("[DONE]")]

    answer = Anthropic.answer

    def calls(self) -> list[bytes]:
        both = [*self.called(0), *self.called(1)]
        return [*self.begin(), *self.thought(), *self.said(), *both, *self.end(self.calling)]


class Responses:
    name = "openai-responses"
    final = "completed"
    calling = "completed"
    path = "/v1/responses"
    field = "input"

    def __init__(self) -> None:
        self.number = -1
        self.output: list[dict[str, Any]] = []

    def body(self, **more: Any) -> dict[str, Any]:
        tools = [
            {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False}
            for name in ("look", "send", "done")
        ]
        messages = more.pop("messages", [{"role": "user", "content": "hi"}])
        return {"model": "gpt-4o-mini", "tools": tools, "input": messages, **more}

    def history(self) -> list[dict[str, Any]]:
        return [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment>x"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix the bug"}]},
            {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "gA=="},
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"b": 1, "a": 2}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "seen"},
        ]

    def say(self, kind: str, **fields: Any) -> bytes:
        self.number += 1
        return sse({"type": kind, "sequence_number": self.number, **fields}, kind)

    def response(self, status: str, usage: Any = None) -> dict[str, Any]:
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1760000000,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": "gpt-4o-mini-2024-07-18",
            "output": list(self.output),
            "parallel_tool_calls": True,
            "service_tier": "default",
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": usage,
        }

    def begin(self) -> list[bytes]:
        return [
            self.say(f"response.{word}", response=self.response("in_progress")) for word in ("created", "in_progress")
        ]

    def item(self, item: dict[str, Any], start: dict[str, Any], *frames: bytes) -> list[bytes]:
        self.output.append(item)
        return [start, *frames, self.say("response.output_item.done", output_index=len(self.output) - 1, item=item)]

    def thought(self, index: int = 0) -> list[bytes]:
        at = {"item_id": "rs_1", "output_index": len(self.output), "summary_index": 0}
        item = {
            "id": "rs_1",
            "type": "reasoning",
            "encrypted_content": "gAAAAA==",
            "summary": [{"type": "summary_text", "text": "Hm."}],
        }
        start = {"id": "rs_1", "type": "reasoning", "summary": []}
        part = {"type": "summary_text", "text": "Hm."}
        return self.item(
            item,
            self.say("response.output_item.added", output_index=at["output_index"], item=start),
            self.say("response.reasoning_summary_part.added", **at, part={**part, "text": ""}),
            self.say("response.reasoning_summary_text.delta", **at, delta="Hm."),
            self.say("response.reasoning_summary_text.done", **at, text="Hm."),
            self.say("response.reasoning_summary_part.done", **at, part=part),
        )

    def said(self, index: int = 0) -> list[bytes]:
        at = {"item_id": "msg_1", "output_index": len(self.output), "content_index": 0}
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": SAID}
        item = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
        start = {**item, "status": "in_progress", "content": []}
        added = self.say("response.output_item.added", output_index=at["output_index"], item=start)
        opened = self.say("response.content_part.added", **at, part={**part, "text": ""})
        grown = [self.say("response.output_text.delta", **at, delta=piece, logprobs=[]) for piece in TEXT]
        closed = [
            self.say("response.output_text.done", **at, text=SAID, logprobs=[]),
            self.say("response.content_part.done", **at, part=part),
        ]
        return self.item(item, added, opened, *grown, *closed)

    def called(self, number: int = 0, index: int = 0) -> list[bytes]:
        call_id, name, arguments = CALLS[number]
        written = json.dumps(arguments)
        item = {
            "id": f"fc_{number}",
            "type": "function_call",
            "status": "completed",
            "arguments": written,
            "call_id": call_id,
            "name": name,
        }
        at = {"item_id": item["id"], "output_index": len(self.output)}
        start = {**item, "status": "in_progress", "arguments": ""}
        added = self.say("response.output_item.added", output_index=at["output_index"], item=start)
        grown = [self.say("response.function_call_arguments.delta", **at, delta=piece) for piece in halves(written)]
        done = self.say("response.function_call_arguments.done", **at, arguments=written, name=name)
        return self.item(item, added, *grown, done)

    def end(self, stop: str) -> list[bytes]:
        used = {
            "input_tokens": 40,
            "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
            "output_tokens": 12,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 52,
        }
        return [self.say("response.completed", response=self.response("completed", used))]

    answer = Anthropic.answer

    def calls(self) -> list[bytes]:
        frames = [*self.begin(), *self.thought(), *self.said(), *self.called(0), *self.called(1)]
        return [*frames, *self.end(self.calling)]


class Gemini:
    name = "gemini"
    final = "STOP"
    calling = "STOP"
    field = "contents"
    model = "gemini-2.0-flash"

    def body(self, **more: Any) -> dict[str, Any]:
        declared = [{"name": name, "parametersJsonSchema": {"type": "object"}} for name in ("look", "send", "done")]
        contents = more.pop("messages", [{"role": "user", "parts": [{"text": "hi"}]}])
        contents = [
            {"role": one["role"], "parts": [{"text": one["content"]}]} if "content" in one else one for one in contents
        ]
        return {"contents": contents, "tools": [{"functionDeclarations": declared}], **more}

    def history(self) -> list[dict[str, Any]]:
        call = {"id": "call_1", "name": "look", "args": {"b": 1, "a": 2}}
        result = {"id": "call_1", "name": "look", "response": {"output": "seen"}}
        return [
            {"role": "user", "parts": [{"text": "<context>of the agent"}]},
            {"role": "user", "parts": [{"text": "Fix the bug"}]},
            {"role": "model", "parts": [{"functionCall": call, "thoughtSignature": "c2ln"}]},
            {"role": "user", "parts": [{"functionResponse": result}]},
        ]

    @staticmethod
    def chunk(*parts: dict[str, Any], finish: str | None = None, output: int = 1) -> bytes:
        candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        used = {
            "promptTokenCount": 40,
            "candidatesTokenCount": output,
            "totalTokenCount": 44 + output,
            "cachedContentTokenCount": 8,
            "thoughtsTokenCount": 4,
        }
        more = {"usageMetadata": used, "modelVersion": "gemini-2.0-flash", "responseId": "r-1"}
        return sse({"candidates": [candidate], **more}).replace(b"\n", b"\r\n")

    def begin(self) -> list[bytes]:
        return []

    def thought(self, index: int = 0) -> list[bytes]:
        return [self.chunk({"text": "Hm.", "thought": True})]

    def said(self, index: int = 0) -> list[bytes]:
        return [self.chunk({"text": piece}) for piece in TEXT]

    def called(self, number: int = 0, index: int = 0) -> list[bytes]:
        call_id, name, arguments = CALLS[number]
        return [self.chunk({"functionCall": {"id": call_id, "name": name, "args": arguments}})]

    def end(self, stop: str) -> list[bytes]:
        return [self.chunk({"text": ""}, finish=stop, output=8)]

    answer = Anthropic.answer
    calls = Chat.calls


SPEAKERS = (Anthropic, Chat, Responses, Gemini)


def read(speaker: Any, body: Any, framing: str = "sse") -> Any:
    """The facts of a request. Gemini's path tells the model and whether it streams: `stream` stands for it here."""
    dialect = DIALECTS[speaker.name]
    if speaker.name != "gemini":
        return dialect.read_request(body)
    stream = isinstance(body, dict) and body.get("stream") is True
    given = {name: value for name, value in body.items() if name != "stream"} if isinstance(body, dict) else body
    return dialect.read_request(given, Gemini.model, stream, framing)


def open_reader(speaker: Any, *, stream: bool = True, body: Any = None, framing: str = "sse", **how: Any) -> Any:
    facts = read(speaker, body or speaker.body(stream=stream), framing)
    return DIALECTS[speaker.name].open_reader(facts, **how)
