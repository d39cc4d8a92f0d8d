"""Messages as OpenAI Responses writes them: a list of items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glidepath.models.attached import Takes, check_block, data_url, file_name, write_result_block
from glidepath.models.content import arguments, iterate_pieces
from glidepath.models.names import make_legal_name
from glidepath.values import (
    AssistantMessage,
    FileBlock,
    ImageBlock,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserBlock,
    UserMessage,
)

VENDOR = "openai"
_TAKES = Takes(vendor="OpenAI Responses", document=("application/", "text/"))


def responses_input(transcript: Sequence[Message]) -> list[dict[str, Any]]:
    """The items of a request."""
    items: list[dict[str, Any]] = []
    for message in transcript:
        items += _items(message)
    return items


def _items(message: Message) -> list[dict[str, Any]]:
    if isinstance(message, ToolResultMessage):
        output: Any = message.content
        if not isinstance(output, str):
            output = [{"type": "input_text", **write_result_block(block, _part)} for block in output]
        return [{"type": "function_call_output", "call_id": message.call_id, "output": output}]
    if isinstance(message, AssistantMessage):
        written = [
            (kind, piece) for kind, piece in iterate_pieces(message, VENDOR) if kind != "item" or piece.get("type")
        ]
        while written and written[-1][0] == "item" and written[-1][1]["type"] == "reasoning":
            written.pop()  # the endpoint refuses reasoning with nothing after it
        return [_write_piece(kind, piece) for kind, piece in written]
    if isinstance(message, SystemMessage):
        return [{"role": "developer", "content": message.content}]
    if isinstance(message, UserMessage):
        content: Any = message.content
        return [
            {"role": "user", "content": content if isinstance(content, str) else [_part(block) for block in content]}
        ]
    return []


def _write_piece(kind: str, piece: Any) -> dict[str, Any]:
    if kind == "call":
        return {
            "type": "function_call",
            "call_id": piece.id,
            "name": make_legal_name(piece.name),
            "arguments": arguments(piece),
        }
    return piece if kind == "item" else {"role": "assistant", "content": piece}


def _part(block: UserBlock) -> dict[str, Any]:
    if isinstance(block, ImageBlock):
        check_block(block, _TAKES)
        return {"type": "input_image", "image_url": data_url(block)}
    if not isinstance(block, FileBlock):
        return {"type": "input_text", "text": block.text}
    check_block(block, _TAKES)
    if block.url and not block.data:
        return {"type": "input_file", "file_url": block.url}
    return {"type": "input_file", "filename": file_name(block), "file_data": data_url(block)}
