"""One run as spans: `invoke_agent` for the run, `chat` for every attempt at a model call, `execute_tool` for tools.

A span starts when its event arrives, so that it is the current one for whatever the tool or the SDK does meanwhile. Its
end and its figures are handed to the background thread: see `glidepath.otel.background`. Tokens and money are on chat
spans only; the run has its totals under names of our own, so that nobody adds them up twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, TypeAlias

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from glidepath.events import (
    ApprovalRequested,
    AttemptDiscarded,
    BreakerChanged,
    BudgetReserved,
    BudgetSettled,
    ConstraintViolated,
    ContextShaped,
    Event,
    GuardTripped,
    HookFailed,
    LandingStarted,
    MessageAdded,
    ModelSwitched,
    RetryScheduled,
    RunEnded,
    RunPaused,
    RunStarted,
    StreamStarted,
    ToolEnded,
    ToolStarted,
)
from glidepath.messages import AssistantMessage, Message
from glidepath.otel.background import Background
from glidepath.otel.content import Writer, clean
from glidepath.otel.light_span import LightSpan, LightTracer, light_tracer
from glidepath.otel.measures import Measures
from glidepath.otel.vocabulary import finish_reason, provider_name
from glidepath.outcome import AgentState

__all__ = ["NANO", "SCOPE", "Ending", "RunSpans", "traceparent"]

SCOPE = "glidepath"
NANO = 1_000_000_000
_W3C = TraceContextTextMapPropagator()
_MOST_TOOLS_LEFT = 10_000
_Content: TypeAlias = Callable[[], dict[str, str]]
"""Writes what was said, for a span. It runs the user's redaction, so it is called on the background thread only."""


