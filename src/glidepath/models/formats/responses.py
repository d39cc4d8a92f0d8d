"""Messages as OpenAI Responses writes them: a list of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from glidepath.models.attached import Takes, block_of, check_block, data_url, file_name, in_result
from glidepath.models.content import arguments, pieces
from glidepath.models.formats.reading import VendorTurn, call_of, content_of, each
from glidepath.models.names import sent_name

VENDOR = "openai"
_TAKES = Takes(vendor="OpenAI Responses", document=("application/", "text/"))


# --- written --------------------------------------------------------------------------------------------------


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
            output = [{"type": "input_text", **in_result(block, _part)} for block in output]
        return [{"type": "function_call_output", "call_id": message.call_id, "output": output}]
    if isinstance(message, AssistantMessage):
        written = [(kind, piece) for kind, piece in pieces(message, VENDOR) if kind != "item" or piece.get("type")]
        while written and written[-1][0] == "item" and written[-1][1]["type"] == "reasoning":
            written.pop()  # the endpoint refuses reasoning with nothing after it
        return [_written(kind, piece) for kind, piece in written]
    if isinstance(message, SystemMessage):
        return [{"role": "developer", "content": message.content}]
    if isinstance(message, UserMessage):
        content: Any = message.content
        return [
            {"role": "user", "content": content if isinstance(content, str) else [_part(block) for block in content]}
        ]
    return []


def _written(kind: str, piece: Any) -> dict[str, Any]:
    if kind == "call":
        return {
            "type": "function_call",
            "call_id": piece.id,
            "name": sent_name(piece.name),
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


# --- read -----------------------------------------------------------------------------------------------------


def read_responses(history: object) -> list[Message]:
    """The messages of a Responses input, or of its output."""
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
            found.append(ToolResultMessage(item["call_id"], called.get(item["call_id"], ""), _content(item["output"])))
        elif kind == "message" and role in ("system", "developer"):
            close()
            found.append(SystemMessage(_text(item["content"])))
        elif kind == "message" and role == "user":
            close()
            found.append(UserMessage(_content(item["content"])))
        elif kind == "message" and role != "assistant":
            raise ValueError(f"role {role!r} is unknown")
        else:
            turn = turn or VendorTurn(VENDOR)
            if kind == "function_call":
                called[item["call_id"]] = item["name"]
                turn.called(call_of(item["call_id"], item["name"], item.get("arguments")))
            elif kind == "message":
                turn.said(_text(item["content"]))
            else:
                turn.kept(dict(item))

    each(history, "from_openai_responses", read)
    close()
    return found


def _text(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join([part.get("text") or part.get("refusal") or "" for part in content])


def _content(content: str | Sequence[Mapping[str, Any]]) -> Any:
    return content if isinstance(content, str) else content_of([_block(part) for part in content])


def _block(part: Mapping[str, Any]) -> Any:
    kind = part["type"]
    if kind in ("input_text", "text", "output_text"):
        return TextBlock(part["text"])
    if kind == "input_image" and part.get("image_url"):
        return block_of(part["image_url"], image=True)
    if kind == "input_file" and (part.get("file_data") or part.get("file_url")):
        return block_of(part.get("file_data") or part["file_url"], image=False, name=part.get("filename"))
    raise ValueError(f"a part of type {kind!r} is not supported")
