"""OpenAI chat completions: how a reply and an error go on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glidepath._wire import encode
from glidepath.testing.upstream.asked import AskedCall, IllegalRequestError
from glidepath.testing.upstream.issued_ids import IssuedIds
from glidepath.testing.upstream.reported import Piece, Reported, meter_pieces, split_text
from glidepath.testing.upstream.spoken import Spoken

STOPS = {"end": "stop", "calls": "tool_calls", "length": "length", "refusal": "content_filter"}
KINDS = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", None),
    529: ("server_error", None),
}
DONE = b"data: [DONE]\n\n"


def write_whole(asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds) -> dict[str, Any]:
    """The reply as one JSON object."""
    text = "".join(spoken.deltas(4096))
    choices = []
    for index in range(asked.copies):
        message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None, "annotations": []}
        if spoken.calls:
            message["tool_calls"] = [
                {
                    "id": ids.issue("call_"),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in spoken.calls
            ]
        choices.append({"index": index, "message": message, "logprobs": None, "finish_reason": STOPS[spoken.stop]})
    whole = {**_head(asked, ids, "chat.completion"), "choices": choices}
    if usage.is_told:
        whole["usage"] = _usage(usage)
    return whole


def write_stream(asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds, size: int) -> Iterator[Piece]:
    """The reply as server-sent events; the copies of `n` one after the other."""
    head = _head(asked, ids, "chat.completion.chunk")
    if asked.wants_usage:
        head["usage"] = None

    def chunk(delta: dict[str, Any], index: int, stop: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": stop}
        return b"data: %b\n\n" % encode({**head, "choices": [choice]})

    spent = 0
    for index in range(asked.copies):
        start = spent = spent + spoken.hidden
        yield chunk({"role": "assistant", "content": "" if not spoken.calls else None, "refusal": None}, index), spent
        for piece, spent in meter_pieces(spoken.deltas(size), start):
            yield chunk({"content": piece}, index), spent
        for number, call in enumerate(spoken.calls):
            function = {"name": call.name, "arguments": ""}
            begun = {"index": number, "id": ids.issue("call_"), "type": "function", "function": function}
            yield chunk({"tool_calls": [begun]}, index), spent
            for piece in split_text(call.arguments, size):
                yield chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]}, index), spent
            spent += call.tokens
        yield chunk({}, index, STOPS[spoken.stop]), spent
    if asked.wants_usage and usage.is_told:
        yield b"data: %b\n\n" % encode({**head, "choices": [], "usage": _usage(usage)}), spent
    yield DONE, spent


def write_error(error: IllegalRequestError, ids: IssuedIds) -> dict[str, Any]:  # noqa: ARG001 - the other dialects need ids
    """The body of an error, in chat completions and Responses."""
    kind, code = KINDS.get(error.status, ("invalid_request_error", None))
    return {
        "error": {
            "message": str(error),
            "type": error.kind or kind,
            "param": error.param,
            "code": error.code or code,
        }
    }


def _head(asked: AskedCall, ids: IssuedIds, kind: str) -> dict[str, Any]:
    return {
        "id": ids.issue("chatcmpl-"),
        "object": kind,
        "created": ids.now(),
        "model": asked.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


def _usage(usage: Reported) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.hidden,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
