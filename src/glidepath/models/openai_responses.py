"""OpenAI Responses: the endpoint that keeps a model's reasoning across tool calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

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
    worded,
)
from glidepath.models.exchange import answer
from glidepath.models.facts import known_window
from glidepath.models.faults import Faults
from glidepath.models.names import sent_name
from glidepath.models.openai_client import OPENAI_HOST, OpenAIPort
from glidepath.spi import ModelRequest

__all__ = ["OpenAIResponsesModel"]

VENDOR = "openai"
_PLAIN = ("gpt-3", "gpt-4", "chatgpt-", "ft:gpt-3", "ft:gpt-4")
_INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class OpenAIResponsesModel:
    """An OpenAI model behind the Responses endpoint.

    Nothing is stored at OpenAI: reasoning comes back encrypted and is sent again with the history. The key is
    `api_key`, else what the SDK finds in OPENAI_API_KEY. `client` is an `AsyncOpenAI` of your own, for one event loop,
    closed by you.
    """

    max_output_tokens: int | None = None
    price: Any = None
    vendor = VENDOR
    provider = "openai"

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
            api_key=api_key, base_url=base_url, headers=headers, client=client, who=f"openai:{name}"
        )
        self.usage_is_billed = at_home(self._port.url, OPENAI_HOST)
        self._reasons = not name.startswith(_PLAIN) and "-chat" not in name
        self.context_window = context_window or known_window(name, self.provider)
        self._unknown_reasons: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer one request."""
        body = self._body(request)
        reader = _Reader(Reply(self._unknown_reasons, request.tools), self._port.faults)

        async def open_stream() -> Any:
            client = await self._port.clients.get()
            # The whole request is in extra_body: the SDK would walk through every typed field of a long history.
            return client.responses.with_streaming_response.create(
                model=self.name, stream=True, extra_body=body, timeout=patience("openai", request)
            )

        return answer(open_stream, reader, self._port.faults)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._port.clients.aclose()

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.name, "input": _input(request), "stream": True, "store": False}
        if request.system_prompt:
            body["instructions"] = request.system_prompt
        if self._reasons:
            body["include"] = ["reasoning.encrypted_content"]
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": sent_name(tool.name),
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,  # the endpoint's own default would change the meaning of optional parameters
                }
                for tool in request.tools
            ]
            choice = request.tool_choice
            plain = choice in ("auto", "required", "none")
            body["tool_choice"] = choice if plain else {"type": "function", "name": sent_name(choice)}
        if request.max_output_tokens is not None:
            body["max_output_tokens"] = request.max_output_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.reasoning is not None:
            body["reasoning"] = {"effort": request.reasoning}
        if request.output_schema is not None:
            schema, closed = strict(request.output_schema)
            body["text"] = {
                "format": {
                    "type": "json_schema",
                    "name": schema_name(request.output_schema),
                    "schema": schema if closed else request.output_schema,
                    "strict": closed,
                }
            }
        if self.usage_is_billed:  # another host may not know the fields
            body.update(known_by(request, metadata=True))
        return merged(body, request.extras)


# --- the input ------------------------------------------------------------------------------------------------


def _input(request: ModelRequest) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for message in request.messages:
        items += _items(message)
    return items


def _items(message: Message) -> list[dict[str, Any]]:
    if isinstance(message, ToolResultMessage):
        output: Any = message.content
        if not isinstance(output, str):
            output = [_part(block) for block in output]
        return [{"type": "function_call_output", "call_id": message.call_id, "output": output}]
    if isinstance(message, AssistantMessage):
        written = list(pieces(message, VENDOR))
        while written and written[-1][0] == "item":  # reasoning that led to nothing is refused
            written.pop()
        return [_written(kind, piece) for kind, piece in written]
    if isinstance(message, SystemMessage):
        return [{"role": "developer", "content": message.content}]
    if isinstance(message, UserMessage):
        content: Any = message.content
        return [
            {"role": "user", "content": content if isinstance(content, str) else [_part(block) for block in content]}
        ]
    return []


def _written(kind: str, piece: Any) -> dict[str, Any]:
    if kind == "call":
        return {
            "type": "function_call",
            "call_id": piece.id,
            "name": sent_name(piece.name),
            "arguments": arguments(piece),
        }
    return piece if kind == "item" else {"role": "assistant", "content": piece}


