"""OpenTelemetry: spans and metrics of runs and teams, made from their events."""

from glidepath.apps.telemetry import OpenTelemetry, watch_fleet

__all__ = ["OpenTelemetry", "watch_fleet"]
