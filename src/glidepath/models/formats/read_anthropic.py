"""Reads a history that is written as Anthropic writes messages."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glidepath.models.attached import block_of
from glidepath.models.formats.anthropic_messages import VENDOR
from glidepath.models.formats.reading import VendorTurn, call_of, content_of, read_each
from glidepath.values import (
    AssistantMessage,
    FileBlock,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    UserMessage,
)


def from_anthropic(history: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of an Anthropic history: its `messages`, or a request with `system` and `messages`.

    Raises `ConfigurationError` for an item that cannot be read.
    """
    found: list[Message] = []
    called: dict[str, str] = {}
    whole: Mapping[str, Any] = history if isinstance(history, Mapping) else {"messages": history}
    if system := whole.get("system"):
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

    read_each(whole.get("messages", ()), "from_anthropic", read)
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
            turn.add_text(block["text"])
            if block.get("citations"):
                turn.keep_item({"type": "text", "length": len(block["text"]), "citations": block["citations"]})
        elif kind == "tool_use":
            turn.add_call(call_of(block["id"], block["name"], block.get("input") or {}))
        else:
            turn.keep_item(dict(block))
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
