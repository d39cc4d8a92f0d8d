"""Shared by the dialects: looks at the conversation that a request tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

from glidepath import _wire
from glidepath.apps.gate.dialects.dialect import LONGEST_TITLE, Body, Notice, PastStep
from glidepath.values import ToolCall, ToolResultMessage

LONGEST_HINT = 2_000
_DIGEST = 16


def stable(value: object) -> bytes:
    """JSON bytes with sorted keys; also of texts with halves of surrogate pairs."""
    try:
        return _wire.canonical(value)
    except (_wire.WireError, UnicodeError, ValueError, TypeError):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def rolling_digests(messages: Iterable[object]) -> tuple[bytes, ...]:
    """A digest after each message, of all messages up to it."""
    state, found = blake2b(digest_size=_DIGEST), []
    for message in messages:
        state.update(stable(message))
        state.update(b"\0")
        found.append(state.copy().digest())
    return tuple(found)


def title_of(texts: Iterable[str]) -> str:
    """The beginning of the first text that a person may have written: agents put tagged notes before it."""
    first = ""
    for text in texts:
        start = text[: 4 * LONGEST_TITLE].strip()
        if start and not start.startswith("<"):
            return start[:LONGEST_TITLE]
        first = first or start
    return first[:LONGEST_TITLE]


def text_of(content: object, *kinds: str) -> str:
    """The text of a message whose content is a text, or a list of parts of which these kinds have text."""
    if type(content) is str:
        return content
    if type(content) is not list:
        return ""
    texts = [part.get("text") for part in content if type(part) is dict and part.get("type") in kinds]
    return "".join([text for text in texts if type(text) is str])


def result_of(call_id: str, name: str, content: object, *, is_error: bool = False) -> ToolResultMessage:
    """A result as a loop guard compares it: its text, or all of it if it is more than text."""
    parts = content if type(content) is list else []
    plain = [text for part in parts if type(part) is dict and type(text := part.get("text")) is str]
    if type(content) is str:
        text = content
    elif parts and len(plain) == len(parts):
        text = "".join(plain)
    else:
        text = stable(content).decode()
    return ToolResultMessage(call_id, name, text, is_error=is_error)


class StepCollector:
    """Collects past steps from the newest message to the oldest, up to a number of calls."""

    __slots__ = ("_most", "_results", "_steps", "calls")

    def __init__(self, most: int) -> None:
        self._most = most
        self._results: dict[str, ToolResultMessage] = {}
        self._steps: list[PastStep] = []
        self.calls = 0

    @property
    def is_full(self) -> bool:
        """Whether enough calls were found."""
        return self.calls >= self._most

    def add_result(self, result: ToolResultMessage) -> None:
        """What came back from a call; the newest one counts."""
        self._results.setdefault(result.call_id, result)

    def add_calls(self, calls: Sequence[ToolCall]) -> None:
        """The calls of one reply."""
        if calls:
            found = [self._results[call.id] for call in calls if call.id in self._results]
            self._steps.append(PastStep(tuple(calls), tuple(found)))
            self.calls += len(calls)

    def steps(self) -> tuple[PastStep, ...]:
        """What was found, oldest first."""
        return tuple(reversed(self._steps))


def place_notices(messages: Sequence[Any], notices: Sequence[Notice]) -> dict[int, list[str]]:
    """The notices by their places, those beyond the end at the end."""
    found: dict[int, list[str]] = {}
    for notice in notices:
        found.setdefault(min(max(notice.place, 0), len(messages)), []).append(notice.text)
    return found


def with_inserted(body: Body, field: str, messages: Sequence[Any], made: dict[int, list[Any]]) -> Body:
    """The body with new messages before those with these numbers."""
    merged: list[Any] = []
    for number in range(len(messages) + 1):
        merged += made.get(number, ())
        merged += messages[number : number + 1]
    return {**body, field: merged}


def with_changed(body: Body, field: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Body:
    """The body with every message changed by `change`; the very same object if it changes none."""
    before = body.get(field)
    if type(before) is not list:
        return body
    after = [change(message) if type(message) is dict else message for message in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return body
    return {**body, field: after}


def hints_from(body: Body, *fields: str) -> dict[str, str]:
    """The texts among these fields, and those in `metadata`."""
    found = {field: value for field in fields if type(value := body.get(field)) is str and value}
    metadata = body.get("metadata")
    if type(metadata) is dict:
        texts = {f"metadata.{name}": value for name, value in metadata.items() if type(value) is str and value}
        found.update(dict(list(texts.items())[:16]))
    return {name: value[:LONGEST_HINT] for name, value in found.items()}
