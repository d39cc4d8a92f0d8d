"""The events of one run on their way out: numbered, written to the log, then shown to the readers.

Readers have no queues. Each has the number of the last event it was sent, and is woken once for all that came since;
a slow one just comes back later. Nothing a reader does or does not do reaches the run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import cache
from typing import Any

from glidepath import _wire
from glidepath._wire import replace
from glidepath.apps.server.event_log import EventLog, LogHead, kind_of
from glidepath.apps.server.run_summary import FlightCard
from glidepath.values import Event, RunEnded, describe_error
from glidepath.values.events import codec

__all__ = ["RunFeed", "event_line", "make_frame"]

RING = 1024  # events that are kept at hand, in memory
_codec = codec()
_CHUNK = b'{"event":"StreamChunk"'
_PAGE = 2_000


def event_line(event: Event) -> bytes:
    """An event as one line of JSON. The result of a `RunEnded` is without its transcript: messages are read by page."""
    if type(event) is RunEnded:
        result = event.result
        children = tuple(replace(one, messages=(), new_messages=(), snapshot=None) for one in result.children)
        event = replace(
            event, result=replace(result, messages=(), new_messages=(), snapshot=None, children=children, output=None)
        )
    try:
        line = _wire.encode(event)
        return line if b"\xe2\x80" not in line and b"\xc2\x85" not in line else _escape_line_ends(line)
    except Exception as error:  # an application's object that is not JSON: the event still counts
        shown = {"event": type(event).__name__, "run_id": event.run_id, "parent_id": event.parent_id}
        return _wire.encode(
            {**shown, "sequence": event.sequence, "time": event.time, "unreadable": describe_error(error)}
        )


def _escape_line_ends(line: bytes) -> bytes:
    """The same JSON without the signs that some readers treat as line ends."""
    for sign, escaped in ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085")):
        line = line.replace(sign, escaped)
    return line


@cache
def _encode_event_name(kind: type[Event]) -> bytes:
    return kind.__name__.encode()


def _name(event: Event) -> bytes:
    return _encode_event_name(type(event))


def make_frame(number: int, line: bytes) -> bytes:
    """One event as a reader gets it. A line of JSON has no line break inside."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind_of(line).encode(), line)


class RunFeed:
    """One run's events. `live` while its run is in this process; `last` is the number of the last event."""

    def __init__(self, head: LogHead, log: EventLog) -> None:
        self.head = head
        self.log = log
        self.card = FlightCard(head.run_id, head.session_id, head.agent, head.parent)
        self.card.who = head.who
        self.last = 0
        self.live = False
        self.over = False
        """The last event is a `RunEnded`."""
        self.incoming: list[Event] = []
        self.readers = 0
        self.meter: Any = None
        """The meter of the run, while it runs."""
        self.nonces: dict[str, str] = {}
        """By call id: the nonce of the question about it that a front end was last sent."""
        self.foreign = False
        """Another program drives the run; its calls go through the gate."""
        self.stale = False
        """The log has events of this run that were not folded yet."""
        self._ring: deque[bytes] = deque(maxlen=RING)
        self._framed: list[bytes] = []
        """The last events as readers get them, made once for all readers; empty while nobody reads."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._lock = asyncio.Lock()

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.head.run_id

    async def recall(self) -> RunFeed:
        """Fold what the log has of this run: the numbers and the card continue from there."""
        async with self._lock:
            while lines := await self.log.read(self.run_id, self.last, _PAGE):
                for line in lines:
                    self.last += 1
                    self._ring.append(line)
                    if not line.startswith(_CHUNK):
                        self._fold(line)
        return self

    def _fold(self, line: bytes) -> None:
        try:
            event: Any = _codec.decode(line)
        except _wire.WireError:
            return
        if isinstance(event, Event):
            self.card.take_event(event)
            self.over = type(event) is RunEnded

    async def record(self, events: Sequence[Event]) -> None:
        """Number these events, write them to the log, and then show them."""
        async with self._lock:
            lines, last, card = [], self.last, self.card
            for event in events:
                last += 1
                if event.sequence != last:
                    event = replace(event, sequence=last)  # noqa: PLW2901 - the same event, under its number here
                lines.append(event_line(event))
                card.take_event(event)
            later = self.log.append(self.head, lines)
            if later is not None:
                await later
            self._ring.extend(lines)
            if self.readers:
                self._framed += [
                    b"id: %d\nevent: %s\ndata: %s\n\n" % (number, _name(event), line)
                    for number, (event, line) in enumerate(zip(events, lines, strict=True), self.last + 1)
                ]
                if len(self._framed) > 2 * RING:
                    del self._framed[:-RING]
            else:
                self._framed.clear()
            self.last, self.over = last, type(events[-1]) is RunEnded
        self.wake()

    def settle(self) -> None:
        """No event will follow soon: what is in the log need not be in memory, too."""
        self._ring.clear()
        self._framed.clear()

    def wake(self) -> None:
        """Tell readers that there is something new."""
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            if not one.done():
                one.set_result(None)

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """True when no event will follow, unless somebody resumes the run."""
        return self.over and not self.live

    async def lines(self, after: int, limit: int) -> list[bytes]:
        """Up to `limit` lines behind number `after`."""
        first = self.last - len(self._ring)
        if after >= first:
            start = after - first
            return [self._ring[place] for place in range(start, min(start + limit, len(self._ring)))]
        return (await self.log.read(self.run_id, after, limit))[: max(0, self.last - after)]

    def frames(self, after: int, limit: int) -> list[bytes]:
        """Up to `limit` events behind number `after` as readers get them; none when they are not at hand."""
        first = self.last - len(self._framed)
        if after < first:
            return []
        return self._framed[after - first : after - first + limit]

    def wait_for_news(self) -> asyncio.Future[None]:
        """What to wait for until there is something new; cancel it to give up."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    async def follow(self, after: int = 0) -> AsyncIterator[Event]:
        """The events behind number `after`, as they come, to the end of the run: for code in this process."""
        while True:
            lines = await self.lines(after, _PAGE)
            for line in lines:
                after += 1
                event: Any = _codec.decode(line)
                if isinstance(event, Event):
                    yield event
            if not lines:
                if not self.live:  # it has ended, or was lost
                    return
                await self.wait_for_news()

    async def page(self, after: int, before: int | None, limit: int, kind: str | None) -> dict[str, Any]:
        """A page of events as JSON: those behind `after`, or the newest below `before`."""
        top = self.last if before is None else min(self.last, max(0, before - 1))
        wanted = None if kind is None else set(kind.split(","))
        if wanted is None:
            start = max(after, top - limit) if before is not None else after
            lines = await self.lines(start, max(0, min(limit, top - start)))
            first = start + 1
            return _page(lines, first if lines else 0, start + len(lines) if lines else 0, self.last)
        found: list[bytes] = []
        numbers: list[int] = []
        start = after
        while start < top:
            part = await self.lines(start, min(_PAGE, top - start))
            if not part:
                break
            for line in part:
                start += 1
                if kind_of(line) in wanted:
                    found.append(line)
                    numbers.append(start)
            if before is None and len(found) >= limit:
                break
        cut = slice(-limit, None) if before is not None else slice(0, limit)
        found, numbers = found[cut], numbers[cut]
        return _page(found, numbers[0] if numbers else 0, numbers[-1] if numbers else 0, self.last)


def _page(lines: Sequence[bytes], first: int, last: int, total: int) -> dict[str, Any]:
    return {"events": [_wire.Raw(line) for line in lines], "first": first, "last": last, "total": total}
