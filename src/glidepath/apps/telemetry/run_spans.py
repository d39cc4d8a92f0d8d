"""One run as spans: `invoke_agent` for the run, `chat` for every attempt at a model call, `execute_tool` for tools.

A span starts when its event arrives, so that it is the current one for whatever the tool or the SDK does meanwhile. Its
end and its figures are handed to the background thread: see `glidepath.apps.telemetry.background`. Tokens and money are
on chat spans only; the run has its totals under names of our own, so that nobody adds them up twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from glidepath.apps.telemetry.background import Background
from glidepath.apps.telemetry.chat_attributes import add_figures, add_reply
from glidepath.apps.telemetry.current_span import context_with, enter
from glidepath.apps.telemetry.full_span import NANO, Content, FullTracer, NoTracer, SpanEnding, SpanMaker, finish_span
from glidepath.apps.telemetry.measures import Measures
from glidepath.apps.telemetry.span_content import ContentWriter, clean
from glidepath.apps.telemetry.vocabulary import provider_name
from glidepath.plugins.observe import UNCHECKED_NAMES
from glidepath.spi import RunIntroduction
from glidepath.values import (
    AgentState,
    ApprovalRequested,
    AssistantMessage,
    AttemptDiscarded,
    BackgroundEnded,
    BackgroundStarted,
    BreakerChanged,
    BudgetReserved,
    BudgetSettled,
    ConstraintViolated,
    ContextShaped,
    Event,
    GuardTripped,
    HookFailed,
    LandingStarted,
    Message,
    MessageAdded,
    ModelSwitched,
    RetryScheduled,
    RunEnded,
    RunPaused,
    RunStarted,
    StreamStarted,
    ToolEnded,
    ToolResultMessage,
    ToolStarted,
)

__all__ = ["RunSpans", "traceparent"]

_W3C = TraceContextTextMapPropagator()
_MOST_TOOLS_LEFT = 10_000
_CLIENT, _INTERNAL = SpanKind.CLIENT, SpanKind.INTERNAL


def traceparent(span: Span) -> str | None:
    """The W3C line that names this span; None when it is not recorded anywhere."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent")


def _make_links(note: str | None) -> list[Link]:
    """A link to the span that an earlier leg of the run has left in its journal."""
    if note is None:
        return []
    found = trace.get_current_span(_W3C.extract({"traceparent": note})).get_span_context()
    return [Link(found, {"glidepath.link": "resumed"})] if found.is_valid else []


def _choose_parent_context(outer: Context, links: list[Link]) -> Context:
    """Where a run's span belongs: below the caller's, but never in the trace of the leg it resumes."""
    caller = trace.get_current_span(outer).get_span_context()
    if any(link.context.trace_id == caller.trace_id for link in links):
        return trace.set_span_in_context(trace.INVALID_SPAN, outer)
    return outer


def _do_nothing(_: Context) -> None:
    """Leave the current span alone."""


def _find_missing_answer(settled: BudgetSettled) -> str | None:
    """The error of a call beside the turns that failed before it cost anything."""
    return None if settled.usage.total else "unanswered"


class _Sampling:
    """A model call that a server has asked for while its tool runs, and that is not over yet."""

    __slots__ = ("around", "asked", "span", "started")

    def __init__(self, span: Span, asked: dict[str, Any], started: float, around: Context) -> None:
        self.span = span
        self.asked = asked
        self.started = started
        self.around = around


