"""Messages as Anthropic writes them: turns of content blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from glidepath.models.attached import Takes, base64_of, check_block, write_result_block
from glidepath.models.content import add_turn, iterate_pieces
from glidepath.models.names import make_legal_name
from glidepath.values import (
    AssistantMessage,
    FileBlock,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    UserBlock,
    UserMessage,
)

VENDOR = "anthropic"
THOUGHTS = ("thinking", "redacted_thinking")
_PDF = "application/pdf"
_PLAIN = (
    "text/",
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/javascript",
    "application/x-javascript",
    "application/x-python",
)
"""Documents that are text, and are sent as text."""
TAKES = Takes(vendor="Anthropic", document=(_PDF, *_PLAIN))


def system_of(transcript: Sequence[Message], system_prompt: str = "") -> str:
    """The system prompt and the system messages of the transcript."""
    parts = [system_prompt, *[message.content for message in transcript if type(message) is SystemMessage]]
    return "\n\n".join([part for part in parts if part.strip()])


def anthropic_turns(
    transcript: Sequence[Message], *, thoughts: bool = True, takes: Takes = TAKES
) -> list[dict[str, Any]]:
    """The turns: neighbors of one role are one message, so that results are next to their calls.

    Without `thoughts`, those of earlier turns are left out: a request without thinking must not contain any.
    """
    turns: list[dict[str, Any]] = []
    for message in transcript:
        if isinstance(message, AssistantMessage):
            role, blocks = "assistant", _write_reply(message, thoughts=thoughts)
        elif isinstance(message, ToolResultMessage):
            role, blocks = "user", [_result(message, takes)]
        elif isinstance(message, UserMessage):
            role, blocks = "user", _blocks(message.content, takes) or [{"type": "text", "text": "(empty)"}]
        else:
            continue
        add_turn(turns, role, "content", blocks)
    return turns


def _write_reply(message: AssistantMessage, *, thoughts: bool) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for kind, piece in iterate_pieces(message, VENDOR):
        if kind == "call":
            blocks.append(
                {"type": "tool_use", "id": _id(piece.id), "name": make_legal_name(piece.name), "input": piece.arguments}
            )
        elif kind == "item":
            if piece.get("type") == "text":
                _cite(blocks, piece)
            elif thoughts or piece.get("type") not in THOUGHTS:
                blocks.append(piece)
        elif piece.strip():
            blocks.append({"type": "text", "text": piece})
    return blocks


def _cite(blocks: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """Split off the cited end of the text before it, which was its own block, with its citations."""
    length = item.get("length")
    if not blocks or blocks[-1]["type"] != "text" or type(length) is not int or length <= 0:
        return
    text = blocks.pop()["text"]
    before, cited = text[:-length], text[-length:]
    if before.strip():
        blocks.append({"type": "text", "text": before})
    if cited.strip():
        blocks.append({"type": "text", "text": cited, "citations": item.get("citations") or []})


def _result(message: ToolResultMessage, takes: Takes) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(message.call_id)}
    blocks = _blocks(message.content, takes, result=True)
    if blocks:
        result["content"] = blocks
    if message.is_error:
        result["is_error"] = True
    return result


def _id(call_id: str) -> str:
    """A call id in the characters this endpoint accepts: it may come from another vendor."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id)


def _blocks(content: str | Sequence[UserBlock], takes: Takes, *, result: bool = False) -> list[dict[str, Any]]:
    """Content blocks, without blank text: the endpoint refuses it."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    seen = [block for block in content if not isinstance(block, TextBlock) or block.text.strip()]
    if not result:
        return [_block(block, takes) for block in seen]
    return [{"type": "text", **write_result_block(block, lambda one: _block(one, takes))} for block in seen]


def _block(block: UserBlock, takes: Takes) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    check_block(block, takes)
    image = isinstance(block, ImageBlock)
    made: dict[str, Any] = {"type": "image" if image else "document"}
    if isinstance(block, FileBlock) and block.name:
        made["title"] = block.name
    if block.url and (image or not block.data):
        made["source"] = {"type": "url", "url": block.url}
    elif image or block.media_type.lower() == _PDF:
        made["source"] = {"type": "base64", "media_type": block.media_type, "data": base64_of(block)}
    else:
        text = (block.data or b"").decode("utf-8", "replace")
        made["source"] = {"type": "text", "media_type": "text/plain", "data": text}
    return made
