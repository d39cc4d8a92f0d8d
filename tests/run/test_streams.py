"""`stream()` is the same run with its events: however it is consumed, left or cancelled, it lands (G16, G17)."""

import asyncio

import pytest

from glidepath import (
    Agent,
    AgentState,
    CancelToken,
    ConfigurationError,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    Plugin,
    Session,
    ToolContext,
    tool,
)
from glidepath.errors import TransientError
from glidepath.events import HookFailed, RunEnded, RunStarted, StreamChunk, StreamStarted, ToolProgress, ToolStarted
from glidepath.messages import StreamEnd, TextDelta, Usage
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    call,
    calls,
    fail,
    hang,
    no_leftovers,
    say,
    transcript_errors,
    truncated,
    virtual,
)

LIMITS = Limits(max_iterations=5)


@tool
async def forever() -> str:
    await asyncio.sleep(10_000)
    return "never"


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool
async def report(context: ToolContext) -> str:
    for step in range(3):
        context.report(step)
        await asyncio.sleep(1)
    return "reported"


SCRIPTS = {
    "text": ["hello there"],
    "tools": [calls(call("add", a=1, b=2), call("add", a=3, b=4), text="adding"), call("add", a=1, b="x"), "7"],
    "retry": [fail(TransientError("dropped"), text="half an"), "answer"],
    "cut": [truncated("one two"), truncated(" three"), truncated(" four")],
    "failure": [fail(ValueError("no"), text="begun")] * 4,
    "limit": [call("add", a=1, b=1), call("add", a=2, b=2), call("add", a=3, b=3), call("add", a=4, b=4), "landed"],
    "unknown": [call("ad", a=1, b=2), "sorry"],
}


def facts(result):
    """What two runs of the same script have in common."""
    same = ("state", "outcome", "cause", "stop_reason", "text", "partial", "usage", "iterations", "tool_calls")
    return {name: getattr(result, name) for name in same} | {
        "messages": result.messages,
        "landing_calls": result.landing_calls,
    }


@pytest.mark.parametrize("name", SCRIPTS)
@virtual
async def test_run_and_stream_end_alike_and_show_the_same_events(name):
    seen = EventRecorder()
    limits = Limits(max_iterations=3)
    quiet = await Agent(model=ScriptedModel(SCRIPTS[name]), tools=[add], limits=limits).run("go")
    watched = await Agent(model=ScriptedModel(SCRIPTS[name]), tools=[add], limits=limits, event_sink=seen).run("go")
    async with Agent(model=ScriptedModel(SCRIPTS[name]), tools=[add], limits=limits).stream("go") as stream:
        streamed = EventRecorder([event async for event in stream])
    assert facts(quiet) == facts(watched)
    assert facts(quiet)["text"] == facts(stream.result)["text"]
    without_delay = [line for line in seen.compact() if not line.startswith("RetryScheduled")]
    assert [line for line in streamed.compact() if not line.startswith("RetryScheduled")] == without_delay
    if name not in ("retry", "failure"):  # their elapsed time has jitter in it
        assert facts(quiet) == facts(stream.result)
    assert streamed.events[-1].result is stream.result
    streamed.assert_legal()


@virtual
async def test_events_arrive_when_they_happen():
    clock = asyncio.get_running_loop().time
    with ScriptedModel([say("a b c", delay=1)]) as model:
        async with Agent(model=model, limits=LIMITS).stream("go") as stream:
            times = [(event.text, clock()) async for event in stream if isinstance(event, StreamChunk)]
    assert times == [("a ", 1), ("b ", 2), ("c", 3), ("", 3)]


@virtual
async def test_progress_of_a_tool_arrives_while_it_works():
    clock = asyncio.get_running_loop().time
    for turn in (call("report"), calls(call("report"), call("add", a=1, b=1))):
        begun = clock()
        async with Agent(model=ScriptedModel([turn, "done"]), tools=[report, add], limits=LIMITS).stream(
            "go"
        ) as stream:
            times = [(e.progress, clock() - begun) async for e in stream if isinstance(e, ToolProgress)]
        assert times == [(0, 0), (1, 1), (2, 2)]


@virtual
async def test_a_stream_that_never_pauses_does_not_starve_its_consumer_or_the_loop():
    ticks = 0

    async def count():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    class Firehose:
        name = "firehose"

        async def stream(self, request):
            for _ in range(5_000):
                yield TextDelta("word ")
            yield StreamEnd("end_turn")

    counter = asyncio.create_task(count())
    first = None
    async with Agent(model=Firehose(), limits=LIMITS).stream("go") as stream:
        async for event in stream:
            if first is None and isinstance(event, StreamChunk):
                first = len(stream.outbox)
    counter.cancel()
    assert stream.result.outcome is LoopOutcome.DONE
    assert first < 2_500, "the first chunk is seen long before the last is made"
    assert ticks > 3


