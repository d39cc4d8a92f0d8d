"""Repair of a transcript that somebody else wrote, or that a crash cut short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from glidepath._wire import replace
from glidepath.run import is_in_order
from glidepath.values import (
    AssistantBlock,
    AssistantMessage,
    CustomMessage,
    Message,
    Texts,
    ToolCall,
    ToolResultMessage,
    UnknownMessage,
)

_TEXTS = Texts()

Answers: TypeAlias = dict[tuple[int, int], ToolResultMessage]
"""The result of each call, by the place of its message and its place in that message."""


def drop_unsendable(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages a model may see, without custom and unknown ones; the same object when there are none of those."""
    found = [message for message in messages if not isinstance(message, CustomMessage | UnknownMessage)]
    return messages if len(found) == len(messages) else found


def repair(
    messages: Sequence[Message], *, keep_custom: bool = False, not_decided: bool = False, texts: Texts = _TEXTS
) -> Sequence[Message]:
    """A transcript any provider accepts: every call has one result, right behind it, and every call id is used once.

    A missing result becomes an "interrupted" error; a result without its call, and a second one for the same call,
    is dropped; a result found further on is moved up to its call; results are in the order of the calls. A call id
    used before gets a suffix (`_2`, `_3`, ...), and so does its result. Custom and unknown messages are left out,
    unless asked for: then they follow the results they interrupted. `not_decided`: what has no result was waiting
    for a person, and is answered so.
    Returns the same object when there is nothing to repair. Looks at every message: for the start of a session.
    """
    if is_in_order(messages, {}, keep_custom=keep_custom):  # nearly always, and a session may be long
        return messages
    answers, ids = _match(messages)
    seen: Counter[str] = Counter()
    mended: list[Message] = []
    for place, message in enumerate(messages):
        if isinstance(message, ToolResultMessage | CustomMessage | UnknownMessage):
            if keep_custom and not isinstance(message, ToolResultMessage):
                mended.append(message)
            continue
        if type(message) is AssistantMessage and (calls := message.tool_calls):
            fresh = [_make_unique_id(call.id, seen, ids) for call in calls]
            mended.append(_rename_calls(message, fresh))
            missing = "not_decided" if not_decided else "interrupted"
            mended += [_answer(call, fresh[k], answers.get((place, k)), missing, texts) for k, call in enumerate(calls)]
        else:
            mended.append(message)
    same = len(mended) == len(messages) and all(a is b for a, b in zip(mended, messages, strict=True))
    return messages if same else mended


def _match(messages: Sequence[Message]) -> tuple[Answers, set[str]]:
    """Give every result to the nearest call before it that has its id and no result yet; collect all ids."""
    answers: Answers = {}
    waiting: dict[str, list[list[tuple[int, int]]]] = {}  # id -> messages with open calls of that id, newest last
    for place, message in enumerate(messages):
        if type(message) is AssistantMessage:
            opened: dict[str, list[tuple[int, int]]] = {}
            for k, call in enumerate(message.tool_calls):
                opened.setdefault(call.id, []).append((place, k))
            for call_id, slots in opened.items():
                waiting.setdefault(call_id, []).append(slots[::-1])
        elif type(message) is ToolResultMessage and (stack := waiting.get(message.call_id)):
            answers[stack[-1].pop()] = message
            if not stack[-1]:
                stack.pop()
    return answers, set(waiting)


def _make_unique_id(call_id: str, seen: Counter[str], taken: set[str]) -> str:
    """The id itself the first time; then with the next number that makes it one of its own."""
    seen[call_id] += 1
    if seen[call_id] == 1:
        return call_id
    while (name := f"{call_id}_{seen[call_id]}") in taken:
        seen[call_id] += 1
    taken.add(name)
    return name


def _rename_calls(message: AssistantMessage, fresh: list[str]) -> AssistantMessage:
    if all(call.id == name for call, name in zip(message.tool_calls, fresh, strict=True)):
        return message
    names = iter(fresh)
    blocks: list[AssistantBlock] = [
        replace(block, id=next(names)) if type(block) is ToolCall else block for block in message.blocks
    ]
    return replace(message, blocks=tuple(blocks))


def _answer(
    call: ToolCall, call_id: str, result: ToolResultMessage | None, missing: str, texts: Texts
) -> ToolResultMessage:
    if result is None:
        return ToolResultMessage(call_id, call.name, texts.fill(missing), is_error=True, kind=missing)
    return result if result.call_id == call_id else replace(result, call_id=call_id)
