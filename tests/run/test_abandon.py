"""Work that ignores its cancellation is let go of within a second, listed, and never heard of again (SPEC 2.7, G17)."""

import asyncio
import contextlib
import threading

import pytest

from glidepath import Agent, AgentState, CancelToken, ExecutionMode, Limits, LoopOutcome, ToolContext, tool
from glidepath.messages import StreamEnd, TextDelta, Usage
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    VirtualClock,
    call,
    calls,
    live_work,
    transcript_errors,
    virtual,
    work,
)

LIMITS = Limits(max_iterations=5)


class Stubborn:
    """A tool that goes on until it is released, whatever it is told."""

    def __init__(self):
        self.release = asyncio.Event()
        self.ended = False

    async def __call__(self):
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        self.ended = True
        return "late"


def stubborn_tools():
    go_on = Stubborn()

    @tool
    async def stubborn() -> str:
        return await go_on()

    @tool
    async def reporting(context: ToolContext) -> str:
        await go_on()
        context.report("late progress")
        return f"cancelled: {context.cancelled}"

    return go_on, [stubborn, reporting]


@pytest.mark.parametrize("turn", [call("stubborn"), call("reporting"), calls(call("stubborn"), call("reporting"))])
@virtual
async def test_inline_work_is_let_go_of_after_a_second(turn):
    go_on, tools = stubborn_tools()
    token, recorder, before = CancelToken(), EventRecorder(), work()
    asyncio.get_running_loop().call_later(2, token.cancel)
    agent = Agent(
        model=ScriptedModel([turn]),
        tools=tools,
        limits=LIMITS,
        plugins=[recorder.as_plugin()],
        default_execution_mode=ExecutionMode.PARALLEL,
    )
    result = await agent.run("go", cancel=token)
    assert (result.outcome, result.elapsed) == (LoopOutcome.CANCELLED, 3)
    names = [made.name for made in turn.calls]
    assert [(item.tool_name, item.kind) for item in result.abandoned] == [(name, "task") for name in names]
    results = [message for message in result.messages if message.role == "tool_result"]
    assert [message.kind for message in results] == ["not_stopped"] * len(names)
    assert "did not stop" in results[0].text
    assert len(live_work(before)) == len(names)
    recorder.assert_legal()
    await released(go_on, recorder, result)
    assert live_work(before) == []


async def released(go_on, recorder, result):
    """What comes of it later is discarded."""
    events, messages = len(recorder), result.messages
    go_on.release.set()
    await asyncio.sleep(1)
    assert go_on.ended
    assert len(recorder) == events
    assert result.messages == messages


@virtual
async def test_a_tool_that_times_out_and_does_not_stop_is_let_go_of_and_the_run_goes_on():
    go_on, (stubborn, _) = stubborn_tools()
    with ScriptedModel([call("stubborn"), "without it"]) as model:
        agent = Agent(model=model, tools=[stubborn], limits=LIMITS, tool_timeout=5)
        result = await agent.run("go")
    assert (result.outcome, result.text, result.elapsed) == (LoopOutcome.DONE, "without it", 6)
    assert [(item.tool_name, item.reason) for item in result.abandoned] == [("stubborn", "no result within 5 s")]
    assert result.messages[2].kind == "not_stopped"
    go_on.release.set()


@virtual
async def test_near_the_deadline_patience_is_half_of_what_is_left():
    go_on, (stubborn, _) = stubborn_tools()
    model = ScriptedModel([call("stubborn"), "landed"])
    agent = Agent(model=model, tools=[stubborn], limits=Limits(timeout=10, landing_seconds=1))
    result = await agent.run("go")
    assert (result.state, result.outcome) == (AgentState.TIMED_OUT, LoopOutcome.WRAPPED_UP)
    assert result.elapsed == 9.5
    go_on.release.set()


@virtual
async def test_a_late_result_in_the_middle_of_the_run_is_discarded():
    go_on, (stubborn, _) = stubborn_tools()

    @tool
    async def let_it_go() -> str:
        go_on.release.set()
        await asyncio.sleep(5)
        return "released"

    recorder = EventRecorder()
    with ScriptedModel([call("stubborn"), call("let_it_go"), "done"]) as model:
        agent = Agent(
            model=model,
            tools=[stubborn, let_it_go],
            limits=LIMITS,
            tool_timeout=10,
            plugins=[recorder.as_plugin()],
        )
        result = await agent.run("go")
    assert go_on.ended
    assert [message.text for message in result.messages if message.role == "tool_result"][1:] == ["released"]
    assert transcript_errors(result.messages) == []
    recorder.assert_legal()


@virtual
async def test_a_thread_is_let_go_of_at_once():
    begun, release = threading.Event(), threading.Event()
    seen = []

    @tool
    def block(context: ToolContext) -> str:
        begun.set()
        release.wait(20)
        context.report("late progress")
        seen.append(context.cancelled)
        return "late"

    token, recorder, before = CancelToken(), EventRecorder(), work()
    agent = Agent(model=ScriptedModel([call("block")]), tools=[block], limits=LIMITS, plugins=[recorder.as_plugin()])
    running = asyncio.create_task(agent.run("go", cancel=token))
    while not begun.is_set():  # noqa: ASYNC110 - set by a thread
        await asyncio.sleep(0)
    token.cancel()
    result = await running
    assert (result.outcome, result.elapsed) == (LoopOutcome.CANCELLED, 0)
    assert [(item.tool_name, item.kind) for item in result.abandoned] == [("block", "thread")]
    assert live_work(before) == ["thread glidepath-tool-block"]
    events = len(recorder)
    release.set()
    while live_work(before):  # noqa: ASYNC110 - until the thread is gone
        await asyncio.sleep(0)
    assert seen == [True]
    assert len(recorder) == events


