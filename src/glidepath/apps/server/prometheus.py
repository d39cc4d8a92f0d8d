"""`/metrics`: the numbers that OpenTelemetry gets, from the same place, as Prometheus reads them.

The instruments of `glidepath.apps.telemetry.measures` write into meters of ours, so that nothing is counted twice.
Without the extra `otel` only the server's own figures are there.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_BAD = re.compile(r"[^a-zA-Z0-9_]")
_UNITS = {"s": "_seconds", "USD": "_usd"}
Labels = tuple[tuple[str, str], ...]


def _name(name: str) -> str:
    return _BAD.sub("_", name)


def _labels(attributes: Mapping[str, Any] | None) -> Labels:
    return tuple(sorted((_name(key), str(value)) for key, value in (attributes or {}).items()))


def _format_labels(labels: Labels, *more: tuple[str, str]) -> str:
    pairs = [f'{key}="{_escape(value)}"' for key, value in (*labels, *more)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))  # noqa: PLR2004


class PrometheusCounter:
    """A sum that only grows."""

    def __init__(self, name: str, unit: str, description: str) -> None:
        self.name = f"{_name(name)}{_UNITS.get(unit, '')}_total"
        self.description = description
        self.values: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def add(self, amount: float, attributes: Mapping[str, Any] | None = None) -> None:
        """Add to it."""
        key = _labels(attributes)
        with self._lock:
            self.values[key] = self.values.get(key, 0) + amount

    def lines(self) -> Iterable[str]:
        """The samples in Prometheus's text format."""
        yield f"# HELP {self.name} {self.description}"
        yield f"# TYPE {self.name} counter"
        with self._lock:
            found = list(self.values.items())
        for labels, value in found:
            yield f"{self.name}{_format_labels(labels)} {_number(value)}"


class PrometheusHistogram:
    """How often a value was at most this."""

    def __init__(self, name: str, unit: str, description: str, buckets: Sequence[float]) -> None:
        self.name = f"{_name(name)}{_UNITS.get(unit, '')}"
        self.description = description
        self.buckets = list(buckets)
        self.values: dict[Labels, tuple[list[int], float]] = {}
        self._lock = threading.Lock()

    def record(self, amount: float, attributes: Mapping[str, Any] | None = None) -> None:
        """Count one."""
        key = _labels(attributes)
        with self._lock:
            counts, total = self.values.get(key) or ([0] * (len(self.buckets) + 1), 0.0)
            counts[bisect_left(self.buckets, amount)] += 1
            self.values[key] = (counts, total + amount)

    def lines(self) -> Iterable[str]:
        """The samples in Prometheus's text format."""
        yield f"# HELP {self.name} {self.description}"
        yield f"# TYPE {self.name} histogram"
        with self._lock:
            found = [(labels, list(counts), total) for labels, (counts, total) in self.values.items()]
        for labels, counts, total in found:
            seen = 0
            for bound, count in zip(self.buckets, counts, strict=False):
                seen += count
                yield f"{self.name}_bucket{_format_labels(labels, ('le', _number(bound)))} {seen}"
            yield f"{self.name}_bucket{_format_labels(labels, ('le', '+Inf'))} {sum(counts)}"
            yield f"{self.name}_sum{_format_labels(labels)} {_number(total)}"
            yield f"{self.name}_count{_format_labels(labels)} {sum(counts)}"


class PrometheusGauge:
    """A value that is read on request."""

    def __init__(self, name: str, unit: str, description: str, asked: Sequence[Callable[..., Any]]) -> None:
        self.name = f"{_name(name)}{_UNITS.get(unit, '')}"
        self.description = description
        self._asked = list(asked)

    def lines(self) -> Iterable[str]:
        """The samples in Prometheus's text format."""
        yield f"# HELP {self.name} {self.description}"
        yield f"# TYPE {self.name} gauge"
        for ask in self._asked:
            for one in ask(None):
                yield f"{self.name}{_format_labels(_labels(one.attributes))} {_number(one.value)}"


class PrometheusMeters:
    """What OpenTelemetry calls a meter: keeps every instrument to be read."""

    def __init__(self) -> None:
        self.instruments: dict[str, Any] = {}

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        """A counter, made once."""
        return self._get_or_make(name, lambda: PrometheusCounter(name, unit, description))

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float] = (),
    ) -> Any:
        """A histogram, made once."""
        return self._get_or_make(
            name, lambda: PrometheusHistogram(name, unit, description, explicit_bucket_boundaries_advisory)
        )

    def create_observable_gauge(
        self, name: str, callbacks: Sequence[Callable[..., Any]] = (), unit: str = "", description: str = ""
    ) -> Any:
        """A gauge, made once."""
        return self._get_or_make(name, lambda: PrometheusGauge(name, unit, description, callbacks))

    def _get_or_make(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.instruments:
            self.instruments[name] = make()
        return self.instruments[name]

    def lines(self) -> Iterable[str]:
        """Everything, as Prometheus reads it."""
        for instrument in list(self.instruments.values()):
            yield from instrument.lines()


def metrics_plugin(meters: PrometheusMeters) -> Any:
    """The observer that fills these meters; None without the extra `otel`."""
    try:
        from opentelemetry.metrics import MeterProvider
        from opentelemetry.trace import NoOpTracerProvider

        from glidepath.apps.telemetry import OpenTelemetry
    except ImportError:
        return None

    class ServeMetrics(OpenTelemetry):
        """Measures runs for `/metrics`, whatever telemetry the agents have beside it."""

        name = "serve_metrics"

        async def settle(self) -> None:
            """Wait a moment until everything is counted that has ended."""
            await self._background.drain()

    class KeptMeters(MeterProvider):
        """Gives out one meter, which keeps everything to be read."""

        def get_meter(self, *_: Any, **__: Any) -> Any:
            """These meters, by duck typing."""
            return meters

    return ServeMetrics(content=False, tracer_provider=NoOpTracerProvider(), meter_provider=KeptMeters())


def render_page(figures: Mapping[str, tuple[str, str, float]], meters: PrometheusMeters | None) -> bytes:
    """The page: `figures` are the server's own, by name: kind, description, value."""
    lines = []
    for name, (kind, description, value) in figures.items():
        lines += [f"# HELP {name} {description}", f"# TYPE {name} {kind}", f"{name} {_number(value)}"]
    if meters is None:
        lines.append("# For the figures of runs, install the extra otel beside serve.")
    else:
        lines += list(meters.lines())
    return ("\n".join(lines) + "\n").encode()
