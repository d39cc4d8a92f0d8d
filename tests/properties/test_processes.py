"""Twenty runs with tools in processes of their own, in real time: one result each, and no process is left."""

import asyncio
import importlib.util
import os
import sys
import time
from pathlib import Path

import pytest

from glidepath import Agent, AgentState, CancelToken, ExecutionMode, Limits, LoopOutcome
from glidepath.events import RunEnded
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, no_leftovers, transcript_errors

pytestmark = pytest.mark.process

LIMITS = Limits(max_iterations=4)
ENOUGH = 10.0  # real seconds for an interpreter to start on a busy machine
KILL = 2.5  # and for a child that ignores SIGTERM to be killed: its grace is half a second


def load():
    spec = importlib.util.spec_from_file_location("process_tools", Path(__file__).parent / "process_tools.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TOOLS = load().TOOLS


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def begun(files):
    """The ids of the processes, once they have written them down."""
    deadline = time.monotonic() + ENOUGH
    while not all(path.exists() for path in files):
        assert time.monotonic() < deadline, "the tools did not start"
        await asyncio.sleep(0.005)
    return [int(path.read_text()) for path in files]


def scene(tmp_path, names, then, **settings):
    """An agent whose first reply calls these tools, the files they write, and a recorder of its events."""
    files = [tmp_path / f"{number}.pid" for number in range(len(names))]
    turn = calls(*[call(name, pid_file=str(path)) for name, path in zip(names, files, strict=True)], text="so far")
    recorder = EventRecorder()
    settings = {"limits": LIMITS, "default_execution_mode": ExecutionMode.PARALLEL} | settings
    agent = Agent(
        model=ScriptedModel([turn, *then]), tools=TOOLS, plugins=[recorder.as_plugin()], max_retries=0, **settings
    )
    return agent, files, recorder


def kinds(result):
    return [message.kind for message in result.messages if message.role == "tool_result"]


# --- by themselves --------------------------------------------------------------------------------------------

ENDS = {
    "returns": (["returns"], [None]),
    "raises": (["raises"], ["ChildError"]),
    "tells": (["tells"], ["ToolError"]),
    "exits": (["exits"], ["ChildError"]),
    "dies": (["dies"], ["ToolError"]),
    "huge": (["huge"], [None]),
    "several": (["returns", "raises", "dies", "returns"], [None, "ChildError", "ToolError", None]),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_process_that_ends_by_itself_gives_its_one_result(tmp_path, case):
    names, wanted = ENDS[case]
    agent, files, recorder = scene(tmp_path, names, ["done"])

    async def fly():
        async with no_leftovers(grace=2):
            return await agent.run("go")

    result = asyncio.run(fly())
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    assert kinds(result) == wanted
    assert all(is_gone(int(path.read_text())) for path in files)
    assert transcript_errors(result.messages) == []
    recorder.assert_legal()


def test_a_fatal_error_in_a_process_ends_the_run(tmp_path):
    agent, _, recorder = scene(tmp_path, ["is_fatal", "returns"], [])
    result = asyncio.run(agent.run("go"))
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "tool")
    assert kinds(result) == ["FatalToolError", None]
    recorder.assert_legal()


# --- stopped --------------------------------------------------------------------------------------------------

STUCK = [["hangs"], ["ignores_sigterm"], ["hangs", "ignores_sigterm", "hangs"]]


@pytest.mark.parametrize("names", STUCK, ids="+".join)
@pytest.mark.parametrize("how", ["token", "task", "leave"])
def test_a_process_is_killed_when_its_run_is_stopped(tmp_path, names, how):
    agent, files, recorder = scene(tmp_path, names, [])

    async def fly():
        async with no_leftovers(grace=2):
            token = CancelToken()
            main = asyncio.create_task(stream(agent) if how == "leave" else agent.run("go", cancel=token))
            pids = await begun(files)
            stopped = time.monotonic()
            if how == "token":
                token.cancel()
            else:
                main.cancel()
            await asyncio.wait({main})
            assert time.monotonic() - stopped < KILL
            assert all(map(is_gone, pids))
            if how != "token":
                assert main.cancelled()

    asyncio.run(fly())
    result = recorder.one(RunEnded).result
    assert (result.state, result.outcome, result.text) == (AgentState.CANCELLED, LoopOutcome.CANCELLED, "so far")
    assert kinds(result) == ["cancelled"] * len(names)
    assert result.abandoned == ()
    recorder.assert_legal()


async def stream(agent):
    async with agent.stream("go") as events:
        async for _ in events:
            pass


@pytest.mark.parametrize("name", ["hangs", "ignores_sigterm"])
def test_a_process_that_takes_too_long_is_killed_and_the_run_goes_on(tmp_path, name):
    agent, files, recorder = scene(tmp_path, [name], ["without it"], tool_timeout=1.5)
    result = asyncio.run(agent.run("go"))
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "without it")
    assert kinds(result) == ["timeout"]
    assert not files[0].exists() or is_gone(int(files[0].read_text()))
    recorder.assert_legal()


def test_a_process_is_killed_at_the_deadline(tmp_path):
    agent, files, recorder = scene(
        tmp_path, ["ignores_sigterm"], ["landed"], limits=Limits(timeout=6, landing_seconds=1.5)
    )
    begin = time.monotonic()
    result = asyncio.run(agent.run("go"))
    assert (result.state, result.outcome, result.text) == (AgentState.TIMED_OUT, LoopOutcome.WRAPPED_UP, "landed")
    assert time.monotonic() - begin < 6
    assert is_gone(int(files[0].read_text()))
    recorder.assert_legal()
