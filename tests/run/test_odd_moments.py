"""The moments nobody thinks of: between an interrupt and its landing, before the first wait, long after the run."""

import asyncio
import contextlib

import pytest

from glidepath import INHERIT, Agent, AgentState, CancelToken, Limits, LoopOutcome, tool
from glidepath.errors import RateLimitedError
from glidepath.events import LandingStarted, RunEnded, StreamChunk
from glidepath.messages import StreamEnd, TextDelta, Usage
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, fail, hang, say, virtual

LIMITS = Limits(max_iterations=3)


# --- between an interrupt and the landing ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["token", "task", "both"])
@virtual
async def test_a_cancel_that_comes_while_a_run_gives_way_is_the_end_of_its_landing(how):
    recorder, token = EventRecorder(), CancelToken()
    model = ScriptedModel([call("last_words")]).forever(hang())

    def cancel():
        if how != "task":
            token.cancel("stop")
        if how != "token":
            task.cancel()

    @tool
    async def last_words() -> str:
        try:
            await asyncio.sleep(10_000)
        finally:  # its run goes on in this round, and in the next it has given way
            asyncio.get_running_loop().call_soon(cancel)

    limits = Limits(timeout=30, landing_seconds=10)
    agent = Agent(model=model, tools=[last_words], limits=limits, plugins=[recorder.as_plugin()])
    task = asyncio.create_task(agent.run("go", cancel=token))
    await asyncio.wait({task})
    assert task.cancelled() is (how != "token")
    result = recorder.one(RunEnded).result
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert (len(model.requests), result.landing_calls) == (1, 0)
    assert recorder.of(LandingStarted) == []


# --- before the first wait ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
@virtual
async def test_a_task_that_has_cancelled_itself_before_its_run_is_cancelled(streamed):
    model = ScriptedModel([]).forever(say("done"))
    agent = Agent(model=model, limits=LIMITS)

    async def program():
        asyncio.current_task().cancel()
        if not streamed:
            return await agent.run("go")
        async with agent.stream("go") as stream:
            async for _ in stream:
                pass
        return stream.result

    task = asyncio.create_task(program())
    await asyncio.wait({task})
    assert task.cancelled()
    assert len(model.requests) <= 1


@virtual
async def test_a_run_in_the_cleanup_of_a_cancelled_task_is_not_disturbed():
    agent = Agent(model=ScriptedModel([say("tidied up")], delay=1), limits=LIMITS)

    async def program():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return await agent.run("tidy up")

    task = asyncio.create_task(program())
    await asyncio.sleep(1)
    task.cancel()
    assert (await task).text == "tidied up"


# --- who consumes ---------------------------------------------------------------------------------------------------


@virtual
async def test_a_consumer_that_reads_ahead_misses_nothing():
    agent = Agent(model=ScriptedModel([say("one two three four five six")]), limits=LIMITS)
    seen = []
    async with agent.stream("go") as stream:
        async for event in stream:
            seen.append(event)
            ahead = await anext(stream, None)
            if ahead is not None:
                seen.append(ahead)
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    assert type(seen[-1]) is RunEnded


@virtual
async def test_a_second_consumer_at_the_same_time_is_told_so_and_disturbs_nobody():
    agent = Agent(model=ScriptedModel([say("one two")], delay=1), limits=LIMITS)

    async def consume(stream):
        return [event async for event in stream]

    async with asyncio.timeout(100):
        async with agent.stream("go") as stream:
            first, second = await asyncio.gather(consume(stream), consume(stream), return_exceptions=True)
    assert isinstance(second, RuntimeError)
    assert "one consumer at a time" in str(second)
    assert type(first[-1]) is RunEnded
    assert stream.result.text == "one two"


# --- time of its own ------------------------------------------------------------------------------------------------


class Impatient:
    """A model that gives up waiting for something, by a timeout of its own, and goes on."""

    name = "impatient"
    max_output_tokens = 100

    async def stream(self, request):
        yield TextDelta("one ")
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(100)
        except TimeoutError:
            yield TextDelta("two")
        yield StreamEnd("end_turn", Usage(1, 1))


