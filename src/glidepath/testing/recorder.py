"""An event sink that records events and compares them with what a test expects."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any, ClassVar, TypeVar

from glidepath import _wire
from glidepath.spi import Plugin
from glidepath.testing.grammar import grammar_errors
from glidepath.values import (
    ApprovalRequested,
    AssistantMessage,
    AttemptDiscarded,
    CustomMessage,
    Event,
    Message,
    MessageAdded,
    RunEnded,
    RunPaused,
    RunStarted,
    StreamChunk,
    StreamStarted,
    ToolEnded,
    ToolProgress,
    ToolResultMessage,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UnknownMessage,
    UserMessage,
)

E = TypeVar("E", bound=Event)
_LONGEST = 200
_LEFT_OUT = frozenset({"run_id", "parent_id", "sequence", "time", "session_id", "child_id", "call_id", "delay"})


class EventRecorder:
    """Collects the events it is called with, in order.

    `compact()` gives one line per event: its kind and what it says, without ids, times and durations, as in
    `ToolStarted lookup {"query": "x"}`. Long values are cut at 200 characters.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)

    def __call__(self, event: Event) -> None:
        """Remember one event."""
        self.events.append(event)

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def as_plugin(self, *, children: bool = False) -> Plugin:
        """A plugin that records every event of a run, even chunks; with `children`, also those of its children."""
        return _TreeRecording(self) if children else _Recording(self)

    def kinds(self) -> list[str]:
        """The names of the events' kinds, in order."""
        return [type(event).__name__ for event in self.events]

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        """The only event of a kind; raises AssertionError with all events if there is not exactly one."""
        found = self.of(kind)
        if len(found) != 1:
            raise AssertionError(_block(f"expected one {kind.__name__}, found {len(found)} in:", self.compact()))
        return found[0]

    def without(self, *kinds: type[Event]) -> EventRecorder:
        """A recorder of the same events, without these kinds."""
        return EventRecorder(event for event in self.events if not isinstance(event, kinds))

    def compact(self) -> list[str]:
        """One readable line per event."""
        return [compact_line(event) for event in self.events]

    def expect(self, lines: Sequence[str | EllipsisType]) -> None:
        """Raise AssertionError with a diff unless the compact lines are these.

        `...` matches any number of lines, even none. A line that ends with `...` matches every line with that prefix.
        """
        actual = self.compact()
        if not _is_match(lines, actual):
            wanted = ["..." if line is ... else line for line in lines]
            diff = difflib.unified_diff(wanted, actual, "expected", "happened", n=len(actual), lineterm="")
            raise AssertionError(_block("the events are not as expected:", diff))

    def grammar_errors(self) -> list[str]:
        """Every ordering rule that these events break, run by run; empty if their order is legal."""
        return grammar_errors(self.events)

    def assert_legal(self) -> None:
        """Raise AssertionError with the broken rules and all events unless their order is legal."""
        if errors := self.grammar_errors():
            raise AssertionError(_block("illegal events:", [*errors, "in:", *self.compact()]))


class _Recording(Plugin):
    name = "event_recorder"
    events: ClassVar[tuple[type[Event], ...] | None] = (Event,)

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def event_observer(self, event: Event) -> None:
        self._recorder(event)


class _TreeRecording(_Recording):
    inheritable_to_child: ClassVar[bool | None] = True


def _block(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _is_same_line(pattern: str, line: str) -> bool:
    return line == pattern or (pattern.endswith("...") and line.startswith(pattern.removesuffix("...")))


def _is_match(patterns: Sequence[str | EllipsisType], lines: Sequence[str]) -> bool:
    """Match as a shell would: on a mismatch the last `...` takes one more line."""
    at = line = 0
    gap: tuple[int, int] | None = None
    while line < len(lines):
        pattern = patterns[at] if at < len(patterns) else None
        if pattern is ...:
            at, gap = at + 1, (at + 1, line)
        elif pattern is not None and _is_same_line(pattern, lines[line]):
            at, line = at + 1, line + 1
        elif gap is not None:
            gap = (gap[0], gap[1] + 1)
            at, line = gap
        else:
            return False
    return all(pattern is ... for pattern in patterns[at:])


# --- one event, one line ------------------------------------------------------------------------------------------


def compact_line(event: Event) -> str:
    """One line: the kind of the event and its content."""
    describe = _DESCRIBE.get(type(event), _fields)
    return " ".join([type(event).__name__, *describe(event)])


def _json(value: object) -> str:
    try:
        text = json.dumps(_wire.to_plain_data(value), ensure_ascii=False)
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
