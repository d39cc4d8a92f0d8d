"""Virtual time: an event loop on which an hour's sleep passes at once, and a deadlock is an error, not a hang."""

from __future__ import annotations

import asyncio
import functools
import random
import selectors
import time
from asyncio import Future, Task
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, NoReturn, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

_EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z
_TICK = 0.05  # real seconds of one wait for a thread or a process
_RESOLUTION = 1e-6  # timers closer than this are due together; far above the rounding of 10**9 seconds
_CLEANUP_ITERATIONS = 100_000
_CLEANUP_SECONDS = 86_400.0


class VirtualTimeError(RuntimeError):
    """The virtual loop cannot continue: nothing is left to wait for, or a limit of the clock was exceeded."""


class VirtualClock:
    """A clock that jumps to the next timer whenever nothing is ready; its loops run on virtual time.

    Time stands still while the loop's `workers` (threads) are busy: the loop then waits in real time for their
    wake-up. While real file descriptors or child processes are open it jumps only after nothing arrived for `real_wait`
    real seconds. When nothing is ready, no timer is set, and no worker, descriptor or process could wake the loop, it
    raises `VirtualTimeError` and says which tasks wait where.

    `limit` bounds the virtual seconds, `max_iterations` the rounds of the loop, and `busy_limit` the real seconds it
    waits for one wake-up by a thread or process. With a `seed`, run ids and retry delays are the same each time.
    """

    def __init__(
        self,
        start: float = 0.0,
        epoch: float = _EPOCH,
        *,
        limit: float = 10.0**7,
        max_iterations: int = 5_000_000,
        real_wait: float = 0.05,
        busy_limit: float = 60.0,
        seed: int | None = None,
    ) -> None:
        self.limit = limit
        self.max_iterations = max_iterations
        self.real_wait = real_wait
        self.busy_limit = busy_limit
        self.chance = random.Random(seed)  # noqa: S311 - for tests
        self._start = start
        self._epoch = epoch
        self._time = start

    def time(self) -> float:
        """The virtual monotonic time, in seconds; it continues from one `run` to the next."""
        return self._time

    def now(self) -> float:
        """The virtual wall-clock time, in seconds since the epoch."""
        return self._epoch + self._time - self._start

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on a fresh virtual loop, as `asyncio.run` does: nothing is left behind."""
        with asyncio.Runner(loop_factory=self.new_loop) as runner:
            return runner.run(main)

    def new_loop(self) -> VirtualLoop:
        """A fresh loop that follows this clock; close it when you are done."""
        return VirtualLoop(self)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time.

    `workers` is the set of things that are busy in real time: code that starts a thread adds a token, and a callback on
    this loop discards it. `run_in_executor` (and so `asyncio.to_thread`) does that by itself.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.workers: set[object] = set()
        self._processes: list[asyncio.SubprocessTransport] = []
        super().__init__(_VirtualSelector(self))
        self._clock_resolution = _RESOLUTION

    def time(self) -> float:
        """The virtual monotonic time."""
        return self.clock.time()

    def epoch(self) -> float:
        """The virtual wall-clock time, in seconds since the epoch."""
        return self.clock.now()

    def new_id(self) -> str:
        """An id for a run; the same seed gives the same ids."""
        return f"{self.clock.chance.getrandbits(64):016x}"

    def random(self) -> float:
        """A number from 0 to 1, for jitter; the same seed gives the same numbers."""
        return self.clock.chance.random()

    def live_processes(self) -> int:
        """How many processes started by this loop are still running, as far as it knows."""
        self._processes = [process for process in self._processes if process.get_returncode() is None]
        return len(self._processes)

    def run_in_executor(self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> Future[T]:
        """As on any loop; time stands still until the thread is done."""
        future = super().run_in_executor(executor, func, *args)
        self.workers.add(future)
        future.add_done_callback(self.workers.discard)
        return future

    async def shutdown_default_executor(self, *args: object, **options: object) -> None:
        """As on any loop; time stands still meanwhile."""
        closing = "the shutdown of the default executor"
        self.workers.add(closing)
        try:
            await super().shutdown_default_executor(*args, **options)
        finally:
            self.workers.discard(closing)

    async def subprocess_exec(self, *args: object, **options: object) -> Any:
        """As on any loop; the process counts as real work until it ends."""
        return await self._track_process(super().subprocess_exec, *args, **options)

    async def subprocess_shell(self, *args: object, **options: object) -> Any:
        """As on any loop; the process counts as real work until it ends."""
        return await self._track_process(super().subprocess_shell, *args, **options)

    async def _track_process(self, start: Callable[..., Awaitable[Any]], *args: object, **options: object) -> Any:
        transport, protocol = await start(*args, **options)
        self._processes.append(transport)
        return transport, protocol


class _VirtualSelector(selectors.DefaultSelector):
    """Replaces the loop's wait: decides between waiting in real time, jumping, and giving up."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._clock = loop.clock
        self._iterations = 0
        self._most_iterations = loop.clock.max_iterations
        self._latest = loop.clock.time() + loop.clock.limit
        self._busy_since: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; if nothing is, move time forward, or raise why that is impossible."""
        self._iterations += 1
        if self._iterations > self._most_iterations:
            self._most_iterations += _CLEANUP_ITERATIONS
            self._give_up(f"the virtual loop went round {self._clock.max_iterations} times")
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            self._busy_since = None
            return ready
        if self._loop.workers:
            return self._wait_for_work()
        # One descriptor is the loop's own wake-up pipe.
        if len(self.get_map()) > 1 or self._loop.live_processes() > 0:
            if timeout is None:
                return self._wait_for_work()
            ready = super().select(self._clock.real_wait)
            if ready:
                return ready
        if timeout is None:
            # A thread that nobody announced may still wake the loop: look once more in real time.
            ready = super().select(self._clock.real_wait)
            return ready or self._give_up("the virtual loop has nothing left to wait for")
        if self._clock.time() + timeout > self._latest:
            self._latest += timeout + _CLEANUP_SECONDS
            self._give_up(f"virtual time passed its limit of {self._clock.limit} seconds")
        self._clock._time += timeout  # noqa: SLF001 - only the selector moves the clock
        return []

    def _wait_for_work(self) -> list[tuple[selectors.SelectorKey, int]]:
        now = time.monotonic()
        self._busy_since = self._busy_since or now
        ready = super().select(_TICK)
        if ready:
            self._busy_since = None
        elif now - self._busy_since > self._clock.busy_limit:
            self._busy_since = None
            busy = ", ".join(map(repr, self._loop.workers)) or "open descriptors or processes"
            self._give_up(f"the virtual loop waited {self._clock.busy_limit} real seconds for {busy}")
        return ready

    def _give_up(self, why: str) -> NoReturn:
        waiting = [f"  {line}" for line in sorted(map(describe_wait, asyncio.all_tasks(self._loop)))]
        raise VirtualTimeError("\n".join([f"{why}; pending tasks:", *(waiting or ["  none"])]))


def describe_wait(task: Task[Any]) -> str:
    """The task's name and the innermost visible line at which it waits."""
    place = "an unknown place"
    awaited: Any = task.get_coro()
    while (frame := _part(awaited, "cr_frame", "ag_frame", "gi_frame")) is not None:
        place = f"{frame.f_code.co_qualname} at {frame.f_code.co_filename}:{frame.f_lineno}"
        awaited = _part(awaited, "cr_await", "ag_await", "gi_yieldfrom")
    return f"{task.get_name()}: waits in {place}"


def _part(awaited: object, *names: str) -> Any:
    return next((found for name in names if (found := getattr(awaited, name, None)) is not None), None)


@overload
def virtual(test: Callable[P, Coroutine[Any, Any, T]], /) -> Callable[P, T]: ...


@overload
def virtual(**options: float) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, T]]: ...


def virtual(test: Callable[..., Coroutine[Any, Any, T]] | None = None, /, **options: float) -> object:
    """Turn an async test function into a plain one that runs in virtual time, on a fresh clock each time.

    Use it bare (`@virtual`) or with the options of `VirtualClock`. The signature stays the same, so fixtures,
    parameters and Hypothesis arguments work as usual.
    """

    def decorate(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return VirtualClock(**options).run(function(*args, **kwargs))  # type: ignore[arg-type]

        return run

    return decorate if test is None else decorate(test)
