"""Anthropic's Messages endpoint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import replace
from glidepath.models.anthropic_client import AnthropicPort
from glidepath.models.checks import check_compaction, check_name
from glidepath.models.citations import anthropic_citation
from glidepath.models.content import (
    higher_report,
    iterate_pieces,
    make_unsupported_error,
    merge_extras,
    parse_event,
    require_text,
    schema_words,
    tools_to_declare,
)
from glidepath.models.exchange import Reader
from glidepath.models.faults import Faults
from glidepath.models.formats.anthropic_messages import TAKES, THOUGHTS, VENDOR, anthropic_turns, system_of
from glidepath.models.hosted_forms import anthropic_hosted, explain_no_anthropic, hosted_to_declare, is_closed
from glidepath.models.names import make_legal_name
from glidepath.models.strictness import Grammar
from glidepath.models.thinkers import BEGINS_THINKING, PAUSES, THINKS, claude_can_be_forced, strip_cloud_prefix
from glidepath.models.usage_reports import anthropic_searches, anthropic_usage
from glidepath.models.vendor_model import VendorModel, fit_thoughts
from glidepath.spi import HostedTool, ModelRequest, ToolSpec
from glidepath.values import (
    AssistantMessage,
    ConfigurationError,
    Delta,
    Message,
    RejectedError,
    ToolCallDelta,
    Usage,
    UserMessage,
)

if TYPE_CHECKING:
    from glidepath.models.anthropic_client import ClaudeClient

_REASONS = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "pause_turn": "pause_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}
# The endpoint requires an output cap with every call: the known maximum is sent unless one is set.
_MAXIMA = (
    (re.compile(r"claude-3-(opus|sonnet|haiku)|claude-2|claude-instant"), 4_096),
    (re.compile(r"claude-3-5"), 8_192),
    (re.compile(r"claude-opus-4(-0|-1|-2025)|claude-opus-4$"), 32_000),
    (re.compile(r"claude-"), 64_000),
)
UNKNOWN_MAXIMUM = 4_096
_BUDGETED = re.compile(r"claude-3-7|claude-(sonnet|opus|haiku)-4(-0|-1|-5|-2025|$)")
"""Models whose thinking takes a budget of tokens; later ones take an effort."""
_UNSTRUCTURED = re.compile(r"claude-[23]|claude-instant|claude-(sonnet|opus)-4(-0|-1|-2025|$)")
"""Models without structured output: a schema cannot be enforced."""
_BOUND = re.compile(
    r"claude-(fable-5-[1-9](?!\d)|(opus|sonnet|haiku)-5-[5-9](?!\d)|(fable|opus|sonnet|haiku)-([6-9]|\d\d)(?!\d))"
)
"""Models that refuse their own thoughts once anything before them has changed, unless told to drop them."""
_DROPS = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
_BINDING = "thinking-binding-controls-2026-08-01"
"""The beta that has the setting."""
_COMPACTION = "compact-2026-01-12"
LEAST_COMPACTION = 50_000  # tokens: the endpoint refuses less
_FIXED = re.compile(r"claude-(fable|mythos|opus-4-([7-9]|\d\d)(?!\d)|(sonnet|opus|haiku)-[5-9])")
"""Models that refuse a temperature."""
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_000, "max": 32_000}
LEAST_BUDGET = 1_024
_EFFORTS = {"minimal": "low"}
_NO_XHIGH = re.compile(r"claude-(sonnet|opus)-4-6")
_LIFETIMES: Mapping[Any, tuple[dict[str, str], str]] = {
    "5m": ({"type": "ephemeral"}, "1.25"),
    "1h": ({"type": "ephemeral", "ttl": "1h"}, "2"),
}
"""How long the cache keeps a prompt: the mark that asks for it, and the price of writing as a multiple of input."""
MOST_BREAKPOINTS = 4
_OFF = {"type": "disabled"}
_COUNTS_DOWN = re.compile(r"claude-((fable|mythos)-5|opus-(4-[7-9]|5)|(sonnet|haiku)-5-[5-9])(?!\d)")
"""Models that can be shown how many tokens their task has left."""
_TASK_BUDGETS = "task-budgets-2026-03-13"
LEAST_TASK_BUDGET = 20_000  # tokens: the endpoint refuses less
_BETWEEN = {"type": "between_tools"}


class AnthropicModel(VendorModel):
    """A Claude model.

    The key is `api_key`, else what the SDK finds (ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, a profile). `cache` marks
    the prompt for Anthropic's cache, which makes every later turn of a run cheaper: "5m" or "1h" is how long it is kept
    unused, False marks nothing. `cache_breakpoints` (1 to 4) is how many places are marked: the end of the system
    prompt, then the newest turns. From `compaction=` tokens of input on, Anthropic itself replaces the beginning of the
    conversation by a summary. `host` is `bedrock` or `vertex` for
    Claude in those clouds. `client` is your own `AsyncAnthropic`, for one event loop, closed by you.
    """

    vendor = VENDOR
    search_price = "0.01"
    session_price = "0.0042"  # an hour is $0.05, and five minutes are the least
    _sdk = "anthropic"

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        cache: str | bool = "5m",
        cache_breakpoints: int = 3,
        client: ClaudeClient | None = None,
        host: str | None = None,
        compaction: int | None = None,
    ) -> None:
        self.name = check_name(name)
        self.compaction = check_compaction(compaction, LEAST_COMPACTION)
        self._port = AnthropicPort(name, api_key=api_key, base_url=base_url, headers=headers, client=client, host=host)
        self.host = self._port.host.name
        self.provider = self._port.host.prices
        self.usage_is_billed = self._port.billed
        self._takes = replace(TAKES, vendor=self._port.vendor, by_address=self.host == "anthropic")
        self._mark, self.cache_write_rate = _parse_cache_option(cache)
        if type(cache_breakpoints) is not int or not 1 <= cache_breakpoints <= MOST_BREAKPOINTS:
            raise ConfigurationError(f"cache_breakpoints={cache_breakpoints!r} must be a whole number from 1 to 4")
        self._breakpoints = cache_breakpoints
        self.max_output_tokens = next((most for names, most in _MAXIMA if names.match(self._bare)), None)
        super().__init__(name, context_window, self._port.clients, self._port.faults)
        self._loose = self.host == "vertex" or _UNSTRUCTURED.match(self._bare) is not None
        """A schema cannot be enforced and goes into the prompt instead."""
        self.least_reasoning_tokens = LEAST_BUDGET if _BUDGETED.match(self._bare) else None
        self.takes_task_budget = self.host == "anthropic" and _COUNTS_DOWN.match(self._bare) is not None

    def explain_no_hosted(self, tool: HostedTool, _others: Sequence[object], /) -> str | None:
        """Why it cannot offer a tool of its provider; None if it can."""
        return explain_no_anthropic(self.host, self._bare, tool)

    def _reader(self, request: ModelRequest) -> _Reader:
        return _Reader(request, self._faults, self._unknown_reasons)

    def _open(self, client: ClaudeClient, body: dict[str, Any], **how: object) -> Any:
        model = "-"
        if self._port.routed:  # the client puts it into the URL, and the cloud refuses it in the body
            model = body.pop("model")
            del body["stream"]
            body.setdefault("anthropic_version", self._port.version)
        headers = _make_beta_header(client, body)
        create: Any = client.messages.with_streaming_response.create
        return create(model=model, max_tokens=1, messages=(), extra_body=body, extra_headers=headers, **how)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        cap = request.max_output_tokens or self.max_output_tokens or UNKNOWN_MAXIMUM
        body: dict[str, Any] = {"model": self.name, "max_tokens": cap, "stream": True}
        system = system_of(request.messages, request.system_prompt)
        grammar = None if self._loose else Grammar()
        shape = None if grammar is None or request.output_schema is None else grammar.output(request.output_schema)
        if request.output_schema is not None and shape is None:
            system = f"{system}\n\n{schema_words(request.output_schema)}".strip()
        if system:
            block: dict[str, Any] = {"type": "text", "text": system}
            body["system"] = [block]
        thinking = self._thinking(request, request.reasoning, cap)
        thoughts = thinking.get("thinking") not in (_OFF, _BETWEEN)
        body["messages"] = messages = anthropic_turns(request.messages, thoughts=thoughts, takes=self._takes)
        body.update(_tools(request, self._choice(request), grammar))
        if grammar is not None and grammar.left_out:
            self._leave_out("leaves some schemas unenforced: Anthropic limits how many one request may have")
        if self._mark is not None:
            _mark([*body.get("system", body.get("tools", ()))[-1:]], messages, self._mark, self._breakpoints)
        if request.temperature is not None:
            if _FIXED.match(self._bare):
                self._leave_out("gets no temperature: Anthropic refuses one for this model")
            elif request.temperature > 1:
                raise RejectedError(f"Anthropic takes a temperature from 0 to 1, not {request.temperature}")
            else:
                body["temperature"] = request.temperature
        if request.seed is not None:
            raise make_unsupported_error("Anthropic", "seed")
        if request.logprobs is not None:
            raise make_unsupported_error("Anthropic", "logprobs")
        if request.stop_sequences:
            body["stop_sequences"] = [word for word in request.stop_sequences if word.strip()]
            if len(body["stop_sequences"]) < len(request.stop_sequences):
                raise RejectedError("Anthropic rejects blank stop_sequences: remove them")
        body.update(thinking)
        if shape is not None:
            held = {"type": "json_schema", "schema": shape}
            body["output_config"] = {**body.get("output_config", {}), "format": held}
        if request.task_budget is not None and self.takes_task_budget and self.usage_is_billed:
            _add_task_budget(body, *request.task_budget)
        if request.user is not None and self.usage_is_billed:  # another host may not know the field
            body["metadata"] = {"user_id": request.user}
        if self.compaction is not None:
            trigger = {"type": "input_tokens", "value": self.compaction}
            body["context_management"] = {"edits": [{"type": "compact_20260112", "trigger": trigger}]}
        return merge_extras(body, request.extras)

    @property
    def _bare(self) -> str:
        """The name as Anthropic spells it, without what a cloud adds."""
        return strip_cloud_prefix(self.name)

    def _choice(self, request: ModelRequest) -> str:
        """The tool choice to send: a model that always thinks cannot be forced to call a tool."""
        if _is_forcing(request) and not claude_can_be_forced(self.name):
            self._leave_out("may decide not to call a tool: Anthropic does not force calls on models that think")
            return "auto"
        return request.tool_choice

    def _default_thinking(self, request: ModelRequest, effort: str | None) -> dict[str, Any]:
        """The settings for thinking that was not asked for, or cannot be turned off."""
        if THINKS.match(self._bare):
            if effort == "none":
                self._leave_out("thinks even with reasoning='none': Anthropic does not allow turning it off")
            return {} if effort in (None, "none") else _make_adaptive_thinking(self._bare, effort)
        if PAUSES.match(self._bare):
            return {"thinking": _BETWEEN} if effort == "none" else {}
        off = effort == "none" or (_is_forcing(request) and BEGINS_THINKING.match(self._bare))
        return {"thinking": _OFF} if off else {}

    def _thinking(self, request: ModelRequest, effort: str | None, cap: int) -> dict[str, Any]:
        """The thinking settings to send. A compacted transcript still has thoughts whose past has changed."""
        asked = self._make_thinking_depth(request, effort, cap)
        thinking = asked.get("thinking", {"type": "adaptive"})
        if self.usage_is_billed and _BOUND.match(self._bare) and thinking["type"] == "adaptive":
            return {**asked, "thinking": {**thinking, **_DROPS}}
        return asked

    def _make_thinking_depth(self, request: ModelRequest, effort: str | None, cap: int) -> dict[str, Any]:
        """Thinking as asked for, or off if the endpoint would refuse the request with it."""
        tokens = None if self.least_reasoning_tokens is None else request.reasoning_tokens
        if (effort in (None, "none") and tokens is None) or THINKS.match(self._bare):
            return self._default_thinking(request, effort)
        if PAUSES.match(self._bare):
            return _make_adaptive_thinking(self._bare, effort)
        budgeted = _BUDGETED.match(self._bare) is not None
        why = _explain_no_thinking(request, budgeted=budgeted, fixed=_FIXED.match(self._bare) is not None)
        if why:
            self._leave_out(f"does not think in a request {why}: Anthropic refuses both together")
            return {"thinking": _OFF}
        if not budgeted:
            return _make_adaptive_thinking(self._bare, effort)
        budget = fit_thoughts(tokens or _BUDGETS.get(effort or "", _BUDGETS["medium"]), cap)
        if budget < LEAST_BUDGET:
            return {"thinking": _OFF}  # the cap is too small for thoughts and an answer
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _make_adaptive_thinking(name: str, effort: str | None) -> dict[str, Any]:
    """Thinking at a depth the model chooses, within an effort it accepts."""
    word = _EFFORTS.get(effort or "", effort)
    if word == "xhigh" and _NO_XHIGH.match(name):
        word = "high"
    return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": word}}


def _add_task_budget(body: dict[str, Any], total: int, left: int | None) -> None:
    """The countdown that the model sees; none that the endpoint would refuse."""
    if total >= LEAST_TASK_BUDGET:
        budget = {"type": "tokens", "total": total, **({} if left is None else {"remaining": left})}
        body["output_config"] = {**body.get("output_config", {}), "task_budget": budget}


def _make_beta_header(client: ClaudeClient, body: Mapping[str, Any]) -> dict[str, str] | None:
    """The header that a setting of the body needs, besides those the client has."""
    thinking, edits = body.get("thinking"), body.get("context_management")
    needed = [_BINDING] if isinstance(thinking, Mapping) and "block_binding" in thinking else []
    if isinstance(edits, Mapping) and "compact_20260112" in str(edits.get("edits")):
        needed.append(_COMPACTION)
    if "task_budget" in (body.get("output_config") or ()):
        needed.append(_TASK_BUDGETS)
    if not needed:
        return None
    own = [str(value) for name, value in client.default_headers.items() if name.lower() == "anthropic-beta"]
    return {"anthropic-beta": ",".join([*own, *needed])}


def _parse_cache_option(cache: object) -> tuple[dict[str, str] | None, str | None]:
    """The mark and the price of a cache of this lifetime; True means five minutes."""
    if cache is False:
        return None, None
    known = _LIFETIMES.get("5m" if cache is True else cache) if isinstance(cache, str | bool) else None
    if known is None:
        raise ConfigurationError(f"cache={cache!r} is not a lifetime: use '5m' or '1h', or False for no cache marks")
    return known


# --- the request ----------------------------------------------------------------------------------------------


def _tools(request: ModelRequest, choice: str, grammar: Grammar | None) -> dict[str, Any]:
    hosted = [anthropic_hosted(tool) for tool in hosted_to_declare(request)]
    if is_closed(request) and not request.tools:
        choice = "none"  # it would use them by itself
    if (declared := tools_to_declare(request)) or hosted:
        # The choice stays the same even if no tool may be called: changing it would lose the cache of all messages.
        tools = [_tool(tool, None if grammar is None else grammar.parameters(tool, request)) for tool in declared]
        named = {"auto": {"type": "auto"}, "required": {"type": "any"}, "none": {"type": "none"}}
        return {
            "tools": [*tools, *hosted],
            "tool_choice": named.get(choice, {"type": "tool", "name": make_legal_name(choice)}),
        }
    used = {
        make_legal_name(call.name): None
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    }
    if not used:
        return {}
    # The endpoint refuses a history with calls but no declared tools, and the landing call declares none.
    stubs = [{"name": name, "input_schema": {"type": "object"}} for name in used]
    return {"tools": stubs, "tool_choice": {"type": "none"}}


def _tool(tool: ToolSpec, closed: object) -> dict[str, Any]:
    made = {"name": make_legal_name(tool.name), "description": tool.description, "input_schema": tool.parameters}
    return made if closed is None else {**made, "input_schema": closed, "strict": True}


def _is_forcing(request: ModelRequest) -> bool:
    """Whether the tool choice forces a call."""
    return bool(tools_to_declare(request)) and request.tool_choice not in ("auto", "none")


def _explain_no_thinking(request: ModelRequest, *, budgeted: bool, fixed: bool) -> str:
    """Why this request cannot have thinking; empty when it can."""
    if _is_forcing(request):
        return "whose tool_choice forces a call"
    if request.temperature not in (None, 1) and not fixed:
        return "with a temperature other than 1"
    if budgeted and _loop_without_thoughts(request.messages):
        return "of a tool loop that began without thinking"
    return ""


def _loop_without_thoughts(transcript: Sequence[Message]) -> bool:
    """Whether calls of the tool loop in progress came without thoughts: another vendor's model made them."""
    for message in reversed(transcript):
        if isinstance(message, AssistantMessage):
            kinds = [piece.get("type") if kind == "item" else kind for kind, piece in iterate_pieces(message, VENDOR)]
            if kinds and message.tool_calls and kinds[0] not in THOUGHTS:
                return True
        elif isinstance(message, UserMessage) and not message.internal:
            return False
    return False


