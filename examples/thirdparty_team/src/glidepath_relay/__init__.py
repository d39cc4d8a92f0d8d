"""A relay: one step after the other. And a reviewer that counts sources."""

from __future__ import annotations

import re

from glidepath.teams import (
    EvaluationContext,
    EvaluationVerdict,
    PlanRun,
    StepOutcome,
    StepRun,
    StepState,
    TeamExecutionRequest,
    TeamResult,
    TeamRun,
    VerdictOutcome,
)

__all__ = ["RelayCoordinator", "SourceCounter"]

SOURCE = re.compile(r"\[\d+\]")


class RelayCoordinator:
    """Does the steps of a plan one after the other; without a plan there is one step."""

    async def execute(self, request: TeamExecutionRequest, team: TeamRun) -> TeamResult:
        """Carry out the request."""
        return await PlanRun(request, team, self.leg, name="RelayCoordinator", parallel=1).carry_out()

    async def leg(self, plan: PlanRun, step: StepRun) -> StepOutcome:
        """Up to `max_feedback_rounds` attempts within the step's time; what the first of them delivers is accepted."""
        while step.attempts < plan.config.max_feedback_rounds and not (step.delivered or step.expired):
            ended = plan.cut_short(step, await plan.attempt(step))  # somebody stopped it, or it waits for a person
            if ended is not None:
                return ended
        if step.delivered:
            return step.outcome(StepState.COMPLETED)
        return plan.given_up(step, "the step's time is up" if step.expired else "no attempt delivered")


class SourceCounter:
    """Accepts what names at least this many different sources, as in [1]."""

    def __init__(self, least: int = 2) -> None:
        self.least = least

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Count the sources."""
        found = len(set(SOURCE.findall(context.artifact)))
        if found >= self.least:
            return EvaluationVerdict(outcome=VerdictOutcome.PASS, score=1.0)
        feedback = f"Name at least {self.least} sources; there are {found}."
        return EvaluationVerdict(outcome=VerdictOutcome.REVISE, score=found / self.least, feedback=feedback)
