"""Code that could cost a run its result: slow or raising observers, tools and hooks that cancel their own task."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from glidepath.spi import Plugin, PollContext
from glidepath.testing.specimens.specimen import ANSWER, Moment, OneCall, specimen
from glidepath.testing.turns import Turn, say
from glidepath.values import Event


class Outlandish(BaseException):
    """What greenlets, test runners and other event loops raise."""


class _Slow(Plugin):
    name = "specimen.slow"
    seconds: ClassVar[float] = 0.4

    async def event_observer(self, event: Event) -> None:
        await asyncio.sleep(self.seconds)


class _Hanging(_Slow):
    name = "specimen.hanging"
    seconds = 1e6


class _Exiting(Plugin):
    name = "specimen.exiting"

    def event_observer(self, event: Event) -> None:
        raise SystemExit(3)


class _Raising(Plugin):
    name = "specimen.outlandish"

    async def event_observer(self, event: Event) -> None:
        raise Outlandish("not an Exception")


class _Cancelling(Plugin):
    name = "specimen.cancelling"

    def steering(self, context: PollContext) -> None:
        task = asyncio.current_task()
        if task is not None and not context.iteration:
            task.cancel()


def _fails_once(moment: Moment) -> Turn:
    if moment.number == 1:
        raise Outlandish("not an Exception")
    return say(ANSWER)


class _Watched(OneCall):
    family = "observers"


OBSERVERS = (
    specimen("slow_observer", "An async observer that takes 0.4 seconds for every event.", _Watched, plugins=(_Slow,)),
    specimen("hanging_observer", "An async observer that never returns.", _Watched, plugins=(_Hanging,)),
    specimen("exiting_observer", "An observer that calls sys.exit.", _Watched, plugins=(_Exiting,)),
    specimen(
        "outlandish_observer",
        "An async observer that raises its own BaseException.",
        _Watched,
        plugins=(_Raising,),
    ),
    specimen(
        "self_cancelling_hook",
        "A plain hook that cancels the task it runs in.",
        OneCall,
        family="tools",
        plugins=(_Cancelling,),
    ),
    specimen(
        "outlandish_model",
        "A model that raises its own BaseException, and works when it is asked again.",
        OneCall,
        family="streams",
        reply=_fails_once,
    ),
)


# --- tools that cancel their own task ------------------------------------------------------------------------------


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type checker
    return task


async def _group(_number: int) -> int:
    async def fetch(page: int) -> int:
        await asyncio.sleep(page)
        if page == 2:
            raise ValueError("404")
        return page

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(fetch(page)) for page in (1, 2, 3)]
    return sum(task.result() for task in tasks)


async def _cancels(_number: int) -> None:
    _current_task().cancel()
    await asyncio.sleep(1)


async def _ignore_cancellation(_number: int) -> str:
    _current_task().cancel()
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        await asyncio.sleep(1)
    return "done anyway"


async def _leaks(_number: int) -> None:
    timer = asyncio.get_running_loop().call_later(1, _current_task().cancel)
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        raise TimeoutError("no answer within 1 s") from None
    finally:
        timer.cancel()


class _Working(OneCall):
    family = "tools"
    needs_tools = True


TOOLS = (
    specimen(
        "task_group_tool",
        "A tool with an `asyncio.TaskGroup` in which one task fails while the others are waited for.",
        _Working,
        work=_group,
    ),
    specimen("task_cancelling_tool", "A tool that cancels the task it runs in, and waits.", _Working, work=_cancels),
    specimen(
        "unmoved_tool",
        "A tool that cancels the task it runs in, swallows that and returns.",
        _Working,
        work=_ignore_cancellation,
    ),
    specimen(
        "leaky_timer_tool",
        "A tool whose time limit cancels its task and never undoes that, as some HTTP clients did.",
        _Working,
        work=_leaks,
    ),
)