def _mark(opening: list[dict[str, Any]], turns: list[dict[str, Any]], mark: dict[str, str], most: int) -> None:
    """Mark the opening of the prompt and the newest user turns: one was cached last time, one will be next time.

    A single mark goes to the end, where it covers the most.
    """
    ours = [turn["content"][-1] for turn in turns if turn["role"] == "user"]
    opening = opening if most > 1 else []
    for block in [*opening, *ours[-(most - len(opening)) :]]:
        block["cache_control"] = mark


# --- the reply ------------------------------------------------------------------------------------------------


class _Reader(Reader):
    """Reads the events of one message."""

    def __init__(self, request: ModelRequest, faults: Faults, unknown: set[str]) -> None:
        super().__init__(request, faults, unknown)
        self._usage: dict[str, Any] = {}
        self._total: Usage | None = None
        self._stop: Any = None
        self._why = ""
        self._blocks: dict[int, dict[str, Any]] = {}

    def read(self, name: str, data: str) -> Iterable[Delta]:
        if data.startswith("[DONE]"):  # some gateways send it
            return
        event = parse_event(data)
        kind = event.get("type") or name
        if kind == "content_block_delta":
            yield from self._delta(event["index"], event["delta"])
        elif kind == "content_block_start":
            yield from self._open_block(event["index"], event["content_block"])
        elif kind == "content_block_stop":
            yield from self._close_block(event["index"])
        elif kind == "message_start":
            message = event["message"]
            self._count(message.get("usage"))
            self.add_reply_info(response_id=message.get("id"), model=message.get("model"))
        elif kind == "message_delta":
            self._stop = event["delta"].get("stop_reason") or self._stop
            self.add_reply_info(stop_sequence=event["delta"].get("stop_sequence"))
            self._why = (event["delta"].get("stop_details") or {}).get("explanation") or self._why
            self._count(event.get("usage"))
        elif kind == "message_stop":
            stop = self.stop(self._stop, _REASONS)
            yield from self.end(stop, self._read_usage(), self.faults.clean(self._why))
        elif kind == "error":
            raise self.faults.refusal(None, event)

    def _open_block(self, index: int, block: dict[str, Any]) -> Iterable[Delta]:
        self._blocks[index] = block
        if block["type"] == "tool_use":
            self.silent = False
            block["place"] = self.calls
            self.calls += 1
            yield ToolCallDelta(
                index=block["place"], id=require_text(block.get("id") or ""), name=self.resolve_tool_name(block["name"])
            )
        elif block["type"] == "text":
            block["start"] = self.text
            if block.get("text"):
                yield self.add_text(block["text"])
        elif block["type"] == "thinking" and block.get("thinking"):
            yield self.add_thinking(block["thinking"])

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterable[Delta]:
        kind = delta["type"]
        if kind == "text_delta":
            yield self.add_text(delta["text"])
        elif kind == "input_json_delta":
            block = self._blocks[index]
            if "place" in block:
                block["input"] = None if delta["partial_json"] else block.get("input")
                yield ToolCallDelta(index=block["place"], arguments=require_text(delta["partial_json"]))
            elif "written" in block:
                block["input"].append(require_text(delta["partial_json"]))
            else:  # one of the provider's own tools: not a call of ours, and sent back unchanged
                block["input"], block["written"] = [require_text(delta["partial_json"])], True
        elif kind == "thinking_delta":
            block = self._blocks[index]
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
            yield self.add_thinking(delta["thinking"])
        elif kind == "signature_delta":
            block = self._blocks[index]
            block["signature"] = block.get("signature", "") + delta["signature"]
        elif kind == "compaction_delta":
            block = self._blocks[index]
            block["content"] = (block.get("content") or "") + (delta.get("content") or "")
            if delta.get("encrypted_content") is not None:
                block["encrypted_content"] = delta["encrypted_content"]
        elif kind == "citations_delta":
            block = self._blocks[index]
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]

    def _close_block(self, index: int) -> Iterable[Delta]:
        block = self._blocks.pop(index, {})
        kind = block.get("type")
        if kind == "tool_use" and block.get("input"):  # it came all at once
            yield ToolCallDelta(index=block["place"], arguments=_wire.encode(block["input"]).decode())
        if kind == "text" and block.get("citations"):
            yield self._read_citations(block)
        # Blocks of the provider's own tools, and unknown ones, are sent back unchanged.
        provider_tool = kind not in (None, "text", "tool_use", *THOUGHTS)
        if provider_tool and block.pop("written", None) is not None:
            block["input"] = parse_event("".join(block["input"]) or "{}")
        if provider_tool and kind is not None:
            self._note_hosted_block(kind)
        if provider_tool or kind == "redacted_thinking" or (kind == "thinking" and block.get("signature")):
            self.silent = False
            yield self.keep_item(VENDOR, block)

    def _note_hosted_block(self, kind: str) -> None:
        """A block of the provider's own tools has ended: from where it came, and what it costs."""
        name = kind.removesuffix("_tool_result")
        self.note_hosted(name)
        if name != kind and name.endswith("code_execution"):
            self.code_sessions = 1

    def _read_citations(self, block: Mapping[str, Any]) -> Delta:
        """The citations of a text; they follow it."""
        start, end = block["start"], self.text
        cites = [anthropic_citation(one, start, end) for one in block["citations"]]
        item = {"type": "text", "length": end - start, "citations": block["citations"]}
        return self.keep_item(VENDOR, item, cites=cites)

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Later figures are totals; a missing or null one changes nothing."""
        self._usage.update({name: value for name, value in (usage or {}).items() if value is not None})
        if self._usage:
            self._total = higher_report(self._total, self._sum_usage())

    def _read_usage(self) -> Usage | None:
        self.add_reply_info(service_tier=self._usage.get("service_tier"))
        self.searches = anthropic_searches(self._usage)
        return self._total

    def _sum_usage(self) -> Usage:
        given = self._usage
        return anthropic_usage(given)
