"""Delivers events to the observers of a run: isolated, filtered, and without slowing the run."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from glidepath._wire import Record
from glidepath.spi import INSIDE, DirectObserver, Plugin, RunIntroduction
from glidepath.values import Event, RunEnded, StreamChunk, TurnEnded, TurnStarted

_log, _inside = logging.getLogger("glidepath"), INSIDE.get
FAREWELL = 1.0  # seconds that all observers of a run together have after its last event
LAST_WORDS = 0.25  # seconds that they have when the run or its caller was stopped
Report: TypeAlias = Callable[[str, str, BaseException | str, str], None]
"""Called with a failure: plugin, hook, error, effect."""


class Sink:
    """The one callable of the configuration that sees every event first; removed when it fails."""

    removed = False

    def __init__(self, tell: Callable[[Event], Any], report: Report) -> None:
        self.tell = tell
        self._report = report

    def is_wanted(self, kind: type[Event]) -> bool:  # noqa: ARG002 - as an observer has it
        """It sees everything."""
        return True

    def fail(self, error: BaseException) -> None:
        """Report the error, and do not call it again."""
        self.removed = True
        self._report("event_sink", "event_sink", error, "removed")


class Observer:
    """One event observer in one run. An async one has a bounded queue, and loses events rather than time.

    `last`: the kinds of event that end what it watches. They are always delivered, whatever else was dropped.
    """

    MAX_FAILURES = 3
    QUEUE = 1024

    def __init__(
        self, name: str, plugin: Plugin, report: Report, *, last: tuple[type[Event], ...] = (RunEnded,)
    ) -> None:
        self.name = name
        self.by_hand: Callable[[], Any] | None = None
        """Called when Ctrl-C arrives in an async observer."""
        self._method = plugin.event_observer
        self._wanted = plugin.events
        self._report = report
        self._failed = 0
        self._last = last
        self._queue: deque[Event] = deque()
        self._task: asyncio.Task[None] | None = None
        self._left: asyncio.Task[None] | None = None  # a stopped task that may still be running
        self._told: Event | None = None
        self.dropped = 0
        self._flush = plugin.flush if type(plugin).flush is not Plugin.flush else None
        self.note = plugin.journal_note if type(plugin).journal_note is not Plugin.journal_note else None
        self.tell: Callable[[Event], Any] = self._method
        if inspect.iscoroutinefunction(self._method):
            self.tell = self._enqueue
        self._direct = plugin if isinstance(plugin, DirectObserver) and self.tell is self._method else None

    def find_direct_handler(self, kind: type[Event]) -> Callable[[Event], Any] | None:
        """The handler for this kind of event that needs no protection, if there is one."""
        return None if self._direct is None else self._direct._observer_of(kind)  # noqa: SLF001 - of the house

    def introduce(self, introduction: RunIntroduction) -> None:
        """Tell an observer of the house what the run sends with every request."""
        if self._direct is not None:
            self._direct._introduce(introduction)  # noqa: SLF001 - of the house

    @property
    def is_direct(self) -> bool:
        """True if there may be such handlers."""
        return self._direct is not None

    def is_wanted(self, kind: type[Event]) -> bool:
        """Whether it asks for this kind of event; by default, for all but `StreamChunk`."""
        return kind is not StreamChunk if self._wanted is None else issubclass(kind, self._wanted)

    @property
    def removed(self) -> bool:
        """True when it has failed too often to be asked again."""
        return self._failed >= self.MAX_FAILURES

    def fail(self, error: BaseException) -> None:
        """Report the error; the third one removes the observer."""
        self._failed += 1
        effect = "removed" if self.removed else "ignored"
        self._report(self.name, "event_observer", error, effect)

    def _enqueue(self, event: Event) -> None:
        if self.removed:
            return
        if len(self._queue) >= self.QUEUE and not isinstance(event, self._last):
            self.dropped += 1
            if self.dropped == 1:
                reason = f"{self.QUEUE} events wait for it"
                self._report(self.name, "event_observer", reason, "events are dropped")
            return
        self._queue.append(event)
        if self._task is None or self._task.done():
            self._begin()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        # not create_task: an eager task factory would start it inside the run, before self._task is set
        self._task = asyncio.Task(self._drain(), loop=loop, name="glidepath-observer")

    async def _drain(self) -> None:
        queue, mine = self._queue, asyncio.current_task()
        while queue and not self.removed and mine is self._task:
            self._told = event = queue.popleft()
            try:
                await self._method(event)  # type: ignore[misc] # one that answers at once has no queue
            except BaseException as error:  # even SystemExit: in our task it would end the event loop
                if isinstance(error, GeneratorExit) or mine is not self._task:
                    raise  # the loop is closing, or this task was stopped
                self.fail(error)
                if isinstance(error, KeyboardInterrupt) and self.by_hand is not None:
                    self.by_hand()
                if isinstance(error, asyncio.CancelledError) and mine.cancelling():  # type: ignore[union-attr]
                    return  # the event loop is being closed, or it has cancelled itself
            self._told = None

    # --- the end ----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let a plain observer finish what it does in the background."""
        if self._flush is None or self._task is not None or self.removed:
            return
        if self._direct is None or not self._direct._has_nothing_to_flush():  # noqa: SLF001 - of the house
            loop = asyncio.get_running_loop()
            self._task = asyncio.Task(self._run_flush(), loop=loop, name="glidepath-observer")

    async def _run_flush(self) -> None:
        try:
            await self._flush()  # type: ignore[misc]
        except BaseException as error:
            if isinstance(error, GeneratorExit | asyncio.CancelledError):
                raise
            self.fail(error)

    @property
    def busy(self) -> bool:
        """True while it works."""
        return bool(self.tasks())

    def drop_all_but_last(self) -> None:
        """Drop everything in the queue except the final event."""
        if self.busy and self._queue:
            last = self._queue[-1]
            self.dropped += len(self._queue)
            self._queue.clear()
            if isinstance(last, self._last):
                self.dropped -= 1
                self._queue.append(last)

    def deliver_last_event(self) -> None:
        """Stop what it is doing and give it the final event, unless it is already handling that."""
        if not isinstance(self._told, self._last):
            self.stop()

    def stop(self) -> None:
        """Stop what it is doing; the rest of the queue is still delivered."""
        task = self._task
        if task is None or task.done():
            return
        if self._told is not None:
            self.dropped += 1
        self._left, self._task, self._told = task, None, None
        task.cancel()
        if self._queue:
            self._begin()

    def tasks(self) -> set[asyncio.Task[None]]:
        """Its running tasks."""
        return {task for task in (self._task, self._left) if task is not None and not task.done()}


