"""Many runs at once: what is stopped together hears of it together, and a run that has ended is gone."""

import asyncio
import gc
import sys
import tracemalloc

import pytest

from glidepath import Agent, CancelToken, Limits, Plugin, tool
from glidepath.events import ToolEnded
from glidepath.run import Run
from glidepath.testing import ScriptedModel, call, say

LIMITS = Limits(max_iterations=5, max_tokens=10**6, max_tool_calls=50, timeout=600)
MOST_KIB = {(3, 11): 12.3}
"""Of memory for a streamed run that waits for its model. Lower it when a run gets smaller."""
MOST_TRACKED = {(3, 11): 79}
"""Of its objects that the garbage collector looks at, the task and the generators of asyncio included."""


@tool
async def look(what: str) -> str:
    return f"saw {what}"


def agent_with(*tools, model=None):
    return Agent(model=model or ScriptedModel([call("look", what="a"), say("done")]), tools=tools, limits=LIMITS)


async def consume(agent, cancel=None):
    async with agent.stream("go", cancel=cancel) as stream:
        async for _ in stream:
            pass
    return stream.result


async def until(true):
    while not true():  # noqa: ASYNC110 - what is waited for is a step of the loop away
        await asyncio.sleep(0)


def runs_alive():
    return {id(one): one.run_id for one in gc.get_objects() if type(one) is Run}


@pytest.mark.parametrize("way", ["task", "token"])
def test_tools_that_are_stopped_together_all_hear_of_it_before_any_run_continues(way):
    happened, waiting = [], []

    @tool
    async def wait() -> str:
        waiting.append(1)
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            happened.append("heard")
            raise
        return "never"

    class Ended(Plugin):
        name = "ended"

        def event_observer(self, event):
            if type(event) is ToolEnded:
                happened.append("ended")

    async def main():
        token = CancelToken()
        agents = [
            Agent(model=ScriptedModel([call("wait"), say("never")]), tools=[wait], limits=LIMITS, plugins=[Ended()])
            for _ in range(5)
        ]
        tasks = [asyncio.create_task(consume(agent, token)) for agent in agents]
        await until(lambda: len(waiting) == len(tasks))
        if way == "token":
            token.cancel("enough")
        else:
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(main())
    assert happened == ["heard"] * 5 + ["ended"] * 5


@pytest.mark.parametrize("way", ["run", "stream", "cancelled"])
def test_a_run_that_has_ended_is_freed_at_once(way):
    waiting = []

    @tool
    async def wait() -> str:
        waiting.append(1)
        await asyncio.sleep(10_000)
        return "never"

    async def one():
        if way == "run":
            await agent_with(look).run("go")
        elif way == "stream":
            await consume(agent_with(look))
        else:
            token, before = CancelToken(), len(waiting)
            agent = agent_with(wait, model=ScriptedModel([call("wait"), say("never")]))
            task = asyncio.create_task(consume(agent, token))
            await until(lambda: len(waiting) > before)
            token.cancel()
            await task

    async def main():
        await one()
        gc.collect()
        before = runs_alive()  # of tests that came earlier
        gc.disable()
        try:
            await one()
            await asyncio.sleep(0)
            return runs_alive().keys() - before.keys()
        finally:
            gc.enable()

    assert asyncio.run(main()) == set()


def each_waiting_run(measure):
    """How much a figure grows with each streamed run that waits for its model."""
    count, waiting = 50, []

    class Patient(ScriptedModel):
        async def stream(self, request):
            waiting.append(1)
            await asyncio.sleep(10_000)
            yield None

    agent = agent_with(look, model=Patient([]))

    async def main():
        await consume(agent_with(look))
        gc.collect()
        gc.disable()
        tracer = sys.gettrace()
        sys.settrace(None)  # coverage keeps something for every frame
        tracemalloc.start()
        try:
            before = measure()
            tasks = [asyncio.create_task(consume(agent)) for _ in range(count)]
            await until(lambda: len(waiting) == count)
            await asyncio.sleep(0)
            grown = measure() - before
        finally:
            tracemalloc.stop()
            sys.settrace(tracer)
            gc.enable()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return grown / count

    return asyncio.run(main())


def test_a_streamed_run_that_waits_takes_little_memory():
    if sys.version_info[:2] not in MOST_KIB:
        pytest.skip(f"nobody has measured Python {sys.version_info[0]}.{sys.version_info[1]}")
    assert each_waiting_run(lambda: tracemalloc.get_traced_memory()[0]) / 1024 <= MOST_KIB[sys.version_info[:2]]


def test_a_streamed_run_that_waits_has_few_objects_that_the_garbage_collector_looks_at():
    if sys.version_info[:2] not in MOST_TRACKED:
        pytest.skip(f"nobody has measured Python {sys.version_info[0]}.{sys.version_info[1]}")
    assert each_waiting_run(lambda: len(gc.get_objects())) <= MOST_TRACKED[sys.version_info[:2]]
