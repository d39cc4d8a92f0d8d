"""Small things that people expect: a model first, a picture from a file, a limit for one tool, and errors that help."""

import pytest

from glidepath import Agent, ConfigurationError, Limits, approve, tool
from glidepath.messages import FileBlock, ImageBlock
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import ScriptedModel, call, calls, virtual

LIMITS = Limits(max_iterations=12)
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 16


def counter(**options):
    ran = []

    @tool(max_calls=3, **options)
    def search(q: int) -> str:
        """Search."""
        ran.append(q)
        if q == 0:
            raise ValueError("nothing")
        return f"found {q}"

    return search, ran


@virtual
async def test_a_tool_runs_no_more_often_than_it_may_whatever_it_gave():
    search, ran = counter()
    script = [call("search", q=0), calls(*[call("search", q=n) for n in range(1, 5)]), call("search", q=9), "Enough."]
    result = await Agent(model=ScriptedModel(script), tools=[search], limits=LIMITS).run("go")
    assert (ran, result.text) == ([0, 1, 2], "Enough.")
    said = [one.text for one in result.messages if one.role == "tool_result" and one.kind == "skipped"]
    assert len(said) == 3
    assert "search may run 3 times in this run, and it has" in said[0]


@virtual
async def test_the_count_holds_over_a_pause_and_begins_again_in_the_next_run():
    search, ran = counter(requires_approval=True)
    script = [call("search", q=1), call("search", q=2), call("search", q=3), call("search", q=4), "Enough."]
    script += [call("search", q=5), "More."]
    agent = Agent(model=ScriptedModel(script), tools=[search], limits=LIMITS, store=MemoryStore())
    result = await agent.run("go", session="s")
    while result.pending:
        result = await agent.resume("s", decisions={result.pending[0].call.id: approve()})
    assert (ran, result.text) == ([1, 2, 3], "Enough.")
    again = await agent.run("go", session="s")
    assert [one.call.arguments for one in again.pending] == [{"q": 5}]


@pytest.mark.parametrize("wrong", [0, -1, "3", 1.5, True])
def test_a_wrong_limit_is_named(wrong):
    with pytest.raises(ConfigurationError, match="max_calls"):
        tool(max_calls=wrong)


def test_the_model_may_come_first():
    agent = Agent("openai-compatible:small@http://127.0.0.1:9/v1", limits=LIMITS)
    assert agent.config.model.name.endswith("small")
    with pytest.raises(ConfigurationError, match="named twice"):
        Agent("openai:gpt-5", model="openai:gpt-5", limits=LIMITS)


def test_a_picture_is_read_from_a_file(tmp_path):
    picture = tmp_path / "x.png"
    picture.write_bytes(PNG)
    assert ImageBlock.read(picture) == ImageBlock("image/png", data=PNG)
    (tmp_path / "odd").write_bytes(PNG)
    assert ImageBlock.read(tmp_path / "odd", "image/webp").media_type == "image/webp"
    for name, hint in (("x.pdf", "FileBlock"), ("odd", "media_type=")):
        with pytest.raises(ConfigurationError, match=hint):
            ImageBlock.read(tmp_path / name)
    with pytest.raises(ConfigurationError, match="ImageBlock"):
        FileBlock.read(picture)


def test_an_agent_among_the_tools_says_what_to_write():
    other = Agent(model=ScriptedModel(), limits=LIMITS)
    with pytest.raises(ConfigurationError, match=r"as_tool\(name, description\), or handoffs="):
        Agent(model=ScriptedModel(), tools=[other], limits=LIMITS)


def shown(thing):
    return [name for name in dir(thing) if not name.startswith("_")]


def test_dir_shows_what_people_use(tmp_path):
    agent = Agent(model=ScriptedModel(["Hi."]), limits=Limits(max_iterations=2))
    assert shown(agent) == [
        *("as_tool", "config", "fork", "map", "map_sync", "replace", "resume", "resume_sync", "rewind"),
        *("run", "run_sync", "stream", "stream_sync"),
    ]
    assert shown(agent.stream("Hi.")) == ["batches", "partial", "result", "state", "text"]
    used = ["annotate", "close", "entries", "find", "fork", "load", "remove", "remove_many", "rewind", "wallets"]
    assert shown(MemoryStore()) == used
    assert shown(SqliteStore(tmp_path / "s.db")) == sorted([*used, "path"])


def test_what_dir_shows_is_there(tmp_path):
    agent = Agent(model=ScriptedModel(["Hi."]), limits=Limits(max_iterations=2))
    for thing in (agent, agent.stream("Hi."), MemoryStore(), SqliteStore(tmp_path / "s.db")):
        for name in dir(thing):
            getattr(type(thing), name, None) or getattr(thing, name)
