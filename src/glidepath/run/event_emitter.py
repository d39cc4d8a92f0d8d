"""Delivers events to observers, a sink and the consumer of a stream, numbered by one counter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Protocol

from glidepath._wire import Record
from glidepath.values import Event, StreamChunk

if TYPE_CHECKING:
    from glidepath.plugins import Audience

_LAST = 1 << 62
_NOW = iter(time.time, None)  # the time, whenever it is asked: the same for all runs of a process


class Consumer(Protocol):
    """A consumer of the events of a run, such as `RunStream`: they wait for it in its `outbox`."""

    outbox: list[Event]
    unmade: Iterable[Event]
    """What comes before them: made when it is read."""

    def wake_consumer(self) -> None:
        """Something happened: wake it."""
        ...

    def wait_for_room(self) -> asyncio.Future[None]:
        """What to wait for when it is far behind."""
        ...


def numbers_from(first: int) -> Iterator[int]:
    """Numbers for events. Unlike an `itertools.count`, the iterator of a range can be asked how far it has come."""
    return iter(range(first, _LAST))


class EventEmitter(Record, eq=False, kw_only=True):
    """How a run emits events. `tell_all` is None when nobody listens."""

    run_id: str
    parent_id: str | None
    now: Callable[[], float]
    """Seconds since the epoch; virtual where the loop's time is."""
    numbers: Iterator[int]
    """Of the events to come: taken one by one in C, by anyone who makes events, also a stream in flight."""
    stream: Consumer | None = None
    outbox: list[Event] | None = None
    audience: Audience | None = None
    tell_all: Callable[[Event], Any] | None = None
    emit: Callable[..., None] | None = None
    """Makes an event of its kind and its own fields, and tells all; None when nobody listens. Hot code asks first."""
    listening: bool = False
    chunks: Callable[[Event], Any] | None = None
    """Takes a `StreamChunk`, where somebody wants them."""
    whose: Iterator[Any] = iter(())
    """The id of the run, again and again; and that of its parent."""
    whose_child: Iterator[Any] = repeat(None)
    turns: bool = False
    """Somebody wants `TurnStarted` or `TurnEnded`."""

    @classmethod
    def make_silent(cls, voice: EventEmitter) -> EventEmitter:
        """The voice of a run for anything that is not part of its answer: nobody hears it."""
        return cls(run_id=voice.run_id, parent_id=voice.parent_id, now=voice.now, numbers=numbers_from(1))

    def connect_listeners(self, stream: Consumer | None, audience: Audience | None) -> None:
        """From now on the listeners are told."""
        outbox = None if stream is None else stream.outbox
        self.stream, self.outbox, self.audience = stream, outbox, audience
        if audience is not None:
            audience.outbox = outbox
            self.tell_all = audience.deliver
        elif outbox is not None:
            self.tell_all = outbox.append
        self.listening = self.tell_all is not None
        heard = audience is None or audience.wants_chunks
        self.chunks = self.tell_all if heard else None if outbox is None else outbox.append
        self.turns = outbox is not None or (audience is not None and audience.wants_turns)
        if self.listening:
            self.whose = repeat(self.run_id)
            if self.parent_id is not None:
                self.whose_child = repeat(self.parent_id)
        self._find_words()

    def _find_words(self) -> None:
        """Make `emit` of what goes into every event: a closure, because ten events of every turn pass through it."""
        tell = self.tell_all
        if tell is None:
            self.emit = None
            return
        # Who, whose child, which number, when: every event begins with these, and they are made in C. As few objects as
        # possible: each of a thousand runs keeps them.
        times = _NOW if self.now is time.time else iter(self.now, None)
        heads = zip(self.whose, self.whose_child, self.numbers, times, strict=False)

        def emit(kind: Callable[..., Event], *fields: object, tell: Any = tell, heads: Any = heads) -> None:
            tell(kind(*next(heads), *fields))

        self.emit = emit

    def disconnect_consumer(self) -> None:
        """The last event is told: a run that has ended does not keep its consumer, who keeps the run."""
        self.stream = None

    def emit_text_chunks(self, texts: list[str]) -> None:
        """One `StreamChunk` for each of these texts but empty ones. They came together: they have one time."""
        said = [*filter(None, texts)]
        stream: Any = self.stream
        audience = self.audience
        numbers = islice(self.numbers, len(said))
        if audience is not None and audience.wants_chunks:
            for chunk in map(StreamChunk, self.whose, self.whose_child, numbers, repeat(self.now()), said):
                audience.deliver(chunk)  # numbered one by one: an observer that fails is an event, too
        elif stream.outbox or stream.unmade or not said:
            stream.outbox.extend(map(StreamChunk, self.whose, self.whose_child, numbers, repeat(self.now()), said))
        else:  # made when they are read: until then, each of a thousand runs keeps texts instead of events
            first, *_ = numbers
            stream.unmade = map(
                StreamChunk, self.whose, self.whose_child, range(first, _LAST), repeat(self.now()), said
            )

    def peek_number(self) -> int:
        """The number of the next event, without taking it."""
        return _LAST - length_hint(self.numbers)  # what is left of the range tells what comes next

    def count_from(self, number: int) -> None:
        """Give the next event this number."""
        self.numbers = numbers_from(number)
        self._find_words()
