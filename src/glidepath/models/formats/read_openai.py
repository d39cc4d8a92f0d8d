"""Reads histories that are written as OpenAI writes them: for chat completions, and for Responses."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glidepath.models.attached import block_of
from glidepath.models.formats.chat_messages import THOUGHTS, VENDOR as CHAT
from glidepath.models.formats.reading import VendorTurn, call_of, content_of, read_each
from glidepath.models.formats.responses import VENDOR as RESPONSES
from glidepath.values import (
    AssistantMessage,
    FileBlock,
    Message,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    UserMessage,
)


def from_openai_chat(history: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of a chat completions history; raises `ConfigurationError` for an item that cannot be read."""
    found: list[Message] = []
    called: dict[str, str] = {}

    def read(item: Mapping[str, Any]) -> None:
        role, content = item["role"], item.get("content") or ""
        if role in ("system", "developer"):
            found.append(SystemMessage(_text(content)))
        elif role == "user":
            found.append(UserMessage(_content(content, _chat_block)))
        elif role in ("tool", "function"):
            call_id = item.get("tool_call_id") or item.get("name") or ""
            name = called.get(call_id) or item.get("name") or ""
            found.append(ToolResultMessage(call_id, name, _content(content, _chat_block)))
        elif role == "assistant":
            found.append(reply := _read_reply(item))
            called.update({call.id: call.name for call in reply.tool_calls})
        else:
            raise ValueError(f"role {role!r} is unknown")

    read_each(history, "from_openai_chat", read)
    return found


def _read_reply(item: Mapping[str, Any]) -> AssistantMessage:
    turn = VendorTurn(CHAT)
    thoughts = {field: item[field] for field in THOUGHTS if item.get(field)}
    if thoughts:
        turn.keep_item(thoughts)
    turn.add_text(_text(item.get("content") or "") or item.get("refusal") or "")
    for call in item.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        turn.add_call(call_of(call.get("id") or "", function["name"], function.get("arguments", function.get("input"))))
    return turn.message()


def _chat_block(part: Mapping[str, Any]) -> Any:
    kind = part["type"]
    if kind == "text":
        return TextBlock(part["text"])
    if kind == "image_url":
        held = part["image_url"]
        return block_of(held if isinstance(held, str) else held["url"], image=True)
    if kind == "video_url":
        return block_of(part["video_url"]["url"], image=False, media_type="video/mp4")
    if kind == "input_audio":
        return _sound(part["input_audio"])
    held = {"file_data": part["document_url"]} if kind == "document_url" else part.get("file") or {}
    if held.get("file_data"):
        return block_of(held["file_data"], image=False, name=held.get("filename"))
    raise ValueError(f"a part of type {kind!r} is not supported")


def _sound(sound: str | Mapping[str, str]) -> FileBlock:
    """A recording: an object with its format or, for Mistral, its bytes or URL as text."""
    if not isinstance(sound, str):
        media = "audio/mpeg" if sound["format"] == "mp3" else f"audio/{sound['format']}"
        return FileBlock(media, base64.b64decode(sound["data"]))
    if sound.startswith(("http://", "https://")):
        return FileBlock("audio/mpeg", url=sound)
    return FileBlock("audio/mpeg", base64.b64decode(sound))


def from_openai_responses(history: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of a Responses `input` or `output`; raises `ConfigurationError` for an item that cannot be read."""
    found: list[Message] = []
    called: dict[str, str] = {}
    turn: VendorTurn | None = None

    def close() -> None:
        nonlocal turn
        if turn is not None:
            found.append(turn.message())
            turn = None

    def read(item: Mapping[str, Any]) -> None:
        nonlocal turn
        kind, role = item.get("type", "message"), item.get("role")
        if kind == "function_call_output":
            close()
            found.append(
                ToolResultMessage(
                    item["call_id"], called.get(item["call_id"], ""), _content(item["output"], _item_block)
                )
            )
        elif kind == "message" and role in ("system", "developer"):
            close()
            found.append(SystemMessage(_text(item["content"])))
        elif kind == "message" and role == "user":
            close()
            found.append(UserMessage(_content(item["content"], _item_block)))
        elif kind == "message" and role != "assistant":
            raise ValueError(f"role {role!r} is unknown")
        else:
            turn = turn or VendorTurn(RESPONSES)
            if kind == "function_call":
                called[item["call_id"]] = item["name"]
                turn.add_call(call_of(item["call_id"], item["name"], item.get("arguments")))
            elif kind == "message":
                turn.add_text(_text(item["content"]))
            else:
                turn.keep_item(dict(item))

    read_each(history, "from_openai_responses", read)
    close()
    return found


def _item_block(part: Mapping[str, Any]) -> Any:
    kind = part["type"]
    if kind in ("input_text", "text", "output_text"):
        return TextBlock(part["text"])
    if kind == "input_image" and part.get("image_url"):
        return block_of(part["image_url"], image=True)
    if kind == "input_file" and (part.get("file_data") or part.get("file_url")):
        return block_of(part.get("file_data") or part["file_url"], image=False, name=part.get("filename"))
    raise ValueError(f"a part of type {kind!r} is not supported")


def _text(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join([part.get("text") or part.get("refusal") or "" for part in content])


def _content(content: str | Sequence[Mapping[str, Any]], block: Callable[[Mapping[str, Any]], Any]) -> Any:
    return content if isinstance(content, str) else content_of([block(part) for part in content])
