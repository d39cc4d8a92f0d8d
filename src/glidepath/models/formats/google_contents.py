"""Messages as Gemini writes them: contents of parts."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from glidepath.models.attached import Takes, base64_of, check_block, write_attachments_apart
from glidepath.models.content import add_turn, iterate_pieces
from glidepath.models.names import make_legal_name
from glidepath.values import AssistantMessage, Message, TextBlock, ToolCall, ToolResultMessage, UserBlock, UserMessage

VENDOR = "google"
_TAKES = Takes(
    vendor="Gemini",
    document=(
        "application/pdf",
        "text/",
        "application/json",
        "application/x-javascript",
        "application/javascript",
        "application/x-python",
    ),
    audio=("audio/",),
    video=("video/",),
    schemes=("https", "http", "gs"),
)
UNSIGNED = base64.b64encode(b"skip_thought_signature_validator").decode()
"""Google's placeholder signature for a call that another model made."""
_OURS = re.compile(r"call_\d+(_\d+)?$")


def google_contents(transcript: Sequence[Message], *, leveled: bool = False) -> list[dict[str, Any]]:
    """The turns: neighbors of one role are one, so that results are together next to their calls.

    `leveled` models want a signature on the first call of a turn.
    """
    turns: list[dict[str, Any]] = []
    called: dict[str, str] = {}
    for message in transcript:
        if isinstance(message, AssistantMessage):
            role, parts = "model", _write_reply(message, leveled=leveled)
            called.update({call.id: call.name for call in message.tool_calls})
        elif isinstance(message, ToolResultMessage):
            # The tool may have run under a repaired name; the result must name the tool as it was called.
            role, parts = "user", _result(message, called.get(message.call_id, message.tool_name))
        elif isinstance(message, UserMessage):
            role, parts = "user", _parts(message.content)
        else:
            continue
        add_turn(turns, role, "parts", parts)
    for turn in turns:  # pictures and files from results go after all results of the batch
        if turn["role"] == "user":
            turn["parts"].sort(key=lambda part: "functionResponse" not in part)
    return turns


def _write_reply(message: AssistantMessage, *, leveled: bool) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    signature: Mapping[str, Any] | None = None
    for kind, piece in iterate_pieces(message, VENDOR):
        if kind == "item":
            _add_lone_signature(parts, signature)
            signature = piece if piece.get("on") in ("text", "call") else None
            if piece.get("on") == "part":
                parts.append(piece["part"])
            continue
        part: dict[str, Any] = {"text": piece} if kind == "text" else {"functionCall": _call(piece)}
        if signature is not None and signature["on"] == kind:
            part["thoughtSignature"] = signature["signature"]
            signature = None
        parts.append(part)
    _add_lone_signature(parts, signature)
    calls = [part for part in parts if "functionCall" in part]
    if leveled and calls and "thoughtSignature" not in calls[0]:
        calls[0]["thoughtSignature"] = UNSIGNED
    return parts


def _add_lone_signature(parts: list[dict[str, Any]], signature: Mapping[str, Any] | None) -> None:
    """Add a signature that came with an empty text."""
    if signature is not None and signature["on"] == "text":
        parts.append({"text": "", "thoughtSignature": signature["signature"]})


def _call(call: ToolCall) -> dict[str, Any]:
    made = {"name": make_legal_name(call.name), "args": call.arguments}
    return made if _OURS.match(call.id) else {"id": call.id, **made}


def _result(message: ToolResultMessage, name: str) -> list[dict[str, Any]]:
    made: dict[str, Any] = {
        "name": make_legal_name(name),
        "response": {"error" if message.is_error else "output": message.text},
    }
    if not _OURS.match(message.call_id):
        made["id"] = message.call_id
    return [{"functionResponse": made}, *write_attachments_apart(message, _part)]


def _parts(content: str | Sequence[UserBlock]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}]
    return [_part(block) for block in content]


def _part(block: UserBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"text": block.text}
    check_block(block, _TAKES)
    if block.url:
        return {"fileData": {"mimeType": block.media_type, "fileUri": block.url}}
    return {"inlineData": {"mimeType": block.media_type, "data": base64_of(block)}}
