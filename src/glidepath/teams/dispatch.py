"""Task-board dispatch: every ready step goes to an idle member."""

from __future__ import annotations

from glidepath.teams.plan_run import Pick, PlanRun
from glidepath.teams.step_run import StepRun, explain_end, make_refusal
from glidepath.teams.team import Member, Team
from glidepath.teams.team_run import TeamRun
from glidepath.teams.values import StepOutcome, StepState, TeamExecutionRequest, TeamResult, TeamStep
from glidepath.values import AgentState, LoopOutcome


class DefaultTaskDispatchCoordinator:
    """Dispatches the steps of a plan to idle members, without review: predictable, and without a model.

    The plan is the request's, or one step per role, or one step. A step starts as soon as its dependencies allow; a
    member does one step at a time, in turn; a failed attempt is given to the next idle member, at most
    `max_feedback_rounds` times. See `TeamCoordinator` for everything it promises.
    """

    async def execute(self, request: TeamExecutionRequest, team: TeamRun | Team) -> TeamResult:
        """Carry out the request."""
        return await PlanRun(request, team, _perform, name=type(self).__name__, pick=_make_turn_taker()).carry_out()


def _make_turn_taker() -> Pick:
    """For one execution: the next idle member, in turn, who can do the step."""
    waiting: list[Member] = []

    def pick(plan: PlanRun, task: TeamStep) -> Member | None:
        waiting[:] = waiting or plan.team.members
        able = {member.name for member in plan.candidates(task)}.difference(plan.busy())
        chosen = next((member for member in waiting if member.name in able), None)
        if chosen is not None:  # everybody before it, and it, goes to the end
            at = waiting.index(chosen) + 1
            waiting[:] = [*waiting[at:], *waiting[:at]]
        return chosen

    return pick


async def _perform(plan: PlanRun, step: StepRun) -> StepOutcome | None:
    """One attempt; None gives the step to the next member."""
    rounds = plan.config.max_feedback_rounds
    if step.unreviewed:  # delivered, but the process died before the step ended
        return step.outcome(StepState.DEGRADED if step.landed else StepState.COMPLETED, output=step.artifact)
    if step.attempts < rounds:
        result = await plan.attempt(step)
        ended = plan.cut_short(step, result)
        if ended is not None:
            return ended
        if step.delivered:
            landed = result.outcome is LoopOutcome.WRAPPED_UP and result.state is not AgentState.COMPLETED
            return step.outcome(
                StepState.DEGRADED if landed else StepState.COMPLETED, explain_end(result) if landed else ""
            )
        step.judged(
            make_refusal("the step's time is up", exceeded=True)
            if step.expired
            else make_refusal(f"{explain_end(result)}; try again")
        )
        if not (step.attempts >= rounds or step.expired or step.out_of_budget):
            return None
    reason = step.verdicts[-1].feedback.removesuffix("; try again") if step.verdicts else "no attempt is left"
    return plan.given_up(step, reason)
