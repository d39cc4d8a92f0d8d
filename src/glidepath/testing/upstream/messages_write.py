"""Anthropic Messages: how a reply, an error and a count go on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glidepath._wire import encode, loads
from glidepath.testing.upstream.asked import AskedCall, IllegalRequestError
from glidepath.testing.upstream.issued_ids import IssuedIds, sign
from glidepath.testing.upstream.reported import Piece, Reported, meter_pieces, split_text
from glidepath.testing.upstream.spoken import Spoken, SpokenCall

STOPS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def write_whole(asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds) -> dict[str, Any]:
    """The reply as one JSON object."""
    content: list[dict[str, Any]] = []
    if spoken.thinking:
        shown = spoken.thinking if asked.shows_thinking else ""
        content.append({"type": "thinking", "thinking": shown, "signature": sign(shown)})
    text = "".join(spoken.deltas(4096))
    if text:
        content.append({"type": "text", "text": text})
    content += [
        {"type": "tool_use", "id": ids.issue("toolu_"), "name": call.name, "input": _read_input(call)}
        for call in spoken.calls
    ]
    whole = {**_head(asked, ids), "content": content, "stop_reason": STOPS[spoken.stop]}
    return {**whole, "usage": _usage(usage)} if usage.is_told else whole


def write_stream(asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds, size: int) -> Iterator[Piece]:
    """The reply as server-sent events."""
    begun = {**_head(asked, ids), "content": [], "stop_reason": None}
    if usage.is_told:
        begun["usage"] = _usage(usage, output=1)
    yield _event("message_start", 0, message=begun)
    index = spent = 0
    if spoken.thinking:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        yield _event("content_block_start", spent, index=index, content_block=block)
        yield _event("ping", spent)
        shown = spoken.thinking if asked.shows_thinking else ""
        for piece, spent in meter_pieces(split_text(shown, size)):
            yield _delta(index, spent, type="thinking_delta", thinking=piece)
        spent = spoken.hidden
        yield _delta(index, spent, type="signature_delta", signature=sign(shown))
        yield _event("content_block_stop", spent, index=index)
        index += 1
    if spoken.text or spoken.endless:
        yield _event("content_block_start", spent, index=index, content_block={"type": "text", "text": ""})
        yield _event("ping", spent)
        for piece, spent in meter_pieces(spoken.deltas(size), spoken.hidden):
            yield _delta(index, spent, type="text_delta", text=piece)
        yield _event("content_block_stop", spent, index=index)
        index += 1
    for call in spoken.calls:
        begun = {"type": "tool_use", "id": ids.issue("toolu_"), "name": call.name, "input": {}}
        yield _event("content_block_start", spent, index=index, content_block=begun)
        yield _delta(index, spent, type="input_json_delta", partial_json="")
        for piece in split_text(call.arguments, size):
            yield _delta(index, spent, type="input_json_delta", partial_json=piece)
        spent += call.tokens
        yield _event("content_block_stop", spent, index=index)
        index += 1
    ended: dict[str, Any] = {"delta": {"stop_reason": STOPS[spoken.stop], "stop_sequence": None}}
    if usage.is_told:
        ended["usage"] = _usage(usage)
    yield _event("message_delta", spent, **ended)
    yield _event("message_stop", spent)


def write_error(error: IllegalRequestError, ids: IssuedIds) -> dict[str, Any]:
    """The body of an error."""
    kind = error.kind or KINDS.get(error.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": str(error)}, "request_id": ids.issue("req_")}


def _head(asked: AskedCall, ids: IssuedIds) -> dict[str, Any]:
    return {
        "id": ids.issue("msg_"),
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "stop_sequence": None,
    }


def _usage(usage: Reported, *, output: int | None = None) -> dict[str, Any]:
    return {
        "input_tokens": usage.input - usage.cached - usage.written,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output if output is None else output,
        "service_tier": "standard",
    }


def _read_input(call: SpokenCall) -> Any:
    try:
        return loads(call.arguments)
    except ValueError:
        return {}  # cut short: the vendor sends what it could parse


def _delta(index: int, spent: int, **delta: str) -> Piece:
    return _event("content_block_delta", spent, index=index, delta=delta)


def _event(kind: str, spent: int, **fields: object) -> Piece:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode({"type": kind, **fields})), spent
