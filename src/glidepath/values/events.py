"""What happened, in the past tense. Events are the only output of the loop.

Every event carries the run's id, its parent's id, a sequence number without gaps, and the time in seconds since
the epoch. A run's first event is `RunStarted`, its last is exactly one `RunEnded`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any

from glidepath._wire import Codec, Value
from glidepath.values.messages import AssistantMessage, Message, ToolResultMessage, Usage
from glidepath.values.outcome import ConfigurationChange, ResourceAction, RunResult, dollars

__all__ = [
    "ApprovalRequested",
    "AttemptDiscarded",
    "BackgroundEnded",
    "BackgroundStarted",
    "BreakerChanged",
    "BudgetReserved",
    "BudgetSettled",
    "CallRuled",
    "ChildEnded",
    "ChildStarted",
    "ConfigurationChanged",
    "ConstraintViolated",
    "ContextShaped",
    "Event",
    "GateApplied",
    "GateConflictResolved",
    "GuardTripped",
    "HookFailed",
    "LandingStarted",
    "MessageAdded",
    "ModelSwitched",
    "NoticeSent",
    "OutputTokensEscalated",
    "RetryScheduled",
    "RunEnded",
    "RunPaused",
    "RunStarted",
    "SessionSaved",
    "StreamChunk",
    "StreamStarted",
    "ToolEnded",
    "ToolProgress",
    "ToolStarted",
    "ToolsChanged",
    "TurnEnded",
    "TurnStarted",
    "UnknownEvent",
]


class Event(Value, frozen=True, gc=False, tag_field="event"):
    """The envelope of every event."""

    run_id: str
    parent_id: str | None
    sequence: int
    time: float


class RunStarted(Event, frozen=True, gc=False, tag=True):
    """The run started."""

    session_id: str
    agent_name: str
    model: str
    depth: int = 0
    conversation_id: str | None = None
    resumed: bool = False
    user: str | None = None
    metadata: Mapping[str, str] | None = None
    provider: str | None = None
    """Who serves the model, where its adapter says."""
    limits: Mapping[str, float] | None = None
    """The run's own limits, of `tokens`, `picodollars`, `turns`, `tool_calls` and `seconds`; others are unlimited."""
    notes: Mapping[str, str] | None = None
    """Of a resumed run: what its plugins left in the journal the last time (`Plugin.journal_note`), by plugin."""


class ConfigurationChanged(Event, frozen=True, gc=False, tag=True):
    """The run continues under a changed agent: tools, model, limits or the release differ."""

    changes: tuple[ConfigurationChange, ...]


class RunPaused(Event, frozen=True, gc=False, tag=True):
    """The run waits for a person; `call_ids` are the calls to decide on."""

    call_ids: tuple[str, ...]


class RunEnded(Event, frozen=True, gc=False, tag=True):
    """The run ended. Always the last event, and exactly one."""

    result: RunResult


class TurnStarted(Event, frozen=True, gc=False, tag=True):
    """An iteration began; `iteration` counts from 1."""

    iteration: int


class TurnEnded(Event, frozen=True, gc=False, tag=True):
    """An iteration ended, with the reply and the results of its tool calls in source order."""

    iteration: int
    message: AssistantMessage
    tool_results: tuple[ToolResultMessage, ...] = ()


class MessageAdded(Event, frozen=True, gc=False, tag=True):
    """A message joined the transcript."""

    message: Message


class StreamStarted(Event, frozen=True, gc=False, tag=True):
    """One attempt at a model call began."""

    model: str
    attempt: int
    landing: bool = False


class StreamChunk(Event, frozen=True, gc=False, tag=True):
    """A piece of the reply. The last of an attempt is `finished` and empty."""

    text: str = ""
    finished: bool = False
    thinking: bool = False


class AttemptDiscarded(Event, frozen=True, gc=False, tag=True):
    """What this attempt streamed does not count: another attempt follows, or the call failed."""

    attempt: int
    reason: str


class ToolStarted(Event, frozen=True, gc=False, tag=True):
    """A tool began, with its final arguments."""

    call_id: str
    tool_name: str
    arguments: Mapping[str, Any]


class ToolProgress(Event, frozen=True, gc=False, tag=True):
    """A running tool reported something. `dropped`: reports of this call that were dropped so far, oldest first."""

    call_id: str
    tool_name: str
    progress: Any
    dropped: int = 0


class ToolEnded(Event, frozen=True, gc=False, tag=True):
    """A call got its one result. `traceback` is for people; the model never sees it."""

    call_id: str
    tool_name: str
    result: ToolResultMessage
    seconds: float = 0.0
    traceback: str | None = None


class ApprovalRequested(Event, frozen=True, gc=False, tag=True):
    """A call needs a person's decision."""

    call_id: str
    tool_name: str
    arguments: Mapping[str, Any]
    reason: str = ""
    form: Mapping[str, Any] | None = None
    """The JSON Schema of the answer, where the call asks for one."""
    origins: tuple[str, ...] = ()
    """The untrusted sources that a plugin asks about."""


class CallRuled(Event, frozen=True, gc=False, tag=True):
    """A rule, or a reviewer, has said whether a call runs: allow, ask, deny or refuse."""

    call_id: str
    tool_name: str
    verdict: str
    rule: str


class ConstraintViolated(Event, frozen=True, gc=False, tag=True):
    """A constraint was violated, or was skipped because an earlier one asked for an emergency stop."""

    constraint: str
    checkpoint: str
    action: ResourceAction
    reason: str
    metrics: Mapping[str, Any] = {}
    skipped: bool = False