def traceparent(span: Span) -> str | None:
    """The W3C line that names this span; None when it is not recorded anywhere."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, contexts.Context()))
    return carrier.get("traceparent")


def _linked(note: str | None) -> list[Link]:
    """A link to the span that an earlier leg of the run has left in its journal."""
    if note is None:
        return []
    found = trace.get_current_span(_W3C.extract({"traceparent": note})).get_span_context()
    return [Link(found, {"glidepath.link": "resumed"})] if found.is_valid else []


def _beside(outer: contexts.Context, links: list[Link]) -> contexts.Context:
    """Where a run's span belongs: below the caller's, but never in the trace of the leg it resumes."""
    caller = trace.get_current_span(outer).get_span_context()
    if any(link.context.trace_id == caller.trace_id for link in links):
        return trace.set_span_in_context(trace.INVALID_SPAN, outer)
    return outer


class _Chat:
    """One attempt at a model call that is not over yet, or not told to its end."""

    __slots__ = ("around", "attempt", "input", "landing", "purpose", "settled", "span", "started", "streamed")

    def __init__(self, span: Span, started: float, around: contexts.Context) -> None:
        self.span = span
        self.started = started
        self.around = around
        self.input: tuple[Message, ...] = ()
        self.purpose = "checkpoint"
        self.settled: BudgetSettled | None = None
        self.attempt = 0
        self.landing = False
        self.streamed = False


class RunSpans:
    """The spans of one run. Every method that takes an event is called on the run's own thread."""

    __slots__ = (
        "_at_once", "_background", "_chat", "_compacted", "_context", "_fresh", "_light", "_measures", "_model",
        "_name", "_outer", "_own", "_provider", "_provider_used", "_sampling", "_span", "_tools", "_tracer", "_writer",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        provider: TracerProvider,
        background: Background,
        measures: Measures | None,
        writer: Writer | None,
    ) -> None:
        self._name = name
        self._provider_used = provider
        self._tracer = provider.get_tracer(SCOPE)
        self._light: LightTracer | None = None
        self._at_once = False
        self._own = trace.INVALID_SPAN_CONTEXT
        self._background = background
        self._measures = measures
        self._writer = writer
        self._span: Span = trace.INVALID_SPAN
        self._outer = self._context = contexts.Context()
        self._chat: _Chat | None = None
        self._sampling: deque[_Chat] = deque()
        self._tools: dict[str, tuple[Span, ToolStarted]] = {}
        self._model = self._provider = ""
        self._fresh: list[Message] = []
        self._compacted = False

    @property
    def note(self) -> str | None:
        """What the journal keeps: where this run's trace is."""
        return traceparent(self._span)

    # --- the run ----------------------------------------------------------------------------------------------

    def run_started(self, event: RunStarted) -> None:
        """The run is a span below whatever span the caller is in."""
        self._model, self._provider = event.model, provider_name(event.provider)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": clean(event.agent_name),
            "gen_ai.conversation.id": clean(event.conversation_id or event.session_id),
            "gen_ai.request.model": clean(event.model),
            "gen_ai.provider.name": self._provider,
            "glidepath.run.id": event.run_id,
            "glidepath.session.id": clean(event.session_id),
            "glidepath.depth": event.depth,
        }
        if event.resumed:
            attributes["glidepath.resumed"] = True
        for name, limit in (event.limits or {}).items():
            attributes[f"glidepath.budget.{name}.limit"] = limit
        self._outer = contexts.get_current()
        links = _linked((event.notes or {}).get(self._name)) if event.resumed else []
        self._span = self._tracer.start_span(
            f"invoke_agent {clean(event.agent_name)}",
            _beside(self._outer, links),
            SpanKind.INTERNAL,
            attributes,
            links,
            int(event.time * NANO),
        )
        self._own = self._span.get_span_context()
        self._light = light_tracer(self._provider_used, self._span)
        self._at_once = self._light is not None and self._light.never_blocks
        self._context = trace.set_span_in_context(self._span, self._outer)
        contexts.attach(self._context)
        if self._measures is not None:
            self._measures.run_started(event)

    def run_ended(self, event: RunEnded) -> None:
        """Its totals, and how it ended."""
        self._close_chat("unfinished")
        while self._sampling:
            self._close(self._sampling.popleft(), "unfinished")
        for span, started in self._tools.values():
            self._end(span, {"error.type": "abandoned"}, event.time, "abandoned", self._call_content(started))
        self._tools.clear()
        contexts.attach(self._outer)
        result, usage = event.result, event.result.usage
        attributes: dict[str, Any] = {
            "glidepath.outcome": result.outcome.value,
            "glidepath.state": result.state.value,
            "glidepath.usage.input_tokens": usage.input,
            "glidepath.usage.output_tokens": usage.output,
            "glidepath.iterations": result.iterations,
            "glidepath.tool_calls": result.tool_calls,
        }
        if usage.cache_read:
            attributes["glidepath.usage.cache_read.input_tokens"] = usage.cache_read
        if usage.reasoning:
            attributes["glidepath.usage.reasoning.output_tokens"] = usage.reasoning
        if result.cost is not None:
            attributes["glidepath.cost"] = float(result.cost)
        if result.cause is not None:
            attributes["glidepath.cause.source"] = clean(result.cause.source)
            attributes["glidepath.cause.action"] = clean(str(result.cause.action))
        error = None
        if result.state is AgentState.ERROR:
            error = "error" if result.cause is None else clean(result.cause.source)
            attributes["error.type"] = error
        content: _Content | None = None
        if self._writer is not None and result.cause is not None:
            content = partial(self._writer.cause, result.cause.reason)
        self._end(self._span, attributes, event.time, error, content)
        if self._measures is not None:
            self._measures.run_ended(event)

    # --- model calls ------------------------------------------------------------------------------------------

    def reserved(self, event: BudgetReserved) -> None:
        """A model call is about to be made: the run's own, or one that a server asks for while its tool runs."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._provider,
            "gen_ai.request.model": self._model,
        }
        if event.max_output_tokens is not None:
            attributes["gen_ai.request.max_tokens"] = event.max_output_tokens
        span = self._start(f"chat {self._model}", SpanKind.CLIENT, attributes, event.time)
        for_a_tool = bool(self._tools)
        if for_a_tool:
            chat = _Chat(span, event.time, contexts.get_current())
            chat.purpose = "sampling"
            self._sampling.append(chat)
        else:
            self._close_chat(None)
            chat = self._chat = _Chat(span, event.time, self._context)
            if self._writer is not None:
                chat.input = tuple(self._fresh)
        contexts.attach(trace.set_span_in_context(span, self._context))
        if self._measures is not None:
            self._measures.reserved(event, beside=for_a_tool)

    def stream_started(self, event: StreamStarted) -> None:
        """It is the turn's call, or the landing's, and no checkpoint."""
        chat = self._chat
        if chat is not None:
            chat.streamed, chat.attempt, chat.landing = True, event.attempt, event.landing

    def settled(self, event: BudgetSettled) -> None:
        """It is over and charged. Calls for tools may overlap: nothing tells them apart, so the oldest is used."""
        for_a_tool = bool(self._sampling)
        chat = self._sampling.popleft() if for_a_tool else self._chat
        if chat is not None:
            chat.settled = event
            contexts.attach(chat.around)
        if self._measures is not None:
            self._measures.settled(event, beside=for_a_tool)
        if for_a_tool and chat is not None:
            self._close(chat, None)

    def message_added(self, event: MessageAdded) -> None:
        """A reply closes the call that made it; anything else is what the next call will see."""
        message = event.message
        if type(message) is AssistantMessage and self._chat is not None:
            self._close_chat(None, message)
        elif self._writer is not None:
            self._fresh.append(message)

    def discarded(self, event: AttemptDiscarded) -> None:
        """What the attempt streamed does not count; what it cost does."""
        kind = event.reason.partition(":")[0]
        self._close_chat(kind if kind.isidentifier() else event.reason)

    def _close_chat(self, error: str | None, reply: AssistantMessage | None = None) -> None:
        chat, self._chat = self._chat, None
        if chat is not None:
            contexts.attach(self._context)
            if reply is not None:
                self._fresh = []
            self._close(chat, error, reply)

    def _close(self, chat: _Chat, error: str | None, reply: AssistantMessage | None = None) -> None:
        settled = chat.settled
        ended = chat.started if settled is None else settled.time
        attributes = self._figures(chat, settled)
        if error is not None:
            error = clean(error)
            attributes["error.type"] = error
        if self._compacted:
            attributes["gen_ai.conversation.compacted"] = True
            self._compacted = False
        if reply is not None:
            _reply(attributes, reply)
        content = None if self._writer is None else partial(self._writer.exchange, chat.input, reply)
        self._end(chat.span, attributes, ended, error, content)
        if self._measures is not None:
            self._measures.called(self._model, self._provider, chat.started, settled, error)

    def _figures(self, chat: _Chat, settled: BudgetSettled | None) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        if settled is not None:
            usage = settled.usage
            attributes["gen_ai.usage.input_tokens"] = usage.input
            attributes["gen_ai.usage.output_tokens"] = usage.output
            if usage.cache_read:
                attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read
            if usage.cache_write:  # two names: one that is read today, one that will be
                attributes["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write
                attributes["gen_ai.usage.cache_write.input_tokens"] = usage.cache_write
            if usage.reasoning:
                attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning
            if usage.estimated:
                attributes["glidepath.usage.estimated"] = True
            if settled.picodollars is not None:
                cost = settled.picodollars / 1e12
                attributes["glidepath.cost"] = attributes["operation.cost"] = attributes["gen_ai.usage.cost"] = cost
                attributes["glidepath.cost.picodollars"] = settled.picodollars
        if chat.landing:
            attributes["glidepath.landing"] = True
        if chat.attempt > 1:
            attributes["glidepath.attempt"] = chat.attempt
        if not chat.streamed:
            attributes["glidepath.purpose"] = chat.purpose
        return attributes

    # --- tools ------------------------------------------------------------------------------------------------

    def tool_started(self, event: ToolStarted) -> None:
        """The tool's own spans, and its requests, are below this one."""
        name = clean(event.tool_name)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": clean(event.call_id),
        }
        span = self._start(f"execute_tool {name}", SpanKind.INTERNAL, attributes, event.time)
        if len(self._tools) < _MOST_TOOLS_LEFT:
            self._tools[event.call_id] = (span, event)
        contexts.attach(trace.set_span_in_context(span, self._context))

    def tool_ended(self, event: ToolEnded) -> None:
        """It has its result. A call that never started has no span: the run's has an event."""
        contexts.attach(self._context)
        found = self._tools.pop(event.call_id, None)
        result = event.result
        error = clean(str(result.kind or "error")) if result.is_error else None
        if found is None:
            self._mark(
                "glidepath.tool.refused", {"gen_ai.tool.name": clean(event.tool_name), "kind": error or ""}, event
            )
            return
        span, started = found
        attributes: dict[str, Any] = {} if error is None else {"error.type": error}
        ended = started.time + event.seconds if event.seconds else event.time
        self._end(span, attributes, min(ended, event.time), error, self._call_content(started, result.text))
        if self._measures is not None:
            self._measures.tool(event.tool_name, event.seconds, error)

    def _call_content(self, started: ToolStarted, result: str | None = None) -> _Content | None:
        return None if self._writer is None else partial(self._writer.call, started.arguments, result)

    # --- what is worth a mark on the run ------------------------------------------------------------------------

    def landing(self, event: LandingStarted) -> None:
        """The landing."""
        self._mark("glidepath.landing", {"glidepath.cause.source": clean(event.source)}, event)
        if self._measures is not None:
            self._measures.landing(event)

    def guard(self, event: GuardTripped) -> None:
        """A guard acted."""
        self._mark("glidepath.guard", {"guard": clean(event.guard), "action": clean(event.action)}, event)
        if self._measures is not None:
            self._measures.guard(event)

    def constraint(self, event: ConstraintViolated) -> None:
        """A constraint was violated."""
        if not event.skipped:
            marks = {"constraint": clean(event.constraint), "action": event.action.value}
            self._mark("glidepath.constraint", marks, event)

    def retry(self, event: RetryScheduled) -> None:
        """Another attempt comes after a pause."""
        self._mark("glidepath.retry", {"attempt": event.attempt, "delay": event.delay}, event)
        if self._measures is not None:
            self._measures.retry(clean(event.model))

    def switched(self, event: ModelSwitched) -> None:
        """Another model from here on."""
        self._model, self._provider = clean(event.model), provider_name(event.provider)
        self._mark("glidepath.model_switched", {"previous": clean(event.previous), "model": self._model}, event)

    def breaker(self, event: BreakerChanged) -> None:
        """A breaker changed."""
        self._mark("glidepath.breaker", {"target": clean(event.target), "state": event.state}, event)
        if self._measures is not None:
            self._measures.breaker(event)

    def hook_failed(self, event: HookFailed) -> None:
        """A plugin failed."""
        self._mark("glidepath.hook_failed", {"plugin": clean(event.plugin), "hook": event.hook}, event)

    def approval(self, event: ApprovalRequested) -> None:
        """A person must decide."""
        self._mark("glidepath.approval", {"gen_ai.tool.name": clean(event.tool_name)}, event)

    def paused(self, event: RunPaused) -> None:
        """The run waits for a person."""
        if self._measures is not None:
            self._measures.paused(event)

    def shaped(self, _: ContextShaped) -> None:
        """The next call sees less than the transcript."""
        self._compacted = True

    def _mark(self, name: str, attributes: Mapping[str, Any], event: Event) -> None:
        self._span.add_event(name, attributes, int(event.time * NANO))

    # --- starts and ends ----------------------------------------------------------------------------------------

    def _start(self, name: str, kind: SpanKind, attributes: dict[str, Any], at: float) -> Span:
        light = self._light
        if light is not None:
            return light.start_span(name, self._own, kind, attributes, int(at * NANO))
        return self._tracer.start_span(
            name, self._context, kind, attributes, start_time=int(at * NANO), record_exception=False
        )

    def _end(
        self, span: Span, attributes: dict[str, Any], at: float, error: str | None, content: _Content | None = None
    ) -> None:
        if content is None and self._at_once and type(span) is LightSpan:
            if error is not None:
                span.set_status(Status(StatusCode.ERROR, error))
            span.close(attributes, int(at * NANO))
        else:
            self._background.put(Ending(span, attributes, int(at * NANO), error, content))

    HANDLERS: ClassVar[dict[type[Event], Callable[[Any, Any], None]]] = {
        RunStarted: run_started,
        BudgetReserved: reserved,
        StreamStarted: stream_started,
        BudgetSettled: settled,
        MessageAdded: message_added,
        AttemptDiscarded: discarded,
        ToolStarted: tool_started,
        ToolEnded: tool_ended,
        LandingStarted: landing,
        GuardTripped: guard,
        ConstraintViolated: constraint,
        RetryScheduled: retry,
        ModelSwitched: switched,
        BreakerChanged: breaker,
        HookFailed: hook_failed,
        ApprovalRequested: approval,
        RunPaused: paused,
        ContextShaped: shaped,
        RunEnded: run_ended,
    }


class Ending:
    """The end of one span, with its last attributes and, where content is allowed, what was said."""

    __slots__ = ("at", "attributes", "content", "error", "span")

    def __init__(
        self, span: Span, attributes: dict[str, Any], at: int, error: str | None, content: _Content | None = None
    ) -> None:
        self.span = span
        self.attributes = attributes
        self.at = at
        self.error = error
        self.content = content

    def __call__(self) -> None:
        """End it."""
        span = self.span
        if self.content is not None:
            self.attributes.update(self.content())
        if self.error is not None:
            span.set_status(Status(StatusCode.ERROR, self.error))
        if type(span) is LightSpan:
            span.close(self.attributes, self.at)
            return
        span.set_attributes(self.attributes)
        span.end(self.at)


def _reply(attributes: dict[str, Any], reply: AssistantMessage) -> None:
    """What the provider said about its reply."""
    attributes["gen_ai.response.finish_reasons"] = (finish_reason(reply.stop_reason),)
    info = reply.info
    if info is not None:
        if info.response_id:
            attributes["gen_ai.response.id"] = clean(info.response_id)
        if info.model:
            attributes["gen_ai.response.model"] = clean(info.model)
