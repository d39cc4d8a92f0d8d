"""A run as spans: which there are, below which, from when to when, and what they say."""

import asyncio
import threading

import pytest
from opentelemetry import trace

from glidepath import Agent, ExecutionMode, Limits, LoopOutcome, Plugin, approve, tool
from glidepath.code import CodeMode
from glidepath.errors import ConfigurationError, TransientError
from glidepath.otel import OpenTelemetry
from glidepath.plugins import HookTable
from glidepath.sessions import MemoryStore
from glidepath.spi import Ask
from glidepath.teams import Team
from glidepath.testing import ScriptedModel, call, calls, fail, say, virtual

from .kit import Recorded, tokens

seen = []
FEW = Limits(max_iterations=9)


@tool
async def price(item: str) -> str:
    """What something costs."""
    seen.append(trace.get_current_span().get_span_context().span_id)
    return f"{item}: 3 euros"


@tool
def weight(item: str) -> str:
    """What something weighs, found in a thread."""
    assert threading.current_thread() is not threading.main_thread()
    seen.append(trace.get_current_span().get_span_context().span_id)
    return f"{item}: 1 kg"


@pytest.fixture(params=[True, False], ids=["light", "sdk"])
def recorded(request):
    seen.clear()
    return Recorded(light=request.param)


def agent(recorded, script, **settings):
    settings.setdefault("limits", Limits(max_iterations=9, max_cost="1"))
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script, price=("1", "2"))
    return Agent(model=model, tools=[price, weight], plugins=[recorded.plugin], **settings)


def test_a_run_is_an_agent_span_with_its_calls_below(recorded):
    agent(recorded, [call("price", item="tea"), say("3 euros")]).run_sync("What is tea?")
    first, used, second, run = recorded.spans
    assert [span.name for span in recorded.spans] == [
        "chat scripted",
        "execute_tool price",
        "chat scripted",
        "invoke_agent agent",
    ]
    assert {span.parent.span_id for span in (first, used, second)} == {run.context.span_id}
    assert run.parent is None
    assert len({span.context.trace_id for span in recorded.spans}) == 1
    assert [span.attributes["gen_ai.operation.name"] for span in recorded.spans] == [
        "chat",
        "execute_tool",
        "chat",
        "invoke_agent",
    ]
    assert run.start_time <= first.start_time <= first.end_time <= used.start_time <= second.start_time
    assert second.end_time <= run.end_time


def test_the_run_says_how_it_ended_and_no_token_twice(recorded):
    result = agent(recorded, [call("price", item="tea"), say("3 euros")]).run_sync("What is tea?")
    (run,) = recorded.named("invoke_agent")
    assert run.attributes["glidepath.outcome"] == result.outcome.value == "done"
    assert run.attributes["glidepath.state"] == result.state.value
    assert run.attributes["glidepath.usage.input_tokens"] == result.usage.input
    assert not [name for name in run.attributes if name.startswith("gen_ai.usage")]
    assert tokens(recorded.spans) == (result.usage.input, result.usage.output, int(result.cost * 10**12))


def test_a_tool_finds_its_own_span_as_the_current_one(recorded):
    agent(recorded, [call("price", item="tea"), call("weight", item="tea"), say("done")]).run_sync("Look.")
    assert seen == [span.context.span_id for span in recorded.named("execute_tool")]


def test_calls_side_by_side_each_find_their_own_span(recorded):
    reply = calls(call("weight", item="a"), call("weight", item="b"), call("weight", item="c"))
    agent(recorded, [reply, say("done")], default_execution_mode=ExecutionMode.PARALLEL).run_sync("Look.")
    assert sorted(seen) == sorted(span.context.span_id for span in recorded.named("execute_tool"))
    assert len(set(seen)) == 3


