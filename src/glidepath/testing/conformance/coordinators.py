"""The contracts of a `TeamCoordinator`: for all of them, for those with reviews, and for those with a planner."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from glidepath._wire import settle_field
from glidepath.agent import Agent, Limits
from glidepath.teams import (
    EvaluationContext,
    EvaluationResult,
    EvaluationStarted,
    EvaluationStrategy,
    EvaluationVerdict,
    PlannerFailureMode,
    PlanReady,
    RiskProfile,
    StepAssigned,
    StepState,
    TeamCoordinator,
    TeamStatus,
    VerdictOutcome,
)
from glidepath.testing import ScriptedModel, no_leftovers, say
from glidepath.testing.conformance.contract import missing
from glidepath.testing.conformance.coordinator_ends import EndingClauses
from glidepath.testing.conformance.coordinator_harness import CoordinatorHarness, artifact
from glidepath.testing.conformance.coordinator_steps import CoordinatorContract, StepClauses

if TYPE_CHECKING:
    from glidepath.testing.turns import Step

S, V = StepState, VerdictOutcome


class TeamCoordinatorContract(StepClauses, EndingClauses):
    """Subclass this and provide `make_coordinator`: a coordinator as a user would create it.

    The coordinator is called directly, without the supervision of `Team.run` that would cover up its mistakes, in
    virtual time, with members whose models follow a script. Each step is pinned to the member with its name.
    """


class Reviewer:
    """A reviewer that gives these answers in turn, repeats the last one, and records what it was asked."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.contexts: list[EvaluationContext] = []

    async def evaluate(self, context: EvaluationContext) -> Any:
        """The next answer; an exception is raised, "hang" never answers."""
        self.contexts.append(context)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == "hang":
            await asyncio.get_running_loop().create_future()
        if isinstance(answer, BaseException):
            raise answer
        return answer


PASS = EvaluationVerdict(outcome=V.PASS, score=1.0)
REVISE = EvaluationVerdict(outcome=V.REVISE, score=0.4, feedback="name the <figures>")
UNDECIDED = EvaluationVerdict(outcome=V.REVIEW_EXCEEDED, feedback="beyond me")
UNSEEN = EvaluationVerdict(outcome=V.AUTO_PASS_WITH_WARNING, score=0.5, feedback="nobody looked")


def out_of_range() -> EvaluationVerdict:
    """A pass with a score that its constructor would refuse."""
    verdict = EvaluationVerdict(outcome=V.PASS, score=1.0)
    settle_field(verdict, "score", 7.0)
    return verdict


NO_REVIEW: tuple[tuple[str, Any], ...] = (
    ("a crash", RuntimeError("the reviewer is ill")),
    ("silence", "hang"),
    ("nothing", None),
    ("nonsense", True),
    ("a score out of range", out_of_range()),
    ("REVIEW_EXCEEDED", UNDECIDED),
)
"""Everything that is not a review, and must never count as a pass."""


