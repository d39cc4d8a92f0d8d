"""Sampling is a model call of the run: off by default, metered, capped per server, refused during a landing."""

from decimal import Decimal

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from glidepath import Agent, CancelToken, ExecutionMode, Limits, answer
from glidepath.errors import TransientError
from glidepath.events import BudgetReserved, BudgetSettled, ToolStarted
from glidepath.mcp import Sampling
from glidepath.otel import OpenTelemetry
from glidepath.sessions import MemoryStore, read_journal
from glidepath.testing import ScriptedModel, call, calls, fail, hang, say

from .servers import ERAS, collect, fake, results

pytestmark = pytest.mark.process
ALLOWED = Sampling(max_calls=5, max_tokens=5_000)


def sampler(turns, era, *, limits=None, sampling=ALLOWED, **settings):
    server = fake(era=era, setup={"tools": ["sample"]}, sampling=sampling)
    limits = limits or Limits(max_iterations=5, max_tokens=50_000)
    return Agent(model=ScriptedModel(turns), tools=[server], limits=limits, **settings)


@pytest.mark.parametrize("era", ERAS)
async def test_a_sampling_request_is_answered_by_the_runs_model(era):
    result = await sampler([call("sample"), say("hello there"), say("ok")], era).run("go")
    assert (results(result)[0].text, result.text) == ("hello there", "ok")


@pytest.mark.parametrize("era", ERAS)
async def test_g12_what_a_server_spends_is_charged_to_the_run_under_its_name(era):
    agent = sampler([call("sample"), say("hello there"), say("ok")], era, prices={"scripted": (1, 2)})
    result, events = await collect(agent)
    [spent] = [spend for spend in result.breakdown if spend.name == "mcp:fake"]
    assert (spent.calls, spent.cost > 0) == (1, True)
    assert sum(spend.cost for spend in result.breakdown if spend.kind == "model") == result.cost
    assert sum(spend.usage.total for spend in result.breakdown if spend.kind == "model") == result.usage.total
    reserved = [event for event in events if isinstance(event, BudgetReserved)]
    assert len(reserved) == len([event for event in events if isinstance(event, BudgetSettled)]) == 3


@pytest.mark.parametrize("era", ERAS)
async def test_sampling_is_off_unless_it_is_allowed(era):
    result = await sampler([call("sample"), say("ok")], era, sampling=None).run("go")
    said = results(result)[0].text
    assert "not allowed" in said or "not supported" in said.lower()
    assert [spend for spend in result.breakdown if spend.name == "mcp:fake"] == []


async def test_g12_what_a_request_may_cost_is_in_the_journal_before_it_is_made():
    store = MemoryStore()
    result = await sampler([call("sample"), say("hello there"), say("ok")], "modern", store=store).run(
        "go", session="s"
    )
    assert result.text == "ok"
    kinds = [record.kind for record in (await read_journal(store, "s")).records()]
    assert kinds.count("reserved") == 3


async def test_a_reply_is_as_long_as_the_server_may_have():
    def asked(request):
        assert request.max_output_tokens == 30
        return say("short")

    sampling = Sampling(max_output_tokens=30)
    result = await sampler([call("sample", tokens=5_000), asked, say("ok")], "modern", sampling=sampling).run("go")
    assert results(result)[0].text == "short"


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (Sampling(max_tokens=20), "limit of 20 tokens of mcp:fake"),
        (Sampling(max_cost="0.0000001"), "does not cover it"),
    ],
    ids=["tokens", "money"],
)
async def test_g4_a_request_that_does_not_fit_is_refused(sampling, said):
    turns = [call("sample", tokens=2_000), say("ok")]
    result = await sampler(turns, "modern", sampling=sampling, prices={"scripted": (1, 2)}).run("go")
    assert said in results(result)[0].text


async def test_g4_a_reply_is_trimmed_to_what_is_left_of_the_runs_budget():
    def trimmed(request):
        assert 64 <= request.max_output_tokens <= 1_000
        return say("short")

    limits = Limits(max_iterations=5, max_tokens=1_500, landing_tokens=100)
    result = await sampler([call("sample", tokens=2_000), trimmed, say("ok")], "modern", limits=limits).run("go")
    assert results(result)[0].text == "short"
    assert result.usage.total <= 1_500


