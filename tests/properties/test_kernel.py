"""Whatever models, tools and callers do, a run lands: one row of the table, one result per call, nothing left.

Two halves of the same property, so that two workers share the time: runs nobody disturbs, and runs that are cancelled,
asked to wind down, left or torn down at any instant. All in virtual time.
"""

import asyncio
import os
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath import Agent, CancelToken, ExecutionMode, GuardrailsConfig, Limits, ToolContext, ToolResult, tool
from glidepath.errors import (
    ContextOverflowError,
    FatalToolError,
    InconsistentHistoryError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    TransientError,
)
from glidepath.events import BudgetSettled, RunEnded, StreamStarted, ToolStarted
from glidepath.messages import StopReason, StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.outcome import AgentState, LoopOutcome
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    VirtualClock,
    call,
    calls,
    empty,
    fail,
    hang,
    no_end,
    raw,
    refuse,
    say,
    thinking,
    transcript_errors,
    truncated,
)
from glidepath.values import ENDINGS

CAMPAIGN = bool(os.environ.get("GLIDEPATH_CAMPAIGN"))
NEVER = 10_000.0
PATIENCE = 1.0  # what ignores cancellation is let go of after this many seconds
ROUNDING = 0.01


# --- tools, one for each way to behave ------------------------------------------------------------------------


def toolbox(release):  # noqa: C901, PLR0915 - one small tool after the other
    """The tools; `release` ends what ignores cancellation, when the run is long over."""

    async def ignore_cancellation():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    @tool
    async def returns(n: int = 0) -> str:
        return f"value {n}"

    @tool
    async def slow() -> str:
        await asyncio.sleep(3)
        return "slowly"

    @tool
    async def raises() -> str:
        await asyncio.sleep(0)
        raise ValueError("no luck")

    @tool
    async def hangs() -> str:
        await asyncio.sleep(NEVER)
        return "never"

    @tool
    async def stubborn() -> str:
        await ignore_cancellation()
        return "much too late"

    @tool
    async def stubborn_with_context(context: ToolContext) -> str:
        await ignore_cancellation()
        context.report("late")
        return "much too late"

    @tool
    async def swallows() -> str:
        try:
            await asyncio.sleep(NEVER)
        except asyncio.CancelledError:
            return "cancelled, but fine"
        return "never"

    @tool
    async def exits() -> str:
        raise SystemExit(3)

    @tool
    async def interrupts() -> str:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    @tool
    async def cancels_itself() -> str:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    @tool
    async def is_fatal() -> str:
        raise FatalToolError("the end")

    @tool
    async def huge() -> str:
        return "x" * 200_000

    @tool
    async def votes() -> ToolResult:
        return ToolResult("enough", terminate=True)

    @tool(terminal=True)
    async def deliver(answer: str = "delivered") -> str:
        return answer

    @tool(exclusive=True)
    async def alone() -> str:
        await asyncio.sleep(1)
        return "alone"

    @tool(aborts_siblings_on_error=True)
    async def aborts() -> str:
        await asyncio.sleep(1)
        raise ValueError("all stop")

    @tool
    async def times_out_inside() -> str:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(NEVER)
        except TimeoutError:
            return "timed out inside"
        return "never"

    @tool
    async def group_fails_inside() -> str:
        async def break_down():
            await asyncio.sleep(1)
            raise ValueError("one of them")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(break_down())
                await asyncio.sleep(NEVER)
        except* ValueError:
            pass
        return "group failed inside"

    @tool
    async def reports():
        for step in range(3):
            await asyncio.sleep(0.5)
            yield step

    @tool
    def threaded() -> str:
        return "from a thread"

    return [value for value in locals().values() if hasattr(value, "isolation")]


TOOLS = [made.name for made in toolbox(None)]


# --- replies --------------------------------------------------------------------------------------------------


