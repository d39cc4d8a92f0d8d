"""W3C trace context: what a request starts belongs to the trace of its sender, where OpenTelemetry is in use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


@contextmanager
def continue_caller_trace(headers: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Make the span that `traceparent` names the current one, unless there is one already; nonsense is ignored."""
    named = headers.get("traceparent")
    trace = sys.modules.get("opentelemetry.trace")
    if not named or trace is None or trace.get_current_span().get_span_context().is_valid:
        yield  # not requested, not recorded, or already instrumented
        return
    from opentelemetry.context import attach, detach
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": named[-1], "tracestate": ",".join(headers.get("tracestate", ()))}
    token = attach(TraceContextTextMapPropagator().extract(carrier))
    try:
        yield
    finally:
        detach(token)
