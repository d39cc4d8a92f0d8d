"""Light spans are what the SDK's would be, to whoever meets or gets one; anything unusual has the SDK's own."""

import asyncio
import threading
from contextlib import contextmanager

import pytest
from opentelemetry import context as contexts, trace
from opentelemetry.sdk.trace import ReadableSpan, Span as SdkSpan, SpanLimits, SpanProcessor, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from glidepath import Agent, Limits, tool
from glidepath.apps.telemetry import LightSpan, RunSpans
from glidepath.events import HookFailed, StreamStarted
from glidepath.otel import OpenTelemetry
from glidepath.testing import ScriptedModel, call, say

from .kit import Recorded


class Kept:
    """A provider whose spans are kept, and the spans that tools have met."""

    def __init__(self, *processors, **settings):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **settings)
        for one in processors or (BatchSpanProcessor(self.exporter),):
            self.provider.add_span_processor(one)
        self.met = []

    def fly(self, meet=lambda span: None, **settings):
        @tool
        async def look(what: str) -> str:
            """Look."""
            span = trace.get_current_span()
            self.met.append(span)
            meet(span)
            return what

        plugin = OpenTelemetry(tracer_provider=self.provider, **settings)
        model = ScriptedModel([call("look", what="tea"), say("done")], price=("1", "2"))
        agent = Agent(model=model, tools=[look], plugins=[plugin], limits=Limits(max_iterations=5))
        result = agent.run_sync("Look.")
        done = threading.Event()
        plugin._background.put(done.set)
        assert done.wait(30)
        return result

    @property
    def spans(self):
        self.provider.force_flush()
        return {span.name: span for span in self.exporter.get_finished_spans()}


@contextmanager
def batch(**settings):
    kept = Kept(**settings)
    try:
        yield kept
    finally:
        kept.provider.shutdown()


def shape(span):
    """Everything about a span but its ids and times."""
    return {
        "kind": span.kind,
        "status": (span.status.status_code, span.status.description),
        "attributes": {name: value for name, value in span.attributes.items() if not name.endswith(".id")},
        "events": [(event.name, dict(event.attributes)) for event in span.events],
        "links": [dict(link.attributes) for link in span.links],
        "scope": span.instrumentation_scope,
        "below": span.parent is not None,
        "flags": span.context.trace_flags,
        "state": span.context.trace_state,
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
    }


def say_much(span):
    span.set_attribute("mine", 7)
    span.set_attributes({"yours": (1, 2), "gen_ai.tool.name": "another"})
    span.add_event("noted", {"a": 1}, 5)
    span.add_link(span.get_span_context(), {"b": 2})
    span.set_status(Status(StatusCode.ERROR, "not so good"))
    span.set_status(StatusCode.OK)
    span.set_status(StatusCode.ERROR, "too late")


@pytest.mark.parametrize("meet", [lambda span: None, say_much], ids=["nobody speaks", "the tool speaks"])
def test_what_is_exported_is_what_the_sdk_would_have_made(meet):
    shapes = {}
    for light in (True, False):
        with batch() as kept:
            if not light:
                kept.provider.add_span_processor(SpanProcessor())
            kept.fly(meet)
            assert isinstance(kept.met[0], LightSpan) is light
            shapes[light] = {name: shape(span) for name, span in kept.spans.items()}
    assert shapes[True] == shapes[False]
    assert shapes[True]["execute_tool look"]["attributes"]["gen_ai.operation.name"] == "execute_tool"


def test_a_light_span_is_a_span_of_the_sdk_to_whoever_looks_at_it():
    read = {}

    def look(span):
        assert isinstance(span, SdkSpan)
        assert isinstance(span, ReadableSpan)
        read.update(span.attributes, recording=span.is_recording(), ended=span.end_time, json=span.to_json())

    with batch() as kept:
        kept.fly(look)
        assert read["gen_ai.tool.name"] == "look"
        assert (read["recording"], read["ended"]) == (True, None)
        assert '"name": "execute_tool look"' in read["json"]
        assert not kept.met[0].is_recording()
        assert kept.spans["execute_tool look"].resource is kept.provider.resource


def test_an_exception_is_recorded_as_the_sdk_records_it():
    with batch() as kept:
        kept.fly(lambda span: span.record_exception(TimeoutError("no")))
        (event,) = kept.spans["execute_tool look"].events
        assert event.attributes["exception.type"] == "TimeoutError"
        assert "no" in event.attributes["exception.stacktrace"]


