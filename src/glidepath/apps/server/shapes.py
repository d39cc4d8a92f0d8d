"""What the server answers and what it takes, as typed values: the one place that knows the names on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from glidepath._wire import Value

MAX_REASON = 500
"""Characters of a reason."""


class Gauge(Value, frozen=True, kw_only=True):
    """One limit: what is used, reserved for calls in flight and kept for the landing; `limit` None is unlimited."""

    kind: str
    unit: str = ""
    used: float = 0
    reserved: float = 0
    reserve: float = 0
    limit: float | None = None


class UsageShape(Value, frozen=True, kw_only=True):
    """Tokens."""

    input: int = 0
    output: int = 0
    total: int = 0


class CauseShape(Value, frozen=True, kw_only=True):
    """Who ended the run, and why."""

    source: str
    reason: str


class RunCard(Value, frozen=True, kw_only=True):
    """One run at a glance. `pending` and `children` are counts here, and lists in the run's detail.

    `agent_state` is the run's `AgentState`: what it waits for while its `state` is running. None where nobody knows.
    """

    run_id: str
    session_id: str
    agent: str
    task: str = ""
    title: str = ""
    state: str = "running"
    agent_state: str | None = None
    outcome: str | None = None
    cause: CauseShape | None = None
    phase: str = "cruise"
    turn: int = 0
    usage: UsageShape = UsageShape()
    cost: str | None = None
    started: float = 0.0
    updated: float = 0.0
    ended: float | None = None
    tags: tuple[str, ...] = ()
    pending: int = 0
    pending_count: int = 0
    children: int = 0
    parent: str | None = None
    forked_from: Mapping[str, Any] | None = None
    owner: str | None = None
    who: str | None = None
    resumable: bool = False
    gauges: tuple[Gauge, ...] = ()
    guard: Mapping[str, Any] | None = None
    last: str = ""
    sequence: int = 0
    foreign: bool = False
    """Another program runs it: its calls go through the gate."""
    listed: float = 0.0
    """When its last leg began or ended: lists have the newest first."""


class PendingItem(Value, frozen=True, kw_only=True):
    """A call that waits for a person, with its exact arguments.

    `shown` is what a person must be shown, row by row, and `tool_shown` the name: all of it, with nothing hidden.
    `digest` is of the tool and the arguments; a decision that carries another one is refused.
    """

    id: str
    kind: str
    run_id: str
    session_id: str
    task: str = ""
    title: str = ""
    agent: str
    tool: str
    arguments: Mapping[str, Any]
    reason: str = ""
    origin: str | None = None
    asked: float = 0.0
    expires: float | None = None
    message: str = ""
    form: Mapping[str, Any] | None = None
    tool_shown: str = ""
    shown: tuple[str, ...] = ()
    digest: str = ""


class BudgetNode(Value, frozen=True, kw_only=True):
    """One budget and those below it."""

    name: str
    kind: str
    run_id: str | None = None
    gauges: tuple[Gauge, ...] = ()
    children: tuple[BudgetNode, ...] = ()


class UsagePoint(Value, frozen=True, kw_only=True):
    """What a run and its children had used at a time. `cost` is in dollars."""

    time: float
    turns: int = 0
    tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    tool_calls: int = 0


class Span(Value, frozen=True, kw_only=True, omit_defaults=True):
    """Something that took time. `kind`: model, tool, child or wait; `ended` None while it lasts.

    `sequence` is the event it began with. `note` says why a wait waited, how a call failed, or that a tool ran in the
    background: beside the call that started it, under its name and the id that `collect` takes.
    """

    kind: str
    name: str
    started: float
    sequence: int
    ended: float | None = None
    turn: int = 0
    attempt: int = 1
    failed: bool = False
    landing: bool = False
    note: str = ""
    call_id: str = ""
    child: str = ""
    """The id of the child's run."""
    input: int = 0
    output: int = 0
    cost: float | None = None


