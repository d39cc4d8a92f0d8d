"""A run watched by Logfire's own SDK, for an environment that has it: prints what arrived, as JSON."""

import json

import logfire
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from glidepath import Agent, Limits, tool
from glidepath.otel import OpenTelemetry
from glidepath.testing import ScriptedModel, call, say


@tool
async def price(item: str) -> str:
    """What something costs."""
    return f"{item}: 3 euros"


def main():
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    logfire.configure(
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        metrics=logfire.MetricsOptions(additional_readers=[reader]),
        additional_span_processors=[SimpleSpanProcessor(exporter)],
    )
    agent = Agent(
        model=ScriptedModel([call("price", item="tea"), say("Tea is 3 euros.")], price=("3", "15")),
        tools=[price],
        system_prompt="Be brief.",
        agent_name="buyer",
        plugins=[OpenTelemetry(content=True)],  # the global providers: those that Logfire has set
        limits=Limits(max_iterations=5),
    )
    with logfire.span("shop"):
        result = agent.run_sync("What is tea?")
    logfire.force_flush()
    metrics = {
        metric.name: len(metric.data.data_points)
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        if scope.scope.name == "glidepath"
        for metric in scope.metrics
    }
    spans = [
        {
            "name": span.name,
            "id": span.context.span_id,
            "parent": span.parent and span.parent.span_id,
            "attributes": dict(span.attributes),
        }
        for span in exporter.get_finished_spans()
        if span.attributes.get("logfire.span_type") != "pending_span"
    ]
    usage = {"input": result.usage.input, "output": result.usage.output}
    print(json.dumps({"spans": spans, "metrics": metrics, "usage": usage}, default=str))


if __name__ == "__main__":
    main()
