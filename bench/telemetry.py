"""What OpenTelemetry costs a turn: the same turn without the plugin, with it and no provider, and with a provider.

The provider has a batch processor whose exporter drops what it gets: exporting costs what the exporter costs. Spans are
complete when the processor gets them, so nothing is left undone that a real exporter would make up for (`read` has one
that reads every span). Cells take turns within a round, as in run.py, and the best round of one is compared with the
best round of the other. CPU time is that of the whole process, the threads of the SDK included.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from run import PROMPT, Cell, lookup_agent, measure_turns, row, table

from glidepath.otel import OpenTelemetry

BARS = {"idle": 1.05, "traced": 1.6, "idle_run": 1.05, "traced_run": 1.6}
FIELDS = (
    "name", "context", "parent", "kind", "start_time", "end_time", "status", "events", "links", "resource",
    "instrumentation_scope", "dropped_attributes", "dropped_events", "dropped_links",
)  # fmt: skip
PLAIN = ("plain", "idle", "traced")  # those that are flown through run(), too


class Nowhere(SpanExporter):
    """Takes every span and keeps none."""

    def export(self, spans):
        return SpanExportResult.SUCCESS

    def shutdown(self):
        pass


class Reader(Nowhere):
    """Reads whatever an exporter sends."""

    def export(self, spans):
        for span in spans:
            for name in FIELDS:
                getattr(span, name)
            dict(span.attributes)
        return SpanExportResult.SUCCESS


def provider(exporter: SpanExporter) -> TracerProvider:
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(exporter))
    return tracers


def cells() -> dict[str, Cell]:
    """Turns without the plugin, idle, with spans, with metrics, too, with spans that are read, with the SDK's own."""
    tracers, heavy = provider(Nowhere()), provider(Nowhere())
    heavy.add_span_processor(SpanProcessor())  # it might look at starts: only the SDK's own spans will do
    meters = MeterProvider([InMemoryMetricReader()])
    make = lookup_agent()
    subjects = {
        "plain": make(),
        "idle": make(plugins=[OpenTelemetry()]),
        "traced": make(plugins=[OpenTelemetry(tracer_provider=tracers)]),
        "measured": make(plugins=[OpenTelemetry(tracer_provider=tracers, meter_provider=meters)]),
        "read": make(plugins=[OpenTelemetry(tracer_provider=provider(Reader()))]),
        "sdk_spans": make(plugins=[OpenTelemetry(tracer_provider=heavy)]),
    }
    found: dict[str, Cell] = {}
    for name, subject in subjects.items():
        found[name] = _streamed(subject)
        if name in PLAIN:
            found[f"{name}_run"] = _plain(subject)
    return found


def _streamed(subject) -> Cell:
    async def cell() -> None:
        async with subject.stream(PROMPT) as stream:
            async for _ in stream:
                pass

    return cell


def _plain(subject) -> Cell:
    async def cell() -> None:
        await subject.run(PROMPT)

    return cell


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turns", type=int, default=1_000)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    options = parser.parse_args()
    samples = asyncio.run(measure_turns(cells(), options.rounds, options.turns, listening=False))
    rows = {}
    for name, values in samples.items():
        base = min(samples["plain_run" if name.endswith("_run") else "plain"])
        rows[name] = row(min(values) / base, BARS.get(name), best_us=min(values), all_us=values)
    print(table(rows))
    if options.out:
        figures = {"python": sys.version.split()[0], "rounds": options.rounds, "turns": options.turns, "cells": rows}
        options.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 1 if options.check and any(cell["ok"] is False for cell in rows.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
