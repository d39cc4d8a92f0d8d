"""The event loop of `Schedules`: virtual time, no selector, and a choice wherever more than one callback is ready."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
import sys
import threading
from asyncio import Handle, TimerHandle
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from typing import Any, NoReturn, Protocol, TypeVar, TypeVarTuple, Unpack

from glidepath.run import run_handle, set_running
from glidepath.testing.clock import describe_wait
from glidepath.testing.sharing import Sharing

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_log = logging.getLogger("asyncio")
_EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z
_LONGEST = 1_000_000  # callbacks of one schedule: more is a program that never ends
_MAIN = 0

_family: ContextVar[int] = ContextVar("glidepath_schedule_family", default=_MAIN)
"""The task of the scenario that a callback works for: one that the scenario itself started, with all below it."""


class ScheduleError(AssertionError):
    """A schedule in which the scenario fails, or in which its loop has nothing left to wait for.

    `choices` is what `Schedules.replay` takes to run it again; the message says it, too.
    """

    def __init__(self, message: str, choices: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.choices = choices


class Names:
    """Numbers for the callbacks of all schedules: who made it, and as which of its callbacks.

    A callback that depends on nothing that two schedules did in another order has the same number in both.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}

    def number(self, maker: int, place: int) -> int:
        """The number of the callback that `maker` made in this place; 0 is the scenario itself."""
        return self._numbers.setdefault((maker, place), len(self._numbers) + 1)


class ScheduledStep:
    """What is known of a callback: its number, its family, who made it, how many it made, and what it touched."""

    __slots__ = ("family", "made", "maker", "number", "touches")

    def __init__(self, number: int, family: int, maker: int = 0) -> None:
        self.number = number
        self.maker = maker
        self.family = family
        self.made = 0
        self.touches: Any = None


class Chooser(Protocol):
    """Who decides which callback is next, and hears what each one touched."""

    def choose(self, ready: Sequence[ScheduledStep]) -> int:
        """The place of the next callback among those that are ready."""

    def finish(self, step: ScheduledStep) -> None:
        """It has run; `step.touches` says what it touched."""


class _Handle(Handle):
    __slots__ = ("step",)
    step: ScheduledStep


class _TimerHandle(TimerHandle):
    __slots__ = ("step",)
    step: ScheduledStep


