"""Running calls in parallel: bounded, timed, raced against every interrupt, each with exactly one result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath.kernel.tool_calls.job import Job
from glidepath.run import CallScope, Stopped, Touchdown, Why, await_until_cancelled
from glidepath.spi import INSIDE
from glidepath.values import ResultKind

if TYPE_CHECKING:
    from glidepath.run import Plan, Run

_log = logging.getLogger("glidepath")
WORTH_IT = 0.02  # seconds that every call of a reply must have taken before a hint is given


class Batch:
    """The calls of one batch that really run, at most `width` at a time."""

    def __init__(self, run: Run, jobs: Sequence[Job], width: int) -> None:
        self.run = run
        # Taken from the end, which is cheap. What starts first is what the model wrote first.
        self.queue = list(reversed(jobs))
        self.width = width
        self.flying: dict[Job, float] = {}  # and when its time is up
        self.leaving: dict[Job, float] = {}  # asked to stop, and when we let go of it
        self.bell: asyncio.Future[None] = run.watch.loop.create_future()
        self.stopping = False
        self.landed: list[Job] = []  # ended, and not in the journal yet
        self.noted = False
        self.notes_results = run.journal is not None and not run.hooks.after_tool_call
        """What a hook may still change is written down when it has: something may have to be taken out of it."""

    def wake(self, _: object = None) -> None:
        """Something happened: a call ended, or reported progress."""
        # Several calls may end in one pass of the loop: one wake-up serves them all.
        if not self.bell.done():
            self.bell.set_result(None)

    async def run_all(self) -> None:
        """Return when every job has its result."""
        run, watch = self.run, self.run.watch
        run.work.wake_by(self.wake)
        try:
            while self.queue or self.flying or self.leaving:
                await self._start()
                if self.flying or self.leaving:
                    await self._wait()
                    self._collect()
                if watch.interrupt is not None and not self.stopping:
                    self._stop_all(ResultKind.CANCELLED, None)
                # A hair later: a timer may ring before its time by the precision of the clock, and then nothing would
                # be due.
                self._time_out(run.watch.time() + 1e-9)
        finally:
            # What a call has left running may report progress forever; nobody waits for it here any more.
            run.work.wake_by(None)
            watch.end_wait()

    async def _start(self) -> None:
        run, sentry = self.run, self.run.watch.sentry
        if sentry is not None and sentry.blind and not self.stopping:
            if self.flying or self.leaving:
                return  # nothing new starts while a kill switch cannot be read
            with suppress(Touchdown):  # the run is being stopped, which is seen below
                await sentry.wait_until_clear(run)
        if run.watch.is_halted() and not self.stopping:
            self._stop_all(ResultKind.CANCELLED, None)
        # One that was asked to stop still runs. It keeps its place, or more would run than the width allows.
        room = self.width - len(self.flying) - len(self.leaving)
        # Only as many as may run at once: a call that waits here can still be called off before it has begun.
        chosen = [] if self.stopping else [self.queue.pop() for _ in range(min(room, len(self.queue)))]
        if run.journal is not None and (chosen or self.landed):
            chosen = await self._note(chosen)
        for job in chosen:
            # Asked for each: announcing one tells observers, and an observer may stop the run.
            if run.watch.is_halted():
                job.cancel_start(run)
                continue
            timeout = job.timeout(run)
            job.announce(run)
            # Its time starts now, not when it was queued: waiting for room is not the tool being slow.
            self.flying[job] = inf if timeout is None else run.watch.time() + timeout
            job.task = run.watch.loop.create_task(run_contained(run, job), name=f"glidepath-tool-{job.call.name}")
            job.task.add_done_callback(self.wake)

    async def _note(self, chosen: list[Job]) -> list[Job]:
        """With a journal: what has ended and what is about to start is on disk first. Returns what may start."""
        run = self.run
        landed, self.landed = self.landed, []
        # Once: they count against the limit on tool calls from the first commit on, also after a crash.
        queued, self.noted = () if self.noted else tuple(self.queue), True
        try:
            later = run.journal.record_starts(chosen, queued, landed)  # type: ignore[union-attr] # `_start` has looked
            if later is not None:
                await later
        except Touchdown as touchdown:
            if run.watch.interrupt is None:  # the store has failed: what runs is stopped, and its results are kept
                run.descent.land_at_next_checkpoint(touchdown.verdict)
            self._stop_all(ResultKind.CANCELLED, touchdown.verdict.cause.reason)
            for job in chosen:
                job.cancel_start(run, reason=touchdown.verdict.cause.reason)
            return []
        return chosen

    async def _wait(self) -> None:
        run = self.run
        if not self.bell.done():
            # One time limit for all: the timer of the watch is moved, and calls need no timers.
            soonest = min([*self.flying.values(), *self.leaving.values()])
            run.watch.set_time_limit(None if soonest == inf else max(0.0, soonest - run.watch.time()))
            with suppress(asyncio.CancelledError):  # our own poke; or the caller's, which is in `watch.interrupt` now
                await run.watch.wait(self.bell)
        if self.bell.done():
            self.bell = run.watch.loop.create_future()

    def _collect(self) -> None:
        for job in [*self.flying, *self.leaving]:
            if job.task is not None and job.task.done():
                # It is in one of the two: a call that ends after it was asked to stop has left the first.
                self.flying.pop(job, None)
                self.leaving.pop(job, None)
                job.took = self.run.watch.time() - job.started_at  # type: ignore[operator]
                self._land(job)
                if self.notes_results and job.result is not None and not job.tool.transactional:  # type: ignore[union-attr]
                    self.landed.append(job)

    def _land(self, job: Job) -> None:
        task: Any = job.task
        record_end(self.run, job, task)
        tool = job.tool
        if tool is not None and tool.aborts_siblings_on_error and job.result is not None and job.result.is_error:
            self._stop_all(ResultKind.ABORTED, f"{job.call.name} failed and aborts its siblings")

    def _time_out(self, now: float) -> None:
        for job, at in list(self.flying.items()):
            if now >= at:
                self._stop(job, Why.TIMEOUT, f"no result within {job.timeout(self.run):g} s")
        for job, at in list(self.leaving.items()):
            if now >= at:
                del self.leaving[job]
                job.record_stop(self.run, Stopped(job.stop_why, let_go=True))

    def _stop_all(self, kind: ResultKind, why: str | None) -> None:
        self.stopping = True
        reason = why or "the run is being stopped"
        for job in self.queue:
            job.cancel_start(self.run, kind, reason)
        self.queue.clear()
        for job in list(self.flying):
            self._stop(job, Why.INTERRUPT, reason)

    def _stop(self, job: Job, why: Why, reason: str) -> None:
        del self.flying[job]
        job.stop_why, job.stop_asked = why, reason
        # From here its time is our patience, no longer its own limit.
        job.task.cancel()  # type: ignore[union-attr]
        self.leaving[job] = self.run.watch.abandon_time()


async def run_contained(run: Run, job: Job) -> BaseException | None:
    """Run one call; whatever it raises, SystemExit and KeyboardInterrupt too, is returned and stays in here."""
    if run.watch.is_halted():  # since this task was made
        job.cancel_start(run)
        return None
    job.begun = True
    inside = CallScope(run, job.call.id, job)
    INSIDE.set(inside)  # in the context of its own task
    try:
        work: Any = job.tool.invoke(job.bound.values, job.context)  # type: ignore[union-attr]
        value = await await_until_cancelled(work, lambda: job.result is not None)
        job.record_return(value)
    except BaseException as error:
        if run.watch.is_forked():
            raise
        return error
    finally:
        # Code that the tool has left running must not start children once the run has continued.
        inside.run = inside.work = None
    return None


def record_end(run: Run, job: Job, task: asyncio.Task[BaseException | None]) -> None:
    """Its task has ended: whatever it did not return is its result as well."""
    # Cancelled before its first step: the tool was never called, and the model is told so.
    if task.cancelled() and not job.begun:
        job.cancel_start(run)
    error = asyncio.CancelledError() if task.cancelled() else task.result()  # it may cancel itself and return
    if isinstance(error, asyncio.CancelledError):
        job.record_stop(run, Stopped(job.stop_why))
    elif error is not None:
        job.record_error(error)


# --- together, or one after the other as the model wrote them ------------------------------------------------------


def width_for(plan: Plan, jobs: Sequence[Job]) -> int:
    """How many of these calls may run at a time. Only calls that really run count, not refused ones."""
    order = plan.config.default_execution_mode
    for job in jobs:
        # One is enough: which of the others it may not meet is not said, so it meets none.
        tool: Any = job.tool
        if tool.exclusive or (order == "auto" and not tool.overlaps):
            return 1
    return 1 if order == "sequential" else plan.config.max_parallel_tools


def log_parallel_hint(run: Run, jobs: Sequence[Job]) -> None:
    """Log once per agent which mark would let these calls run together, if running in order cost time."""
    told = run.plan.told
    if "order" in told or len(jobs) == 1:
        return
    took = [job.took or 0.0 for job in jobs]
    if min(took) < WORTH_IT:
        return
    tools: list[Any] = [job.tool for job in jobs]
    if any(tool.exclusive or (tool.consequential and not tool.overlaps) for tool in tools):
        return  # these must wait for each other, whatever else is marked
    names = sorted({tool.name for tool in tools if not tool.overlaps})
    if not names:
        return
    told.add("order")
    _log.info(
        "%s: %d calls of one reply ran one after the other and took %.2f s; together they would have taken about "
        "%.2f s. If %s only %s, mark %s read_only=True; if %s calls may overlap, parallel_safe=True. "
        "ExecutionMode.PARALLEL runs all calls together.",
        run.plan.config.agent_name,
        len(jobs),
        sum(took),
        max(took),
        ", ".join(names),
        "looks" if len(names) == 1 else "look",
        "it" if len(names) == 1 else "them",
        "its" if len(names) == 1 else "their",
    )