async def test_g5_sampling_is_refused_during_a_landing():
    turns = [call("sample"), say("landed")]
    agent = sampler(turns, "modern", limits=Limits(max_iterations=2, grace_iterations=1), landing="steer")
    token = CancelToken()
    token.wind_down("enough")
    result = await agent.run("go", cancel=token)
    assert "landing" in results(result)[0].text


@pytest.mark.parametrize("era", ERAS)
async def test_g7_cancelling_the_run_ends_its_servers_model_call(era):
    token = CancelToken()
    agent = sampler([call("sample"), hang()], era)
    async with agent.stream("go", cancel=token) as stream:
        started = False
        async for event in stream:
            started = started or isinstance(event, ToolStarted)
            if started and isinstance(event, BudgetReserved):
                token.cancel()
    assert stream.result.outcome.name == "CANCELLED"
    assert stream.result.abandoned == ()


async def test_g4_a_servers_share_is_not_renewed_by_a_pause():
    server = fake(era="modern", setup={"tools": ["sample", "ask"]}, sampling=Sampling(max_calls=1), elicitation=True)
    turns = [call("sample"), say("one"), call("ask"), call("sample"), say("ok")]
    agent = Agent(model=ScriptedModel(turns), tools=[server], limits=Limits(max_iterations=9))
    paused = await agent.run("go")
    done = await agent.resume(paused, decisions={paused.pending[0].call.id: answer({"city": "Oslo"})})
    assert "limit of 1 model call of mcp:fake" in results(done)[2].text


async def test_a_run_is_charged_for_what_its_own_calls_asked_for():
    server = fake(setup={"tools": ["sample"]}, sampling=ALLOWED)
    model = ScriptedModel([]).forever(
        lambda request: say("mine") if not request.tools else say("ok") if len(request.messages) > 1 else call("sample")
    )
    agent = Agent(model=model, tools=[server], limits=Limits(max_iterations=5), prices={"scripted": (1, 2)})
    import asyncio

    async with agent:
        runs = await asyncio.gather(*[agent.run(f"task {number}") for number in range(4)])
    for result in runs:
        assert [spend.calls for spend in result.breakdown if spend.name == "mcp:fake"] == [1]
        assert result.cost > Decimal(0)


async def test_spans_of_requests_side_by_side_add_up_to_the_ledger():
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    reader = InMemoryMetricReader()
    telemetry = OpenTelemetry(tracer_provider=tracers, meter_provider=MeterProvider([reader]))
    slow = say("hello there", delay=0.1)
    turns = [calls(call("sample"), call("sample")), slow, slow, say("ok")]
    agent = sampler(turns, "modern", plugins=[telemetry], default_execution_mode=ExecutionMode.PARALLEL)
    result, events = await collect(agent)
    order = [type(event).__name__ for event in events if isinstance(event, BudgetReserved | BudgetSettled)]
    assert order[2:4] == ["BudgetReserved", "BudgetReserved"]
    chats = [span.attributes for span in exporter.get_finished_spans() if span.name.startswith("chat")]
    assert [found.get("glidepath.purpose") for found in chats] == [None, "sampling", "sampling", None]
    assert sum(found["gen_ai.usage.input_tokens"] for found in chats) == result.usage.input
    assert sum(found["gen_ai.usage.output_tokens"] for found in chats) == result.usage.output


async def test_a_request_that_fails_for_free_is_settled_and_takes_no_other_calls_tokens():
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    turns = [call("sample"), fail(TransientError("busy")), say("ok")]
    agent = sampler(turns, "modern", plugins=[OpenTelemetry(tracer_provider=tracers)])
    _, events = await collect(agent)
    settled = [event.usage.total for event in events if isinstance(event, BudgetSettled)]
    assert len(settled) == len([event for event in events if isinstance(event, BudgetReserved)]) == 3
    assert settled[1] == 0
    chats = [span.attributes for span in exporter.get_finished_spans() if span.name.startswith("chat")]
    assert [found.get("glidepath.purpose") for found in chats] == [None, "sampling", None]
    assert [found.get("error.type") for found in chats] == [None, "unanswered", None]
    assert [found["gen_ai.usage.input_tokens"] > 0 for found in chats] == [True, False, True]
