"""Awaiting foreign code inside the run's own task: it can be interrupted at every wait, and let go of.

Foreign code gets the cancellation first, and when it does not obey within its patience the run lets go of it, and it
continues in its own task. `watch` knows whose cancellation it was, and when patience has run out.
"""

from __future__ import annotations

import asyncio
import types
from asyncio import Future, isfuture  # nest_asyncio replaces the class later, and what is one then, `isfuture` knows
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from glidepath.run.abandoned import drive_abandoned, move_scopes
from glidepath.run.cancellation_probe import CancellationProbe
from glidepath.run.interrupts import LetGo
from glidepath.run.watch import Watch

T = TypeVar("T")


async def run_uninterrupted(work: Coroutine[Any, Any, T], name: str | None = None) -> T:
    """Await something to its end, in its own task; a cancellation takes effect afterwards."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as stop:
            # Kept and raised at the end: swallowed, the caller's cancellation would be lost.
            cancelled = stop
    if cancelled is not None:
        task.exception()  # asyncio warns about exceptions that nobody has seen
        raise cancelled
    return task.result()


async def await_interruptibly_within(
    coroutine: Coroutine[Any, Any, Any], watch: Watch, seconds: float | None, *waiting: object
) -> Any:
    """Await foreign code within `seconds`, raced against every interrupt; raises `Stopped` when it did not finish.

    `waiting`: what the coroutine waits for, when it has been started already.
    """
    if seconds is not None:
        watch.set_time_limit(seconds)
    else:
        # Left from an earlier wait it would turn the next interruption into a timeout.
        watch.scope_hit = False
    try:
        return await await_interruptibly(coroutine, watch, *waiting)
    except (LetGo, asyncio.CancelledError) as stop:
        # Without the cancellation as its cause: a traceback of asyncio's inside would be read as the reason.
        raise watch.explain_stop(stop) from None
    finally:
        watch.end_wait()


@types.coroutine
def await_interruptibly(
    coroutine: Coroutine[Any, Any, Any], watch: Watch, *started: object
) -> Generator[Any, Any, Any]:
    """Await a foreign coroutine inside the run's own task, and let go of it when it ignores its cancellation.

    `started`: what the coroutine waits for, when it has taken its first step already. Raises `LetGo`. This is the whole
    of it as long as every wait ends well; from the first that does not, `_drive` takes over.
    """
    if started:
        _make_ready(watch)
        return (yield from _drive(coroutine, watch, [], *started))
    if watch.task.cancelling() != watch.level:  # a hook has cancelled the task and never waited
        yield from watch.settle().__await__()
    while True:
        try:
            waiting = coroutine.send(None)
        # It may end with cancellations of its own still open in our task, whether it returns or raises.
        except StopIteration as end:
            if watch.own or watch.task.cancelling() != watch.base:
                yield from watch.settle().__await__()
            return end.value
        except BaseException:
            if watch.own or watch.task.cancelling() != watch.base:
                yield from watch.settle().__await__()
            raise
        # as `_make_ready` does it: every delta may have to be waited for
        if watch.task.cancelling() != watch.level:
            watch.note_foreign_cancellations()
        if watch.streaming is not None:
            watch.streaming.pause(watch.run)
        if watch.wanted:
            watch.cancel_next_wait()
        if watch.consumer is not None:
            watch.consumer.wake_consumer()
        try:
            # Nothing to overhear in a bare yield, nor in what asyncio will refuse: no future, or the task itself.
            if waiting is None or waiting is watch.task or not (isinstance(waiting, Future) or isfuture(waiting)):
                yield waiting
            else:
                yield CancellationProbe(waiting, watch, coroutine)
        # In a list, so that `_drive` can take it out: a frame that keeps an exception is kept by its traceback.
        except BaseException as error:
            failed = [error]
        else:
            continue
        return (yield from _drive(coroutine, watch, failed))


def _make_ready(watch: Watch) -> None:
    """The run is about to wait for foreign code."""
    # Foreign code may have cancelled our task: count it as its own before anybody else can.
    if watch.task.cancelling() != watch.level:
        watch.note_foreign_cancellations()
    # What it has streamed becomes events now; an observer of them may stop the run.
    if watch.streaming is not None:
        watch.streaming.pause(watch.run)
    if watch.wanted:
        watch.cancel_next_wait()
    if watch.consumer is not None:
        watch.consumer.wake_consumer()


def _drive(
    coroutine: Coroutine[Any, Any, Any], watch: Watch, failed: list[BaseException], *started: object
) -> Generator[Any, Any, Any]:
    """Drive a coroutine whose last wait has `failed`, or that has `started`, until it ends or is let go of."""
    error: BaseException | None = None
    asked = patient = doubt = waits = False
    waiting = started[0] if started else None
    while True:
        try:
            if failed:
                raise failed.pop()
            yield (
                CancellationProbe(waiting, watch, coroutine)
                if isfuture(waiting) and waiting is not watch.task
                else waiting
            )
        except asyncio.CancelledError as cancelled:
            error = cancelled
            asked = watch.is_asked_to_stop(cancelled) or asked
            watch.count_cancellation()
            doubt = watch.is_in_doubt()
            # Only at a cancellation: foreign code is let go of where it waits, never in the middle of a step.
            if patient and watch.is_out_of_patience():
                # Its timeouts and task groups would keep cancelling our task, which it leaves: they move with it.
                move_scopes(
                    coroutine, watch, watch.loop.create_task(drive_abandoned(coroutine), name="glidepath-abandoned")
                )
                # Before we leave: its cancellations are in our task, and it has left it.
                yield from watch.settle().__await__()
                raise LetGo from None
            # As long as nobody knows whose cancellation it is, it counts as a request: it may be the caller's.
            if (asked or doubt) and not patient:
                patient = waits = True
        except GeneratorExit:
            # The run's own coroutine is being closed: nothing may be awaited, and nothing may be left open.
            watch.gone = True
            # Closed with us: a coroutine that nobody awaits any more would warn, and keep what it holds.
            coroutine.close()
            raise
        except BaseException as failure:  # the future it waited for failed: that is its own affair
            error = failure
        try:
            waiting = coroutine.send(None) if error is None else coroutine.throw(error)
        except BaseException as end:
            error = None  # its traceback has this frame
            if watch.own or watch.task.cancelling() != watch.base:
                yield from watch.settle().__await__()
            if isinstance(end, StopIteration):
                return end.value
            raise
        error = None
        if watch.task.cancelling() != watch.level:
            watch.note_foreign_cancellations()
        if waits:  # most code obeys at once: only code that waits again needs patience
            waits = False
            watch.schedule_patience_check()
        # It has taken back what it cancelled: that was its own timeout, and it owes us nothing.
        if doubt and not watch.is_in_doubt():
            doubt, patient = False, patient and watch.forgive_self_cancellation(asked=asked)
        _make_ready(watch)