async def stubborn_stream(request):
    """A stream that ignores its cancellation for an hour."""
    until = asyncio.get_running_loop().time() + 3600
    while (left := until - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    return say("much too late")


words = st.sampled_from(["yes", "an answer", "one two three four five", "half an <think>idea</think> here"])
delays = st.sampled_from([0.0, 0.0, 0.1, 0.5, 2.0])
names = st.sampled_from([*TOOLS, "unknown_tool"])
errors = st.sampled_from(
    [
        TransientError("flaky"),
        RateLimitedError("slow down", retry_after=2),
        RateLimitedError("slow down", retry_after=500),
        RateLimitedError("slow down"),
        ContextOverflowError("too long"),
        RejectedError("never"),
        RefusedError("policy"),
        InconsistentHistoryError("orphan"),
        ValueError("not a kind a model may raise"),
        OSError("connection reset"),
        asyncio.CancelledError(),
        SystemExit(1),
        GeneratorExit(),
    ]
)
usages = st.sampled_from([None, None, None, "missing", Usage(), Usage(-1, -1), Usage(10**12, 10**12), Usage(50, 5)])
one_call = names.map(call)
malformed = st.sampled_from(['{"n": ', "[1, 2]", '"text"', '{"n": "x"}', "nonsense", '{"n": NaN}', "\ud800"]).map(
    lambda text: raw(ToolCallDelta(0, "call_m", "returns", text), StreamEnd("tool_use", Usage(10, 5)))
)
replies = st.one_of(
    st.builds(say, words, usage=usages, delay=delays),
    st.builds(lambda turn, delay: turn.with_delay(delay), one_call, delays),
    st.builds(
        lambda turns, text, delay: calls(*turns, text=text, delay=delay),
        st.lists(one_call, min_size=1, max_size=4),
        st.sampled_from(["", "let me see"]),
        delays,
    ),
    st.lists(one_call, min_size=2, max_size=3).map(lambda turns: calls(*turns).with_id(*["same"] * len(turns))),
    st.builds(truncated, words, delay=delays),
    st.builds(truncated, one_call, cut=st.sampled_from([0, 1, 100])),
    malformed,
    st.builds(thinking, words, words),
    st.builds(thinking, words, one_call),
    st.builds(no_end, words, delay=delays),
    one_call.map(no_end),
    st.builds(empty, delay=delays),
    st.builds(say, st.sampled_from(["", "  "])),
    st.builds(
        lambda error, text, delay: fail(error, text=text, delay=delay), errors, st.sampled_from(["", "a b c"]), delays
    ),
    st.builds(hang, st.sampled_from(["", "so far"])),
    st.sampled_from([refuse(), refuse("I will not"), raw(TextDelta("x"), StreamEnd("error")), raw(StreamEnd("weird"))]),
    st.just(stubborn_stream),
)


# --- a flight -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flight:
    """Everything that decides what happens in one example."""

    script: list
    settings: dict
    limits: dict
    mode: str = "run"  # or "stream", or "leave" it after some events
    events: int = 0
    pause: float = 0.0  # seconds a stream's consumer takes for each event
    signal: str = ""  # cancel, wind_down or task
    when: float = 0.0
    steps: int | None = None  # instead of an instant: after so many rounds of the loop


limits = st.fixed_dictionaries(
    {"max_iterations": st.integers(1, 5), "timeout": st.sampled_from([0.5, 2, 5, 30, 100])},
    optional={
        "max_tool_calls": st.integers(1, 3),
        "max_tokens": st.sampled_from([4_000, 20_000]),
        "grace_iterations": st.integers(0, 2),
        "landing_seconds": st.sampled_from([0.1, 5]),
    },
)
configurations = st.fixed_dictionaries(
    {"max_retries": st.integers(0, 2), "landing": st.sampled_from(["withdraw", "steer", "force", "off"])},
    optional={
        "tool_timeout": st.sampled_from([0.5, 2.0]),
        "stall_timeout": st.sampled_from([0.3, 10.0]),
        "first_chunk_timeout": st.sampled_from([1.0, 30.0]),
        "call_timeout": st.sampled_from([1.0, 20.0]),
        "max_parallel_tools": st.integers(1, 2),
        "max_tool_calls_per_turn": st.integers(1, 2),
        "default_execution_mode": st.just(ExecutionMode.SEQUENTIAL),
        "thinking_tags": st.just(True),
        "empty_outcome_retry_budget": st.integers(0, 1),
        "context_window": st.just(2_000),
        "guardrails": st.just(
            GuardrailsConfig(
                max_tokens_recoveries=0,
                max_repeated_tool_steps=0,
                max_error_streak=0,
                max_premature_end_recoveries=0,
                max_empty_recoveries=0,
            )
        ),
    },
)
scripts = st.lists(replies, min_size=1, max_size=6)
undisturbed = st.builds(
    Flight,
    scripts,
    configurations,
    limits,
    mode=st.sampled_from(["run", "stream"]),
    pause=st.sampled_from([0.0, 0.0, 0.7]),
)
disturbed = st.builds(
    Flight,
    scripts,
    configurations,
    limits,
    mode=st.sampled_from(["run", "run", "stream", "leave"]),
    events=st.integers(0, 25),
    pause=st.sampled_from([0.0, 0.0, 0.7]),
    signal=st.sampled_from(["cancel", "cancel", "wind_down", "task"]),
    when=st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]), st.floats(0, 20)),
    steps=st.one_of(st.none(), st.integers(0, 60)),
)


