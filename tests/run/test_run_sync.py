"""`run_sync`: the same run for code without a loop, and for code inside one."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.models import StreamEnd, TextDelta
from glidepath.run import check_thread_is_free
from glidepath.testing import ScriptedModel, call, no_leftovers, virtual

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


def hit(where, nth, folder):
    """How a run ends in a process where a signal handler raises at the `nth` call of this function of asyncio."""
    program = [sys.executable, "-W", "ignore", Path(__file__).with_name("hit_loop.py"), where, str(nth), folder]
    done = subprocess.run(program, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.split(), done.stderr


@pytest.mark.process
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_loop_whose_last_callback_was_hit_by_a_signal_handler_still_ends(nth, tmp_path):
    """asyncio logs what is raised in a callback and goes on; the one that stops the loop is not called again."""
    ended, said = hit("_run_until_complete_cb", nth, tmp_path)
    assert ended in (["DONE", "hit", "DONE"], ["raised", "hit", "DONE"]), said


@pytest.mark.process
@pytest.mark.parametrize("nth", range(1, 11))
def test_a_loop_that_was_hit_between_two_steps_ends_and_raises_what_hit_it(nth, tmp_path):
    """The step of a task is lost: nobody will ever call that task again. The store serves the next run."""
    ended, said = hit("_run", nth, tmp_path)
    assert ended in (["DONE", "hit", "DONE"], ["raised", "hit", "DONE"]), said


def test_a_loop_that_is_looked_at_as_its_run_ends_still_closes_what_the_run_has_left():
    """The look used to stop the loop itself; what stops it anyway stayed behind and stopped the closing instead."""
    left, closed = [], []

    async def lingers():
        try:
            yield
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            closed.append(True)

    class Last:
        name = "last"

        async def stream(self, request):
            left.append(lingers())
            await anext(left[0])
            time.sleep(0.7)  # noqa: ASYNC251 - the look at the loop is due now, and the run ends in the same round
            await asyncio.sleep(0)
            yield TextDelta("done")
            yield StreamEnd("end_turn")

    assert Agent(model=Last(), limits=LIMITS).run_sync("go").text == "done"
    assert closed


def test_what_a_callback_of_somebody_else_raises_is_logged_and_the_run_goes_on(caplog):
    @tool
    async def slip() -> str:
        """Slip."""
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0.01)
        return "slipped"

    agent = Agent(model=ScriptedModel([call("slip"), "done"]), tools=[slip], limits=LIMITS)
    assert agent.run_sync("go").outcome is LoopOutcome.DONE
    assert "ZeroDivisionError" in caplog.text


@virtual
async def test_a_thread_that_has_a_loop_already_is_told_to_use_a_real_one():
    with pytest.raises(ConfigurationError, match="gevent's patched threads share a real one"):
        check_thread_is_free()
