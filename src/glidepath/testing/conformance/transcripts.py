"""Transcripts to try things on, and what must hold for a view of one."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath.kernel import CharEstimator
from glidepath.kernel.context import message_size
from glidepath.values import (
    AssistantMessage,
    CustomMessage,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

TASK = "Write a report about the figures."
_DOT = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\nIDATx\x9cc\x00\x01\x00\x00\x05\x00\x01\r\n-\xb4\x00\x00\x00\x00IEND\xaeB`\x82"
)


def make_transcript_of_every_kind() -> list[Message]:
    """A short transcript with every kind of message in it."""
    return [
        SystemMessage("Speak plainly."),
        UserMessage(TASK),
        UserMessage((TextBlock("As in this picture:"), ImageBlock("image/png", data=_DOT))),
        CustomMessage("note", {"for": "people"}),
        AssistantMessage((TextBlock("I look them up."), ToolCall("c1", "lookup", {"query": "figures"}))),
        ToolResultMessage("c1", "lookup", "42 and 43"),
        AssistantMessage((ToolCall("c2", "lookup", {"query": "more"}), ToolCall("c3", "lookup", {"query": "\u00e9"}))),
        ToolResultMessage("c2", "lookup", "nothing", is_error=True),
        ToolResultMessage("c3", "lookup", (TextBlock("44"),)),
        UserMessage("Mind the time.", internal=True, reason="wind_down"),
        AssistantMessage((TextBlock("The figures are 42 and 43."),)),
        UserMessage("And which is larger?"),
    ]


def long_talk(turns: int = 60) -> list[Message]:
    """A task, and many turns with one or two calls, their results and a remark."""
    messages: list[Message] = [UserMessage(TASK)]
    for number in range(turns):
        ids = [f"c{number}"] if number % 3 else [f"c{number}", f"d{number}"]
        calls = tuple(ToolCall(call_id, "lookup", {"query": f"part {number}"}) for call_id in ids)
        messages.append(AssistantMessage((TextBlock(f"Now part {number}."), *calls)))
        messages += [ToolResultMessage(call_id, "lookup", f"page {number} " + "word " * 20) for call_id in ids]
        if number % 5 == 4:
            messages.append(UserMessage(f"Remark {number}: continue."))
    return messages


def sizes_of(messages: Sequence[Message]) -> list[int]:
    """The size of each message, in estimated tokens."""
    estimate = CharEstimator().estimate
    return [message_size(message, estimate) for message in messages]
