"""A journal flies again, without model and tools, and every commit has the hash that was recorded."""

import asyncio

import pytest

from glidepath import Agent, Limits, tool
from glidepath.agent.replay import replay
from glidepath.errors import ConfigurationError
from glidepath.sessions import MemoryStore
from glidepath.sessions.archive import export_journal, import_journal
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock

from .test_journal import SCENES, TOOLS, Steer

QUIET = [name for name in SCENES if name not in ("time", "retries")]


def touchy(done):
    """The tools, each of which would leave a mark if it were called."""

    def marked(one):
        async def body(**values):
            done.append(one.name)
            return "never"

        return one.answering(lambda values, context: body(**values))

    return [marked(one) for one in TOOLS]


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("scene", QUIET)
def test_a_replay_has_every_hash(scene, listening):
    turns, given = SCENES[scene]
    given = {"limits": Limits(max_iterations=20, max_tokens=200_000), **given}
    done = []

    def config():
        plugins = [Steer()] if scene == "steered" else []
        return {**given, "plugins": [*plugins, *([EventRecorder().as_plugin()] if listening else [])]}

    async def record():
        store = MemoryStore()
        agent = Agent(model=ScriptedModel(turns), tools=TOOLS, store=store, **config())
        return store, await agent.run("go", session="s")

    store, result = VirtualClock().run(record())

    async def again():
        other = MemoryStore()
        await import_journal(other, await export_journal(store, "s"))
        agent = Agent(model=ScriptedModel([]), tools=touchy(done), **config())
        return await replay(agent, other, "s")

    replayed = asyncio.run(again())
    assert replayed.difference == ""
    assert replayed.same
    assert done == []
    assert (replayed.result.outcome, replayed.result.text) == (result.outcome, result.text)
    assert replayed.result.messages == result.messages
    assert replayed.result.usage == result.usage


def test_a_replay_under_another_configuration_says_where_it_differs():
    turns, _ = SCENES["loop"]

    async def both():
        store = MemoryStore()
        limits = Limits(max_iterations=20)
        await Agent(model=ScriptedModel(turns), tools=TOOLS, store=store, limits=limits).run("go", session="s")
        from glidepath import GuardrailsConfig

        other = Agent(
            model=ScriptedModel([]),
            tools=TOOLS,
            limits=limits,
            guardrails=GuardrailsConfig(max_repeated_tool_steps=0),
        )
        return await replay(other, store, "s")

    found = asyncio.run(both())
    assert not found.same
    assert "record" in found.difference


def test_there_must_be_a_run_to_replay():
    @tool
    async def nothing() -> str:
        return ""

    async def look():
        store = MemoryStore()
        await store.release(await store.claim("s", "me"))
        await replay(Agent(model=ScriptedModel([]), unbounded=True), store, "s")

    with pytest.raises(ConfigurationError, match="no run to replay"):
        asyncio.run(look())