def _part(block: Any) -> dict[str, Any]:
    if isinstance(block, ImageBlock):
        return {"type": "input_image", "image_url": data_url(block)}
    return {"type": "input_text", "text": block.text}


# --- the reply ------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the events of one response."""

    def __init__(self, reply: Reply, faults: Faults) -> None:
        self._reply = reply
        self._faults = faults
        self._refused = False
        self._written: dict[int, int] = {}
        """Characters of arguments so far, by the place of the call."""
        self._spoken: set[Any] = set()
        """The places whose text has come in pieces."""

    def read(self, _name: str, data: str) -> Iterable[Delta]:
        if data.startswith("[DONE]"):
            return
        event = parsed(data)
        kind = event.get("type", "")
        if kind == "response.output_text.delta":
            yield self._said(event)
        elif kind == "response.function_call_arguments.delta":
            self._written[event["output_index"]] += len(event["delta"])
            yield ToolCallDelta(index=event["output_index"], arguments=worded(event["delta"]))
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            yield self._reply.thought(event["delta"])
        elif kind == "response.refusal.delta":
            self._refused = True
            yield self._said(event)
        elif kind == "response.output_item.added":
            yield from self._opened(event["output_index"], event["item"])
        elif kind == "response.output_item.done":
            yield from self._closed(event["output_index"], event["item"])
        elif kind in ("response.completed", "response.incomplete"):
            yield from self._end(event["response"])
        elif kind == "response.failed":
            raise self._faults.refusal(None, event["response"].get("error") or {"message": "the response failed"})
        elif kind == "error" or event.get("error"):
            raise self._faults.refusal(None, event)

    def finish(self) -> Iterable[Delta]:
        """Nothing: without its last event a response is not complete."""
        return ()

    def _said(self, event: Mapping[str, Any]) -> Delta:
        self._spoken.add(event.get("output_index"))
        return self._reply.said(event["delta"])

    def _opened(self, index: int, item: Mapping[str, Any]) -> Iterable[Delta]:
        if item.get("type") != "function_call" or index in self._written:
            return
        self._reply.silent = False
        self._reply.calls += 1
        self._written[index] = len(item.get("arguments") or "")
        yield ToolCallDelta(
            index=index,
            id=worded(item["call_id"]),
            name=self._reply.called(item["name"]),
            arguments=worded(item.get("arguments") or ""),
        )

    def _closed(self, index: int, item: Mapping[str, Any]) -> Iterable[Delta]:
        if item.get("type") == "reasoning":
            self._reply.silent = False
            item = {key: value for key, value in item.items() if value is not None}
            yield kept(VENDOR, item, text=self._reply.text, calls=self._reply.calls)
        elif item.get("type") == "function_call":
            yield from self._opened(index, item)
            rest = (item.get("arguments") or "")[self._written[index] :]
            if rest:  # it came at once, and not in pieces
                self._written[index] += len(rest)
                yield ToolCallDelta(index=index, arguments=rest)
        elif item.get("type") == "message" and index not in self._spoken:
            for part in item.get("content") or ():
                self._spoken.add(index)
                self._refused = self._refused or bool(part.get("refusal"))
                yield self._reply.said(part.get("text") or part.get("refusal") or "")

    def _end(self, response: Mapping[str, Any]) -> Iterable[Delta]:
        usage = response.get("usage")
        if response.get("error"):
            raise self._faults.refusal(None, response)
        if self._reply.silent:  # a server that does not stream sends all of it at the end
            for index, item in enumerate(response.get("output") or ()):
                yield from self._closed(index, item)
        stop = "end_turn"
        if response.get("status") == "incomplete" or response.get("incomplete_details"):
            reason = (response.get("incomplete_details") or {}).get("reason", "max_output_tokens")
            stop = self._reply.stop(reason, _INCOMPLETE)
            stop = "max_tokens" if stop == "other" else stop  # whatever cut it, it is cut
        elif self._refused:
            stop = "refusal"
        yield from self._reply.end(stop, None if usage is None else _usage(usage))


def _usage(given: Mapping[str, Any]) -> Usage:
    return Usage(
        count(given, "input_tokens"),
        count(given, "output_tokens"),
        count(given, "input_tokens_details", "cached_tokens"),
        count(given, "input_tokens_details", "cache_write_tokens"),
        count(given, "output_tokens_details", "reasoning_tokens"),
    )
