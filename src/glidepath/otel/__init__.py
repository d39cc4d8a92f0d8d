"""OpenTelemetry: spans and metrics of runs and teams, made from their events.

`OpenTelemetry()` is a plugin. It needs the extra `otel`, which is `opentelemetry-api` alone; where the data goes is up to
the provider that the application has set. Without one it asks for no events, and a run costs what it costs without it.
"""

from glidepath.otel.plugin import OpenTelemetry

__all__ = ["OpenTelemetry"]
