"""Metrics: the standard ones in two vocabularies, and those of budgets, landings and guards. No ids as labels."""

import asyncio
import gc
import os
import threading
import weakref
from dataclasses import dataclass

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from glidepath import Agent, Limits, Plugin, __version__, approve, tool
from glidepath.apps.telemetry import OPT_IN, Measures, instruments_of
from glidepath.events import RunEnded, RunStarted
from glidepath.messages import Usage
from glidepath.otel import OpenTelemetry
from glidepath.sessions import MemoryStore
from glidepath.spi import Ask
from glidepath.testing import ScriptedModel, call, say
from glidepath.values import replace

from .kit import Recorded


@tool
async def look(what: str) -> str:
    """Look."""
    return what


def fly(recorded, script, limits=None, **settings):
    limits = limits or Limits(max_iterations=9, max_tokens=100_000, max_cost="1")
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script, price=("1", "2"))
    agent = Agent(model=model, tools=[look], plugins=[recorded.plugin], limits=limits, **settings)
    return agent.run_sync("Look at it.")


def total(points):
    return sum(getattr(point, "value", getattr(point, "sum", 0)) for point in points.values())


def test_the_standard_metrics_say_what_the_ledger_says():
    recorded = Recorded(measured=True)
    result = fly(recorded, [call("look", what="tea"), say("done")])
    metrics = recorded.metrics()
    assert total(metrics["gen_ai.client.token.usage"]) == result.usage.total
    assert sum(point.count for point in metrics["gen_ai.client.operation.duration"].values()) == 2
    assert sum(point.count for point in metrics["gen_ai.execute_tool.duration"].values()) == 1
    assert total(metrics["glidepath.runs"]) == 1
    assert total(metrics["glidepath.overshoot"]) == 0
    assert total(metrics["glidepath.cost"]) == pytest.approx(float(result.cost))


def test_the_next_vocabulary_can_be_asked_for(monkeypatch):
    monkeypatch.setenv(OPT_IN, "http, gen_ai_latest_experimental")
    recorded = Recorded(measured=True)
    result = fly(recorded, [say("done")])
    metrics = recorded.metrics()
    assert total(metrics["gen_ai.client.inference.usage.input_tokens"]) == result.usage.input
    assert total(metrics["gen_ai.client.inference.usage.output_tokens"]) == result.usage.output
    assert "gen_ai.client.inference.duration" in metrics
    assert "gen_ai.client.token.usage" not in metrics


def test_no_label_names_a_run_or_a_session():
    recorded = Recorded(measured=True)
    result = fly(recorded, [call("look", what="tea"), say("done")])
    labels = str([list(points) for points in recorded.metrics().values()])
    assert result.run_id not in labels
    assert result.session_id not in labels


def test_gauges_show_what_flies_and_nothing_afterwards():
    recorded = Recorded(measured=True)
    shown = {}

    @tool
    async def measure() -> str:
        """Read the gauges in flight."""
        shown.update(recorded.metrics())
        return "read"

    model = ScriptedModel([call("measure"), say("done")], price=("1", "2"))
    agent = Agent(model=model, tools=[measure], plugins=[recorded.plugin], limits=Limits(max_tokens=50_000))
    agent.run_sync("Read them.")
    key = (("dimension", "tokens"), ("gen_ai.agent.name", "agent"))
    assert shown["glidepath.budget.limit"][key].value == 50_000
    assert shown["glidepath.budget.used"][key].value > 0
    after = recorded.metrics()
    for name in ("used", "reserved", "limit"):
        assert after[f"glidepath.budget.{name}"][key].value == 0


def test_a_landing_and_a_guard_are_counted():
    recorded = Recorded(measured=True)

    def eager(request):
        return call("look", what="the same") if request.tools else say("That is all.")

    fly(recorded, ScriptedModel(price=("1", "2")).forever(eager), Limits(max_iterations=30, max_tokens=60_000))
    metrics = recorded.metrics()
    assert total(metrics["glidepath.guard.trips"]) >= 1
    runs = metrics["glidepath.runs"]
    assert {dict(labels)["glidepath.outcome"] for labels in runs} != {"done"}


class Careful(Plugin):
    """Every call needs a person."""

    name = "careful"

    def before_tool_call(self, context):
        return Ask("look first")


def test_calls_that_wait_for_a_person_are_shown_until_they_are_decided():
    recorded, store = Recorded(measured=True), MemoryStore()

    def one(script):
        plugins = [Careful(), recorded.plugin]
        limits = Limits(max_iterations=9)
        return Agent(model=ScriptedModel(script), tools=[look], plugins=plugins, store=store, limits=limits)

    async def go():
        paused = await one([call("look", what="tea")]).run("Look.", session="s1")
        waiting = total(recorded.metrics()["glidepath.approvals.pending"])
        await one([say("Looked.")]).resume("s1", decisions={paused.pending[0].call.id: approve()})
        return waiting, total(recorded.metrics()["glidepath.approvals.pending"])

    assert asyncio.run(go()) == (1, 0)


def test_what_children_use_counts_against_the_limit_that_must_hold():
    recorded = Recorded(measured=True)
    ended = RunEnded("run_1", None, 9, 1.0, replace(fly(Recorded(), [say("done")]), usage=Usage(input=900, output=150)))
    background = recorded.plugin._background
    measures = Measures(instruments_of(recorded.plugin._providers[1], background, latest=False), background)
    measures.on_run_started(RunStarted("run_1", None, 1, 0.0, "s", "agent", "m", limits={"tokens": 1_000}))
    measures.on_run_ended(ended)
    assert total(recorded.metrics()["glidepath.overshoot"]) == 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_shows_none_of_its_parents_runs():
    recorded = Recorded(measured=True)
    meters, background = recorded.plugin._providers[1], recorded.plugin._background
    totals = instruments_of(meters, background, latest=False).totals
    totals.add(totals.used, "agent", "tokens", 7)
    totals.process -= 1  # as it is after a fork
    assert instruments_of(meters, background, latest=False).totals is totals
    assert totals.used == {}


def test_a_meter_provider_that_cannot_be_hashed_is_used_and_forgotten():
    """As Logfire's, which is a dataclass."""

    @dataclass
    class Unhashable:
        inner: MeterProvider

        def get_meter(self, *about):
            return self.inner.get_meter(*about)

    reader = InMemoryMetricReader()
    provider = Unhashable(MeterProvider([reader]))
    for _ in range(2):
        plugin = OpenTelemetry(meter_provider=provider)
        Agent(model=ScriptedModel([say("hi")]), limits=Limits(max_iterations=2), plugins=[plugin]).run_sync("x")
    done = threading.Event()
    plugin._background.put(done.set)
    assert done.wait(30)
    scope = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].scope
    assert (scope.name, scope.version) == ("glidepath", __version__)
    gone = weakref.ref(provider)
    del provider, plugin
    gc.collect()
    assert gone() is None
