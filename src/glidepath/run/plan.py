"""What a run needs, resolved: no defaults, no options left open. Assembled once by `agent`, shared by all its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from glidepath._wire import Value
from glidepath.plugins import HookTable
from glidepath.run.interrupts import Patience
from glidepath.run.ledger import Caps, Price
from glidepath.run.resilience import Health
from glidepath.spi import (
    CallGuard,
    ContextStrategy,
    Model,
    ProtocolPolicy,
    ResourceConstraint,
    StopGuard,
    TokenEstimator,
    ToolSpec,
)
from glidepath.tools import Tool
from glidepath.values import AgentState, GlidepathError, LoopOutcome, StopCause, TextOrigin, Verdict

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig  # a row above: only a type checker follows it
    from glidepath.run.kill_switch_polling import Switch
    from glidepath.spi import HostedReserve
    from glidepath.tools import Output


class SoftLimit(Protocol):
    """When to tell the model to finish."""

    def soft_limit(self) -> int:
        """The turn count at which the notice is sent, as of now."""
        ...


class Route:
    """The models a run may use, in order, each as a whole plan: the configured one, then its fallbacks."""

    __slots__ = ("plans",)

    def __init__(self) -> None:
        self.plans: tuple[Plan, ...] = ()


class Plan(Value, frozen=True, kw_only=True):
    """A configuration, and everything that is computed from it once."""

    config: LoopConfig
    model: Model
    model_name: str
    model_id: str
    vendor: str | None
    health: Health
    route: Route | None
    """None: there is no fallback model."""
    position: int
    """Which plan of the route this is; 0 is the configured model."""
    system_prompt: str
    tools: Mapping[str, Tool]
    tool_names: frozenset[str]
    behind: frozenset[str]
    """Those of the tools that are not shown: the model finds them, and calls them by another."""
    hands: frozenset[str]
    """Tools that only programs may call."""
    specs: tuple[ToolSpec, ...]
    terminal_tools: frozenset[str]
    may_ask: bool
    """Some tool asks a person."""
    reviewer: Any
    """Who is asked, before a person, about a call that needs approval and that no rule covers; None is nobody."""
    fixed_tokens: int
    landing_fixed_tokens: int
    caps: Caps
    timeout: float | None
    landing_time: float
    """Seconds kept for the landing."""
    bounded: bool
    """Something ends its runs, or they were asked for without any limit."""
    patience: Patience
    soft_limit: SoftLimit | None
    soft_turns: int | None
    """No notice is due before this many turns: it need not be asked."""
    notice: Callable[[str], tuple[str, BaseException | None]]
    """The words of the wind-down notice, given the default ones; and what went wrong with the application's own."""
    landing_notice: str
    landing_notice_tokens: int
    price: Price | None
    hosted: HostedReserve | None
    """What the tools that run at the provider may cost above a call; None, as nearly always: there are none."""
    counter: Callable[[Any], Any] | None
    books_with_care: bool
    """A call of it needs more than its prompt as we count it, or is counted by the model."""
    usage_is_billed: bool
    counts_down: bool
    """The model is told how many tokens its run has left."""
    near_money: int
    estimator: TokenEstimator
    size_of: Callable[[Any], int]
    measures_replies: bool
    """The built-in estimator measures: a reply needs no second look."""
    strategy: ContextStrategy
    repair: Callable[..., Any]
    context_window: int | None
    max_output_tokens: int | None
    first_output_tokens: int
    reply_bytes: int
    """Where a reply ends that was sent no output cap."""
    extras: Mapping[str, Any] | None
    told: set[str]
    """What this agent's log has been told once and is not told again."""
    policy: ProtocolPolicy
    plain_policy: bool
    output: Output | None
    deps_needed: tuple[tuple[str, Any], ...]
    """Who needs `deps`, and of which type."""
    constraints: tuple[ResourceConstraint, ...]
    """All of them: the metered ones, then those that are asked."""
    metered: tuple[ResourceConstraint, ...]
    """Ours, left out while the ledger and the watch know that none of them can be violated."""
    asked: tuple[ResourceConstraint, ...]
    """The others, at every checkpoint."""
    custom: tuple[ResourceConstraint, ...]
    clocked: tuple[ResourceConstraint, ...]
    """Those that are asked on a clock, too."""
    switches: tuple[Switch, ...]
    """The kill switches among the constraints, which the watch looks at between checkpoints."""
    lineup: HookTable
    roster: Mapping[str, LoopConfig] | None
    """Who may come to speak in its runs, by name; None when there is no other agent."""
    make_guards: Callable[..., tuple[CallGuard, ...]]
    make_stop_guards: Callable[..., tuple[StopGuard, ...]]
    known_stop_guards: Callable[..., tuple[StopGuard, ...] | None]


class Touchdown(GlidepathError):  # noqa: N818 - not an error: what happens now
    """The run must end now: raised anywhere in a turn, caught by the loop."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.cause.reason)
        self.verdict = verdict


class Ending(Value, frozen=True, kw_only=True):
    """How the loop stopped."""

    state: AgentState
    outcome: LoopOutcome
    cause: StopCause | None = None
    text: str = ""
    partial: bool = False
    output: Any = None

    def origin(self, best: str) -> TextOrigin:
        """Who wrote the text, given the best that the model wrote; a delivery without one is the last tool's."""
        if self.text == best:
            return TextOrigin.MODEL
        return TextOrigin.TOOL if self.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP) else TextOrigin.RUNTIME
