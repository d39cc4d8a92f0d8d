"""Runs blocking work on our own daemon threads.

Never asyncio's default executor: closing a loop waits for every thread in that one, so one tool that hangs would hang
the whole program. Our own threads can be abandoned, and die with the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from glidepath.tools.context import ToolContext
from glidepath.tools.progress import settle
from glidepath.values import ToolError, describe_error

_JOIN_SECONDS = 0.1
WORKER: contextvars.ContextVar[ThreadWorker | None] = contextvars.ContextVar("glidepath_worker", default=None)
"""The worker of the current thread, if a virtual clock waits for it."""


def workers_of(loop: asyncio.AbstractEventLoop) -> set[object] | None:
    """Where to note what works for this loop in real time: virtual time stands still until it is discarded.

    None when the loop's time is real. The one place that knows how a virtual loop is told apart.
    """
    return getattr(loop, "workers", None)


class ThreadWorker:
    """One call on one daemon thread. Its outcome is handed over on the loop that started it."""

    def __init__(self, call: Callable[[], Any], name: str) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._busy = workers_of(self._loop)
        self._waiter: asyncio.Future[None] | None = None
        self._outcome: tuple[Any, BaseException | None] | None = None
        self.ended = False
        """True once the call has returned or raised, even before the loop knows."""
        # The thread shares its caller's context variables, such as the current run.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run_call,), name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; raises `ToolError` when the system has none left."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ToolError(f"no thread could be started for the tool ({error}): try again with fewer calls") from error
        if self._busy is not None:
            self._busy.add(self)

    def _run_call(self) -> None:
        value, error = None, None
        if self._busy is not None:
            WORKER.set(self)
        try:
            value = self._call()
        except BaseException as raised:  # SystemExit too: it must reach the awaiting task, not vanish with the thread
            error = raised
        # Set before the loop knows: a cancellation in between must not list the call as still running.
        self.ended = True
        try:
            self._loop.call_soon_threadsafe(self._deliver, value, error)
        except RuntimeError:  # the loop is closed: nobody is waiting
            return

    def _deliver(self, value: object, error: BaseException | None) -> None:
        self._thread.join(_JOIN_SECONDS)  # it has nothing left to do: when we return, no thread of ours is alive
        self._outcome = (value, error)
        self.release()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def release(self) -> None:
        """Stop holding the virtual clock: the work is done or abandoned."""
        self.mark_waiting()
        self._busy = None

    def mark_waiting(self) -> None:
        """The thread waits for the loop: let the virtual clock run."""
        if self._busy is not None:
            self._busy.discard(self)

    def wake(self) -> None:
        """The thread has what it waited for."""
        if self._busy is not None:
            self._busy.add(self)

    async def wait_finished(self) -> None:
        """Wait for the end of the call. Cancelling the wait leaves the thread running; one may wait again."""
        while self._outcome is None:
            self._waiter = self._loop.create_future()
            await self._waiter

    def outcome(self) -> Any:
        """What the finished call returned; raises what it raised."""
        assert self._outcome is not None  # noqa: S101 - for the type checker; callers waited
        value, error = self._outcome
        if error is None:
            return value
        try:
            if isinstance(error, StopIteration):  # Python does not allow it to leave a coroutine
                raise ToolError(describe_error(error)) from error
            raise error
        finally:
            self._outcome = None
            del error  # or the traceback would keep this frame alive, and the frame the traceback


async def run_in_thread(call: Callable[[], Any], name: str, context: ToolContext | None) -> Any:
    """Run a blocking call on a thread and await its result.

    When the await is cancelled, the thread is abandoned at once: `context.abandoned` is "thread", unless the call had
    already ended, and its later result is discarded.
    """
    worker = ThreadWorker(call, f"glidepath-tool-{name}")
    worker.start()
    try:
        await worker.wait_finished()
    except BaseException:  # cancelled, or closed with the loop
        worker.release()
        if context is not None and not worker.ended:
            context.abandoned = "thread"
        raise
    return await settle(worker.outcome(), context)