class ReviewingCoordinatorContract(CoordinatorContract):
    """For a coordinator with reviews. Subclass `TeamCoordinatorContract` as well.

    Provide `make_reviewing`: a coordinator that uses the given reviewer at any risk, without a senior or an arbiter.
    """

    def make_reviewing(self, evaluator: EvaluationStrategy) -> TeamCoordinator:
        """A coordinator that asks this reviewer about every artifact."""
        raise NotImplementedError(missing(self, "make_reviewing"))

    async def _run_reviewed(self, reviewer: EvaluationStrategy, **config: Any) -> tuple[CoordinatorHarness, Any]:
        stage = CoordinatorHarness({"a": ()}, **config)
        return stage, await stage.run_coordinator(self.make_reviewing(reviewer))

    async def test_review_1_what_passes_is_accepted(self) -> None:
        """REVIEW-1: work that passes is accepted at the first attempt, and nobody is asked again."""
        reviewer = Reviewer(PASS)
        stage, result = await self._run_reviewed(reviewer)
        assert result.status is TeamStatus.COMPLETED
        assert result.outcome("a").output == artifact("a")
        assert (len(stage.asked), len(reviewer.contexts)) == (1, 1)
        assert (reviewer.contexts[0].artifact, reviewer.contexts[0].step.id) == (artifact("a"), "a")

    async def test_review_2_the_feedback_loop_is_bounded(self) -> None:
        """REVIEW-2: a reviewer that always wants more is asked at most `max_feedback_rounds` times."""
        for rounds in (1, 3):
            reviewer = Reviewer(REVISE)
            stage, result = await self._run_reviewed(reviewer, max_feedback_rounds=rounds)
            assert len(stage.asked) == len(reviewer.contexts) == rounds
            assert result.outcome("a").attempts == rounds

    async def test_review_3_reviews_count_attempts_and_see_all_verdicts(self) -> None:
        """REVIEW-3: a review knows the number of the attempt and every verdict before it, oldest first."""
        second = EvaluationVerdict(outcome=V.REVISE, score=0.6, feedback="and the <sources>")
        reviewer = Reviewer(REVISE, second, PASS)
        await self._run_reviewed(reviewer, max_feedback_rounds=3)
        assert [context.attempt for context in reviewer.contexts] == [1, 2, 3]
        assert [context.prior_verdicts for context in reviewer.contexts] == [(), (REVISE,), (REVISE, second)]

    async def test_review_4_the_next_attempt_is_told_everything(self) -> None:
        """REVIEW-4: everything that reviewers said is in the prompt of the next attempt."""
        second = EvaluationVerdict(outcome=V.REVISE, score=0.6, feedback="and the <sources>")
        stage, _ = await self._run_reviewed(Reviewer(REVISE, second, PASS), max_feedback_rounds=3)
        told = [("<figures>" in asked.prompt, "<sources>" in asked.prompt) for asked in stage.asked]
        assert told == [(False, False), (True, False), (True, True)]

    async def test_review_5_no_review_is_never_a_pass(self) -> None:
        """REVIEW-5: a crash, silence, nothing, nonsense, a score out of range, and "I cannot say" are never a pass."""
        for what, answer in NO_REVIEW:
            for risk in RiskProfile:
                _, result = await self._run_reviewed(Reviewer(answer), risk_profile=risk, evaluator_timeout=20.0)
                state = result.outcome("a").state
                assert state is (S.DEGRADED if risk is RiskProfile.LOW else S.FAILED), (what, risk)

    async def test_review_6_rejected_work_degrades_at_low_risk_and_fails_above(self) -> None:
        """REVIEW-6: work that was never accepted is kept, and is DEGRADED at LOW and FAILED at MEDIUM and HIGH."""
        for risk in RiskProfile:
            _, result = await self._run_reviewed(Reviewer(REVISE), risk_profile=risk)
            low = risk is RiskProfile.LOW
            assert result.status is (TeamStatus.DEGRADED if low else TeamStatus.FAILED), risk
            assert result.outcome("a").state is (S.DEGRADED if low else S.FAILED), risk
            assert result.outcome("a").output == artifact("a"), "what was made is kept"
            assert artifact("a") in result.final_output or not low

    async def test_review_7_an_unreviewed_pass_needs_consent(self) -> None:
        """REVIEW-7: AUTO_PASS_WITH_WARNING counts only with `auto_pass` at LOW, and then there is a warning."""
        _, result = await self._run_reviewed(Reviewer(UNSEEN), risk_profile=RiskProfile.LOW, auto_pass=True)
        assert result.outcome("a").state is S.COMPLETED
        assert result.warnings
        for risk in RiskProfile:
            _, result = await self._run_reviewed(Reviewer(UNSEEN), risk_profile=risk)
            assert result.outcome("a").state is not S.COMPLETED, risk

    async def test_review_8_reviews_are_announced(self) -> None:
        """REVIEW-8: every review is announced, with its verdict as it counts, the step and the attempt."""
        reviewer = Reviewer(REVISE, RuntimeError("ill"))
        stage, result = await self._run_reviewed(reviewer)
        told = [(e.step_id, e.attempt) for e in stage.of(EvaluationStarted)]
        found = [(e.step_id, e.attempt, e.verdict.outcome) for e in stage.of(EvaluationResult)]
        assert told == [("a", 1), ("a", 2)]
        assert found == [("a", 1, V.REVISE), ("a", 2, V.REVIEW_EXCEEDED)]
        assert [verdict.outcome for verdict in result.outcome("a").verdicts] == [V.REVISE, V.REVIEW_EXCEEDED]

    async def test_review_9_a_reviewer_cannot_hold_a_team_up(self) -> None:
        """REVIEW-9: a reviewer that hangs is abandoned after `evaluator_timeout`, and at once after a cancel."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._run_reviewed(Reviewer("hang"), evaluator_timeout=20.0)
        assert loop.time() - began <= 25
        stage = CoordinatorHarness({"a": ()})
        loop.call_later(10, stage.cancel.cancel, "enough")
        began = loop.time()
        async with no_leftovers():
            result = await stage.run_coordinator(self.make_reviewing(Reviewer("hang")))
        assert loop.time() - began <= 15
        assert (result.status, result.outcome("a").output) == (TeamStatus.CANCELLED, artifact("a"))

    async def test_review_10_the_team_pays_for_its_judges(self) -> None:
        """REVIEW-10: a reviewer asks models through `context.ask`, and the team pays for them."""
        judge = Agent(model=ScriptedModel(price=("1", "1")).forever("fine"), limits=Limits(max_iterations=3))

        class Asking:
            async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
                assert context.ask is not None
                await context.ask(judge, "Is it good?")
                return PASS

        stage, result = await self._run_reviewed(Asking())
        assert result.status is TeamStatus.COMPLETED
        spent = [asked.result.usage.total for asked in stage.asked if asked.result]
        assert len(spent) == 2
        assert result.usage.total == sum(spent)


BAD_PLANS = (
    "I would rather not.",
    '{"steps": []}',
    '{"steps": [{"id": "x", "description": "y", "depends_on": ["z"]}]}',
    '{"steps": [{"id": "x", "description": "y", "depends_on": ["x"]}]}',
)


class PlanningCoordinatorContract(CoordinatorContract):
    """For a coordinator that lets a model plan. Subclass `TeamCoordinatorContract` as well.

    Provide `make_planning`: a coordinator with this planner, which reads plans in the JSON form of our own
    coordinators.
    """

    def make_planning(self, planner: Agent) -> TeamCoordinator:
        """A coordinator whose plans come from this agent."""
        raise NotImplementedError(missing(self, "make_planning"))

    async def _run_planned(self, *answers: Step, **config: Any) -> tuple[CoordinatorHarness, Any, ScriptedModel]:
        script = [say(answer) if isinstance(answer, str) else answer for answer in answers]
        model = ScriptedModel(script[:-1], price=("1", "1")).forever(script[-1])
        stage = CoordinatorHarness({"m": ()}, planned=False, **config)
        planner = Agent(model=model, limits=Limits(max_iterations=3), max_retries=0)
        return stage, await stage.run_coordinator(self.make_planning(planner)), model

    async def test_plan_1_a_valid_plan_is_carried_out(self) -> None:
        """PLAN-1: the steps of a valid plan are done, in the order of their dependencies, and the team pays for it."""
        first, second = (
            '{"id": "one", "description": "x"}',
            '{"id": "two", "description": "y", "depends_on": ["one"]}',
        )
        stage, result, _ = await self._run_planned(f'{{"steps": [{second}, {first}]}}')
        assert result.status is TeamStatus.COMPLETED, result.reason
        assert [step.id for step in result.plan.steps] == ["two", "one"]
        assert stage.list_assigned_steps() == ["one", "two"]
        assert result.usage.total == sum(asked.result.usage.total for asked in stage.asked if asked.result)

    async def test_plan_2_a_bad_plan_is_repaired_once(self) -> None:
        """PLAN-2: an invalid plan goes back to the planner once, with what is wrong: there is no third request."""
        for bad in BAD_PLANS:
            good = '{"steps": [{"id": "one", "description": "x"}]}'
            _, result, model = await self._run_planned(bad, good)
            assert result.status is TeamStatus.COMPLETED, result.reason
            assert model.calls == 2
            _, _, model = await self._run_planned(bad)
            assert model.calls == 2

    async def test_plan_3_without_a_plan_fail_fast_fails_before_any_step(self) -> None:
        """PLAN-3: with FAIL_FAST, no valid plan means FAILED, with a reason, before any step."""
        for bad in BAD_PLANS:
            stage, result, _ = await self._run_planned(bad)
            assert (result.status, stage.list_assigned_steps(), stage.calls) == (TeamStatus.FAILED, [], 0)
            assert result.reason
            assert not stage.of(PlanReady)

    async def test_plan_4_fallback_uses_the_deterministic_plan_and_warns(self) -> None:
        """PLAN-4: with FALLBACK, no valid plan means the deterministic plan, and a warning."""
        fallback = PlannerFailureMode.FALLBACK
        for bad in BAD_PLANS:
            stage, result, _ = await self._run_planned(bad, planner_failure_mode=fallback)
            assert result.status is TeamStatus.COMPLETED, result.reason
            assert result.plan.source == "deterministic"
            assert result.warnings
            assert len(stage.of(StepAssigned)) == 1

    async def test_plan_5_a_planner_that_hangs_is_stopped(self) -> None:
        """PLAN-5: a planner that hangs is stopped in time, and at once by a cancel; no step starts then."""
        from glidepath.testing import hang

        loop = asyncio.get_running_loop()
        began = loop.time()
        stage, result, _ = await self._run_planned(hang(), step_timeout=30.0, team_timeout=100.0)
        assert loop.time() - began <= 105
        assert (result.status in (TeamStatus.FAILED, TeamStatus.TIMEOUT), stage.calls) == (True, 0)
        stage = CoordinatorHarness({"m": ()}, planned=False)
        loop.call_later(10, stage.cancel.cancel, "enough")
        began = loop.time()
        planner = Agent(model=ScriptedModel().forever(hang()), limits=Limits(max_iterations=3))
        result = await stage.run_coordinator(self.make_planning(planner))
        assert loop.time() - began <= 15
        assert (result.status, stage.calls) == (TeamStatus.CANCELLED, 0)
