"""Plan, generate, evaluate: every step is reviewed, and rejected work is escalated."""

from __future__ import annotations

from functools import partial

from glidepath._wire import replace
from glidepath.agent import Agent, find_price
from glidepath.run import CancelToken, link_tokens
from glidepath.teams.evaluate import (
    AgentEvaluationStrategy,
    Review,
    SimpleEvaluationStrategy,
    choose_evaluator,
    review,
)
from glidepath.teams.events import EvaluationResult, EvaluationStarted, Handoff
from glidepath.teams.mailbox import Mailboxes
from glidepath.teams.plan_run import PlanRun
from glidepath.teams.spi import EvaluationStrategy
from glidepath.teams.step_run import StepRun, explain_end, make_refusal
from glidepath.teams.team import Team
from glidepath.teams.team_run import TeamRun
from glidepath.teams.values import (
    EvaluationContext,
    EvaluationVerdict,
    StepOutcome,
    StepState,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    VerdictOutcome,
    check_kind,
    check_name,
    check_text,
)
from glidepath.values import AgentState, ConfigurationError, LoopOutcome, RunResult


class ExpertTeamCoordinator:
    """Plans, lets members work in parallel, has every result reviewed, and sends it back with all feedback.

    `planner` makes the plan (without one it is deterministic). `evaluator` reviews (an agent, or a strategy such as a
    rubric, which is the default), `judge` in its place where the risk is HIGH. When all attempts at a step are used up,
    or no review was possible: `senior` tries once; a hand-off is announced; `arbiter` decides, if there is one; else
    LOW risk keeps the best attempt as DEGRADED, MEDIUM and HIGH fail the step. See `TeamCoordinator` for everything it
    promises.
    """

    def __init__(
        self,
        *,
        planner: Agent | None = None,
        evaluator: Agent | EvaluationStrategy | None = None,
        judge: Agent | EvaluationStrategy | None = None,
        senior: Agent | None = None,
        arbiter: Agent | EvaluationStrategy | None = None,
    ) -> None:
        for name, agent in (("planner", planner), ("senior", senior)):
            if agent is not None:
                check_kind(f"ExpertTeamCoordinator.{name}", agent, Agent)
        reviewer = _as_strategy("evaluator", evaluator)
        self.planner = planner
        self.evaluator: EvaluationStrategy = SimpleEvaluationStrategy() if reviewer is None else reviewer
        # An agent that reviews everything needs no other one for a high risk.
        self.judge = reviewer if judge is None and isinstance(evaluator, Agent) else _as_strategy("judge", judge)
        self.senior = senior
        self.arbiter = _as_strategy("arbiter", arbiter)
        self._mailboxes = Mailboxes()
        self._live: list[PlanRun] = []

    async def execute(self, request: TeamExecutionRequest, team: TeamRun | Team) -> TeamResult:
        """Carry out the request; with `plan_only`, make the plan and pause."""
        evaluator, warning = choose_evaluator(request.config, simple=self.evaluator, judge=self.judge)
        if request.config.resource_constraint.max_cost is not None:
            judges = [one.agent for one in (evaluator, self.arbiter) if isinstance(one, AgentEvaluationStrategy)]
            for agent in (self.planner, self.senior, *judges):
                if agent is not None:
                    find_price(agent.config, agent.config.model, needed=True)
        perform, name = partial(self._perform, evaluator), type(self).__name__
        plan = PlanRun(request, team, perform, name=name, planner=self.planner, mailboxes=self._mailboxes)
        plan.warnings += [] if warning is None else [warning]
        self._live.append(plan)
        try:
            return await plan.carry_out()
        finally:
            self._live.remove(plan)

    async def confirm(
        self,
        result: TeamResult,
        team: Team,
        *,
        plan: TeamExecutionPlan | None = None,
        cancel: CancelToken | None = None,
    ) -> TeamResult:
        """Carry out the plan of a `plan_only` request, or `plan` instead."""
        return await team.resume(result, plan=plan, coordinator=self, cancel=cancel)

    def steer(self, request_id: str, step_id: str, text: str) -> bool:
        """Send a note to a step: the running member gets it after its turn, later attempts from the start.

        False when the request is not in flight here, or the step has ended.
        """
        check_text("text", text)
        return any(plan.steer(step_id, text) for plan in self._find_running_plans(request_id, step_id))

    def stop_step(self, request_id: str, step_id: str, reason: str = "a person stopped it") -> bool:
        """Stop one step; its dependents follow `dependency_failure`. False if it does not exist or has ended."""
        check_text("reason", reason)
        return any(plan.stop_step(step_id, reason) for plan in self._find_running_plans(request_id, step_id))

    def _find_running_plans(self, request_id: str, step_id: str) -> list[PlanRun]:
        check_name("request_id", request_id)
        check_name("step_id", step_id)
        return [plan for plan in self._live if plan.request.id == request_id]

    # --- the ladder of one step: attempts and reviews, the senior, the arbiter, then what the risk allows -----------

    async def _perform(self, evaluator: EvaluationStrategy, plan: PlanRun, step: StepRun) -> StepOutcome:
        rounds = plan.config.max_feedback_rounds
        if step.accepted:
            return step.outcome(StepState.COMPLETED)
        with_senior = step.senior_asked or step.begun_senior or step.paused_senior
        while step.unreviewed or (step.attempts < rounds and not with_senior):
            answer = await _run_round(plan, step, evaluator)
            if isinstance(answer, StepOutcome):
                return answer
            if answer.passed:
                return step.outcome(StepState.COMPLETED)
            if plan.closing is not None:
                return step.outcome(StepState.CANCELLED, plan.closing[1])
            if answer.outcome is VerdictOutcome.REVIEW_EXCEEDED or step.out_of_budget:
                break
        return await self._escalate(plan, step, evaluator)

    async def _escalate(self, plan: PlanRun, step: StepRun, evaluator: EvaluationStrategy) -> StepOutcome:
        plan.move(step, StepState.ESCALATED)
        reason = step.verdicts[-1].feedback if step.verdicts else "no attempt is left"
        if self.senior is not None and not (step.senior_asked or step.expired or step.out_of_budget):
            step.senior_asked = True
            _hand_off(plan, step, "senior", reason)
            answer = await _run_round(plan, step, evaluator, self.senior)
            if isinstance(answer, StepOutcome):
                return answer
            if answer.passed:
                step.warnings.append("accepted only from the senior")
                return step.outcome(StepState.COMPLETED)
            plan.move(step, StepState.ESCALATED)
            reason = answer.feedback
        if step.paused_senior:
            step.warnings.append("the senior's attempt waits for a person, but there is no senior to continue it")
        arbiter = self.arbiter if step.best.strip() else None
        _hand_off(plan, step, "person" if arbiter is None else "arbiter", reason)
        if arbiter is not None:
            reviewed = await _review(plan, step, arbiter, arbiter=True)
            ended = plan.cut_short(step)
            if ended is not None:
                return ended
            if not reviewed.interrupted:
                step.judged(reviewed.verdict, arbiter=True)
            if reviewed.verdict.passed:
                step.warnings.append("accepted by the arbiter")
                return step.outcome(StepState.COMPLETED, output=step.best)
            if reviewed.verdict.outcome is VerdictOutcome.REVISE:
                return step.outcome(StepState.FAILED, f"the arbiter rejected it: {reviewed.verdict.feedback}")
        return plan.given_up(step, reason)


