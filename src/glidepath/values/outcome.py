"""How a run can end, and the record of how it did."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Never, overload

from glidepath._wire import Value, digest, field
from glidepath.values.burndown import BurnPoint, Use
from glidepath.values.call_frames import CallFrame, Program
from glidepath.values.errors import RunNotCompleted
from glidepath.values.messages import Message, StopReason, ToolCall, ToolResultMessage, Usage, origins_of
from glidepath.values.plurals import pluralize
from glidepath.values.quantities import EXACT
from glidepath.values.result_kind import ResultKind as ResultKind  # noqa: PLC0414 - where everybody looks for it

__all__ = [
    "PROTOCOL_STOPS",
    "TRANSITIONS",
    "AbandonedWork",
    "AgentState",
    "BackgroundCall",
    "BurnPoint",
    "CallFrame",
    "Charge",
    "ConfigurationChange",
    "LoopOutcome",
    "PendingCall",
    "ResourceAction",
    "ResourceValidation",
    "RunResult",
    "Snapshot",
    "Spend",
    "StopCause",
    "TextOrigin",
    "ValidationRecord",
]

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # every type checker brings it along

    OutputT = TypeVar("OutputT", default=Any)
    DepsT = TypeVar("DepsT", default=Any)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")
    DepsT = TypeVar("DepsT")

_HEAD = 80  # characters of a text in a repr


@lru_cache(maxsize=256)  # constraints ask three times a turn for what changes once
def dollars(amount: int) -> Decimal:
    """Pico-dollars, as money is counted inside, as dollars."""
    return EXACT.divide(Decimal(amount), 10**12)


class AgentState(str, Enum):
    """The state of a run. The last six are terminal; WAITING_FOR_INPUT ends a run that can be resumed."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING_FOR_TOOL = "waiting_for_tool"
    RECOVERING = "recovering"
    WAITING_FOR_INPUT = "waiting_for_input"
    COMPLETED = "completed"
    MAX_STEPS = "max_steps"
    BUDGET_EXCEEDED = "budget_exceeded"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    ERROR = "error"

    @property
    def terminal(self) -> bool:
        """True when a run in this state has ended for good."""
        return not TRANSITIONS[self]


_S = AgentState
_ENDS = (_S.MAX_STEPS, _S.BUDGET_EXCEEDED, _S.TIMED_OUT, _S.CANCELLED, _S.ERROR)

TRANSITIONS: Mapping[AgentState, frozenset[AgentState]] = MappingProxyType(
    {
        _S.IDLE: frozenset({_S.RUNNING, *_ENDS}),
        _S.RUNNING: frozenset({_S.WAITING_FOR_TOOL, _S.RECOVERING, _S.WAITING_FOR_INPUT, _S.COMPLETED, *_ENDS}),
        _S.WAITING_FOR_TOOL: frozenset({_S.RUNNING, _S.WAITING_FOR_INPUT, _S.COMPLETED, *_ENDS}),
        _S.RECOVERING: frozenset({_S.RUNNING, _S.COMPLETED, *_ENDS}),
        _S.WAITING_FOR_INPUT: frozenset({_S.RUNNING, _S.WAITING_FOR_TOOL, *_ENDS}),
        **dict.fromkeys((_S.COMPLETED, *_ENDS), frozenset()),
    }
)
"""Every state with the states that may follow it. A limit, an error or a cancel may follow any that is not terminal."""


class LoopOutcome(str, Enum):
    """What the caller got."""

    DONE = "done"
    WRAPPED_UP = "wrapped_up"
    CUT_OFF = "cut_off"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PAUSED = "paused"


class TextOrigin(str, Enum):
    """Who wrote a result's `text`: the model, a tool whose result ended the run, or the runtime in their place."""

    MODEL = "model"
    TOOL = "tool"
    RUNTIME = "runtime"


_O = LoopOutcome
ENDINGS: frozenset[tuple[AgentState, LoopOutcome]] = frozenset(
    {
        (_S.COMPLETED, _O.DONE),
        *((state, outcome) for state in (_S.COMPLETED, *_ENDS) for outcome in (_O.WRAPPED_UP, _O.CUT_OFF)),
        (_S.ERROR, _O.FAILED),
        (_S.CANCELLED, _O.CANCELLED),
        (_S.WAITING_FOR_INPUT, _O.PAUSED),
    }
)
"""The only pairs of state and outcome in which a run can end."""


