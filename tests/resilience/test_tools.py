"""The breaker of a tool: exceptions and timeouts count, bad arguments never do; the model is told."""

import asyncio

import pytest

from glidepath import Agent, GuardrailsConfig, Limits, LoopOutcome, ToolError, approve, tool
from glidepath.events import BreakerChanged, ToolEnded, ToolStarted
from glidepath.run import TOOL_FAILURES, BreakerState, tool_breaker
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, say, virtual

QUIET = GuardrailsConfig(max_repeated_tool_steps=0, max_error_streak=0)


def failing(error):
    behavior = [error]

    @tool
    async def fetch(n: int) -> str:
        """Fetch."""
        if behavior[0] is not None:
            raise behavior[0]
        return f"got {n}"

    return fetch, behavior


async def use(it, times, recorder=None, **more):
    """One run that calls the tool so often."""
    model = ScriptedModel([*[call(it.name, n=n) for n in range(times)], say("done")])
    agent = Agent(
        model=model, tools=[it], limits=Limits(max_iterations=99), guardrails=QUIET, event_sink=recorder, **more
    )
    result = await agent.run("go")
    assert result.outcome is LoopOutcome.DONE
    if recorder is not None:
        recorder.assert_legal()
    return [message for message in result.messages if message.role == "tool_result"]


@virtual
async def test_a_tool_that_fails_again_and_again_is_not_run_any_more_and_the_model_is_told():
    fetch, _ = failing(ConnectionError("no route"))
    recorder = EventRecorder()
    results = await use(fetch, TOOL_FAILURES + 3, recorder)
    assert [result.kind for result in results] == ["ConnectionError"] * TOOL_FAILURES + ["breaker_open"] * 3
    assert all(result.is_error for result in results)
    assert "switched off for now" in results[-1].text
    assert "30 s" in results[-1].text
    changed = recorder.one(BreakerChanged)
    assert (changed.target, changed.state, changed.kind) == ("fetch", "open", "tool")
    assert len(recorder.of(ToolStarted)) == TOOL_FAILURES
    assert len(recorder.of(ToolEnded)) == TOOL_FAILURES + 3


@virtual
async def test_it_is_shared_by_runs_and_a_good_probe_closes_it():
    fetch, behavior = failing(ConnectionError("no route"))
    for _ in range(TOOL_FAILURES):
        await use(fetch, 1)
    assert (await use(fetch, 1))[0].kind == "breaker_open"
    await asyncio.sleep(30)
    assert (await use(fetch, 1))[0].kind == "ConnectionError"
    assert (await use(fetch, 1))[0].kind == "breaker_open"
    behavior[0] = None
    await asyncio.sleep(30)
    recorder = EventRecorder()
    assert [result.text for result in await use(fetch, 3, recorder)] == ["got 0", "got 1", "got 2"]
    assert [event.state for event in recorder.of(BreakerChanged)] == ["half_open", "closed"]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        TypeError("bad"),
        KeyError("bad"),
        ZeroDivisionError(),
        ToolError("no"),
        FileNotFoundError("x"),
    ],
    ids=lambda error: type(error).__name__,
)
@virtual
async def test_what_a_tool_says_about_its_arguments_does_not_count(error):
    fetch, _ = failing(error)
    results = await use(fetch, TOOL_FAILURES + 5)
    assert "breaker_open" not in [result.kind for result in results]
    assert fetch.breaker is None


@virtual
async def test_arguments_that_do_not_fit_the_schema_do_not_count():
    fetch, _ = failing(None)
    model = ScriptedModel([*[call("fetch", n="many") for _ in range(20)], say("done")])
    await Agent(model=model, tools=[fetch], limits=Limits(max_iterations=99), guardrails=QUIET).run("go")
    assert fetch.breaker is None


@virtual
async def test_a_timeout_counts():
    @tool(timeout=1)
    async def slow(n: int) -> str:
        """Never."""
        await asyncio.sleep(1_000)
        return ""

    results = await use(slow, TOOL_FAILURES + 1)
    assert [result.kind for result in results] == ["timeout"] * TOOL_FAILURES + ["breaker_open"]


@virtual
async def test_a_cancelled_call_does_not_count_and_leaves_the_probe_to_the_next():
    @tool
    async def slow(n: int) -> str:
        """Slow."""
        await asyncio.sleep(1_000)
        return ""

    async def cancelled(**limits):
        model = ScriptedModel([call("slow", n=1), say("x")])
        agent = Agent(model=model, tools=[slow], limits=Limits(timeout=8), landing="off")
        return await agent.run("go")

    await cancelled()
    assert slow.breaker is None
    breaker = tool_breaker(slow)
    for _ in range(TOOL_FAILURES):
        breaker.record_failure(asyncio.get_running_loop().time())
    await asyncio.sleep(30)
    await cancelled()
    assert breaker.state is BreakerState.OPEN
    assert breaker.wait(asyncio.get_running_loop().time()) == 0


@virtual
async def test_in_a_batch_only_the_broken_tool_is_refused():
    fetch, _ = failing(ConnectionError("no route"))
    await use(fetch, TOOL_FAILURES)

    @tool
    async def fine(n: int) -> str:
        """Fine."""
        return f"fine {n}"

    model = ScriptedModel([calls(call("fetch", n=1), call("fine", n=2), call("fetch", n=3)), say("done")])
    result = await Agent(model=model, tools=[fetch, fine], limits=Limits(max_iterations=9)).run("go")
    results = [message for message in result.messages if message.role == "tool_result"]
    assert [(r.tool_name, r.kind) for r in results] == [
        ("fetch", "breaker_open"),
        ("fine", None),
        ("fetch", "breaker_open"),
    ]
    assert [(s.name, s.calls) for s in result.breakdown if s.kind == "tool"] == [("fine", 1)]
    assert result.tool_calls == 1


@virtual
async def test_a_success_in_between_starts_the_count_again():
    fetch, behavior = failing(ConnectionError("no route"))
    for _ in range(3):
        behavior[0] = ConnectionError("no route")
        await use(fetch, TOOL_FAILURES - 1)
        behavior[0] = None
        await use(fetch, 1)
    assert fetch.breaker.state is BreakerState.CLOSED
    assert fetch.breaker.failures == 0


@virtual
async def test_a_sync_tool_in_a_thread_has_one_too():
    @tool
    def broken(n: int) -> str:
        """Broken."""
        raise OSError("disk")

    results = await use(broken, TOOL_FAILURES + 1)
    assert results[-1].kind == "breaker_open"


@virtual
async def test_a_call_that_fails_after_it_was_approved_counts():
    @tool(requires_approval=True)
    async def fetch(n: int) -> str:
        """Fetch."""
        raise ConnectionError("no route")

    model = ScriptedModel([call("fetch", n=1), say("done")])
    agent = Agent(model=model, tools=[fetch], limits=Limits(max_iterations=9), guardrails=QUIET)
    waits = await agent.run("go")
    [pending] = waits.pending
    assert (await agent.resume(waits, decisions={pending.call.id: approve()})).outcome is LoopOutcome.DONE
    assert tool_breaker(fetch).failures == 1
