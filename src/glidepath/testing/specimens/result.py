"""Code that could cost a run its result: slow or raising observers, tools and hooks that cancel their own task."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from glidepath.events import Event
from glidepath.spi import Plugin, PollContext
from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen
from glidepath.testing.turns import Turn, say

__all__ = [
    "ExitingObserver",
    "HangingObserver",
    "LeakyTimerTool",
    "OutlandishModel",
    "OutlandishObserver",
    "SelfCancellingHook",
    "SlowObserver",
    "TaskCancellingTool",
    "TaskGroupTool",
    "UnmovedTool",
]


class Outlandish(BaseException):
    """What greenlets, test runners and other event loops raise."""


class _Watched(Specimen):
    """Calls one tool and answers, while somebody watches."""

    family = "observers"
    succeeds = True

    def reply(self, moment: Moment) -> Turn:
        """One call, then the answer."""
        return moment.call() if moment.number == 1 and moment.request.tools and moment.tools else say(ANSWER)


class _Slow(Plugin):
    name = "specimen.slow"
    seconds: ClassVar[float] = 0.4

    async def event_observer(self, event: Event) -> None:
        """Take the time."""
        await asyncio.sleep(self.seconds)


class SlowObserver(_Watched):
    """An async observer that takes 0.4 seconds for every event."""

    plugins = (_Slow,)


class _Hanging(_Slow):
    name = "specimen.hanging"
    seconds = 1e6


class HangingObserver(_Watched):
    """An async observer that never returns."""

    plugins = (_Hanging,)


class _Exiting(Plugin):
    name = "specimen.exiting"

    def event_observer(self, event: Event) -> None:
        """Exit."""
        raise SystemExit(3)


class ExitingObserver(_Watched):
    """An observer that calls sys.exit."""

    plugins = (_Exiting,)


class _Raising(Plugin):
    name = "specimen.outlandish"

    async def event_observer(self, event: Event) -> None:
        """Raise something that is not an Exception."""
        raise Outlandish("not an Exception")


class OutlandishObserver(_Watched):
    """An async observer that raises its own BaseException."""

    plugins = (_Raising,)


class _Cancelling(Plugin):
    name = "specimen.cancelling"

    def steering(self, context: PollContext) -> None:
        """Cancel the task it runs in."""
        task = asyncio.current_task()
        if task is not None and not context.iteration:
            task.cancel()


class SelfCancellingHook(_Watched):
    """A plain hook that cancels the task it runs in."""

    family = "tools"
    plugins = (_Cancelling,)


class OutlandishModel(_Watched):
    """A model that raises its own BaseException, and works when it is asked again."""

    family = "streams"

    def reply(self, moment: Moment) -> Turn:
        """Raise once."""
        if moment.number == 1:
            raise Outlandish("not an Exception")
        return say(ANSWER)


# --- tools that cancel their own task ------------------------------------------------------------------------------


class _Working(_Watched):
    family = "tools"
    needs_tools = True


class TaskGroupTool(_Working):
    """A tool with an `asyncio.TaskGroup` in which one task fails while the others are waited for."""

    async def work(self, number: int) -> Any:
        """Start three, of which one fails."""

        async def fetch(page: int) -> int:
            await asyncio.sleep(page)
            if page == 2:
                raise ValueError("404")
            return page

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch(page)) for page in (1, 2, 3)]
        return sum(task.result() for task in tasks)


class TaskCancellingTool(_Working):
    """A tool that cancels the task it runs in, and waits."""

    async def work(self, number: int) -> Any:
        """Cancel."""
        _me().cancel()
        await asyncio.sleep(1)


class UnmovedTool(_Working):
    """A tool that cancels the task it runs in, swallows that and returns."""

    async def work(self, number: int) -> Any:
        """Cancel, and continue."""
        _me().cancel()
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return "done anyway"


class LeakyTimerTool(_Working):
    """A tool whose time limit cancels its task and never undoes that, as some HTTP clients did."""

    async def work(self, number: int) -> Any:
        """Run into the time limit."""
        timer = asyncio.get_running_loop().call_later(1, _me().cancel)
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise TimeoutError("no answer within 1 s") from None
        finally:
            timer.cancel()


def _me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type checker
    return task
