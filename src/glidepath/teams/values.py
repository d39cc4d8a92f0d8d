"""Values of teams: requests, plans, verdicts, outcomes and results; frozen, and checked at construction."""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, TypeAlias

from glidepath._wire import Value, field, freeze, replace, settle_field
from glidepath.agent import Agent, Limits, check_metadata, check_user
from glidepath.run import name_below
from glidepath.values import (
    CallFrame,
    ConfigurationChange,
    ConfigurationError,
    PendingCall,
    RunResult,
    Usage,
    check_int,
    check_seconds,
    check_text as check_any_text,
)

if TYPE_CHECKING:
    Money: TypeAlias = Decimal | str | int | None
else:
    Money = Decimal | None  # what is kept, and read back

_MAX_NAME = 200


class RiskProfile(str, Enum):
    """What a mistake would cost: decides who reviews, and whether unreviewed work may be used."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class EvaluatorPreference(str, Enum):
    """Who reviews: AUTO follows the risk profile."""

    AUTO = "auto"
    SIMPLE = "simple"
    AGENT = "agent"


class PlannerFailureMode(str, Enum):
    """What happens when there is no valid plan: fail the team, or continue with the deterministic plan."""

    FAIL_FAST = "fail_fast"
    FALLBACK = "fallback"


class DependencyFailure(str, Enum):
    """What happens to a step whose dependency did not deliver: it is skipped, or runs without it."""

    BLOCK = "block"
    RUN_DEGRADED = "run_degraded"


class VerdictOutcome(str, Enum):
    """What a reviewer says. REVIEW_EXCEEDED: no verdict is possible, someone else must decide."""

    PASS = "pass"  # noqa: S105 - a verdict
    REVISE = "revise"
    REVIEW_EXCEEDED = "review_exceeded"
    AUTO_PASS_WITH_WARNING = "auto_pass_with_warning"  # noqa: S105 - a verdict


class StepState(str, Enum):
    """The state of a step. The last five are terminal; the legal moves are in `glidepath.teams.step_table`."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    EVALUATING = "evaluating"
    ESCALATED = "escalated"
    WAITING = "waiting"
    COMPLETED = "completed"
    DEGRADED = "degraded"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def delivered(self) -> bool:
        """True when others may build on the step's output."""
        return self in (StepState.COMPLETED, StepState.DEGRADED)

    @property
    def terminal(self) -> bool:
        """True when the step has ended for good."""
        return self in _TERMINAL


_TERMINAL = frozenset(
    {StepState.COMPLETED, StepState.DEGRADED, StepState.SKIPPED, StepState.FAILED, StepState.CANCELLED}
)


class TeamStatus(str, Enum):
    """How a team ended. DEGRADED has an answer; PAUSED can continue."""

    COMPLETED = "completed"
    DEGRADED = "degraded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    PAUSED = "paused"


# --- checks -------------------------------------------------------------------------------------------------------


def check_text(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless `value` is a str that can be sent, and not blank."""
    check_any_text(name, value)
    if not value.strip():
        raise ConfigurationError(f"{name} must not be empty")


def check_name(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless `value` can be a name: short, and without line breaks."""
    check_text(name, value)
    if len(value) > _MAX_NAME or value.splitlines() != [value]:
        raise ConfigurationError(f"{name} must be one line of at most {_MAX_NAME} characters, not {value!r:.80}")


def check_kind(name: str, value: object, kind: type) -> None:
    """Raise `ConfigurationError` unless `value` is of this kind."""
    if not isinstance(value, kind):
        hint = f"; use one of {', '.join(str(member) for member in kind)}" if issubclass(kind, Enum) else ""
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ConfigurationError(f"{name} must be {article} {kind.__name__}, not {value!r:.80}{hint}")


Kind: TypeAlias = type | list[type] | Callable[[str, Any], object]
"""What a field must be: of a class, a tuple of one, or what a check such as `check_name` accepts."""


def check_fields(value: Value, **kinds: Kind) -> None:
    """Check fields of a value; a field whose default is None may be None. A list becomes a tuple: a value is frozen."""
    fields, defaults = value.__struct_fields__, value.__struct_defaults__
    optional = [name for name, default in zip(fields[-len(defaults) :], defaults, strict=True) if default is None]
    for name, kind in kinds.items():
        given, label = getattr(value, name), f"{type(value).__name__}.{name}"
        if given is None and name in optional:
            continue
        if isinstance(kind, list):
            if not isinstance(given, tuple | list):
                raise ConfigurationError(f"{label} must be a tuple of {kind[0].__name__}, not {given!r:.80}")
            for item in given:
                check_kind(f"{label}[...]", item, kind[0])
            if type(given) is list:
                settle_field(value, name, tuple(given))
        elif isinstance(kind, type):
            check_kind(label, given, kind)
        else:
            kind(label, given)


# --- requests and plans -------------------------------------------------------------------------------------------


class RoleDefinition(Value, frozen=True, kw_only=True):
    """A role in a team: instructions for the member that plays it, and what that member must be able to do.

    Planning fails unless a member offers `required_capability`.
    """

    name: str
    instructions: str = ""
    required_capability: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, name=check_name, instructions=check_any_text, required_capability=check_name)


