"""Sources of tools and the runs that use them: opened once, asked together, closed by the last."""

import asyncio

import pytest

from glidepath import Agent, CancelToken, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.events import ToolsChanged
from glidepath.models import WebSearch
from glidepath.sim import simulate
from glidepath.testing import ScriptedModel, call, say, virtual
from glidepath.tools import SourceError, ToolSource, ToolSupply


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Supply(ToolSupply):
    def __init__(self, source):
        self.source = source

    async def tools(self):
        self.source.log.append("asked")
        await asyncio.sleep(self.source.takes)
        if self.source.error is not None:
            raise self.source.error
        return (add,)

    def attach(self, run):
        self.source.log.append("attached")

    def detach(self, run):
        self.source.log.append("detached")

    async def close(self):
        self.source.log.append("closing")
        await asyncio.sleep(self.source.closes)
        if self.source.error is not None:
            raise self.source.error
        self.source.log.append("closed")


class Source(ToolSource):
    def __init__(self, name="shelf", *, takes=0.0, closes=0.0, error=None, required=False):
        self.name, self.takes, self.closes, self.error, self.required = name, takes, closes, error, required
        self.log = []

    def open(self):
        self.log.append("opened")
        return Supply(self)


def agent_with(source, *turns, **settings):
    settings.setdefault("limits", Limits(max_iterations=5))
    return Agent(model=ScriptedModel([*turns, say("ok")]), tools=[source], **settings)


@virtual
async def test_a_source_is_opened_asked_and_closed_around_a_run():
    source = Source()
    result = await agent_with(source, call("add", a=1, b=2)).run("go")
    assert result.outcome is LoopOutcome.DONE
    assert source.log == ["opened", "asked", "attached", "detached", "closing", "closed"]


@virtual
async def test_g17_a_source_that_closes_slowly_is_listed_as_abandoned():
    result = await agent_with(Source(closes=30)).run("go")
    assert [(work.tool_name, work.kind) for work in result.abandoned] == [("shelf", "source")]
    await asyncio.sleep(31)


@virtual
async def test_a_source_that_raises_something_else_is_contained():
    result = await agent_with(Source(error=RuntimeError("no idea"))).run("go")
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_g1_a_required_source_that_fails_fails_the_run():
    agent = agent_with(Source(error=SourceError("shelf is empty"), required=True))
    result = await agent.run("go")
    assert (result.outcome, result.cause.source, result.cause.reason) == (
        LoopOutcome.FAILED,
        "tools:shelf",
        "shelf is empty",
    )


@virtual
async def test_g7_a_run_that_is_cancelled_does_not_wait_for_its_sources():
    token, loop = CancelToken(), asyncio.get_running_loop()
    loop.call_later(1, token.cancel)
    result = await agent_with(Source(takes=60)).run("go", cancel=token)
    assert (result.outcome, loop.time() < 5) == (LoopOutcome.CANCELLED, True)


@virtual
async def test_the_time_a_source_takes_is_the_runs_own():
    agent = agent_with(Source(takes=60), limits=Limits(timeout=10))
    began = asyncio.get_running_loop().time()
    result = await agent.run("go")
    assert result.text == "ok"
    assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.1)


@virtual
async def test_what_is_missing_is_an_event():
    events = []
    agent = agent_with(Source(error=SourceError("shelf is empty")), event_sink=events.append)
    await agent.run("go")
    [event] = [event for event in events if isinstance(event, ToolsChanged)]
    assert (event.server, event.effect, event.reason) == ("shelf", "unavailable", "shelf is empty")


def test_what_is_no_source_is_said():
    nameless = Source(name="")
    for given, said in (
        ([nameless], "needs a non-empty name"),
        (["x"], "no tool|tools"),
        ([3], "sources such as McpServer"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            Agent(model=ScriptedModel([]), tools=given, limits=Limits(max_iterations=1))
    with pytest.raises(ConfigurationError, match="tool_sources must be sources"):
        Agent(model=ScriptedModel([]), tool_sources=[add], limits=Limits(max_iterations=1))


def test_a_simulation_opens_no_source():
    source = Source()
    agent = Agent(model=ScriptedModel([]), tools=[add, source], limits=Limits(max_iterations=5))
    simulate(agent.config, seeds=1, only=["empty_reply"])
    assert source.log == []


@virtual
async def test_a_source_does_not_take_the_name_of_a_hosted_tool():
    class Hosting(ScriptedModel):
        def explain_no_hosted(self, tool, others):
            return None

    class Searching(Supply):
        async def tools(self):
            return (add.renamed("web_search"),)

    class Shelf(Source):
        def open(self):
            return Searching(self)

    model = Hosting([say("ok")])
    await Agent(model=model, tools=[Shelf(), WebSearch()], limits=Limits(max_iterations=5)).run("go")
    names = list(model.requests[0].tools)
    assert len(names) == 1
    assert names != ["web_search"]
