"""Several plugins may follow one run: each provider is told of it once, and none gets in the way of another."""

import asyncio

import pytest
from opentelemetry import trace

from glidepath import Agent, Limits, tool
from glidepath.apps.server import PrometheusMeters, metrics_plugin
from glidepath.otel import OpenTelemetry
from glidepath.teams import Team
from glidepath.testing import ScriptedModel, call, say

from .kit import Recorded, tokens

FEW = Limits(max_iterations=6)


def beside(recorded):
    """Another plugin with the providers of this one."""
    tracers, meters = recorded.plugin._providers
    return OpenTelemetry(tracer_provider=tracers, meter_provider=meters)


def with_helper(recorded, plugins):
    helper = Agent(
        model=ScriptedModel().forever(say("Tea.")), agent_name="helper", limits=FEW, plugins=[beside(recorded)]
    )
    model = ScriptedModel([call("helper", task="Which?"), say("Tea it is.")])
    return Agent(model=model, tools=[helper.as_tool("helper", "Ask.")], plugins=plugins, limits=FEW)


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "simple"])
def test_a_child_that_has_a_plugin_of_its_own_is_counted_once(batch):
    recorded = Recorded(measured=True, batch=batch)
    result = with_helper(recorded, [recorded.plugin]).run_sync("Choose.")
    metrics = recorded.metrics()
    assert tokens(recorded.spans)[:2] == (result.usage.input, result.usage.output)
    assert sum(point.sum for point in metrics["gen_ai.client.token.usage"].values()) == result.usage.total
    assert sum(point.value for point in metrics["glidepath.runs"].values()) == 2
    (inner,), (used,) = recorded.named("invoke_agent helper"), recorded.named("execute_tool helper")
    assert inner.parent.span_id == used.context.span_id


def test_two_providers_are_both_told():
    mine, yours = Recorded(), Recorded()
    with_helper(mine, [yours.plugin]).run_sync("Choose.")
    assert [span.name for span in mine.named("invoke_agent")] == ["invoke_agent helper"]
    assert [span.name for span in yours.named("invoke_agent")] == ["invoke_agent helper", "invoke_agent agent"]


def test_a_member_that_has_a_plugin_of_its_own_works_in_a_team_that_has_one():
    recorded = Recorded(measured=True)
    model = ScriptedModel().forever(say("Done as asked."))
    member = Agent(model=model, agent_name="writer", limits=FEW, plugins=[beside(recorded)])
    result = asyncio.run(Team([member], name="crew", plugins=[recorded.plugin]).run("Write a line."))
    assert result.status.value == "completed"
    assert result.usage.total > 0
    assert tokens(recorded.spans)[:2] == (result.usage.input, result.usage.output)
    assert len(recorded.named("invoke_agent writer")) == len(recorded.named("invoke_workflow")) == 1


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_metrics_without_spans_leave_the_current_span_alone(first):
    recorded, meters, seen = Recorded(), PrometheusMeters(), []

    @tool
    async def look() -> str:
        """Look at the current span."""
        seen.append(trace.get_current_span())
        return "seen"

    plugins = [metrics_plugin(meters), recorded.plugin]
    model = ScriptedModel([call("look"), say("done")])
    Agent(model=model, tools=[look], plugins=plugins if first else plugins[::-1], limits=FEW).run_sync("Look.")
    (used,) = recorded.named("execute_tool")
    assert [span.get_span_context().span_id for span in seen] == [used.context.span_id]


def test_gauges_show_the_runs_of_every_plugin_that_a_meter_provider_has():
    recorded, shown = Recorded(measured=True), []

    @tool
    async def measure() -> str:
        """Read the gauges in flight."""
        shown.append({dict(labels)["gen_ai.agent.name"]: point.value for labels, point in limits(recorded).items()})
        return "read"

    for name, plugin in (("one", recorded.plugin), ("two", beside(recorded))):
        model = ScriptedModel([call("measure"), say("done")])
        limit = Limits(max_tokens=50_000)
        Agent(model=model, tools=[measure], plugins=[plugin], limits=limit, agent_name=name).run_sync("Read.")
    assert shown == [{"one": 50_000}, {"one": 0, "two": 50_000}]


def limits(recorded):
    return recorded.metrics()["glidepath.budget.limit"]
