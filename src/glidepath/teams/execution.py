"""One execution, from TEAM_STARTED to its one terminal event: what all our coordinators have in common."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from glidepath._wire import replace
from glidepath.agent import Agent
from glidepath.errors import told
from glidepath.outcome import LoopOutcome, RunResult
from glidepath.teams.accounts import attempt_session
from glidepath.teams.events import PlanReady, StepAssigned, StepAttempted, StepCompleted, TeamStarted, ending
from glidepath.teams.journal import less
from glidepath.teams.mailbox import Mailboxes
from glidepath.teams.planner import PlanningFailed, candidates, check_going_on, make_plan
from glidepath.teams.step_run import StepRun
from glidepath.teams.step_table import StepTable
from glidepath.teams.supervise import wait_for_all
from glidepath.teams.team import Member, Team
from glidepath.teams.team_prompts import step_prompt
from glidepath.teams.team_run import linked, newly_spent
from glidepath.teams.values import (
    StepOutcome,
    StepState,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    TeamStatus,
    TeamStep,
)
from glidepath.tools.text import clean

__all__ = ["Execution", "conduct"]

Body: TypeAlias = Callable[[], Awaitable[None]]
Start: TypeAlias = Callable[["Execution"], Body]
Perform: TypeAlias = Callable[[StepRun], Awaitable[StepOutcome | None]]
Pick: TypeAlias = Callable[[TeamStep], Member | None]
PATIENCE = 5.0
LANDING = 20.0


async def conduct(
    request: TeamExecutionRequest, team: Team, name: str, start: Start, mailboxes: Mailboxes | None = None
) -> TeamResult:
    """Carry out an execution; lets go of the team when it was bound here. With `mailboxes` its steps can be steered."""
    bound = await team.bound(request)
    try:
        check_going_on(bound)
        execution = Execution(request, bound, name, mailboxes)
        return await execution.conduct(start(execution))
    finally:
        if bound is not team:
            await bound.close()


class Execution:
    """The live state of one execution. The only thing that is mutable here."""

    def __init__(
        self, request: TeamExecutionRequest, team: Team, coordinator: str, mailboxes: Mailboxes | None
    ) -> None:
        self.request = request
        self.config = request.config
        self.team = team
        self.coordinator = coordinator
        self._mailboxes = mailboxes
        self.board: StepTable | None = None
        self.seats: dict[str, StepRun] = {}
        self.warnings: list[str] = []
        self.closing: tuple[TeamStatus, str] | None = None
        """Nothing new is begun any more, and how the team ends if that cuts something short."""
        self.halted: tuple[TeamStatus, str] | None = None
        self.stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.team.bond.channel.on_failure = self._journal_failed

    # --- from beginning to end ----------------------------------------------------------------------------------

    async def conduct(self, body: Body) -> TeamResult:
        """Announce, do, clean up, conclude, announce."""
        team = self.team
        names = tuple(member.name for member in team.members)
        team.emit(
            TeamStarted(
                request=self.request, coordinator=self.coordinator, members=names, resumed=team.past is not None
            )
        )
        timers = self._start_clock()
        team.cancel.subscribe(self._hear)
        cancelled: asyncio.CancelledError | None = None
        try:
            await body()
        except asyncio.CancelledError as stop:
            cancelled = stop
            self.halt(TeamStatus.CANCELLED, "the caller's task was cancelled")
        except PlanningFailed as failed:
            self.halt(*(self.closing or (TeamStatus.FAILED, str(failed))))
        except Exception as defect:
            self.halt(TeamStatus.FAILED, f"internal: {told(defect)}")
        finally:
            for timer in timers:
                timer.cancel()
            team.cancel.unsubscribe(self._hear)
        await self._drain()
        result = self._conclude()
        team.emit(ending(result))
        if cancelled is not None:
            raise cancelled
        return result

    def _start_clock(self) -> tuple[asyncio.TimerHandle, ...]:
        """Shortly before the team's time is up its members land, and nothing new is begun."""
        deadline, limit = self.team.bond.deadline, self.config.time_limit
        landing = min(LANDING, limit / 4)
        return (
            self._loop.call_at(deadline - landing, self._close_down, TeamStatus.TIMEOUT, "the team's time is up"),
            self._loop.call_at(deadline, self.halt, TeamStatus.TIMEOUT, "the team's time is up"),
        )

    def _close_down(self, status: TeamStatus, reason: str) -> None:
        """Let what is running deliver, and begin nothing new."""
        if self.closing is None:
            self.closing = (status, clean(reason))
        self._changed.set()

    def _hear(self, what: str, reason: str) -> None:
        """The team's token spoke, from whatever thread."""
        if threading.get_ident() == self._thread:
            self._heard(what, reason)
            return
        try:
            self._loop.call_soon_threadsafe(self._heard, what, reason)
        except RuntimeError:  # the loop is closed: there is nothing left to stop
            return

    def _heard(self, what: str, reason: str) -> None:
        if what == "cancel":
            self.halt(TeamStatus.CANCELLED, reason or "cancelled")
        else:
            self._close_down(TeamStatus.CANCELLED, reason or "asked to finish up")

    def _journal_failed(self, why: str) -> None:
        """What is not on record is not done."""
        self.halt(TeamStatus.FAILED, f"the journal cannot be written: {why}")

    def halt(self, status: TeamStatus, reason: str) -> None:
        """Stop everything; the first reason counts."""
        reason = clean(reason)
        if self.halted is None:
            self.halted = (status, reason)
            self.stopping.set_result(None)
        for seat in self.seats.values():
            seat.interrupt(reason)
        self._changed.set()

    async def _drain(self) -> None:
        """Nothing of this execution is at work afterwards."""
        if self._tasks:
            for seat in self.seats.values():
                seat.interrupt("the team has ended")
            tasks = tuple(self._tasks.values())
            await wait_for_all(tasks, PATIENCE)
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
            if late:
                await wait_for_all(late, PATIENCE)
        for seat in self.seats.values():
            seat.close()

    def _conclude(self) -> TeamResult:
        team, board = self.team, self.board
        if self.halted is not None and (board is None or self._close_open_steps(self.halted[1])):
            status, reason = self.halted
        elif board is None or self.request.plan_only:
            status, reason = TeamStatus.PAUSED, "the plan waits for confirmation"
        elif self.closing is not None and self._close_open_steps(self.closing[1]):
            status, reason = self.closing
        else:
            status = board.status()
            reason = _reason(board, status)
        usage, cost = team.spent
        warnings = [*self.warnings, *team.bond.channel.warnings]
        if board is not None:
            for outcome in board.outcomes_in_order():
                warnings += [f"step {outcome.step_id}: {warning}" for warning in outcome.warnings]
        return TeamResult(
            request=self.request,
            team=team.name,
            status=status,
            plan=None if board is None else board.plan,
            step_outcomes=() if board is None else board.outcomes_in_order(),
            final_output="" if board is None else board.final_output(),
            reason=reason,
            duration=team.bond.elapsed,
            warnings=tuple(dict.fromkeys(warnings)),
            usage=usage,
            cost=cost,
            sequence=team.bond.channel.sequence + 1,
        )

    def _close_open_steps(self, reason: str) -> bool:
        """Close what the end of the team left open; True when something was cut short by it."""
        board = self.board
        if board is None:
            return True
        for step in board.plan.steps:
            if not board.states[step.id].terminal:
                known = board.outcomes.get(step.id)
                outcome = StepOutcome(step_id=step.id, state=StepState.CANCELLED, reason=reason)
                if known is not None:
                    outcome = replace(known, state=StepState.CANCELLED, reason=reason, pending=(), paused=None)
                board.close(outcome)
        return StepState.CANCELLED in board.states.values()

    # --- planning -----------------------------------------------------------------------------------------------

    async def plan(self, planner: Agent | None) -> bool:
        """Make the plan, or take over that of an earlier execution; False when there is nothing to carry out."""
        past = self.team.past
        plan = past.plan if past is not None else None
        if plan is None or (past is not None and past.result is not None and past.result.plan != plan):
            before = self.team.spent
            cancel, let_go = linked(self.team.cancel)
            timer = self._loop.call_later(self.config.step_timeout, cancel.cancel, "planning took too long")
            try:
                request = self.request if plan is None else replace(self.request, plan=plan)
                plan, warning = await make_plan(request, self.team, planner, cancel)
            finally:
                timer.cancel()
                let_go()
            if warning is not None:
                self.warnings.append(warning)
            if self.halted is not None:
                return False
            usage, cost = less(self.team.spent, before)
            self.team.emit(PlanReady(plan=plan, usage=usage, cost=cost))
        self._set_up(plan)
        return not self.request.plan_only and self.halted is None

    def _set_up(self, plan: TeamExecutionPlan) -> None:
        self.board = StepTable(plan, self.config.dependency_failure)
        past = self.team.past
        if past is not None:
            known = {step.id for step in plan.steps}
            for outcome in past.outcomes:
                if outcome.step_id in known:
                    self.board.restore(outcome)

    # --- dispatch -----------------------------------------------------------------------------------------------

    async def work(self, perform: Perform, pick: Pick) -> None:
        """Run whatever is ready, as many at once as allowed, until nothing can continue."""
        assert self.board is not None  # noqa: S101 - planned
        most = self.config.resource_constraint.max_parallel_steps
        while self.halted is None:
            self._skip_blocked()
            self._changed.clear()
            if self.closing is None:
                for step in self.board.ready():
                    if most is not None and len(self._tasks) >= most:
                        break
                    member = pick(step)
                    if member is not None:
                        self._start(step, member, perform)
            if not self._tasks:
                return
            await self._changed.wait()

    def _skip_blocked(self) -> None:
        board = self.board
        assert board is not None  # noqa: S101 - planned
        while blocked := board.blocked():
            for step, to_blame in blocked:
                reason = f"step {to_blame} did not deliver"
                self._close(StepOutcome(step_id=step.id, state=StepState.SKIPPED, reason=reason))

    def seat(self, step: TeamStep) -> StepRun:
        """The seat of a step; made when it is first needed."""
        seat = self.seats.get(step.id)
        if seat is None:
            past = self.team.past
            seat = StepRun(step, self.team.cancel, past.steps.get(step.id) if past is not None else None)
            self.seats[step.id] = seat
        return seat

    def candidates(self, step: TeamStep) -> list[Member]:
        """Who may do a step now. An interrupted attempt continues with the member who began it, if there is one."""
        able = candidates(step, self.team.members)
        seat = self.seat(step)
        if not seat.begun:
            same = [member for member in able if seat.paused is not None and member.name == seat.paused_by]
            return same or able
        same = [member for member in able if member.name == seat.begun_by]
        if not same:
            cut = f"attempt {seat.begun} was cut off"
            seat.warnings.append(f"{cut}, and {seat.begun_by} cannot continue with it: its effects are unknown")
            seat.begun = 0
        return same or able

    def _start(self, step: TeamStep, member: Member, perform: Perform) -> None:
        assert self.board is not None  # noqa: S101 - planned
        seat = self.seat(step)
        seat.member = member
        self.board.move(step.id, StepState.IN_FLIGHT)
        self._tasks[step.id] = self._loop.create_task(self._step(seat, perform), name=f"team step {step.id}")

    async def _step(self, seat: StepRun, perform: Perform) -> None:
        board = self.board
        assert board is not None  # noqa: S101 - planned
        if self._mailboxes is not None:
            self._mailboxes.open(seat.inbox)
        try:
            seat.start_clock(self.config.step_timeout)
            outcome = self.cut_short(seat) or await perform(seat)
            if outcome is None:
                board.move(seat.step.id, StepState.PENDING)
            else:
                self._close(outcome)
        except asyncio.CancelledError:
            self._close(seat.outcome(StepState.CANCELLED, "did not stop in time"))
        except BaseException as defect:
            if not board.states[seat.step.id].terminal:
                self._close(seat.outcome(StepState.FAILED, f"internal: {told(defect)}"))
            if isinstance(defect, KeyboardInterrupt):
                raise
        finally:
            if self._mailboxes is not None:
                self._mailboxes.close()
            self._tasks.pop(seat.step.id, None)
            if board.states[seat.step.id].terminal:
                seat.close()
            self._changed.set()

    def _close(self, outcome: StepOutcome) -> None:
        assert self.board is not None  # noqa: S101 - planned
        self.board.close(outcome)
        if outcome.state is not StepState.WAITING:
            self.team.emit(StepCompleted(step_id=outcome.step_id, attempt=outcome.attempts or None, outcome=outcome))

    def close_idle(self, seat: StepRun) -> None:
        """Close a step that was stopped while nobody worked on it."""
        if seat.step.id not in self._tasks:
            self._close(seat.outcome(StepState.SKIPPED, f"stopped: {seat.stopped}"))
            self._changed.set()

    # --- one attempt --------------------------------------------------------------------------------------------

    async def attempt(self, seat: StepRun, agent: Agent | None = None) -> RunResult:
        """Let the member (or a senior) work on the step once; the seat takes in what came of it."""
        team, board, step, member = self.team, self.board, seat.step, seat.member
        assert board is not None and member is not None  # noqa: S101, PT018 - planned and assigned
        senior = agent is not None
        upstream = [board.outcomes[name] for name in step.depends_on if name in board.outcomes]
        prompt = step_prompt(self.request, step, upstream, seat.verdicts, seat.artifact or seat.best, seat.notes)
        seat.attempts, seat.senior = seat.attempts + 1, senior
        attempt = seat.attempts
        team.emit(StepAssigned(step_id=step.id, attempt=attempt, member=member.name, senior=senior))
        worker = member.agent if agent is None else agent
        if self._mailboxes is not None:
            worker = self._mailboxes.steerable(worker)
        paused = seat.paused if senior is seat.paused_senior else None
        session = attempt_session(self.request.id, step.id, attempt, member.name, senior=senior)
        begun, seat.begun = seat.begun == attempt, 0
        if paused is None:
            seat.inbox.clear()  # the prompt has it
        result = await team.ask(worker, prompt, cancel=seat.token, paused=paused, session=session, begun=begun)
        usage, cost = newly_spent(result, paused)
        artifact = seat.take(result, usage, cost)
        team.emit(
            StepAttempted(
                step_id=step.id,
                attempt=attempt,
                member=member.name,
                member_run_id=result.run_id,
                state=result.state.name,
                outcome=result.outcome.name,
                artifact=artifact,
                usage=usage,
                cost=cost,
                senior=senior,
                origins=result.origins,
            )
        )
        return result

    def cut_short(self, seat: StepRun, result: RunResult | None = None) -> StepOutcome | None:
        """How the step ends when it may not continue: stopped, cancelled, waiting for a person; None when it may."""
        if seat.stopped is not None:
            return seat.outcome(StepState.SKIPPED, f"stopped: {seat.stopped}")
        if self.halted is not None:
            return seat.outcome(StepState.CANCELLED, self.halted[1])
        if self.closing is not None and result is not None and not seat.artifact.strip():
            return seat.outcome(StepState.CANCELLED, self.closing[1])
        if result is not None and result.outcome is LoopOutcome.PAUSED:
            return seat.outcome(StepState.WAITING, "waits for a person", seat.best or result.text)
        return None


def _reason(board: StepTable, status: TeamStatus) -> str:
    if status is TeamStatus.COMPLETED:
        return ""
    waiting = board.in_state(StepState.WAITING)
    if waiting:
        return f"waits for a person: {', '.join(step.id for step in waiting)}"
    lost = [outcome for outcome in board.outcomes_in_order() if outcome.state is not StepState.COMPLETED]
    return "; ".join(f"step {outcome.step_id} {outcome.state.value}: {outcome.reason}" for outcome in lost[:5])
