"""Task-board dispatch: every ready step goes to an idle member."""

from __future__ import annotations

from glidepath.outcome import AgentState, LoopOutcome
from glidepath.teams.execution import Execution, conduct
from glidepath.teams.step_run import StepRun, refused, why
from glidepath.teams.team import Member, Team
from glidepath.teams.values import (
    RiskProfile,
    StepOutcome,
    StepState,
    TeamExecutionRequest,
    TeamResult,
    TeamStep,
)

__all__ = ["DefaultTaskDispatchCoordinator"]


class DefaultTaskDispatchCoordinator:
    """Dispatches the steps of a plan to idle members, without review: predictable, and no model of its own.

    The plan is the request's, or one step per role, or one step. A step starts as soon as its dependencies allow; a
    member does one step at a time, in turn; a failed attempt is given to the next idle member, at most
    `max_feedback_rounds` times. See `TeamCoordinator` for everything it promises.
    """

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Carry out the request."""
        return await conduct(request, team, type(self).__name__, lambda execution: _Dispatch(execution).run)


class _Dispatch:
    """One execution's round-robin."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._busy: set[str] = set()
        self._next = 0

    async def run(self) -> None:
        if await self._execution.plan(None):
            await self._execution.work(self._perform, self._pick)

    def _pick(self, step: TeamStep) -> Member | None:
        """The next idle member, in turn, who can do the step."""
        members = self._execution.team.members
        able = {member.name for member in self._execution.candidates(step)}
        for offset in range(len(members)):
            at = (self._next + offset) % len(members)
            member = members[at]
            if member.name in able and member.name not in self._busy:
                self._next = at + 1
                self._busy.add(member.name)
                return member
        return None

    async def _perform(self, seat: StepRun) -> StepOutcome | None:
        assert seat.member is not None  # noqa: S101 - picked
        try:
            return await self._attempt(seat)
        finally:
            self._busy.discard(seat.member.name)

    async def _attempt(self, seat: StepRun) -> StepOutcome | None:
        execution = self._execution
        if seat.unreviewed:  # it was delivered, and the process died before the step had ended
            return seat.outcome(StepState.DEGRADED if seat.landed else StepState.COMPLETED, output=seat.artifact)
        if seat.attempts < execution.config.max_feedback_rounds:
            result = await execution.attempt(seat)
            cut = execution.cut_short(seat, result)
            if cut is not None:
                return cut
            if seat.artifact.strip() and not seat.expired:
                landed = result.outcome is LoopOutcome.WRAPPED_UP and result.state is not AgentState.COMPLETED
                return seat.outcome(
                    StepState.DEGRADED if landed else StepState.COMPLETED, why(result) if landed else ""
                )
            seat.judged(
                refused("the step's time is up", exceeded=True)
                if seat.expired
                else refused(f"{why(result)}; try again")
            )
            tired = seat.attempts >= execution.config.max_feedback_rounds
            if not (tired or seat.expired or seat.broke):
                return None
        reason = seat.verdicts[-1].feedback.removesuffix("; try again") if seat.verdicts else "no attempt is left"
        usable = execution.config.risk_profile is RiskProfile.LOW and seat.best.strip()
        return seat.outcome(StepState.DEGRADED if usable else StepState.FAILED, reason)