class Farewell(Record):
    """How observers were dismissed: events missed, who did not stop, whether the caller was cancelled meanwhile."""

    missed: int = 0
    stubborn: tuple[str, ...] = ()
    cancelled: bool = False


async def finish_observers(observers: Sequence[Observer], patience: float) -> Farewell:
    """Let observers finish, all together and within `patience` seconds, then stop them.

    They continue in order for most of that time. After that, a slow observer skips to the last event, and a moment
    later is interrupted to get it. A cancellation of the caller only makes this quicker.
    """
    farewell = Farewell()
    for observer in observers:
        observer.finish()
    if any(observer.busy for observer in observers):
        loop = asyncio.get_running_loop()
        for share, then in (
            (0.6, Observer.drop_all_but_last),
            (0.2, Observer.deliver_last_event),
            (0.2, Observer.stop),
        ):
            hurry = min(patience, LAST_WORDS) if farewell.cancelled else patience
            await _wait_until_done(observers, loop.time() + hurry * share, farewell)
            for observer in observers:
                then(observer)
        await _wait_until_done(observers, loop.time() + min(LAST_WORDS, patience), farewell)
        farewell.stubborn = tuple([observer.name for observer in observers if observer.busy])
    for observer in observers:
        if observer.dropped:
            farewell.missed += observer.dropped
            _log.warning("observer %r was too slow and has missed %d events", observer.name, observer.dropped)
    return farewell


async def _wait_until_done(observers: Sequence[Observer], at: float, farewell: Farewell) -> None:
    """Wait until all are done or the time has come; a cancellation of the caller is recorded in `farewell`."""
    loop = asyncio.get_running_loop()
    while (tasks := set[Any]().union(*[observer.tasks() for observer in observers])) and loop.time() < at - 1e-9:
        try:
            await asyncio.wait(tasks, timeout=at - loop.time())
        except asyncio.CancelledError:
            farewell.cancelled = True
            at = min(at, loop.time() + LAST_WORDS)


