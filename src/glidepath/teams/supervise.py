"""Whatever a coordinator does: a result, and the events in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from glidepath._wire import replace
from glidepath.errors import ConfigurationError, shown, told
from glidepath.teams.events import TeamStarted, ending
from glidepath.teams.step_table import StepTable
from glidepath.teams.values import StepOutcome, StepState, TeamExecutionRequest, TeamResult, TeamStatus
from glidepath.tools.text import clean

if TYPE_CHECKING:
    from collections.abc import Collection

    from glidepath.teams.spi import TeamCoordinator
    from glidepath.teams.team import Team

__all__ = ["supervise", "wait_for_all"]

GRACE = 5.0  # seconds a coordinator has, after the team's time is up, to say so itself
PATIENCE = 1.0


async def supervise(coordinator: TeamCoordinator, request: TeamExecutionRequest, team: Team) -> TeamResult:
    """Let a coordinator execute a request; contain whatever it does."""
    loop = asyncio.get_running_loop()
    work: asyncio.Task[TeamResult] = loop.create_task(
        _execute(coordinator, request, team), name=f"team {team.name} {request.id}"
    )
    cancelled: asyncio.CancelledError | None = None
    why = ""
    try:
        await asyncio.wait({work}, timeout=max(0.0, team.bond.deadline - loop.time()) + GRACE)
    except asyncio.CancelledError as stop:
        cancelled, why = stop, "the caller's task was cancelled"
    if not work.done():
        team.cancel.cancel(why or "the team's time is up")
        work.cancel(why)
        await wait_for_all({work}, GRACE + PATIENCE)
    if team.bond.channel.posted:
        await wait_for_all({loop.create_task(asyncio.sleep(0))}, PATIENCE)  # what was said in a thread arrives
    result = _concluded(work, request, team, cancelled is not None)
    if cancelled is not None:
        raise cancelled
    return result


async def _execute(coordinator: TeamCoordinator, request: TeamExecutionRequest, team: Team) -> TeamResult:
    try:
        return await coordinator.execute(request, team)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # or the whole loop would end with it
        raise RuntimeError(f"it raised {type(error).__name__}") from error


def _concluded(
    work: asyncio.Task[TeamResult], request: TeamExecutionRequest, team: Team, cancelled: bool
) -> TeamResult:
    """The result of a coordinator that is done, or had to be stopped."""
    channel = team.bond.channel
    error = work.exception() if work.done() and not work.cancelled() else None
    if isinstance(error, ConfigurationError) and not channel.started:
        raise error
    result = _given(work, request, team) if error is None else None
    status, reason = TeamStatus.FAILED, ""
    if not work.done() or work.cancelled():
        status = TeamStatus.CANCELLED if cancelled else TeamStatus.TIMEOUT
        reason = "the caller's task was cancelled" if cancelled else "the team's time is up"
        if work.done() and not cancelled and team.bond.deadline > asyncio.get_running_loop().time():
            status, reason = TeamStatus.FAILED, "the coordinator was cancelled by nobody"
    elif error is not None:
        reason = clean(f"the coordinator crashed: {told(error)}")
    elif result is None:
        reason = f"the coordinator answered {shown(work.result(), 80)}, which is not a result of this request"
    if channel.ended is not None:  # what was published is the truth
        result = channel.ended.result  # type: ignore[attr-defined]
    elif result is None:
        result = _made_up(request, team, status, reason)
    if reason:
        team.cancel.cancel(reason)
        if reason not in (result.reason, *result.warnings):
            result = replace(result, warnings=(*result.warnings, reason))
    if not work.done():
        result = replace(result, warnings=(*result.warnings, "the coordinator did not stop and was let go"))
    if channel.ended is None:
        if not channel.started:
            names = tuple(member.name for member in team.members)
            team.emit(TeamStarted(request=request, members=names, resumed=team.past is not None))
        result = replace(result, sequence=channel.sequence + 1)
        team.emit(ending(result))
    late = tuple(warning for warning in channel.warnings if warning not in result.warnings)
    return replace(result, warnings=(*result.warnings, *late)) if late else result


def _given(work: asyncio.Task[TeamResult], request: TeamExecutionRequest, team: Team) -> TeamResult | None:
    """What the coordinator returned, if it is a result of this request."""
    result = work.result() if work.done() and not work.cancelled() else None
    if isinstance(result, TeamResult) and result.team != team.name:
        result = replace(result, team=team.name)
    return result if isinstance(result, TeamResult) and result.request.id == request.id else None


def _made_up(request: TeamExecutionRequest, team: Team, status: TeamStatus, reason: str) -> TeamResult:
    """A result for a coordinator that has none: what was published still counts."""
    channel = team.bond.channel
    usage, cost = team.spent
    board = StepTable(channel.plan) if channel.plan is not None else None
    if board is not None:
        for step in board.plan.steps:
            unfinished = StepOutcome(step_id=step.id, state=StepState.CANCELLED, reason=reason)
            board.restore(channel.outcomes.get(step.id, unfinished))
    return TeamResult(
        request=request,
        team=team.name,
        status=status,
        plan=channel.plan,
        step_outcomes=() if board is None else board.outcomes_in_order(),
        final_output="" if board is None else board.final_output(),
        reason=reason,
        duration=team.bond.elapsed,
        usage=usage,
        cost=cost,
    )


async def wait_for_all(tasks: Collection[asyncio.Task[object]], seconds: float) -> None:
    """Wait until all are done or the time is up, even if the waiting is cancelled."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while any(not task.done() for task in tasks) and loop.time() < until:
        try:
            await asyncio.wait(tasks, timeout=until - loop.time())
        except asyncio.CancelledError:
            continue
