"""Spans of model and tool calls at a fraction of the price, where the SDK's own would do nothing more.

The SDK's `start_span` asks a sampler, checks every attribute under a lock and calls the processors twice: 20 to 30
microseconds a span, about as much as a whole turn. With the usual set-up (the SDK's provider as it is, everything below
a sampled span sampled, batch or simple processors, room for our attributes) none of that has an effect below a run
whose own span is recorded. A `LightSpan` is a span of the SDK that skips its constructor. When somebody else has
something to say about it, it becomes what the constructor would have made (`_become_full_span`); otherwise it goes to
the processors as it is, when it ends. Anything unusual, and the SDK's tracer makes the spans: `light_tracer` answers
None. Tests compare both ways.

This is the one module that imports the SDK: import it only where a provider of the SDK is in use. A light span has the
private parts that a span of the SDK has (`glidepath._sdk_privates`); another version of the SDK gets its own spans.
"""
# ruff: noqa: SLF001 - of LightSpan, which is declared here

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import Span, SynchronousMultiSpanProcessor, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes, AttributeValue

from glidepath._sdk_privates import (
    SHARED_PARTS,
    SPAN_PARTS,
    below_sampled,
    counts_spans,
    processors_of,
    queue_of,
    span_limits,
    span_processor,
)
from glidepath.apps.telemetry.background import Background
from glidepath.apps.telemetry.full_span import NANO, Content, SpanEnding, drop_known_attributes

__all__ = ["LightSpan", "LightTracer", "light_tracer"]

_MOST_OURS = 32  # attributes that a span of ours may have


def light_tracer(provider: object, run: object, background: Background) -> LightTracer | None:
    """What makes light spans below the span of a run; None when only the SDK's own will do."""
    try:
        return LightTracer(provider, run, background) if _is_ordinary(provider, run) else None
    except Exception:  # another version of the SDK keeps its things elsewhere
        return None


def _is_ordinary(provider: Any, run: Any) -> bool:
    """Whether this is the SDK's provider with nothing that would look at a span before it ends."""
    if type(provider) is not TracerProvider or not isinstance(run, Span) or run.end_time is not None:
        return False
    context, limits, behind = run.get_span_context(), span_limits(provider), span_processor(provider)
    return (
        vars(run).keys() == SPAN_PARTS
        and context.trace_flags.sampled
        and tuple(context) == _layout(context)
        and not counts_spans(run)
        and _has_parent_sampling(provider.sampler)
        and type(behind) is SynchronousMultiSpanProcessor
        and all(type(one) in (BatchSpanProcessor, SimpleSpanProcessor) for one in processors_of(behind))
        and limits.max_span_attribute_length is None
        and (limits.max_span_attributes is None or limits.max_span_attributes >= _MOST_OURS)
    )


def _layout(context: SpanContext) -> tuple[Any, ...]:
    return (context.trace_id, context.span_id, False, context.trace_flags, context.trace_state, True)


def _has_parent_sampling(sampler: Any) -> bool:
    """Whether every span below a sampled one of this process is sampled, too, and as it is."""
    if type(sampler) in (sampling.ParentBased, sampling.ParentBasedTraceIdRatio):
        sampler = below_sampled(sampler)
    return sampler is sampling.ALWAYS_ON


class LightTracer:
    """Starts and ends light spans, all below the span of one run."""

    __slots__ = (
        "_background", "_behind", "_flags", "_kind", "_new_id", "_queue", "_queued", "_state", "_trace_id",
        "above", "never_blocks",
    )  # fmt: skip

    def __init__(self, provider: Any, run: Any, background: Background) -> None:
        self._behind = span_processor(provider)
        processors = processors_of(self._behind)
        self.never_blocks = all(type(one) is BatchSpanProcessor for one in processors)
        """Whether all are batch processors: they only queue what they get, and drop the oldest if need be."""
        self._background = background
        self._queue: Callable[[Any], None] = self._behind.on_end
        self._queued: Any = None  # the processors that `_queue` stands for, as long as nobody adds one
        if self.never_blocks:
            self._queued = processors
            if len(processors) == 1:  # it would only look whether the span is sampled
                self._queue = queue_of(processors[0])
        ids = provider.id_generator
        self._new_id = partial(random.getrandbits, 64) if type(ids) is RandomIdGenerator else ids.generate_span_id
        self._kind = _kind_below(provider, run)
        self.above = above = run.get_span_context()
        self._trace_id, self._flags, self._state = above.trace_id, above.trace_flags, above.trace_state

    def start(self, name: str, kind: SpanKind, attributes: dict[str, Any], at: float, above: Any = None) -> Span:
        """A span that began at this time. The attributes are not copied: they may be shared, and must not change."""
        span: Any = _new_span(self._kind)
        span._maker = self
        span._name = name
        span._kind = kind
        span._attributes = attributes
        span._start_time = int(at * NANO)
        if above is not None:
            span._above = above
        return span  # type: ignore[no-any-return]

    def new_context(self) -> SpanContext:
        """The ids of a span: made when somebody asks, at the latest the exporter."""
        return _new_context(SpanContext, (self._trace_id, self._new_id() or 1, False, self._flags, self._state, True))

    def end(
        self, span: Any, attributes: dict[str, Any], at: float, error: str | None, content: Content | None = None
    ) -> None:
        """The span ends with exactly these attributes, and what others have said about it."""
        if error is None and content is None and processors_of(self._behind) is self._queued:
            ended = int(at * NANO)
            if not span._told:  # nothing is called from here until it has ended, so no other thread comes in between
                span._attributes = attributes
                span._end_time = ended
                self._queue(span)
                return
        ending = SpanEnding(self.finish, span, attributes, int(at * NANO), error, content)
        if content is None and self.never_blocks:
            ending()
        else:
            self._background.put(ending)

    def finish(self, span: LightSpan, attributes: dict[str, Any], at: int, error: str | None) -> None:
        """Hand a finished span to the processors."""
        with _TOUCHING:
            told = span._told
            if not told:
                span._attributes = attributes
                span._end_time = at
        if told:
            span.finish(drop_known_attributes(attributes), at, error)
            return
        if error is not None:
            span._status = Status(StatusCode.ERROR, error)
        self._behind.on_end(span)