async def fly(flight):
    release = asyncio.Event()
    model = ScriptedModel(flight.script, record=False).forever(say("the last word"))
    recorder = EventRecorder()
    agent = Agent(
        model=model,
        tools=toolbox(release),
        limits=Limits(**flight.limits),
        plugins=[recorder.as_plugin()],
        **flight.settings,
    )
    token = CancelToken()
    before = asyncio.all_tasks()
    main = asyncio.create_task(travel(agent, flight, token))
    signalled = asyncio.create_task(disturb(flight, token, main))
    try:
        cancelling = await main
        assert cancelling == 0, "a cancellation of ours is left in the caller's task"
    except asyncio.CancelledError:
        assert flight.signal == "task", "a cancellation that nobody asked for left the run"
    signalled.cancel()
    await asyncio.wait({signalled})
    if not recorder.events:  # cancelled before it began
        assert flight.signal == "task" or flight.mode == "leave"
        return
    at = None if signalled.cancelled() else signalled.result()
    result = recorder.one(RunEnded).result
    check(flight, result, recorder, at)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert len(left) <= len(result.abandoned), f"left behind: {left}, listed: {result.abandoned}"
    assert model.open_streams <= sum(work.kind == "stream" for work in result.abandoned)
    await afterwards(release, recorder, result)
    assert asyncio.all_tasks() - before - {asyncio.current_task()} == set()


async def travel(agent, flight, token):
    """Run or stream, and say how many cancellations are left in the task."""
    if flight.mode == "run":
        await agent.run("the task", cancel=token)
    else:
        async with agent.stream("the task", cancel=token) as stream:
            seen = 0
            async for _ in stream:
                seen += 1
                if flight.mode == "leave" and seen > flight.events:
                    break
                await asyncio.sleep(flight.pause)
    await asyncio.sleep(0)  # would raise if a cancellation of ours were on its way
    return asyncio.current_task().cancelling()


async def disturb(flight, token, main):
    if flight.steps is not None:
        for _ in range(flight.steps):
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(flight.when)
    if flight.signal == "task":
        main.cancel()
    elif flight.signal:
        getattr(token, flight.signal)("because")
    return asyncio.get_running_loop().epoch() if flight.signal in ("cancel", "task") else None


def check(flight, result, recorder, cancelled_at):
    recorder.assert_legal()
    row = (result.state, result.outcome)
    assert row in ENDINGS
    assert result.outcome is not LoopOutcome.PAUSED
    refused = result.stop_reason is StopReason.REFUSAL
    assert (result.cause is None) == (result.outcome is LoopOutcome.DONE and not refused), row
    assert result.cause is None or result.cause.source != "internal", result.cause
    assert transcript_errors(result.messages) == []
    assert result.iterations <= flight.limits["max_iterations"]
    assert result.text or refused
    assert not (result.partial and result.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP))
    assert result.usage == sum([event.usage for event in recorder.of(BudgetSettled)], Usage())
    if result.state is AgentState.CANCELLED and result.outcome is LoopOutcome.CANCELLED:
        assert cancelled_at is not None or flight.mode == "leave", "cancelled by nobody"
    check_time(flight, result, recorder, cancelled_at)


def check_time(flight, result, recorder, cancelled_at):
    """The deadline holds, and after a cancel nothing starts and everything is over soon (G7)."""
    ended = recorder.events[-1].time
    if flight.mode == "run":
        assert result.elapsed <= flight.limits["timeout"] + PATIENCE + ROUNDING
    if cancelled_at is not None and cancelled_at < ended:
        starts = [event for event in recorder if isinstance(event, StreamStarted | ToolStarted)]
        assert not [event for event in starts if event.time > cancelled_at], "started after the cancel"
        if flight.mode == "run" or not flight.pause:
            assert ended <= cancelled_at + PATIENCE + ROUNDING


async def afterwards(release, recorder, result):
    """What was abandoned ends later, and nobody hears of it."""
    events = len(recorder)
    release.set()
    await asyncio.sleep(4000)
    assert len(recorder) == events, "an event after RunEnded"
    assert transcript_errors(result.messages) == []


def examples(number):
    return settings(
        max_examples=number if CAMPAIGN else number // 2,
        deadline=None,
        derandomize=not CAMPAIGN,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        print_blob=True,
    )


@given(undisturbed)
@examples(1000)
def test_g1_any_script_and_any_tools_end_in_one_row(flight):
    VirtualClock().run(fly(flight))


@given(disturbed)
@examples(1200)
def test_g7_any_run_can_be_stopped_at_any_instant(flight):
    VirtualClock().run(fly(flight))


@pytest.mark.slow
@pytest.mark.skipif(not CAMPAIGN, reason="a campaign: GLIDEPATH_CAMPAIGN=1")
@given(undisturbed)
@examples(30_000)
def test_campaign_any_script_and_any_tools_end_in_one_row(flight):
    VirtualClock().run(fly(flight))


@pytest.mark.slow
@pytest.mark.skipif(not CAMPAIGN, reason="a campaign: GLIDEPATH_CAMPAIGN=1")
@given(disturbed)
@examples(30_000)
def test_campaign_any_run_can_be_stopped_at_any_instant(flight):
    VirtualClock().run(fly(flight))