class TeamStep(Value, frozen=True, kw_only=True):
    """One piece of work: what to do, in which role, after which other steps. `member` pins it to a member by name."""

    id: str
    description: str
    role: RoleDefinition | None = None
    depends_on: tuple[str, ...] = ()
    member: str | None = None

    def __post_init__(self) -> None:
        check_fields(
            self, id=check_name, description=check_text, role=RoleDefinition, depends_on=[str], member=check_name
        )
        if self.id in self.depends_on:
            raise ConfigurationError(f"TeamStep.depends_on: step {self.id!r} depends on itself")
        if len(set(self.depends_on)) < len(self.depends_on):
            raise ConfigurationError(f"TeamStep.depends_on: step {self.id!r} names a dependency twice")


class TeamExecutionPlan(Value, frozen=True, kw_only=True):
    """The steps of a piece of work: at least one, unique ids, known dependencies, no cycle. `source`: who made it."""

    steps: tuple[TeamStep, ...]
    source: str = "given"

    def __post_init__(self) -> None:
        check_fields(self, steps=[TeamStep], source=check_name)
        if not self.steps:
            raise ConfigurationError("TeamExecutionPlan.steps must not be empty: a plan has at least one step")
        ids: set[str] = set()
        for step in self.steps:
            if step.id in ids:
                raise ConfigurationError(f"TeamExecutionPlan.steps: two steps have the id {step.id!r}")
            ids.add(step.id)
        for step in self.steps:
            for needed in step.depends_on:
                if needed not in ids:
                    raise ConfigurationError(
                        f"TeamExecutionPlan.steps: step {step.id!r} depends on {needed!r}, which is not a step"
                    )
        try:
            TopologicalSorter({step.id: step.depends_on for step in self.steps}).prepare()
        except CycleError as error:
            stuck = ", ".join(step.id for step in self.steps if step.id in error.args[1])
            raise ConfigurationError(f"TeamExecutionPlan.steps: these steps wait for each other: {stuck}") from None

    def step(self, step_id: str) -> TeamStep:
        """The step with this id; raises KeyError."""
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)


class TeamResourceConstraint(Value, frozen=True, kw_only=True):
    """What the whole team may use; absent means unlimited. The team's budget enforces it."""

    max_total_tokens: int | None = None
    max_cost: Money = None
    max_duration: float | None = None
    max_parallel_steps: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, max_total_tokens=check_int, max_parallel_steps=check_int, max_duration=check_seconds)
        try:
            Limits(max_cost=self.max_cost)
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace("Limits.", "TeamResourceConstraint.")) from None
        if self.max_cost is not None:
            settle_field(self, "max_cost", Decimal(self.max_cost))


