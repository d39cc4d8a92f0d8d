"""Setting up the SDK from the usual OTEL_* variables, for the command line: `--otel`."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from opentelemetry import metrics, trace

from glidepath.values import ConfigurationError

__all__ = ["set_up_sdk"]

_MISSING = (
    "--otel needs the OpenTelemetry SDK and an exporter: "
    "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-"
)
FAREWELL = 2.0  # seconds that the end of the process waits for the collector


def set_up_sdk() -> None:
    """Set the providers, unless the application has set its own; raises `ConfigurationError` when the SDK is missing.

    `OTEL_TRACES_EXPORTER` and `OTEL_METRICS_EXPORTER` are `otlp` (default), `console` or `none`, and
    `OTEL_EXPORTER_OTLP_PROTOCOL` is `http/protobuf` (default) or `grpc`. Endpoint, headers, service name and batch
    sizes are read by the SDK itself; a value that it refuses is a `ConfigurationError`, too.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        tracers, meters = _providers()
    except ImportError:
        raise ConfigurationError(f"{_MISSING}{_protocol('TRACES')}") from None
    except ValueError as error:
        raise ConfigurationError(f"the OpenTelemetry SDK refuses an OTEL_* variable: {error}") from None
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(meters)
    atexit.register(_Farewell(tracers, meters).shut_down)


def _providers() -> tuple[Any, Any]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):  # nobody says
        resource = resource.merge(Resource({"service.name": "glidepath"}))
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = _exporter("TRACES", "trace_exporter", "OTLPSpanExporter", "ConsoleSpanExporter")
    if exporter is not None:
        tracers.add_span_processor(BatchSpanProcessor(exporter))
    reader = _reader()
    return tracers, MeterProvider([] if reader is None else [reader], resource=resource, shutdown_on_exit=False)


def _exporter(signal: str, module: str, otlp: str, console: str) -> Any:
    variable = f"OTEL_{signal}_EXPORTER"
    chosen = _read_variable(variable) or "otlp"
    if chosen == "none":
        return None
    from importlib import import_module

    if chosen == "console":
        kind = "trace" if module == "trace_exporter" else "metrics"
        return getattr(import_module(f"opentelemetry.sdk.{kind}.export"), console)()
    if chosen == "otlp":
        return getattr(import_module(f"opentelemetry.exporter.otlp.proto.{_protocol(signal)}.{module}"), otlp)()
    raise ConfigurationError(f"{variable} must be otlp, console or none, not {chosen!r:.80}")


def _protocol(signal: str) -> str:
    """Which of the two exporters speaks the protocol that is asked for."""
    asked = (
        _read_variable(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL")
        or _read_variable("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if asked not in ("grpc", "http/protobuf"):
        raise ConfigurationError(f"OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or grpc, not {asked!r:.80}")
    return asked.partition("/")[0]


def _read_variable(variable: str) -> str:
    return os.environ.get(variable, "").strip().lower()


def _reader() -> Any:
    exporter = _exporter("METRICS", "metric_exporter", "OTLPMetricExporter", "ConsoleMetricExporter")
    if exporter is None:
        return None
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(exporter)


class _Farewell:
    """Sends what is left when the process ends; a collector that does not answer gets two seconds.

    Its thread waits from the start: from Python 3.12 on none can be started once the interpreter shuts down.
    """

    def __init__(self, *providers: Any) -> None:
        self._providers, self._now = providers, threading.Event()
        self._thread = threading.Thread(target=self._shut_down_when_told, name="glidepath-otel-farewell", daemon=True)
        self._thread.start()

    def _shut_down_when_told(self) -> None:
        self._now.wait()
        for provider in self._providers:
            provider.shutdown()

    def shut_down(self) -> None:
        self._now.set()
        self._thread.join(FAREWELL)