def _kind_below(provider: Any, run: Any) -> type[LightSpan]:
    """The class of the spans below this one. It has what all spans of a provider have in common."""
    known = _KINDS.get(provider)
    if known is None or any(getattr(known, name) is not getattr(run, name) for name in SHARED_PARTS):
        known = _KINDS[provider] = type("LightSpan", (LightSpan,), {name: getattr(run, name) for name in SHARED_PARTS})
    return known


_KINDS: WeakKeyDictionary[Any, type[LightSpan]] = WeakKeyDictionary()
_TOUCHING = threading.Lock()  # held for a moment: a tool may speak about its span in a thread while the span ends


class LightSpan(Span):
    """A span of the SDK that has only what its end needs, until other code touches it."""

    _maker: LightTracer
    _start_time: int | None
    _above: Any = None
    """The span that this one is below, where that is not the run's."""
    _ids: SpanContext | None = None
    _told = False
    _sampler = _trace_config = _record_end_metrics = None
    _record_exception = False
    _set_status_on_exception = True
    _status = Status(StatusCode.UNSET)
    _end_time: int | None = None
    _events: Any = ()
    _links: Any = ()
    _lock: Any = threading.Lock()  # shared by spans that ended untouched: later calls on one only learn that it ended

    @property
    def _context(self) -> SpanContext:  # type: ignore[override]
        ids = self._ids
        if ids is None:
            with _TOUCHING:
                ids = self._ids
                if ids is None:
                    ids = self._ids = self._maker.new_context()
        return ids

    @property
    def _parent(self) -> SpanContext:  # type: ignore[override]
        above: SpanContext = self._maker.above if self._above is None else self._above.get_span_context()
        return above

    def _become_full_span(self) -> None:
        """Become what the SDK's constructor makes."""
        with _TOUCHING:
            if self._told or self._end_time is not None:
                return
            self._told = True  # first of all: a thread that ends it then waits for the lock
            limits = self._limits
            self._lock = threading.Lock()
            self._attributes = BoundedAttributes(
                limits.max_span_attributes,
                self._attributes,
                immutable=False,
                max_value_len=limits.max_span_attribute_length,
            )
            self._events, self._links = self._new_events(), self._new_links(())  # type: ignore[no-untyped-call]

    def finish(self, attributes: Mapping[str, Any], at: int, error: str | None) -> None:
        """End as the SDK's spans do."""
        if self._end_time is None:
            self.set_attributes(attributes)
            if error is not None:
                self.set_status(Status(StatusCode.ERROR, error))
            self.end(at)

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Like the SDK's, as are the methods below."""
        self._become_full_span()
        super().set_attributes(attributes)

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """One attribute."""
        self._become_full_span()
        super().set_attribute(key, value)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Something that happened meanwhile."""
        self._become_full_span()
        super().add_event(name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Link a related span."""
        self._become_full_span()
        super().add_link(context, attributes)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """How it went."""
        self._become_full_span()
        super().set_status(status, description)

    def update_name(self, name: str) -> None:
        """Another name."""
        self._become_full_span()
        super().update_name(name)

    def end(self, end_time: int | None = None) -> None:
        """It is over."""
        self._become_full_span()
        super().end(end_time)


_new_span = object.__new__
_new_context = tuple.__new__
