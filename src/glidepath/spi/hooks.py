"""The plugin port: one base class, one method per hook, one read-only context in, one decision value out.

A hook that answers None has no opinion. Every hook may be a plain or an async method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from glidepath._wire import Value
from glidepath.events import Event
from glidepath.messages import CustomMessage, Message, ToolCall, ToolResultMessage, UserMessage

__all__ = [
    "HOOKS",
    "AfterDecision",
    "Allow",
    "Ask",
    "BeforeDecision",
    "Block",
    "Gate",
    "GateContext",
    "OverflowContext",
    "Plugin",
    "PollContext",
    "Replace",
    "ToolCallContext",
    "ToolResultContext",
    "TransformContext",
]


class _Context(Value, frozen=True, kw_only=True):
    run_id: str
    agent_name: str
    iteration: int
    conversation_id: str | None = None


class ToolCallContext(_Context, frozen=True, kw_only=True):
    """A call about to run, with its final, validated arguments (plain data).

    `approved`: a person has approved it, so that another `Ask` counts as answered.
    """

    call: ToolCall
    arguments: Mapping[str, Any]
    tool: Any
    messages: Sequence[Message] = ()
    replaceable: bool = True
    approved: bool = False


class ToolResultContext(_Context, frozen=True, kw_only=True):
    """A call that has its result, with the arguments it ran with."""

    call: ToolCall
    arguments: Mapping[str, Any]
    tool: Any
    result: ToolResultMessage


class TransformContext(_Context, frozen=True, kw_only=True):
    """The view of the transcript that the model is about to see."""

    messages: Sequence[Message]
    system_prompt: str
    model_id: str
    estimator: Any = None


class PollContext(_Context, frozen=True, kw_only=True):
    """A moment at which messages can be put in."""

    messages: Sequence[Message]


class GateContext(_Context, frozen=True, kw_only=True):
    """The tools of the coming turn, by name."""

    tools: frozenset[str]
    messages: Sequence[Message]


class OverflowContext(_Context, frozen=True, kw_only=True):
    """The provider says that this view does not fit its window."""

    messages: Sequence[Message]
    estimated_tokens: int


class Allow(Value, frozen=True):
    """Let the call run."""


class Replace(Value, frozen=True):
    """Run the call with these arguments instead; they are validated again and every hook sees them."""

    arguments: Mapping[str, Any]


class Block(Value, frozen=True):
    """Do not run the call; the model is told why."""

    reason: str


class Ask(Value, frozen=True):
    """Pause the run until a person decides about this call."""

    reason: str = ""


class AfterDecision(Value, frozen=True, kw_only=True):
    """Change what the model sees of a result, or vote to end the run. None leaves a thing as it is."""

    content: str | None = None
    is_error: bool | None = None
    terminate: bool | None = None


class Gate(Value, frozen=True, kw_only=True):
    """The tools this gate allows. A required gate always holds; an advisory one gives way when nothing is left."""

    allowed: frozenset[str]
    denial_reason: str = ""
    priority: int = 0
    required: bool = True
    suppresses: bool = False


BeforeDecision: TypeAlias = Allow | Replace | Block | Ask | None


class Plugin:
    """A plugin overrides the hooks it needs; the others cost nothing.

    Give it a `name` (default: the class name in snake_case, unique in a configuration). `runs_before` and
    `runs_after` name plugins it must stand before or behind. State that belongs to one run is made in `for_run`.
    """

    name: str
    runs_before: ClassVar[tuple[str, ...]] = ()
    runs_after: ClassVar[tuple[str, ...]] = ()
    events: ClassVar[tuple[type[Event], ...] | None] = None
    """The events an `event_observer` wants; None is all but `StreamChunk`."""
    inheritable_to_child: ClassVar[bool | None] = None
    """Whether a child run gets this plugin; None: guarding plugins do, others do not."""

    def for_run(self) -> Plugin:
        """The plugin that serves one run: `self`, unless it keeps state that must not be shared."""
        return self

    def for_child(self) -> Plugin | None:
        """The plugin that serves a child's runs, or None."""
        return self

    def before_tool_call(self, context: ToolCallContext) -> Any:
        """Judge a call before it runs: Allow, Replace, Block, Ask or None.

        The first Block wins. Crash, hang or nonsense: the call is blocked.
        """

    def after_tool_call(self, context: ToolResultContext) -> Any:
        """Look at a result: an AfterDecision or None. Chained. Crash, hang or nonsense: skipped and reported."""

    def context_transform(self, context: TransformContext) -> Any:
        """Give the model another view of the transcript: messages or None. Never kept.

        Crash, hang or nonsense: skipped and reported.
        """

    def event_observer(self, event: Event) -> Any:
        """See an event. Can never hurt a run: a crash is reported and, the third time, the observer is removed."""

    def steering(self, context: PollContext) -> Any:
        """Messages for the model, asked before the first call and after every turn. Crash: skipped and reported."""

    def follow_up(self, context: PollContext) -> Any:
        """Messages that keep a finished run going. Crash: skipped and reported."""

    def tool_gate(self, context: GateContext) -> Any:
        """Narrow the tools of a turn: a Gate, a set of names, or None. Crash, hang or nonsense: no tool is allowed."""

    def context_overflow_recovery(self, context: OverflowContext) -> Any:
        """A smaller view after the provider's window overflowed: messages or None. Crash: skipped and reported."""


HOOKS: tuple[str, ...] = (
    "before_tool_call",
    "after_tool_call",
    "context_transform",
    "event_observer",
    "steering",
    "follow_up",
    "tool_gate",
    "context_overflow_recovery",
)
"""The hook categories, which are also the method names."""


def as_message(item: Any) -> Message:
    """One thing that a steering or follow-up hook gave, as a message; a str becomes a user message."""
    if isinstance(item, str):
        return UserMessage(item)
    if isinstance(item, UserMessage | CustomMessage):
        return item
    raise TypeError(f"expected a str or a user message, got {type(item).__name__}")
