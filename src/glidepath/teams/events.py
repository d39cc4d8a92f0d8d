"""Events of a team. They go to the same observers as the events of a run.

Every team event carries the request (`run_id`, also as `request_id`), the team, a sequence number without gaps, the
time, and the step and attempt it is about, if any. `TeamRun.emit` fills in the envelope; code that creates an event
gives only its content. The first event of an execution is `TeamStarted`; the last is exactly one of `TERMINAL`.
"""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any

from glidepath._wire import Codec
from glidepath.plugins import snake_case
from glidepath.teams.team_fingerprint import TeamFingerprint
from glidepath.teams.values import (
    EvaluationVerdict,
    StepOutcome,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    TeamStatus,
)
from glidepath.values import ConfigurationChange, Event, UnknownEvent, Usage


class TeamEvent(Event, frozen=True, kw_only=True):
    """The envelope of every team event. `step_id` and `attempt` are None where the event is about the whole team."""

    run_id: str = ""
    parent_id: str | None = None
    sequence: int = 0
    time: float = 0.0
    team: str = ""
    step_id: str | None = None
    attempt: int | None = None

    @property
    def request_id(self) -> str:
        """The id of the request this belongs to."""
        return self.run_id

    @property
    def kind(self) -> str:
        """The name of the kind, such as TEAM_STARTED."""
        return snake_case(type(self).__name__).upper()


class TeamStarted(TeamEvent, frozen=True, tag=True, kw_only=True):
    """An execution began; with `resumed`, it continues an earlier one, and `changes` has what changed since."""

    request: TeamExecutionRequest
    coordinator: str = ""
    members: tuple[str, ...] = ()
    resumed: bool = False
    schema: int = 0
    version: str = ""
    config: TeamFingerprint | None = None
    changes: tuple[ConfigurationChange, ...] = ()


class PlanReady(TeamEvent, frozen=True, tag=True, kw_only=True):
    """There is a valid plan."""

    plan: TeamExecutionPlan
    usage: Usage = Usage()
    cost: Decimal | None = None


class StepAssigned(TeamEvent, frozen=True, tag=True, kw_only=True):
    """A member starts an attempt at a step."""

    member: str
    senior: bool = False


class StepAttempted(TeamEvent, frozen=True, tag=True, kw_only=True):
    """An attempt ended: its run, how that ended, what it produced and what it cost."""

    member: str
    member_run_id: str
    state: str
    outcome: str
    artifact: str = ""
    usage: Usage = Usage()
    cost: Decimal | None = None
    senior: bool = False
    origins: tuple[str, ...] = ()
    """The untrusted sources that the member has read."""


class StepCompleted(TeamEvent, frozen=True, tag=True, kw_only=True):
    """A step ended for good; `outcome.state` says how."""

    outcome: StepOutcome


class EvaluationStarted(TeamEvent, frozen=True, tag=True, kw_only=True):
    """An artifact is being judged."""

    evaluator: str
    arbiter: bool = False


class EvaluationResult(TeamEvent, frozen=True, tag=True, kw_only=True):
    """The verdict on an artifact, as the coordinator uses it, with `usage` and `cost` of the judge."""

    evaluator: str
    verdict: EvaluationVerdict
    arbiter: bool = False
    usage: Usage = Usage()
    cost: Decimal | None = None


class Handoff(TeamEvent, frozen=True, tag=True, kw_only=True):
    """A step was handed over: `to` is senior, arbiter, person, or the name of a member."""

    to: str
    reason: str
    artifact: str = ""


class StepSteered(TeamEvent, frozen=True, tag=True, kw_only=True):
    """A person spoke to a step (`action` steer) or stopped it (`action` stop)."""

    action: str
    text: str = ""


class TeamEnding(TeamEvent, frozen=True, kw_only=True):
    """An execution ended, with this result."""

    result: TeamResult


class TeamPaused(TeamEnding, frozen=True, tag=True, kw_only=True):
    """The execution ended and can continue: a plan waits for confirmation, or steps wait for a person."""


class TeamTimeout(TeamEnding, frozen=True, tag=True, kw_only=True):
    """The team ran out of time; the result keeps what it had."""


class TeamCompleted(TeamEnding, frozen=True, tag=True, kw_only=True):
    """The team delivered; `result.status` is COMPLETED or DEGRADED."""


class TeamFailed(TeamEnding, frozen=True, tag=True, kw_only=True):
    """The team did not deliver."""


class TeamCancelled(TeamEnding, frozen=True, tag=True, kw_only=True):
    """The team was stopped; the result keeps what it had."""


TERMINAL: tuple[type[TeamEnding], ...] = tuple(TeamEnding.__subclasses__())
"""The kinds that end an execution."""

TEAM_EVENTS: tuple[type[TeamEvent], ...] = (
    *(kind for kind in TeamEvent.__subclasses__() if kind is not TeamEnding),
    *TERMINAL,
)
"""Every kind of team event."""

_ENDINGS: dict[TeamStatus, type[TeamEnding]] = {
    TeamStatus.COMPLETED: TeamCompleted,
    TeamStatus.DEGRADED: TeamCompleted,
    TeamStatus.FAILED: TeamFailed,
    TeamStatus.TIMEOUT: TeamTimeout,
    TeamStatus.CANCELLED: TeamCancelled,
    TeamStatus.PAUSED: TeamPaused,
}


def make_ending(result: TeamResult) -> TeamEnding:
    """The terminal event for a result."""
    return _ENDINGS[result.status](result=result)


def codec() -> Codec[Any, UnknownEvent]:
    """A reader and writer of one team event."""
    return Codec(
        reduce(or_, TEAM_EVENTS),
        tag_field="event",
        tags=frozenset(kind.__name__ for kind in TEAM_EVENTS),
        unknown=lambda event, raw: UnknownEvent(event=event, raw=raw),
    )
