"""Every interleaving: a deterministic event loop that tries each order in which the ready callbacks can run."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
import sys
import threading
import traceback
from asyncio import Handle, TimerHandle
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Generic, NoReturn, TypeVar, TypeVarTuple, Unpack

from glidepath._wire import Value
from glidepath.run import run_handle, set_running
from glidepath.testing.clock import describe_wait

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_log = logging.getLogger("asyncio")
_EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z
_NOT_THE_SAME = (
    "the scenario is not the same each time; look for a thread, a real clock, or something kept from the last schedule"
)
_LONGEST = 1_000_000  # callbacks of one schedule: more is a program that never ends


class ScheduleError(AssertionError):
    """A schedule in which the scenario fails, or in which its loop has nothing left to wait for.

    `choices` is what `Schedules.replay` takes to run it again; the message says it, too.
    """

    def __init__(self, message: str, choices: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.choices = choices


class Schedule(Value, Generic[T], frozen=True, kw_only=True):
    """One order of events: what was chosen where more than one callback was ready, and what the scenario returned."""

    choices: tuple[int, ...]
    result: T


class Explored(Value, frozen=True, kw_only=True):
    """How far an exploration went."""

    schedules: int
    deepest: int
    """The most choices that one schedule had."""
    complete: bool
    """True when every schedule was tried."""


class Schedules(Generic[T]):
    """All schedules of a small asyncio program, one after the other: `for schedule in Schedules(scenario): ...`.

    `scenario` is called again for each schedule and returns the coroutine to run. Whenever more than one callback is
    ready, the loop branches; depth first, by running the scenario again with other choices. Time is virtual: it moves
    to the next timer when nothing is ready. So the scenario must be deterministic but for that order: no threads, no
    files or sockets, no clock but the loop's. `asyncio.to_thread` is a callback like any other here.

    `most` bounds how many schedules are tried, and `detours` how many choices of one schedule may differ from the
    order in which callbacks became ready; None tries all. A schedule that raises, or that gets stuck, raises
    `ScheduleError`, which says how to `replay` it.
    """

    def __init__(
        self, scenario: Callable[[], Coroutine[Any, Any, T]], *, most: int = 100_000, detours: int | None = None
    ) -> None:
        self._scenario = scenario
        self._most = most
        self._detours = detours

    def __iter__(self) -> Iterator[Schedule[T]]:
        for schedule, _ in self._explore():
            yield schedule

    def check(self, holds: Callable[[T], object] | None = None) -> Explored:
        """Run all schedules. `holds` looks at what the scenario returned: it raises, or returns False, if that is bad.

        Returns how many there were; raises `ScheduleError` at the first that is bad.
        """
        tried = deepest = 0
        complete = True
        for schedule, left in self._explore():
            tried, deepest, complete = tried + 1, max(deepest, len(schedule.choices)), not left
            if holds is None:
                continue
            try:
                held = holds(schedule.result)
            except Exception as error:
                raise _make_schedule_error(schedule.choices, error) from error
            if held is False:
                raise _make_schedule_error(schedule.choices, f"it returned {schedule.result!r:.500}")
        return Explored(schedules=tried, deepest=deepest, complete=complete)

    def replay(self, choices: Sequence[int] = ()) -> T:
        """Run the scenario once with these choices; where they end, callbacks run in the order they became ready."""
        return self._run(tuple(choices))[0]

    def _explore(self) -> Generator[tuple[Schedule[T], bool]]:
        """Each schedule, and whether others are left that are not tried."""
        open_ends: list[tuple[int, ...]] = [()]
        tried = 0
        while open_ends and tried < self._most:
            prefix = open_ends.pop()
            result, taken, widths = self._run(prefix)
            tried += 1
            # The prefix was branched on when it was found; only what came after it is new.
            spent = sum(1 for choice in prefix if choice)
            if self._detours is None or spent < self._detours:
                for place in range(len(prefix), len(taken)):
                    open_ends.extend((*taken[:place], other) for other in range(1, widths[place]))
            yield Schedule(choices=taken, result=result), bool(open_ends) and tried >= self._most

    def _run(self, prefix: tuple[int, ...]) -> tuple[T, tuple[int, ...], list[int]]:
        loop = _ChoosingLoop(prefix)  # type: ignore[abstract] # files and sockets have no place in a schedule
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                try:
                    result = runner.run(self._scenario())
                finally:
                    loop.branching = False  # what is left over is cancelled in one order
            if len(loop.taken) < len(prefix):
                raise ScheduleError(f"only {len(loop.taken)} of {len(prefix)} choices were there: {_NOT_THE_SAME}")
        except (Exception, asyncio.CancelledError) as error:
            raise _make_schedule_error(tuple(loop.taken), error) from error
        return result, tuple(loop.taken), loop.widths


def _make_schedule_error(choices: tuple[int, ...], why: object) -> ScheduleError:
    kept = list(choices)
    while kept and not kept[-1]:  # the first one is what is taken anyway
        kept.pop()
    said = "".join(traceback.format_exception_only(why)).strip() if isinstance(why, BaseException) else str(why)
    return ScheduleError(f"this schedule fails; run it again with Schedules(...).replay({kept}):\n{said}", tuple(kept))


class _ChoosingLoop(asyncio.AbstractEventLoop):
    """One schedule: virtual time, no selector, and a choice wherever more than one callback is ready."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        self.taken: list[int] = []
        self.widths: list[int] = []
        self.branching = True
        self._prefix = prefix
        self._now = 0.0
        self._ready: list[Handle] = []
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._order = itertools.count()
        self._names = itertools.count(1)
        self._chance = random.Random(0)  # noqa: S311 - for tests
        self._thread = threading.get_ident()
        self._generators: set[AsyncGenerator[Any, Any]] = set()
        self._closed = self._stopping = self._running = False
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
        chosen = ready.pop(self._choose(len(ready)))
        run_handle(chosen)

    def _choose(self, width: int) -> int:
        if width < 2 or not self.branching:  # noqa: PLR2004 - nothing to choose from
            return 0
        place = len(self.taken)
        choice = self._prefix[place] if place < len(self._prefix) else 0
        if choice >= width:
            raise ScheduleError(
                f"choice {place} is {choice}, and only {width} callbacks are ready there: {_NOT_THE_SAME}"
            )
        self.taken.append(choice)
        self.widths.append(width)
        return choice

    def _give_up(self) -> NoReturn:
        waiting = [f"  {line}" for line in sorted(map(describe_wait, asyncio.all_tasks(self)))]
        raise ScheduleError("\n".join(["stuck: nothing is ready and no timer is set; pending tasks:", *waiting]))

    def run_forever(self) -> None:
        """Step until `stop`."""
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
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_after)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_after)
        return task.result()

    def _stop_after(self, _: object) -> None:
        self._stopping = True

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
        return self._chance.random()

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> Handle:
        """Make a callback ready."""
        if self._closed:
            raise RuntimeError("this event loop is closed")
        handle = Handle(callback, args, self, context)
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
        timer = TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """A cancelled timer is dropped when it would be due."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        """A task on this loop."""
        if self._factory is not None:
            return self._factory(self, coro, **options)
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
