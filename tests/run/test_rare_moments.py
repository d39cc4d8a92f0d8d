"""Moments that hardly ever come: each has its answer all the same."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from glidepath import Agent, AgentState, CancelToken, Limits, LoopOutcome, Session, tool
from glidepath.agent import run_lifecycle
from glidepath.errors import RejectedError
from glidepath.events import RunEnded
from glidepath.messages import AssistantMessage, ToolCall, ToolResultMessage
from glidepath.run import CallScope, Signal, Watch, guard_state, launch
from glidepath.run.abandoned import request
from glidepath.run.nested import _Errand, _follow_errand
from glidepath.testing import EventRecorder, ScriptedModel, call, hang, say, virtual

LIMITS = Limits(max_iterations=5)


@pytest.mark.parametrize(
    ("kept", "left"), [({"mine": object(), "repetition": {}}, {"repetition"}), ([1], set()), (7, set())]
)
@virtual
async def test_what_somebody_else_keeps_among_the_guards_does_not_spoil_a_snapshot(kept, left):
    home = Session("s", metadata={"guardrails": kept})
    token = CancelToken()
    asyncio.get_running_loop().call_later(1, token.cancel)
    result = await Agent(model=ScriptedModel([hang()]), limits=LIMITS).run("go", session=home, cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    assert "mine" not in result.snapshot.guards
    assert left <= set(result.snapshot.guards)


@virtual
async def test_a_step_that_no_table_has_is_refused():
    agent = Agent(model=ScriptedModel([say("ok")]), limits=LIMITS)
    async with agent.stream("go") as stream:
        async for _ in stream:
            pass
        with pytest.raises(RuntimeError, match="illegal transition COMPLETED -> RUNNING"):
            stream.run.turn.enter(AgentState.RUNNING)


def test_a_wind_down_from_another_thread_counts_once():
    token = CancelToken()

    @tool
    def ask_twice() -> str:
        worker = threading.Thread(target=token.wind_down, args=("enough",))
        worker.start()
        worker.join()
        return "asked"

    model = ScriptedModel([call("ask_twice")]).forever(say("landed"))

    async def fly():
        agent = Agent(model=model, tools=[ask_twice], limits=LIMITS)
        async with agent.stream("go", cancel=token) as stream:
            async for event in stream:
                if type(event).__name__ == "ToolEnded":
                    stream.run.on_cancel_token("wind_down", "again")
                    stream.run.on_cancel_token("wind_down", "and again")
        return stream.result

    result = asyncio.run(fly())
    assert (result.outcome, result.text) == (LoopOutcome.WRAPPED_UP, "landed")


@pytest.mark.parametrize(
    ("defect", "state", "outcome"),
    [
        (OSError("a defect"), AgentState.ERROR, LoopOutcome.FAILED),
        (asyncio.CancelledError(), AgentState.ERROR, LoopOutcome.FAILED),
        (KeyboardInterrupt(), AgentState.CANCELLED, LoopOutcome.CANCELLED),
    ],
)
@virtual
async def test_g1_a_loop_that_raises_still_ends_in_a_result(monkeypatch, defect, state, outcome):
    async def broken(run, prompt):
        run.add_prompt(prompt)
        run.turn.reply = AssistantMessage((ToolCall("c1", "look", {}),))  # never added: nobody's calls
        raise defect

    monkeypatch.setattr(run_lifecycle, "run_loop", broken)
    recorder = EventRecorder()
    result = await Agent(model=ScriptedModel([]), limits=LIMITS, event_sink=recorder).run("go")
    assert (result.state, result.outcome) == (state, outcome)
    assert len(recorder.of(RunEnded)) == 1


@virtual
async def test_g1_a_loop_that_raises_a_cancellation_after_a_cancel_is_cancelled(monkeypatch):
    token = CancelToken()

    async def broken(run, prompt):
        run.add_prompt(prompt)
        token.cancel("enough")
        raise asyncio.CancelledError

    monkeypatch.setattr(run_lifecycle, "run_loop", broken)
    result = await Agent(model=ScriptedModel([]), limits=LIMITS).run("go", cancel=token)
    assert (result.outcome, result.cause.reason) == (LoopOutcome.CANCELLED, "enough")


@pytest.mark.parametrize("shaped", [False, True])
@virtual
async def test_g6_a_signal_in_the_middle_of_an_addition_leaves_the_transcript_whole(monkeypatch, shaped):
    ok = ToolResultMessage("c1", "look", "seen")

    runs = []

    async def broken(run, prompt):
        runs.append(run)
        run.add_prompt(prompt)
        if shaped:
            run.set_view(list(run.transcript.messages), sum(run.transcript.sizes))
        run.add(AssistantMessage((ToolCall("c1", "look", {}), ToolCall("c2", "look", {}))))
        run.turn.results = (ok,)  # and then it would have been added
        half = ToolResultMessage("c2", "look", "seen as well")
        run.turn.results = (ok, half)
        run.transcript.messages.append(half)  # and then it would have been measured
        raise KeyboardInterrupt

    monkeypatch.setattr(run_lifecycle, "run_loop", broken)
    result = await Agent(model=ScriptedModel([]), limits=LIMITS).run("go")
    assert result.outcome is LoopOutcome.CANCELLED
    texts = [message.text for message in result.messages if isinstance(message, ToolResultMessage)]
    assert sorted(texts) == ["seen", "seen as well"]
    assert texts.count("seen as well") == 1
    assert runs[0].transcript.sizes == [runs[0].plan.size_of(message) for message in result.messages]
    assert runs[0].transcript.view == list(result.messages)


@virtual
async def test_an_error_of_a_provider_after_the_turn_keeps_why_the_model_stopped(monkeypatch):
    real = run_lifecycle.run_loop

    async def late(run, prompt):
        await real(run, prompt)
        from glidepath.kernel.endings import fail_run

        return fail_run(run, RejectedError("too late"))

    monkeypatch.setattr(run_lifecycle, "run_loop", late)
    result = await Agent(model=ScriptedModel([say("ok")]), limits=LIMITS).run("go")
    assert (result.outcome, result.stop_reason.value) == (LoopOutcome.FAILED, "end_turn")


class Errand:
    """Work on another loop, as whoever waits for it sees it."""

    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.outcome = Future()

    def stop(self):
        self.outcome.set_result("landed")


@pytest.mark.parametrize("how", ["still flying", "just landed", "called off"])
def test_whoever_waits_for_an_errand_and_is_cancelled_leaves_nothing_behind(how):
    async def main():
        errand = Errand()
        task = asyncio.create_task(_follow_errand(errand))
        await asyncio.sleep(0)
        if how == "just landed":
            errand.outcome.set_result("landed")
        elif how == "called off":
            errand.outcome.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return errand.outcome

    outcome = asyncio.run(main())
    assert outcome.done()


@virtual
async def test_nothing_is_started_in_a_call_that_has_ended():
    place = CallScope(None, "call_1", None)

    async def never(token, name):
        raise AssertionError("it must not start")

    with pytest.raises(RuntimeError, match="call_1 has ended"):
        await launch(place, never)


@pytest.mark.parametrize("kept", [[1], 7, None])
def test_guards_that_keep_something_else_than_a_table_keep_nothing(kept):
    assert guard_state(kept) == {}


@virtual
async def test_a_watch_pokes_its_run_once_and_heeds_whoever_asks_from_around():
    watch = Watch()
    try:
        watch.poked = watch.wanted = True
        watch.cancel_next_wait()
        assert (watch.wanted, asyncio.current_task().cancelling()) == (False, 0)
        watch.poked = False
        assert watch.forgive_self_cancellation(asked=True)
        assert not watch.forgive_self_cancellation(asked=False)
        asked = asyncio.CancelledError()
        request(asked)
        watch.note_delivery(asked)
        assert watch.interrupt.signal is Signal.TASK
    finally:
        watch.stop_timer()


@virtual
async def test_an_errand_passes_on_what_its_work_raised_and_can_be_stopped_at_any_time():
    errand = _Errand.__new__(_Errand)
    errand._task = errand._worker = None
    errand.outcome = Future()
    errand.stop()  # before it has begun: there is nothing to stop

    async def fails():
        return None, OSError("gone")

    errand._task = asyncio.ensure_future(fails())
    await errand._task
    errand._on_done(errand._task)
    with pytest.raises(OSError, match="gone"):
        errand.outcome.result()
    errand._task = asyncio.ensure_future(asyncio.sleep(100))
    errand.stop()
    with pytest.raises(asyncio.CancelledError):
        await errand._task
