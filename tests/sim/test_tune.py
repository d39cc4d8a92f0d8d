"""`glidepath sim tune STORE`: thresholds proposed from stored runs, without calling a model."""

import io

import pytest

from glidepath import Agent, GuardrailsConfig, Limits, tool
from glidepath.apps.cli import CliContext
from glidepath.cli import main
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call, say, virtual
from glidepath.testing.simulator.tune import LIMITS, read_runs, tune


@tool
async def look(page: int = 0) -> str:
    """Look."""
    return "nothing new on this page"


@tool
async def wait() -> str:
    """Wait."""
    return "running"


@tool
async def fail(item: int) -> str:
    """Fail."""
    raise OSError("no route to host")


OFF = GuardrailsConfig(max_repeated_tool_steps=0, max_error_streak=0)


async def fill(store, *scripts):
    """A store with one session for each script; the guards were off."""
    for number, script in enumerate(scripts):
        agent = Agent(
            model=ScriptedModel(script),
            tools=[look, wait, fail],
            limits=Limits(max_iterations=30),
            store=store,
            guardrails=OFF,
        )
        await agent.run("the task", session=f"s{number}")


def row(tuning, limit, value):
    return next(one for one in tuning.settings if (one.limit, one.value) == (limit, value))


@virtual
async def test_runs_that_ended_done_and_others_are_counted_apart(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    pages = [call("look", page=n) for n in range(9)]
    await fill(store, [*pages, say("done")], [*[call("look")] * 4, say("x")], [call("look")] * 30)
    runs, unreadable = await read_runs(store)
    await store.close()
    tuning = tune(runs)
    assert (tuning.runs, tuning.done, unreadable) == (3, 2, [])
    assert tuning.steps == 9 + 4 + 30
    three = row(tuning, "max_repeated_tool_steps", 3)
    assert (three.done_nudged, three.done_stopped, three.others_stopped) == (0, 1, 1)
    assert tuning.proposed == {"max_repeated_tool_steps": 5, "max_error_streak": 5}


@virtual
async def test_the_default_is_proposed_where_it_leaves_finished_runs_alone(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    await fill(store, [call("look", page=1), say("done")], [call("fail", item=n) for n in range(9)] + [say("no")])
    runs, _ = await read_runs(store)
    await store.close()
    first = [run for run in runs if run.session_id == "s0"]
    assert tune(first).snippet() == "[guardrails]\nmax_repeated_tool_steps = 3\nmax_error_streak = 5"
    assert tune(runs).proposed["max_error_streak"] == max(LIMITS["max_error_streak"])


@virtual
async def test_marks_of_the_tools_are_heeded(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    await fill(store, [*[call("wait")] * 9, say("done")])
    runs, _ = await read_runs(store)
    await store.close()
    polling = tool(wait.fn, polling=True)
    assert row(tune(runs), "max_repeated_tool_steps", 3).done_stopped == 1
    assert row(tune(runs, {"wait": polling}), "max_repeated_tool_steps", 3).done_stopped == 0


def shell(tmp_path, *words):
    out, err = io.StringIO(), io.StringIO()
    world = CliContext(folder=tmp_path, environ={}, stdin=io.StringIO(), stdout=out, stderr=err)
    return main(list(words), world), out.getvalue(), err.getvalue()


def test_the_command_prints_a_table_and_a_snippet(tmp_path):
    import asyncio

    async def prepare():
        store = SqliteStore(tmp_path / "runs.db")
        await fill(store, [*[call("look")] * 5, say("done")])
        await store.close()

    asyncio.run(prepare())
    code, out, _ = shell(tmp_path, "sim", "tune", "runs.db")
    assert code == 0
    assert shell(tmp_path, "tune", "--store", "runs.db")[1] == out
    assert "1 run with 5 steps: 1 ended DONE, 0 otherwise" in out
    assert "max_repeated_tool_steps        5" in out
    assert "[guardrails]" in out


@pytest.mark.parametrize("name", ["missing.db", "nonsense://x"])
def test_a_store_that_is_not_there_is_refused_and_not_made(tmp_path, name):
    code, _, err = shell(tmp_path, "sim", "tune", name)
    assert code == 2
    assert "store" in err
    assert not (tmp_path / name).exists()


def test_a_store_without_tool_calls_says_so(tmp_path):
    import asyncio

    async def prepare():
        store = SqliteStore(tmp_path / "runs.db")
        await fill(store, [say("done")])
        await store.close()

    asyncio.run(prepare())
    code, _, err = shell(tmp_path, "sim", "tune", "runs.db")
    assert (code, "nothing to replay" in err) == (2, True)
