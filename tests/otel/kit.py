"""A provider that keeps its spans in memory, and what tests ask of them."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from glidepath.otel import OpenTelemetry


class Recorded:
    """A tracer provider and a meter provider in memory, and the plugin that uses them."""

    def __init__(self, *, light=True, measured=False, batch=False, **settings):
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        processor = BatchSpanProcessor if batch else SimpleSpanProcessor
        self.tracers.add_span_processor(processor(self.exporter))
        if not light:
            self.tracers.add_span_processor(SpanProcessor())  # one that might look at starts: only the SDK's spans do
        self.reader = InMemoryMetricReader()
        meters = MeterProvider([self.reader]) if measured else None
        self.plugin = OpenTelemetry(tracer_provider=self.tracers, meter_provider=meters, **settings)

    @property
    def spans(self):
        self.wait()
        self.tracers.force_flush()
        return self.exporter.get_finished_spans()

    def wait(self):
        """Until the plugin's thread has done its work: a run itself waits for a tenth of a second only."""
        done = threading.Event()
        self.plugin._background.put(done.set)
        assert done.wait(30)

    def end(self):
        """No more spans: the exporter has them all, and the processor's thread is gone."""
        self.wait()
        self.tracers.shutdown()

    def named(self, start):
        return [span for span in self.spans if span.name.startswith(start)]

    def metrics(self):
        self.wait()
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: {tuple(sorted(point.attributes.items())): point for point in metric.data.data_points}
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


class Receiver:
    """An OTLP receiver on HTTP: decodes what a real exporter sends."""

    def __init__(self):
        self.scopes = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                request = ExportTraceServiceRequest.FromString(body)
                outer.scopes += [scope for resource in request.resource_spans for scope in resource.scope_spans]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def spans(self):
        return [span for scope in self.scopes for span in scope.spans]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def tokens(spans):
    """Input and output tokens, and picodollars, over all spans: what a dashboard would add up."""
    attributes = [span.attributes or {} for span in spans]
    return tuple(
        sum(found.get(name, 0) for found in attributes)
        for name in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "glidepath.cost.picodollars")
    )
