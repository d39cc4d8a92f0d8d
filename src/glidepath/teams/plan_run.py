"""Runs a plan from TEAM_STARTED to the one terminal event: what all coordinators share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from glidepath._wire import replace
from glidepath.agent import Agent
from glidepath.run import link_tokens
from glidepath.teams.accounts import name_attempt_session
from glidepath.teams.events import (
    PlanReady,
    StepAssigned,
    StepAttempted,
    StepCompleted,
    StepSteered,
    TeamStarted,
    make_ending,
)
from glidepath.teams.mailbox import INBOX, Mailboxes
from glidepath.teams.money_spent import spending_since_pause, subtract_spending
from glidepath.teams.planner import PlanningFailed, check_going_on, find_candidates, make_plan
from glidepath.teams.step_run import StepRun
from glidepath.teams.step_table import StepTable
from glidepath.teams.supervise import stop_all
from glidepath.teams.team import Member, Team
from glidepath.teams.team_prompts import step_prompt
from glidepath.teams.team_run import TeamRun
from glidepath.teams.values import (
    RiskProfile,
    StepOutcome,
    StepState,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    TeamStatus,
    TeamStep,
    check_kind,
)
from glidepath.tools import clean
from glidepath.values import LoopOutcome, RunResult, check_int, describe_error

Perform: TypeAlias = Callable[["PlanRun", StepRun], Awaitable[StepOutcome | None]]
Pick: TypeAlias = Callable[["PlanRun", TeamStep], Member | None]
PATIENCE = 5.0
LANDING = 20.0
_AT_WORK = (StepState.IN_FLIGHT, StepState.EVALUATING, StepState.ESCALATED)


def choose_least_busy(plan: PlanRun, task: TeamStep) -> Member:
    """The candidate with the fewest steps at work; the first in team order if there are several."""
    busy = plan.busy()
    return min(plan.candidates(task), key=lambda member: busy.count(member.name))


class PlanRun:
    """Carries out the plan of a request in a `TeamRun`: the base of every coordinator here, and of yours.

    It plans, starts each step when its dependencies allow, keeps the clock, obeys stops, ends with a result, and
    publishes all events of a step except those of reviews. `perform(plan, step)` does one step: it calls `attempt` and
    returns how the step ended, or None to give it to another member. `pick(plan, task)` chooses the member; None:
    nobody can do it now. `parallel` is the most steps at once, in addition to the request's own limit.
    """

    def __init__(
        self,
        request: TeamExecutionRequest,
        team: TeamRun | Team,
        perform: Perform,
        *,
        name: str,
        planner: Agent | None = None,
        pick: Pick = choose_least_busy,
        parallel: int | None = None,
        mailboxes: Mailboxes | None = None,
    ) -> None:
        self.request = request
        self.config = request.config
        self.team: TeamRun
        self._given = team
        self.name = name
        self._perform, self._pick, self._planner, self._mailboxes = perform, pick, planner, mailboxes
        check_int("PlanRun.parallel", parallel)
        asked = self.config.resource_constraint.max_parallel_steps
        self._most = min((most for most in (parallel, asked) if most is not None), default=None)
        self.table: StepTable | None = None
        """The state of each step; None until there is a plan."""
        self.steps: dict[str, StepRun] = {}
        """The steps that have started, by id."""
        self.warnings: list[str] = []
        self.closing: tuple[TeamStatus, str] | None = None
        """Set when nothing new may start: how the team ends if that cuts something short."""
        self.halted: tuple[TeamStatus, str] | None = None
        """Set when everything must stop: how the team ends."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.stopping: asyncio.Future[None] = self._loop.create_future()
        """Done once everything must stop."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    # --- from beginning to end ------------------------------------------------------------------------------------

    async def carry_out(self) -> TeamResult:
        """Run from the first event to the last; raises only `ConfigurationError`, before the first."""
        if isinstance(self._given, TeamRun):
            return await self._run_to_end(self._given)
        opened = await self._given.open(self.request)  # called directly, without `Team.run`
        try:
            return await self._run_to_end(opened)
        finally:
            await opened.close()

    async def _run_to_end(self, team: TeamRun) -> TeamResult:
        """Announce, plan, do, clean up, conclude, announce."""
        self.team = team
        check_going_on(team)
        # Nothing may be done that is not on record.
        team.events.on_failure = lambda why: self.halt(TeamStatus.FAILED, f"the journal cannot be written: {why}")
        members, resumed = tuple(member.name for member in team.members), team.history is not None
        team.emit(TeamStarted(request=self.request, coordinator=self.name, members=members, resumed=resumed))
        timers = self._start_clock()
        team.cancel.subscribe(self._on_cancel_token)
        cancelled: asyncio.CancelledError | None = None
        try:
            table = await self._plan()
            if not self.request.plan_only and self.halted is None:
                await self._run_ready_steps(table)
        except asyncio.CancelledError as stop:
            cancelled = stop
            self.halt(TeamStatus.CANCELLED, "the caller's task was cancelled")
        except PlanningFailed as why:
            self.halt(*(self.closing or (TeamStatus.FAILED, str(why))))
        except Exception as defect:
            self.halt(TeamStatus.FAILED, f"internal: {describe_error(defect)}")
        finally:
            for timer in timers:
                timer.cancel()
            team.cancel.unsubscribe(self._on_cancel_token)
        # Stop everything first: a step that ends later would contradict the result.
        await self._wait_until_idle()
        result = self._conclude()
        team.emit(make_ending(result))
        if cancelled is not None:
            raise cancelled
        return result

    def _start_clock(self) -> tuple[asyncio.TimerHandle, ...]:
        """Shortly before the team's time is up, members land and nothing new starts."""
        deadline, landing = self.team.deadline, min(LANDING, self.config.time_limit / 4)
        return (
            self._loop.call_at(deadline - landing, self._close_down, TeamStatus.TIMEOUT, "the team's time is up"),
            self._loop.call_at(deadline, self.halt, TeamStatus.TIMEOUT, "the team's time is up"),
        )

    def _close_down(self, status: TeamStatus, reason: str) -> None:
        """Let running steps deliver, and start nothing new."""
        if self.closing is None:
            self.closing = (status, clean(reason))
        self._changed.set()

    def _on_cancel_token(self, what: str, reason: str) -> None:
        """React to the team's cancel token, from any thread."""
        if threading.get_ident() == self._thread:
            self._on_signal(what, reason)
            return
        with suppress(RuntimeError):  # the loop is closed: there is nothing left to stop
            self._loop.call_soon_threadsafe(self._on_signal, what, reason)

    def _on_signal(self, what: str, reason: str) -> None:
        if what == "cancel":
            self.halt(TeamStatus.CANCELLED, reason or "cancelled")
        else:
            self._close_down(TeamStatus.CANCELLED, reason or "asked to finish up")

    def halt(self, status: TeamStatus, reason: str) -> None:
        """Stop everything; the first reason counts."""
        reason = clean(reason)
        if self.halted is None:
            self.halted = (status, reason)
            self.stopping.set_result(None)
        self._interrupt(reason)
        self._changed.set()

    def _interrupt(self, reason: str) -> None:
        for step in self.steps.values():
            step.interrupt(reason)

    async def _wait_until_idle(self) -> None:
        """Wait until nothing of this plan is running anymore."""
        # Their tokens give them the chance to end with an outcome, before they are cancelled.
        await stop_all(tuple(self._tasks.values()), PATIENCE, lambda: self._interrupt("the team has ended"))
        for step in self.steps.values():
            step.close()

    def _conclude(self) -> TeamResult:
        team, table = self.team, self.table
        if self.halted is not None and (table is None or table.cut_short(self.halted[1])):
            status, reason = self.halted
        elif table is None or self.request.plan_only:
            status, reason = TeamStatus.PAUSED, "the plan waits for confirmation"
        elif self.closing is not None and table.cut_short(self.closing[1]):
            status, reason = self.closing
        else:
            status = table.status()
            reason = table.reason()
        warnings = [*self.warnings, *team.events.warnings]
        for one in table.outcomes_in_order() if table is not None else ():
            warnings += [f"step {one.step_id}: {warning}" for warning in one.warnings]
        return replace(team.concluded(status, reason, table, warnings=warnings), request=self.request)

    # --- planning -------------------------------------------------------------------------------------------------

    async def _plan(self) -> StepTable:
        """Make the plan, or take over the plan and the finished steps of an earlier execution."""
        before = self.team.before
        plan = None if before.new_plan else before.plan
        made = plan is None
        if plan is None:
            plan = await self._make_plan(before.plan)
        table = StepTable(plan, self.config.dependency_failure)
        table.restore(before.outcomes)
        # A new plan that came too late was never announced: the result must not have it either.
        if not made or self.halted is None:
            self.table = table
        return table

    async def _make_plan(self, given: TeamExecutionPlan | None) -> TeamExecutionPlan:
        before = self.team.spent
        cancel, let_go = link_tokens(self.team.cancel)
        timer = self._loop.call_later(self.config.step_timeout, cancel.cancel, "planning took too long")
        try:
            request = self.request if given is None else replace(self.request, plan=given)
            plan, warning = await make_plan(request, self.team, self._planner, cancel)
        finally:
            timer.cancel()
            let_go()
        if warning is not None:
            self.warnings.append(warning)
        if self.halted is None:
            usage, cost = subtract_spending(self.team.spent, before)
            self.team.emit(PlanReady(plan=plan, usage=usage, cost=cost))
        return plan

    # --- dispatch -------------------------------------------------------------------------------------------------

    async def _run_ready_steps(self, table: StepTable) -> None:
        """Run whatever is ready, as many at once as allowed, until nothing can continue."""
        while self.halted is None:
            # Repeatedly, because a skipped step may block others.
            while blocked := table.blocked():
                for task, to_blame in blocked:
                    reason = f"step {to_blame} did not deliver"
                    self._close_step(table, StepOutcome(step_id=task.id, state=StepState.SKIPPED, reason=reason))
            # Clear before looking: a change between the look and the wait must wake us.
            self._changed.clear()
            for task in table.ready() if self.closing is None else ():
                if self._most is not None and len(self._tasks) >= self._most:
                    break
                member = self._pick(self, task)
                if member is not None:
                    check_kind("what pick returns", member, Member)
                    step = self.step(task)
                    step.member = member
                    table.move(step.id, StepState.IN_FLIGHT)
                    work = self._run_step(table, step)
                    self._tasks[step.id] = self._loop.create_task(work, name=f"team step {step.id}")
            if not self._tasks:
                return
            await self._changed.wait()

    async def _run_step(self, table: StepTable, step: StepRun) -> None:
        INBOX.set(step.inbox)
        made = step.attempts
        try:
            step.start_clock(self.config.step_timeout)
            outcome = self.cut_short(step) or await self._perform(self, step)
            if outcome is not None and (not isinstance(outcome, StepOutcome) or outcome.step_id != step.id):
                raise TypeError(f"perform must return an outcome of step {step.id!r} or None, not {outcome!r:.80}")
            if outcome is None and step.attempts == made:  # it would be picked and given back forever
                raise RuntimeError(f"perform gave step {step.id!r} back without attempting it")
            if outcome is None:
                table.move(step.id, StepState.PENDING)
            else:
                self._close_step(table, outcome)
        except asyncio.CancelledError:
            self._close_step(table, step.outcome(StepState.CANCELLED, "did not stop in time"))
        except BaseException as defect:
            if not table.states[step.id].terminal:
                self._close_step(table, step.outcome(StepState.FAILED, f"internal: {describe_error(defect)}"))
            if isinstance(defect, KeyboardInterrupt):
                raise
        finally:
            self._tasks.pop(step.id, None)
            if table.states[step.id].terminal:
                step.close()
            self._changed.set()

    def _close_step(self, table: StepTable, outcome: StepOutcome) -> None:
        table.close(outcome)
        if outcome.state is not StepState.WAITING:
            attempt = outcome.attempts or None
            self.team.emit(StepCompleted(step_id=outcome.step_id, attempt=attempt, outcome=outcome))

    # --- for `pick` and `perform` ---------------------------------------------------------------------------------

    def step(self, task: TeamStep) -> StepRun:
        """What is known about a step, including what earlier executions did."""
        step = self.steps.get(task.id)
        if step is None:
            # The same object that the journal was folded into, so that nothing is copied or forgotten.
            step = self.team.before.steps.get(task.id) or StepRun()
            step.open(task, self.team.cancel)
            self.steps[task.id] = step
        return step

    def busy(self) -> list[str]:
        """The names of the members at work, once for each of their steps."""
        states = self.table.states if self.table is not None else {}
        return [step.member.name for step in self.steps.values() if step.member and states[step.id] in _AT_WORK]

    def candidates(self, task: TeamStep) -> list[Member]:
        """Who may do a step now. An interrupted attempt continues with the member that began it, if possible."""
        able = find_candidates(task, self.team.members)
        step = self.step(task)
        if not step.begun:
            same = [member for member in able if step.paused is not None and member.name == step.paused_by]
            return same or able
        same = [member for member in able if member.name == step.begun_by]
        if not same:
            cut = f"attempt {step.begun} was cut off"
            step.warnings.append(f"{cut}, and {step.begun_by} cannot continue it: its effects are unknown")
            step.begun = 0
        return same or able

    def move(self, step: StepRun, state: StepState) -> None:
        """Move a step to a state, unless it is already in it."""
        if self.table is not None and self.table.states[step.id] is not state:
            self.table.move(step.id, state)

    async def attempt(self, step: StepRun, agent: Agent | None = None) -> RunResult:
        """Let the member (or this agent, as a senior) work on the step once; `step` records how it went."""
        team, task, member, senior = self.team, step.task, step.member, agent is not None
        assert self.table is not None and member is not None  # noqa: S101, PT018 - planned and assigned
        upstream = [self.table.outcomes[name] for name in task.depends_on if name in self.table.outcomes]
        prompt = step_prompt(self.request, task, upstream, step.verdicts, step.artifact or step.best, step.notes)
        step.attempts, step.senior = step.attempts + 1, senior
        attempt = step.attempts
        team.emit(StepAssigned(step_id=task.id, attempt=attempt, member=member.name, senior=senior))
        worker = member.agent if agent is None else agent
        if self._mailboxes is not None:
            worker = self._mailboxes.steerable(worker)
        # A waiting run belongs to one agent: another agent cannot continue it.
        paused = step.paused if senior is step.paused_senior else None
        session = name_attempt_session(self.request.id, task.id, attempt, member.name, senior=senior)
        begun, step.begun = step.begun == attempt, 0
        if paused is None:
            step.inbox.clear()  # the prompt has it
        result = await team.ask(worker, prompt, cancel=step.token, paused=paused, session=session, begun=begun)
        usage, cost = spending_since_pause(result, paused)
        artifact = step.take(result, usage, cost)
        team.emit(
            StepAttempted(
                step_id=task.id,
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

    def cut_short(self, step: StepRun, result: RunResult | None = None) -> StepOutcome | None:
        """How the step ends when it may not continue: stopped, cancelled, waiting for a person; None when it may."""
        if step.stopped is not None:
            return step.outcome(StepState.SKIPPED, f"stopped: {step.stopped}")
        if self.halted is not None:
            return step.outcome(StepState.CANCELLED, self.halted[1])
        if self.closing is not None and result is not None and not step.artifact.strip():
            return step.outcome(StepState.CANCELLED, self.closing[1])
        if result is not None and result.outcome is LoopOutcome.PAUSED:
            return step.outcome(StepState.WAITING, "waits for a person", step.best or result.text)
        return None

    def given_up(self, step: StepRun, reason: str) -> StepOutcome:
        """How the step ends when nothing was accepted: LOW risk keeps the best attempt, MEDIUM and HIGH fail it."""
        usable = self.config.risk_profile is RiskProfile.LOW and step.best.strip()
        return step.outcome(StepState.DEGRADED if usable else StepState.FAILED, reason)

    # --- steering by a person -------------------------------------------------------------------------------------

    def steer(self, step_id: str, text: str) -> bool:
        """Send a note to a step; False if there is no such step, or it has ended."""
        table, step = self.table, self._steer_step(step_id, "steer", text)
        if table is None or step is None:
            return False
        step.notes.append(text)
        step.inbox.append(text)
        if table.states[step_id] is StepState.WAITING:
            table.outcomes[step_id] = replace(table.outcomes[step_id], notes=tuple(step.notes))
        return True

    def stop_step(self, step_id: str, reason: str) -> bool:
        """Stop one step; False if there is no such step, or it has ended."""
        table, step = self.table, self._steer_step(step_id, "stop", reason)
        if table is None or step is None:
            return False
        step.stop(reason)
        if step_id not in self._tasks:  # nobody works on it
            self._close_step(table, step.outcome(StepState.SKIPPED, f"stopped: {reason}"))
            self._changed.set()
        return True

    def _steer_step(self, step_id: str, action: str, text: str) -> StepRun | None:
        if self.table is None or not self.table.is_open(step_id):
            return None
        step = self.step(self.table.plan.step(step_id))
        self.team.emit(StepSteered(step_id=step_id, attempt=step.attempts or None, action=action, text=text))
        return step
