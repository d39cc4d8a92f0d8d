"""Handles Ctrl-C and SIGTERM: wind down, stop now, or stop without another model call."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from glidepath.run import CancelToken

FINISHING = "finishing up; Ctrl-C again to stop now"
_PATIENCE = 1.2  # seconds for tasks still running after the run has ended: abandoned ones are closed after one
_ROUNDS = 3  # stopping a task may leave another one to close
_DEAF = 2.0  # seconds after which Ctrl-C interrupts what keeps the loop from hearing the first one
_STOPS = (signal.SIGTERM, signal.SIGHUP)


class Caught:
    """What was caught: `number` is the first signal; `hurry` is set when the command must not wait any longer.

    `asking` is true while a question is open, and nothing is in flight that could finish up.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.asking = False
        self.hurry = asyncio.Event()


@contextmanager
def catch_signals(token: CancelToken, say: Callable[[str], None]) -> Iterator[Caught]:
    """While inside: the first Ctrl-C winds down, the second stops at once, SIGTERM stops without a model call."""
    loop = asyncio.get_running_loop()
    caught = Caught()

    unheard: list[float] = []

    def press(*_: object) -> None:
        """Wake the loop; a tool or an evaluator that blocks it is interrupted by another Ctrl-C."""
        now = monotonic()
        if unheard and now - unheard[0] > _DEAF:
            raise KeyboardInterrupt
        unheard.append(now)

    def interrupt() -> None:
        unheard.clear()
        if caught.number is None:
            caught.number = signal.SIGINT
            if not caught.asking:
                say(FINISHING)
            token.wind_down("Ctrl-C")
        else:
            caught.hurry.set()
            token.cancel("Ctrl-C twice")

    def stop(number: int) -> None:
        if caught.number is None or number == signal.SIGTERM:
            caught.number = number
        caught.hurry.set()
        token.cancel(signal.Signals(number).name)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *_STOPS)}
    loop.add_signal_handler(signal.SIGINT, interrupt)
    signal.signal(signal.SIGINT, press)  # the loop hears it as before: the signal wakes it up
    for number in _STOPS:
        if before[number] != signal.SIG_IGN:  # respect nohup
            loop.add_signal_handler(number, stop, number)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


async def abandon_tasks() -> None:
    """Leave no task behind that would keep the process from exiting, not even one that ignores cancellation."""
    loop = asyncio.get_running_loop()
    deaf: set[asyncio.Task[object]] = set()

    def hold(*_: object) -> object:
        """Keep a task that ignores cancellation alive until exit, so that nothing tries to close it."""
        return deaf

    for _ in range(_ROUNDS):
        await asyncio.sleep(0)  # a dropped generator is closed in a task, which must start before it can be stopped
        await asyncio.sleep(0)
        rest = asyncio.all_tasks() - {asyncio.current_task()} - deaf
        if not rest:
            break
        loop.set_exception_handler(hold)
        for task in rest:
            task.cancel()
        _, still = await asyncio.wait(rest, timeout=_PATIENCE)
        deaf.update(still)
    for task in deaf:
        asyncio._unregister_task(task)  # noqa: SLF001 - the documented way to say that a task is over