# --- leaving early --------------------------------------------------------------------------------------------

LEAVINGS = {
    "in the stream": [hang("so far")],
    "in a tool": [call("forever").with_text("so far")],
    "in a batch": [calls(call("forever"), call("forever"), text="so far")],
    "between deltas": [say("so far and on and on", delay=1)],
}


@pytest.mark.parametrize("scene", LEAVINGS)
@pytest.mark.parametrize("how", ["break", "exception"])
@virtual
async def test_leaving_the_block_early_cancels_and_lands_the_run(scene, how):
    seen = EventRecorder()
    agent = Agent(model=ScriptedModel(LEAVINGS[scene]), tools=[forever], limits=LIMITS, event_sink=seen)
    async with no_leftovers():
        try:
            async with agent.stream("go") as stream:
                async for event in stream:
                    done = isinstance(event, ToolStarted) or (isinstance(event, StreamChunk) and event.text == "far ")
                    if done and how == "exception":
                        raise LookupError("enough")
                    if done or (isinstance(event, StreamChunk) and event.text == "far" and "tool" not in scene):
                        break
        except LookupError:
            assert how == "exception"
    result = stream.result
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert result.cause.reason == "the stream was closed"
    assert result.text == "so far" or scene == "between deltas"
    assert transcript_errors(result.messages) == []
    assert asyncio.current_task().cancelling() == 0
    seen.assert_legal()
    await asyncio.sleep(100)


@virtual
async def test_a_stream_can_be_left_at_every_single_event():
    for count in range(30):
        seen = EventRecorder()
        script = [fail(TransientError("x"), text="a"), calls(call("add", a=1, b=1), call("report"), text="hm"), "done"]
        agent = Agent(model=ScriptedModel(script), tools=[add, report], limits=LIMITS, event_sink=seen)
        async with no_leftovers(), agent.stream("go") as stream:
            number = 0
            async for _ in stream:
                number += 1
                if number > count:
                    break
        assert stream.result.outcome in (LoopOutcome.CANCELLED, LoopOutcome.DONE)
        assert stream.result.cause is None or stream.result.cause.source == "cancel"
        seen.assert_legal()


@virtual
async def test_a_stream_that_is_entered_and_not_consumed_never_flies():
    with ScriptedModel([]) as model:
        async with Agent(model=model, limits=LIMITS).stream("go") as stream:
            pass
    with pytest.raises(RuntimeError, match="not ended yet"):
        stream.result  # noqa: B018


@virtual
async def test_a_stream_left_after_its_last_event_is_done():
    async with Agent(model=ScriptedModel(["hi"]), limits=LIMITS).stream("go") as stream:
        async for event in stream:
            if isinstance(event, RunEnded):
                break
    assert stream.result.outcome is LoopOutcome.DONE


@virtual
async def test_the_result_is_there_only_when_the_run_has_ended():
    async with Agent(model=ScriptedModel(["hi"]), limits=LIMITS).stream("go") as stream:
        async for _ in stream:
            with pytest.raises(RuntimeError, match="not ended yet"):
                stream.result  # noqa: B018
            break
    assert stream.result.outcome is LoopOutcome.CANCELLED


@virtual
async def test_a_stream_must_be_entered_first_and_only_once():
    stream = Agent(model=ScriptedModel(["hi"]), limits=LIMITS).stream("go")
    with pytest.raises(RuntimeError, match="enter the stream first"):
        aiter(stream)
    async with stream:
        _ = [event async for event in stream]
    with pytest.raises(RuntimeError, match="only once"):
        await stream.__aenter__()


@virtual
async def test_a_wrong_configuration_is_raised_when_the_stream_begins():
    with pytest.raises(ConfigurationError, match="prompt"):
        Agent(model=ScriptedModel([]), limits=LIMITS).stream("")
    async with Agent(model=ScriptedModel([]), limits=LIMITS).stream("go", session=7) as stream:
        with pytest.raises(ConfigurationError, match="session"):
            await anext(aiter(stream))


