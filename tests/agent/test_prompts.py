"""A system prompt that a function writes: once a run, with its deps, journaled, and used again when it continues."""

import asyncio
from datetime import date

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, approve, tool
from glidepath.agent.replay import replay
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.spi import PromptContext
from glidepath.testing import RecordedRun, ScriptedModel, call, say, virtual

LIMITS = Limits(max_iterations=6)


class Writer:
    """Writes another text each time."""

    def __init__(self):
        self.seen = []

    def __call__(self, context):
        self.seen.append(context)
        return f"Prompt {len(self.seen)} for {context.user}."


def prompts(model):
    return [one.system_prompt for one in model.requests]


def test_a_function_sees_deps_user_and_date_and_is_asked_once_a_run():
    @tool
    def look() -> str:
        """Look."""
        return "x"

    seen = []

    def write(context: PromptContext[dict[str, str]]) -> str:
        seen.append(context)
        return f"You help {context.deps['name']}."

    model = ScriptedModel([call("look"), call("look"), say("done")])
    agent = Agent(model=model, tools=[look], system_prompt=write, limits=LIMITS, agent_name="helper")
    result = agent.run_sync("go", deps={"name": "Eve"}, user="u1", metadata={"a": "b"}, session="s")
    assert result.outcome is LoopOutcome.DONE
    assert prompts(model) == ["You help Eve."] * 3
    (context,) = seen
    assert (context.user, context.date, context.agent_name) == ("u1", date.today(), "helper")  # noqa: DTZ011
    assert (context.metadata, context.session_id) == ({"a": "b"}, "s")


@virtual
async def test_an_async_function_and_one_for_a_single_run():
    async def write(context):
        await asyncio.sleep(1)
        return "later"

    model = ScriptedModel(["a", "b", "c"])
    agent = Agent(model=model, system_prompt=write, limits=LIMITS)
    await agent.run("go")
    await agent.run("go", system_prompt="a text")
    await agent.run("go", system_prompt=lambda context: "for this one")
    assert prompts(model) == ["later", "a text", "for this one"]


@virtual
async def test_a_stream_and_an_output_type_have_it_too():
    model = ScriptedModel(["5"])
    agent = Agent(model=model, system_prompt=lambda context: "Count.", output_type=int, limits=LIMITS)
    async with agent.stream("go") as stream:
        assert [one async for one in stream.partial()] == [5]
    assert model.requests[0].system_prompt.startswith("Count.\n\nYour final answer")


@virtual
async def test_a_child_writes_its_own_with_the_deps_and_the_user_above():
    inner_model = ScriptedModel([say("found")])
    inner = Agent(
        model=inner_model, system_prompt=lambda c: f"child of {c.user}, {c.deps}", limits=LIMITS, agent_name="inner"
    )
    outer = Agent(
        model=ScriptedModel([call("ask", task="x"), say("done")]), tools=[inner.as_tool("ask", "Ask.")], limits=LIMITS
    )
    assert (await outer.run("go", deps="D", user="eve")).outcome is LoopOutcome.DONE
    assert prompts(inner_model) == ["child of eve, D"]


@pytest.mark.parametrize("kept", [True, False])
@virtual
async def test_a_run_that_continues_has_the_text_it_began_with(tmp_path, kept):
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    write = Writer()
    store = SqliteStore(tmp_path / "s.db") if kept else None
    model = ScriptedModel([call("pay"), say("done")])
    agent = Agent(model=model, tools=[pay], system_prompt=write, store=store, limits=LIMITS)
    paused = await agent.run("go", session="s", user="u")
    assert paused.outcome is LoopOutcome.PAUSED
    decisions = {paused.pending[0].call.id: approve()}
    result = await agent.resume("s" if kept else paused, decisions=decisions)
    assert (result.outcome, result.changes) == (LoopOutcome.DONE, ())
    assert prompts(model) == ["Prompt 1 for u.", "Prompt 1 for u."]
    assert len(write.seen) == 1


@virtual
async def test_a_child_that_continues_has_its_text_again(tmp_path):
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    write, model = Writer(), ScriptedModel([call("pay"), say("child done")])
    inner = Agent(model=model, tools=[pay], system_prompt=write, limits=LIMITS, agent_name="inner")
    outer = Agent(
        model=ScriptedModel([call("ask", task="x"), say("done")]),
        tools=[inner.as_tool("ask", "Ask.")],
        limits=LIMITS,
        store=SqliteStore(tmp_path / "s.db"),
    )
    paused = await outer.run("go", session="s", user="u")
    result = await outer.resume("s", decisions={paused.pending[0].call.id: approve()})
    assert result.outcome is LoopOutcome.DONE
    assert prompts(model) == ["Prompt 1 for u."] * 2


def crash(context):
    raise KeyError("nobody")


async def hang(context):
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (crash, "crash failed: KeyError"),
        (hang, "hang returned nothing within hook_timeout=5"),
        (lambda c: None, "must be a str, not NoneType"),
        (lambda c: 7, "must be a str, not int"),
        (lambda c: "nul \0", "NUL"),
        (lambda c: c.nope, "failed: AttributeError"),
    ],
)
@virtual
async def test_a_function_that_fails_is_an_error_before_anything_is_spent(write, said):
    model = ScriptedModel(["never"])
    with pytest.raises(ConfigurationError, match="system_prompt") as caught:
        await Agent(model=model, system_prompt=write, limits=LIMITS).run("go")
    assert said in str(caught.value)
    assert not model.requests


@pytest.mark.parametrize("wrong", [7, b"x", ["x"], str, "nul \0"])
def test_what_is_neither_text_nor_function_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="system_prompt"):
        Agent(model=ScriptedModel(), system_prompt=wrong, limits=LIMITS)


@virtual
async def test_a_prompt_that_cannot_fit_the_limits_is_said_before_the_first_call():
    agent = Agent(model=ScriptedModel(["x"]), system_prompt=lambda c: "word " * 9000, limits=Limits(max_tokens=5000))
    with pytest.raises(ConfigurationError, match="can never hold one call"):
        await agent.run("go")


@virtual
async def test_the_session_of_a_failed_prompt_is_free_for_the_next_run():
    store = MemoryStore()
    agent = Agent(model=ScriptedModel(["a"]), store=store, limits=LIMITS)
    with pytest.raises(ConfigurationError):
        await agent.run("go", session="s", system_prompt=crash)
    assert (await agent.run("go", session="s")).text == "a"


@virtual
async def test_a_replay_has_the_text_that_was_written_then():
    store, words = MemoryStore(), iter(["now"])
    agent = Agent(
        model=ScriptedModel(["Hello."]), system_prompt=lambda _: f"It is {next(words)}.", limits=LIMITS, store=store
    )
    await agent.run("go", session="s")
    replayed = await replay(agent, store, "s")
    assert (replayed.same, replayed.whole, replayed.difference) == (True, True, "")
    run = await RecordedRun.read(agent, store, "s")
    assert (await run.fly(LIMITS))[0].text == "Hello."