# --- a model's stream -----------------------------------------------------------------------------------------


class Dripping:
    """A stream that goes on dripping words, whatever it is told."""

    name = "dripping"

    def __init__(self, words=400, *, end=False):
        self.words = words
        self.end = end
        self.streams = 0

    async def stream(self, request):
        self.streams += 1
        for number in range(self.words):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
            yield TextDelta(f"{number} ")
        if self.end:
            yield StreamEnd("end_turn", Usage(10, self.words))


@virtual
async def test_a_stream_that_ignores_cancellation_is_let_go_of_and_never_heard_again():
    token, recorder = CancelToken(), EventRecorder()
    asyncio.get_running_loop().call_later(0.5, token.cancel)
    agent = Agent(model=Dripping(), limits=LIMITS, plugins=[recorder.as_plugin()])
    result = await agent.run("go", cancel=token)
    assert (result.outcome, result.elapsed) == (LoopOutcome.CANCELLED, 1.5)
    assert [(item.tool_name, item.kind) for item in result.abandoned] == [("dripping", "stream")]
    assert result.text.startswith("0 1 2 3 ")
    assert result.partial
    assert result.usage.output > 50, "what was streamed until then is charged"
    events = len(recorder)
    await asyncio.sleep(100)
    assert len(recorder) == events
    recorder.assert_legal()


@virtual
async def test_the_deltas_of_a_stream_that_was_let_go_of_do_not_mix_with_the_next_attempt():
    recorder = EventRecorder()

    class Twice(Dripping):
        async def stream(self, request):
            if self.streams:
                self.streams += 1
                await asyncio.sleep(0.5)
                yield TextDelta("the answer")
                yield StreamEnd("end_turn")
                return
            async for delta in super().stream(request):
                yield delta

    model = Twice()
    result = await Agent(model=model, limits=LIMITS, call_timeout=1, event_sink=recorder).run("go")
    assert (result.outcome, result.text, model.streams) == (LoopOutcome.DONE, "the answer", 2)
    assert len(result.abandoned) == 1
    recorder.assert_legal()


@virtual
async def test_a_reply_that_is_complete_counts_although_its_stream_does_not_close():
    class Lingering:
        name = "lingering"

        async def stream(self, request):
            yield TextDelta("all said")
            yield StreamEnd("end_turn")
            while True:
                try:
                    await asyncio.sleep(50)
                    return
                except asyncio.CancelledError:
                    continue

    result = await Agent(model=Lingering(), limits=LIMITS).run("go")
    assert (result.outcome, result.text, result.partial) == (LoopOutcome.DONE, "all said", False)
    assert result.elapsed <= 1
    assert [item.kind for item in result.abandoned] == ["stream"]
    await asyncio.sleep(100)


# --- what a tool keeps ----------------------------------------------------------------------------------------


@virtual
async def test_a_context_that_is_kept_beyond_its_run_reports_to_nobody():
    kept = []

    @tool
    async def keep(context: ToolContext) -> str:
        kept.append(context)
        return "kept"

    recorder = EventRecorder()
    agent = Agent(model=ScriptedModel([call("keep"), "done"]), tools=[keep], limits=LIMITS, event_sink=recorder)
    await agent.run("go")
    events = len(recorder)
    kept[0].report("late")
    assert len(recorder) == events
    assert kept[0].cancelled
    assert kept[0].remaining().iterations == 3
    assert not kept[0].near_budget()


# --- the end of the program ----------------------------------------------------------------------------------------


async def _for_ever():
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@tool
async def deaf() -> str:
    await _for_ever()


class DeafModel:
    name = "deaf"
    max_output_tokens = 100

    async def stream(self, request):
        yield TextDelta("I never")
        await _for_ever()


@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
@pytest.mark.parametrize(
    "model",
    [lambda: ScriptedModel([call("deaf")]), lambda: ScriptedModel([calls(call("deaf"), call("deaf"))]), DeafModel],
    ids=["a tool", "two tools at once", "a model"],
)
def test_abandoned_work_does_not_keep_the_event_loop_from_closing(model, streamed):
    """`asyncio.run` cancels what is left and waits for it: for work that ignores that, it would wait for ever."""

    async def program():
        token = CancelToken()
        asyncio.get_running_loop().call_later(5, token.cancel)
        agent = Agent(model=model(), tools=[deaf], limits=LIMITS)
        if not streamed:
            return await agent.run("go", cancel=token)
        async with agent.stream("go", cancel=token) as stream:
            async for _ in stream:
                pass
        await asyncio.sleep(1)
        return stream.result

    clock = VirtualClock(limit=1_000)
    result = clock.run(program())
    assert result.outcome is LoopOutcome.CANCELLED
    assert result.abandoned
    assert clock.time() < 20
