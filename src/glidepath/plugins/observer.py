"""Showing events to whoever watches a run: isolated, filtered, and never in the run's way."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from glidepath.errors import told
from glidepath.events import Event, StreamChunk
from glidepath.spi.hooks import Plugin
from glidepath.spi.inside import INSIDE

__all__ = ["Audience", "Observer"]

_log = logging.getLogger("glidepath")
_CONTAINED = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
Report: TypeAlias = Callable[[str, str, str, str], None]
"""Told about a failure: plugin, hook, error, effect."""


class Sink:
    """The one callable of the configuration that sees every event first; removed when it fails."""

    removed = False

    def __init__(self, tell: Callable[[Event], Any], report: Report) -> None:
        self.tell = tell
        self._report = report

    def wants(self, kind: type[Event]) -> bool:  # noqa: ARG002 - as an observer has it
        """It sees everything."""
        return True

    def fail(self, error: BaseException) -> None:
        """It raised: it is not asked again."""
        self.removed = True
        self._report("event_sink", "event_sink", told(error), "removed")


class Observer:
    """One event observer in one run. An async one has a bounded queue, and loses events rather than time."""

    MAX_FAILURES = 3
    QUEUE = 1024

    def __init__(self, name: str, plugin: Plugin, report: Report) -> None:
        self.name = name
        self._method = plugin.event_observer
        self._wanted = plugin.events
        self._report = report
        self._failed = 0
        self._queue: deque[Event] = deque()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        self.tell: Callable[[Event], Any] = self._method
        if inspect.iscoroutinefunction(self._method):
            self.tell = self._enqueue

    def wants(self, kind: type[Event]) -> bool:
        """Whether it asks for this kind of event; without a word, for all but `StreamChunk`."""
        return kind is not StreamChunk if self._wanted is None else issubclass(kind, self._wanted)

    @property
    def removed(self) -> bool:
        """True when it has failed too often to be asked again."""
        return self._failed >= self.MAX_FAILURES

    def fail(self, error: BaseException) -> None:
        """It raised: reported, and the third time the last."""
        self._failed += 1
        effect = "removed" if self.removed else "ignored"
        self._report(self.name, "event_observer", told(error), effect)

    def _enqueue(self, event: Event) -> None:
        if self.removed:
            return
        if len(self._queue) >= self.QUEUE:
            self.dropped += 1
            if self.dropped == 1:
                reason = f"{self.QUEUE} events wait for it"
                self._report(self.name, "event_observer", reason, "events are dropped")
            return
        self._queue.append(event)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        queue = self._queue
        while queue and not self.removed:
            event = queue.popleft()
            try:
                await self._method(event)
            except (Exception, SystemExit) as error:
                self.fail(error)

    async def close(self, patience: float) -> None:
        """Let a slow observer finish what is queued, for a while, then stop it."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=patience)
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=patience)
        if self.dropped:
            _log.warning("observer %r was too slow and has missed %d events", self.name, self.dropped)


class Audience:
    """Everybody who watches one run. Which of them want a kind of event is found out once for each kind."""

    __slots__ = ("_listeners", "_routes", "_telling", "_untold", "observers", "outbox", "wants_chunks")

    def __init__(self, sink: Callable[[Event], Any] | None, observers: Sequence[Observer], report: Report) -> None:
        self.observers = tuple(observers)
        self._listeners: tuple[Any, ...] = (*([] if sink is None else [Sink(sink, report)]), *observers)
        self._routes: dict[type[Event], tuple[Any, ...]] = {}
        self._telling = False
        self._untold: deque[Event] = deque()
        self.outbox: list[Event] | None = None
        """Where a stream's consumer finds every event, too."""
        self.wants_chunks = any(listener.wants(StreamChunk) for listener in self._listeners)

    def __call__(self, event: Event) -> None:
        """Tell everybody who wants it; an event that a listener causes meanwhile waits until all have seen this one."""
        if self.outbox is not None:
            self.outbox.append(event)
        route = self._routes.get(type(event))
        if route is None:
            route = self._route(type(event))
        if not route:
            return
        if self._telling:
            self._untold.append(event)
            return
        self._telling = True
        place = INSIDE.get()
        if place is not None:
            INSIDE.set(None)  # whoever watches does not hold the run up: what it starts is not the run's child
        try:
            while True:
                for tell in route:
                    try:
                        if (answer := tell(event)) is not None:
                            _refuse(answer)
                    except _CONTAINED as error:
                        self._failed(tell, error)
                if not self._untold:
                    return
                event = self._untold.popleft()
                route = self._route(type(event))
        finally:
            self._telling = False
            self._untold.clear()
            if place is not None:
                INSIDE.set(place)

    def _route(self, kind: type[Event]) -> tuple[Any, ...]:
        self._routes[kind] = route = tuple(one.tell for one in self._listeners if not one.removed and one.wants(kind))
        return route

    def _failed(self, tell: Any, error: BaseException) -> None:
        listener = next(one for one in self._listeners if one.tell is tell)
        listener.fail(error)
        if listener.removed:
            self._routes.clear()


def _refuse(answer: Any) -> None:
    """A plain callable that answers with an awaitable: nobody would ever wait for it. Other answers mean nothing."""
    if hasattr(answer, "__await__"):
        if hasattr(answer, "close"):
            answer.close()
        raise TypeError("it answered with an awaitable; define it with `async def`")