class TeamConfig(Value, frozen=True, kw_only=True):
    """How carefully a team works, and within which bounds.

    `max_feedback_rounds` is the total number of attempts at a step. `step_timeout` bounds one step with all its
    attempts and reviews, `evaluator_timeout` one review. `auto_pass` lets an evaluator's AUTO_PASS_WITH_WARNING count,
    at LOW only.
    """

    risk_profile: RiskProfile = RiskProfile.MEDIUM
    max_feedback_rounds: int = 3
    team_timeout: float = 600.0
    step_timeout: float = 300.0
    evaluator_timeout: float = 60.0
    evaluator_preference: EvaluatorPreference = EvaluatorPreference.AUTO
    planner_failure_mode: PlannerFailureMode = PlannerFailureMode.FAIL_FAST
    dependency_failure: DependencyFailure = DependencyFailure.BLOCK
    auto_pass: bool = False
    resource_constraint: TeamResourceConstraint = TeamResourceConstraint()

    def __post_init__(self) -> None:
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            if not isinstance(default, int | float) or isinstance(default, bool):  # numbers are checked below
                check_kind(f"TeamConfig.{name}", getattr(self, name), type(default))
        for name in ("max_feedback_rounds", "team_timeout", "step_timeout", "evaluator_timeout"):
            if getattr(self, name) is None:
                raise ConfigurationError(f"TeamConfig.{name} must be a number, not None")
        check_int("TeamConfig.max_feedback_rounds", self.max_feedback_rounds)
        for name in ("team_timeout", "step_timeout", "evaluator_timeout"):
            check_seconds(f"TeamConfig.{name}", getattr(self, name))
        if self.auto_pass and self.risk_profile is not RiskProfile.LOW:
            raise ConfigurationError("TeamConfig.auto_pass works only with risk_profile=RiskProfile.LOW; leave it out")

    @property
    def time_limit(self) -> float:
        """Seconds the whole team has: the lesser of `team_timeout` and the constraint's `max_duration`."""
        duration = self.resource_constraint.max_duration
        return self.team_timeout if duration is None else min(self.team_timeout, duration)


