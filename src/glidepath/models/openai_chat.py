"""OpenAI chat completions, and every server that speaks the same."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from glidepath import _wire
from glidepath.messages import (
    AssistantMessage,
    Delta,
    ImageBlock,
    Message,
    SystemMessage,
    ToolCallDelta,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from glidepath.models.checks import at_home, check_name
from glidepath.models.clients import patience
from glidepath.models.content import (
    Reply,
    arguments,
    count,
    data_url,
    kept,
    known_by,
    merged,
    parsed,
    pieces,
    schema_name,
    strict,
)
from glidepath.models.exchange import answer
from glidepath.models.facts import known_window
from glidepath.models.faults import Faults
from glidepath.models.names import sent_name
from glidepath.models.openai_client import OPENAI_HOST, OpenAIPort
from glidepath.spi import ModelRequest

__all__ = ["OpenAIChatModel"]

VENDOR = "openai-chat"
_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "end_turn": "end_turn",
    "eos": "end_turn",
    "error": "error",
    "insufficient_system_resource": "error",
    "abort": "aborted",
    # What stands behind a gateway is passed on in its own words.
    "eos_token": "end_turn",
    "stop_sequence": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "safety": "refusal",
    "refusal": "refusal",
}


_REASONING = re.compile(r"(openai/)?(o\d|gpt-5)")
"""Models that refuse `max_tokens`, wherever they are served."""


class OpenAIChatModel:
    """A model behind a chat completions endpoint: OpenAI's, or any compatible one by `base_url`.

    The key is `api_key`, else what the SDK finds in OPENAI_API_KEY. With a `base_url` that is not OpenAI's, no key is
    taken from the environment. `client` is an `AsyncOpenAI` of your own, for one event loop, closed by you.
    """

    max_output_tokens: int | None = None
    price: Any = None
    vendor = VENDOR

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        client: Any = None,
    ) -> None:
        self.name = check_name(name)
        self._port = OpenAIPort(
            api_key=api_key, base_url=base_url, headers=headers, client=client, who=f"openai-chat:{name}"
        )
        self.usage_is_billed = self._official = at_home(self._port.url, OPENAI_HOST)
        self._capped_whole = self._official or self._port.azure or _REASONING.match(name) is not None
        self.provider = "openai" if self._official else None
        self.context_window = context_window or known_window(name, self.provider)
        self._unknown_reasons: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer one request."""
        body = self._body(request)
        reader = _Reader(Reply(self._unknown_reasons, request.tools), self._port.faults, echo=not self._official)

        async def open_stream() -> Any:
            client = await self._port.clients.get()
            # The whole request is in extra_body: the SDK would walk through every typed field of a long history.
            return client.chat.completions.with_streaming_response.create(
                model=self.name, messages=(), stream=True, extra_body=body, timeout=patience("openai", request)
            )

        return answer(open_stream, reader, self._port.faults)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._port.clients.aclose()

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": _messages(request),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": sent_name(tool.name),
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
            body["tool_choice"] = _choice(request.tool_choice)
        if request.max_output_tokens is not None:
            body["max_completion_tokens" if self._capped_whole else "max_tokens"] = request.max_output_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.reasoning is not None:
            body["reasoning_effort"] = request.reasoning
        if request.output_schema is not None:
            schema, closed = strict(request.output_schema)
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": schema_name(request.output_schema),
                    "schema": schema if closed else request.output_schema,
                    "strict": closed,
                },
            }
        if self._official:  # another host may not know the fields
            stored = (request.extras or {}).get("store") is True  # the endpoint refuses metadata otherwise
            body.update(known_by(request, metadata=stored))
        return merged(body, request.extras)


def _choice(choice: str) -> Any:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": sent_name(choice)}}


