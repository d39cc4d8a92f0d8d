"""Tools that report without ever waiting: the loop turns, limits and cancel work, and reports are bounded."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from glidepath import Agent, CancelToken, ExecutionMode, Limits, LoopOutcome, ToolContext, tool
from glidepath.events import ToolEnded, ToolProgress, ToolStarted
from glidepath.kernel.tool_calls import MOST_REPORTED
from glidepath.run import HIGH_WATER
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, no_leftovers, say, virtual

MUCH = 100_000


def endless(during=lambda number: None):
    """Values without end and without a pause; `during` is told their number."""
    for number in range(MUCH):
        during(number)
        yield f"tick {number}"
    raise AssertionError("nothing has stopped it")


def breathless(kind, during=lambda number: None):
    @tool(name="breathless")
    async def asynchronous():
        """Report for ever."""
        for value in endless(during):
            yield value

    @tool(name="breathless", isolation="inline")
    def plain():
        """Report for ever."""
        yield from endless(during)

    class Iterator:
        def __init__(self):
            self.values = endless(during)

        def __aiter__(self):
            return self

        async def __anext__(self):
            return next(self.values)

    @tool(name="breathless")
    async def iterator() -> AsyncIterator[str]:
        """Report for ever."""
        return Iterator()

    return {"an async generator": asynchronous, "a plain generator": plain, "an async iterator": iterator}[kind]


KINDS = ["an async generator", "a plain generator", "an async iterator"]
MANY = {"alone": call("breathless"), "in a batch": calls(call("breathless"), call("breathless"))}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", MANY)
@virtual
async def test_g7_a_cancel_stops_a_tool_that_never_waits(kind, batch):
    token = CancelToken()

    def during(number):
        if number == 50:
            asyncio.get_running_loop().call_soon(token.cancel)

    recorder = EventRecorder()
    agent = Agent(
        model=ScriptedModel([MANY[batch]]),
        tools=[breathless(kind, during)],
        limits=Limits(max_iterations=3),
        event_sink=recorder,
        default_execution_mode=ExecutionMode.PARALLEL,
    )
    async with no_leftovers():
        result = await agent.run("go", cancel=token)
    assert (result.outcome, result.abandoned) == (LoopOutcome.CANCELLED, ())
    assert len(recorder.of(ToolProgress)) < 1_000
    assert len(recorder.of(ToolStarted)) == len(recorder.of(ToolEnded))


@pytest.mark.parametrize("kind", KINDS)
def test_g7_a_time_limit_stops_a_tool_that_never_waits(kind):
    model = ScriptedModel([call("breathless"), say("answer")])
    agent = Agent(model=model, tools=[breathless(kind)], tool_timeout=0.05, limits=Limits(max_iterations=3))
    result = asyncio.run(agent.run("go"))
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "answer")
    assert "no result within 0.05 s" in result.messages[2].text


@virtual
async def test_the_last_value_is_still_the_result():
    @tool
    async def counting():
        """Count."""
        for number in range(1_000):
            yield number

    recorder = EventRecorder()
    model = ScriptedModel([call("counting"), say("answer")])
    await Agent(model=model, tools=[counting], limits=Limits(max_iterations=3), event_sink=recorder).run("go")
    assert [event.progress for event in recorder.of(ToolProgress)] == list(range(999))
    assert recorder.of(ToolEnded)[0].result.text == "999"


@virtual
async def test_reports_that_nobody_reads_are_dropped_oldest_first_and_counted():
    @tool
    async def chatty(context: ToolContext):
        """Report a lot, before anybody can read it."""
        for number in range(3 * HIGH_WATER):
            context.report(number)
        return "done"

    model = ScriptedModel([call("chatty"), say("answer")])
    agent = Agent(model=model, tools=[chatty], limits=Limits(max_iterations=3))
    async with agent.stream("go") as stream:
        seen = [event async for event in stream if isinstance(event, ToolProgress)]
    assert len(seen) <= HIGH_WATER
    assert seen[-1].progress == 3 * HIGH_WATER - 1
    assert len(seen) + seen[-1].dropped == 3 * HIGH_WATER


@virtual
async def test_a_call_that_reports_little_loses_nothing_to_one_that_reports_a_lot():
    @tool(read_only=True)
    async def chatty(context: ToolContext):
        """Report a lot, before anybody can read it."""
        for number in range(2 * HIGH_WATER):
            context.report(number)
        return "done"

    @tool(read_only=True)
    async def quiet(context: ToolContext):
        """Report once."""
        context.report("halfway")
        return "done"

    model = ScriptedModel([calls(call("chatty"), call("quiet")), say("answer")])
    agent = Agent(model=model, tools=[chatty, quiet], limits=Limits(max_iterations=3))
    async with agent.stream("go") as stream:
        seen = [event async for event in stream if isinstance(event, ToolProgress)]
    assert [(event.progress, event.dropped) for event in seen if event.tool_name == "quiet"] == [("halfway", 0)]


@virtual
async def test_reports_from_a_thread_do_not_pile_up_before_the_loop():
    @tool
    def chatty(context: ToolContext) -> str:
        """Report a lot from a thread."""
        reporters = [threading.Thread(target=lambda: [context.report(n) for n in range(2_000)]) for _ in range(4)]
        for reporter in reporters:
            reporter.start()
        for reporter in reporters:
            reporter.join()
        context.report("last")
        return "done"

    recorder = EventRecorder()
    model = ScriptedModel([call("chatty"), say("answer")])
    await Agent(model=model, tools=[chatty], limits=Limits(max_iterations=3), event_sink=recorder).run("go")
    seen = recorder.of(ToolProgress)
    assert seen[-1].progress == "last"
    assert len(seen) + seen[-1].dropped == 8_001


@pytest.mark.parametrize("text", ["x" * 100_000, b"x" * 100_000])
@virtual
async def test_a_long_report_is_cut(text):
    @tool
    async def chatty(context: ToolContext):
        """Report much at once."""
        context.report(text)
        return "done"

    recorder = EventRecorder()
    model = ScriptedModel([call("chatty"), say("answer")])
    await Agent(model=model, tools=[chatty], limits=Limits(max_iterations=3), event_sink=recorder).run("go")
    assert len(recorder.of(ToolProgress)[0].progress) <= MOST_REPORTED


@virtual
async def test_g17_a_generator_on_a_thread_ends_soon_after_it_was_let_go():
    token, ended = CancelToken(), threading.Event()

    @tool
    def endless_on_a_thread():
        """Report for ever, on a thread."""
        try:
            token.cancel()
            while True:
                yield "tick"
        finally:
            ended.set()

    model = ScriptedModel([call("endless_on_a_thread")])
    agent = Agent(model=model, tools=[endless_on_a_thread], limits=Limits(max_iterations=3))
    result = await agent.run("go", cancel=token)
    assert [work.kind for work in result.abandoned] == ["thread"]
    assert ended.wait(10)