def test_whoever_speaks_about_a_span_that_has_ended_changes_nothing():
    with batch() as kept:
        kept.fly()
        for late in (say_much, lambda span: span.update_name("x"), lambda span: span.end(), SdkSpan.end):
            late(kept.met[0])
        spans = kept.spans
        assert len(kept.exporter.get_finished_spans()) == 4
        assert "mine" not in spans["execute_tool look"].attributes


def test_a_tool_that_ends_its_span_has_ended_it():
    with batch() as kept:
        kept.fly(lambda span: span.end(77))
        assert [span.name for span in kept.exporter.get_finished_spans()].count("execute_tool look") <= 1
        assert kept.spans["execute_tool look"].end_time == 77
        assert len(kept.exporter.get_finished_spans()) == 4


def test_threads_that_speak_at_the_same_time_are_all_heard():
    def meet(span):
        gate = threading.Barrier(8)

        def speak(number):
            gate.wait(30)
            span.set_attribute(f"thread.{number}", number)

        threads = [threading.Thread(target=speak, args=(number,)) for number in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(30)

    with batch() as kept:
        kept.fly(meet)
        found = kept.spans["execute_tool look"].attributes
        assert {found[f"thread.{number}"] for number in range(8)} == set(range(8))
        assert found["gen_ai.tool.name"] == "look"


class Watchful(SpanProcessor):
    """Looks at spans as they start."""

    def __init__(self):
        self.started, self.ended = [], []

    def on_start(self, span, parent_context=None):
        self.started.append(span.name)

    def on_end(self, span):
        self.ended.append(span.name)


class Half(sampling.Sampler):
    def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, links=None):
        keep = not name.startswith("chat")
        decision = sampling.Decision.RECORD_AND_SAMPLE if keep else sampling.Decision.DROP
        return sampling.SamplingResult(decision, attributes)

    def get_description(self):
        return "half"


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": sampling.ALWAYS_ON},
        {"sampler": sampling.DEFAULT_ON},
        {"sampler": sampling.ParentBasedTraceIdRatio(1.0)},
        {"span_limits": SpanLimits(max_events=3)},
    ],
    ids=["always", "default", "ratio", "events limited"],
)
def test_light_spans_are_used_where_nobody_can_tell(settings):
    with batch(**settings) as kept:
        kept.fly()
        assert isinstance(kept.met[0], LightSpan)
        assert len(kept.spans) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": Half()},
        {"span_limits": SpanLimits(max_span_attributes=2)},
        {"span_limits": SpanLimits(max_span_attribute_length=3)},
    ],
    ids=["sampler", "few attributes", "short attributes"],
)
def test_whatever_the_application_has_set_is_respected(settings):
    with batch(**settings) as kept:
        kept.fly()
        assert not isinstance(kept.met[0], LightSpan)
        spans = kept.spans
        if "sampler" in settings:
            assert "chat scripted" not in spans
        else:
            found = spans["execute_tool look"].attributes
            assert len(found) == 2 or set(map(len, found.values())) == {3}


def test_limits_of_the_environment_are_respected(monkeypatch):
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "2")
    with batch() as kept:
        kept.fly()
        assert len(kept.spans["chat scripted"].attributes) == 2


def test_a_trace_that_is_not_sampled_has_no_spans():
    with batch(sampler=sampling.ALWAYS_OFF) as kept:
        assert kept.fly().text == "done"
        assert kept.spans == {}


def test_a_processor_that_looks_at_starts_sees_every_start():
    watchful = Watchful()
    Kept(watchful).fly()
    assert sorted(watchful.started) == sorted(watchful.ended)
    assert watchful.started == ["invoke_agent agent", "chat scripted", "execute_tool look", "chat scripted"]


def test_a_processor_that_is_added_in_flight_gets_what_ends_from_then_on():
    watchful = Watchful()
    with batch() as kept:
        kept.fly(lambda span: kept.provider.add_span_processor(watchful))
        assert watchful.ended == ["execute_tool look", "chat scripted", "invoke_agent agent"]


def test_what_the_sdk_counts_about_itself_is_counted(monkeypatch):
    monkeypatch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")
    with batch() as kept:
        kept.fly()
        assert not isinstance(kept.met[0], LightSpan)


def test_another_version_of_the_sdk_makes_its_own_spans(monkeypatch):
    monkeypatch.setattr("glidepath.apps.telemetry.light_span.SPAN_PARTS", frozenset({"_name"}))
    with batch() as kept:
        kept.fly()
        assert not isinstance(kept.met[0], LightSpan)
        assert len(kept.spans) == 3


