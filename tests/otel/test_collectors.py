"""A collector that is dead, silent, slow or raises changes no run: the same events, the same result, the same time."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult

from glidepath import Agent, Limits, tool
from glidepath.apps.telemetry import Background
from glidepath.otel import OpenTelemetry
from glidepath.testing import EventRecorder, ScriptedModel, call, say

from .kit import Receiver

STEPS = 4
PAUSE = 0.25


@tool
async def wait(step: int) -> str:
    """Take a moment."""
    await asyncio.sleep(PAUSE)
    return f"step {step}"


def flight(*plugins):
    events = EventRecorder()
    script = [*[call("wait", step=number) for number in range(STEPS)], say("done")]
    agent = Agent(model=ScriptedModel(script), tools=[wait], plugins=plugins, event_sink=events, limits=LIMITS)
    before = time.monotonic()
    result = agent.run_sync("Go.")
    return [type(event).__name__ for event in events.events], result, time.monotonic() - before


LIMITS = Limits(max_iterations=9)


@contextlib.contextmanager
def silent_port():
    """Takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(50)
        yield server.getsockname()[1]


@contextlib.contextmanager
def closed_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    yield port


def settled(plugin):
    """Wait until the plugin's thread has nothing to do."""
    until = time.monotonic() + 20
    while (plugin._background._jobs or plugin._background._busy_since is not None) and time.monotonic() < until:
        time.sleep(0.02)


@pytest.mark.parametrize("processor", [BatchSpanProcessor, SimpleSpanProcessor], ids=["batch", "simple"])
@pytest.mark.parametrize("place", [closed_port, silent_port], ids=["closed", "silent"])
def test_a_dead_collector_changes_nothing(processor, place):
    plain, expected, plain_time = flight()
    with place() as port:
        provider = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}/v1/traces", timeout=2)
        provider.add_span_processor(processor(exporter))
        plugin = OpenTelemetry(provider)
        try:
            events, result, taken = flight(plugin)
        finally:  # no thread of this test is left to wait, or to roll dice, in another one
            exporter.shutdown()
            provider.shutdown()
            settled(plugin)
    assert events == plain
    assert (result.outcome, result.text, result.usage) == (expected.outcome, expected.text, expected.usage)
    assert taken < plain_time * 1.05 + 0.15  # what waits at the end waits at most a tenth of a second


class Awkward(SpanExporter):
    def __init__(self, error):
        self.error = error

    def export(self, spans):
        raise self.error

    def shutdown(self):
        pass


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), SystemExit(3), KeyboardInterrupt()], ids=["error", "exit", "key"]
)
def test_an_exporter_that_raises_is_nobodys_business(error):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Awkward(error)))
    _, result, _ = flight(OpenTelemetry(provider))
    assert result.text == "done"


class Slow(SpanExporter):
    """Half a second a span."""

    def __init__(self):
        self.seen = []
        self.free = threading.Event()

    def export(self, spans):
        self.free.wait(0.5)
        self.seen += spans
        return SpanExportResult.SUCCESS

    def shutdown(self):
        pass


def test_what_a_slow_exporter_has_not_seen_at_the_end_reaches_it_later():
    provider, slow = TracerProvider(shutdown_on_exit=False), Slow()
    provider.add_span_processor(SimpleSpanProcessor(slow))
    script = [say("done")]
    agent = Agent(model=ScriptedModel(script), plugins=[OpenTelemetry(provider)], limits=LIMITS)
    before = time.monotonic()
    agent.run_sync("Go.")
    assert time.monotonic() - before < 0.4
    slow.free.set()
    until = time.monotonic() + 10
    while len(slow.seen) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert [span.name for span in slow.seen] == ["chat scripted", "invoke_agent agent"]


def test_a_queue_that_is_full_drops_and_counts(monkeypatch):
    monkeypatch.setattr("glidepath.apps.telemetry.background.ROOM", 3)
    background, gate, done = Background(), threading.Event(), []
    background.put(gate.wait)
    until = time.monotonic() + 10
    while background._busy_since is None and time.monotonic() < until:
        time.sleep(0.01)
    for number in range(5):
        background.put(lambda number=number: done.append(number))
    assert background.dropped == 2
    gate.set()
    assert asyncio.run(background.drain(10))
    assert done == [0, 1, 2]


def test_the_thread_leaves_when_it_has_nothing_to_do(monkeypatch):
    monkeypatch.setattr("glidepath.apps.telemetry.background.IDLE", 0.05)
    background = Background()
    background.put(lambda: None)
    thread = background._thread
    thread.join(10)
    assert not thread.is_alive()
    done = threading.Event()
    background.put(done.set)  # and comes back
    assert done.wait(10)


def test_a_thread_that_cannot_start_is_tried_again(monkeypatch):
    background, done = Background(), threading.Event()

    def refused(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", refused)
        background.put(lambda: None)
        assert not asyncio.run(background.drain(0.01))
    background.put(done.set)
    assert done.wait(10)


def test_a_real_exporter_delivers_the_spans_of_a_run():
    odd = "te\ud800a \U0001f375 " * 2_000
    with Receiver() as receiver:
        provider = TracerProvider(shutdown_on_exit=False)
        endpoint = f"http://127.0.0.1:{receiver.server.server_port}/v1/traces"
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        plugin = OpenTelemetry(tracer_provider=provider, content=True)
        script = [call("wait", step=1), say(odd)]
        agent = Agent(model=ScriptedModel(script), tools=[wait], plugins=[plugin], limits=LIMITS)
        result = agent.run_sync("Tea, please.")
        provider.shutdown()
    names = [span.name for span in receiver.spans]
    assert sorted(names) == ["chat scripted", "chat scripted", "execute_tool wait", "invoke_agent agent"]
    figures = {
        attribute.key: attribute.value.int_value
        for span in receiver.spans
        for attribute in span.attributes
        if attribute.key == "glidepath.usage.input_tokens"
    }
    assert figures == {"glidepath.usage.input_tokens": result.usage.input}


AT_THE_END = """
import time
from glidepath import Agent, Limits
from glidepath.otel import OpenTelemetry
from glidepath.testing import ScriptedModel, say
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

class Printing(SpanExporter):
    def export(self, spans):
        for span in spans:
            print(span.name, flush=True)
        return SpanExportResult.SUCCESS

def slow(text):
    time.sleep(0.2)
    return text

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Printing()))
plugin = OpenTelemetry(tracer_provider=provider, content=CONTENT, redact=slow)
Agent(model=ScriptedModel([say("done")]), plugins=[plugin], limits=Limits(max_iterations=3)).run_sync("Go.")
"""


@pytest.mark.process
@pytest.mark.parametrize("content", [False, True], ids=["bare", "slow redaction"])
def test_what_was_kept_before_the_process_ends_is_exported(tmp_path, content):
    program = AT_THE_END.replace("CONTENT", str(content))
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["chat scripted", "invoke_agent agent"]


class Refusing:
    """A provider that gives nothing out."""

    def get_tracer(self, *_):
        raise ValueError("no")

    get_meter = get_tracer


def test_a_provider_that_raises_is_nobodys_business(caplog):
    for settings in ({"tracer_provider": Refusing()}, {"meter_provider": Refusing()}):
        plugins = [OpenTelemetry(**settings)]
        model = ScriptedModel([say("fine")])
        assert Agent(model=model, plugins=plugins, limits=Limits(max_iterations=3)).run_sync("Hi.").text == "fine"
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "there are no spans",
        "there are no metrics",
    ]
