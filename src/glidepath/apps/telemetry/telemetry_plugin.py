"""The plugin: its options, and the provider it finds when a run starts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import MethodType
from typing import Any, ClassVar, TypeAlias
from weakref import WeakValueDictionary

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Tracer, TracerProvider

from glidepath._version import VERSION
from glidepath.apps.telemetry.background import Background
from glidepath.apps.telemetry.measures import SCHEMA_URL, SCOPE, Measures, instruments_of
from glidepath.apps.telemetry.run_spans import RunSpans
from glidepath.apps.telemetry.span_content import ContentWriter, Redact
from glidepath.apps.telemetry.team_spans import TEAM_HANDLERS, TeamSpans
from glidepath.apps.telemetry.vocabulary import wants_content, wants_latest_vocabulary
from glidepath.spi import DirectObserver, Plugin, RunIntroduction
from glidepath.spi.direct_observer import is_unreal
from glidepath.values import ConfigurationError, Event, describe_error

__all__ = ["OpenTelemetry"]

_Parts: TypeAlias = tuple[str, TracerProvider | None, Tracer | None, Background, Measures | None, ContentWriter | None]
_MAX_CHARS = 4000
_log = logging.getLogger("glidepath.otel")


class _Claim:
    """Somebody follows the run that began with this event."""

    __slots__ = ("__weakref__", "event")

    def __init__(self, event: Event) -> None:
        self.event = event


class OpenTelemetry(Plugin, DirectObserver):
    """Shows runs and teams as spans and metrics; children and members are below their parents.

    The providers are those that the application has set when a run starts, or the ones given here. Without one, nothing
    is recorded, at no cost. Messages, arguments and results are not recorded unless `content` is True (None:
    unless `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says so): then each message once, through `redact`, cut
    to `max_chars` characters. A `redact` that fails shows nothing of that text.
    """

    name = "open_telemetry"
    inheritable_to_child: ClassVar[bool | None] = True

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        content: bool | None = None,
        redact: Redact | None = None,
        max_chars: int = _MAX_CHARS,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        if content not in (True, False, None):
            raise ConfigurationError(f"OpenTelemetry: content must be True, False or None, not {content!r:.80}")
        if redact is not None and not callable(redact):
            raise ConfigurationError(f"OpenTelemetry: redact must be a function of a text, not {redact!r:.80}")
        if type(max_chars) is not int or max_chars < 1:
            raise ConfigurationError(f"OpenTelemetry: max_chars must be a whole number from 1, not {max_chars!r:.80}")
        if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
            raise ConfigurationError(
                f"OpenTelemetry: tracer_provider must be a TracerProvider, not {tracer_provider!r:.80}"
            )
        if meter_provider is not None and not hasattr(meter_provider, "get_meter"):
            raise ConfigurationError(
                f"OpenTelemetry: meter_provider must be a MeterProvider, not {meter_provider!r:.80}"
            )
        self._content = content
        self._redact = redact
        self._max_chars = max_chars
        self._providers = (tracer_provider, meter_provider)
        self._background = Background()
        self._tracer: tuple[TracerProvider, Tracer] | None = None
        self._spans: RunSpans | TeamSpans | None = None
        self._parts: _Parts | None = None
        self._claims: list[_Claim] = []
        self._introduction: RunIntroduction | None = None

    def for_run(self) -> OpenTelemetry:
        """One that follows a single run or team; without a provider it asks for no event at all."""
        if self._background.inherited:
            self._background = Background()
        mine = object.__new__(OpenTelemetry)
        mine.__dict__.update(self.__dict__)
        tracers, meters = (None, None) if is_unreal() else _set_providers(*self._providers)
        tracer, measures = self._tracer_of(tracers), self._measures_of(meters)
        mine._spans = None
        if tracer is None and measures is None:
            mine.__dict__["events"] = ()  # of this one alone
            return mine
        mine.__dict__["events"] = _EVENTS
        wanted = wants_content() if self._content is None else self._content
        writer = ContentWriter(self._redact, self._max_chars) if wanted else None
        mine._parts = (self.name, tracers, tracer, self._background, measures, writer)
        return mine

    def _tracer_of(self, tracers: TracerProvider | None) -> Tracer | None:
        """Asked for once: a provider gives the same tracer every time, and takes its time."""
        if tracers is None:
            return None
        if self._tracer is None or self._tracer[0] is not tracers:
            try:
                self._tracer = (tracers, tracers.get_tracer(SCOPE, VERSION, SCHEMA_URL))
            except Exception as error:
                _log.warning("there are no spans: the tracer provider raised %s", describe_error(error))
                return None
        return self._tracer[1]

    def _measures_of(self, meters: MeterProvider | None) -> Measures | None:
        if meters is None:
            return None
        try:
            instruments = instruments_of(meters, self._background, latest=wants_latest_vocabulary())
        except Exception as error:
            _log.warning("there are no metrics: the meter provider raised %s", describe_error(error))
            return None
        return Measures(instruments, self._background)

    def event_observer(self, event: Event) -> None:
        """Make spans and metrics of an event."""
        handler = _HANDLERS.get(type(event))
        if handler is None:
            return
        spans = self._spans
        if spans is None:
            spans = self._spans = self._follow(event)
            if spans is None:
                return  # this is the plugin itself, which follows no run, or another one follows this run
        handler(spans, event)

    def _follow(self, event: Event) -> RunSpans | TeamSpans | None:
        """What follows this run or team; a provider is told of it once, however many plugins have that provider.

        A child may have its own plugin beside the one it inherits: its own comes first.
        """
        if self._parts is None:
            return None
        name, tracers, tracer, thread, measures, writer = self._parts
        self._parts = None
        self._claims = []
        if measures is not None and not self._is_first_to_see(event, measures.on):
            measures = None
        if tracer is not None and not self._is_first_to_see(event, tracers):
            tracer = None
        if tracer is None and measures is None:
            return None
        kind = TeamSpans if type(event) in TEAM_HANDLERS else RunSpans
        spans = kind(name, tracers, tracer, thread, measures, writer)
        if isinstance(spans, RunSpans) and self._introduction is not None:
            spans.take_introduction(self._introduction)
        return spans

    def _is_first_to_see(self, event: Event, target: object) -> bool:
        """Whether nobody else has seen this very event for that provider."""
        key = (event.run_id, id(target))
        other = _CLAIMS.get(key)
        if other is not None and other.event is event:
            return False
        _CLAIMS[key] = claim = _Claim(event)
        self._claims.append(claim)
        return True

    def _introduce(self, introduction: RunIntroduction) -> None:
        """What the run sends with every request."""
        self._introduction = introduction

    def _observer_of(self, kind: type[Event]) -> Callable[[Any], None] | None:
        """What makes spans of such events, where it needs no protection: nobody else's code runs in it."""
        spans = self._spans
        if type(spans) is RunSpans and spans.is_light and kind in RunSpans.HANDLERS:
            return MethodType(RunSpans.HANDLERS[kind], spans)
        return None

    def journal_note(self) -> str | None:
        """Where this run's trace is, for a later leg to link to."""
        return None if self._spans is None else self._spans.note

    def _has_nothing_to_flush(self) -> bool:
        """Whether there is nothing to wait for."""
        return self._spans is None or self._background.empty

    async def flush(self) -> None:
        """Wait a moment for the spans of this run to be ended."""
        if self._spans is not None:
            await self._background.drain()


_CLAIMS: WeakValueDictionary[tuple[str, int], _Claim] = WeakValueDictionary()
"""The first event of a run that a provider is told of, by the ids of both, for as long as somebody follows the run."""
_HANDLERS: dict[type[Event], Any] = {**RunSpans.HANDLERS, **TEAM_HANDLERS}
_EVENTS: tuple[type[Event], ...] = tuple(_HANDLERS)


def _set_providers(
    tracers: TracerProvider | None, meters: MeterProvider | None
) -> tuple[TracerProvider | None, MeterProvider | None]:
    """The providers in use; None where there is only the API's own, which records nothing."""
    if tracers is None:
        found = trace.get_tracer_provider()
        tracers = None if isinstance(found, trace.ProxyTracerProvider) else found
    if isinstance(tracers, trace.NoOpTracerProvider):
        tracers = None
    if meters is None:
        measured = metrics.get_meter_provider()
        idle = isinstance(measured, metrics.NoOpMeterProvider) or type(measured).__name__ == "_ProxyMeterProvider"
        meters = None if idle else measured
    return tracers, meters