class ChoosingLoop(asyncio.AbstractEventLoop):
    """One schedule. `driver` chooses; None takes callbacks in the order they became ready."""

    def __init__(self, driver: Chooser | None, names: Names, sharing: Sharing | None = None, now: float = 0.0) -> None:
        self.driver = driver
        self.steps = 0
        self._names_of_steps = names
        self._sharing = sharing
        self._step_now = ScheduledStep(0, _MAIN)
        self._now = now
        self._ready: list[_Handle | _TimerHandle] = []
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        self._order = itertools.count()
        self._names = itertools.count(1)
        self._chance = random.Random(0)  # noqa: S311 - for tests
        self._thread = threading.get_ident()
        self._generators: set[AsyncGenerator[Any, Any]] = set()
        self._closed = self._stopping = self._running = False
        self._until: object = None
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._factory: Any = None

    # --- what this loop is about ------------------------------------------------------------------------------

    def _step(self) -> None:
        """Run one callback that is ready, or move the clock to the next timer."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        ready = self._ready = [handle for handle in self._ready if not handle.cancelled()]
        if not ready:
            if not self._timers:
                self._give_up()
            self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled():
                ready.append(timer)
        chosen = ready.pop(self._choose(ready))
        step = self._step_now = chosen.step
        self.steps += 1
        if self._sharing is None:
            run_handle(chosen)
        else:
            with self._sharing.watch(step.number, step.family) as touches:
                run_handle(chosen)
            step.touches = touches
        self._step_now = ScheduledStep(step.number, _MAIN)
        if self.driver is not None:
            self.driver.finish(step)

    def _choose(self, ready: Sequence[_Handle | _TimerHandle]) -> int:
        return 0 if self.driver is None else self.driver.choose([handle.step for handle in ready])

    def _make_step(self, context: Context) -> ScheduledStep:
        maker = self._step_now
        maker.made += 1
        return ScheduledStep(
            self._names_of_steps.number(maker.number, maker.made), context.get(_family, _MAIN), maker.number
        )

    def _give_up(self) -> NoReturn:
        waiting = [f"  {line}" for line in sorted(map(describe_wait, asyncio.all_tasks(self)))]
        raise ScheduleError("\n".join(["stuck: nothing is ready and no timer is set; pending tasks:", *waiting]))

    def run_forever(self) -> None:
        """ScheduledStep until `stop`."""
        if self._closed or self._running:
            raise RuntimeError("this event loop is closed" if self._closed else "this event loop is already running")
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generators.add, finalizer=self._finalize)
        set_running(self)
        self._running = True
        try:
            for _ in range(_LONGEST):
                if self._stopping:
                    break
                self._step()
            else:
                raise ScheduleError(f"this schedule has run {_LONGEST:,} callbacks and does not end")
        finally:
            self._stopping = self._running = False
            set_running(None)
            sys.set_asyncgen_hooks(*before)

    def run_until_complete(self, future: Any) -> Any:
        """Run until the future is done; returns its result."""
        task = self._until = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_after)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_after)
        return task.result()

    def _stop_after(self, task: object) -> None:
        self._stopping = self._stopping or task is self._until  # it may be one that a crash has left behind

    def stop(self) -> None:
        """Stop after this step."""
        self._stopping = True

    # --- callbacks, timers, tasks -----------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def epoch(self) -> float:
        """The virtual wall-clock time."""
        return _EPOCH + self._now

    def new_id(self) -> str:
        """An id for a run, the same in every schedule."""
        return f"{next(self._names):016x}"

    def random(self) -> float:
        """A number from 0 to 1, for jitter."""
        if self._sharing is not None:
            self._sharing.touch(("random",))
        return self._chance.random()

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> Handle:
        """Make a callback ready."""
        if self._closed:
            raise RuntimeError("this event loop is closed")
        context = copy_context() if context is None else context
        handle = _Handle(callback, args, self, context)
        handle.step = self._make_step(context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        """The same; another thread has no place in a schedule that can be repeated."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("a scenario of Schedules cannot use threads: their order could not be repeated")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        """Make a callback ready after this many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        """Make a callback ready at this virtual time."""
        context = copy_context() if context is None else context
        timer = _TimerHandle(when, callback, args, self, context)
        timer.step = self._make_step(context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """A cancelled timer is dropped when it would be due."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self) if self._sharing is None else self._sharing.make_future(self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        """A task on this loop; one that the scenario itself starts is a family, with all that it starts."""
        context = options.get("context") or copy_context()
        options["context"] = context
        if self.driver is not None and context.get(_family, _MAIN) == _MAIN and self.steps:
            maker = self._step_now
            maker.made += 1
            context.run(_family.set, self._names_of_steps.number(maker.number, maker.made))
        if self._factory is not None:
            return self._factory(self, coro, **options)
        if self._sharing is not None:
            return self._sharing.make_task(coro, self, context.get(_family, _MAIN), options)
        return asyncio.Task(coro, loop=self, **options)

    def set_task_factory(self, factory: Any) -> None:
        """How tasks are made."""
        self._factory = factory

    def get_task_factory(self) -> Any:
        """How tasks are made; None in the ordinary way."""
        return self._factory

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002 - as loops have it
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run it as one callback, when it is chosen: a thread's order could not be repeated."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_soon(work)
        return future

    # --- what else a loop has ---------------------------------------------------------------------------------

    def is_running(self) -> bool:
        """True while it runs."""
        return self._running

    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def close(self) -> None:
        """Let go of everything."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators.discard(generator)
        if not self._closed:
            self.create_task(generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        """Close the generators that are still open."""
        left, self._generators = [*self._generators], set()
        await asyncio.gather(*[generator.aclose() for generator in left], return_exceptions=True)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as loops have it
        """There is none."""

    def get_debug(self) -> bool:
        """Never."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Tracing does not change a schedule."""

    def get_exception_handler(self) -> Any:
        """What is told of errors that nobody awaited."""
        return self._handler

    def set_exception_handler(self, handler: Any) -> None:
        """Who is told of errors that nobody awaited."""
        self._handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that nobody awaited."""
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log it, as every loop does."""
        _log.error(context.get("message", "an error that nobody awaited"), exc_info=context.get("exception"))
