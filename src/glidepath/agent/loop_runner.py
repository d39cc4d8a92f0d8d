"""`asyncio.run` for code without a loop; it also ends when a signal handler raises at an unlucky moment.

asyncio hands what is raised in a callback to the loop's exception handler and continues. When a signal handler raises
just there (a soft time limit, a debugger), the callback is lost: the step of a task, or what stops the loop. Then
nothing is left to wake the loop, and it hangs. Nothing else raises in asyncio's own callbacks, and foreign
code never does in ours. So what comes out of one ends the run, and `run_to_end` raises it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from glidepath.run import awaited_by, callback_of

T = TypeVar("T")
_LOOK = 0.5  # seconds between two looks whether a loop should have ended


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new loop; raises what it raises, or what a signal handler has raised."""
    watch = _LoopWatch()
    try:
        with asyncio.Runner() as runner:
            watch.begin(runner.get_loop())
            try:
                return runner.run(watch.follow(work))
            except BaseException as error:
                watch.escaped(error)
                raise
            finally:
                watch.in_main = False
    except RuntimeError:  # the loop was stopped before its time
        if watch.hit is None:
            raise
    raise watch.hit


class _LoopWatch:
    """Sees that a loop stops when it should: after its main task, after each step of closing, and when it was hit."""

    def __init__(self) -> None:
        self.hit: BaseException | None = None
        """What a signal handler has raised in the middle of a callback."""
        self.in_main = True
        self._main: asyncio.Task[Any] | None = None
        self._lost: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch this loop."""
        self._loop = loop
        loop.set_exception_handler(self._handle)
        loop.call_later(_LOOK, self._look)

    async def follow(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work in a task that is known here."""
        self._main = asyncio.current_task()
        return await work

    def escaped(self, error: BaseException) -> None:
        """The loop has raised this. When its main task has not, it was hit between two callbacks, and one is lost."""
        if self.hit is None and (self._main is None or not self._main.done()):
            self.hit = error

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and _came_from_outside(error, callback_of(context.get("handle"))):
            self.hit = error
            loop.stop()
        else:
            loop.default_exception_handler(context)

    def _look(self) -> None:
        loop = self._loop
        loop.call_later(_LOOK, self._look)
        tasks = asyncio.all_tasks(loop)
        if self.in_main:
            if self._main is not None and self._main.done():
                self._stop_soon()  # what should have stopped it was lost
        elif not tasks:
            self._stop_soon()
        elif self.hit is not None:
            # It waits for nothing, and nobody will call it: not even a cancellation can end such a task.
            before, self._lost = self._lost, {task for task in tasks if _is_lost(task)}
            if before & self._lost:
                loop.stop()

    def _stop_soon(self) -> None:
        """Stop the loop once more, behind what stops it when nothing was lost.

        At once would be too early by one callback: that one would stay behind and stop the next thing the loop does.
        """
        self._loop.call_soon(self._loop.stop)


def _came_from_outside(error: BaseException, callback: object) -> bool:
    """True for what was raised in a callback of asyncio, or in one of ours by code that is not ours."""
    if type(callback).__name__.startswith("Task") or getattr(callback, "__name__", "").startswith("Task"):
        return True  # the step of a task: whatever its coroutine raises stays in the task
    package = str(getattr(callback, "__module__", None)).partition(".")[0]
    if package in ("asyncio", "_asyncio"):
        return True
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    raised_in = "" if frames is None else str(frames.tb_frame.f_globals.get("__name__", ""))
    return package == "glidepath" and raised_in.partition(".")[0] != "glidepath"


def _is_lost(task: asyncio.Task[Any]) -> bool:
    waits_for = awaited_by(task)
    return waits_for is None or waits_for.done()