class RunSpans:
    """The spans of one run. Every method that takes an event is called on the run's own thread."""

    __slots__ = (
        "_asked", "_attempt", "_background", "_background_calls", "_cap", "_chat", "_compacted", "_context",
        "_conversation", "_enter", "_first_input", "_fresh", "_input", "_introduced", "_introduction", "_landing",
        "_measures", "_model", "_name", "_outer", "_provider", "_provider_used", "_sampling", "_settled", "_span",
        "_spans", "_speaker", "_started", "_title", "_tools", "_tracer", "_waits", "_writer",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        provider: TracerProvider | None,
        tracer: Tracer | None,
        background: Background,
        measures: Measures | None,
        writer: ContentWriter | None,
    ) -> None:
        self._name = name
        self._provider_used = provider
        self._tracer = tracer
        self._background = background
        self._measures = measures
        self._writer = None if tracer is None else writer
        self._enter: Callable[[Context], object] = _do_nothing if tracer is None else enter
        """Makes a span the current one. Without spans of our own, those of others stay the current ones."""
        self._span: Span = trace.INVALID_SPAN
        self._outer = self._context = Context()
        self._spans: SpanMaker = NoTracer()
        self._waits = True
        """Whether a processor may wait for something when a span ends."""
        self._chat: Span | None = None
        self._started = 0.0  # when the call of `_chat` began
        self._settled: BudgetSettled | None = None
        self._attempt = 0  # 0: the call is not part of a turn
        self._landing = False
        self._input: tuple[Message, ...] = ()
        self._sampling: deque[_Sampling] = deque()
        self._tools: dict[str, tuple[Span, ToolStarted, dict[str, Any]]] = {}
        self._background_calls: dict[str, tuple[Span, dict[str, Any]]] = {}
        self._model = self._provider = self._title = ""
        self._speaker: dict[str, str] = {}  # the agent that has the conversation, once it was handed over
        self._cap: int | None = None
        self._asked: dict[str, Any] = {}  # what the span of a call starts with: shared by all of them, never changed
        self._fresh: list[Message] = []
        self._compacted = False
        self._conversation = ""
        self._introduction: RunIntroduction | None = None
        self._introduced = False  # a span of a call has it
        self._first_input: tuple[Message, ...] = ()

    def take_introduction(self, introduction: RunIntroduction) -> None:
        """What the run sends with every request."""
        self._introduction = introduction

    @property
    def is_light(self) -> bool:
        """Whether nobody else's code runs when spans start and end."""
        return not self._waits

    @property
    def note(self) -> str | None:
        """What the journal keeps: where this run's trace is."""
        return traceparent(self._span)

    # --- the run ----------------------------------------------------------------------------------------------

    def on_run_started(self, event: RunStarted) -> None:
        """The run is a span below whatever span the caller is in."""
        self._conversation = clean(event.conversation_id or event.session_id)
        self._note_model(event.model, event.provider)
        if self._tracer is not None:
            self._start_span(event, self._tracer)
        if self._measures is not None:
            self._measures.on_run_started(event)

    def _start_span(self, event: RunStarted, tracer: Tracer) -> None:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": clean(event.agent_name),
            "gen_ai.conversation.id": self._conversation,
            "gen_ai.request.model": self._model,
            "gen_ai.provider.name": self._provider,
            "glidepath.run.id": event.run_id,
            "glidepath.session.id": clean(event.session_id),
            "glidepath.depth": event.depth,
        }
        if event.resumed:
            attributes["glidepath.resumed"] = True
        for name, limit in (event.limits or {}).items():
            attributes[f"glidepath.budget.{name}.limit"] = limit
        self._outer = get_current()
        links = _make_links((event.notes or {}).get(self._name)) if event.resumed else []
        self._span = tracer.start_span(
            f"invoke_agent {clean(event.agent_name)}",
            _choose_parent_context(self._outer, links),
            _INTERNAL,
            attributes,
            links,
            int(event.time * NANO),
        )
        self._context = trace.set_span_in_context(self._span, self._outer)
        self._find_maker(tracer)
        self._enter(self._context)

    def _find_maker(self, tracer: Tracer) -> None:
        """Light spans where nobody can tell them from the SDK's, else the SDK's."""
        light = None
        if type(self._provider_used).__module__ == "opentelemetry.sdk.trace":
            from glidepath.apps.telemetry.light_span import light_tracer

            light = light_tracer(self._provider_used, self._span, self._background)
        self._waits = light is None or not light.never_blocks
        self._spans = light or FullTracer(tracer, self._context, self._background)

    def on_run_ended(self, event: RunEnded) -> None:
        """Its totals, and how it ended."""
        if self._chat is not None:
            self._close_chat("unfinished")
        while self._sampling:
            self._close_sampling(self._sampling.popleft(), None, "unfinished")
        for span, started, begun in self._tools.values():
            lost = {**begun, "error.type": "abandoned"}
            self._spans.end(span, lost, event.time, "abandoned", self._call_content(started))
        self._tools.clear()
        for span, begun in self._background_calls.values():
            self._spans.end(span, {**begun, "error.type": "abandoned"}, event.time, "abandoned")
        self._background_calls.clear()
        self._enter(self._outer)
        if self._tracer is not None:
            self._end_span(event)
        if self._measures is not None:
            self._measures.on_run_ended(event)

    def _end_span(self, event: RunEnded) -> None:
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
        if usage.cache_write:
            attributes["glidepath.usage.cache_write.input_tokens"] = usage.cache_write
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
        content: Content | None = None
        if self._writer is not None:
            content = partial(self._writer.run, self._introduction, self._first_input, result)
        ending = SpanEnding(finish_span, self._span, attributes, int(event.time * NANO), error, content)
        if self._waits or self._writer is not None:  # behind those of its calls
            self._background.put(ending)
        else:
            ending()

    # --- model calls ------------------------------------------------------------------------------------------

    def _note_model(self, model: str, provider: str | None) -> None:
        """Which model is called from here on."""
        self._model, self._provider = clean(model), provider_name(provider)
        self._title = f"chat {self._model}"
        self._ask(self._cap)

    def _ask(self, cap: int | None) -> None:
        """What the spans of calls start with."""
        self._cap = cap
        self._asked = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._provider,
            "gen_ai.request.model": self._model,
            "gen_ai.conversation.id": self._conversation,
            **self._speaker,
        }
        if self._introduction is not None and self._introduction.temperature is not None:
            self._asked["gen_ai.request.temperature"] = self._introduction.temperature
        if cap is not None:
            self._asked["gen_ai.request.max_tokens"] = cap

    def on_reserved(self, event: BudgetReserved) -> None:
        """A model call is about to be made: the run's own, or one that a server asks for while its tool runs."""
        if self._chat is not None and not self._tools:
            self._close_chat(None)
        if event.max_output_tokens != self._cap:
            self._ask(event.max_output_tokens)
        span = self._spans.start(self._title, _CLIENT, self._asked, event.time)
        if self._tools:
            self._sampling.append(_Sampling(span, self._asked, event.time, get_current()))
        else:
            self._chat, self._started, self._settled = span, event.time, None
            self._attempt, self._landing = 0, False
            if self._writer is not None:
                self._input = tuple(self._fresh)
                self._first_input = self._first_input or self._input
        self._enter(context_with(span, self._outer))
        if self._measures is not None:
            self._measures.on_reserved(event, beside=bool(self._tools))

    def on_stream_started(self, event: StreamStarted) -> None:
        """It is the turn's call, or the landing's, not a checkpoint."""
        self._attempt, self._landing = event.attempt, event.landing

    def on_settled(self, event: BudgetSettled) -> None:
        """It is over and charged. Calls for tools may overlap: nothing tells them apart, so the oldest is used."""
        if self._sampling:
            self._close_sampling(self._sampling.popleft(), event, _find_missing_answer(event))
            return
        if self._chat is not None:
            self._settled = event
            self._enter(self._context)
            if not self._attempt:  # a checkpoint: nothing else tells how it went
                self._close_chat(_find_missing_answer(event))
        if self._measures is not None:
            self._measures.on_settled(event)

    def on_message_added(self, event: MessageAdded) -> None:
        """A reply closes the call that made it; anything else is what the next call will see."""
        message = event.message
        if message.__class__ is AssistantMessage and self._chat is not None:
            self._close_chat(None, message)
        elif self._writer is not None:
            self._fresh.append(message)

    def on_discarded(self, event: AttemptDiscarded) -> None:
        """What the attempt streamed does not count; what it cost does."""
        if self._chat is not None:
            kind = event.reason.partition(":")[0]
            self._close_chat(kind if kind.isidentifier() else event.reason)

    def _close_chat(self, error: str | None, reply: AssistantMessage | None = None) -> None:
        span: Any = self._chat
        self._chat = None
        settled = self._settled
        attributes = self._asked.copy()
        if settled is None:
            self._enter(self._context)
            ended = self._started
        else:
            ended = settled.time
            add_figures(attributes, settled)
        if self._attempt != 1:  # 0: nobody has seen it stream
            name, value = ("glidepath.attempt", self._attempt) if self._attempt else ("glidepath.purpose", "checkpoint")
            attributes[name] = value
        if self._landing:
            attributes["glidepath.landing"] = True
        if reply is not None:
            add_reply(attributes, reply)
        if self._compacted and self._attempt:
            attributes["gen_ai.conversation.compacted"] = True
            self._compacted = False
        if error is not None:
            error = attributes["error.type"] = clean(error)
        content = None
        if self._writer is not None:
            told = None if self._introduced else self._introduction  # once: it may be long
            content = partial(self._writer.exchange, self._input, reply, told)
            if reply is not None:
                self._fresh, self._introduced = [], True
        self._spans.end(span, attributes, ended, error, content)
        if self._measures is not None:
            self._measures.record_call(self._model, self._provider, self._started, settled, error)

    def _close_sampling(self, call: _Sampling, settled: BudgetSettled | None, error: str | None) -> None:
        attributes = {**call.asked, "glidepath.purpose": "sampling"}
        ended = call.started
        if settled is not None:
            ended = settled.time
            add_figures(attributes, settled)
            self._enter(call.around)
        if error is not None:
            attributes["error.type"] = error
        content = None if self._writer is None else partial(self._writer.exchange, (), None)
        self._spans.end(call.span, attributes, ended, error, content)
        if self._measures is not None:
            if settled is not None:
                self._measures.on_settled(settled, beside=True)
            self._measures.record_call(self._model, self._provider, call.started, settled, error)

    # --- tools ------------------------------------------------------------------------------------------------

    def on_tool_started(self, event: ToolStarted) -> None:
        """The tool's own spans, and its requests, are below this one."""
        name, call_id = event.tool_name, event.call_id
        if not (name.isascii() and call_id.isascii()):
            name, call_id = clean(name), clean(call_id)
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function",
            **self._speaker,
        }
        above = self._find_program_span(event.call_id) if self._tools else None
        span = self._spans.start(f"execute_tool {name}", _INTERNAL, attributes, event.time, above)
        if len(self._tools) < _MOST_TOOLS_LEFT:
            self._tools[event.call_id] = (span, event, attributes)
        self._enter(context_with(span, self._outer))

    def _find_program_span(self, call_id: str) -> Span | None:
        """The span of the program that makes this call: it is the program's own call with a number behind it."""
        found = self._tools.get(call_id.rpartition(".")[0])
        return None if found is None else found[0]

    def on_tool_ended(self, event: ToolEnded) -> None:
        """It has its result. A call that never started has no span: the run's has an event."""
        found = self._tools.pop(event.call_id, None)
        above = self._find_program_span(event.call_id) if self._tools else None
        self._enter(self._context if above is None else context_with(above, self._outer))
        error = None
        if event.result.is_error:
            error = clean(str(event.result.kind or "error"))
        if found is None:
            marks = {"kind": error or ""}
            if event.result.kind not in UNCHECKED_NAMES:  # else the name may be what the model said
                marks["gen_ai.tool.name"] = clean(event.tool_name)
            self._mark("glidepath.tool.refused", marks, event)
            return
        span, started, attributes = found
        if error is not None:
            attributes = {**attributes, "error.type": error}
        if event.result.details is not None:
            attributes = {**attributes, **_describe_skill(event.result)}
            self._note_handoff(event)
        ended = started.time + event.seconds
        if ended > event.time or ended == started.time:
            ended = event.time
        content = None if self._writer is None else self._call_content(started, event.result.text)
        self._spans.end(span, attributes, ended, error, content)
        if self._measures is not None:
            self._measures.on_tool(event.tool_name, event.seconds, error)

    def on_background_started(self, event: BackgroundStarted) -> None:
        """The call has returned a handle, and runs on: its own span, below the call's where that is open."""
        attributes = {
            "gen_ai.tool.name": clean(event.tool_name),
            "gen_ai.tool.call.id": clean(event.call_id),
            "glidepath.background.id": event.id,
            **self._speaker,
        }
        found = self._tools.get(event.call_id)
        above = None if found is None else found[0]
        span = self._spans.start(f"background {clean(event.tool_name)}", _INTERNAL, attributes, event.time, above)
        self._background_calls[event.id] = (span, attributes)

    def on_background_ended(self, event: BackgroundEnded) -> None:
        """It has its result, whether or not the model ever collects it."""
        found = self._background_calls.pop(event.id, None)
        if found is None:
            return
        span, attributes = found
        error = None if event.kind is None else clean(event.kind)
        if error is not None:
            attributes = {**attributes, "error.type": error}
        self._spans.end(span, attributes, event.time, error)

    def _note_handoff(self, event: ToolEnded) -> None:
        """Another agent speaks from the next turn on: the run has an event, and later calls its name."""
        from glidepath.agent import find_handoff  # only for a result that has details

        made = find_handoff(event.result)
        if made is None:
            return
        to = clean(str(made["to"]))
        self._speaker = {"gen_ai.agent.name": to}
        self._ask(self._cap)
        self._mark("glidepath.handoff", {"from": clean(str(made["from"])), "to": to}, event)

    def _call_content(self, started: ToolStarted, result: str | None = None) -> Content | None:
        return None if self._writer is None else partial(self._writer.call, started.arguments, result)

    # --- what is worth a mark on the run ------------------------------------------------------------------------

    def on_landing(self, event: LandingStarted) -> None:
        """The landing."""
        self._mark("glidepath.landing", {"glidepath.cause.source": clean(event.source)}, event)
        if self._measures is not None:
            self._measures.on_landing(event)

    def guard(self, event: GuardTripped) -> None:
        """A guard acted."""
        self._mark("glidepath.guard", {"guard": clean(event.guard), "action": clean(event.action)}, event)
        if self._measures is not None:
            self._measures.guard(event)

    def on_constraint(self, event: ConstraintViolated) -> None:
        """A constraint was violated."""
        if not event.skipped:
            marks = {"constraint": clean(event.constraint), "action": event.action.value}
            self._mark("glidepath.constraint", marks, event)

    def retry(self, event: RetryScheduled) -> None:
        """Another attempt comes after a pause."""
        self._mark("glidepath.retry", {"attempt": event.attempt, "delay": event.delay}, event)
        if self._measures is not None:
            self._measures.retry(clean(event.model))

    def on_switched(self, event: ModelSwitched) -> None:
        """Another model from here on."""
        self._note_model(event.model, event.provider)
        self._mark("glidepath.model_switched", {"previous": clean(event.previous), "model": self._model}, event)

    def on_breaker(self, event: BreakerChanged) -> None:
        """A breaker changed."""
        self._mark("glidepath.breaker", {"target": clean(event.target), "state": event.state}, event)
        if self._measures is not None:
            self._measures.on_breaker(event)

    def on_hook_failed(self, event: HookFailed) -> None:
        """A plugin failed."""
        self._mark("glidepath.hook_failed", {"plugin": clean(event.plugin), "hook": event.hook}, event)

    def on_approval(self, event: ApprovalRequested) -> None:
        """A person must decide."""
        self._mark("glidepath.approval", {"gen_ai.tool.name": clean(event.tool_name)}, event)

    def on_paused(self, event: RunPaused) -> None:
        """The run waits for a person."""
        if self._measures is not None:
            self._measures.on_paused(event)

    def on_shaped(self, event: ContextShaped) -> None:
        """The next call sees less than the transcript."""
        self._compacted = True
        if self._measures is not None:
            self._measures.on_shaped(event)

    def _mark(self, name: str, attributes: Mapping[str, Any], event: Event) -> None:
        self._span.add_event(name, attributes, int(event.time * NANO))

    HANDLERS: ClassVar[dict[type[Event], Callable[[Any, Any], None]]] = {
        RunStarted: on_run_started,
        BudgetReserved: on_reserved,
        StreamStarted: on_stream_started,
        BudgetSettled: on_settled,
        MessageAdded: on_message_added,
        AttemptDiscarded: on_discarded,
        ToolStarted: on_tool_started,
        ToolEnded: on_tool_ended,
        BackgroundStarted: on_background_started,
        BackgroundEnded: on_background_ended,
        LandingStarted: on_landing,
        GuardTripped: guard,
        ConstraintViolated: on_constraint,
        RetryScheduled: retry,
        ModelSwitched: on_switched,
        BreakerChanged: on_breaker,
        HookFailed: on_hook_failed,
        ApprovalRequested: on_approval,
        RunPaused: on_paused,
        ContextShaped: on_shaped,
        RunEnded: on_run_ended,
    }


def _describe_skill(result: ToolResultMessage) -> dict[str, str]:
    """Which skill was read, or whose script was run, as attributes of its call; nothing for any other result."""
    from glidepath.agent import find_used_skill  # only for a result that has details

    used = find_used_skill(result)
    if used is None:
        return {}
    return {f"glidepath.skill.{key}": clean(getattr(used, key)) for key in ("name", "digest", "file")}
