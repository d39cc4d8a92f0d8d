"""The plugin port: one base class, one method per hook, one read-only context in, one decision value out.

A hook that answers None has no opinion. Every hook may be a plain or an async method.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, Generic, TypeAlias

from glidepath._wire import Value
from glidepath.values import (
    UNPROVEN,
    CustomMessage,
    DepsT,
    Event,
    Message,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    experimental,
    stability_of,
)


class RunInfo(Value, frozen=True, kw_only=True):
    """The run about to start: what a `deps_factory` is given."""

    agent_name: str
    session_id: str
    conversation_id: str | None = None
    user: str | None = None
    metadata: Mapping[str, str] | None = None


class PromptContext(RunInfo, Generic[DepsT], frozen=True, kw_only=True):
    """The run about to start, for a function that writes its system prompt: with its `deps`, and today's date."""

    date: date
    deps: DepsT = None  # type: ignore[assignment] # as in every context


class _Context(Value, Generic[DepsT], frozen=True, kw_only=True):
    run_id: str
    agent_name: str
    iteration: int
    conversation_id: str | None = None
    user: str | None = None
    metadata: Mapping[str, str] | None = None
    deps: DepsT = None  # type: ignore[assignment] # code that asks for a type has passed a value of it to `run()`


class ToolCallContext(_Context[DepsT], Generic[DepsT], frozen=True, kw_only=True):
    """A call about to run, with its final, validated arguments (plain data); those of `call` are the same.

    `messages` is read-only, here and in every context; the `origins` of each message name the untrusted sources of its
    text. `origins` names further sources, which are not in `messages` because the program that makes the call has read
    them itself. `above` has the transcripts of the parent runs, outermost first. `approved` is True once a person has
    approved the call; another `Ask` then counts as answered.
    """

    call: ToolCall
    arguments: Mapping[str, Any]
    tool: Any
    messages: Sequence[Message] = ()
    replaceable: bool = True
    approved: bool = False
    above: tuple[Sequence[Message], ...] = ()
    origins: tuple[str, ...] = ()


class ToolResultContext(_Context[DepsT], Generic[DepsT], frozen=True, kw_only=True):
    """A call that has its result, with the arguments it ran with."""

    call: ToolCall
    arguments: Mapping[str, Any]
    tool: Any
    result: ToolResultMessage


class TransformContext(_Context[DepsT], Generic[DepsT], frozen=True, kw_only=True):
    """The view of the transcript that the model is about to see."""

    messages: Sequence[Message]
    system_prompt: str
    model_id: str
    estimator: Any = None


class PollContext(_Context[DepsT], Generic[DepsT], frozen=True, kw_only=True):
    """A moment at which messages can be added."""

    messages: Sequence[Message]


class GateContext(_Context[DepsT], Generic[DepsT], frozen=True, kw_only=True):
    """The tools of the coming turn, by name; `hosted_tools` are those of them that run at the provider."""

    tools: frozenset[str]
    messages: Sequence[Message]
    hosted_tools: frozenset[str] = frozenset()


class OverflowContext(_Context[DepsT], Generic[DepsT], frozen=True, kw_only=True):
    """The provider says that this view does not fit its window."""

    messages: Sequence[Message]
    estimated_tokens: int


class OutputContext(_Context[DepsT], Generic[DepsT], frozen=True, kw_only=True):
    """An answer that fits its type: `output` is its value, `text` what the model wrote."""

    output: Any
    text: str
    messages: Sequence[Message] = ()


class Allow(Value, frozen=True):
    """Let the call run. With a `rule`, that answers what the tool's own `requires_approval` asks, and nothing else."""

    rule: str = ""


class Replace(Value, frozen=True):
    """Run the call with these arguments instead; they are validated again and every hook sees them."""

    arguments: Mapping[str, Any]


class Block(Value, frozen=True):
    """Do not run the call; the model is told why, and the result names the `rule`, if there is one."""

    reason: str
    rule: str = ""


class Ask(Value, frozen=True):
    """Pause the run until a person decides about this call; they see the reason and the untrusted `origins`."""

    reason: str = ""
    origins: tuple[str, ...] = ()
    rule: str = ""


class AfterDecision(Value, frozen=True, kw_only=True):
    """Change what the model sees of a result, or vote to end the run. None changes nothing."""

    content: str | None = None
    is_error: bool | None = None
    terminate: bool | None = None


class Gate(Value, frozen=True, kw_only=True):
    """The tools this gate allows. A required gate always holds; an advisory one gives way to a stronger one."""

    allowed: frozenset[str]
    denial_reason: str = ""
    priority: int = 0
    required: bool = True
    suppresses: bool = False


BeforeDecision: TypeAlias = Allow | Replace | Block | Ask | None

# What each hook may answer: a value, or an awaitable of it.
BeforeAnswer: TypeAlias = BeforeDecision | Awaitable[BeforeDecision]
AfterAnswer: TypeAlias = AfterDecision | Awaitable[AfterDecision | None] | None
ViewAnswer: TypeAlias = Iterable[Message] | Awaitable[Iterable[Message] | None] | None
PollAnswer: TypeAlias = (
    str | Message | Iterable[str | Message] | Awaitable[str | Message | Iterable[str | Message] | None] | None
)
GateAnswer: TypeAlias = Collection[str] | Gate | Awaitable[Collection[str] | Gate | None] | None