@virtual
async def test_a_chunk_that_comes_after_a_timeout_of_the_models_own_has_its_own_time():
    recorder = EventRecorder()
    await Agent(model=Impatient(), limits=LIMITS, event_sink=recorder).run("go")
    first, second = [chunk.time for chunk in recorder.of(StreamChunk) if chunk.text]
    assert second - first == 5


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a batch"])
@virtual
async def test_abandoned_work_may_use_timeouts_of_its_own(together):
    """Its own timeouts cancel its task as the end of the program does: only that one is meant for it."""
    tidied = []

    @tool
    async def tidy() -> str:
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(5)
            for part in range(3):
                try:
                    async with asyncio.timeout(3):
                        await asyncio.sleep(100)
                except TimeoutError:
                    await asyncio.sleep(3)
                    tidied.append(part)
        return "tidied up"

    @tool
    async def quick() -> str:
        return "quick"

    turn = calls(call("tidy"), call("quick")) if together else call("tidy")
    agent = Agent(model=ScriptedModel([turn, say("done")]), tools=[tidy, quick], limits=LIMITS, tool_timeout=2)
    result = await agent.run("go")
    assert [work.tool_name for work in result.abandoned] == ["tidy"]
    await asyncio.sleep(100)
    assert tidied == [0, 1, 2]


@tool
async def deaf() -> str:
    async with asyncio.timeout(5):
        await _for_ever()


@tool
async def deaf_group() -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(_fail())
        await _for_ever()


async def _fail():
    await asyncio.sleep(5)
    raise ValueError("too late")


async def _for_ever():
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


class DeafModel:
    name = "deaf"
    max_output_tokens = 100

    async def stream(self, request):
        async with asyncio.timeout(5):
            yield TextDelta("I never")
            await _for_ever()


@pytest.mark.parametrize(
    ("model", "more"),
    [
        (lambda: ScriptedModel([call("deaf"), say("done")]), {"tool_timeout": 2}),
        (lambda: ScriptedModel([call("deaf_group"), say("done")]), {"tool_timeout": 2}),
        (DeafModel, {"stall_timeout": 2, "max_retries": 0}),
    ],
    ids=["a tool in a timeout", "a tool in a task group", "a model in a timeout"],
)
@virtual
async def test_abandoned_work_can_never_cancel_whoever_called_the_run(model, more):
    """A timeout cancels the task in which it was entered; that was the caller's, while the run waited for it."""
    result = await Agent(model=model(), tools=[deaf, deaf_group], limits=LIMITS, **more).run("go")
    assert len(result.abandoned) == 1
    assert result.elapsed < 5
    await asyncio.sleep(100)
    assert not asyncio.current_task().cancelling()


# --- a run inside a run ---------------------------------------------------------------------------------------------


@tool
async def nap() -> str:
    await asyncio.sleep(100)
    return "napped"


def inner(*turns):
    return Agent(model=ScriptedModel(list(turns)).forever(say("went on")), tools=[nap, deaf], limits=LIMITS)


NESTED = {
    "in a tool": [call("nap")],
    "in a batch": [calls(call("nap"), call("nap"))],
    "in a stream": [hang("so far")],
    "in a back-off": [fail(RateLimitedError("busy", retry_after=50))],
}


@pytest.mark.parametrize("how", ["timeout", "token", "task"])
@pytest.mark.parametrize("scene", NESTED)
@virtual
async def test_a_run_inside_a_tool_stops_when_the_tool_is_asked_to(scene, how):
    agent, token = inner(*NESTED[scene]), CancelToken()

    @tool
    async def ask_another() -> str:
        return (await agent.run("go")).text

    more = {"tool_timeout": 2} if how == "timeout" else {}
    model = ScriptedModel([call("ask_another"), say("done")])
    recorder = EventRecorder()
    outer = Agent(model=model, tools=[ask_another], limits=LIMITS, plugins=[recorder.as_plugin()], **more)
    task = asyncio.create_task(outer.run("go", cancel=token))
    await asyncio.sleep(2)
    if how == "token":
        token.cancel()
    if how == "task":
        task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() is (how == "task")
    result = recorder.one(RunEnded).result
    assert result.elapsed == 2
    assert result.abandoned == ()
    assert "The tool was stopped" in next(one.text for one in result.messages if one.role == "tool_result")
    assert len(agent.config.model.requests) == 1


@pytest.mark.parametrize(("parent", "let_go", "seconds"), [(None, 1, 3), (INHERIT, 2, 4)])
@virtual
async def test_a_run_inside_a_tool_that_is_abandoned_never_cancels_whoever_called_the_outer_run(
    parent, let_go, seconds
):
    agent = inner(call("deaf"))

    @tool
    async def ask_another() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(100)
        return (await agent.run("go", parent=parent)).text

    model = ScriptedModel([call("ask_another"), say("done")])
    result = await Agent(model=model, tools=[ask_another], limits=LIMITS, tool_timeout=2).run("go")
    assert (result.text, len(result.abandoned), result.elapsed) == ("done", let_go, seconds)
    await asyncio.sleep(100)
    assert not asyncio.current_task().cancelling()
