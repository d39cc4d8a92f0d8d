"""Setting up the SDK from the usual OTEL_* variables, for the command line: `--otel`."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from opentelemetry import metrics, trace

from glidepath.errors import ConfigurationError

__all__ = ["set_up_sdk"]

_MISSING = (
    "--otel needs the OpenTelemetry SDK and an exporter: "
    "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
)
FAREWELL = 2.0  # seconds that the end of the process waits for the collector


def set_up_sdk() -> None:
    """Set the providers, unless the application has set its own; raises `ConfigurationError` when the SDK is missing.

    `OTEL_TRACES_EXPORTER` and `OTEL_METRICS_EXPORTER` are `otlp` (default, over HTTP), `console` or `none`. Endpoint,
    headers, service name and batch sizes are read by the SDK itself.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigurationError(_MISSING) from None
    resource = Resource.create({} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "glidepath"})
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = _exporter("OTEL_TRACES_EXPORTER", "trace_exporter", "OTLPSpanExporter", "ConsoleSpanExporter")
    if exporter is not None:
        tracers.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(tracers)
    reader = _reader()
    meters = MeterProvider([] if reader is None else [reader], resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(meters)
    atexit.register(_leave, tracers, meters)


def _exporter(variable: str, module: str, otlp: str, console: str) -> Any:
    chosen = os.environ.get(variable, "otlp").strip().lower()
    if chosen == "none":
        return None
    from importlib import import_module

    try:
        if chosen == "console":
            kind = "trace" if module == "trace_exporter" else "metrics"
            return getattr(import_module(f"opentelemetry.sdk.{kind}.export"), console)()
        if chosen == "otlp":
            return getattr(import_module(f"opentelemetry.exporter.otlp.proto.http.{module}"), otlp)()
    except ImportError:
        raise ConfigurationError(_MISSING) from None
    raise ConfigurationError(f"{variable} must be otlp, console or none, not {chosen!r:.80}")


def _reader() -> Any:
    exporter = _exporter("OTEL_METRICS_EXPORTER", "metric_exporter", "OTLPMetricExporter", "ConsoleMetricExporter")
    if exporter is None:
        return None
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(exporter)


def _leave(*providers: Any) -> None:
    """Send what is left; a collector that does not answer gets two seconds, and the process ends."""

    def go() -> None:
        for provider in providers:
            provider.shutdown()

    thread = threading.Thread(target=go, name="glidepath-otel-farewell", daemon=True)
    thread.start()
    thread.join(FAREWELL)
