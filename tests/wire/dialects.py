"""The four protocols, as the providers speak them: how a reply looks on the wire."""

import base64
import json
from typing import Any, ClassVar

from glidepath.models import AnthropicModel, GoogleModel, OpenAIChatModel, OpenAIResponsesModel

KEY = "sk-planted-0123456789abcdef"
USED = {"input": 40, "output": 12, "cached": 8, "thought": 4}


def event(data: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"{head}data: {text}\n\n".encode()


def halves(text: str) -> list[str]:
    middle = max(1, len(text) // 2)
    return [part for part in (text[:middle], text[middle:]) if part]


class Chat:
    name = "openai-chat"
    odd = "other"
    stops: ClassVar[dict[str, Any]] = {
        "end": "stop",
        "tools": "tool_calls",
        "length": "length",
        "refusal": "content_filter",
        "odd": "wibble",
    }

    def model(self, url: str, **keywords: Any) -> Any:
        return OpenAIChatModel("gpt-test", base_url=f"{url}/v1", **{"api_key": KEY, **keywords})

    @staticmethod
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return event({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def text(self, *parts: str) -> list[bytes]:
        return [self.chunk({"content": part}) for part in parts]

    def calls(self, *calls: tuple[str, str, str]) -> list[bytes]:
        chunks = []
        for index, (call_id, name, _) in enumerate(calls):
            function = {"name": name, "arguments": ""}
            chunks.append(
                self.chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
            )
        for place in range(2):  # fragments of both calls, mixed
            for index, (_, _, arguments) in enumerate(calls):
                chunks += [
                    self.chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
                    for part in halves(arguments)[place : place + 1]
                ]
        return chunks

    def end(self, stop: str = "end", *, usage: bool = True) -> list[bytes]:
        used = {
            "prompt_tokens": USED["input"],
            "completion_tokens": USED["output"],
            "total_tokens": USED["input"] + USED["output"],
            "prompt_tokens_details": {"cached_tokens": USED["cached"]},
            "completion_tokens_details": {"reasoning_tokens": USED["thought"]},
        }
        chunks = [self.chunk({}, self.stops[stop])]
        return [*chunks, *([event({"id": "c", "choices": [], "usage": used})] if usage else []), event("[DONE]")]

    def failed(self, code: str) -> bytes:
        return event({"error": {"message": "it broke", "code": code, "type": code}})


class Responses:
    name = "openai-responses"
    odd = "max_tokens"  # whatever cut a response, it is cut
    stops: ClassVar[dict[str, Any]] = {
        "end": None,
        "tools": None,
        "length": "max_output_tokens",
        "refusal": "content_filter",
        "odd": "wibble",
    }

    def __init__(self) -> None:
        self.place = 0

    def model(self, url: str, **keywords: Any) -> Any:
        return OpenAIResponsesModel("gpt-5-test", base_url=f"{url}/v1", **{"api_key": KEY, **keywords})

    def say(self, kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind)

    def text(self, *parts: str) -> list[bytes]:
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
        chunks = [self.say("response.created", response={"id": "resp_1"})]
        chunks.append(self.say("response.output_item.added", output_index=0, item=item))
        chunks += [self.say("response.output_text.delta", output_index=0, delta=part) for part in parts]
        return [*chunks, self.say("response.output_item.done", output_index=0, item=item)]

    def calls(self, *calls: tuple[str, str, str]) -> list[bytes]:
        chunks = []
        for index, (call_id, name, _) in enumerate(calls, 1):
            item = {"type": "function_call", "id": f"fc_{index}", "call_id": call_id, "name": name, "arguments": ""}
            chunks.append(self.say("response.output_item.added", output_index=index, item=item))
        for place in range(2):
            for index, (_, _, arguments) in enumerate(calls, 1):
                chunks += [
                    self.say("response.function_call_arguments.delta", output_index=index, delta=part)
                    for part in halves(arguments)[place : place + 1]
                ]
        for index, (call_id, name, arguments) in enumerate(calls, 1):
            item = {"type": "function_call", "id": "fc", "call_id": call_id, "name": name, "arguments": arguments}
            chunks.append(self.say("response.output_item.done", output_index=index, item=item))
        return chunks

    def end(self, stop: str = "end", *, usage: bool = True) -> list[bytes]:
        reason = self.stops[stop]
        response: dict[str, Any] = {"id": "resp_1", "status": "incomplete" if reason else "completed"}
        response["incomplete_details"] = {"reason": reason} if reason else None
        if usage:
            response["usage"] = {
                "input_tokens": USED["input"],
                "output_tokens": USED["output"],
                "input_tokens_details": {"cached_tokens": USED["cached"]},
                "output_tokens_details": {"reasoning_tokens": USED["thought"]},
            }
        return [self.say("response.incomplete" if reason else "response.completed", response=response)]

    def failed(self, code: str) -> bytes:
        return self.say("response.failed", response={"error": {"code": code, "message": "it broke"}})


class Anthropic:
    name = "anthropic"
    odd = "other"
    stops: ClassVar[dict[str, Any]] = {
        "end": "end_turn",
        "tools": "tool_use",
        "length": "max_tokens",
        "refusal": "refusal",
        "odd": "wibble",
    }

    def model(self, url: str, **keywords: Any) -> Any:
        return AnthropicModel("claude-sonnet-4-5", base_url=url, **{"api_key": KEY, **keywords})

    def say(self, kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind)

    def start(self) -> list[bytes]:
        usage = {
            "input_tokens": USED["input"] - USED["cached"],
            "output_tokens": 1,
            "cache_read_input_tokens": USED["cached"],
            "cache_creation_input_tokens": None,
        }
        return [self.say("message_start", message={"id": "m", "role": "assistant", "usage": usage}), self.say("ping")]

    def block(self, index: int, block: dict[str, Any], *deltas: dict[str, Any], stop: bool = True) -> list[bytes]:
        chunks = [self.say("content_block_start", index=index, content_block=block)]
        chunks += [self.say("content_block_delta", index=index, delta=delta) for delta in deltas]
        return [*chunks, self.say("content_block_stop", index=index)] if stop else chunks

    def text(self, *parts: str) -> list[bytes]:
        deltas = [{"type": "text_delta", "text": part} for part in parts]
        return [*self.start(), *self.block(0, {"type": "text", "text": ""}, *deltas)]

    def calls(self, *calls: tuple[str, str, str]) -> list[bytes]:
        chunks = []
        for index, (call_id, name, arguments) in enumerate(calls, 1):
            block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", *halves(arguments))]
            chunks += self.block(index, block, *deltas)
        return chunks

    def end(self, stop: str = "end", *, usage: bool = True) -> list[bytes]:
        used = {"output_tokens": USED["output"], "output_tokens_details": {"thinking_tokens": USED["thought"]}}
        delta = {"stop_reason": self.stops[stop], "stop_sequence": None}
        return [self.say("message_delta", delta=delta, usage=used if usage else None), self.say("message_stop")]

    def failed(self, code: str) -> bytes:
        return self.say("error", error={"type": code, "message": "it broke"})


class Google:
    name = "google"
    odd = "other"
    stops: ClassVar[dict[str, Any]] = {
        "end": "STOP",
        "tools": "STOP",
        "length": "MAX_TOKENS",
        "refusal": "SAFETY",
        "odd": "LANGUAGE",
    }

    def model(self, url: str, **keywords: Any) -> Any:
        return GoogleModel("gemini-3-test", base_url=url, **{"api_key": KEY, **keywords})

    @staticmethod
    def chunk(*parts: dict[str, Any], **fields: Any) -> bytes:
        candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}, **fields}
        return event({"candidates": [candidate]})

    def text(self, *parts: str) -> list[bytes]:
        return [self.chunk({"text": part}) for part in parts]

    def calls(self, *calls: tuple[str, str, str]) -> list[bytes]:
        made = [{"id": call_id, "name": name, "args": json.loads(arguments)} for call_id, name, arguments in calls]
        return [self.chunk({"functionCall": call}) for call in made]

    def end(self, stop: str = "end", *, usage: bool = True) -> list[bytes]:
        used = {
            "promptTokenCount": USED["input"],
            "candidatesTokenCount": USED["output"] - USED["thought"],
            "thoughtsTokenCount": USED["thought"],
            "cachedContentTokenCount": USED["cached"],
        }
        chunk: dict[str, Any] = {"candidates": [{"index": 0, "finishReason": self.stops[stop]}]}
        return [event({**chunk, "usageMetadata": used} if usage else chunk)]

    def failed(self, code: str) -> bytes:
        return event({"error": {"code": 503, "status": code.upper(), "message": "it broke"}})


DIALECTS = [Chat(), Responses(), Anthropic(), Google()]
SIGNATURE = base64.b64encode(b"\x00\xffsigned").decode()
