"""One execution of a team as a span, `invoke_workflow`: the runs of its members are below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry import context as contexts, trace
from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider

from glidepath.apps.telemetry.background import Background
from glidepath.apps.telemetry.full_span import NANO, SpanEnding, finish_span
from glidepath.apps.telemetry.measures import Measures
from glidepath.apps.telemetry.run_spans import traceparent
from glidepath.apps.telemetry.span_content import ContentWriter, clean
from glidepath.teams import TERMINAL, Handoff, StepAssigned, TeamEvent, TeamStarted
from glidepath.values import Event

__all__ = ["TEAM_HANDLERS", "TeamSpans"]


class TeamSpans:
    """The span of one execution."""

    __slots__ = ("_background", "_outer", "_span", "_tracer")

    def __init__(
        self,
        name: str,  # noqa: ARG002 - as the spans of a run are made
        provider: TracerProvider | None,  # noqa: ARG002
        tracer: Tracer | None,
        background: Background,
        measures: Measures | None,  # noqa: ARG002
        writer: ContentWriter | None,  # noqa: ARG002
    ) -> None:
        self._tracer = tracer
        self._background = background
        self._span: Span = trace.INVALID_SPAN
        self._outer = contexts.Context()

    @property
    def note(self) -> str | None:
        """Where the trace is."""
        return traceparent(self._span)

    def on_started(self, event: TeamStarted) -> None:
        """The execution is below whatever span the caller is in."""
        if self._tracer is None:
            return
        self._outer = contexts.get_current()
        self._span = self._tracer.start_span(
            f"invoke_workflow {clean(event.team)}",
            self._outer,
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.workflow.name": clean(event.team),
                "glidepath.team.coordinator": clean(event.coordinator),
                "glidepath.team.members": tuple(map(clean, event.members)),
                "glidepath.run.id": event.run_id,
                **({"glidepath.resumed": True} if event.resumed else {}),
            },
            start_time=int(event.time * NANO),
        )
        contexts.attach(trace.set_span_in_context(self._span, self._outer))

    def step(self, event: StepAssigned) -> None:
        """A member starts."""
        marks = {"step": clean(event.step_id or ""), "gen_ai.agent.name": clean(event.member)}
        self._span.add_event("glidepath.team.step", marks, int(event.time * NANO))

    def on_handoff(self, event: Handoff) -> None:
        """Somebody else takes over."""
        self._span.add_event("glidepath.team.handoff", {"to": clean(event.to)}, int(event.time * NANO))

    def on_ended(self, event: TeamEvent) -> None:
        """The totals have our own names: the tokens belong to the members' calls."""
        if self._tracer is None:
            return
        contexts.attach(self._outer)
        result: Any = event.result  # type: ignore[attr-defined]
        attributes: dict[str, Any] = {
            "glidepath.team.status": result.status.value,
            "glidepath.usage.input_tokens": result.usage.input,
            "glidepath.usage.output_tokens": result.usage.output,
        }
        if result.cost is not None:
            attributes["glidepath.cost"] = float(result.cost)
        error = result.status.value if event.kind in ("TEAM_FAILED", "TEAM_TIMEOUT") else None
        if error is not None:
            attributes["error.type"] = error
        self._background.put(SpanEnding(finish_span, self._span, attributes, int(event.time * NANO), error))


TEAM_HANDLERS: dict[type[Event], Callable[[Any, Any], None]] = {
    TeamStarted: TeamSpans.on_started,
    StepAssigned: TeamSpans.step,
    Handoff: TeamSpans.on_handoff,
    **dict.fromkeys(TERMINAL, TeamSpans.on_ended),
}