def _protocol_stops() -> dict[tuple[AgentState, LoopOutcome], dict[str, str]]:
    stops = {}
    for state, outcome in ENDINGS:
        delivered = outcome in (_O.DONE, _O.WRAPPED_UP)
        acp, a2a, agui = "end_turn", "completed" if delivered else "failed", "RUN_FINISHED/success"
        if outcome is _O.PAUSED:
            a2a, agui = "input-required", "RUN_FINISHED/interrupt"
        elif outcome is _O.FAILED:
            agui = "RUN_ERROR"
        elif outcome is _O.CANCELLED:
            a2a = "canceled"
        if state is _S.CANCELLED:
            acp = "cancelled"
            agui = agui if delivered else "RUN_FINISHED/cancelled"
        elif state in (_S.MAX_STEPS, _S.BUDGET_EXCEEDED, _S.TIMED_OUT):
            acp = "max_turn_requests"
        elif not delivered and outcome is not _O.PAUSED:
            acp = "max_tokens" if state is _S.COMPLETED else "error"
        stops[state, outcome] = {"acp": acp, "a2a": a2a, "ag_ui": agui}
    return stops


PROTOCOL_STOPS: Mapping[tuple[AgentState, LoopOutcome], Mapping[str, str]] = MappingProxyType(_protocol_stops())
"""For every ending, what ACP, A2A and AG-UI call it; the full outcome travels as metadata.

ACP has no stop reason for an error: `error` is an error answer of JSON-RPC. AG-UI has an outcome beside the event.
"""


class ResourceAction(Enum):
    """What a constraint asks for, by severity."""

    ALLOW = 0
    WARN_CONTINUE = 10
    GRACEFUL_EXIT = 20
    EMERGENCY_STOP = 30

    @property
    def severity(self) -> int:
        """The number that decides which action wins."""
        return self.value


class ResourceValidation(Value, frozen=True):
    """What a constraint found. `notice` is told to the model once."""

    violated: bool
    reason: str = ""
    metrics: Mapping[str, Any] = {}
    notice: str | None = None

    @classmethod
    def ok(cls, **metrics: object) -> ResourceValidation:
        """Nothing is wrong."""
        return cls(violated=False, metrics=metrics) if metrics else _OK

    @classmethod
    def violation(cls, reason: str, *, notice: str | None = None, **metrics: object) -> ResourceValidation:
        """The limit is violated, and why."""
        return cls(violated=True, reason=reason, metrics=metrics, notice=notice)


_OK = ResourceValidation(violated=False)


class ValidationRecord(Value, frozen=True, kw_only=True):
    """One constraint's answer at one checkpoint, as kept in the result. A skipped one was never asked."""

    constraint: str
    checkpoint: str
    iteration: int
    action: ResourceAction
    validation: ResourceValidation
    skipped: bool = False


class StopCause(Value, frozen=True, kw_only=True):
    """Why the loop stopped: the source, the action, and the figures."""

    source: str
    action: str
    reason: str
    metrics: Mapping[str, Any] = {}


class Verdict(Value, frozen=True, kw_only=True):
    """Why and how a run must end. `gentle`: a landing call may still be made."""

    state: AgentState
    cause: StopCause
    gentle: bool = True
    cut: LoopOutcome = LoopOutcome.CUT_OFF