class TeamExecutionRequest(Value, frozen=True, kw_only=True):
    """A goal for a team. With `plan`, nothing is planned; with `plan_only`, the team plans and stops."""

    goal: str
    id: str = field(default_factory=lambda: f"request_{os.urandom(8).hex()}")
    roles: tuple[RoleDefinition, ...] = ()
    context: Mapping[str, str] = {}
    plan: TeamExecutionPlan | None = None
    plan_only: bool = False
    config: TeamConfig = TeamConfig()
    user: str | None = None
    """Who the team works for; passed to every member's run."""
    metadata: Mapping[str, str] | None = None
    """What the application says about the request; passed to every member's run."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            goal=check_text,
            id=check_name,
            roles=[RoleDefinition],
            plan=TeamExecutionPlan,
            plan_only=bool,
            config=TeamConfig,
        )
        if self.user is not None:
            check_user(self.user)
        if self.metadata is not None:
            settle_field(self, "metadata", freeze(check_metadata(self.metadata)))
        names = [role.name for role in self.roles]
        if len(set(names)) < len(names):
            raise ConfigurationError("TeamExecutionRequest.roles: two roles have the same name")
        if not isinstance(self.context, Mapping):
            raise ConfigurationError(f"TeamExecutionRequest.context must map names to texts, not {self.context!r:.80}")
        for name, text in self.context.items():
            check_name("TeamExecutionRequest.context: a name", name)
            check_any_text(f"TeamExecutionRequest.context[{name!r}]", text)
        settle_field(self, "context", freeze(dict(self.context)))


# --- reviews ------------------------------------------------------------------------------------------------------


class EvaluationVerdict(Value, frozen=True, kw_only=True):
    """What a reviewer says about one artifact. `score` is from 0 to 1."""

    outcome: VerdictOutcome
    score: float = 0.0
    feedback: str = ""
    suggestions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, outcome=VerdictOutcome, feedback=str, suggestions=[str])
        number = isinstance(self.score, int | float) and not isinstance(self.score, bool)
        if not number or not math.isfinite(self.score) or not 0 <= self.score <= 1:
            raise ConfigurationError(f"EvaluationVerdict.score must be a number from 0 to 1, not {self.score!r:.80}")

    @property
    def passed(self) -> bool:
        """True for PASS and AUTO_PASS_WITH_WARNING."""
        return self.outcome in (VerdictOutcome.PASS, VerdictOutcome.AUTO_PASS_WITH_WARNING)


class EvaluationContext(Value, frozen=True, kw_only=True):
    """One artifact to judge. `attempt` counts from 1; `prior_verdicts` are of earlier attempts, oldest first.

    A judge that asks a model does so through `ask`, so that the team pays and a cancel reaches it. Outside a team it
    is None.
    """

    step: TeamStep
    artifact: str
    attempt: int = 1
    prior_verdicts: tuple[EvaluationVerdict, ...] = ()
    config: TeamConfig = TeamConfig()
    goal: str = ""
    ask: Callable[[Agent, str], Awaitable[RunResult]] | None = None

    def __post_init__(self) -> None:
        check_fields(self, step=TeamStep, artifact=str, prior_verdicts=[EvaluationVerdict], config=TeamConfig)
        if self.attempt is None:
            raise ConfigurationError("EvaluationContext.attempt must be a whole number, not None")
        check_int("EvaluationContext.attempt", self.attempt)


# --- results ------------------------------------------------------------------------------------------------------


class StepOutcome(Value, frozen=True, kw_only=True):
    """How one step ended. `output` is kept in every state; only COMPLETED and DEGRADED steps pass it on."""

    step_id: str
    state: StepState
    output: str = ""
    attempts: int = 0
    verdicts: tuple[EvaluationVerdict, ...] = ()
    member: str | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost: Decimal | None = None
    stopped: bool = False
    """A person stopped this step."""
    pending: tuple[PendingCall, ...] = ()
    """WAITING: what a person must decide."""
    paused: RunResult | None = None
    """WAITING: the run that waits, so that it can continue."""
    senior: bool = False
    """The last attempt was the senior's, not the member's."""
    notes: tuple[str, ...] = ()
    """What a person said to this step."""
    origins: tuple[str, ...] = ()
    """The untrusted sources that its authors have read: `output` may come from any of them."""

    def __post_init__(self) -> None:
        check_fields(self, step_id=check_name, state=StepState)
        check_int("StepOutcome.attempts", self.attempts, least=0)

    @property
    def verdict(self) -> EvaluationVerdict | None:
        """The last verdict, if there was one."""
        return self.verdicts[-1] if self.verdicts else None


class TeamResult(Value, frozen=True, kw_only=True):
    """How a team ended, what it produced, and what it cost. Returned on every path.

    `step_outcomes` has one entry for each step of the plan, in plan order. `usage` and `cost` include planning and
    judges.
    """

    request: TeamExecutionRequest
    team: str
    status: TeamStatus
    plan: TeamExecutionPlan | None = None
    step_outcomes: tuple[StepOutcome, ...] = ()
    final_output: str = ""
    reason: str = ""
    duration: float = 0.0
    warnings: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost: Decimal | None = None
    sequence: int = 0
    """The number of the last event, so that a paused team continues counting where it stopped."""
    changes: tuple[ConfigurationChange, ...] = ()
    """What had changed about the team since the last execution, if this one was resumed from a store."""

    def __post_init__(self) -> None:
        kinds: dict[str, Kind] = {"status": TeamStatus, "step_outcomes": [StepOutcome], "warnings": [str]}
        check_fields(self, request=TeamExecutionRequest, plan=TeamExecutionPlan, **kinds)
        if self.plan is not None:
            planned = [step.id for step in self.plan.steps]
            if [outcome.step_id for outcome in self.step_outcomes] != planned:
                raise ConfigurationError("TeamResult.step_outcomes must have one entry for each step, in plan order")

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return self.request.id

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """What a person must decide, in all steps: each call by the id that `Team.resume` takes, with its path."""
        return tuple([one for outcome in self.step_outcomes for one in _list_pending(outcome)])

    def outcome(self, step_id: str) -> StepOutcome:
        """How a step ended; raises KeyError."""
        for outcome in self.step_outcomes:
            if outcome.step_id == step_id:
                return outcome
        known = ", ".join(outcome.step_id for outcome in self.step_outcomes) or "none"
        raise KeyError(f"no outcome for step {step_id!r}; there are outcomes for: {known}")


def _list_pending(outcome: StepOutcome) -> list[PendingCall]:
    """What a step waits for, as the whole team lists it."""
    step, member = outcome.step_id, outcome.member or ""
    run_id = "" if outcome.paused is None else outcome.paused.run_id
    frame = CallFrame(call_id=step, tool="step", agent=member, run_id=run_id)
    return [
        replace(
            one,
            call=replace(one.call, id=name_below(step, one.call.id)),
            reason=f"{member}: {one.reason}",
            inside=step,
            path=(frame, *one.path),
        )
        for one in outcome.pending
    ]
