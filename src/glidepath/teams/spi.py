"""The two extension points of teams. An arbiter is an `EvaluationStrategy`, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from glidepath.teams.values import EvaluationContext, EvaluationVerdict, TeamExecutionRequest, TeamResult
from glidepath.values import UNPROVEN, experimental

if TYPE_CHECKING:
    from glidepath.teams.team_run import TeamRun

__all__ = ["EvaluationStrategy", "TeamCoordinator"]  # the ports: a test compares them with its list of all


@experimental(reason=UNPROVEN)
@runtime_checkable
class TeamCoordinator(Protocol):
    """Drives a team from a request to a result. `PlanRun` does most of it: see `docs/choosing-a-coordinator.md`.

    Contract of `execute(request, team)`:

    1.  It returns a `TeamResult` for everything that can happen. It raises only `ConfigurationError`, before its first
        event, and re-raises the cancellation of its own task, after its last one.
    2.  `team` is the `TeamRun` of this execution, with its members, budget, cancel token, clock and journal. Its
        opener closes it, not the coordinator.
    3.  Events are published only through `team.emit`. The first is `TeamStarted`; the last is exactly one terminal
        event, whose result is the one that is returned. TEAM_COMPLETED goes with COMPLETED and DEGRADED, TEAM_FAILED
        with FAILED, TEAM_TIMEOUT with TIMEOUT, TEAM_CANCELLED with CANCELLED, TEAM_PAUSED with PAUSED.
    4.  Every event carries the id of the request and the name of the team; events about a step also its id, events
        about an attempt also its number, from 1. Sequence numbers have no gaps. (`emit` writes request, team and
        number.)
    5.  `PlanReady` comes before the first `StepAssigned`. A step is assigned only when every step it depends on has
        ended in a way that `dependency_failure` accepts: delivered, or with RUN_DEGRADED ended in any way. With BLOCK
        a step whose dependency did not deliver is SKIPPED, and so are its dependents.
    6.  Steps move only along `STEP_TRANSITIONS`. `StepCompleted` is published once for each step that ended after it
        was assigned or was skipped, and never for a step twice.
    7.  At most `max_parallel_steps` steps are between `StepAssigned` and their end at any time.
    8.  At most `max_feedback_rounds` attempts are made at a step, and one more by a senior.
    9.  Every model call goes through `team.ask`, so that it is paid from the team's budget. Tokens, money and time of
        the whole team stay within the request's limits.
    10. `step_outcomes` has one entry for each step of the plan, in plan order, on every path on which there was a plan.
        Outputs are kept: DEGRADED has the output, TIMEOUT and CANCELLED have what was delivered and what was cut short.
    11. The risk profile is obeyed: work that was not accepted after all attempts degrades its step at LOW and fails it
        at MEDIUM and HIGH. A review that did not happen is never a pass, and a step that ran out of time never passes.
    12. When `team.cancel` is cancelled, no new member run is started and those in flight are stopped; the result is
        CANCELLED. When the time is up the same happens and the result is TIMEOUT.
    13. Without a valid plan, FAIL_FAST fails the team before any step; FALLBACK uses the deterministic plan and warns.
    14. A member that pauses makes its step WAITING. Other steps continue. When nothing else can, the result is PAUSED.
        Its run continues with the same member (`team.history.steps[...].paused_by`).
    15. Steps that `team.history` lists as finished are not run again.
    16. Nothing it started is alive when it returns.

    Behind `Team.run` a coordinator that raises, hangs past the team's time, answers nonsense, or forgets an event is
    contained: the team ends FAILED or TIMEOUT, with the events of clause 3.
    """

    async def execute(self, request: TeamExecutionRequest, team: TeamRun) -> TeamResult:
        """Carry out the request with the members of the team."""
        ...


@experimental(reason=UNPROVEN)
@runtime_checkable
class EvaluationStrategy(Protocol):
    """Judges one artifact of one step.

    Contract of `evaluate(context)`:

    1. It returns an `EvaluationVerdict`: PASS (use it), REVISE (try again, `feedback` says how), REVIEW_EXCEEDED (I
       cannot decide, somebody else must), or AUTO_PASS_WITH_WARNING (unreviewed, but may be used).
    2. `score` is from 0 to 1.
    3. It reads its context and changes nothing. It keeps no state between calls that a second call could see.
    4. A blank artifact never passes.
    5. A strategy that asks a model does so through `context.ask`, where there is one, so that the team pays and a
       cancel reaches it.
    6. AUTO_PASS_WITH_WARNING counts only with `TeamConfig.auto_pass`, which exists at LOW only; else it is taken as
       REVIEW_EXCEEDED.
    7. A deterministic strategy (such as `SimpleEvaluationStrategy`) answers the same context with the same verdict.

    The coordinator wraps every call (`review`): a crash, no answer within `evaluator_timeout`, None, anything that is
    not a verdict, and a score out of range are taken as REVIEW_EXCEEDED, never as a pass.
    """

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Judge the artifact."""
        ...
