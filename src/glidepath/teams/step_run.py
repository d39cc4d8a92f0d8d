"""One step of a plan: its attempts and verdicts, and, while it is running, its clock and what stops it."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING

from glidepath.run import link_tokens
from glidepath.teams.events import EvaluationResult, StepAssigned, StepAttempted, StepSteered, TeamEvent
from glidepath.teams.money_spent import add_cost, subtract_spending
from glidepath.teams.values import EvaluationVerdict, StepOutcome, StepState, TeamStep, VerdictOutcome
from glidepath.tools import clean
from glidepath.values import AgentState, LoopOutcome, PendingCall, RunResult, TextOrigin, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from glidepath.run import CancelToken
    from glidepath.teams.team import Member

_LANDING = 20.0  # seconds before the end of a step's time at which its member is asked to deliver


class StepRun:
    """Everything known about one step, from the events of earlier executions and from the current one.

    A coordinator reads it and ends it with `outcome(...)`. `PlanRun.attempt` and `judged` change it.
    """

    def __init__(self) -> None:
        self.attempts = 0
        """How many attempts have started. One that waits for a person does not count until it continues."""
        self.verdicts: list[EvaluationVerdict] = []
        self.artifact = ""
        """What the last attempt delivered."""
        self.unreviewed = False
        """The last artifact was never judged."""
        self.landed = False
        """The last artifact was delivered at a limit."""
        self.best = ""
        """The text to keep if nothing is accepted."""
        self.best_score = -1.0
        self.senior_asked = False
        self.arbiter = False
        """The arbiter has accepted the best attempt."""
        self.notes: list[str] = []
        """What a person said, for the prompts of all further attempts."""
        self.usage: Usage = Usage()
        self.cost: Decimal | None = None
        self.origins: tuple[str, ...] = ()
        """The untrusted sources that its authors have read."""
        self.paused: RunResult | None = None
        """The run that waits for a person, or did; then its member, and whether it is the senior's."""
        self.paused_by = ""
        self.paused_senior = False
        self.waited: tuple[Usage, Decimal | None] = Usage(), None
        """What that run has used so far."""
        self.begun = 0
        """The attempt that was running when an earlier process died; its member, and whether it was the senior's."""
        self.begun_by = ""
        self.begun_senior = False
        # --- from `open` on
        self.task: TeamStep
        self.token: CancelToken
        self.interrupted: asyncio.Future[None]
        self.member: Member | None = None
        self.senior = False
        """The last attempt was the senior's."""
        self.inbox: list[str] = []
        """Notes from a person that no attempt has seen yet."""
        self.warnings: list[str] = []
        self.expired = False
        self.out_of_budget = False
        """The budget has no room for another attempt."""
        self.stopped: str | None = None
        self.pending: tuple[PendingCall, ...] = ()
        self._let_go: Callable[[], None] = lambda: None
        self._deadline: float | None = None
        self._timers: list[asyncio.TimerHandle] = []

    # --- earlier executions ---------------------------------------------------------------------------------------

    @classmethod
    def waiting(cls, outcome: StepOutcome) -> StepRun:
        """A step that waits for a person, from a paused result."""
        step, paused = cls(), outcome.paused
        step.attempts = max(0, outcome.attempts - 1)  # the one that waits does not count
        step.verdicts, step.notes = list(outcome.verdicts), list(outcome.notes)
        step.best = outcome.output if paused is None or outcome.output != paused.text else ""
        if step.best:
            step.best_score = max((verdict.score for verdict in outcome.verdicts), default=-1.0)
        step.origins = outcome.origins
        step.waits(outcome)
        return step

    def waits(self, outcome: StepOutcome) -> None:
        """Record that the execution paused while this step waited for a person."""
        self.begun, self.begun_by, self.begun_senior = 0, "", False
        self.paused, self.paused_by, self.paused_senior = outcome.paused, outcome.member or "", outcome.senior
        self.usage, self.cost = outcome.usage, outcome.cost
        if outcome.paused is not None:
            self.waited = outcome.paused.usage, outcome.paused.cost

    def replay(self, event: TeamEvent) -> None:
        """Take in what the journal of an earlier execution says about this step."""
        if isinstance(event, StepAssigned):
            self.begun, self.begun_by, self.begun_senior = event.attempt or 0, event.member, event.senior
        elif isinstance(event, StepAttempted):
            self._replay_attempt(event)
        elif isinstance(event, EvaluationResult):
            self.judged(event.verdict, arbiter=event.arbiter)
            self.spend(event.usage, event.cost)
        elif isinstance(event, StepSteered) and event.action == "steer":
            self.notes.append(event.text)

    def _replay_attempt(self, event: StepAttempted) -> None:
        attempt, waits = event.attempt or 0, event.outcome == LoopOutcome.PAUSED.name
        self.paused = None
        self.origins = tuple(dict.fromkeys((*self.origins, *event.origins)))
        if waits:  # its run continues if the process dies before the team has paused
            self.waited = self.waited[0] + event.usage, add_cost(self.waited[1], event.cost)
        else:
            self.begun, self.begun_by, self.begun_senior = 0, "", False
            self.waited = Usage(), None
        # A waiting attempt is made again under its old number, and would be counted twice.
        self.attempts = max(self.attempts, attempt - waits)
        self.senior_asked = self.senior_asked or (event.senior and not waits)
        self.landed = event.state != AgentState.COMPLETED.name
        self.artifact, self.unreviewed = event.artifact or self.artifact, bool(event.artifact.strip())
        self.spend(event.usage, event.cost)
        if not (waits or self.unreviewed):  # coordinators refuse it without a review, and tell the next attempt
            self.verdicts.append(make_refusal(f"the attempt ended {event.state}/{event.outcome}"))

    def replayed(self) -> None:
        """Finish taking in the journal."""
        if self.begun and self.paused is None:  # the resumed run will report everything
            self.usage, self.cost = subtract_spending((self.usage, self.cost), self.waited)

    def open(self, task: TeamStep, team_cancel: CancelToken) -> None:
        """Make the step ready to be worked on."""
        self.task = task
        self.token, self._let_go = link_tokens(team_cancel)
        self.interrupted = asyncio.get_running_loop().create_future()
        self.best = self.best or self.artifact
        if self.arbiter:
            self.artifact = self.best
        if self.accepted and (self.arbiter or self.senior_asked):
            self.warnings.append("accepted by the arbiter" if self.arbiter else "accepted only from the senior")
        self.senior = self.paused_senior
        if self.paused is not None:
            said = [message.text for message in self.paused.messages]
            self.inbox = [note for note in self.notes if not any(note in text for text in said)]

    @property
    def id(self) -> str:
        """The id of the step in the plan."""
        return self.task.id

    @property
    def accepted(self) -> bool:
        """The last artifact has passed; an earlier process may have died between the verdict and the end."""
        judged = bool(self.verdicts) and not self.unreviewed
        return judged and self.verdicts[-1].passed and bool(self.artifact.strip())

    @property
    def delivered(self) -> bool:
        """True if the last attempt delivered something in time."""
        return bool(self.artifact.strip()) and not self.expired

    # --- the clock and stops ----------------------------------------------------------------------------------------

    def start_clock(self, seconds: float) -> None:
        """Start the step's time, once, at its first attempt; shortly before its end the member is asked to deliver."""
        loop = asyncio.get_running_loop()
        # A step that is given to another member does not get new time.
        if self._deadline is None:
            self._deadline = loop.time() + seconds
            landing = min(_LANDING, seconds / 4)
            self._timers = [
                loop.call_at(self._deadline - landing, self.token.wind_down, "the step's time is nearly up"),
                loop.call_at(self._deadline, self.expire),
            ]

    def time_left(self) -> float:
        """Seconds until the step's time is up."""
        if self._deadline is None:
            return 0.0
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    def expire(self) -> None:
        """End the step because its time is up."""
        self.expired = True
        self.interrupt("the step's time is up")

    def stop(self, reason: str) -> None:
        """A person stops the step."""
        self.stopped = reason
        self.interrupt(reason)

    def interrupt(self, reason: str) -> None:
        """End whatever the step waits for."""
        self.token.cancel(reason)
        if not self.interrupted.done():
            self.interrupted.set_result(None)

    def close(self) -> None:
        """Stop the clock and the link to the team's token."""
        for timer in self._timers:
            timer.cancel()
        self._let_go()

    # --- results ------------------------------------------------------------------------------------------------

    def take(self, result: RunResult, usage: Usage, cost: Decimal | None) -> str:
        """Record how an attempt ended; returns what it delivered for review, blank if nothing."""
        self.spend(usage, cost)
        delivered = result.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP) and result.stop_reason != "refusal"
        self.artifact = result.text if delivered else ""
        self.unreviewed = bool(self.artifact.strip())
        waits = result.outcome is LoopOutcome.PAUSED
        own_words = bool(result.text.strip()) and result.text_origin is not TextOrigin.RUNTIME
        if self.best_score < 0 and (self.unreviewed or (own_words and not waits)):
            self.best = result.text
        self.out_of_budget = not result.iterations and result.state is AgentState.BUDGET_EXCEEDED
        if result.unknown_effects:
            names = ", ".join(call.name for call in result.unknown_effects)
            self.warnings.append(f"unknown whether these calls took effect: {names}")
        if result.abandoned:
            names = ", ".join(work.tool_name or work.kind for work in result.abandoned)
            self.warnings.append(f"did not stop and may still be running: {names}")
        self.paused, self.paused_senior = (result, self.senior) if waits else (None, False)
        self.pending = result.pending
        self.origins = tuple(dict.fromkeys((*self.origins, *result.origins)))
        return self.artifact

    def judged(self, verdict: EvaluationVerdict, *, arbiter: bool = False) -> None:
        """Record a verdict on the last artifact, or the arbiter's on the best one."""
        self.verdicts.append(verdict)
        self.unreviewed, self.arbiter = False, arbiter and verdict.passed
        if not arbiter and self.artifact.strip() and verdict.score >= self.best_score:
            self.best, self.best_score = self.artifact, verdict.score

    def spend(self, usage: Usage, cost: Decimal | None) -> None:
        """Add this to what the step has used."""
        self.usage, self.cost = self.usage + usage, add_cost(self.cost, cost)

    def outcome(self, state: StepState, reason: str = "", output: str | None = None) -> StepOutcome:
        """How the step ended. Without `output` COMPLETED has the last artifact, anything else the best text."""
        if output is None:
            output = self.artifact if state is StepState.COMPLETED else self.best
        return StepOutcome(
            step_id=self.id,
            state=state,
            output=output,
            attempts=self.attempts,
            verdicts=tuple(self.verdicts),
            member=self.member.name if self.member is not None else None,
            reason=reason,
            warnings=tuple(dict.fromkeys(self.warnings)),
            usage=self.usage,
            cost=self.cost,
            stopped=self.stopped is not None,
            pending=self.pending if state is StepState.WAITING else (),
            paused=self.paused if state is StepState.WAITING else None,
            senior=self.senior,
            notes=tuple(self.notes),
            origins=self.origins,
        )


def make_refusal(feedback: str, *, exceeded: bool = False) -> EvaluationVerdict:
    """The coordinator's own verdict on an attempt without a review, or with a review that failed."""
    outcome = VerdictOutcome.REVIEW_EXCEEDED if exceeded else VerdictOutcome.REVISE
    return EvaluationVerdict(outcome=outcome, feedback=clean(feedback))


def explain_end(result: RunResult) -> str:
    """How an attempt ended, for people and for the next attempt."""
    if result.stop_reason == "refusal":
        return "the member refused"
    cause = f" ({result.cause.source}: {result.cause.reason})" if result.cause is not None else ""
    return f"the attempt ended {result.state.name}/{result.outcome.name}{cause}"