# --- messages -------------------------------------------------------------------------------------------------


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    if request.system_prompt:
        sent.append({"role": "system", "content": request.system_prompt})
    pictures: list[dict[str, Any]] = []
    newest = max([k for k, m in enumerate(request.messages) if type(m) is UserMessage and not m.internal], default=-1)
    for place, message in enumerate(request.messages):
        if pictures and not isinstance(message, ToolResultMessage):
            sent.append({"role": "user", "content": pictures})
            pictures = []
        if isinstance(message, ToolResultMessage):
            sent.append({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
            pictures += _pictures(message)  # a tool message takes text only: pictures follow the batch
        elif isinstance(message, AssistantMessage):
            sent += _assistant(message, current=place > newest)
        else:
            sent += _said(message)
    if pictures:
        sent.append({"role": "user", "content": pictures})
    return sent


def _said(message: Message) -> list[dict[str, Any]]:
    if isinstance(message, SystemMessage):
        return [{"role": "system", "content": message.content}]
    if not isinstance(message, UserMessage):
        return []
    if isinstance(message.content, str):
        return [{"role": "user", "content": message.content}]
    return [{"role": "user", "content": [_part(block) for block in message.content]}]


def _part(block: Any) -> dict[str, Any]:
    if isinstance(block, ImageBlock):
        return {"type": "image_url", "image_url": {"url": data_url(block)}}
    return {"type": "text", "text": block.text}


def _pictures(message: ToolResultMessage) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return []
    images = [_part(block) for block in message.content if isinstance(block, ImageBlock)]
    label = f"Images from the result of {message.tool_name} ({message.call_id}):"
    return [{"type": "text", "text": label}, *images] if images else []


def _assistant(message: AssistantMessage, *, current: bool) -> list[dict[str, Any]]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": sent_name(call.name), "arguments": arguments(call)}}
        for call in message.tool_calls
    ]
    if not calls and not message.text:
        return []
    sent: dict[str, Any] = {"role": "assistant", "content": message.text}
    if calls:
        sent["tool_calls"] = calls
    if calls and current:  # reasoning goes back only inside the tool loop it belongs to
        for kind, item in pieces(message, VENDOR):
            if kind == "item":
                sent.update(item)
    return [sent]


# --- the reply ------------------------------------------------------------------------------------------------


class _Call:
    """A call that is being written."""

    __slots__ = ("arguments", "id", "place")

    def __init__(self, place: int, call_id: str) -> None:
        self.place = place
        self.id = call_id
        self.arguments: list[str] = []

    def is_over(self, call_id: str, written: str) -> bool:
        """Whether a fragment that names a tool begins another call: it has another id, or new arguments."""
        if call_id and self.id:
            return call_id != self.id
        if not written.lstrip().startswith("{"):
            return False
        try:
            return type(_wire.loads("".join(self.arguments))) is dict
        except _wire.WireError:
            return False


class _Reader:
    """Reads the chunks of one completion."""

    def __init__(self, reply: Reply, faults: Faults, *, echo: bool) -> None:
        self._reply = reply
        self._faults = faults
        self._echo = echo
        self._usage: Usage | None = None
        self._reason: Any = None
        self._refused = False
        self._calls: dict[Any, _Call] = {}
        self._newest: _Call | None = None
        self._thoughts: dict[str, Any] = {}

    def read(self, _name: str, data: str) -> Iterable[Delta]:
        if data.startswith("[DONE]"):
            yield from self._end()
            return
        chunk = parsed(data)
        if chunk.get("error") or chunk.get("object") == "error":
            raise self._faults.refusal(None, chunk)
        if chunk.get("usage"):
            self._usage = _usage(chunk["usage"])
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue  # a second answer that nobody asked for
            yield from self._delta(choice.get("delta") or {})
            self._reason = choice.get("finish_reason") or self._reason

    def finish(self) -> Iterable[Delta]:
        """A server that never says [DONE] has given its reason at least; without that, the connection was dropped."""
        if self._reason is not None:
            yield from self._end()

    def _delta(self, delta: Mapping[str, Any]) -> Iterable[Delta]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            field = "reasoning_content" if delta.get("reasoning_content") else "reasoning"
            self._thoughts[field] = self._thoughts.get(field, "") + thought
            yield self._reply.thought(thought)
        if delta.get("reasoning_details"):
            self._thoughts.setdefault("reasoning_details", []).extend(delta["reasoning_details"])
        for field in ("content", "refusal"):
            text = delta.get(field)
            if isinstance(text, list):
                yield from self._parts(text)
            elif text:
                self._refused = self._refused or field == "refusal"
                yield self._reply.said(text)
        for fragment in delta.get("tool_calls") or ():
            yield self._call(fragment)

    def _parts(self, parts: list[Any]) -> Iterable[Delta]:
        """Content in parts, as some servers send thoughts and text apart."""
        for part in parts:
            thoughts = part.get("thinking")
            for thought in thoughts if isinstance(thoughts, list) else ():
                yield self._reply.thought(thought.get("text") or "")
            if part.get("text"):
                yield self._reply.said(part["text"])

    def _call(self, fragment: Mapping[str, Any]) -> ToolCallDelta:
        """A fragment. Some servers give every call the index 0, or none, or no id."""
        function = fragment.get("function") or {}
        call_id, name, given = (
            str(fragment.get("id") or ""),
            self._reply.called(function.get("name") or ""),
            function.get("arguments"),
        )
        written = given if isinstance(given, str) else _wire.encode(given).decode() if given else ""
        key = fragment.get("index")
        call = self._calls.get(key)
        if call is None and key is None and not name:
            call = self._newest
        if call is None or (name and call.is_over(call_id, written)):
            call = self._calls[key] = _Call(self._reply.calls, call_id)
            self._reply.calls += 1
        self._newest = call
        call.arguments.append(written)
        self._reply.silent = False
        return ToolCallDelta(index=call.place, id=call_id, name=name, arguments=written)

    def _end(self) -> Iterable[Delta]:
        if self._reply.ended:
            return
        if self._thoughts and self._echo:
            if "reasoning_details" in self._thoughts:  # they hold the text as well
                self._thoughts.pop("reasoning", None)
            yield kept(VENDOR, self._thoughts, text=0, calls=0)
        stop = self._reply.stop(self._reason, _REASONS)
        yield from self._reply.end("refusal" if self._refused and stop == "end_turn" else stop, self._usage)


def _usage(given: Mapping[str, Any]) -> Usage:
    prompt, completion = count(given, "prompt_tokens"), count(given, "completion_tokens")
    reasoning = count(given, "completion_tokens_details", "reasoning_tokens")
    if reasoning and count(given, "total_tokens") == prompt + completion + reasoning:
        completion += reasoning  # a server that counts them apart
    cached = count(given, "prompt_tokens_details", "cached_tokens") or count(given, "prompt_cache_hit_tokens")
    written = count(given, "prompt_tokens_details", "cache_write_tokens")
    return Usage(prompt, completion, cached, written, reasoning)
