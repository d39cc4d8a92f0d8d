"""`run_sync`: the same run for code without a loop, and for code inside one."""

import asyncio
import threading

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.testing import ScriptedModel, call, no_leftovers

LIMITS = Limits(max_iterations=3)


@tool
async def where() -> str:
    return threading.current_thread().name


def test_outside_a_loop_it_runs_in_the_callers_thread():
    with ScriptedModel([call("where"), "done"]) as model:
        result = Agent(model=model, tools=[where], limits=LIMITS).run_sync("go")
    assert result.outcome is LoopOutcome.DONE
    assert result.messages[2].text == threading.current_thread().name


def test_inside_a_running_loop_it_uses_a_thread_and_a_loop_of_its_own():
    async def notebook():
        async with no_leftovers():
            with ScriptedModel([call("where"), "done"]) as model:
                return Agent(model=model, tools=[where], limits=LIMITS).run_sync("go")

    result = asyncio.run(notebook())
    assert result.outcome is LoopOutcome.DONE
    assert result.messages[2].text == "glidepath-run-sync"


def test_a_wrong_argument_is_raised_outside_and_inside_a_loop():
    agent = Agent(model=ScriptedModel([]), limits=LIMITS)
    with pytest.raises(ConfigurationError, match="prompt"):
        agent.run_sync("")

    async def notebook():
        agent.run_sync("")

    with pytest.raises(ConfigurationError, match="prompt"):
        asyncio.run(notebook())


def test_a_sync_tool_that_blocks_forever_does_not_keep_the_loop_from_closing():
    release = threading.Event()

    @tool(timeout=0.05)
    def block() -> str:
        release.wait(30)
        return "late"

    with ScriptedModel([call("block"), "without it"]) as model:
        result = Agent(model=model, tools=[block], limits=LIMITS).run_sync("go")
    release.set()
    assert result.text == "without it"
    assert [item.kind for item in result.abandoned] == ["thread"]