class BackgroundCall(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A call that the model has started in the background. `result` is None while it runs."""

    id: str
    call: ToolCall
    result: ToolResultMessage | None = None
    collected: bool = False


class AbandonedWork(Value, frozen=True, kw_only=True):
    """Work that ignored cancellation and was let go: it may still be running."""

    call_id: str
    tool_name: str
    kind: str
    reason: str


class PendingCall(Value, frozen=True, kw_only=True):
    """A call that is waiting for a person's decision."""

    call: ToolCall
    reason: str = ""
    form: Mapping[str, Any] | None = None
    """The JSON Schema of the answer it waits for: `answer({...})`. None: `approve()`, `deny()` or `answer(text)`."""
    state: str = ""
    """What its tool needs to continue; nobody else's business."""
    origins: tuple[str, ...] = ()
    """The untrusted sources that a plugin asks about, for the person who decides."""
    inside: str = ""
    """The call of this run in the middle of which it waits, by id; empty for a call that the model made itself."""
    path: tuple[CallFrame, ...] = ()
    """From this run down, the calls in the middle of which it waits: agents that were made tools, and programs."""

    @property
    def digest(self) -> str:
        """A digest of the tool's name and the arguments: what a person was shown. `approve(digest=...)` takes it."""
        return digest([self.call.name, dict(self.call.arguments)])


class Spend(Value, frozen=True, kw_only=True):
    """What one model, tool or child cost."""

    kind: str
    name: str
    calls: int = 0
    usage: Usage = Usage()
    cost: Decimal | None = None


class Charge(Value, frozen=True, kw_only=True):
    """What one model or child has cost so far, money exactly."""

    calls: int = 0
    usage: Usage = Usage()
    picodollars: int = 0


class PerRun(Value, frozen=True, kw_only=True):
    """What was passed to `run()` for this run alone; None where nothing was. Plain JSON, and part of the snapshot."""

    extras: Mapping[str, Any] | None = None
    tool_choice: str | None = None
    metadata: Mapping[str, str] | None = None
    user: str | None = None
    limits: Mapping[str, Any] | None = None
    """The fields of `Limits` that differ from their defaults."""
    system_prompt: str | None = None
    model: str | None = None
    """The model, where it was given as a string; an object cannot be kept."""
    notes: Mapping[str, str] | None = None
    """What plugins leave in the journal about this run, by plugin: see `Plugin.journal_note`."""


class ConfigurationChange(Value, frozen=True, kw_only=True):
    """Something about the agent that had changed when its run continued; `before` or `now` is None if it was missing.

    `what` is version, agent, model, fallback_models, system_prompt, output_type, limit, tool, skill, plugin or
    constraint; `name` says which limit, tool, skill, plugin or constraint. In a team it is also coordinator, member or
    capability, and `name` begins with the member: `writer`, `writer/max_iterations`.
    """

    what: str
    name: str = ""
    before: str | None = None
    now: str | None = None

    def __str__(self) -> str:
        how = "is new" if self.before is None else "is gone" if self.now is None else "changed"
        what = f"{self.what} {self.name}".rstrip() + f" {how}"
        telling = ("version", "agent", "model", "fallback_models", "limit", "coordinator")
        shown = self.now is not None and self.what in telling
        return f"{what}: {' -> '.join(filter(None, (self.before, self.now)))}" if shown else what


class SessionStand(Value, frozen=True, kw_only=True, gc=False):
    """The limits of a session itself, and what its earlier runs had used when a run began."""

    max_tokens: int | None = None
    max_money: int | None = None
    max_tool_calls: int | None = None
    tokens: int = 0
    money: int = 0
    tool_calls: int = 0


class Carried(Value, frozen=True, kw_only=True, gc=False):
    """What the meter of a run has in it from earlier runs of its session, whose limits bound the conversation.

    `session` is how a session with limits of its own stood, so that they hold when the run is resumed by its name.
    """

    tokens: int = 0
    money: int = 0
    turns: int = 0
    tool_calls: int = 0
    session: SessionStand | None = None


NOT_CARRIED = Carried()
"""Nothing, and no limit."""


class Snapshot(Value, frozen=True, kw_only=True):
    """What a run must carry over a pause, a crash or a limit, and what its messages do not tell. Plain JSON.

    `turns` to `picodollars` are the figures of the run's meter, descendants included. `cause` and its neighbors are
    set once the run has ended. `votes` are those of a batch that waits for a person: did a terminal tool succeed,
    did anybody vote to end, did all.
    """

    run_id: str
    # counters
    iterations: int = 0
    tool_calls: int = 0
    landing_calls: int = 0
    empty_outcomes: int = 0
    cut_calls_refused: bool = False
    last_error: bool = False
    rescued: bool = False
    plain_text: tuple[int, str] = (0, "")
    output_repairs: int = 0
    elapsed: float = 0.0
    next_event: int = 1
    # spend
    spent: Charge = Charge()
    fallbacks_spent: Mapping[str, Charge] = {}
    children_spent: Mapping[str, Charge] = {}
    turns: int = 0
    metered_tool_calls: int = 0
    descendants: int = 0
    tokens: int = 0
    picodollars: int = 0
    disputed: tuple[int, int] = (0, 0)
    """The part of `tokens` and `picodollars` that was billed and that no call of the run explains."""
    carried: Carried = NOT_CARRIED
    """The part of `turns` to `picodollars` that earlier runs of the session have used, where the session is limited."""
    on_budget: bool = False
    """It spent from a budget above its own, and may not continue without one."""
    # coming down
    verdict: Verdict | None = None
    notice: StopCause | None = None
    wind_down: StopCause | None = None
    final_turn: Verdict | None = None
    work_withdrawn: bool = False
    withdrawal: StopCause | None = None
    withdrawn: tuple[str, ...] = ()
    allowed: tuple[str, ...] | None = None
    """The tools that the open turn may use; None is all."""
    notices_told: tuple[tuple[str, str], ...] = ()
    later: tuple[tuple[str, str, str], ...] = ()
    waiting: tuple[Message, ...] = ()
    # the answer so far, and the transcript
    text: str = ""
    parts: tuple[str, ...] = ()
    stop_reason: StopReason | None = None
    first_new: int = 0
    pinned: tuple[int, ...] = ()
    votes: tuple[bool, bool, bool] | None = None
    programs: dict[str, Program] = field(default_factory=dict)
    """The calls of the open turn that make calls themselves, by call id."""
    program_states: dict[str, str] = field(default_factory=dict)
    """What the tool of each needs to continue; nobody else's business."""
    guards: dict[str, Any] = field(default_factory=dict)
    # what the result tells as well
    violations: tuple[ValidationRecord, ...] = ()
    children: tuple[RunResult[Any], ...] = ()
    pending: tuple[PendingCall, ...] = ()
    abandoned: tuple[AbandonedWork, ...] = ()
    unknown_effects: tuple[ToolCall, ...] = ()
    background: tuple[BackgroundCall, ...] = ()
    # what it was started with
    per_run: PerRun | None = None
    # how it ended, if it did
    state: AgentState | None = None
    outcome: LoopOutcome | None = None
    cause: StopCause | None = None
    partial: bool = False

    def __repr__(self) -> str:
        ended = "" if self.outcome is None else f", {self.outcome.name}"
        return f"<Snapshot of {self.run_id}: {pluralize(self.iterations, 'turn')}, {len(self.pending)} pending{ended}>"


def _shorten(text: str) -> str:
    """The beginning of a text, and its length when that is not all of it."""
    return repr(text) if len(text) <= _HEAD else f"{text[:_HEAD]!r}... ({len(text)} characters)"


class RunResult(Value, Generic[OutputT], frozen=True, kw_only=True, dict=True):
    """How a run ended, what it produced, and what it cost. Returned on every path.

    `output` has the agent's `output_type`, and type checkers know it: `Agent(output_type=Invoice)` returns a
    `RunResult[Invoice]`.
    """

    run_id: str
    session_id: str
    state: AgentState
    outcome: LoopOutcome
    cause: StopCause | None = None
    stop_reason: StopReason | None = None
    text: str = ""
    text_origin: TextOrigin = TextOrigin.MODEL
    """Whose words `text` is; RUNTIME: no answer was written, and this only says what happened."""
    output: OutputT | None = None
    partial: bool = False
    messages: tuple[Message, ...] = ()
    new_messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    cost: Decimal | None = None
    breakdown: tuple[Spend, ...] = ()
    iterations: int = 0
    tool_calls: int = 0
    landing_calls: int = 0
    elapsed: float = 0.0
    validations: tuple[ValidationRecord, ...] = ()
    children: tuple[RunResult, ...] = ()
    pending: tuple[PendingCall, ...] = ()
    abandoned: tuple[AbandonedWork, ...] = ()
    unknown_effects: tuple[ToolCall, ...] = ()
    undelivered: tuple[Message, ...] = ()
    changes: tuple[ConfigurationChange, ...] = ()
    """What about the agent had changed since the journal was last written, when the run was resumed from a store."""
    missed_events: int = 0
    """How many events async observers never saw, because they were too slow; known only after `RunEnded`."""
    metadata: dict[str, Any] = field(default_factory=dict)
    snapshot: Snapshot | None = None
    """What `Agent.resume` needs; None when the run is DONE. What this result tells anyway is not in it twice."""

    def __repr__(self) -> str:
        """Short whatever its size: asyncio and debuggers make it without being asked."""
        parts = [f"<RunResult {self.run_id:.60}: {self.state.name}/{self.outcome.name}"]
        if self.cause is not None:
            parts.append(f"cause={self.cause.source:.60}: {_shorten(self.cause.reason)}")
        if self.pending:
            parts.append(f"{len(self.pending)} pending")
        parts.append(f"{pluralize(self.iterations, 'turn')}, {pluralize(self.usage.total, 'token')}")
        if self.cost is not None:
            parts.append(f"${self.cost:.6f}")
        return f"{', '.join(parts)}, text={_shorten(self.text)}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """As short for rich, which would show every message."""
        text = self.text if len(self.text) <= _HEAD else f"{self.text[:_HEAD]}..."
        ended = [("run_id", self.run_id), ("state", self.state.name), ("outcome", self.outcome.name)]
        spent = [("turns", self.iterations), ("tokens", self.usage.total), ("cost", self.cost)]
        shown = [*ended, ("cause", self.cause), ("pending", len(self.pending)), *spent, ("text", text)]
        return [(name, value) for name, value in shown if value not in (None, 0)]

    @property
    def all_turns(self) -> int:
        """Model turns, those of children included."""
        return self.iterations + sum([child.all_turns for child in self.children])

    @property
    def all_tool_calls(self) -> int:
        """Tool calls, those of children included."""
        return self.tool_calls + sum([child.all_tool_calls for child in self.children])

    @property
    def origins(self) -> tuple[str, ...]:
        """The untrusted sources of everything the run has read: its text may come from any of them."""
        return origins_of(self.messages)

    @property
    def tool_errors(self) -> tuple[ToolResultMessage, ...]:
        """The results of calls whose tool raised, in this run: `kind` is the error's type, `raised_at` its place."""
        return tuple([one for one in self.new_messages if type(one) is ToolResultMessage and one.raised_at is not None])

    @property
    def cache_hit_rate(self) -> float | None:
        """The share of all calls' input, children's included, that came from a prompt cache; None without input."""
        return self.usage.cache_hit_rate

    @property
    def ok(self) -> bool:
        """True when the run delivered: it is DONE, or was asked to wrap up and did.

        A run of an agent with an `output_type` delivers a value of it or is neither.
        """
        return self.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP)

    if not TYPE_CHECKING:  # a type checker knows better

        def __getattr__(self, name: str) -> None:
            from glidepath.values.attribute_hints import OF_RESULTS, make_attribute_error

            raise make_attribute_error(RunResult, name, OF_RESULTS, self.__struct_fields__)

    def _repr_html_(self) -> str:
        """State, outcome, spend and text at a glance, in a notebook."""
        from glidepath.values.burndown import notebook_card

        used = f"{pluralize(self.iterations, 'turn')}, {pluralize(self.usage.total, 'token')}"
        cost = "" if self.cost is None else f", ${self.cost:.6f}"
        cause = "" if self.cause is None else f"{self.cause.source}: {self.cause.reason}"
        head = f"{self.state.name} / {self.outcome.name}, {used}{cost}"
        return notebook_card(head, cause, self.text, self.burn, self.limits)

    @property
    def limits(self) -> Mapping[str, float]:
        """The run's own limits, as `RunStarted` has them: `tokens`, `picodollars`, `turns`, `tool_calls`, `seconds`.

        Known where the run ended: like `burn`, it is not written with the result.
        """
        use: Use | None = self.__dict__.get("_use")
        return {} if use is None else use.limits

    @property
    def burn(self) -> tuple[BurnPoint, ...]:
        """What was used after each reply; of a long run, a hundred of them. The last one is the run at its end."""
        return () if (use := self.__dict__.get("_use")) is None else use.points()

    @overload
    def unwrap(self: RunResult[Never]) -> Any: ...  # that is `RunResult[Any]`, of an agent made of a `LoopConfig`
    @overload
    def unwrap(self: RunResult[None]) -> str: ...
    @overload
    def unwrap(self) -> OutputT: ...
    def unwrap(self) -> Any:
        """The `output` of a run that delivered, or its text if the agent has no `output_type`.

        Raises `RunNotCompleted` for any other. With an `output_type`, a run that has no value of it has not delivered.
        """
        if not self.ok:
            raise RunNotCompleted(self)
        return self.text if self.output is None else self.output