def test_a_handler_that_fails_hurts_no_run(monkeypatch):
    def broken(spans, event):
        raise ValueError("no")

    monkeypatch.setitem(RunSpans.HANDLERS, StreamStarted, broken)
    script = [*[call("look", what=str(number)) for number in range(4)], say("done")]
    effects = []

    async def go(provider):
        plugins = [OpenTelemetry(tracer_provider=provider)]
        agent = Agent(model=ScriptedModel(script), tools=[look], plugins=plugins, limits=Limits(max_iterations=9))
        async with agent.stream("Go.") as stream:
            effects.extend([event.effect async for event in stream if type(event) is HookFailed])
        return stream.result.text

    with batch() as kept:
        assert asyncio.run(go(kept.provider)) == "done"
    assert effects == ["ignored", "ignored", "removed"]


@tool
async def look(what: str) -> str:
    """Look."""
    return what


def test_everything_is_with_the_batch_processor_when_the_run_has_ended():
    with batch() as kept:
        seen = []

        async def go():
            agent = Agent(
                model=ScriptedModel([say("done")]),
                plugins=[OpenTelemetry(tracer_provider=kept.provider)],
                limits=Limits(max_iterations=3),
            )
            await agent.run("Go.")
            kept.provider.force_flush()
            seen.extend(span.name for span in kept.exporter.get_finished_spans())

        asyncio.run(go())
        assert seen == ["chat scripted", "invoke_agent agent"]


def test_values_of_the_callers_context_reach_the_tool():
    recorded = Recorded(batch=True)
    found = []

    @tool
    async def look() -> str:
        """Look."""
        found.append(contexts.get_value("tenant"))
        return "ok"

    async def go():
        contexts.attach(contexts.set_value("tenant", "blue"))
        agent = Agent(
            model=ScriptedModel([call("look"), say("done")]),
            tools=[look],
            plugins=[recorded.plugin],
            limits=Limits(max_iterations=3),
        )
        await agent.run("Go.")
        return contexts.get_value("tenant")

    assert asyncio.run(go()) == "blue"
    assert found == ["blue"]


def test_a_simple_processor_gets_light_spans_on_the_background_thread():
    threads = []

    class Here(InMemorySpanExporter):
        def export(self, spans):
            threads.append(threading.current_thread().name)
            return super().export(spans)

    kept = Kept()
    kept.exporter = Here()
    kept.provider = TracerProvider(shutdown_on_exit=False)
    kept.provider.add_span_processor(SimpleSpanProcessor(kept.exporter))
    kept.fly()
    assert isinstance(kept.met[0], LightSpan)
    assert set(threads) == {"glidepath-otel"}


class Batches(InMemorySpanExporter):
    """Keeps spans, and knows when it has got this many."""

    def __init__(self, expected):
        super().__init__()
        self.expected, self.complete = expected, threading.Event()

    def export(self, spans):
        answer = super().export(spans)
        if len(self.get_finished_spans()) >= self.expected:
            self.complete.set()
        return answer


def test_a_full_batch_is_exported_at_once_and_the_run_gives_way_to_the_exporting_thread(monkeypatch):
    gave_way = []
    monkeypatch.setattr("glidepath._sdk_privates.sleep", gave_way.append)
    exporter = Batches(expected=2)
    kept = Kept(BatchSpanProcessor(exporter, max_export_batch_size=2, schedule_delay_millis=600_000))
    kept.fly()  # two chats and a tool call
    assert exporter.complete.wait(30)
    assert set(gave_way) == {0}


def test_less_than_a_batch_wakes_nobody(monkeypatch):
    gave_way = []
    monkeypatch.setattr("glidepath._sdk_privates.sleep", gave_way.append)
    exporter = Batches(expected=1)
    kept = Kept(BatchSpanProcessor(exporter, schedule_delay_millis=600_000))
    kept.fly()
    assert not gave_way
    assert not exporter.get_finished_spans()
    kept.provider.force_flush()
    assert len(exporter.get_finished_spans()) == 4


def test_after_the_provider_is_shut_down_spans_are_not_queued_for_ever():
    exporter = InMemorySpanExporter()
    processor = BatchSpanProcessor(exporter)
    kept = Kept(processor)
    kept.fly(meet=lambda span: kept.provider.shutdown())
    assert not processor._batch_processor._queue
    assert [span.name for span in exporter.get_finished_spans()] == ["chat scripted"]
