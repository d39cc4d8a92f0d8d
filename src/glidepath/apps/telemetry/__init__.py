"""OpenTelemetry: spans and metrics of runs and teams, made from their events.

`OpenTelemetry()` is a plugin. It needs the extra `otel`, which is `opentelemetry-api` alone. The application's provider
decides where the data goes. Without a provider the plugin asks for no events, and a run costs what it costs without it.
"""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.values import install_line

try:
    import opentelemetry.trace  # noqa: F401 - only looked for
except ImportError as error:
    raise ImportError(f"glidepath.otel needs opentelemetry-api: {install_line('otel')}", name=error.name) from None

from glidepath.apps.telemetry.fleet_gauges import watch_fleet
from glidepath.apps.telemetry.telemetry_plugin import OpenTelemetry

__all__ = ["OpenTelemetry", "watch_fleet"]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.apps.telemetry.background import Background as Background
    from glidepath.apps.telemetry.light_span import LightSpan as LightSpan
    from glidepath.apps.telemetry.measures import Measures as Measures, instruments_of as instruments_of
    from glidepath.apps.telemetry.run_spans import RunSpans as RunSpans
    from glidepath.apps.telemetry.vocabulary import CONTENT_SWITCH as CONTENT_SWITCH, OPT_IN as OPT_IN

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        background=("Background",),
        light_span=("LightSpan",),
        measures=("Measures", "instruments_of"),
        run_spans=("RunSpans",),
        vocabulary=("CONTENT_SWITCH", "OPT_IN"),
    )
