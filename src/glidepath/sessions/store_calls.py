"""Waits for a store's answer, within a time limit: a silent store must not block its run forever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from glidepath.run import await_until_cancelled, wake_waiter
from glidepath.values import ConfigurationError, StoreError, describe_error

T = TypeVar("T")
SILENCE = 30.0  # seconds a store may take for one answer: longer than a PostgresStore waits for a statement
FAREWELL = 10.0  # seconds to give a lease back: by then it has run out
LAST_WORDS = 1.5  # seconds it has to stop once nobody waits for it any more; after that it is closed


def as_store_error(error: BaseException) -> StoreError:
    """A store's exception as a `StoreError`."""
    if isinstance(error, StoreError):
        return error
    broken = StoreError(f"the session store failed: {describe_error(error)}")
    broken.__cause__ = error
    return broken


class StoreAnswer:
    """What a store will answer. It comes whether or not anybody waits, and is not cancelled with who does.

    Any number of tasks of its loop may await it, and again after a cancellation: each wait has its own future.
    """

    __slots__ = ("_bells", "_then", "done", "error", "loop", "value")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._bells: Any = None  # whom to wake up: nobody, one, or a list of them
        self._then: Any = None  # what to call then: nothing, one, or a list of them

    def settle(self, value: object, error: BaseException | None = None) -> None:
        """This is the answer; on its own loop. The first one counts; every one wakes who still waits."""
        if not self.done:
            self.value, self.error, self.done = value, error, True
        # A signal handler may raise in the middle. What is called then is called once at most; who waits is forgotten
        # only when they are awake, so that settling it again wakes the rest.
        then, self._then = self._then, None
        if then is not None:
            for call in then if then.__class__ is list else (then,):
                call(self)
        bells = self._bells
        if bells is not None:
            for bell in bells if bells.__class__ is list else (bells,):
                wake_waiter(bell)
            self._bells = None

    def call_when_done(self, call: Callable[[StoreAnswer], object]) -> None:
        """Call this once it is there, before anybody who waits for it wakes up."""
        if self.done:
            call(self)
        elif self._then is None:
            self._then = call
        else:
            self._then = [*(self._then if self._then.__class__ is list else [self._then]), call]

    def make_done_future(self) -> asyncio.Future[None]:
        """A new future that is done as soon as the answer is there; it may be cancelled."""
        bell: asyncio.Future[None] = self.loop.create_future()
        if self.done:
            bell.set_result(None)
        elif self._bells is None:
            self._bells = bell
        else:
            self._bells = [*(self._bells if self._bells.__class__ is list else [self._bells]), bell]
        return bell

    def __await__(self) -> Generator[Any, None, Any]:
        """The answer; raises what the store raised."""
        while not self.done:
            yield from self.make_done_future()
        if self.error is not None:
            raise self.error
        return self.value


