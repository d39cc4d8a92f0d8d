"""What took how long in a run: its model calls, tools, waits and children, told from its events."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from glidepath import _wire
from glidepath._wire import Record, Value
from glidepath.apps.server.event_log import kind_of
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.shapes import Span

__all__ = ["Timelines"]

_PAGE = 2_000
_KEPT = 32  # runs whose spans are kept at hand
_LONGEST_NOTE = 200
ORDERS = ("time", "longest")


class _Sum(Value, frozen=True, kw_only=True):
    input: int = 0
    output: int = 0


class _Outcome(Value, frozen=True, kw_only=True):
    """What counts of a result: of a call, or of a whole run."""

    is_error: bool = False
    outcome: str = ""


class _Told(Value, frozen=True, kw_only=True):
    """What counts of an event, of any kind."""

    event: str
    sequence: int
    time: float
    iteration: int = 0
    model: str = ""
    attempt: int = 1
    landing: bool = False
    id: str = ""
    kind: str | None = None
    call_id: str = ""
    tool_name: str = ""
    child_id: str = ""
    agent_name: str = ""
    outcome: str = ""
    reason: str = ""
    error: str = ""
    delay: float = 0.0
    resumed: bool = False
    usage: _Sum = _Sum()
    picodollars: int | None = None
    result: _Outcome = _Outcome()


class _Open(Record, kw_only=True):
    """A span that may not be over."""

    kind: str
    name: str
    started: float
    sequence: int
    turn: int
    ended: float | None = None
    attempt: int = 1
    failed: bool = False
    landing: bool = False
    note: str = ""
    call_id: str = ""
    child: str = ""
    input: int = 0
    output: int = 0
    cost: float | None = None

    def make_span(self) -> Span:
        """As it is now."""
        return Span(**{name: getattr(self, name) for name in Span.__struct_fields__})

    def last(self, now: float) -> float:
        """Seconds that it has taken."""
        return (now if self.ended is None else self.ended) - self.started


class _RunSpans:
    """Listens to the events of one run."""

    def __init__(self) -> None:
        self.seen = 0
        self._turn_to_read = asyncio.Lock()
        self.spans: list[_Open] = []
        self._turn = 0
        self._time = 0.0
        self._model: _Open | None = None
        self._calls: dict[str, _Open] = {}
        self._background: dict[str, _Open] = {}
        self._children: dict[str, _Open] = {}
        self._pause: _Open | None = None

    async def catch_up(self, feed: RunFeed) -> None:
        """Read the events that have come since; others have their turn between two pages."""
        async with self._turn_to_read:
            while lines := await feed.lines(self.seen, _PAGE):
                for line in lines:
                    self.seen += 1
                    if kind_of(line) in _HEARD:
                        self._take(line)
                await asyncio.sleep(0)

    def _take(self, line: bytes) -> None:
        try:
            told = _read(line)
        except _wire.WireError:
            return  # of another version
        _HEARD[told.event](self, told)
        self._time = told.time

    def _open(self, kind: str, name: str, told: _Told, **more: Any) -> _Open:
        found = _Open(kind=kind, name=name, started=told.time, sequence=told.sequence, turn=self._turn, **more)
        self.spans.append(found)
        return found

    def on_started(self, told: _Told) -> None:
        """The run began, or continues: what was between its legs is a wait."""
        if self._pause is not None:
            self._pause.ended, self._pause = told.time, None
        elif told.resumed and self._time:
            gap = self._open("wait", "not running", told, note="until somebody resumed it", ended=told.time)
            gap.started = self._time
        self._end_all(self._time)

    def on_turn(self, told: _Told) -> None:
        """A turn began."""
        self._turn = told.iteration

    def on_stream(self, told: _Told) -> None:
        """A model was asked."""
        if self._model is not None:
            self._model.ended = told.time
        self._model = self._open("model", told.model, told, attempt=told.attempt, landing=told.landing)

    def on_settled(self, told: _Told) -> None:
        """What the call has cost: it is over."""
        model = self._model
        if model is not None:
            model.input, model.output = told.usage.input, told.usage.output
            model.cost = None if told.picodollars is None else told.picodollars / 1e12
            model.ended, self._model = told.time, None

    def on_discarded(self, told: _Told) -> None:
        """An attempt came to nothing."""
        found = self._model
        if found is None:
            found = next((one for one in reversed(self.spans[-4:]) if one.kind == "model"), None)
        if found is not None:
            found.failed, found.note = True, told.reason[:_LONGEST_NOTE]
            found.ended, self._model = found.ended or told.time, None

    def on_retry(self, told: _Told) -> None:
        """It is tried again after a while."""
        wait = self._open("wait", "retry", told, note=told.error[:_LONGEST_NOTE], ended=told.time + told.delay)
        wait.attempt = told.attempt

    def on_tool(self, told: _Told) -> None:
        """A call began."""
        self._calls[told.call_id] = self._open("tool", told.tool_name, told, call_id=told.call_id)

    def on_tool_ended(self, told: _Told) -> None:
        """A call is over; one that never began was denied or failed before."""
        found = self._calls.pop(told.call_id, None)
        if found is None:
            found = self._open("tool", told.tool_name, told, call_id=told.call_id)
        found.ended, found.failed = told.time, told.result.is_error

    def on_background(self, told: _Told) -> None:
        """A call has returned its handle, and runs on."""
        name = f"{told.tool_name} ({told.id})"
        self._background[told.id] = self._open("tool", name, told, call_id=told.call_id, note="in the background")

    def on_background_ended(self, told: _Told) -> None:
        """Its result is there, collected or not."""
        found = self._background.pop(told.id, None)
        if found is not None:
            found.ended, found.failed = told.time, told.kind is not None

    def on_child(self, told: _Told) -> None:
        """A child began."""
        self._children[told.child_id] = self._open("child", told.agent_name, told, child=told.child_id)

    def on_child_ended(self, told: _Told) -> None:
        """A child has ended."""
        found = self._children.pop(told.child_id, None)
        if found is not None:
            outcome = told.outcome.lower()
            found.ended, found.failed, found.note = told.time, outcome == "failed", outcome

    def on_paused(self, told: _Told) -> None:
        """A person has to decide."""
        self._pause = self._open("wait", "a person's decision", told)

    def on_ended(self, told: _Told) -> None:
        """The run has ended; a pause lasts."""
        if told.result.outcome == "paused" and self._pause is None:
            self._pause = self._open("wait", "a person's decision", told)
        self._end_all(told.time)

    def _end_all(self, time: float) -> None:
        for one in [self._model, *self._calls.values(), *self._background.values(), *self._children.values()]:
            if one is not None:
                one.ended = max(time, one.started)
        self._model, self._calls, self._background, self._children = None, {}, {}, {}


_read = _wire.decoder(_Told)
_HEARD: dict[str, Any] = {
    "RunStarted": _RunSpans.on_started,
    "TurnStarted": _RunSpans.on_turn,
    "StreamStarted": _RunSpans.on_stream,
    "BudgetSettled": _RunSpans.on_settled,
    "AttemptDiscarded": _RunSpans.on_discarded,
    "RetryScheduled": _RunSpans.on_retry,
    "ToolStarted": _RunSpans.on_tool,
    "ToolEnded": _RunSpans.on_tool_ended,
    "BackgroundStarted": _RunSpans.on_background,
    "BackgroundEnded": _RunSpans.on_background_ended,
    "ChildStarted": _RunSpans.on_child,
    "ChildEnded": _RunSpans.on_child_ended,
    "RunPaused": _RunSpans.on_paused,
    "RunEnded": _RunSpans.on_ended,
}


class Timelines:
    """The spans of the runs that somebody looks at, kept while their events come."""

    def __init__(self) -> None:
        self._known: OrderedDict[RunFeed, _RunSpans] = OrderedDict()

    async def find_call(self, feed: RunFeed, at: float) -> Span | None:
        """The model call that began at this time."""
        known = await self._catch_up(feed)
        found = next((one for one in known.spans if one.kind == "model" and one.started == at), None)
        return None if found is None else found.make_span()

    async def _catch_up(self, feed: RunFeed) -> _RunSpans:
        known = self._known.get(feed)
        if known is None:
            known = self._known[feed] = _RunSpans()
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(feed)
        await known.catch_up(feed)
        return known

    async def page(self, feed: RunFeed | None, now: float, after: int, limit: int, order: str) -> dict[str, Any]:
        """A page of spans with how many there are, and the seconds that each kind has taken together."""
        if order not in ORDERS:
            raise HttpError(400, "bad_order", f"order must be one of {', '.join(ORDERS)}, not {order!r:.40}")
        if feed is None:
            return {"spans": [], "total": 0, "seconds": {}}
        known = await self._catch_up(feed)
        if not feed.live and known.seen >= feed.last:
            now = known.spans[-1].ended or now if known.spans else now
        seconds: dict[str, float] = {}
        for one in known.spans:
            seconds[one.kind] = seconds.get(one.kind, 0.0) + one.last(now)
        chosen = known.spans
        if order == "longest":
            chosen = sorted(chosen, key=lambda one: -one.last(now))
        shown = [one.make_span() for one in chosen[after : after + limit]]
        return {
            "spans": shown,
            "total": len(chosen),
            "seconds": {name: round(sum_, 3) for name, sum_ in seconds.items()},
        }