def test_what_a_tool_says_about_the_current_span_is_kept(recorded):
    @tool
    async def mark() -> str:
        """Annotate the current span."""
        span = trace.get_current_span()
        assert span.is_recording()
        span.set_attribute("mine", 7)
        span.set_attributes({"yours": "x", "unusable": object()})
        span.add_event("noted", {"a": 1})
        span.record_exception(ValueError("no"))
        span.update_name("renamed")
        return "ok"

    model = ScriptedModel([call("mark"), say("done")])
    Agent(model=model, tools=[mark], plugins=[recorded.plugin], limits=FEW).run_sync("Go.")
    (span,) = recorded.named("renamed")
    assert span.attributes["mine"] == 7
    assert span.attributes["yours"] == "x"
    assert span.attributes["unusable"] is None
    assert [event.name for event in span.events] == ["noted", "exception"]
    assert span.events[1].attributes["exception.message"] == "no"


def test_the_callers_span_is_above_the_run_and_current_again_afterwards(recorded):
    tracer = recorded.tracers.get_tracer("caller")

    async def go():
        with tracer.start_as_current_span("request") as request:
            await agent(recorded, [say("hello")]).run("Hi.")
            assert trace.get_current_span() is request

    asyncio.run(go())
    (run,), (request,) = recorded.named("invoke_agent"), recorded.named("request")
    assert run.parent.span_id == request.context.span_id


def test_a_child_is_below_the_tool_call_that_started_it(recorded):
    child = Agent(model=ScriptedModel([say("tea")]), agent_name="helper", limits=FEW)
    model = ScriptedModel([call("helper", task="Which?"), say("Tea.")])
    Agent(
        model=model, tools=[child.as_tool("helper", "Ask the helper.")], plugins=[recorded.plugin], limits=FEW
    ).run_sync("Choose.")
    inner, outer = recorded.named("invoke_agent helper") + recorded.named("invoke_agent agent")
    (used,) = recorded.named("execute_tool helper")
    assert inner.parent.span_id == used.context.span_id
    assert used.parent.span_id == outer.context.span_id


@virtual
async def test_an_attempt_that_failed_is_a_span_with_its_error_and_what_it_cost():
    recorded = Recorded()
    script = [fail(TransientError("busy"), text="half an ans"), say("whole")]
    result = await agent(recorded, script).run("Say it.")
    first, second = recorded.named("chat")
    assert first.attributes["error.type"] == "TransientError"
    assert not first.status.is_ok
    assert first.attributes["gen_ai.usage.output_tokens"] > 0
    assert second.attributes["glidepath.attempt"] == 2
    assert tokens(recorded.spans)[:2] == (result.usage.input, result.usage.output)
    (run,) = recorded.named("invoke_agent")
    assert [event.name for event in run.events] == ["glidepath.retry"]


def test_the_landing_is_an_event_of_the_run_and_a_mark_on_its_call(recorded):
    def eager(request):
        return call("price", item=str(len(request.messages))) if request.tools else say("That is all.")

    model = ScriptedModel().forever(eager)
    result = agent(recorded, model, limits=Limits(max_tokens=9_000), max_output_tokens=500).run_sync("Go.")
    assert result.outcome is LoopOutcome.WRAPPED_UP
    (run,) = recorded.named("invoke_agent")
    assert "glidepath.landing" in [event.name for event in run.events]
    assert run.attributes["glidepath.cause.source"] == result.cause.source
    assert run.attributes["glidepath.budget.tokens.limit"] == 9_000
    landings = [span for span in recorded.named("chat") if span.attributes.get("glidepath.landing")]
    assert landings == [recorded.named("chat")[-1]]


def test_a_failed_tool_has_its_kind_and_a_refused_one_no_span(recorded):
    @tool
    async def broken() -> str:
        """Fail."""
        raise ValueError("no")

    model = ScriptedModel([call("broken"), call("nothing_of_that_name"), say("done")])
    Agent(model=model, tools=[broken], plugins=[recorded.plugin], limits=FEW).run_sync("Go.")
    (span,) = recorded.named("execute_tool")
    assert span.attributes["error.type"] == "ValueError"
    (run,) = recorded.named("invoke_agent")
    assert "glidepath.tool.refused" in [event.name for event in run.events]


class Careful(Plugin):
    """Every call needs a person."""

    name = "careful"

    def before_tool_call(self, context):
        return Ask("look first")


