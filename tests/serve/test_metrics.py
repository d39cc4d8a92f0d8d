"""/metrics shows what OpenTelemetry is told, number for number."""

import asyncio
import re

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from glidepath.apps.server import PrometheusMeters
from glidepath.apps.server.prometheus import _labels, _name
from glidepath.otel import OpenTelemetry
from glidepath.testing import call, say

from .deck import agent, events, serving, start

LINE = re.compile(r"([a-zA-Z0-9_]+)(?:\{(.*)\})? (\S+)\Z")
LABEL = re.compile(r'([a-zA-Z0-9_]+)="((?:[^"\\]|\\.)*)"')
SUFFIX = {"s": "_seconds", "USD": "_usd"}


def scraped(text):
    """Every sample by its name and labels."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = LINE.match(line).groups()
            found[name, tuple(sorted(LABEL.findall(labels or "")))] = float(value)
    return found


def exported(reader):
    """Every sample that OpenTelemetry would export, under Prometheus' names."""
    found = {}
    for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics:
        for metric in scope.metrics:
            name = f"{_name(metric.name)}{SUFFIX.get(metric.unit, '')}"
            for point in metric.data.data_points:
                labels = _labels(point.attributes)
                if hasattr(point, "bucket_counts"):
                    found[f"{name}_sum", labels] = point.sum
                    found[f"{name}_count", labels] = point.count
                    seen = 0
                    for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
                        seen += count
                        le = str(int(bound)) if float(bound).is_integer() else repr(float(bound))
                        found[f"{name}_bucket", tuple(sorted((*labels, ("le", le))))] = seen
                    found[f"{name}_bucket", tuple(sorted((*labels, ("le", "+Inf"))))] = point.count
                else:
                    counter = type(metric.data).__name__ == "Sum"
                    found[f"{name}_total" if counter else name, labels] = point.value
    return found


def test_metrics_has_every_number_that_opentelemetry_exports():
    async def main():
        reader = InMemoryMetricReader()
        told = OpenTelemetry(meter_provider=MeterProvider([reader]))
        child = agent(say("found"), name="scout")
        turns = (call("scout", task="look"), call("search", query="x"), call("pay", amount=1), say("ok"))
        flown = agent(*turns, plugins=[told], tools=[child.as_tool("scout", "Look"), *agent().config.tools])
        async with serving(flown) as client:
            await events(client, await start(client))
            await events(client, await start(client, limits={"max_iterations": 2}))
            await told._background.drain(5)
            page = scraped((await client.get("/metrics")).text)
        wanted = exported(reader)
        differing = {key: (value, page.get(key)) for key, value in wanted.items() if page.get(key) != value}
        differing = {key: pair for key, pair in differing.items() if "_seconds" not in key[0] or pair[1] is None}
        assert differing == {}
        assert page["glidepath_approvals_pending", ()] == 1
        assert sum(value for (name, _), value in page.items() if name == "glidepath_runs_total") == 3
        seconds = [key for key in wanted if key[0].endswith("_seconds_sum")]
        assert all(abs(wanted[key] - page[key]) < 0.05 for key in seconds)
        mine = {name for name, _ in page if not name.startswith("glidepath_serve_")}
        assert mine == {name for name, _ in wanted}

    asyncio.run(main())


def test_no_label_has_the_id_of_a_run():
    async def main():
        async with serving(agent()) as client:
            run_id = await start(client)
            await events(client, run_id)
            text = (await client.get("/metrics")).text
            assert run_id not in text
            assert client.hub.feeds[run_id].head.session_id not in text

    asyncio.run(main())


def test_names_labels_and_text_are_written_as_prometheus_reads_them():
    meters = PrometheusMeters()
    counter = meters.create_counter("a.b", "USD", "Money")
    counter.add(1, {"x.y": 'say "hi"\\\n'})
    counter.add(2, {"x.y": 'say "hi"\\\n'})
    assert list(meters.lines())[-1] == r'a_b_usd_total{x_y="say \"hi\"\\\n"} 3'
    assert meters.create_counter("a.b") is counter


def test_without_metrics_runs_are_not_measured_and_the_page_says_what_to_install():
    async def main():
        async with serving(agent(), metrics=False) as client:
            await events(client, await start(client))
            page = (await client.get("/metrics")).text
            assert "glidepath_serve_events_total" in page
            assert "glidepath_runs_total" not in page

    asyncio.run(main())