@virtual
async def test_a_session_that_is_in_flight_is_refused_and_disturbs_nobody():
    session = Session()
    agent = Agent(model=ScriptedModel([hang("x")]), limits=LIMITS, first_chunk_timeout=None, stall_timeout=None)
    hasty = Agent(model=ScriptedModel([]), limits=Limits(timeout=50))
    async with agent.stream("go", session=session) as first:
        async for _ in first:
            break
        with pytest.raises(ConfigurationError, match="in flight"):
            await hasty.run("me too", session=session)
        await asyncio.sleep(200)  # longer than the refused run's timeout
    assert first.result.outcome is LoopOutcome.CANCELLED


# --- other tasks ----------------------------------------------------------------------------------------------


@virtual
async def test_a_stream_can_be_consumed_event_by_event_from_other_tasks():
    recorder = EventRecorder()
    script = [say("a b", delay=1)]
    async with Agent(model=ScriptedModel(script), limits=LIMITS).stream("go") as stream:
        events = aiter(stream)
        while True:
            try:
                recorder(await asyncio.create_task(anext(events)))
            except StopAsyncIteration:
                break
    assert stream.result.outcome is LoopOutcome.DONE
    recorder.assert_legal()


@virtual
async def test_waiting_for_an_event_with_a_time_limit_does_not_disturb_the_run():
    seen = EventRecorder()
    agent = Agent(model=ScriptedModel([say("a b", delay=10)]), limits=LIMITS, event_sink=seen)
    timeouts = 0
    async with no_leftovers(), agent.stream("go") as stream:
        while True:
            try:
                await asyncio.wait_for(anext(stream), 3)
            except TimeoutError:
                timeouts += 1
            except StopAsyncIteration:
                break
    assert (stream.result.outcome, stream.result.text) == (LoopOutcome.DONE, "a b")
    assert timeouts == 6
    assert asyncio.current_task().cancelling() == 0
    seen.assert_legal()


@virtual
async def test_a_consumer_that_gives_up_waiting_and_leaves_lands_the_run():
    seen = EventRecorder()
    agent = Agent(model=ScriptedModel([hang("so far")]), limits=LIMITS, event_sink=seen)
    async with no_leftovers(), agent.stream("go") as stream:
        events = aiter(stream)
        while not isinstance(await asyncio.wait_for(anext(events), 3), StreamChunk):
            pass
        await asyncio.wait_for(anext(events), 3)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 3)
    assert (stream.result.outcome, stream.result.text) == (LoopOutcome.CANCELLED, "so far")
    assert asyncio.current_task().cancelling() == 0
    seen.assert_legal()