class BudgetReserved(Event, frozen=True, gc=False, tag=True):
    """The worst case of a call was set aside. `cost` is in dollars, `picodollars` the same exactly; None: unknown."""

    tokens: int
    picodollars: int | None
    max_output_tokens: int | None

    @property
    def cost(self) -> Decimal | None:
        """Dollars set aside."""
        return None if self.picodollars is None else dollars(self.picodollars)


class BudgetSettled(Event, frozen=True, gc=False, tag=True):
    """A call was charged at what it used; the rest of its reservation, `refunded` tokens, is free again."""

    usage: Usage
    picodollars: int | None
    refunded: int = 0
    implausible: bool = False
    """The provider reports far more than this call can explain. It is still charged: it may be the bill."""

    @property
    def cost(self) -> Decimal | None:
        """Dollars charged."""
        return None if self.picodollars is None else dollars(self.picodollars)


class NoticeSent(Event, frozen=True, gc=False, tag=True):
    """The model was told something by the runtime; `reason` says what about."""

    reason: str
    source: str
    text: str


class LandingStarted(Event, frozen=True, gc=False, tag=True):
    """The run has begun to land."""

    source: str
    reason: str


class BackgroundStarted(Event, frozen=True, gc=False, tag=True):
    """A call runs in the background from now on; the model has the `id` to collect its result by."""

    id: str
    call_id: str
    tool_name: str


class BackgroundEnded(Event, frozen=True, gc=False, tag=True):
    """A call in the background has ended. `kind` says which error it is, if one; its result is not collected yet."""

    id: str
    call_id: str
    tool_name: str
    kind: str | None
    seconds: float
    traceback: str | None = None


class GuardTripped(Event, frozen=True, gc=False, tag=True):
    """A guardrail acted: nudge, withdraw, land, or a recovery. `period` is how many steps the circle has, if any."""

    guard: str
    action: str
    reason: str
    tools: tuple[str, ...] = ()
    period: int | None = None


class ToolsChanged(Event, frozen=True, gc=False, tag=True):
    """The tools of a server are not, or no longer, those that were pinned or listed before.

    `effect` is the effect: blocked, ask, warned, withdrawn, or unavailable for a server that cannot be reached.
    """

    server: str
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    effect: str = ""
    reason: str = ""


class GateApplied(Event, frozen=True, gc=False, tag=True):
    """Gates narrowed the tools of this turn."""

    allowed: tuple[str, ...]
    gates: tuple[str, ...]


class GateConflictResolved(Event, frozen=True, gc=False, tag=True):
    """Advisory gates left nothing; `winner` holds, and the overruled ones gave way."""

    winner: str
    overruled: tuple[str, ...]
    allowed: tuple[str, ...]


class ContextShaped(Event, frozen=True, gc=False, tag=True):
    """The model's view of the transcript was made smaller.

    `kept_tokens` begin the request as before, so that a provider's cache has them;
    `resent_tokens` do not. `picodollars` is what the next request costs more because of that, where it is known.
    """

    strategy: str
    before_tokens: int
    after_tokens: int
    dropped: int
    kept_tokens: int = 0
    resent_tokens: int = 0
    picodollars: int | None = None


class OutputTokensEscalated(Event, frozen=True, gc=False, tag=True):
    """A truncated reply was discarded and asked for again with a larger cap."""

    attempt: int
    previous_cap: int
    next_cap: int


class RetryScheduled(Event, frozen=True, gc=False, tag=True):
    """A model call failed and is retried after `delay` seconds."""

    attempt: int
    delay: float
    error: str
    model: str


class ModelSwitched(Event, frozen=True, gc=False, tag=True):
    """The run continues with another of its models: a fallback, or the first one again."""

    previous: str
    model: str
    reason: str
    provider: str | None = None


class BreakerChanged(Event, frozen=True, gc=False, tag=True):
    """A breaker became `open`, `half_open` or `closed`; `kind` is what it protects, a model or a tool."""

    target: str
    state: str
    kind: str = "model"


class HookFailed(Event, frozen=True, gc=False, tag=True):
    """A hook raised, hung or answered nonsense; `effect` says what was done about it."""

    plugin: str
    hook: str
    error: str
    effect: str


class ChildStarted(Event, frozen=True, gc=False, tag=True):
    """This run spawned a child."""

    child_id: str
    agent_name: str
    depth: int


class ChildEnded(Event, frozen=True, gc=False, tag=True):
    """A child of this run ended."""

    child_id: str
    agent_name: str
    state: str
    outcome: str
    usage: Usage
    cost: Decimal | None


class SessionSaved(Event, frozen=True, gc=False, tag=True):
    """The journal is on disk up to this record."""

    session_id: str
    record: int


class UnknownEvent(Value, frozen=True, gc=False):
    """An event of a kind this version does not know: kept as it was read."""

    event: str
    raw: bytes


EVENTS: tuple[type[Event], ...] = tuple(
    kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
)
"""Every kind of event."""


def codec() -> Codec[Any, UnknownEvent]:
    """A reader and writer of one event."""
    return Codec(
        reduce(or_, EVENTS),
        tag_field="event",
        tags=frozenset(kind.__name__ for kind in EVENTS),
        unknown=lambda event, raw: UnknownEvent(event=event, raw=raw),
    )
