"""W3C trace context is handed to servers: a call's request says which trace it belongs to."""

import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from glidepath.otel import OpenTelemetry
from glidepath.testing import call, say

from .servers import ERAS, agent_with, fake, results

pytestmark = pytest.mark.process


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_is_told_which_trace_its_call_belongs_to(era):
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    server = fake(era=era, setup={"tools": ["meta"]})
    plugins = [OpenTelemetry(tracer_provider=provider)]
    result = await agent_with([call("meta"), say("ok")], server, plugins=plugins).run("go")
    provider.shutdown()
    (used,) = [span for span in exporter.get_finished_spans() if span.name == "execute_tool meta"]
    _, trace_id, span_id, flags = json.loads(results(result)[0].text)["traceparent"].split("-")
    assert (trace_id, flags[-1]) == (f"{used.context.trace_id:032x}", "3")
    assert span_id == f"{used.context.span_id:016x}"
