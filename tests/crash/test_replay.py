"""A journal flies again, without model and tools, and every commit has the hash that was recorded."""

import asyncio

import pytest

from glidepath import Agent, CancelToken, Limits, tool
from glidepath.agent.replay import replay
from glidepath.errors import ConfigurationError, TransientError
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.sessions import MemoryStore, export_journal, import_journal
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, call, calls, say

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


class Scribbler:
    """A model that writes its arguments as no encoder would."""

    name = "scribbler"
    max_output_tokens = 1000

    async def stream(self, request):
        if any(message.role == "assistant" for message in request.messages):
            yield TextDelta("done")
            yield StreamEnd("end_turn", Usage(10, 1))
            return
        yield TextDelta("Two of them.")
        yield ToolCallDelta(1, "a", "echo", '{ "text" :"caf\\u00e9" , "times": 1.0e0 }')
        yield ToolCallDelta(2, "b", "echo", '{"times":2,\n "text": "x"}')
        yield ToolCallDelta(3, "c", "echo", '{"times":2,')
        yield StreamEnd("tool_use", Usage(10, 1))


def test_a_replay_keeps_the_arguments_byte_for_byte():
    @tool
    async def echo(text: str, times: float = 1) -> str:
        return text

    async def both():
        store = MemoryStore()
        agent = Agent(model=Scribbler(), tools=[echo], store=store, limits=Limits(max_iterations=5))
        result = await agent.run("go", session="s")
        return result, await replay(agent, store, "s")

    result, found = asyncio.run(both())
    assert result.text == "done"
    assert found.difference == ""
    assert found.same


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("kept", range(1, 9))
def test_a_replay_of_a_crashed_run_goes_as_far_as_it_went(width, kept):
    @tool
    async def echo(text: str) -> str:
        return text

    turns = [calls(*[call("echo", text=f"{turn} {n}") for n in range(width)]) for turn in range(3)]

    async def both():
        store = MemoryStore()
        limits = Limits(max_iterations=9)
        agent = Agent(model=ScriptedModel([*turns, say("done")]), tools=[echo], store=store, limits=limits)
        await agent.run("go", session="s")
        commits = (await store.load("s"))[1]
        lease = await store.claim("s", "me")
        await store.cut(lease, kept, commits[kept - 1].hash)  # as if it had been killed here
        return await replay(agent, store, "s")

    found = asyncio.run(both())
    assert found.difference == ""
    assert (found.same, found.whole, found.commits) == (True, False, kept)


def test_a_replay_of_a_cancelled_run_goes_as_far_as_it_went():
    async def both():
        store = MemoryStore()
        token = CancelToken()

        @tool
        async def halt() -> str:
            token.cancel("enough")
            await asyncio.sleep(5)
            return "never"

        agent = Agent(model=ScriptedModel([call("halt")]), tools=[halt], store=store, limits=Limits(max_iterations=9))
        result = await agent.run("go", session="s", cancel=token)
        return result, await replay(agent, store, "s")

    result, found = asyncio.run(both())
    assert found.difference == ""
    assert (found.same, found.whole, found.commits) == (True, False, 3)
    assert (found.result.outcome, found.result.cause) == (result.outcome, result.cause)


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


@pytest.mark.parametrize("width", [1, 3])
def test_a_replay_of_a_run_with_children_compares_theirs_too(width):
    made = []

    async def both():
        store = MemoryStore()
        limits = Limits(max_iterations=9)
        helper = Agent(model=ScriptedModel([]).forever(say("helped")), limits=limits)
        tools = [helper.as_tool("delegate", "Hand a task over.")]
        turns = [calls(*[call("delegate", task=f"part {n}") for n in range(width)]), say("done")]
        agent = Agent(model=ScriptedModel(turns), tools=tools, store=store, limits=limits)
        result = await agent.run("go", session="s")
        made.extend((await store.load("s"))[1])
        return result, await replay(agent, store, "s")

    result, found = VirtualClock().run(both())
    assert found.difference == ""
    assert (found.same, found.whole, found.until) == (True, True, "")
    assert found.commits == len(made)
    assert len(found.children) == width
    assert all(child.whole and child.commits == 3 for child in found.children.values())
    assert (found.result.outcome, found.result.text) == (result.outcome, "done")
    assert len(found.result.children) == width


def test_a_replay_of_an_attempt_that_failed_in_mid_stream_takes_what_it_cost_from_the_journal():
    class Flaky:
        name = "flaky"
        max_output_tokens = 1000
        asked = 0

        async def stream(self, request):
            self.asked += 1
            yield TextDelta("Half of ")
            if self.asked == 1:
                raise TransientError("the line dropped")
            yield TextDelta("it.")
            yield StreamEnd("end_turn", Usage(10, 2))

    async def both():
        store = MemoryStore()
        agent = Agent(model=Flaky(), store=store, limits=Limits(max_iterations=5))
        result = await agent.run("go", session="s")
        return result, await replay(agent, store, "s")

    result, found = VirtualClock().run(both())
    assert result.text == "Half of it."
    assert (found.difference, found.same, found.whole, found.until) == ("", True, True, "")
    assert found.result.text == "Half of it."


def test_a_replay_books_what_the_model_costs_at_its_provider():
    class Priced(ScriptedModel):
        provider = "acme"

    given = {"limits": Limits(max_cost="1"), "prices": {"acme:scripted": ("3", "15")}}

    async def record_and_replay():
        store = MemoryStore()
        recorded = await Agent(model=Priced([say("done")]), store=store, **given).run("go", session="s")
        assert recorded.ok
        return await replay(Agent(model=Priced([]), **given), store, "s")

    replayed = VirtualClock().run(record_and_replay())
    assert (replayed.same, replayed.difference) == (True, "")
