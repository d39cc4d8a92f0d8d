"""W3C trace context is taken from the caller: a run belongs to the trace that its request names."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from glidepath.otel import OpenTelemetry
from glidepath.testing import say

from .deck import agent, events, serving, start

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def requested(**headers):
    """The span of a run that was started by a request with these headers."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))

    async def main():
        async with serving(agent(say("ok"), plugins=[OpenTelemetry(tracer_provider=provider)])) as client:
            client.headers.update(headers)
            await events(client, await start(client))
            assert not trace.get_current_span().get_span_context().is_valid

    asyncio.run(main())
    provider.shutdown()
    (run,) = [span for span in exporter.get_finished_spans() if span.name.startswith("invoke_agent")]
    return run


def test_a_run_belongs_to_the_trace_of_its_request():
    run = requested(traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="vendor=1")
    assert (f"{run.context.trace_id:032x}", f"{run.parent.span_id:016x}") == (TRACE, SPAN)
    assert run.parent.is_remote
    assert run.context.trace_state["vendor"] == "1"


@pytest.mark.parametrize("line", ["nonsense", f"00-{'0' * 32}-{SPAN}-01", ""], ids=["nonsense", "zeros", "empty"])
def test_a_request_that_names_no_trace_starts_one(line):
    assert requested(traceparent=line).parent is None