@virtual
async def test_a_consumer_that_is_cancelled_between_events_takes_its_run_down():
    seen = EventRecorder()
    agent = Agent(model=ScriptedModel([hang("so far")]), limits=LIMITS, event_sink=seen)
    streams = []

    async def consume():
        async with agent.stream("go") as stream:
            streams.append(stream)
            async for _ in stream:
                await asyncio.sleep(1)

    task = asyncio.create_task(consume())
    await asyncio.sleep(2.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert streams[0].result.outcome is LoopOutcome.CANCELLED
    seen.assert_legal()


@virtual
async def test_a_consumer_that_is_cancelled_while_it_waits_for_an_event_takes_its_run_down():
    seen = EventRecorder()
    agent = Agent(model=ScriptedModel([hang("so far")]), limits=LIMITS, event_sink=seen)

    async def consume():
        async with agent.stream("go") as stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(2.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = seen.one(RunEnded).result
    assert (result.outcome, result.cause.reason) == (LoopOutcome.CANCELLED, "the task was cancelled")
    seen.assert_legal()


# --- nothing of the run reaches the consumer ------------------------------------------------------------------


@virtual
async def test_a_cancel_never_shows_in_the_consumers_own_waits():
    token = CancelToken()

    @tool
    async def stop_and_wait(context: ToolContext) -> str:
        token.cancel("inside")
        context.report("stopping")
        await asyncio.sleep(10_000)
        return "never"

    agent = Agent(model=ScriptedModel([call("stop_and_wait")]), tools=[stop_and_wait], limits=LIMITS)
    async with agent.stream("go", cancel=token) as stream:
        async for _ in stream:
            await asyncio.sleep(0.5)
    assert stream.result.outcome is LoopOutcome.CANCELLED
    assert asyncio.current_task().cancelling() == 0


@virtual
async def test_a_deadline_that_passes_while_the_consumer_is_busy_never_shows_in_its_waits():
    agent = Agent(model=ScriptedModel([hang("so far"), "landed"]), limits=Limits(timeout=4))
    async with agent.stream("go") as stream:
        async for _ in stream:
            await asyncio.sleep(1.5)
    assert stream.result.state is AgentState.TIMED_OUT
    assert asyncio.current_task().cancelling() == 0


@virtual
async def test_a_time_limit_that_passes_while_the_consumer_is_busy_does_not_hit_what_comes_next():
    """The tool was done in time; only its consumer was slow. The next tool must not be cancelled for it."""

    @tool(timeout=1)
    async def short(context: ToolContext) -> str:
        context.report("working")
        await asyncio.sleep(0.5)
        return "done in time"

    with ScriptedModel([call("short"), call("short"), "done"]) as model:
        agent = Agent(model=model, tools=[short], limits=LIMITS)
        async with agent.stream("go") as stream:
            seconds = 3
            async for event in stream:
                if isinstance(event, ToolProgress):
                    await asyncio.sleep(seconds)
                    seconds = 0
    assert stream.result.outcome is LoopOutcome.DONE
    assert [m.text for m in stream.result.messages if m.role == "tool_result"][1] == "done in time"


@virtual
async def test_a_timeout_inside_a_tool_never_shows_in_the_consumers_own_waits():
    @tool
    async def impatient(context: ToolContext) -> str:
        context.report("working")
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(10_000)
        except TimeoutError:
            return "timed out inside"
        return "never"

    agent = Agent(model=ScriptedModel([call("impatient"), "done"]), tools=[impatient], limits=LIMITS)
    async with agent.stream("go") as stream:
        async for event in stream:
            await asyncio.sleep(3 if isinstance(event, ToolProgress) else 0)
    assert stream.result.outcome is LoopOutcome.DONE


# --- listeners ------------------------------------------------------------------------------------------------


class Fussy(Plugin):
    events = (StreamChunk,)

    def event_observer(self, event):
        raise ValueError("not this one")


@virtual
async def test_an_observer_that_fails_on_chunks_breaks_no_order_for_anybody():
    sink = EventRecorder()
    after = EventRecorder()
    agent = Agent(
        model=ScriptedModel(["a b c d e"]), limits=LIMITS, plugins=[Fussy(), after.as_plugin()], event_sink=sink
    )
    async with agent.stream("go") as stream:
        consumer = EventRecorder([event async for event in stream])
    for recorder in (sink, after, consumer):
        recorder.assert_legal()
        assert recorder.compact() == sink.compact()
    assert [event.effect for event in sink.of(HookFailed)] == ["ignored", "ignored", "removed"]


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit, asyncio.CancelledError])
@virtual
async def test_an_event_sink_that_fails_is_removed_and_reported(error):
    told = []

    def sink(event):
        told.append(event)
        if len(told) == 2:
            raise error("full")

    agent = Agent(model=ScriptedModel(["hi"]), limits=LIMITS, event_sink=sink)
    async with agent.stream("go") as stream:
        consumer = EventRecorder([event async for event in stream])
    assert stream.result.outcome is LoopOutcome.DONE
    assert [type(event) for event in told][:1] == [RunStarted]
    assert len(told) == 2
    assert consumer.one(HookFailed).effect == "removed"
    consumer.assert_legal()


# --- consumers that are far behind, or gone -------------------------------------------------------------------


class Firehose:
    name = "firehose"

    def __init__(self, words):
        self.words = words
        self.said = 0

    async def stream(self, request):
        for _ in range(self.words):
            self.said += 1
            yield TextDelta("word ")
            if not self.said % 100:
                await asyncio.sleep(0)
        yield StreamEnd("end_turn")


@virtual
async def test_a_consumer_far_behind_holds_the_run_up_and_misses_nothing():
    model = Firehose(20_000)
    async with Agent(model=model, limits=LIMITS).stream("go") as stream:
        chunks = 0
        ahead = 0
        async for event in stream:
            chunks += isinstance(event, StreamChunk) and bool(event.text)
            if not chunks % 1_000:
                await asyncio.sleep(1)
                ahead = max(ahead, model.said - chunks)
    assert chunks == 20_000
    assert ahead < 15_000, "the run waits for its consumer"
    assert stream.result.outcome is LoopOutcome.DONE


@virtual
async def test_a_consumer_far_behind_can_leave():
    model = Firehose(20_000)
    async with no_leftovers(), Agent(model=model, limits=LIMITS).stream("go") as stream:
        async for event in stream:
            if isinstance(event, StreamChunk):
                break
        await asyncio.sleep(10)
    assert stream.result.outcome is LoopOutcome.CANCELLED
    assert model.said < 20_000