class ShownMessage(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a transcript. `mark`: cut, discarded, landing or notice.

    `skill` says what a result read or ran of a skill: its name, digest and file, and whether its text is trusted.
    `agent` is who speaks, once the conversation was handed over; `handoff` says who did that, and to whom.
    """

    index: int
    turn: int
    role: str
    text: str
    mark: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[Mapping[str, Any], ...] | None = None
    call_id: str | None = None
    name: str | None = None
    is_error: bool | None = None
    origin: str | None = None
    skill: Mapping[str, Any] | None = None
    agent: str | None = None
    handoff: Mapping[str, str] | None = None


class RequestShape(Value, frozen=True, kw_only=True):
    """What a model was asked in one call. `allowed`: the tools that it might call; None is all of them.

    `note` says what is not as it was sent, if anything.
    """

    model: str
    system: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    allowed: tuple[str, ...] | None = None
    parameters: Mapping[str, Any] = {}
    messages: tuple[ShownMessage, ...] = ()
    note: str = ""


class RunDetail(Value, frozen=True, kw_only=True):
    """All about one run but its events and messages."""

    run_id: str
    session_id: str
    agent: str
    task: str
    title: str
    state: str
    agent_state: str | None
    outcome: str | None
    cause: CauseShape | None
    phase: str
    turn: int
    usage: UsageShape
    cost: str | None
    started: float
    updated: float
    ended: float | None
    tags: tuple[str, ...]
    pending: tuple[PendingItem, ...]
    pending_count: int
    children: tuple[RunCard, ...]
    parent: str | None
    forked_from: Mapping[str, Any] | None
    owner: str | None
    who: str | None
    resumable: bool
    gauges: tuple[Gauge, ...]
    guard: Mapping[str, Any] | None
    last: str
    sequence: int
    text: str = ""
    text_origin: str | None = None
    reply: str | None = None
    """What the model has written of the reply that it is at; None between two replies."""
    unknown_effects: tuple[Mapping[str, Any], ...] = ()
    abandoned: tuple[str, ...] = ()
    budget: BudgetNode | None = None
    limits: Mapping[str, Any] = {}
    notices: tuple[Mapping[str, Any], ...] = ()
    guards: tuple[Mapping[str, Any], ...] = ()
    verdicts: tuple[Mapping[str, Any], ...] = ()
    controls: tuple[Mapping[str, Any], ...] = ()
    foreign: bool = False
    listed: float = 0.0
    trace: str | None = None
    """Where its trace is shown, if the server knows a place for traces and telemetry has made one."""


class EvalCard(Value, frozen=True, kw_only=True):
    """One evaluation at a glance. `status`: running, stopped, completed or incomplete."""

    name: str
    dataset: str = ""
    agent: str = ""
    status: str = ""
    passed: int = 0
    covered: int = 0
    planned: int = 0
    pass_rate: float | None = None
    cost: str | None = None
    tokens: int = 0
    began: str = ""
    updated: float = 0.0


class EvalDetail(Value, frozen=True, kw_only=True):
    """The report of an evaluation with a page of its results: failed, not covered, passed."""

    card: EvalCard
    repeat: int
    cases: int
    seconds: float
    limits: Mapping[str, str]
    pass_rate: float | None
    interval: tuple[float, float]
    always: int
    uncovered: Mapping[str, int]
    endings: Mapping[str, int]
    cost: str | None
    judge_cost: str | None
    tokens: int
    curve: Mapping[str, Any] | None
    results: tuple[Mapping[str, Any], ...]
    total: int


class AgentInfo(Value, frozen=True, kw_only=True):
    """One agent that can be given a task."""

    name: str
    model: str
    tools: tuple[str, ...]
    limits: Mapping[str, Any]


# --- what is sent to the server ---------------------------------------------------------------------------------


class StartBody(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a run."""

    agent: str
    prompt: str
    session: str | None = None
    limits: dict[str, Any] | None = None
    tags: list[str] | None = None
    reason: str = ""


class ReasonBody(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Land, stop or resume, and why."""

    reason: str = ""


class BatchBody(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Land, stop or resume many runs, and why."""

    ids: list[str]
    reason: str = ""


class BatchItem(Value, frozen=True, kw_only=True):
    """The result for one of them: what happened, or in `error` why nothing was done."""

    run_id: str
    message: str = ""
    error: str | None = None


class BatchAnswer(Value, frozen=True, kw_only=True):
    """The result for each of many runs, in the order in which they were named."""

    message: str
    took_ms: float
    results: tuple[BatchItem, ...]


class SteerBody(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tell the model something after the turn it is in."""

    message: str
    reason: str = ""


class DecideBody(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Decide about a call that waits; `edit` approves it with other `arguments`.

    `digest` is that of the call as it was shown; without it nobody checks that it is the one that waits.
    """

    id: str
    decision: Literal["approve", "deny", "edit", "answer"]
    arguments: dict[str, Any] | None = None
    message: str | None = None
    reason: str = ""
    digest: str = ""


class ForkBody(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new session as this one was after turn `at`, and what to ask there."""

    at: int
    prompt: str | None = None
    reason: str = ""


class LimitsBody(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other limits; with `resume` the run continues under them at once."""

    limits: dict[str, Any]
    resume: bool = True
    reason: str = ""


class UnlockBody(Value, frozen=True, kw_only=True):
    """A one-time code, to be exchanged for the token."""

    code: str


class SettleBody(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person found out about a call whose outcome is unknown."""

    call_id: str
    outcome: Literal["done", "not_done"]
    result: str | None = None
    reason: str = ""


class KillBody(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Throw a kill switch, or release it."""

    scope: Literal["run", "tenant", "fleet"]
    active: bool
    reason: str = ""
    id: str | None = None


class SwitchShape(Value, frozen=True, kw_only=True):
    """A kill switch that is thrown: of the fleet, or of the tenant `id`."""

    scope: str
    id: str | None = None
    reason: str
    who: str
    since: float


class DoneAnswer(Value, frozen=True, kw_only=True):
    """What happened, as the run's events tell it."""

    run_id: str
    state: str
    sequence: int
    took_ms: float
    message: str
    session_id: str = ""
