"""A transcript for people: messages by page, each with its place and its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glidepath.agent import find_handoff, find_used_skill
from glidepath.apps.server.shapes import ShownMessage
from glidepath.values import AssistantMessage, ReasoningBlock, StopReason, ThinkingBlock, ToolResultMessage, UserMessage


def page_of_messages(messages: Sequence[Any], after: int, limit: int) -> list[ShownMessage]:
    """A page of messages, each with its place and turn."""
    end = min(len(messages), after + limit)
    turn = sum(type(message) is AssistantMessage for message in messages[:after])
    before = (made for message in reversed(messages[:after]) if (made := find_handoff(message)) is not None)
    speaker = next((str(made["to"]) for made in before), None)
    shown = []
    for index in range(max(0, after), end):
        message = messages[index]
        turn += type(message) is AssistantMessage
        described = _describe_message(message, index, turn, speaker)
        shown.append(described)
        if described.handoff is not None:
            speaker = described.handoff["to"]
    return shown


def _describe_message(message: Any, index: int, turn: int, speaker: str | None) -> ShownMessage:
    text = str(getattr(message, "text", "") or "")
    if type(message) is AssistantMessage:
        calls = tuple({"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls)
        thoughts = "".join([one.text for one in message.blocks if isinstance(one, ThinkingBlock | ReasoningBlock)])
        mark = "cut" if message.stop_reason is StopReason.MAX_TOKENS else None
        return ShownMessage(
            index=index,
            turn=turn,
            role="assistant",
            text=text,
            mark=mark,
            reasoning=thoughts or None,
            tool_calls=calls or None,
            agent=speaker,
        )
    if type(message) is ToolResultMessage:
        skill, handoff = find_used_skill(message), find_handoff(message)
        return ShownMessage(
            index=index,
            turn=turn,
            role="tool",
            text=text,
            call_id=message.call_id,
            name=getattr(message, "name", None) or getattr(message, "tool_name", None),
            is_error=message.is_error,
            origin=getattr(message, "origin", None),
            skill=None if skill is None else skill._asdict(),
            handoff=None if handoff is None else {name: str(handoff[name]) for name in ("from", "to")},
        )
    if type(message) is UserMessage and message.internal:
        return ShownMessage(index=index, turn=turn, role="user", text=text, mark="notice", origin=message.reason)
    return ShownMessage(index=index, turn=turn, role=str(getattr(message, "role", "custom")), text=text)
