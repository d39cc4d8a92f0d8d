"""Spans of model and tool calls at a quarter of the price, where the SDK's own would do nothing more.

The SDK's `start_span` asks a sampler, checks every attribute under a lock and calls the processors twice: 20 to 30
microseconds a span, about as much as a whole turn. With the usual set-up (the SDK's provider as it is, everything
sampled, batch or simple processors, no limits of one's own) none of that has an effect below a run whose own span is
recorded. A `LightSpan` is a full span to anyone who meets it as the current one; at its end it becomes the SDK's
`ReadableSpan` and goes to the same processors. Anything unusual, and the SDK's tracer makes the spans: `light_tracer`
answers None. A test compares both ways.

This is the one module that looks at a private attribute of the SDK: a provider does not say which processors it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time_ns
from typing import Any

from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes, AttributeValue

__all__ = ["LightSpan", "LightTracer", "light_tracer"]

_UNSET = Status(StatusCode.UNSET)
_MOST_EVENTS = 128  # as in the SDK


def light_tracer(provider: object, run: Span) -> LightTracer | None:
    """What makes light spans below the span of a run; None when only the SDK's own will do."""
    if not run.get_span_context().trace_flags.sampled or not run.is_recording():
        return None
    try:
        return LightTracer(provider, run) if _ordinary(provider) else None
    except Exception:  # another version of the SDK keeps its things elsewhere
        return None


def _ordinary(provider: Any) -> bool:
    """Whether this is the SDK's provider with nothing that would look at a span before it ends."""
    from opentelemetry.sdk.trace import SpanLimits, SynchronousMultiSpanProcessor, TracerProvider, sampling
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    if type(provider) is not TracerProvider or provider.sampler not in (sampling.DEFAULT_ON, sampling.ALWAYS_ON):
        return False
    behind = provider._active_span_processor  # noqa: SLF001 - see above
    if type(behind) is not SynchronousMultiSpanProcessor:
        return False
    if any(type(one) not in (BatchSpanProcessor, SimpleSpanProcessor) for one in behind._span_processors):  # noqa: SLF001
        return False
    return vars(provider._span_limits) == vars(SpanLimits())  # noqa: SLF001


class LightTracer:
    """Starts light spans; called as the API's tracer is."""

    __slots__ = (
        "_flags", "_new_id", "_on_end", "_readable", "_resource", "_scope", "_state", "_trace_id", "never_blocks",
    )  # fmt: skip

    def __init__(self, provider: Any, run: Any) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        behind = provider._active_span_processor  # noqa: SLF001 - see above
        self.never_blocks = all(type(one) is BatchSpanProcessor for one in behind._span_processors)  # noqa: SLF001
        """A batch processor only queues what it gets, and drops the oldest when its queue is full."""
        context: SpanContext = run.get_span_context()
        self._trace_id, self._flags, self._state = context.trace_id, context.trace_flags, context.trace_state
        self._new_id = provider.id_generator.generate_span_id
        self._on_end = behind.on_end
        self._readable = ReadableSpan
        self._resource = run.resource
        self._scope = (run.instrumentation_info, run.instrumentation_scope)

    def start_span(
        self,
        name: str,
        parent: SpanContext,
        kind: SpanKind,
        attributes: dict[str, Any],
        start_time: int,
    ) -> LightSpan:
        """A span that has begun at this time."""
        context = SpanContext(self._trace_id, self._new_id(), False, self._flags, self._state)
        return LightSpan(self, name, context, parent, kind, attributes, start_time)

    def finish(self, span: LightSpan, end_time: int) -> None:
        """Hand a finished span to the processors."""
        info, scope = self._scope
        self._on_end(
            self._readable(
                span.name,
                span.context,
                span.parent,
                self._resource,
                span.attributes,
                span.events,
                span.links,
                span.kind,
                info,
                span.status,
                span.start_time,
                end_time,
                scope,
            )
        )


class LightSpan(Span):
    """A span that stores our attributes unchecked and validates only those of others."""

    def __init__(
        self,
        tracer: LightTracer,
        name: str,
        context: SpanContext,
        parent: SpanContext,
        kind: SpanKind,
        attributes: dict[str, Any],
        start_time: int,
    ) -> None:
        self.tracer: LightTracer | None = tracer
        self.name = name
        self.context = context
        self.parent = parent
        self.kind = kind
        self.attributes = attributes
        self.start_time = start_time
        self.status = _UNSET
        self.events: Sequence[Any] = ()
        self.links: Sequence[Link] = ()

    def get_span_context(self) -> SpanContext:
        """Its ids."""
        return self.context

    def is_recording(self) -> bool:
        """Until it ends."""
        return self.tracer is not None

    def close(self, attributes: dict[str, Any], at: int) -> None:
        """The last attributes, which are ours and need no check, and the end."""
        tracer, self.tracer = self.tracer, None
        if tracer is not None:
            self.attributes.update(attributes)
            tracer.finish(self, at)

    def end(self, end_time: int | None = None) -> None:
        """It is over."""
        self.close({}, time_ns() if end_time is None else end_time)

    def set_attributes(self, attributes: Any) -> None:
        """Attributes from other code."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """One attribute, as the SDK would take it."""
        from opentelemetry.attributes import BoundedAttributes

        if self.tracer is not None:
            self.attributes.update(BoundedAttributes(attributes={key: value}, immutable=False))

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Something that happened meanwhile."""
        from opentelemetry.attributes import BoundedAttributes
        from opentelemetry.sdk.trace import Event

        if self.tracer is not None and len(self.events) < _MOST_EVENTS:
            marks = BoundedAttributes(attributes=attributes, immutable=True)
            self.events = (*self.events, Event(name, marks, time_ns() if timestamp is None else timestamp))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Link a related span."""
        if self.tracer is not None:
            self.links = (*self.links, Link(context, attributes))

    def update_name(self, name: str) -> None:
        """Another name."""
        self.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """How it went; once it is OK it stays so."""
        if self.tracer is None or self.status.status_code is StatusCode.OK:
            return
        self.status = status if isinstance(status, Status) else Status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """An exception, as an event."""
        import traceback

        text = "".join(traceback.format_exception(exception))
        marks: dict[str, Any] = {
            "exception.type": type(exception).__qualname__,
            "exception.message": str(exception),
            "exception.stacktrace": text,
            "exception.escaped": str(escaped),
            **(attributes or {}),
        }
        self.add_event("exception", marks, timestamp)
