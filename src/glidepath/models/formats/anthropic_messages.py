"""Messages as Anthropic writes them: turns of content blocks."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glidepath.messages import (
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
from glidepath.models.attached import Takes, base64_of, block_of, check_block, in_result
from glidepath.models.content import pieces
from glidepath.models.formats.reading import VendorTurn, call_of, content_of, each
from glidepath.models.names import sent_name

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


# --- written --------------------------------------------------------------------------------------------------


def anthropic_turns(
    transcript: Sequence[Message], *, thoughts: bool = True, takes: Takes = TAKES
) -> list[dict[str, Any]]:
    """The turns: neighbors of one role are one message, so that results are next to their calls.

    Without `thoughts`, those of earlier turns are left out: a request without thinking must not contain any.
    """
    turns: list[dict[str, Any]] = []
    for message in transcript:
        if isinstance(message, AssistantMessage):
            role, blocks = "assistant", _written(message, thoughts=thoughts)
        elif isinstance(message, ToolResultMessage):
            role, blocks = "user", [_result(message, takes)]
        elif isinstance(message, UserMessage):
            role, blocks = "user", _blocks(message.content, takes) or [{"type": "text", "text": "(empty)"}]
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
    return [{"type": "text", **in_result(block, lambda one: _block(one, takes))} for block in seen]


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


# --- read -----------------------------------------------------------------------------------------------------


def read_anthropic(history: object, system: str | Iterable[Mapping[str, Any]] | None = None) -> list[Message]:
    """The messages of an Anthropic history, and its system prompt."""
    found: list[Message] = []
    called: dict[str, str] = {}
    if system:
        found.append(SystemMessage(system if isinstance(system, str) else _text(system)))

    def read(item: Mapping[str, Any]) -> None:
        content = item["content"]
        if item["role"] == "system":
            found.append(SystemMessage(content if isinstance(content, str) else _text(content)))
        elif item["role"] == "assistant":
            reply = _read_reply([{"type": "text", "text": content}] if isinstance(content, str) else content)
            called.update({call.id: call.name for call in reply.tool_calls})
            found.append(reply)
        elif item["role"] == "user":
            found.extend(_read_user(content, called))
        else:
            raise ValueError(f"role {item['role']!r} is unknown")

    each(history, "from_anthropic", read)
    return found


def _text(blocks: Iterable[Mapping[str, Any]]) -> str:
    return "\n\n".join([block["text"] for block in blocks if block.get("type") == "text"])


def _read_user(content: str | Sequence[Mapping[str, Any]], called: Mapping[str, str]) -> list[Message]:
    if isinstance(content, str):
        return [UserMessage(content)]
    found: list[Message] = []
    said: list[Any] = []
    for block in content:
        if block["type"] != "tool_result":
            said.append(_read_block(block))
            continue
        if said:
            found.append(UserMessage(content_of(said)))
            said = []
        call_id, held = block["tool_use_id"], block.get("content") or ""
        text = held if isinstance(held, str) else content_of([_read_block(inner) for inner in held])
        found.append(ToolResultMessage(call_id, called.get(call_id, ""), text, is_error=bool(block.get("is_error"))))
    if said:
        found.append(UserMessage(content_of(said)))
    return found


def _read_reply(blocks: Sequence[Mapping[str, Any]]) -> AssistantMessage:
    turn = VendorTurn(VENDOR)
    for block in blocks:
        kind = block["type"]
        if kind == "text":
            turn.said(block["text"])
            if block.get("citations"):
                turn.kept({"type": "text", "length": len(block["text"]), "citations": block["citations"]})
        elif kind == "tool_use":
            turn.called(call_of(block["id"], block["name"], block.get("input") or {}))
        else:
            turn.kept(dict(block))
    return turn.message()


def _read_block(block: Mapping[str, Any]) -> Any:
    if block["type"] == "text":
        return TextBlock(block["text"])
    source = block.get("source") or {}
    if block["type"] not in ("image", "document") or source.get("type") not in ("url", "base64", "text"):
        raise ValueError(f"a block of type {block['type']!r} with this source is not supported")
    image = block["type"] == "image"
    if source["type"] == "url":
        return block_of(source["url"], image=image, name=block.get("title"))
    if source["type"] == "text":
        return FileBlock(source.get("media_type", "text/plain"), source["data"].encode(), name=block.get("title"))
    data = base64.b64decode(source["data"])
    if image:
        return ImageBlock(source["media_type"], data)
    return FileBlock(source["media_type"], data, name=block.get("title"))
