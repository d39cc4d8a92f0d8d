"""Messages as OpenAI chat completions write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2s
from typing import Any

from glidepath._wire import replace
from glidepath.models.attached import (
    SOUNDS,
    Takes,
    base64_of,
    check_block,
    data_url,
    file_name,
    write_attachments_apart,
)
from glidepath.models.content import arguments, iterate_pieces
from glidepath.models.hosts import Quirks
from glidepath.models.names import make_legal_name
from glidepath.values import (
    AssistantMessage,
    FileBlock,
    ImageBlock,
    Message,
    RejectedError,
    SystemMessage,
    ToolResultMessage,
    UserBlock,
    UserMessage,
)

VENDOR = "openai-chat"
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
_SHORT = 9


_PLAIN = Quirks(takes=replace(Quirks().takes, vendor="chat completions"))


def chat_messages(
    transcript: Sequence[Message], system_prompt: str = "", *, quirks: Quirks = _PLAIN
) -> list[dict[str, Any]]:
    """The messages of a request."""
    takes = quirks.takes
    sent: list[dict[str, Any]] = []
    if system_prompt:
        sent.append({"role": "system", "content": system_prompt})
    shown: list[dict[str, Any]] = []
    newest = _loop_start(transcript)
    for place, message in enumerate(transcript):
        if shown and not isinstance(message, ToolResultMessage):
            sent.append({"role": "user", "content": shown})
            shown = []
        if isinstance(message, ToolResultMessage):
            sent.append({"role": "tool", "tool_call_id": _id(message.call_id, quirks), "content": message.text})
            # A tool message takes text only: pictures and files follow the batch.
            shown += [
                {"type": "text", **part} for part in write_attachments_apart(message, lambda one: _part(one, takes))
            ]
        elif isinstance(message, AssistantMessage):
            sent += _assistant(message, quirks, current=place > newest or quirks.all_thoughts)
        else:
            sent += _write_message(message, takes)
    if shown:
        sent.append({"role": "user", "content": shown})
    return sent if quirks.user_after_tool else _separate_roles(sent)


def _separate_roles(sent: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with an assistant message between tool and user messages: some servers require one."""
    parted: list[dict[str, Any]] = []
    for message in sent:
        if parted and parted[-1]["role"] == "tool" and message["role"] == "user":
            parted.append({"role": "assistant", "content": "OK"})
        parted.append(message)
    return parted


def _id(call_id: str, quirks: Quirks) -> str:
    """A call id the server accepts: the same for a call and its result, in every request."""
    if not quirks.short_ids or (len(call_id) == _SHORT and call_id.isalnum() and call_id.isascii()):
        return call_id
    return blake2s(call_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()[:_SHORT]


def _write_message(message: Message, takes: Takes) -> list[dict[str, Any]]:
    if isinstance(message, SystemMessage):
        return [{"role": "system", "content": message.content}]
    if not isinstance(message, UserMessage):
        return []
    if isinstance(message.content, str):
        return [{"role": "user", "content": message.content}]
    return [{"role": "user", "content": [_part(block, takes) for block in message.content]}]


def _part(block: UserBlock, takes: Takes) -> dict[str, Any]:
    if isinstance(block, ImageBlock):
        check_block(block, takes)
        return {"type": "image_url", "image_url": {"url": data_url(block)}}
    if not isinstance(block, FileBlock):
        return {"type": "text", "text": block.text}
    check_block(block, takes)
    if takes.plain_parts:
        return _plain_part(block)
    if block.kind == "video":
        return {"type": "video_url", "video_url": {"url": data_url(block)}}
    if block.kind == "document":
        return {"type": "file", "file": {"filename": file_name(block), "file_data": data_url(block)}}
    if not block.data:
        raise RejectedError(f"{takes.vendor} takes no audio by url: send its bytes as data")
    sound = {"data": base64_of(block), "format": SOUNDS[block.media_type.lower()]}
    return {"type": "input_audio", "input_audio": sound}


def _plain_part(file: FileBlock) -> dict[str, Any]:
    """A file as Mistral takes it."""
    if file.kind == "document":
        return {"type": "document_url", "document_url": data_url(file)}
    return {"type": "input_audio", "input_audio": file.url or base64_of(file)}


def _loop_start(transcript: Sequence[Message]) -> int:
    """Where the current tool loop begins: at the last user message sent while no calls were open.

    A user message in the middle of a loop does not end it, and does not change what was sent before.
    """
    start, between = -1, True
    for place, message in enumerate(transcript):
        if isinstance(message, AssistantMessage):
            between = not message.tool_calls
        elif between and type(message) is UserMessage and not message.internal:
            start = place
    return start


def _assistant(message: AssistantMessage, quirks: Quirks, *, current: bool) -> list[dict[str, Any]]:
    calls = [
        {
            "id": _id(call.id, quirks),
            "type": "function",
            "function": {"name": make_legal_name(call.name), "arguments": arguments(call)},
        }
        for call in message.tool_calls
    ]
    if not calls and not message.text:
        return []
    sent: dict[str, Any] = {"role": "assistant", "content": message.text}
    if calls:
        sent["tool_calls"] = calls
    if calls and current:  # usually, reasoning goes back only inside its own tool loop
        for kind, item in iterate_pieces(message, VENDOR):
            if kind == "item":
                sent.update(item)
    return [sent]