async def _run_round(
    plan: PlanRun, step: StepRun, evaluator: EvaluationStrategy, agent: Agent | None = None
) -> EvaluationVerdict | StepOutcome:
    """One attempt and its review: a verdict, or how the step ended."""
    verdict: EvaluationVerdict | None = None
    if not step.unreviewed:
        plan.move(step, StepState.IN_FLIGHT)
        result = await plan.attempt(step, agent)
        ended = plan.cut_short(step, result)
        if ended is not None:
            return ended
        verdict = _judge_without_review(step, result)
    if verdict is None:
        verdict = (await _review(plan, step, evaluator)).verdict
        ended = plan.cut_short(step)
        if ended is not None:
            return ended
    step.judged(verdict)
    return verdict


async def _review(plan: PlanRun, step: StepRun, strategy: EvaluationStrategy, *, arbiter: bool = False) -> Review:
    team = plan.team
    plan.move(step, StepState.EVALUATING)
    name, attempt = type(strategy).__name__, max(1, step.attempts)
    team.emit(EvaluationStarted(step_id=step.id, attempt=attempt, evaluator=name, arbiter=arbiter))
    cancel, let_go = link_tokens(team.cancel)
    context = EvaluationContext(
        step=step.task,
        artifact=step.best if arbiter else step.artifact,
        attempt=attempt,
        prior_verdicts=tuple(step.verdicts),
        config=plan.config,
        goal=plan.request.goal,
        ask=lambda agent, prompt: team.ask(agent, prompt, cancel=cancel),
    )
    seconds = plan.config.evaluator_timeout
    try:
        found = await review(
            strategy,
            context,
            seconds=seconds if arbiter else min(seconds, max(step.time_left(), 0.001)),
            stop=plan.stopping if arbiter else step.interrupted,
            on_stop=lambda: cancel.cancel("the review has to stop"),
        )
    finally:
        let_go()
    if not arbiter:
        found = _apply_review(plan, step, found)
    step.spend(found.usage, found.cost)
    if found.warning is not None:
        step.warnings.append(found.warning)
    team.emit(
        EvaluationResult(
            step_id=step.id,
            attempt=attempt,
            evaluator=name,
            verdict=found.verdict,
            arbiter=arbiter,
            usage=found.usage,
            cost=found.cost,
        )
    )
    return found