@virtual
async def test_the_deadline_reaches_a_run_whose_consumer_does_not_come_back():
    model = Firehose(20_000)
    async with no_leftovers(), Agent(model=model, limits=Limits(timeout=5), landing="off").stream("go") as stream:
        async for event in stream:
            if isinstance(event, StreamChunk):
                break
        await asyncio.sleep(100)
        assert stream.result.state is AgentState.TIMED_OUT
    assert stream.result.elapsed == 5


@virtual
async def test_a_stream_can_be_left_before_its_run_has_made_its_first_step():
    with ScriptedModel([]) as model:
        async with no_leftovers(), Agent(model=model, limits=LIMITS).stream("go") as stream:
            aiter(stream)
    assert model.calls == 0


@virtual
async def test_a_consumer_that_is_cancelled_again_while_its_run_lands_still_waits_for_it():
    release = asyncio.Event()

    @tool
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    seen = EventRecorder()
    agent = Agent(model=ScriptedModel([call("stubborn")]), tools=[stubborn], limits=LIMITS, event_sink=seen)

    async def consume():
        async with agent.stream("go") as stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen.one(RunEnded).result.elapsed == 2
    release.set()


@virtual
async def test_a_run_whose_own_task_is_cancelled_cancels_its_consumer():
    seen = EventRecorder()
    agent = Agent(model=ScriptedModel([hang("so far")]), limits=LIMITS, event_sink=seen)

    async def consume():
        async with agent.stream("go") as stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(1)
    next(other for other in asyncio.all_tasks() if other.get_name() == "glidepath-run").cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen.one(RunEnded).result.outcome is LoopOutcome.CANCELLED


@virtual
async def test_a_failure_nobody_has_seen_yet_is_raised_when_the_block_is_left():
    async def leave_at_once():
        async with Agent(model=ScriptedModel([]), limits=LIMITS).stream("go", session=7) as stream:
            aiter(stream)
            await asyncio.sleep(1)

    with pytest.raises(ConfigurationError, match="session"):
        await leave_at_once()


@virtual
async def test_a_consumer_that_stops_consuming_stops_the_spending_soon():
    @tool
    async def look() -> str:
        """Look."""
        await asyncio.sleep(1)
        return "something"

    model = ScriptedModel([], record=False).forever(call("look"))
    agent = Agent(
        model=model,
        tools=[look],
        limits=Limits(max_iterations=100_000),
        guardrails=GuardrailsConfig(max_repeated_tool_steps=0),
    )
    async with agent.stream("go") as stream:
        async for _ in stream:
            break
        await asyncio.sleep(1000)
        halted = model.calls
        await asyncio.sleep(1000)
        assert model.calls == halted < 200
        events = 0
        async for _ in stream:
            events += 1
            if model.calls > halted:
                break
        assert events > 500


@virtual
async def test_chunks_have_the_time_at_which_they_arrived():
    class InBursts:
        name = "bursts"
        max_output_tokens = 100

        async def stream(self, request):
            for _ in range(3):
                await asyncio.sleep(10)
                yield TextDelta("a")
                yield TextDelta("b")
            yield StreamEnd("end_turn", Usage(1, 6))

    async with Agent(model=InBursts(), limits=LIMITS).stream("go") as stream:
        events = [event async for event in stream]
    began = next(event.time for event in events if isinstance(event, StreamStarted))
    times = [round(event.time - began) for event in events if isinstance(event, StreamChunk) and event.text]
    assert times == [10, 10, 20, 20, 30, 30]


class Pieces(ScriptedModel):
    """Streams its text in pieces, some of them empty, with a wait in the middle."""

    async def stream(self, request):
        for piece in ("one ", "", "two "):
            yield TextDelta(piece)
        await asyncio.sleep(1)
        for piece in ("three ", "four"):
            yield TextDelta(piece)
        yield StreamEnd("end_turn", Usage(60, 10))


async def one_by_one(stream):
    return [event async for event in stream]


async def by_anext(stream):
    events = []
    while not events or type(events[-1]) is not RunEnded:
        events.append(await anext(stream))
    return events


async def in_batches(stream):
    return [event async for events in stream.batches() for event in events]


@pytest.mark.parametrize("read", [one_by_one, by_anext, in_batches])
@virtual
async def test_a_text_comes_as_the_same_events_however_a_stream_is_read(read):
    async with Agent(model=Pieces([]), limits=LIMITS).stream("go") as stream:
        events = await read(stream)
    said = [(event.text, event.finished) for event in events if type(event) is StreamChunk]
    assert said == [("one ", False), ("two ", False), ("three ", False), ("four", False), ("", True)]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    times = [event.time for event in events]
    assert times == sorted(times)
    assert len({event.time for event in events if type(event) is StreamChunk}) == 2
