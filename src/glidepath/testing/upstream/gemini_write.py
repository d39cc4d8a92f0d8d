"""Gemini generateContent: how a reply, an error and a count go on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glidepath._wire import encode, loads
from glidepath.testing.upstream.asked import AskedCall, IllegalRequestError
from glidepath.testing.upstream.gemini_read import SIGNATURE
from glidepath.testing.upstream.issued_ids import IssuedIds
from glidepath.testing.upstream.reported import Piece, Reported, meter_pieces
from glidepath.testing.upstream.spoken import Spoken, SpokenCall

STOPS = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
CODES = {529: 503}
KINDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    529: "UNAVAILABLE",
}


def write_whole(asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds) -> dict[str, Any]:
    """The reply as one JSON object."""
    text = "".join(spoken.deltas(4096))
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    parts += _write_calls(spoken, ids)
    candidates = [_candidate(parts, index, spoken.stop) for index in range(asked.copies)]
    return _frame(asked, candidates, usage, ids.issue("r"))


def write_stream(asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds, size: int) -> Iterator[Piece]:
    """The reply as server-sent events, or as a JSON array that grows."""
    number = 0
    spent = spoken.hidden
    response_id = ids.issue("r")

    def write(parts: list[dict[str, Any]], stop: str | None, spent: int) -> Piece:
        nonlocal number
        number += 1
        data = encode(_frame(asked, [_candidate(parts, 0, stop)], usage, response_id, output=spent))
        if asked.as_array:
            return (b"[" if number == 1 else b",\r\n") + data + (b"]" if stop else b""), spent
        return b"data: " + data + b"\r\n\r\n", spent

    for piece, spent in meter_pieces(spoken.deltas(size), spoken.hidden):
        yield write([{"text": piece}], None, spent)
    calls = _write_calls(spoken, ids)
    spent += sum(call.tokens for call in spoken.calls)
    yield write(calls or [{"text": ""}], spoken.stop, spent)


def write_error(error: IllegalRequestError, ids: IssuedIds) -> dict[str, Any]:  # noqa: ARG001 - the other dialects need ids
    """The body of an error."""
    code = CODES.get(error.status, error.status)
    return {"error": {"code": code, "message": str(error), "status": KINDS.get(error.status, "UNKNOWN")}}


def _frame(
    asked: AskedCall, candidates: list[Any], usage: Reported, response_id: str, *, output: int | None = None
) -> dict[str, Any]:
    frame: dict[str, Any] = {"candidates": candidates}
    if usage.is_told:
        frame["usageMetadata"] = _usage(usage, output)
    return {**frame, "modelVersion": asked.model, "responseId": response_id}


def _usage(usage: Reported, output: int | None) -> dict[str, Any]:
    # A stream reports what came so far in every event; a fault's figures come in the last one.
    is_partial = output is not None and output < usage.output
    spent = output if is_partial and output is not None else usage.output
    told = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": max(0, spent - usage.hidden) if spent >= 0 else spent,
        "totalTokenCount": usage.input + spent,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    }
    if usage.cached:
        told["cachedContentTokenCount"] = usage.cached
    if usage.hidden:
        told["thoughtsTokenCount"] = usage.hidden
    return told


def _candidate(parts: list[dict[str, Any]], index: int, stop: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": index}
    if stop:
        candidate["finishReason"] = STOPS[stop]
    return candidate


def _write_calls(spoken: Spoken, ids: IssuedIds) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for call in spoken.calls:
        arguments = _read_arguments(call)
        if arguments is not None:  # a call that was cut short is not sent at all
            calls.append({"functionCall": {"name": call.name, "args": arguments}})
    if calls:
        calls[0]["thoughtSignature"] = ids.issue(SIGNATURE)
    return calls


def _read_arguments(call: SpokenCall) -> Any:
    try:
        return loads(call.arguments)
    except ValueError:
        return None