def _apply_review(plan: PlanRun, step: StepRun, found: Review) -> Review:
    """The review as it counts: nothing passes out of time, or before a new note from a person was heard."""
    verdict = found.verdict
    if step.expired and step.stopped is None and plan.halted is None:
        return replace(found, verdict=make_refusal("the step's time is up", exceeded=True), warning=None)
    if verdict.passed and step.inbox and step.attempts < plan.config.max_feedback_rounds:
        said = "it passed, but the person in charge has said something since: see the notes"
        revise = replace(verdict, outcome=VerdictOutcome.REVISE, feedback=said)
        return replace(found, verdict=revise, warning=None)
    return found


def _hand_off(plan: PlanRun, step: StepRun, to: str, reason: str) -> None:
    attempt = max(1, step.attempts)
    plan.team.emit(Handoff(step_id=step.id, attempt=attempt, to=to, reason=reason, artifact=step.best))


def _as_strategy(name: str, given: Agent | EvaluationStrategy | None) -> EvaluationStrategy | None:
    if isinstance(given, Agent):
        return AgentEvaluationStrategy(given)
    if given is not None and (isinstance(given, type) or not callable(getattr(given, "evaluate", None))):
        raise ConfigurationError(
            f"ExpertTeamCoordinator.{name} must be an agent, or have a method evaluate(context), not {given!r:.80}"
        )
    return given


def _judge_without_review(step: StepRun, result: RunResult) -> EvaluationVerdict | None:
    """The coordinator's own verdict on an attempt that needs no review; None when it does."""
    if step.expired:
        return make_refusal("the step's time is up", exceeded=True)
    if not step.artifact.strip():
        return make_refusal(explain_end(result))
    if result.outcome is LoopOutcome.WRAPPED_UP and result.state is not AgentState.COMPLETED:
        step.warnings.append(explain_end(result))
    return None
