"""Cutting one message or text to a size, its beginning and its end kept."""

from __future__ import annotations

from glidepath._wire import replace
from glidepath.kernel.context.groups import has_calls
from glidepath.kernel.context.measure import Estimate, message_size
from glidepath.values import (
    AssistantMessage,
    FileBlock,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    UserMessage,
    pluralize,
)

_LEFT_OUT: dict[type, str] = {ImageBlock: "[an image, left out]", FileBlock: "[a file, left out]"}


def trim_message(message: Message, tokens: int, estimate: Estimate) -> Message:
    """The message with its text trimmed to fit, images named instead of shown; one with tool calls is not touched."""
    bare = replace_text(message, "")
    if bare is message:
        return message
    return replace_text(
        message, trim_text(text_with_placeholders(message), tokens - message_size(bare, estimate), estimate)
    )


def replace_text(message: Message, text: str) -> Message:
    """The message with another text; one that has calls, or none to change, as it is."""
    if type(message) is AssistantMessage and not has_calls(message):
        return replace(message, blocks=(TextBlock(text),))
    if isinstance(message, UserMessage | SystemMessage | ToolResultMessage):
        return replace(message, content=text)
    return message


def text_with_placeholders(message: Message) -> str:
    """The text of a message, pictures and files named in their place."""
    content = getattr(message, "content", None)
    if not isinstance(content, tuple):
        return message.text
    return "".join([block.text if type(block) is TextBlock else _LEFT_OUT[type(block)] for block in content])


def trim_text(text: str, tokens: int, estimate: Estimate) -> str:
    """The text when it fits `tokens`, else its beginning and end (3:1) around a note of what is missing."""
    if tokens <= 0:
        return ""
    size = estimate(text)
    if size <= tokens:
        return text
    for noted in (True, False):  # without the note when that alone is too long
        keep = len(text) * tokens // size
        while keep > 0:
            tail = keep // 4
            note = f"\n[... {pluralize(len(text) - keep, 'character')} left out ...]\n" if noted else ""
            trimmed = text[: keep - tail] + note + text[len(text) - tail :]
            over = estimate(trimmed)
            if over <= tokens:
                return trimmed
            keep = min(keep - 1, keep * tokens // over)
    return ""
