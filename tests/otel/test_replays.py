"""What is replayed or simulated spends nothing: no provider is told of it, and telemetry changes no replay."""

import asyncio

from glidepath import Agent, Limits, LoopConfig, Plugin, approve, tool
from glidepath.agent.replay import replay
from glidepath.sessions import MemoryStore
from glidepath.sim import fly
from glidepath.spi import Ask
from glidepath.testing import SPECIMENS, ScriptedModel, call, say

from .kit import Recorded, tokens


@tool
async def look(what: str) -> str:
    """Look."""
    return what


class Careful(Plugin):
    """Every call needs a person."""

    name = "careful"

    def before_tool_call(self, context):
        return Ask("look first")


def agent(recorded, script, store, *plugins):
    limits = Limits(max_tokens=50_000)
    model = ScriptedModel(script, price=("1", "2"))
    return Agent(model=model, tools=[look], plugins=[*plugins, recorded.plugin], store=store, limits=limits)


def test_a_replay_is_the_same_and_tells_no_provider():
    recorded, store = Recorded(measured=True), MemoryStore()
    one = agent(recorded, [call("look", what="tea"), say("Tea.")], store)

    async def go():
        return await one.run("Look.", session="s"), await replay(one, store, "s")

    result, again = asyncio.run(go())
    assert (again.same, again.difference) == (True, "")
    assert len(recorded.named("invoke_agent")) == 1
    assert tokens(recorded.spans)[:2] == (result.usage.input, result.usage.output)
    assert sum(point.value for point in recorded.metrics()["glidepath.runs"].values()) == 1


def test_a_replay_of_a_resumed_run_is_the_same():
    recorded, store = Recorded(), MemoryStore()

    async def go():
        first = agent(recorded, [call("look", what="tea")], store, Careful())
        paused = await first.run("Look.", session="s")
        last = agent(recorded, [say("Tea.")], store, Careful())
        await last.resume("s", decisions={paused.pending[0].call.id: approve()})
        return await replay(last, store, "s")

    again = asyncio.run(go())
    assert (again.same, again.difference) == (True, "")
    assert len(recorded.named("invoke_agent")) == 2


def test_a_simulation_tells_no_provider():
    recorded = Recorded()
    config = LoopConfig(
        model=ScriptedModel(), tools=(look,), plugins=(recorded.plugin,), limits=Limits(max_iterations=5)
    )
    kind = next(one for one in SPECIMENS if not one.killed and not one.real_time)
    assert fly(config, kind, 1).calls
    assert recorded.spans == ()
