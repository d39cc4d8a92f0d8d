"""Anthropic's Messages endpoint."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath.errors import ConfigurationError
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
from glidepath.models.checks import at_home, check_headers, check_key, check_name, check_url, leave_open, site
from glidepath.models.clients import Clients, known_platform, patience
from glidepath.models.content import Reply, base64_of, count, kept, merged, parsed, pieces, schema_words, strict, worded
from glidepath.models.exchange import answer
from glidepath.models.facts import known_window
from glidepath.models.faults import Faults
from glidepath.models.names import sent_name
from glidepath.spi import ModelRequest

__all__ = ["AnthropicModel"]

_log = logging.getLogger("glidepath")

VENDOR = "anthropic"
_HOST = "api.anthropic.com"
_REASONS = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "pause_turn": "pause_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}
# The endpoint wants an output cap with every call, so the known maximum is sent where nobody has set one.
_MAXIMA = (
    (re.compile(r"claude-3-(opus|sonnet|haiku)|claude-2|claude-instant"), 4_096),
    (re.compile(r"claude-3-5"), 8_192),
    (re.compile(r"claude-opus-4(-0|-1|-2025)|claude-opus-4$"), 32_000),
    (re.compile(r"claude-"), 64_000),
)
UNKNOWN_MAXIMUM = 4_096
_BUDGETED = re.compile(r"claude-3-7|claude-(sonnet|opus|haiku)-4(-0|-1|-5|-2025|$)")
"""Models whose thinking takes a budget of tokens; later ones take an effort."""
_UNSTRUCTURED = re.compile(r"claude-[23]|claude-instant|claude-(sonnet|opus)-4(-0|-2025|$)")
"""Models that cannot be held to a schema."""
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_000, "max": 32_000}
LEAST_BUDGET = 1_024
_EFFORTS = {"minimal": "low"}
_MARK = {"type": "ephemeral"}
_OFF = {"type": "disabled"}
_THOUGHTS = ("thinking", "redacted_thinking")
_NO_KEY = "there is no key for Anthropic: set the environment variable ANTHROPIC_API_KEY, or pass api_key="


class AnthropicModel:
    """A Claude model.

    The key is `api_key`, else what the SDK finds (ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, a profile). `cache` marks
    the prompt for Anthropic's cache, which makes every later turn of a run cheaper. `client` is an `AsyncAnthropic` of
    your own (Bedrock, Vertex), for one event loop, closed by you.
    """

    price: Any = None
    vendor = VENDOR
    provider = "anthropic"

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        cache: bool = True,
        client: Any = None,
    ) -> None:
        self.name = check_name(name)
        check_key(api_key, "ANTHROPIC_API_KEY")
        check_url(base_url)
        check_headers(headers)
        if client is not None:
            calm = client.with_options(max_retries=0)  # ours govern: they know the budget and the deadline
            self._clients = Clients(lambda: calm, leave_open)
        else:
            self._clients = Clients(lambda: _client(api_key, base_url, headers), _close)
        first = self._clients.peek()
        secrets = [getattr(first, "api_key", None), getattr(first, "auth_token", None), *(headers or {}).values()]
        advice = "check the model name and the key (ANTHROPIC_API_KEY)"
        self._faults = Faults(f"anthropic:{name} at {site(str(first.base_url))}", secrets, advice)
        self.usage_is_billed = at_home(str(first.base_url), _HOST)
        self._cache = cache
        self.cache_write_rate = "1.25" if cache else None
        self.max_output_tokens = next((most for names, most in _MAXIMA if names.match(name)), None)
        self.context_window = context_window or known_window(name, self.provider)
        self._unknown_reasons: set[str] = set()
        self._left_out: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer one request."""
        body = self._body(request)
        reader = _Reader(Reply(self._unknown_reasons, request.tools), self._faults)

        async def open_stream() -> Any:
            client = await self._clients.get()
            # The whole request is in extra_body: the SDK would walk through every typed field of a long history.
            return client.messages.with_streaming_response.create(
                model="-",
                max_tokens=1,
                messages=(),
                stream=True,
                extra_body=body,
                timeout=patience("anthropic", request),
            )

        return answer(open_stream, reader, self._faults)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._clients.aclose()

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        cap = request.max_output_tokens or self.max_output_tokens or UNKNOWN_MAXIMUM
        body: dict[str, Any] = {"model": self.name, "max_tokens": cap, "stream": True}
        system = _system(request)
        if request.output_schema is not None and _UNSTRUCTURED.match(self.name):
            system = f"{system}\n\n{schema_words(request.output_schema)}".strip()
        if system:
            block: dict[str, Any] = {"type": "text", "text": system}
            body["system"] = [{**block, "cache_control": _MARK} if self._cache else block]
        thinking = {} if request.reasoning is None else self._thinking(request, request.reasoning, cap)
        body["messages"] = messages = _messages(request.messages, thoughts=thinking.get("thinking") != _OFF)
        if self._cache:
            _mark(messages)
        body.update(_tools(request))
        if request.temperature is not None:
            body["temperature"] = request.temperature
        body.update(thinking)
        if request.output_schema is not None and not _UNSTRUCTURED.match(self.name):
            schema, closed = strict(request.output_schema)
            shape = {"type": "json_schema", "schema": schema if closed else request.output_schema}
            body["output_config"] = {**body.get("output_config", {}), "format": shape}
        if request.user is not None and self.usage_is_billed:  # another host may not know the field
            body["metadata"] = {"user_id": request.user}
        return merged(body, request.extras)

    def _thinking(self, request: ModelRequest, effort: str, cap: int) -> dict[str, Any]:
        """Thinking as it was asked for, left out of a request that the endpoint would refuse with it."""
        if effort == "none":
            return {"thinking": _OFF}
        budgeted = _BUDGETED.match(self.name) is not None
        why = _no_thinking(request, budgeted=budgeted)
        if why:
            if why not in self._left_out:
                self._left_out.add(why)
                _log.warning("%r thinks in no request %s: Anthropic refuses both together", self, why)
            return {"thinking": _OFF}
        if not budgeted:
            return {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": _EFFORTS.get(effort, effort)},
            }
        budget = min(_BUDGETS.get(effort, _BUDGETS["medium"]), cap // 2)
        if budget < LEAST_BUDGET:
            return {"thinking": _OFF}  # the cap has no room for thoughts and an answer
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}


