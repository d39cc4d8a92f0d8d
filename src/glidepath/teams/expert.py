"""Plan, generate, evaluate: every step is reviewed, and what is not accepted climbs a ladder."""

from __future__ import annotations

from collections.abc import Callable

from glidepath._wire import replace
from glidepath.agent import Agent
from glidepath.agent.prices import find_price
from glidepath.errors import ConfigurationError
from glidepath.outcome import AgentState, LoopOutcome, RunResult
from glidepath.run import CancelToken
from glidepath.teams.evaluate import (
    AgentEvaluationStrategy,
    Review,
    SimpleEvaluationStrategy,
    choose_evaluator,
    review,
)
from glidepath.teams.events import EvaluationResult, EvaluationStarted, Handoff, StepSteered
from glidepath.teams.execution import Body, Execution, conduct
from glidepath.teams.journal import add_cost
from glidepath.teams.mailbox import Mailboxes
from glidepath.teams.spi import EvaluationStrategy
from glidepath.teams.step_run import StepRun, refused, why
from glidepath.teams.team import Member, Team
from glidepath.teams.team_run import linked
from glidepath.teams.values import (
    EvaluationContext,
    EvaluationVerdict,
    RiskProfile,
    StepOutcome,
    StepState,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    TeamStep,
    VerdictOutcome,
    check_name,
    check_text,
)

__all__ = ["ExpertTeamCoordinator"]


