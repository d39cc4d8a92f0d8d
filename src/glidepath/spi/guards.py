"""The guardrail port: what watches for loops and rescues bad endings. Guards are made per run.

A guard keeps its state in the dict it is given, which lives in `session.metadata["guardrails"]`: plain JSON data,
restored with the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from glidepath._wire import Value
from glidepath.values import UNPROVEN, AssistantMessage, ToolCall, ToolResultMessage, experimental


class ToolTraits(Protocol):
    """What a guard may know about a tool."""

    @property
    def polling(self) -> bool:
        """True when repeating the same call is its purpose."""

    @property
    def read_only(self) -> bool:
        """True when it changes nothing."""


class Step(Value, frozen=True, gc=False):
    """One batch of calls. `withdrawn` are the tools guards have taken away; `wound_down` is true after the notice."""

    calls: tuple[ToolCall, ...]
    tools: Mapping[str, ToolTraits]
    withdrawn: frozenset[str] = frozenset()
    wound_down: bool = False


class GuardVerdict(Value, frozen=True, kw_only=True):
    """What a call guard wants: `nudge` (tell the model), `withdraw` (also take `tools` away) or `land` (end the run).

    A `withdraw` or `land` answered before the batch keeps the batch from running. `notice_reason` is the `reason` the
    injected message carries. `period` is the number of steps that repeat, if the guard saw a loop.
    """

    action: str
    reason: str
    tools: frozenset[str] = frozenset()
    notice: str = ""
    notice_reason: str = ""
    period: int | None = None


@experimental(reason=UNPROVEN)
class CallGuard(Protocol):
    """Watches batches of tool calls.

    `before(step)` looks at a batch before it runs, `after(step, results)` at a batch that ran, with its results in
    the same order; either may be None, and either answers a `GuardVerdict` or None for no opinion.

    Contract: both are synchronous, cheap and touch only the guard's own state. One that raises lands the run: a guard
    that crashes stops what it guards.
    """

    name: str

    @property
    def before(self) -> Callable[[Step], GuardVerdict | None] | None:
        """Look at a batch before it runs."""

    @property
    def after(self) -> Callable[[Step, tuple[ToolResultMessage, ...]], GuardVerdict | None] | None:
        """Look at a batch that ran."""


class Stop(Value, frozen=True, kw_only=True):
    """A reply without tool calls. `recent_error` is true when a recent tool result was an error."""

    reply: AssistantMessage
    text: str
    truncated: bool
    recent_error: bool
    can_continue: bool = True


class Recovery(Value, frozen=True, kw_only=True):
    """How to continue: tell the model `message` (internal, with `reason`); or, with `fail`, why the run ends FAILED."""

    reason: str
    message: str = ""
    fail: str | None = None


@experimental(reason=UNPROVEN)
class StopGuard(Protocol):
    """Gets a chance to rescue a run when a reply without tool calls would be a bad ending.

    Contract: as for `CallGuard`, but one that raises fails the run. `reset` is called after a batch that made progress,
    once a guard has rescued the run.
    """

    name: str

    def recover(self, stop: Stop) -> Recovery | None:
        """Answer a bad ending with a message for the model; None accepts the ending."""

    def reset(self) -> None:
        """Progress was made: forget what was counted."""
