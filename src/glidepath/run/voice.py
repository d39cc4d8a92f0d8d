"""Who hears what happens: observers, a sink, the consumer of a stream. One counter numbers what they hear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from operator import length_hint
from typing import Any, Protocol

from glidepath._wire import Record
from glidepath.events import Event
from glidepath.plugins.observer import Audience

__all__ = ["Consumer", "Voice", "counter"]

_LAST = 1 << 62


class Consumer(Protocol):
    """Whoever consumes the events of a run, as `RunStream` does: they wait for it in its `outbox`."""

    outbox: list[Event]

    def ring(self) -> None:
        """Something happened: wake it."""
        ...

    def room(self) -> asyncio.Future[None]:
        """What to wait for when it is far behind."""
        ...


class Listened(Protocol):
    """What streams, and may be let go."""

    dead: bool


def counter(number: int) -> Callable[[], int]:
    """Counts from `number`; unlike `itertools.count`, a range can be asked how far it has come."""
    return iter(range(number, _LAST)).__next__


def _tell_while_alive(attempt: Listened, tell: Callable[[Event], Any], event: Event) -> None:
    if not attempt.dead:
        tell(event)


class Voice(Record, eq=False, kw_only=True):
    """How a run says what happened. `tell_all` is None when nobody listens."""

    run_id: str
    parent_id: str | None
    now: Callable[[], float]
    """Seconds since the epoch; virtual where the loop's time is."""
    next_number: Callable[[], int]
    stream: Consumer | None = None
    outbox: list[Event] | None = None
    audience: Audience | None = None
    tell_all: Callable[[Event], Any] | None = None
    listening: bool = False
    chunks: bool = False
    """Somebody wants `StreamChunk` events."""
    turns: bool = False
    """Somebody wants `TurnStarted` or `TurnEnded`."""
    sink: Callable[[Event], Any] | None = None
    """Where they go when nobody but the consumer of a stream listens; else ask `chunk_sink`."""

    @classmethod
    def silent(cls, voice: Voice) -> Voice:
        """The voice of a run for what is no part of its answer: nobody hears it."""
        return cls(run_id=voice.run_id, parent_id=voice.parent_id, now=voice.now, next_number=counter(1))

    def attend(self, stream: Consumer | None, audience: Audience | None) -> None:
        """Whoever wants to hear is told from now on."""
        outbox = None if stream is None else stream.outbox
        self.stream, self.outbox, self.audience = stream, outbox, audience
        if audience is not None:
            audience.outbox = outbox
            self.tell_all = audience.tell
        elif outbox is not None:
            self.tell_all = outbox.append
        self.listening = self.tell_all is not None
        self.sink = self.tell_all if audience is None else None
        self.chunks = outbox is not None or (audience is not None and audience.wants_chunks)
        self.turns = outbox is not None or (audience is not None and audience.wants_turns)

    def rename(self, run_id: str) -> None:
        """Another id, before anything is said: a replay has that of the run it repeats."""
        self.run_id = run_id

    def chunk_sink(self, attempt: Listened) -> Callable[[Event], Any] | None:
        """Where one attempt puts its `StreamChunk` events; None when nobody wants them.

        An attempt that was let go must not be heard: listeners are shielded from it here, a stream's consumer by
        `leave_outbox`.
        """
        if not self.chunks or self.audience is None:
            return self.sink
        if not self.audience.wants_chunks:
            return self.outbox.append  # type: ignore[union-attr]
        return partial(_tell_while_alive, attempt, self.audience)

    def peek_number(self) -> int:
        """The number of the next event, without taking it: a stream in flight counts with the same counter."""
        return _LAST - length_hint(self.next_number.__self__)  # type: ignore[attr-defined]

    def count_from(self, number: int) -> None:
        """Give the next event this number."""
        self.next_number = counter(number)

    def leave_outbox(self) -> None:
        """Something that was let go may still count and write: go on with another counter and another outbox."""
        if self.outbox is not None and self.stream is not None:
            # The abandoned stream keeps the old list and counter, and writes where nobody reads.
            self.outbox = self.stream.outbox = self.outbox[:]
            if self.audience is None:
                self.tell_all = self.sink = self.outbox.append
            else:
                self.audience.outbox = self.outbox
        self.count_from(self.next_number())
