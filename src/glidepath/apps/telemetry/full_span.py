"""Spans as the provider's tracer makes them, ended on the background thread: an exporter may block there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from opentelemetry import context as contexts
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from glidepath.apps.telemetry.background import Background

__all__ = [
    "NANO",
    "Content",
    "FullTracer",
    "NoTracer",
    "SpanEnding",
    "SpanMaker",
    "drop_known_attributes",
    "finish_span",
]

_log = logging.getLogger("glidepath.otel")
NANO = 1_000_000_000
Content: TypeAlias = Callable[[], dict[str, str]]
"""Writes what was said, for a span. It runs the user's redaction, so it is called on the background thread only."""

_AT_START = frozenset(
    {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.request.max_tokens",
        "gen_ai.tool.name",
        "gen_ai.tool.call.id",
    }
)


def drop_known_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that a span did not have from the start; the others may have been changed since."""
    return {name: value for name, value in attributes.items() if name not in _AT_START}


def finish_span(span: Span, attributes: Mapping[str, Any], at: int, error: str | None) -> None:
    """The last attributes, and the end."""
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))
    span.set_attributes(attributes)
    span.end(at)


class SpanEnding:
    """The end of one span, with its last attributes and, where content is allowed, what was said."""

    __slots__ = ("at", "attributes", "content", "error", "finish", "span")

    def __init__(
        self,
        finish: Callable[[Any, dict[str, Any], int, str | None], object],
        span: Span,
        attributes: dict[str, Any],
        at: int,
        error: str | None,
        content: Content | None = None,
    ) -> None:
        self.finish = finish
        self.span = span
        self.attributes = attributes
        self.at = at
        self.error = error
        self.content = content

    def __call__(self) -> None:
        """End it."""
        if self.content is not None:
            try:
                self.attributes = {**self.attributes, **self.content()}
            except Exception:  # arguments nested too deeply, for example: the span keeps its figures
                _log.debug("the content of a span could not be written", exc_info=True)
        self.finish(self.span, self.attributes, self.at, self.error)


class SpanMaker(Protocol):
    """Starts and ends the spans of calls, all below the span of one run."""

    def start(
        self, name: str, kind: SpanKind, attributes: dict[str, Any], at: float, above: Span | None = None
    ) -> Span:
        """A span that began at this time, below the run's or the one that is given; the attributes do not change."""
        ...

    def end(
        self, span: Span, attributes: dict[str, Any], at: float, error: str | None, content: Content | None = None
    ) -> None:
        """The span ended at this time, with all of its attributes: those of the start are among them."""
        ...


class NoTracer:
    """No spans: only metrics are wanted."""

    def start(self, *_: object) -> Span:
        """A span that is recorded nowhere."""
        return INVALID_SPAN

    def end(self, *_: object) -> None:
        """Nothing to end."""


class FullTracer:
    """The provider's own tracer."""

    __slots__ = ("_background", "_context", "_tracer")

    def __init__(self, tracer: Tracer, context: contexts.Context, background: Background) -> None:
        self._tracer = tracer
        self._context = context
        self._background = background

    def start(
        self, name: str, kind: SpanKind, attributes: dict[str, Any], at: float, above: Span | None = None
    ) -> Span:
        """A span that began at this time."""
        below = self._context if above is None else set_span_in_context(above, self._context)
        return self._tracer.start_span(name, below, kind, attributes, start_time=int(at * NANO), record_exception=False)

    def end(
        self, span: Span, attributes: dict[str, Any], at: float, error: str | None, content: Content | None = None
    ) -> None:
        """End it on the background thread."""
        late = drop_known_attributes(attributes)
        self._background.put(SpanEnding(finish_span, span, late, int(at * NANO), error, content))
