"""Attributes cancellations: foreign code may cancel the task that it shares with its run, and so may the caller.

A run drives foreign code inside its caller's task, and asyncio counts cancellations without saying who made them. Code
that takes its own back (`asyncio.timeout`) is no problem. Some never does: a `TaskGroup` before Python 3.13 whose task
fails while the group waits for it (python/cpython#116720), timers of some HTTP clients, a plain
`asyncio.current_task().cancel()`. Such a cancellation says nothing about the caller, who must not pay for it. Three
moments tell whose it is:

- While foreign code runs, nobody else does: a cancellation made meanwhile is its own (Ctrl-C apart, which asyncio turns
  into a cancellation wherever the program happens to be).
- While foreign code waits, `Task.cancel` cancels the future that it waits for. A `CancellationProbe` sits in
  front of that future and hears it happen, in the context of the code that does it: tasks, timers and callbacks that
  were made inside a run carry its mark (`INSIDE`).
- Whatever cannot be told apart is the caller's, as before.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.runners import Runner
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from glidepath.run.abandoned import iterate_held_scopes
from glidepath.run.asyncio_privates import BY_HAND, GROUP_FAILED, TASK_CANCEL, TIMED_OUT, is_interrupted_by_user

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType

    from glidepath.run.watch import Watch

INSIDE: ContextVar[Any] = ContextVar("glidepath_inside", default=None)
"""The watch of the innermost run in whose task, or for whose sake, this code runs."""


class CancellationProbe:
    """Stands in for a future that foreign code waits for: passes everything on, and hears who cancels it."""

    __slots__ = ("_asyncio_future_blocking", "_coroutine", "_future", "_watch", "add_done_callback")

    def __init__(self, future: asyncio.Future[Any], watch: Watch, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._asyncio_future_blocking = True
        future._asyncio_future_blocking = False  # noqa: SLF001 - as a task does that takes it; see `asyncio.isfuture`
        # Bound here and not looked up by `__getattr__`: the task calls it for every wait.
        self.add_done_callback = future.add_done_callback
        self._future, self._watch, self._coroutine = future, watch, coroutine

    def get_loop(self) -> Any:
        """The loop of the future."""
        return self._future.get_loop()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """A future, for code that asks what a task waits for, as anyio does."""
        return asyncio.Future

    def __getattr__(self, name: str) -> Any:
        """Any other attribute, such as `cancelled` by anyio's memory streams."""
        return getattr(self._future, name)

    def cancel(self, msg: object = None) -> bool:
        """Somebody cancels the task: take note when it is the foreign code itself."""
        watch = self._watch
        late = asyncio.current_task(watch.loop) is watch.task  # it cancelled itself before it waited: that is counted
        if not late and not watch.poking and self._from_inside(sys._getframe(1)):  # noqa: SLF001 - who called `cancel`
            # Heard, and counted when it is delivered: until then it may be taken back.
            watch.heard += 1
        return self._future.cancel(msg=msg)

    def _from_inside(self, caller: FrameType | None) -> bool:
        if caller is None:
            return False
        # Neither the task itself is the caller, nor a run inside a run that has heard it first.
        if caller.f_code in (TASK_CANCEL, CancellationProbe.cancel.__code__):
            return self._from_inside(caller.f_back)
        # Ctrl-C interrupts whatever runs, in whatever context: its mark says nothing about who is meant.
        if caller.f_code is BY_HAND:
            return False
        if caller.f_code in (GROUP_FAILED, TIMED_OUT):
            # not by its mark: the caller's own group may have got a task in here, the caller's deadline been moved
            mine = caller.f_locals.get("self")
            return any(scope is mine for scope in iterate_held_scopes(self._coroutine))
        # By the chain and not by the innermost run: a timer of a nested run is inside this one as well.
        inside = INSIDE.get()
        while inside is not None and inside is not self._watch:
            inside = inside.outer
        return inside is not None


def is_by_hand(task: asyncio.Task[Any]) -> bool:
    """True when Ctrl-C has cancelled this task, by `asyncio.run`: in the middle of whatever was running."""
    handler: Any = signal.getsignal(signal.SIGINT)
    # Looked for in the handler that asyncio has set: it tells nobody, and the count shows the cancellation only.
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    if type(runner) is not Runner or handler.keywords.get("main_task") is not task:
        return False
    return is_interrupted_by_user(runner)
