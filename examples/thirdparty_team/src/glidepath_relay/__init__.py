"""A relay: one step after the other. And a reviewer that counts sources."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from glidepath import CancelToken, LoopOutcome
from glidepath.teams import (
    DependencyFailure,
    EvaluationContext,
    EvaluationVerdict,
    PlanReady,
    RiskProfile,
    StepAssigned,
    StepAttempted,
    StepCompleted,
    StepOutcome,
    StepState,
    Team,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    TeamStarted,
    TeamStatus,
    TeamStep,
    VerdictOutcome,
)
from glidepath.teams.events import ending

__all__ = ["RelayCoordinator", "SourceCounter"]

SOURCE = re.compile(r"\[\d+\]")


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


class RelayCoordinator:
    """Does the steps of a plan one after the other; without a plan there is one step."""

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Carry out the request."""
        bound = await team.bound(request)
        try:
            return await _Relay(request, bound).run()
        finally:
            if bound is not team:
                await bound.close()


class _Relay:
    """One execution."""

    def __init__(self, request: TeamExecutionRequest, team: Team) -> None:
        self.request, self.team = request, team
        self.outcomes: dict[str, StepOutcome] = {}
        self.plan: TeamExecutionPlan | None = None
        self.stop: tuple[TeamStatus, str] | None = None
        self.token = CancelToken()

    async def run(self) -> TeamResult:
        team, past = self.team, self.team.past
        names = tuple(member.name for member in team.members)
        resumed = past is not None
        team.emit(TeamStarted(request=self.request, coordinator="RelayCoordinator", members=names, resumed=resumed))
        loop, limit = asyncio.get_running_loop(), self.request.config.time_limit
        clock = loop.call_at(team.bond.deadline - min(1.0, limit / 20), self.halt, TeamStatus.TIMEOUT, "out of time")
        team.cancel.subscribe(self.hear)
        cancelled = None
        try:
            await self.relay()
        except asyncio.CancelledError as error:
            cancelled = error
            self.halt(TeamStatus.CANCELLED, "the caller's task was cancelled")
        finally:
            clock.cancel()
            team.cancel.unsubscribe(self.hear)
        result = self.result()
        team.emit(ending(result))
        if cancelled is not None:
            raise cancelled
        return result

    def hear(self, what: str, reason: str) -> None:
        self.halt(TeamStatus.CANCELLED, reason or what)

    def halt(self, status: TeamStatus, reason: str) -> None:
        self.stop = self.stop or (status, reason)
        self.token.cancel(reason)

    # --- the steps --------------------------------------------------------------------------------------------------

    async def relay(self) -> None:
        team, past = self.team, self.team.past
        if self.stop is None and team.cancel.cancelled:
            self.halt(TeamStatus.CANCELLED, "cancelled before the start")
        plan = past.plan if past is not None and past.plan is not None else self.request.plan
        if plan is None:
            plan = TeamExecutionPlan(
                steps=(TeamStep(id="goal", description=self.request.goal),), source="deterministic"
            )
        for step in plan.steps:
            if not self.able(step):
                self.plan = plan
                self.halt(TeamStatus.FAILED, f"nobody can do step {step.id}")
                return
        if past is None or past.plan is None:
            team.emit(PlanReady(plan=plan))
        self.plan = plan
        if past is not None:
            self.outcomes.update({item.step_id: item for item in past.outcomes})
        waiting: set[str] = set()
        while not self.request.plan_only and self.stop is None:
            step = self.next_step(waiting)
            if step is None:
                return
            outcome = await self.step(step)
            if outcome.state is StepState.WAITING:
                waiting.add(step.id)
            self.close(outcome)

    def able(self, step: TeamStep) -> list[str]:
        capability = step.role.required_capability if step.role is not None else None
        members = [item for item in self.team.members if step.member in (None, item.name)]
        return [item.name for item in members if item.offers(capability)]

    def next_step(self, waiting: set[str]) -> TeamStep | None:
        """The next step of the plan that can be done; skips what cannot be done any more."""
        block = self.request.config.dependency_failure is DependencyFailure.BLOCK
        for step in self.plan.steps if self.plan is not None else ():
            if step.id in self.outcomes:
                continue
            needed = [self.outcomes.get(name) for name in step.depends_on]
            if any(item is None or item.state is StepState.WAITING for item in needed):
                continue
            lost = [item.step_id for item in needed if item is not None and not item.state.delivered]
            if lost and block:
                self.close(StepOutcome(step_id=step.id, state=StepState.SKIPPED, reason=f"{lost[0]} did not deliver"))
                return self.next_step(waiting)
            return step
        return None

    def close(self, outcome: StepOutcome) -> None:
        self.outcomes[outcome.step_id] = outcome
        if outcome.state is not StepState.WAITING:
            attempt = outcome.attempts or None
            self.team.emit(StepCompleted(step_id=outcome.step_id, attempt=attempt, outcome=outcome))

    async def step(self, step: TeamStep) -> StepOutcome:
        """Up to `max_feedback_rounds` attempts within the step's time."""
        member = self.team.member(self.able(step)[0])
        config, best, expired = self.request.config, "", []
        before = self.team.past.steps.get(step.id) if self.team.past is not None else None
        paused = before.paused if before is not None else None
        tries = before.attempts if before is not None else 0
        made = partial(StepOutcome, step_id=step.id, member=member.name)
        step_token, let_go = self.follow(config.step_timeout, expired)
        try:
            while tries < config.max_feedback_rounds and self.stop is None and not expired:
                tries += 1
                self.team.emit(StepAssigned(step_id=step.id, attempt=tries, member=member.name))
                result = await self.team.ask(member.agent, self.prompt(step), cancel=step_token, paused=paused)
                paused = None
                self.team.emit(
                    StepAttempted(
                        step_id=step.id,
                        attempt=tries,
                        member=member.name,
                        member_run_id=result.run_id,
                        state=result.state.name,
                        outcome=result.outcome.name,
                        artifact=result.text,
                        usage=result.usage,
                        cost=result.cost,
                    )
                )
                best = result.text if result.text.strip() and "without an answer" not in result.text else best
                if result.outcome is LoopOutcome.PAUSED:
                    waits: dict[str, Any] = {"pending": result.pending, "paused": result}
                    return made(state=StepState.WAITING, attempts=tries, reason="waits for a person", **waits)
                if result.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP) and result.text.strip() and not expired:
                    return made(state=StepState.COMPLETED, attempts=tries, output=result.text)
        finally:
            let_go()
        if self.stop is not None:
            return made(state=StepState.CANCELLED, attempts=tries, output=best, reason=self.stop[1])
        usable = config.risk_profile is RiskProfile.LOW and best.strip()
        why = "the step's time is up" if expired else "no attempt delivered"
        return made(state=StepState.DEGRADED if usable else StepState.FAILED, attempts=tries, output=best, reason=why)

    def follow(self, seconds: float, expired: list[bool]) -> tuple[CancelToken, Callable[[], None]]:
        """A token that hears the team, and the clock of the step."""
        token = CancelToken()

        def hear(what: str, reason: str) -> None:
            token.cancel(reason or what)

        def expire() -> None:
            expired.append(True)
            token.cancel("the step's time is up")

        self.token.subscribe(hear)
        timer = asyncio.get_running_loop().call_later(seconds, expire)

        def let_go() -> None:
            timer.cancel()
            self.token.unsubscribe(hear)

        return token, let_go

    def prompt(self, step: TeamStep) -> str:
        parts = [f"Goal: {self.request.goal}", f"Your part: {step.description}"]
        for name in step.depends_on:
            item = self.outcomes.get(name)
            if item is not None and item.state.delivered:
                parts.append(f"{name} delivered:\n{item.output}")
        return "\n\n".join(parts)

    # --- the end ----------------------------------------------------------------------------------------------------

    def result(self) -> TeamResult:
        plan, outcomes = self.plan, []
        for step in plan.steps if plan is not None else ():
            item = self.outcomes.get(step.id)
            if item is None or (item.state is StepState.WAITING and self.stop is not None):
                state = StepState.CANCELLED if self.stop is not None else StepState.PENDING
                item = StepOutcome(step_id=step.id, state=state, reason=self.stop[1] if self.stop else "")
            outcomes.append(item)
        usage, cost = self.team.spent
        status, reason = self.status(outcomes)
        delivered = [item for item in outcomes if item.state.delivered] or outcomes
        used = {name for item in delivered for name in (plan.step(item.step_id).depends_on if plan else ())}
        final = "\n\n".join(item.output for item in delivered if item.step_id not in used and item.output)
        return TeamResult(
            request=self.request,
            team=self.team.name,
            status=status,
            reason=reason,
            plan=plan,
            step_outcomes=tuple(outcomes),
            final_output=final,
            duration=self.team.bond.elapsed,
            usage=usage,
            cost=cost,
            sequence=self.team.bond.channel.sequence + 1,
        )

    def status(self, outcomes: list[StepOutcome]) -> tuple[TeamStatus, str]:
        states = [item.state for item in outcomes]
        if self.stop is not None and (StepState.CANCELLED in states or not states):
            return self.stop
        if self.request.plan_only or StepState.WAITING in states:
            return TeamStatus.PAUSED, "waits for a person"
        needed = {name for step in (self.plan.steps if self.plan is not None else ()) for name in step.depends_on}
        ends = [item for item in outcomes if item.step_id not in needed]
        if not all(item.state.delivered for item in ends):
            lost = [item.step_id for item in outcomes if not item.state.delivered]
            return TeamStatus.FAILED, f"not delivered: {', '.join(lost)}"
        whole = all(state is StepState.COMPLETED for state in states)
        return (TeamStatus.COMPLETED, "") if whole else (TeamStatus.DEGRADED, "some steps are missing")
