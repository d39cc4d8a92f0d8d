"""Guarantees a result and well-ordered events, whatever a coordinator does."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.teams.events import make_ending
from glidepath.teams.step_table import StepTable
from glidepath.teams.values import TeamResult, TeamStatus
from glidepath.tools import clean
from glidepath.values import ConfigurationError, describe_error, log_raised, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from glidepath.teams.spi import TeamCoordinator
    from glidepath.teams.team_run import TeamRun

GRACE = 5.0  # seconds a coordinator has, after the team's time is up, to say so itself
PATIENCE = 1.0


async def supervise(coordinator: TeamCoordinator, run: TeamRun) -> TeamResult:
    """Let a coordinator execute a request; contain whatever it does."""
    loop = asyncio.get_running_loop()
    work: asyncio.Task[TeamResult] = loop.create_task(
        call_contained(lambda: coordinator.execute(run.request, run)), name=f"team {run.name} {run.request.id}"
    )
    cancelled: asyncio.CancelledError | None = None
    why = ""
    try:
        await asyncio.wait({work}, timeout=max(0.0, run.deadline - loop.time()) + GRACE)
    except asyncio.CancelledError as stop:
        cancelled, why = stop, "the caller's task was cancelled"
    if not work.done():
        run.cancel.cancel(why or "the team's time is up")
        work.cancel(why)
        # It may still publish its own ending, which knows more than a made-up one.
        await wait_for_all({work}, GRACE + PATIENCE)
    if run.events.posted:
        await wait_for_all({loop.create_task(asyncio.sleep(0))}, PATIENCE)  # let events from other threads arrive
    result = _conclude(work, run, cancelled is not None)
    if cancelled is not None:
        raise cancelled
    return result


def _conclude(work: asyncio.Task[TeamResult], run: TeamRun, cancelled: bool) -> TeamResult:
    """The result of a coordinator that has ended or had to be stopped."""
    channel = run.events
    error = work.exception() if work.done() and not work.cancelled() else None
    if isinstance(error, ConfigurationError) and not channel.started:
        raise error
    result = _result_of(work, run)
    status, reason = TeamStatus.FAILED, ""
    if not work.done() or work.cancelled():
        status = TeamStatus.CANCELLED if cancelled else TeamStatus.TIMEOUT
        reason = "the caller's task was cancelled" if cancelled else "the team's time is up"
        if work.done() and not cancelled and run.deadline > asyncio.get_running_loop().time():
            status, reason = TeamStatus.FAILED, "the coordinator was cancelled, but nobody cancelled it"
    elif error is not None:
        log_raised(f"{run.request.id}: the coordinator", error, "the team fails")
        reason = clean(f"the coordinator crashed: {describe_error(error)}")
    elif result is None:
        reason = f"the coordinator answered {short_repr(work.result(), 80)}, which is not a result of this request"
    # Observers have already acted on what was published, whatever the coordinator returns.
    if channel.ended is not None:  # what was published counts
        result = channel.ended.result
    elif result is None:
        table = None if channel.plan is None else StepTable(channel.plan)
        if table is not None:
            table.restore(channel.outcomes.values())
            table.cut_short(reason)
        result = run.concluded(status, reason, table)
    if reason:
        run.cancel.cancel(reason)
        if reason not in (result.reason, *result.warnings):
            result = replace(result, warnings=(*result.warnings, reason))
    if not work.done():
        result = replace(result, warnings=(*result.warnings, "the coordinator did not stop and was abandoned"))
    if channel.ended is None:
        run.emit(make_ending(result))
        result = replace(result, sequence=channel.sequence, changes=channel.changes)
    return result


def _result_of(work: asyncio.Task[TeamResult], run: TeamRun) -> TeamResult | None:
    """What the coordinator returned, if it is a result of this request."""
    if not work.done() or work.cancelled() or work.exception() is not None:
        return None
    result = work.result()
    mine = isinstance(result, TeamResult) and result.request.id == run.request.id
    return replace(result, team=run.name) if mine else None


async def call_contained(act: Callable[[], Any]) -> Any:
    """Call foreign code, plain or async; what would end the whole event loop becomes an ordinary error."""
    try:
        answer = act()
        return await answer if inspect.isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise RuntimeError(f"it raised {type(error).__name__}") from error


async def stop_all(
    tasks: Iterable[asyncio.Task[Any]], seconds: float, politely: Callable[[], object] | None = None
) -> None:
    """Stop what is not done yet: first politely, then by cancelling it. Each way gets this many seconds to work."""
    late = [task for task in tasks if not task.done()]
    if late and politely is not None:
        politely()
        await wait_for_all(late, seconds)
        late = [task for task in late if not task.done()]
    for task in late:
        task.cancel()
    await wait_for_all(late, seconds)


async def wait_for_all(tasks: Collection[asyncio.Task[object]], seconds: float) -> None:
    """Wait until all are done or the time is up, even if this wait is cancelled."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while any(not task.done() for task in tasks) and loop.time() < until:
        try:
            await asyncio.wait(tasks, timeout=until - loop.time())
        except asyncio.CancelledError:
            continue