def test_a_resumed_run_is_a_new_trace_with_a_link_to_the_old_one(recorded):
    store = MemoryStore()

    def one(script):
        plugins = [Careful(), recorded.plugin]
        return Agent(model=ScriptedModel(script), tools=[price], plugins=plugins, store=store, limits=FEW)

    async def go():
        with recorded.tracers.get_tracer("caller").start_as_current_span("request"):
            paused = await one([call("price", item="tea")]).run("Buy tea.", session="s1")
            assert paused.outcome is LoopOutcome.PAUSED
            decisions = {paused.pending[0].call.id: approve()}
            return await one([say("Bought.")]).resume("s1", decisions=decisions)

    assert asyncio.run(go()).outcome is LoopOutcome.DONE
    first, second = recorded.named("invoke_agent")
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert second.context.trace_id != first.context.trace_id
    assert second.attributes["glidepath.resumed"] is True


def test_a_team_is_a_workflow_with_its_members_below(recorded):
    member = Agent(model=ScriptedModel().forever(say("Done as asked.")), agent_name="writer", limits=FEW)
    team = Team([member], name="crew", plugins=[recorded.plugin])
    result = asyncio.run(team.run("Write a line."))
    (workflow,) = recorded.named("invoke_workflow crew")
    runs = recorded.named("invoke_agent")
    assert runs
    assert {run.context.trace_id for run in runs} == {workflow.context.trace_id}
    assert tokens(recorded.spans)[:2] == (result.usage.input, result.usage.output)


def test_without_a_provider_nobody_listens():
    plugin = OpenTelemetry()
    assert HookTable([plugin]).for_run().observers == ()
    assert Agent(model=ScriptedModel([say("hi")]), plugins=[plugin], limits=FEW).run_sync("Hi.").text == "hi"


def test_a_provider_that_is_set_in_the_middle_of_a_run_counts_from_the_next_run_on(monkeypatch):
    recorded = Recorded()

    @tool
    async def set_up() -> str:
        """Set the provider."""
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: recorded.tracers)
        return "set"

    child = Agent(model=ScriptedModel([say("tea")]), agent_name="helper", limits=FEW)
    script = [call("set_up"), call("helper", task="Which?"), say("done")]
    tools, plugin = [set_up, child.as_tool("helper", "Ask the helper.")], OpenTelemetry()
    first = Agent(model=ScriptedModel(script), tools=tools, plugins=[plugin], limits=FEW).run_sync("Go.")
    assert (first.text, first.outcome) == ("done", LoopOutcome.DONE)
    again = Agent(model=ScriptedModel([say("again")]), plugins=[plugin], limits=FEW).run_sync("Go.")
    recorded.plugin = plugin
    runs = [span.attributes["glidepath.run.id"] for span in recorded.named("invoke_agent")]
    assert runs == [first.children[0].run_id, again.run_id]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"content": "yes"}, "content"),
        ({"redact": "no"}, "redact"),
        ({"max_chars": 0}, "max_chars"),
        ({"tracer_provider": "x"}, "tracer_provider"),
        ({"meter_provider": 3}, "meter_provider"),
    ],
    ids=["content", "redact", "max_chars", "tracer_provider", "meter_provider"],
)
def test_a_wrong_setting_is_named(settings, field):
    with pytest.raises(ConfigurationError, match=field):
        OpenTelemetry(**settings)


def test_what_a_program_calls_is_below_the_program(recorded):
    current = []

    @tool
    async def look() -> str:
        """Look at the current span."""
        current.append(trace.get_current_span().get_span_context().span_id)
        return "tea"

    script = [call("run_code", code="look()\nlook()"), call("weight", item="tea"), say("done")]
    model, tools = ScriptedModel(script), [weight, CodeMode([look])]
    Agent(model=model, tools=tools, plugins=[recorded.plugin], limits=FEW).run_sync("Go.")
    first, second = recorded.named("execute_tool look")
    (alone,) = recorded.named("execute_tool weight")
    (program,), (run,) = recorded.named("execute_tool run_code"), recorded.named("invoke_agent")
    assert first.parent.span_id == second.parent.span_id == program.context.span_id
    assert alone.parent.span_id == program.parent.span_id == run.context.span_id
    assert current == [first.context.span_id, second.context.span_id]