class ExpertTeamCoordinator:
    """Plans, lets members work in parallel, has every result reviewed, and sends it back with all that was said.

    `planner` makes the plan (without one it is deterministic). `evaluator` is the rubric, `judge` the reviewer for HIGH
    risk (an agent or a strategy). When all attempts at a step are used up, or no review could be had: `senior` tries
    once; a hand-off is announced; `arbiter` decides, if there is one; else LOW risk keeps the best attempt as DEGRADED,
    MEDIUM and HIGH fail the step. See `TeamCoordinator` for everything it promises.
    """

    def __init__(
        self,
        *,
        planner: Agent | None = None,
        evaluator: EvaluationStrategy | None = None,
        judge: Agent | EvaluationStrategy | None = None,
        senior: Agent | None = None,
        arbiter: EvaluationStrategy | None = None,
    ) -> None:
        for name, agent in (("planner", planner), ("senior", senior)):
            if agent is not None and not isinstance(agent, Agent):
                raise ConfigurationError(f"ExpertTeamCoordinator.{name} must be an Agent, not {agent!r:.80}")
        strategy = AgentEvaluationStrategy(judge) if isinstance(judge, Agent) else judge
        for name, given in (("evaluator", evaluator), ("judge", strategy), ("arbiter", arbiter)):
            if given is not None and (isinstance(given, type) or not callable(getattr(given, "evaluate", None))):
                raise ConfigurationError(
                    f"ExpertTeamCoordinator.{name} must have a method evaluate(context), not {given!r:.80}"
                )
        self.planner = planner
        self.evaluator: EvaluationStrategy = evaluator if evaluator is not None else SimpleEvaluationStrategy()
        self.judge = strategy
        self.senior = senior
        self.arbiter = arbiter
        self._mailboxes = Mailboxes()
        self._live: list[tuple[str, _Expert]] = []

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Carry out the request; with `plan_only`, make the plan and pause."""
        chosen = choose_evaluator(request.config, simple=self.evaluator, judge=self.judge)
        if request.config.resource_constraint.max_cost is not None:
            for agent in (self.planner, self.senior, *_agents_of(chosen[0], self.arbiter)):
                if agent is not None:
                    find_price(agent.config, agent.config.model, needed=True)
        live: list[tuple[str, _Expert]] = []

        def start(execution: Execution) -> Body:
            expert = _Expert(self, execution, *chosen)
            live.append((request.id, expert))
            self._live.append(live[0])
            return expert.run

        try:
            return await conduct(request, team, type(self).__name__, start, self._mailboxes)
        finally:
            if live:
                self._live.remove(live[0])

    async def confirm(
        self,
        result: TeamResult,
        team: Team,
        *,
        plan: TeamExecutionPlan | None = None,
        cancel: CancelToken | None = None,
    ) -> TeamResult:
        """Carry out the plan of a `plan_only` request, or another one in its place."""
        return await team.resume(result, plan=plan, coordinator=self, cancel=cancel)

    def steer(self, request_id: str, step_id: str, text: str) -> bool:
        """Tell a step something: the running member hears it after its turn, later attempts from the start.

        False when the request is not in flight here, or the step has ended.
        """
        check_text("text", text)
        return self._reach(request_id, step_id, lambda expert, seat: expert.steer(seat, text))

    def stop_step(self, request_id: str, step_id: str, reason: str = "a person stopped it") -> bool:
        """Stop one step; its dependents follow `dependency_failure`. False when it is not there or has ended."""
        check_text("reason", reason)
        return self._reach(request_id, step_id, lambda expert, seat: expert.stop(seat, reason))

    def _reach(self, request_id: str, step_id: str, act: Callable[[_Expert, StepRun], None]) -> bool:
        check_name("request_id", request_id)
        check_name("step_id", step_id)
        live = [expert for live_id, expert in self._live if live_id == request_id]
        return any(expert.reach(step_id, act) for expert in live)


def _agents_of(*strategies: EvaluationStrategy | None) -> list[Agent]:
    return [strategy.agent for strategy in strategies if isinstance(strategy, AgentEvaluationStrategy)]


class _Expert:
    """One execution of an expert team."""

    def __init__(
        self,
        coordinator: ExpertTeamCoordinator,
        execution: Execution,
        evaluator: EvaluationStrategy,
        warning: str | None,
    ) -> None:
        self._parts = coordinator
        self._execution = execution
        self._evaluator = evaluator
        if warning is not None:
            execution.warnings.append(warning)

    async def run(self) -> None:
        if await self._execution.plan(self._parts.planner):
            await self._execution.work(self._perform, self._pick)

    def _pick(self, step: TeamStep) -> Member | None:
        """Who can do it and has the least to do, in the order of the team."""
        seats = self._execution.seats.values()
        busy = [seat.member.name for seat in seats if seat.member is not None and self._at_work(seat)]
        return min(self._execution.candidates(step), key=lambda member: busy.count(member.name))

    def _at_work(self, seat: StepRun) -> bool:
        board = self._execution.board
        state = board.states[seat.step.id] if board is not None else StepState.PENDING
        return state in (StepState.IN_FLIGHT, StepState.EVALUATING, StepState.ESCALATED)

    # --- a person's hand ----------------------------------------------------------------------------------------

    def reach(self, step_id: str, act: Callable[[_Expert, StepRun], None]) -> bool:
        board = self._execution.board
        if board is None or step_id not in board.states or board.states[step_id].terminal:
            return False
        act(self, self._execution.seat(board.plan.step(step_id)))
        return True

    def steer(self, seat: StepRun, text: str) -> None:
        seat.notes.append(text)
        seat.inbox.append(text)
        self._say(seat, "steer", text)
        board = self._execution.board
        if board is not None and board.states[seat.step.id] is StepState.WAITING:
            board.outcomes[seat.step.id] = replace(board.outcomes[seat.step.id], notes=tuple(seat.notes))

    def stop(self, seat: StepRun, reason: str) -> None:
        self._say(seat, "stop", reason)
        seat.stop(reason)
        self._execution.close_idle(seat)

    def _say(self, seat: StepRun, action: str, text: str) -> None:
        event = StepSteered(step_id=seat.step.id, attempt=seat.attempts or None, action=action, text=text)
        self._execution.team.emit(event)

    # --- one step -----------------------------------------------------------------------------------------------

    async def _perform(self, seat: StepRun) -> StepOutcome | None:
        rounds = self._execution.config.max_feedback_rounds
        if seat.accepted:
            return seat.outcome(StepState.COMPLETED, output=seat.artifact)
        with_senior = seat.senior_asked or seat.begun_senior or seat.paused_senior
        while seat.unreviewed or (seat.attempts < rounds and not with_senior):
            answer = await self._round(seat)
            if isinstance(answer, StepOutcome):
                return answer
            if answer.passed:
                return seat.outcome(StepState.COMPLETED, output=seat.artifact)
            if self._execution.closing is not None:
                return seat.outcome(StepState.CANCELLED, self._execution.closing[1])
            if answer.outcome is VerdictOutcome.REVIEW_EXCEEDED or seat.broke:
                break
        return await self._escalate(seat)

    async def _round(self, seat: StepRun, agent: Agent | None = None) -> EvaluationVerdict | StepOutcome:
        """One attempt and its review: a verdict, or how the step ended."""
        execution = self._execution
        verdict: EvaluationVerdict | None = None
        if not seat.unreviewed:
            self._move(seat, StepState.IN_FLIGHT)
            result = await execution.attempt(seat, agent)
            cut = execution.cut_short(seat, result)
            if cut is not None:
                return cut
            verdict = _own_verdict(seat, result)
        if verdict is None:
            reviewed = await self._review(seat, self._evaluator)
            cut = execution.cut_short(seat)
            if cut is not None:
                return cut
            verdict = reviewed.verdict
        seat.judged(verdict)
        return verdict

    async def _review(self, seat: StepRun, strategy: EvaluationStrategy, *, arbiter: bool = False) -> Review:
        execution, team = self._execution, self._execution.team
        self._move(seat, StepState.EVALUATING)
        name, attempt = type(strategy).__name__, max(1, seat.attempts)
        artifact = seat.best if arbiter else seat.artifact
        team.emit(EvaluationStarted(step_id=seat.step.id, attempt=attempt, evaluator=name, arbiter=arbiter))
        cancel, let_go = linked(team.cancel)
        context = EvaluationContext(
            step=seat.step,
            artifact=artifact,
            attempt=attempt,
            prior_verdicts=tuple(seat.verdicts),
            config=execution.config,
            goal=execution.request.goal,
            ask=lambda agent, prompt: team.ask(agent, prompt, cancel=cancel),
        )
        seconds = execution.config.evaluator_timeout
        try:
            found = await review(
                strategy,
                context,
                seconds=seconds if arbiter else min(seconds, max(seat.time_left(), 0.001)),
                stop=execution.stopping if arbiter else seat.interrupted,
                on_stop=lambda: cancel.cancel("the review has to stop"),
            )
        finally:
            let_go()
        if not arbiter:
            found = self._taken(seat, found)
        seat.usage, seat.cost = seat.usage + found.usage, add_cost(seat.cost, found.cost)
        if found.warning is not None:
            seat.warnings.append(found.warning)
        team.emit(
            EvaluationResult(
                step_id=seat.step.id,
                attempt=attempt,
                evaluator=name,
                verdict=found.verdict,
                arbiter=arbiter,
                usage=found.usage,
                cost=found.cost,
            )
        )
        return found

    def _taken(self, seat: StepRun, found: Review) -> Review:
        """The review as it counts: out of time does not pass, and a person who spoke meanwhile is to be heard."""
        verdict = found.verdict
        if seat.expired and seat.stopped is None and self._execution.halted is None:
            return replace(found, verdict=refused("the step's time is up", exceeded=True), warning=None)
        if verdict.passed and seat.inbox and seat.attempts < self._execution.config.max_feedback_rounds:
            said = "it passed, but the person in charge has said something since: see the notes"
            revise = replace(verdict, outcome=VerdictOutcome.REVISE, feedback=said)
            return replace(found, verdict=revise, warning=None)
        return found

    # --- the ladder ---------------------------------------------------------------------------------------------

    async def _escalate(self, seat: StepRun) -> StepOutcome:
        execution, parts = self._execution, self._parts
        self._move(seat, StepState.ESCALATED)
        reason = seat.verdicts[-1].feedback if seat.verdicts else "no attempt is left"
        if parts.senior is not None and not (seat.senior_asked or seat.expired or seat.broke):
            seat.senior_asked = True
            self._hand_off(seat, "senior", reason)
            answer = await self._round(seat, parts.senior)
            if isinstance(answer, StepOutcome):
                return answer
            if answer.passed:
                seat.warnings.append("accepted only from the senior")
                return seat.outcome(StepState.COMPLETED, output=seat.artifact)
            self._move(seat, StepState.ESCALATED)
            reason = answer.feedback
        if seat.paused_senior:
            seat.warnings.append("the senior's attempt waits for a person, and no senior is there to continue with it")
        arbiter = parts.arbiter if seat.best.strip() else None
        self._hand_off(seat, "person" if arbiter is None else "arbiter", reason)
        if arbiter is not None:
            reviewed = await self._review(seat, arbiter, arbiter=True)
            cut = execution.cut_short(seat)
            if cut is not None:
                return cut
            if not reviewed.interrupted:
                seat.verdicts.append(reviewed.verdict)
            if reviewed.verdict.passed:
                seat.warnings.append("accepted by the arbiter")
                return seat.outcome(StepState.COMPLETED)
            if reviewed.verdict.outcome is VerdictOutcome.REVISE:
                return seat.outcome(StepState.FAILED, f"the arbiter rejected it: {reviewed.verdict.feedback}")
        usable = execution.config.risk_profile is RiskProfile.LOW and seat.best.strip()
        return seat.outcome(StepState.DEGRADED if usable else StepState.FAILED, reason)

    def _hand_off(self, seat: StepRun, to: str, reason: str) -> None:
        event = Handoff(step_id=seat.step.id, attempt=max(1, seat.attempts), to=to, reason=reason, artifact=seat.best)
        self._execution.team.emit(event)

    def _move(self, seat: StepRun, state: StepState) -> None:
        board = self._execution.board
        assert board is not None  # noqa: S101 - planned
        if board.states[seat.step.id] is not state:
            board.move(seat.step.id, state)


def _own_verdict(seat: StepRun, result: RunResult) -> EvaluationVerdict | None:
    """The coordinator's own verdict on an attempt that needs no review; None when it does."""
    if seat.expired:
        return refused("the step's time is up", exceeded=True)
    if not seat.artifact.strip():
        return refused(why(result))
    if result.outcome is LoopOutcome.WRAPPED_UP and result.state is not AgentState.COMPLETED:
        seat.warnings.append(why(result))
    return None
