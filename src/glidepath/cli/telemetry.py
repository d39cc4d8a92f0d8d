"""OpenTelemetry for the command line."""

from __future__ import annotations

from typing import Any

from glidepath.cli.layers import LoadedSettings
from glidepath.errors import ConfigurationError, install_line


def telemetry(settings: LoadedSettings) -> Any:
    """Set up the OpenTelemetry SDK and return the plugin."""
    try:
        from glidepath.otel import OpenTelemetry
        from glidepath.otel.sdk import set_up_sdk
    except ImportError:
        raise ConfigurationError(
            "--otel needs the extra otel and the OpenTelemetry SDK: "
            + install_line("otel", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
        ) from None
    set_up_sdk()
    chosen = settings.said("telemetry.content")  # else the environment decides
    return OpenTelemetry(content=settings.get("telemetry.content") if chosen else None)