class Audience:
    """All listeners of one run. Which of them want an event is looked up once per kind."""

    __slots__ = (
        "_by_hand", "_free", "_listeners", "_routes", "_untold", "observers", "outbox", "wants_chunks", "wants_turns",
    )  # fmt: skip

    def __init__(
        self,
        sink: Callable[[Event], Any] | None,
        observers: Sequence[Observer],
        report: Report,
        *,
        by_hand: Callable[[], Any],
    ) -> None:
        self.observers = tuple(observers)
        self._by_hand = by_hand  # called when Ctrl-C arrives in a listener
        for observer in self.observers:
            observer.by_hand = by_hand
        self._listeners: tuple[Any, ...] = (*([] if sink is None else [Sink(sink, report)]), *observers)
        self._routes: dict[type[Event], tuple[Any, ...]] = {}
        self._free: dict[type[Event], tuple[Any, ...]] | None = self._routes
        """None while an event is told."""
        self._untold: deque[Event] = deque()
        self.outbox: list[Event] | None = None
        """A list that also receives every event, for the consumer of a stream."""
        self.wants_chunks = any(listener.is_wanted(StreamChunk) for listener in self._listeners)
        self.wants_turns = any(one.is_wanted(kind) for one in self._listeners for kind in (TurnStarted, TurnEnded))

    @property
    def harmless(self) -> bool:
        """True if no listener can stop a run."""
        return False

    def deliver(self, event: Event) -> None:
        """Deliver an event to all listeners that want it; events that they cause wait until all have seen this one."""
        routes = self._free
        if routes is None or _inside() is not None:
            self._deliver_nested(event)
            return
        try:
            route = routes[event.__class__]
        except KeyError:
            route = self._route(event.__class__)
        self._free = None
        try:
            for tell in route:
                try:
                    if (answer := tell(event)) is not None:
                        _refuse(answer)
                except BaseException as error:  # whatever it is: an observer can never hurt a run
                    self._on_failure(self._owner(tell), error)
            while self._untold:  # listeners have caused them: perhaps thousands, so this does not call itself for each
                self._deliver_now(self._untold.popleft())
        except BaseException:
            self._untold.clear()
            raise
        finally:
            self._free = routes

    __call__ = deliver

    def _deliver_now(self, event: Event) -> None:
        for tell in self._route(event.__class__):
            try:
                if (answer := tell(event)) is not None:
                    _refuse(answer)
            except BaseException as error:
                self._on_failure(self._owner(tell), error)

    def _deliver_nested(self, event: Event) -> None:
        """A listener has caused the event, or a tool or hook that is at work."""
        if self._free is None:
            self._untold.append(event)
            return
        place = INSIDE.get()
        INSIDE.set(None)  # a run does not wait for observers: what they start is not its child
        try:
            self.deliver(event)
        finally:
            INSIDE.set(place)

    def introduce(self, introduction: RunIntroduction) -> None:
        """Tell the observers of the house what the run sends with every request, before its first event."""
        for observer in self.observers:
            try:
                observer.introduce(introduction)
            except BaseException as error:
                self._on_failure(observer, error)

    def notes(self) -> dict[str, str]:
        """The observers' notes for the journal, by name; a failing observer adds none."""
        found: dict[str, str] = {}
        for observer in self.observers:
            if observer.note is None:
                continue
            try:
                note = observer.note()
                if note is not None and type(note) is not str:
                    raise TypeError(f"journal_note() must return a str or None, not {type(note).__name__}")
            except BaseException as error:
                self._on_failure(observer, error)
                continue
            if note is not None:
                found[observer.name] = note
        return found

    def _route(self, kind: type[Event]) -> tuple[Any, ...]:
        first = () if self.outbox is None else (self.outbox.append,)
        route = (*first, *[one.tell for one in self._listeners if not one.removed and one.is_wanted(kind)])
        self._routes[kind] = route
        return route

    def _owner(self, tell: object) -> Any:
        return next(one for one in self._listeners if one.tell is tell)

    def _on_failure(self, listener: Any, error: BaseException) -> None:
        listener.fail(error)
        if listener.removed:
            self._routes.clear()
        if isinstance(error, KeyboardInterrupt):
            self._by_hand()


def _refuse(answer: object) -> None:
    """Raise for a plain callable that returns an awaitable, which nothing would await; ignore other values."""
    if hasattr(answer, "__await__"):
        if hasattr(answer, "close"):
            answer.close()
        raise TypeError("it returned an awaitable; define it with `async def`")
