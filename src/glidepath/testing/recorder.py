"""An event sink that records events and compares them with what a test expects."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from types import EllipsisType
from typing import ClassVar, TypeVar

from glidepath.events import Event
from glidepath.spi import Plugin
from glidepath.testing.compact import compact
from glidepath.testing.grammar import grammar_errors

E = TypeVar("E", bound=Event)


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
        return [compact(event) for event in self.events]

    def expect(self, lines: Sequence[str | EllipsisType]) -> None:
        """Raise AssertionError with a diff unless the compact lines are these.

        `...` matches any number of lines, even none. A line that ends with `...` matches every line with that prefix.
        """
        actual = self.compact()
        if not _matches(lines, actual):
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


def _same(pattern: str, line: str) -> bool:
    return line == pattern or (pattern.endswith("...") and line.startswith(pattern.removesuffix("...")))


def _matches(patterns: Sequence[str | EllipsisType], lines: Sequence[str]) -> bool:
    """Match as a shell would: on a mismatch the last `...` takes one more line."""
    at = line = 0
    gap: tuple[int, int] | None = None
    while line < len(lines):
        pattern = patterns[at] if at < len(patterns) else None
        if pattern is ...:
            at, gap = at + 1, (at + 1, line)
        elif pattern is not None and _same(pattern, lines[line]):
            at, line = at + 1, line + 1
        elif gap is not None:
            gap = (gap[0], gap[1] + 1)
            at, line = gap
        else:
            return False
    return all(pattern is ... for pattern in patterns[at:])
