"""The watchdog of one run: one timer, and one way to interrupt whatever the run is waiting for.

A run lives in its caller's task. To interrupt it, the watch cancels that task while the run itself is waiting,
and takes the cancellation back (`uncancel`) when it arrives, so that the caller never notices. A cancellation that is
neither ours nor made by the foreign code that the run drives (`whose` tells) is the caller's own and is passed on after
the landing.

Foreign code (a model's stream, a tool, a hook) is awaited through `interrupting`, which asks the watch at every wait.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

from glidepath.run.abandoned import MAX_PATIENCE, TaskBound, is_request, request
from glidepath.run.asyncio_privates import must_cancel
from glidepath.run.cancellation_probe import INSIDE, is_by_hand
from glidepath.run.event_emitter import Consumer
from glidepath.run.interrupts import Alive, Interrupt, LetGo, Patience, Signal, Stopped, Why, wake_waiter

T = TypeVar("T")
MIN_PATIENCE = 0.05
_CANCELLED = ("the task was cancelled",)


class Watch(TaskBound):
    """Deadlines and interrupts of one run. Plain slots: a turn writes many of them, and a record writes slower."""

    __slots__ = (
        "above",
        "base",
        "beats",
        "began_at",
        "call_words",
        "called_off",
        "consumer",
        "deadline_at",
        "gave_way",
        "gone",
        "handle",
        "handle_at",
        "heard",
        "heard_at",
        "interrupt",
        "level",
        "longest_patience",
        "loop",
        "meter",
        "outer",
        "over",
        "own",
        "patience_at",
        "patient",
        "pid",
        "poked",
        "poking",
        "run",
        "scope_at",
        "scope_hit",
        "sentry",
        "showing",
        "streaming",
        "strict",
        "task",
        "time",
        "times",
        "wanted",
        "window_at",
    )

    def __init__(
        self, *, window_at: float = inf, deadline_at: float = inf, above: Watch | None = None, meter: Any = None
    ) -> None:
        self.window_at: float = window_at
        self.deadline_at: float = deadline_at
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]
        # Looked up once: a forked copy of the process keeps this number, and that is how `is_forked` knows it.
        self.pid: int = os.getpid()
        self.time: Callable[[], float] = time.monotonic
        # Cancellations that were open when the run began: the caller's own, which it must still find open at the end.
        self.base: int = 0
        self.level: int = 0  # how often the task was cancelled when somebody last looked
        self.own: int = 0  # cancellations that foreign code has made and not taken back
        self.heard: int = 0  # such ones that a probe has heard and nobody has counted yet
        self.above = above  # of the run whose tool has started this one
        self.outer: Any = None  # the watch of the run around this one
        self.meter: Any = meter  # of the run: what it keeps does not come back before the runs inside it have ended
        self.run: Any = None  # the run that something streams for, or its stand-in during a checkpoint
        self.over: bool = False
        self.gone: bool = False  # the run's coroutine is being closed from outside: nothing may be awaited any more
        self.consumer: Consumer | None = None  # of the events; woken before every wait
        self.wanted: bool = False
        # Of our own cancellation: `poked` until it is delivered, `poking` only inside `Task.cancel`, where a probe
        # hears it.
        self.poked: bool = False
        self.poking: bool = False
        self.interrupt: Interrupt | None = None
        self.gave_way: Interrupt | None = None  # for which interrupt it has let others go first
        self.call_words: tuple[Any, ...] = _CANCELLED  # with which the caller has cancelled the task
        self.called_off: str | None = None  # another thread has cancelled the run, and its loop may not know yet
        self.streaming: Alive | None = None  # is told before the run waits for it
        self.showing: Sequence[str] = ()  # the text that is streaming now
        self.scope_hit: bool = False
        self.scope_at: float = inf
        self.sentry: Any = None  # looks at the kill switches, where there are any
        self.patience_at: float = inf
        self.longest_patience: float = MAX_PATIENCE
        self.strict: bool = False  # one of these two was changed
        self.handle: asyncio.TimerHandle | None = None
        self.handle_at: float = inf
        self.patient: Alive | None = None
        self.times: Patience | None = None
        self.beats: int = 0
        self.began_at: float = 0.0
        self.heard_at: float = -inf
        loop = self.loop
        if type(loop).time is not asyncio.BaseEventLoop.time:
            self.time = loop.time  # else its own clock, without the Python call around it
        self.base = self.level = base = self.task.cancelling()
        if base and must_cancel(self.task):  # it has cancelled itself, and will hear of it in here
            self.base = base - 1
        # A second from now at the latest: limits that are set until then are later, and need no timer of their own.
        self._set_timer(min(self.window_at, self.deadline_at, self.time() + 1.0))

    def __repr__(self) -> str:
        return f"<Watch: {'over' if self.over else 'on'}, {self.interrupt or 'not interrupted'}>"

    # --- time -------------------------------------------------------------------------------------------------

    def set_time_limit(self, seconds: float | None, patience: float = MAX_PATIENCE) -> None:
        """Give the coming wait its own time limit; None lifts it. Cheap: the timer is moved lazily.

        `patience`: seconds that foreign code has at most to obey when the limit is reached.
        """
        self.scope_hit = False
        self.longest_patience, self.strict = patience, True
        self.patient = None
        # The timer stays where it is: one that rings for nothing is cheaper than a new one for every wait.
        if seconds is None:
            self.scope_at = inf
        else:
            self.scope_at = at = self.time() + seconds
            if at < self.handle_at:
                self._set_timer(at)

    def listen(self, patient: Alive, times: Patience, run: Any) -> None:
        """Give a stream its time limits: to its first delta, between deltas, and as a whole.

        Its pulse is looked at now and then, so that a delta costs nothing; it is told of each wait.
        """
        self.patient = self.streaming = patient
        self.run = run
        self.showing = patient.parts if run.shows else ()
        self.times = times
        self.began_at = now = self.time()
        self.scope_hit = False
        self.scope_at = at = now + times.grain
        if at < self.handle_at:
            self._set_timer(at)

    def _is_still_alive(self, now: float) -> bool:
        """Whether what is listened to may continue; looks again in a while."""
        patient, times = self.patient, self.times
        if patient is None or times is None:
            return False
        if self.heard_at < self.began_at:  # the first look at this one
            self.beats, self.heard_at = 0, self.began_at
        # A count and no time stamp: a delta then costs an addition, and the clock is read here, once in a grain.
        beats = patient.progress_mark()
        if beats != self.beats:
            self.beats, self.heard_at = beats, now
        # Before its first delta a model may think, or load: that silence is longer, and has another limit.
        limit = times.stall if beats else times.first_chunk
        silent_at = inf if limit is None else self.heard_at + limit
        ends_at = min(silent_at, inf if times.call is None else self.began_at + times.call)
        # Silence is counted in grains, not by a timer for each delta: it is noticed a little late, never early.
        self.scope_at = min(ends_at, now + times.grain)
        return now < ends_at

    def post(self, sentry: Any) -> None:
        """Check the kill switches."""
        self.sentry = sentry

    def wake(self, consumer: Consumer) -> None:
        """Wake the consumer of the events before every wait."""
        self.consumer = consumer

    def land_by(self, at: float) -> None:
        """The landing has begun: it has until then, and no landing window opens any more."""
        self.window_at = inf
        # Else the landing call would be interrupted by the very thing that it obeys.
        if self.interrupt is not None and self.interrupt.signal is Signal.WINDOW:
            self.interrupt, self.wanted = None, False
        self.deadline_at = min(self.deadline_at, at)
        if self.deadline_at < self.handle_at:
            self._set_timer(self.deadline_at)

    def _set_timer(self, at: float) -> None:
        if at == inf:
            return
        # One timer for all limits. It is moved only for an earlier one: a cancelled timer stays in the loop's heap.
        if self.handle is not None:
            self.handle.cancel()
        self.handle_at = at
        self.handle = self.loop.call_at(at, self._on_timer)

    def interrupt_if_overdue(self) -> bool:
        """Interrupt the run when its time is up, whether or not the timer has rung; True when it is interrupted."""
        now = self.time() + 1e-9
        if now >= self.deadline_at:
            self.raise_interrupt(Interrupt(Signal.DEADLINE, "TimeoutConstraint", "the deadline has passed"))
        # Text that somebody is reading is not cut off in order to land early. The deadline cuts it.
        elif now >= self.window_at and not any(self.showing):
            self.open_window()
        return self.interrupt is not None

    def _on_timer(self) -> None:
        self.handle, self.handle_at = None, inf
        # A timer may ring a hair before its time, and would be set again for the same moment.
        now = self.time() + 1e-9
        self.interrupt_if_overdue()
        if now >= self.scope_at and not self._is_still_alive(now):
            # Remembered: the cancellation that follows does not say that it was for a time limit.
            self.scope_at, self.scope_hit = inf, True
            self.cancel_wait()
        if now >= self.patience_at:
            self.patience_at = inf
            self.cancel_wait()
        # Past moments are left out: they have been acted on, and would make the timer ring again at once.
        window = self.window_at if now < self.window_at else inf
        deadline = self.deadline_at if now < self.deadline_at else inf
        self._set_timer(min(window, deadline, self.scope_at, self.patience_at))

    # --- interrupts -------------------------------------------------------------------------------------------

    def open_window(self) -> None:
        """It is time to land."""
        self.raise_interrupt(Interrupt(Signal.WINDOW, "TimeoutConstraint", "the time limit is near"))

    def raise_interrupt(self, interrupt: Interrupt) -> None:
        """Interrupt the run; the most severe interrupt is kept. Call it in the loop's own thread."""
        # The result names one reason, and a cancel must not hide behind a landing window that opened before it.
        if self.interrupt is None or interrupt.signal > self.interrupt.signal:
            self.interrupt = interrupt
            self.cancel_wait()

    def is_halted(self) -> bool:
        """True when nothing new may start: the run, or one above it, is being stopped. Asked right before each start.

        A cancel reaches a run at its next wait, and a child a step later still; one from another thread waits until the
        loop is free. What was about to start meanwhile would start after `cancel()` has returned.
        """
        if self.interrupt is not None:
            return True
        # Another thread may write this flag and nothing else: everything that follows from it happens on the loop.
        if self.called_off is not None:
            self.raise_interrupt(Interrupt(Signal.CANCEL, "cancel", self.called_off))
            return True
        above = self.above
        while above is not None:
            # Asked upwards at every start: told downwards, a child that begins in between would be missed.
            if above.interrupt is not None or above.called_off is not None:
                self.raise_interrupt(Interrupt(Signal.CANCEL, "cancel", "the run above it is being stopped"))
                return True
            above = above.above
        return False

    def is_forked(self) -> bool:
        """True in a process that foreign code has forked off. What it raises there must end that process.

        Contained, it would let the copy of the run continue, and do everything a second time.
        """
        return os.getpid() != self.pid

    def cancel_wait(self) -> None:
        """Cancel what the run waits for, now or at its next wait."""
        if self.poked or self.over:  # one cancellation is on its way, and its receiver checks everything
            return
        # A task must not cancel itself while it runs: the cancellation would arrive at whatever it awaits next.
        if asyncio.current_task(self.loop) is not self.task:
            self.poked = self.poking = True
            self.task.cancel()
            self.poking = False
        else:
            self.wanted = True

    def cancel_next_wait(self) -> None:
        """The run is about to wait although it was interrupted: the wait ends at once."""
        self.wanted = False
        # A second one would stay open behind the first, and end the caller's next wait.
        if not self.poked:
            self.poked = True
            self.task.cancel()

    def note_delivery(self, cancelled: BaseException | None = None) -> None:
        """A cancellation arrived at our wait. Take ours back, and heed the caller's."""
        # Ours is looked for first. When the caller has cancelled as well, the count still shows one too many.
        if not self.retract():
            self._keep_words(cancelled)
        self.count_cancellation()
        self.claim()
        if is_request(cancelled):
            self.stop_for_caller()

    def is_asked_to_stop(self, cancelled: BaseException) -> bool:
        """A cancellation arrived for foreign code: True when it is asked to stop, by this run or by one around it."""
        from_around = is_request(cancelled)  # this run was started inside a tool or a hook of another one
        if from_around:
            self.stop_for_caller()
        if self.retract():
            # Marked: a run inside this foreign code must know that the one around it means it, too.
            request(cancelled)
            return True
        self._keep_words(cancelled)
        return from_around

    def _keep_words(self, cancelled: BaseException | None) -> None:
        """The caller knows its own cancellation by what it says: anyio's scopes would let any other one pass."""
        if cancelled is not None:
            self.call_words = cancelled.args or _CANCELLED

    def retract(self) -> bool:
        """Take back a cancellation of ours; True when there was one."""
        if not self.poked:
            return False
        self.poked = False
        # Taken back at once: `asyncio.timeout` and task groups around us compare the count with their own.
        self.task.uncancel()
        return True

    # --- whose cancellation -----------------------------------------------------------------------------------

    def enter(self) -> None:
        """From now on, whatever is made in this task is made inside this run."""
        self.outer = INSIDE.get()
        INSIDE.set(self)

    def end(self) -> None:
        """The run is over."""
        # Set and not reset by a token: the run may end in another context than it began in.
        INSIDE.set(self.outer)
        self.consumer = self.run = None  # what has ended keeps neither the run nor its consumer, who keeps the run

    def count(self) -> int:
        """How often the task was cancelled, ours apart."""
        return self.task.cancelling() - self.poked

    def note_foreign_cancellations(self) -> None:
        """Foreign code has run: what it cancelled meanwhile is its own, and so is what it took back."""
        count = self.count()
        if count <= self.level:
            # Taken back by the code that made it: nothing of it is left for us to do.
            self.own = max(0, self.own - self.level + count)
        # Ctrl-C cancels the main task, too, and is not a mistake.
        elif not is_by_hand(self.task):
            self.own += count - self.level
        self.level = count

    def count_cancellation(self) -> None:
        """A cancellation was delivered: count those that were heard to be foreign code's own."""
        count = self.count()
        # What was heard may have been taken back since: never more than the count has really risen.
        self.own += max(0, min(self.heard, count - self.level))
        self.heard, self.level = 0, count

    def is_in_doubt(self) -> bool:
        """True while a cancellation is open that is neither ours nor foreign code's: the caller's, or a timeout's."""
        return self.count() > self.base + self.own

    def claim(self) -> bool:
        """A cancellation that foreign code neither made nor took back is the caller's: the run is interrupted by it."""
        if not self.is_in_doubt():
            return False
        self.level = self.count()
        # Counted into the base, so that it is heeded once and stays open for the caller to see.
        self.base = self.level - self.own
        self.stop_for_caller()
        return True

    def take_back_cancellations(self) -> bool:
        """Foreign code is done: take back what it has cancelled. True when one is still on its way to this task."""
        self.note_foreign_cancellations()
        self.claim()
        taken, self.own = self.own, 0
        # Left behind, it would end the caller's next wait with a cancellation nobody asked for.
        for _ in range(taken):
            self.task.uncancel()
        self.level = self.count()
        return taken > 0 and must_cancel(self.task)  # before 3.13 it is not called off

    async def settle(self) -> None:
        """Leave no cancellation of foreign code in the task, not even a pending one."""
        if self.take_back_cancellations():
            await self._yield_once()

    def stop_for_caller(self) -> None:
        """The caller wants the run to stop."""
        self.interrupt = Interrupt(Signal.TASK, "cancel", "the task was cancelled")

    def move(self, old: asyncio.Task[Any], new: asyncio.Task[Any]) -> None:
        """The run continues in another task, since its former caller has let go of it."""
        if self.task is old:
            # Ours in the old task is taken back first: nobody else would ever do it.
            self.retract()
            self.task, self.base = new, new.cancelling()
            # The new task has cancellations of its own; what was counted for the old one means nothing here.
            self.level, self.own, self.heard = self.base, 0, 0

    def forgive_self_cancellation(self, *, asked: bool) -> bool:
        """Foreign code cancelled itself and took it back: it may continue, unless it was also asked to stop."""
        if not asked:
            self.patience_at = inf
        return asked

    def schedule_patience_check(self) -> None:
        """Foreign code was asked to stop: come back when its patience has run out."""
        self.strict = True
        self.patience_at = self.abandon_time(self.longest_patience)
        if self.patience_at < self.handle_at:
            self._set_timer(self.patience_at)

    def abandon_time(self, longest: float = MAX_PATIENCE) -> float:
        """When foreign code that is asked to stop now is let go."""
        now = self.time()
        # At most half of the time that is left: the run must come down in the other half.
        return now + min(longest, max(MIN_PATIENCE, (self.deadline_at - now) / 2))

    def is_out_of_patience(self) -> bool:
        """True when foreign code had its chance to stop."""
        return self.patience_at == inf or self.time() + 1e-9 >= self.patience_at

    def explain_stop(self, stop: BaseException) -> Stopped:
        """Why foreign code did not finish."""
        # A time limit and an interrupt may come together. The interrupt is named: it is what ends the run.
        let_go = isinstance(stop, LetGo)
        why = Why.TIMEOUT if self.scope_hit or let_go else Why.UNINVITED
        return Stopped(why if self.interrupt is None else Why.INTERRUPT, let_go=let_go)

    def end_wait(self) -> None:
        """The wait is over: nothing is asked to stop any more, and nothing is shown."""
        self.scope_at = inf
        self.patient = self.streaming = None
        # Only when one of them was changed: this runs after every wait, and two writes cost more than a look.
        if self.strict:
            self.patience_at, self.longest_patience, self.strict = inf, MAX_PATIENCE, False
        self.showing = ()
        if self.wanted and self.interrupt is None:  # what was wanted was about that wait only
            self.wanted = False

    async def yield_to_others(self) -> None:
        """A run that was interrupted gives way once: anything cancelled with it hears of it before it does more."""
        if self.gave_way is self.interrupt:
            return
        # Once for each interrupt: a run that gave way at every step would be the last to land.
        self.gave_way = self.interrupt
        await self._yield_once()

    async def _yield_once(self) -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as cancelled:
            self.note_delivery(cancelled)

    async def sleep(self, seconds: float) -> None:
        """Wait this long. Raises `CancelledError` when interrupted."""
        bell: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.call_later(seconds, wake_waiter, bell)
        try:
            await self.wait(bell)
        finally:
            timer.cancel()

    async def first_of(self, *work: asyncio.Future[Any]) -> None:
        """Wait until one of these is done; raises `CancelledError` when interrupted, and leaves them alone."""
        bell: asyncio.Future[None] = self.loop.create_future()
        # A future in between: a cancellation of this wait must not reach the work, as it would through
        # `asyncio.wait_for`.
        knock = partial(wake_waiter, bell)
        for one in work:
            one.add_done_callback(knock)
        try:
            await self.wait(bell)
        finally:
            for one in work:
                one.remove_done_callback(knock)

    async def wait_for_all(self, seconds: float, work: Iterable[asyncio.Future[Any]]) -> None:
        """Wait until all of these are done, interrupts or not, but no longer than this."""
        until = self.time() + seconds
        while (left := [one for one in work if not one.done()]) and self.time() < until:
            # Set again each time: `end_wait` has lifted it, and this wait continues in spite of interrupts.
            self.set_time_limit(until - self.time())
            with suppress(asyncio.CancelledError):  # the time is up, or the run is interrupted, which waits here
                await self.first_of(*left)
            self.end_wait()

    async def wait(self, future: asyncio.Future[T]) -> T:
        """Await our own future, raced against every interrupt. Raises `CancelledError` when interrupted."""
        if self.task.cancelling() != self.level:  # a hook has cancelled the task and never waited
            await self.settle()
        if self.wanted:
            self.cancel_next_wait()
        # The consumer gets the events now: until this wait nobody else could run.
        if self.consumer is not None:
            self.consumer.wake_consumer()
        try:
            return await future
        except asyncio.CancelledError as cancelled:
            self.note_delivery(cancelled)
            raise

    def stop_timer(self) -> None:
        """Stop the timer."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
        # From here on the task is the caller's again, and nothing of the run may cancel it.
        if self.sentry is not None:
            self.sentry.stop()
        self.over = True

    async def close(self) -> None:
        """Stop the timer and leave no cancellation of ours, nor of foreign code, behind in the caller's task."""
        self.stop_timer()
        if self.poked:  # asked for and never delivered, because the run did not wait again
            await self._yield_once()
            self.note_delivery()
        # The caller continues with this task. What is left behind in it would end something of the caller's.
        if self.own or self.task.cancelling() != self.base:
            await self.settle()


def interrupt_by_hand() -> bool:
    """Ctrl-C arrived in foreign code that knows of no run: cancel the one around it. False when there is none."""
    watch = INSIDE.get()
    if watch is None or watch.over:
        return False
    watch.raise_interrupt(Interrupt(Signal.CANCEL, "cancel", "interrupted from the keyboard"))
    return True