class AnswerTimer:
    """The time limits of all answers that a loop waits for: one timer, which rings when the first of them is over."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[StoreAnswer, tuple[float, Callable[[], object]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, answer: StoreAnswer, seconds: float, late: Callable[[], object]) -> None:
        """Call `late` if the answer is not there in time."""
        at = self._loop.time() + seconds
        self._waiting[answer] = (at, late)
        answer.call_when_done(self._forget)
        if self._timer is None or self._timer.when() > at:
            self._set_timer(at)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._check_deadlines)

    def _forget(self, answer: StoreAnswer) -> None:
        self._waiting.pop(answer, None)
        if not self._waiting and self._timer is not None:  # a run that is over leaves no timer behind
            self._timer.cancel()
            self._timer = None

    def _check_deadlines(self) -> None:
        self._timer = None
        now = self._loop.time()
        for answer, (at, late) in list(self._waiting.items()):
            if at <= now:
                self._waiting.pop(answer, None)
                late()
        if self._waiting:
            self._set_timer(min(at for at, _ in self._waiting.values()))


_TIMERS: WeakKeyDictionary[asyncio.AbstractEventLoop, AnswerTimer] = WeakKeyDictionary()


def timer_of(loop: asyncio.AbstractEventLoop) -> AnswerTimer:
    """The time limits of this loop."""
    found = _TIMERS.get(loop)
    if found is None:
        found = _TIMERS[loop] = AnswerTimer(loop)
    return found


def make_silence_error(seconds: float) -> StoreError:
    """The store did not answer in time."""
    return StoreError(f"the session store has not answered within {seconds:g} s")


class WatchedAnswer(StoreAnswer):
    """The answer of any store, awaited in its own task, within a time limit.

    Work that is still running then is cancelled, and closed if it does not stop; only after that the answer is there.
    """

    __slots__ = ("_late", "_later", "over", "task")

    def __init__(self, later: Awaitable[Any], seconds: float = SILENCE) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop)
        self.over = False
        """Nobody wants the answer any more."""
        self._later = later
        self._late: StoreError | None = None
        self.task = loop.create_task(_await_contained(later, self), name="glidepath-store")
        self.task.add_done_callback(self._on_end)
        timer_of(loop).watch(self, seconds, partial(self._stop, make_silence_error(seconds)))

    def _on_end(self, task: asyncio.Task[tuple[Any, BaseException | None]]) -> None:
        if task.cancelled():  # before it began
            close = getattr(self._later, "close", None)
            if close is not None:
                close()
            self.settle(None, self._late or asyncio.CancelledError())
        else:
            value, error = task.result()
            self.settle(value, self._late or error)

    def _stop(self, late: StoreError) -> None:
        self.over, self._late = True, late
        self.task.cancel()
        self.loop.call_later(LAST_WORDS, self.settle, None, late)

    async def give_up(self) -> None:
        """Nobody waits for the answer any more: ask the store to stop, and see that it does."""
        self.over = True
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait([self.task], timeout=LAST_WORDS)


async def await_store(
    later: Awaitable[T], seconds: float = SILENCE, *, undo: Callable[[T], Awaitable[Any]] | None = None
) -> T:
    """A store's answer; raises `StoreError` for whatever it raises, and if it is silent for this long.

    `undo` undoes what was done anyway, once nobody waits for the answer any more.
    """
    answer = WatchedAnswer(later, seconds)
    try:
        found = await answer
    except BaseException as error:
        if answer.error is not error:  # the waiting task was cancelled
            await answer.give_up()
        await _take_back(answer, undo)
        if answer.error is error and not isinstance(error, (ConfigurationError, StoreError)):
            raise as_store_error(error) from error
        raise
    return found  # type: ignore[no-any-return]


async def call_store(method: Callable[..., Awaitable[T]], *arguments: object, **options: object) -> T:
    """Call a store's method inside the await, so that what it raises at once is caught, too."""
    return await method(*arguments, **options)


def store_call(
    method: Callable[..., Awaitable[T]], *arguments: object, timeout: float = SILENCE, **options: object
) -> Coroutine[Any, Any, T]:
    """Call a store's method; raises `StoreError` for whatever it raises, and if it is silent for `timeout` seconds."""
    return await_store(call_store(method, *arguments, **options), timeout)


async def _take_back(answer: WatchedAnswer, undo: Callable[..., Awaitable[object]] | None) -> None:
    work = answer.task
    if undo is None or not answer.over or not work.done() or work.cancelled() or work.result()[1] is not None:
        return
    with suppress(Exception):  # whatever it raises is a StoreError by then
        await await_store(call_store(undo, work.result()[0]), FAREWELL)


async def _await_contained(later: Awaitable[T], answer: WatchedAnswer) -> tuple[Any, BaseException | None]:
    """The answer, or what was raised, even SystemExit and KeyboardInterrupt."""
    try:
        work = later if type(later) is CoroutineType else _await(later)
        return await await_until_cancelled(work, lambda: answer.over), None
    except BaseException as error:
        return None, error


async def _await(later: Awaitable[T]) -> Any:
    return await later
