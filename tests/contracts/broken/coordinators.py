"""Coordinators that break one clause each: ours, with something in between."""

import asyncio
import copy

from tests.contracts.examine import breaks

from glidepath import CancelToken
from glidepath.conformance import TeamCoordinatorContract
from glidepath.outcome import LoopOutcome
from glidepath.teams import (
    TERMINAL,
    DefaultTaskDispatchCoordinator,
    DependencyFailure,
    PlanReady,
    RiskProfile,
    StepAssigned,
    StepAttempted,
    StepCompleted,
    StepState,
    TeamExecutionPlan,
    TeamResourceConstraint,
    TeamStarted,
    TeamStatus,
    make_ending,
)
from glidepath.values import replace

S = StepState
UNBOUNDED = TeamResourceConstraint()


class Trial(TeamCoordinatorContract):
    """The contract and the coordinator in one: override what is to go wrong."""

    def make_coordinator(self):
        return type(self)()

    async def execute(self, request, team):
        return await copy.copy(self).execution(request, team)

    async def execution(self, request, team):
        emit, ask = team.emit, team.ask

        def said(event):
            if isinstance(event, TERMINAL):
                event = make_ending(self.told(event.result))
            self.emit(emit, event)

        async def asked(agent, prompt, **more):
            return await self.ask(ask, agent, prompt, **more)

        vars(team).update(emit=said, ask=asked)
        try:
            result = await self.inner().execute(self.request(request, team), team)
            return self.told(await self.result(result, team, ask))
        finally:
            vars(team).update(emit=emit, ask=ask)

    def inner(self):
        return DefaultTaskDispatchCoordinator()

    def request(self, request, team):
        """What the coordinator is asked to do."""
        return request

    def emit(self, emit, event):
        """What becomes of an event."""
        emit(event)

    async def ask(self, ask, agent, prompt, **more):
        """What becomes of a question."""
        return await ask(agent, prompt, **more)

    def told(self, result):
        """The result as it is announced and returned."""
        return result

    async def result(self, result, team, ask):
        """The result as it is returned only."""
        return result


def configured(request, **changes):
    return replace(request, config=replace(request.config, **changes))


def without_output(result, *states):
    outcomes = tuple(replace(item, output="") if item.state in states else item for item in result.step_outcomes)
    return replace(result, step_outcomes=outcomes)


class OtherPlan(Trial):
    """Works on another plan than the one it reports."""

    def request(self, request, team):
        self.given = request
        steps = tuple(self.step(step, team) for step in request.plan.steps)
        return replace(request, plan=TeamExecutionPlan(steps=steps))

    def step(self, step, team):
        return step

    def emit(self, emit, event):
        emit(replace(event, plan=self.given.plan) if isinstance(event, PlanReady) else event)

    def told(self, result):
        return replace(result, request=self.given, plan=self.given.plan if result.plan is not None else None)


@breaks("COORD-1")
class LosesTheOutput(Trial):
    """Delivers nothing in the end."""

    def told(self, result):
        whole = result.status is TeamStatus.COMPLETED and len(result.step_outcomes) == 4
        return replace(result, final_output="") if whole else result


@breaks("COORD-2", "COORD-6", "COORD-31")
class SkipsTheStart(Trial):
    """Never says TEAM_STARTED."""

    def emit(self, emit, event):
        if not isinstance(event, TeamStarted):
            emit(event)


@breaks("COORD-3", "COORD-6")
class TwoEndings(Trial):
    """Says twice that it failed."""

    def emit(self, emit, event):
        emit(event)
        if isinstance(event, TERMINAL) and event.result.status is TeamStatus.FAILED:
            emit(event)


@breaks("COORD-4")
class SaysOneReturnsAnother(Trial):
    """Returns another output than it announced."""

    async def result(self, result, team, ask):
        return replace(result, final_output=f"{result.final_output} (more or less)")


@breaks("COORD-5")
class CountsFromZero(Trial):
    """Numbers attempts from 0."""

    def emit(self, emit, event):
        if isinstance(event, StepAssigned | StepAttempted):
            event = replace(event, attempt=event.attempt - 1)
        emit(event)


@breaks("COORD-6")
class GoesAroundTheTeam(Trial):
    """Publishes an event that was never given to `team.emit`."""

    async def result(self, result, team, ask):
        if result.status is TeamStatus.FAILED:
            team.team.event_sink(make_ending(result))
        return result


