"""One step at work: its attempts, its clock, and every hand that can stop it."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath.landing import NO_ANSWER
from glidepath.messages import Usage
from glidepath.outcome import LoopOutcome, PendingCall, RunResult
from glidepath.teams.journal import StepPast, add_cost
from glidepath.teams.team import Member
from glidepath.teams.team_run import linked
from glidepath.teams.values import EvaluationVerdict, StepOutcome, StepState, TeamStep, VerdictOutcome

if TYPE_CHECKING:
    from glidepath.run import CancelToken

__all__ = ["StepRun"]

_LANDING = 20.0  # seconds before the end of a step's time at which its member is asked to deliver


class StepRun:
    """Everything one step knows about itself while it is at work."""

    def __init__(self, step: TeamStep, team_cancel: CancelToken, past: StepPast | None) -> None:
        past = past or StepPast()
        self.step = step
        self.member: Member | None = None
        self.token, self._let_go = linked(team_cancel)
        self.attempts = past.attempts
        self.verdicts: list[EvaluationVerdict] = list(past.verdicts)
        self.artifact = past.artifact
        """What the last attempt delivered."""
        self.unreviewed = past.unreviewed
        self.begun = past.begun
        """The attempt that was running when an earlier process died; whose it was, and whether the senior's."""
        self.begun_by = past.begun_by
        self.begun_senior = past.begun_senior
        self.best = past.best or past.artifact
        self.best_score = past.best_score
        if past.arbiter:
            self.artifact = self.best
        judged = bool(past.verdicts) and not past.unreviewed
        self.accepted = judged and past.verdicts[-1].passed and bool(self.artifact.strip())
        """An earlier process died between the verdict and the end of the step."""
        self.landed = past.landed
        self.senior_asked = past.senior
        self.notes: list[str] = list(past.notes)
        """What a person said, for the prompts of all further attempts."""
        self.inbox: list[str] = _unheard(past)
        """What a person said that no attempt has heard."""
        self.warnings: list[str] = []
        if self.accepted and (past.arbiter or past.senior):
            self.warnings.append("accepted by the arbiter" if past.arbiter else "accepted only from the senior")
        self.origins = past.origins
        """The untrusted sources that its authors have read."""
        self.usage: Usage = past.usage
        self.cost: Decimal | None = past.cost
        self.expired = False
        self.broke = False
        """The budget has no room for another attempt."""
        self.stopped: str | None = None
        self.pending: tuple[PendingCall, ...] = ()
        self.paused: RunResult | None = past.paused
        """The run that waits for a person, or did; whose it is, and whether the senior's."""
        self.paused_by = past.paused_by
        self.paused_senior = past.paused_senior
        self.senior = past.paused_senior
        """The last attempt was the senior's."""
        self.interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deadline: float | None = None
        self._timers: list[asyncio.TimerHandle] = []

    # --- the clock and the hands --------------------------------------------------------------------------------

    def start_clock(self, seconds: float) -> None:
        """The step's time runs from its first attempt; shortly before the end its member is asked to deliver."""
        loop = asyncio.get_running_loop()
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
        """The step's time is up."""
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
        """Nothing of this step is at work any more."""
        for timer in self._timers:
            timer.cancel()
        self._let_go()

    # --- what came of it ----------------------------------------------------------------------------------------

    def take(self, result: RunResult, usage: Usage, cost: Decimal | None) -> str:
        """Take in how an attempt ended; what it delivered for review, blank when that is nothing."""
        self.usage, self.cost = self.usage + usage, add_cost(self.cost, cost)
        delivered = result.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP) and result.stop_reason != "refusal"
        self.artifact = result.text if delivered else ""
        self.unreviewed = bool(self.artifact.strip())
        waits = result.outcome is LoopOutcome.PAUSED
        if self.best_score < 0 and (self.unreviewed or (_said_something(result) and not waits)):
            self.best = result.text
        source = result.cause.source if result.cause is not None else ""
        self.broke = not result.iterations and source in _BUDGET
        if result.unknown_effects:
            names = ", ".join(call.name for call in result.unknown_effects)
            self.warnings.append(f"it is not known whether these calls took effect: {names}")
        if result.abandoned:
            names = ", ".join(work.tool_name or work.kind for work in result.abandoned)
            self.warnings.append(f"it did not stop, and may still be at work: {names}")
        self.paused, self.paused_senior = (result, self.senior) if waits else (None, False)
        self.pending = result.pending
        self.origins = tuple(dict.fromkeys((*self.origins, *result.origins)))
        return self.artifact

    def judged(self, verdict: EvaluationVerdict) -> None:
        """Take in a verdict on the last artifact."""
        self.verdicts.append(verdict)
        self.unreviewed = False
        if self.artifact.strip() and verdict.score >= self.best_score:
            self.best, self.best_score = self.artifact, verdict.score

    def outcome(self, state: StepState, reason: str = "", output: str | None = None) -> StepOutcome:
        """What became of the step."""
        return StepOutcome(
            step_id=self.step.id,
            state=state,
            output=self.best if output is None else output,
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


def _unheard(past: StepPast) -> list[str]:
    """The notes that the run which waits has not heard."""
    run = past.paused
    return [] if run is None else [note for note in past.notes if not any(note in said.text for said in run.messages)]


def _said_something(result: RunResult) -> bool:
    """True when the text is the member's own, and not a summary that was put together for it."""
    return bool(result.text.strip()) and not (result.partial and result.text.startswith(NO_ANSWER))


_BUDGET = frozenset({"TokenBudgetConstraint", "CostLimitConstraint", "max_tokens", "max_money", "budget"})


def refused(feedback: str, *, exceeded: bool = False) -> EvaluationVerdict:
    """The coordinator's own verdict on an attempt that nobody needs to review."""
    outcome: Any = VerdictOutcome.REVIEW_EXCEEDED if exceeded else VerdictOutcome.REVISE
    return EvaluationVerdict(outcome=outcome, feedback=feedback)


def why(result: RunResult) -> str:
    """How an attempt ended, for people and for the next attempt."""
    if result.stop_reason == "refusal":
        return "the member refused"
    cause = f" ({result.cause.source}: {result.cause.reason})" if result.cause is not None else ""
    return f"the attempt ended {result.state.name}/{result.outcome.name}{cause}"
