"""Coordinators that break one clause about reviews or planning each."""

import asyncio

from tests.contracts.examine import breaks

from glidepath import CancelToken
from glidepath.conformance import PlanningCoordinatorContract, ReviewingCoordinatorContract
from glidepath.messages import Usage
from glidepath.teams import (
    EvaluationStarted,
    EvaluationVerdict,
    ExpertTeamCoordinator,
    PlannerFailureMode,
    StepState,
    TeamStatus,
    VerdictOutcome,
)
from glidepath.values import replace

from .coordinators import Trial, configured

S, V = StepState, VerdictOutcome
PASS = EvaluationVerdict(outcome=V.PASS, score=1.0)


class Reviewed(ReviewingCoordinatorContract):
    """The contract, the coordinator and its reviewer in one."""

    evaluator = None
    execute, execution, ask, emit = Trial.execute, Trial.execution, Trial.ask, Trial.emit
    request, told, result = Trial.request, Trial.told, Trial.result

    def make_reviewing(self, evaluator):
        made = type(self)()
        made.evaluator = evaluator
        return made

    def inner(self):
        return ExpertTeamCoordinator(evaluator=self, judge=self)

    async def evaluate(self, context):
        return await self.evaluator.evaluate(context)


@breaks("REVIEW-1")
class Embellishes(Reviewed):
    """Changes what passed."""

    def told(self, result):
        outcomes = [
            replace(item, output=f"{item.output}!") if item.state is S.COMPLETED else item
            for item in result.step_outcomes
        ]
        return replace(result, step_outcomes=tuple(outcomes))


@breaks("REVIEW-2")
class OneMoreRound(Reviewed):
    """Makes one attempt more than it may."""

    def request(self, request, team):
        return configured(request, max_feedback_rounds=request.config.max_feedback_rounds + 1)


@breaks("REVIEW-3")
class NoHistory(Reviewed):
    """Does not tell the reviewer what was said before."""

    async def evaluate(self, context):
        return await self.evaluator.evaluate(replace(context, prior_verdicts=context.prior_verdicts[-1:]))


@breaks("REVIEW-4")
class KeepsItToItself(Reviewed):
    """Does not tell the member what reviewers said."""

    async def ask(self, ask, agent, prompt, **more):
        return await ask(agent, prompt.partition("What the reviews")[0], **more)


@breaks("REVIEW-5")
class TakesSilenceForConsent(Reviewed):
    """Passes what the reviewer did not answer about in time."""

    async def evaluate(self, context):
        try:
            return await asyncio.wait_for(self.evaluator.evaluate(context), context.config.evaluator_timeout - 1)
        except TimeoutError:
            return PASS


@breaks("REVIEW-6")
class FailsAtLowRisk(Reviewed):
    """Throws rejected work away also where it could be used."""

    def told(self, result):
        rejected = [item.verdict is not None and item.verdict.outcome is V.REVISE for item in result.step_outcomes]
        if result.status is not TeamStatus.DEGRADED or not all(rejected):
            return result
        lost = tuple(replace(item, state=S.FAILED) for item in result.step_outcomes)
        return replace(result, status=TeamStatus.FAILED, step_outcomes=lost)


@breaks("REVIEW-7")
class WavesThrough(Reviewed):
    """Takes AUTO_PASS_WITH_WARNING for a pass."""

    async def evaluate(self, context):
        verdict = await self.evaluator.evaluate(context)
        unseen = isinstance(verdict, EvaluationVerdict) and verdict.outcome is V.AUTO_PASS_WITH_WARNING
        return PASS if unseen else verdict


@breaks("REVIEW-8")
class ReviewsInSecret(Reviewed):
    """Does not announce reviews."""

    def emit(self, emit, event):
        if not isinstance(event, EvaluationStarted):
            emit(event)


@breaks("REVIEW-9")
class WaitsForReviewers(Reviewed):
    """Ignores `evaluator_timeout`."""

    def request(self, request, team):
        return configured(request, evaluator_timeout=10_000.0)


@breaks("REVIEW-10")
class OffTheBooks(Reviewed):
    """Lets the judge run without the team's budget."""

    async def evaluate(self, context):
        return await self.evaluator.evaluate(replace(context, ask=lambda agent, prompt: agent.run(prompt)))


class Planned(PlanningCoordinatorContract):
    """The contract and the coordinator in one."""

    planner = None
    execute, execution, ask, emit = Trial.execute, Trial.execution, Trial.ask, Trial.emit
    request, told, result = Trial.request, Trial.told, Trial.result

    def make_planning(self, planner):
        made = type(self)()
        made.planner = planner
        return made

    def inner(self):
        return ExpertTeamCoordinator(planner=self.planner)


@breaks("PLAN-1")
class PlansForFree(Planned):
    """Does not count what planning cost."""

    def told(self, result):
        return replace(result, usage=Usage())


@breaks("PLAN-2")
class AsksAgain(Planned):
    """Asks the planner until it likes the answer."""

    async def ask(self, ask, agent, prompt, **more):
        result = await ask(agent, prompt, **more)
        for _ in range(2 if agent is self.planner and '"one"' not in result.text else 0):
            result = await ask(agent, prompt, **more)
        return result


@breaks("PLAN-3", "PLAN-5")
class PlansSomehow(Planned):
    """Ignores FAIL_FAST."""

    def request(self, request, team):
        return configured(request, planner_failure_mode=PlannerFailureMode.FALLBACK)


@breaks("PLAN-4")
class GivesUp(Planned):
    """Ignores FALLBACK."""

    def request(self, request, team):
        return configured(request, planner_failure_mode=PlannerFailureMode.FAIL_FAST)


@breaks("PLAN-5")
class DeafPlanner(Planned):
    """Lets the planner go on after a cancel."""

    async def ask(self, ask, agent, prompt, **more):
        return await ask(agent, prompt, **{**more, "cancel": CancelToken()} if agent is self.planner else more)
