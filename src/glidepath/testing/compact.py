"""Events as short, readable lines, without ids, times and durations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from glidepath import _wire
from glidepath.events import (
    ApprovalRequested,
    AttemptDiscarded,
    Event,
    MessageAdded,
    RunEnded,
    RunPaused,
    RunStarted,
    StreamChunk,
    StreamStarted,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from glidepath.messages import AssistantMessage, CustomMessage, Message, ToolResultMessage, UnknownMessage, UserMessage

_LONGEST = 200
_LEFT_OUT = frozenset({"run_id", "parent_id", "sequence", "time", "session_id", "child_id", "call_id", "delay"})


def compact(event: Event) -> str:
    """One line: the kind of the event and its content."""
    describe = _DESCRIBE.get(type(event), _fields)
    return " ".join([type(event).__name__, *describe(event)])


def _json(value: object) -> str:
    try:
        text = json.dumps(_wire.plain(value), ensure_ascii=False)
    except TypeError:
        text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _fields(event: Event) -> list[str]:
    names = [name for name in event.__struct_fields__ if name not in _LEFT_OUT]
    return [f"{name}={_json(getattr(event, name))}" for name in names]


def _message(message: Message) -> list[str]:
    words: list[str] = [message.role]
    if isinstance(message, ToolResultMessage):
        words += [message.tool_name, *_error(message)]
    if isinstance(message, UserMessage) and message.internal:
        words.append(f"({message.reason or 'internal'})")
    if isinstance(message, CustomMessage | UnknownMessage):
        return [*words, message.kind]
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    if message.text or not calls:
        words.append(_json(message.text))
    for call in calls:
        words += [call.name, _json(call.arguments)]
    return words


def _error(result: ToolResultMessage) -> list[str]:
    return [f"error:{result.kind}" if result.kind else "error"] if result.is_error else []


def _chunk(event: StreamChunk) -> list[str]:
    words = [word for word, said in (("thinking", event.thinking), ("finished", event.finished)) if said]
    return [*words, _json(event.text)] if event.text or not event.finished else words


_DESCRIBE: Mapping[type[Event], Callable[[Any], list[str]]] = {
    RunStarted: lambda event: [event.agent_name, *(["resumed"] if event.resumed else [])],
    RunPaused: lambda event: [str(len(event.call_ids))],
    RunEnded: lambda event: [event.result.state.name, event.result.outcome.name],
    TurnStarted: lambda event: [str(event.iteration)],
    TurnEnded: lambda event: [str(event.iteration)],
    MessageAdded: lambda event: _message(event.message),
    StreamStarted: lambda event: [event.model, str(event.attempt), *(["landing"] if event.landing else [])],
    StreamChunk: _chunk,
    AttemptDiscarded: lambda event: [str(event.attempt), event.reason],
    ToolStarted: lambda event: [event.tool_name, _json(event.arguments)],
    ToolProgress: lambda event: [event.tool_name, _json(event.progress)],
    ToolEnded: lambda event: [event.tool_name, *_error(event.result), _json(event.result.text)],
    ApprovalRequested: lambda event: [
        event.tool_name,
        _json(event.arguments),
        *([_json(event.reason)] if event.reason else []),
    ],
}