@experimental(reason=UNPROVEN)
class Plugin:
    """A plugin overrides the hooks it needs; the others cost nothing.

    Give it a `name` (default: the class name in snake_case, unique in a configuration). `runs_before` and
    `runs_after` name plugins it must come before or after. State that belongs to one run is made in `for_run`.
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

    def journal_note(self) -> str | None:
        """A line about this run for its journal; asked right after `RunStarted`.

        When the run is resumed, `RunStarted.notes` has it under the plugin's name.
        """
        return None

    async def flush(self) -> None:
        """Finish what a plain `event_observer` still does in the background; awaited after the last event.

        All observers of a run share one second for it, and less when the run was stopped.
        """

    @experimental(reason=UNPROVEN)
    def before_tool_call(self, context: ToolCallContext) -> BeforeAnswer:
        """Judge a call before it runs.

        Asked: once for every call that could run, with its final, validated arguments; once more after a replacement
        (then `replaceable` is False) and after a person approved (`approved` is True).
        Answer: None or `Allow()`, `Replace(arguments)`, `Block(reason)` or `Ask(reason)`.
        Composition: in order; the first `Block` wins and nobody after it is asked. Every hook sees the arguments
        that will run.
        Failure: crash, hang, nonsense or a change of the arguments in place: the call is blocked.
        """

    @experimental(reason=UNPROVEN)
    def after_tool_call(self, context: ToolResultContext) -> AfterAnswer:
        """Look at a result before it joins the transcript.

        Asked: once for every call that ran, in source order of the calls, when all of them have ended; a store is
        given what the hooks made of the results, and nothing before.
        Answer: None or an `AfterDecision`: other content, an error or none, a vote to end the run.
        Composition: chained; each sees what the one before it made of the result.
        Failure: crash, hang or nonsense: skipped and reported; the result is not changed.
        """

    @experimental(reason=UNPROVEN)
    def context_transform(self, context: TransformContext) -> ViewAnswer:
        """Show the model a different view of the transcript for one call.

        Asked: before every model call, the landing call included.
        Answer: None or the messages to show instead. Never kept: the transcript does not change.
        Composition: left to right, each on the view of the one before. Calls and results are kept together.
        Failure: crash, hang, nonsense or an empty view: skipped and reported.
        """

    @experimental(reason=UNPROVEN)
    def event_observer(self, event: Event) -> Awaitable[object] | None:
        """See what happened.

        Asked: for every event named in `events`; None is all but `StreamChunk`.
        Answer: nothing. An async observer has its own queue; at the end it has a second to catch up.
        Composition: in order, behind the journal and the event sink.
        Failure: it can never hurt a run: a crash is reported, the third one removes it; a slow one misses events,
        which are counted, but never the last.
        """

    @experimental(reason=UNPROVEN)
    def steering(self, context: PollContext) -> PollAnswer:
        """Add messages while the run works.

        Asked: before the first model call and after every turn that continues.
        Answer: None, a str, a user message, or several of them.
        Composition: all are asked, their messages join in order, before the next model call.
        Failure: crash or hang: skipped and reported; of several messages only the unusable ones.
        """

    @experimental(reason=UNPROVEN)
    def follow_up(self, context: PollContext) -> PollAnswer:
        """Keep a run going that would otherwise end.

        Asked: when the model stopped by itself and no guard had an answer.
        Answer: as for `steering`; None lets the run end.
        Composition: all are asked; any message keeps the run going.
        Failure: crash or hang: skipped and reported; of several messages only the unusable ones.
        """

    @experimental(reason=UNPROVEN)
    def tool_gate(self, context: GateContext) -> GateAnswer:
        """Narrow the tools of the coming turn.

        Asked: before every model call that may use tools.
        Answer: None for no opinion, a set of names, or a `Gate`. An empty set means no tools.
        Composition: the intersection of all. Required gates always hold; when advisory ones leave nothing, the
        strongest of them that meets the required ones holds and the others give way.
        Failure: crash, hang or nonsense: no tool is allowed in this turn.
        """

    @experimental(reason=UNPROVEN)
    def context_overflow_recovery(self, context: OverflowContext) -> ViewAnswer:
        """Make a smaller view after the provider said that the context does not fit.

        Asked: once for a model call that overflowed, before the built-in strategy.
        Answer: None or the messages to show from now on; they must be fewer tokens.
        Composition: the first smaller view is used, nobody after it is asked.
        Failure: crash, hang or nonsense: skipped and reported; the built-in strategy takes over.
        """


HOOKS: tuple[str, ...] = tuple(name for name, method in vars(Plugin).items() if stability_of(method) is not None)
"""The names of all hooks: the methods that carry a stability mark."""


def as_message(item: object) -> Message:
    """What a steering or follow-up hook returned, as a message; a str becomes a user message."""
    if isinstance(item, str):
        return UserMessage(str.__str__(item))
    if isinstance(item, UserMessage | CustomMessage):
        return item
    raise TypeError(f"expected a str or a user message, got {type(item).__name__}")