@breaks("COORD-7", "COORD-18")
class KeepsThePlan(Trial):
    """Never says PLAN_READY."""

    def emit(self, emit, event):
        if not isinstance(event, PlanReady):
            emit(event)


@breaks(
    "COORD-8", "COORD-9", "COORD-10", "COORD-11", "COORD-21", "COORD-22", "COORD-23", "COORD-24", "COORD-29", "COORD-33"
)
class InAnyOrder(OtherPlan):
    """Begins everything at once."""

    def step(self, step, team):
        return replace(step, depends_on=())


@breaks("COORD-9", "COORD-21", "COORD-31", "COORD-33")
class HandsNothingOn(Trial):
    """Does not tell members what others delivered."""

    async def ask(self, ask, agent, prompt, **more):
        return await ask(agent, prompt.partition("Result of step")[0], **more)


@breaks("COORD-10", "COORD-20")
class GoesOnRegardless(Trial):
    """Ignores BLOCK."""

    def request(self, request, team):
        return configured(request, dependency_failure=DependencyFailure.RUN_DEGRADED)


@breaks("COORD-11")
class AlwaysBlocks(Trial):
    """Ignores RUN_DEGRADED."""

    def request(self, request, team):
        return configured(request, dependency_failure=DependencyFailure.BLOCK)


@breaks("COORD-12")
class SkipsInSilence(Trial):
    """Does not announce the steps it skips."""

    def emit(self, emit, event):
        if not (isinstance(event, StepCompleted) and event.outcome.state is S.SKIPPED):
            emit(event)


@breaks("COORD-13", "COORD-35")
class SpeaksOfTheDone(Trial):
    """Says something about a step after it has ended."""

    def emit(self, emit, event):
        emit(event)
        if isinstance(event, StepAttempted):
            self.last = event
        if isinstance(event, StepCompleted) and event.outcome.state is S.FAILED:
            emit(self.last)


@breaks("COORD-14")
class AllAtOnce(Trial):
    """Ignores `max_parallel_steps`."""

    def request(self, request, team):
        limits = replace(request.config.resource_constraint, max_parallel_steps=None)
        return configured(request, resource_constraint=limits)


@breaks("COORD-15")
class NeverGivesUp(Trial):
    """Tries twice more than it may."""

    def request(self, request, team):
        return configured(request, max_feedback_rounds=request.config.max_feedback_rounds + 2)


@breaks("COORD-16")
class AnybodyWillDo(OtherPlan):
    """Ignores what a role requires, as long as somebody could do it."""

    def step(self, step, team):
        able = step.role is not None and any(member.offers(step.role.required_capability) for member in team.members)
        return replace(step, role=None) if able else step


@breaks("COORD-17")
class PlansAnyway(OtherPlan):
    """Gives a step that nobody can do to whoever is there."""

    def step(self, step, team):
        known = step.member is None or any(member.name == step.member for member in team.members)
        able = step.role is None or any(member.offers(step.role.required_capability) for member in team.members)
        return step if known and able else replace(step, role=None, member=None)


@breaks("COORD-18", "COORD-20")
class CannotWait(Trial):
    """Carries out what was only to be planned."""

    def request(self, request, team):
        return replace(request, plan_only=False)


@breaks("COORD-19", "COORD-26")
class KindAtAnyRisk(Trial):
    """Uses half work whatever is at stake."""

    def request(self, request, team):
        return configured(request, risk_profile=RiskProfile.LOW)


@breaks("COORD-20", "COORD-10", "COORD-12")
class ForgetsThePlan(Trial):
    """Ends FAILED without plan and outcomes."""

    def told(self, result):
        if (
            result.status is TeamStatus.FAILED
            and len(result.step_outcomes) == 4
            and result.outcome("d").state is S.SKIPPED
        ):
            return replace(result, plan=None, step_outcomes=())
        return result


@breaks("COORD-21")
class DegradedIsNothing(Trial):
    """Throws degraded work away."""

    def told(self, result):
        return without_output(result, S.DEGRADED)


@breaks("COORD-22")
class TimeIsMoney(Trial):
    """Throws unfinished work away when the time is up."""

    def told(self, result):
        return without_output(result, S.CANCELLED) if result.status is TeamStatus.TIMEOUT else result


@breaks("COORD-23")
class CancelMeansNothing(Trial):
    """Throws unfinished work away when it is cancelled."""

    def told(self, result):
        return without_output(result, S.CANCELLED) if result.status is TeamStatus.CANCELLED else result