async def _close(client: Any) -> None:
    await client.close()


def _client(key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    try:
        import anthropic
    except ImportError:
        raise ConfigurationError(
            "Anthropic models need the anthropic package: pip install 'glidepath[anthropic]'"
        ) from None
    from anthropic._base_client import get_platform

    try:
        client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=base_url,
            default_headers=headers,
            max_retries=0,  # ours govern: they know the budget and the deadline
            timeout=None,
            http_client=anthropic.DefaultAsyncHttpxClient(timeout=None),
        )
    except anthropic.AnthropicError as error:
        raise ConfigurationError(f"{_NO_KEY} ({error})") from None
    if client.api_key is None and client.auth_token is None and getattr(client, "credentials", None) is None:
        raise ConfigurationError(_NO_KEY)
    check_key(client.api_key, "ANTHROPIC_API_KEY")
    check_url(str(client.base_url))
    return known_platform(client, get_platform)


# --- the request ----------------------------------------------------------------------------------------------


def _system(request: ModelRequest) -> str:
    """The system prompt, and what the application says in the transcript as system."""
    parts = [request.system_prompt]
    parts += [message.content for message in request.messages if type(message) is SystemMessage]
    return "\n\n".join([part for part in parts if part.strip()])


def _tools(request: ModelRequest) -> dict[str, Any]:
    choice = request.tool_choice
    if request.tools:
        tools = [
            {"name": sent_name(tool.name), "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
        named = {"auto": {"type": "auto"}, "required": {"type": "any"}, "none": {"type": "none"}}
        return {"tools": tools, "tool_choice": named.get(choice, {"type": "tool", "name": sent_name(choice)})}
    used = {
        sent_name(call.name): None
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    }
    if not used:
        return {}
    # A history with calls is refused when no tools are declared, and the landing call has none.
    stubs = [{"name": name, "input_schema": {"type": "object"}} for name in used]
    return {"tools": stubs, "tool_choice": {"type": "none"}}


def _no_thinking(request: ModelRequest, *, budgeted: bool) -> str:
    """Why this request cannot have thinking; empty when it can."""
    if request.tools and request.tool_choice not in ("auto", "none"):
        return "whose tool_choice forces a call"
    if request.temperature not in (None, 1):
        return "with a temperature other than 1"
    if budgeted and _loop_without_thoughts(request.messages):
        return "of a tool loop that began without thinking"
    return ""


def _loop_without_thoughts(transcript: Sequence[Message]) -> bool:
    """Whether calls of the tool loop in progress came without thoughts: another vendor's model made them."""
    for message in reversed(transcript):
        if isinstance(message, AssistantMessage):
            kinds = [piece.get("type") if kind == "item" else kind for kind, piece in pieces(message, VENDOR)]
            if kinds and message.tool_calls and kinds[0] not in _THOUGHTS:
                return True
        elif isinstance(message, UserMessage) and not message.internal:
            return False
    return False


def _messages(transcript: Sequence[Message], *, thoughts: bool) -> list[dict[str, Any]]:
    """The turns: neighbors of one role are one message, so that results stand next to their calls.

    Without `thoughts` those of earlier turns are left out: a request that does not think must not hold any.
    """
    turns: list[dict[str, Any]] = []
    for message in transcript:
        if isinstance(message, AssistantMessage):
            role, blocks = "assistant", _written(message, thoughts=thoughts)
        elif isinstance(message, ToolResultMessage):
            role, blocks = "user", [_result(message)]
        elif isinstance(message, UserMessage):
            role, blocks = "user", _blocks(message.content) or [{"type": "text", "text": "(empty)"}]
        else:
            continue
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _written(message: AssistantMessage, *, thoughts: bool) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for kind, piece in pieces(message, VENDOR):
        if kind == "call":
            blocks.append(
                {"type": "tool_use", "id": _id(piece.id), "name": sent_name(piece.name), "input": piece.arguments}
            )
        elif kind == "item":
            if thoughts or piece.get("type") not in _THOUGHTS:
                blocks.append(piece)
        elif piece.strip():
            blocks.append({"type": "text", "text": piece})
    return blocks


def _result(message: ToolResultMessage) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(message.call_id)}
    blocks = _blocks(message.content)
    if blocks:
        result["content"] = blocks
    if message.is_error:
        result["is_error"] = True
    return result


def _id(call_id: str) -> str:
    """A call id in the letters this endpoint takes: another vendor may have given it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id)


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Content blocks; a text without anything to see is refused, and left out."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [_block(block) for block in content if isinstance(block, ImageBlock) or block.text.strip()]


def _block(block: Any) -> dict[str, Any]:
    if not isinstance(block, ImageBlock):
        return {"type": "text", "text": block.text}
    if block.url:
        return {"type": "image", "source": {"type": "url", "url": block.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": block.media_type, "data": base64_of(block)}}


def _mark(turns: list[dict[str, Any]]) -> None:
    """Cache up to the newest two turns from our side: one is read next time, the other was written last time."""
    ours = [turn for turn in turns if turn["role"] == "user"]
    for turn in ours[-2:]:
        turn["content"][-1]["cache_control"] = _MARK


# --- the reply ------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the events of one message."""

    def __init__(self, reply: Reply, faults: Faults) -> None:
        self._reply = reply
        self._faults = faults
        self._usage: dict[str, Any] = {}
        self._stop: Any = None
        self._why = ""
        self._blocks: dict[int, dict[str, Any]] = {}

    def read(self, name: str, data: str) -> Iterable[Delta]:
        if data.startswith("[DONE]"):  # some gateways say so
            return
        event = parsed(data)
        kind = event.get("type") or name
        if kind == "content_block_delta":
            yield from self._delta(event["index"], event["delta"])
        elif kind == "content_block_start":
            yield from self._opened(event["index"], event["content_block"])
        elif kind == "content_block_stop":
            yield from self._closed(event["index"])
        elif kind == "message_start":
            self._count(event["message"].get("usage"))
        elif kind == "message_delta":
            self._stop = event["delta"].get("stop_reason") or self._stop
            self._why = (event["delta"].get("stop_details") or {}).get("explanation") or self._why
            self._count(event.get("usage"))
        elif kind == "message_stop":
            stop = self._reply.stop(self._stop, _REASONS)
            yield from self._reply.end(stop, self._used(), self._faults.clean(self._why))
        elif kind == "error":
            raise self._faults.refusal(None, event)

    def finish(self) -> Iterable[Delta]:
        """Nothing: without its last event a message is not complete."""
        return ()

    def _opened(self, index: int, block: dict[str, Any]) -> Iterable[Delta]:
        self._blocks[index] = block
        if block["type"] == "tool_use":
            self._reply.silent = False
            block["place"] = self._reply.calls
            self._reply.calls += 1
            yield ToolCallDelta(
                index=block["place"], id=worded(block.get("id") or ""), name=self._reply.called(block["name"])
            )
        elif block["type"] == "text" and block.get("text"):
            yield self._reply.said(block["text"])
        elif block["type"] == "thinking" and block.get("thinking"):
            yield self._reply.thought(block["thinking"])

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterable[Delta]:
        kind = delta["type"]
        if kind == "text_delta":
            yield self._reply.said(delta["text"])
        elif kind == "input_json_delta":
            block = self._blocks[index]
            if "place" in block:
                block["input"] = None if delta["partial_json"] else block.get("input")
                yield ToolCallDelta(index=block["place"], arguments=worded(delta["partial_json"]))
            elif "written" in block:
                block["input"].append(worded(delta["partial_json"]))
            else:  # a tool of the provider's own: not a call of ours, and sent back as it came
                block["input"], block["written"] = [worded(delta["partial_json"])], True
        elif kind == "thinking_delta":
            block = self._blocks[index]
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
            yield self._reply.thought(delta["thinking"])
        elif kind == "signature_delta":
            block = self._blocks[index]
            block["signature"] = block.get("signature", "") + delta["signature"]

    def _closed(self, index: int) -> Iterable[Delta]:
        block = self._blocks.pop(index, {})
        kind = block.get("type")
        if kind == "tool_use" and block.get("input"):  # it came at once, and not in pieces
            yield ToolCallDelta(index=block["place"], arguments=_wire.encode(block["input"]).decode())
        provider_tool = kind == "server_tool_use" or str(kind).endswith("_tool_result")
        if provider_tool and block.pop("written", None) is not None:
            block["input"] = parsed("".join(block["input"]) or "{}")
        if provider_tool or kind == "redacted_thinking" or (kind == "thinking" and block.get("signature")):
            self._reply.silent = False
            yield kept(VENDOR, block, text=self._reply.text, calls=self._reply.calls)

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Later figures are totals; a figure that is missing or null says nothing."""
        self._usage.update({name: value for name, value in (usage or {}).items() if value is not None})

    def _used(self) -> Usage | None:
        given = self._usage
        if not given:
            return None
        read, written = count(given, "cache_read_input_tokens"), count(given, "cache_creation_input_tokens")
        thoughts = count(given, "output_tokens_details", "thinking_tokens")
        return Usage(
            count(given, "input_tokens") + read + written, count(given, "output_tokens"), read, written, thoughts
        )