@breaks("COORD-24")
class OneMore(Trial):
    """Asks once more after a cancel."""

    async def result(self, result, team, ask):
        if result.status is TeamStatus.CANCELLED:
            await team.members[-1].agent.run("One more?", cancel=self.later())
        return result

    def later(self):
        token = CancelToken()
        asyncio.get_running_loop().call_later(1, token.cancel)
        return token


@breaks("COORD-25")
class SwallowsCancellation(Trial):
    """Returns as if nothing had been when its task is cancelled."""

    async def execute(self, request, team):
        try:
            return await super().execute(request, team)
        except asyncio.CancelledError:
            return None


@breaks("COORD-26")
class NoStepClock(Trial):
    """Lets a step take as long as the team."""

    def request(self, request, team):
        return configured(request, step_timeout=10_000.0)


@breaks("COORD-27", "COORD-24")
class PaysPrivately(Trial):
    """Asks a member once more, behind the team's back."""

    async def ask(self, ask, agent, prompt, **more):
        result = await ask(agent, prompt, **more)
        if result.outcome is LoopOutcome.DONE and more.get("paused") is None and "Result of" not in prompt:
            await agent.run("Are you sure?")
        return result


@breaks("COORD-28")
class BlankCheck(Trial):
    """Lets members run without the team's budget when it is limited."""

    def request(self, request, team):
        limits = request.config.resource_constraint
        self.limited = limits.max_total_tokens or limits.max_cost
        return request

    async def ask(self, ask, agent, prompt, **more):
        if self.limited:
            return await agent.run(prompt, cancel=more.get("cancel"))
        return await ask(agent, prompt, **more)


@breaks("COORD-29", "COORD-30")
class TakesWaitingForFailure(Trial):
    """Ends FAILED where a member waits for a person."""

    def told(self, result):
        waits = any(item.state is S.WAITING for item in result.step_outcomes)
        return replace(result, status=TeamStatus.FAILED) if waits else result


@breaks("COORD-30")
class AsksAnew(Trial):
    """Starts a member anew instead of going on with what was decided."""

    async def ask(self, ask, agent, prompt, **more):
        return await ask(agent, prompt, **{**more, "paused": None})


@breaks("COORD-30")
class HandsOnWhatWaits(Trial):
    """Lets another member go on with a run that waited."""

    def request(self, request, team):
        self.agents = [member.agent for member in team.members]
        return request

    async def ask(self, ask, agent, prompt, **more):
        if more.get("paused") is not None:
            agent = next(other for other in self.agents if other is not agent)
        return await ask(agent, prompt, **more)


@breaks("COORD-31")
class StartsOver(Trial):
    """Runs finished steps again."""

    def request(self, request, team):
        if team.history is not None and team.history.result is None:
            team.history = replace(team.history, outcomes=())
        return request


@breaks("COORD-32")
class ClosesTheRun(Trial):
    """Closes what others have opened, once it has delivered."""

    async def result(self, result, team, ask):
        if len(result.step_outcomes) == 1 and result.status is TeamStatus.COMPLETED:
            await team.close()
        return result


@breaks("COORD-33")
class OneTrackMind(Trial):
    """Keeps the result on itself while it waits."""

    async def execute(self, request, team):
        self.latest = await super().execute(request, team)
        await asyncio.sleep(0.5)
        return self.latest


@breaks("COORD-34")
class LeavesATask(Trial):
    """Leaves something running."""

    async def result(self, result, team, ask):
        self.task = asyncio.get_running_loop().create_task(asyncio.sleep(10_000))
        return result


@breaks("COORD-35")
class NeverReportsAnAttempt(Trial):
    """Never says STEP_ATTEMPTED."""

    def emit(self, emit, event):
        if not isinstance(event, StepAttempted):
            emit(event)


@breaks("COORD-36")
class AnnouncesThePlanAgain(Trial):
    """Says PLAN_READY again when it goes on."""

    def emit(self, emit, event):
        emit(event)
        if isinstance(event, TeamStarted) and event.resumed:
            emit(PlanReady(plan=self.taken_over))

    def request(self, request, team):
        self.taken_over = team.history.plan if team.history is not None else None
        return request


@breaks("COORD-12")
class DropsWhatWasCut(Trial):
    """Does not announce the steps that a cancel or the clock cut short."""

    def emit(self, emit, event):
        if not (isinstance(event, StepCompleted) and event.outcome.state is S.CANCELLED):
            emit(event)


@breaks("COORD-27")
class ForgetsThePrice(Trial):
    """Does not say what it cost."""

    def told(self, result):
        return replace(result, cost=None)
