"""The end of a run and those who watch it: nothing cancels the caller any more, and nobody is waited for long."""

import asyncio
import logging
import sys

import pytest

from glidepath import Agent, CancelToken, Limits, LoopOutcome, Plugin, tool
from glidepath.events import HookFailed, RunEnded, StreamChunk
from glidepath.plugins import FAREWELL, LAST_WORDS
from glidepath.teams import Team
from glidepath.testing import EventRecorder, ScriptedModel, call, no_leftovers, say, virtual

LIMITS = Limits(max_iterations=60)


@tool
async def look(n: int = 0) -> str:
    return f"found {n}"


class Slow(Plugin):
    """Takes its time for every event."""

    def __init__(self, seconds, name="slow"):
        self.name = name
        self.seconds = seconds
        self.begun, self.seen = [], []

    async def event_observer(self, event):
        self.begun.append(type(event))
        await asyncio.sleep(self.seconds)
        self.seen.append(type(event))


def agent_with(*plugins, turns=2, delay=0.1, **settings):
    script = [*[call("look", n=n) for n in range(turns - 1)], say("the answer")]
    settings.setdefault("limits", LIMITS)
    return Agent(model=ScriptedModel(script, delay=delay), tools=[look], plugins=plugins, **settings)


def now():
    return asyncio.get_running_loop().time()


# --- nothing cancels the caller -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.4, 1.0, 50])
@pytest.mark.parametrize("limit", [0.5, 1, 3, 60])
@virtual
async def test_g1_a_deadline_that_passes_while_observers_finish_takes_no_result_away(seconds, limit):
    slow = Slow(seconds)
    async with no_leftovers():
        result = await agent_with(slow, limits=Limits(max_iterations=5, timeout=limit)).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "the answer")
    assert slow.begun[-1] is RunEnded
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(100)


@pytest.mark.parametrize("how", ["run", "stream"])
@virtual
async def test_g1_a_late_cancel_takes_no_result_away_at_any_step(how):
    """Tenths of a second, and steps of the event loop: from before the end until after it."""
    for steps in range(60):
        token = CancelToken()
        agent = agent_with(Slow(0.3), delay=0)

        async def late(token=token, steps=steps):
            for _ in range(steps):
                await asyncio.sleep(0 if steps < 40 else 0.03)
            token.cancel()

        canceller = asyncio.create_task(late())
        if how == "run":
            result = await agent.run("go", cancel=token)
        else:
            async with agent.stream("go", cancel=token) as stream:
                async for _ in stream:
                    pass
            result = stream.result
        assert result.outcome in (LoopOutcome.DONE, LoopOutcome.CANCELLED)
        assert asyncio.current_task().cancelling() == 0
        await canceller


def test_g1_a_late_deadline_takes_no_result_of_run_sync_away():
    result = agent_with(Slow(0.1), delay=0.01, limits=Limits(max_iterations=5, timeout=0.4)).run_sync("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "the answer")


@virtual
async def test_g1_the_callers_own_cancellation_goes_on_when_the_observers_are_gone():
    slow, recorder = Slow(50), EventRecorder()
    async with no_leftovers():
        task = asyncio.create_task(agent_with(slow, delay=0, event_sink=recorder).run("go"))
        await asyncio.sleep(0.4)
        assert recorder.one(RunEnded)
        began = now()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert now() - began <= 2 * LAST_WORDS
    assert slow.begun[-1] is RunEnded


# --- nobody is waited for long --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5])
@virtual
async def test_g7_slow_observers_are_dismissed_together_within_a_second(count):
    slow = [Slow(50, f"slow {number}") for number in range(count)]
    async with no_leftovers():
        result = await agent_with(*slow).run("go")
    assert now() - result.elapsed <= FAREWELL + 0.001
    assert all(one.begun[-1] is RunEnded for one in slow)


@virtual
async def test_g7_after_a_cancel_observers_are_dismissed_within_a_quarter_of_a_second():
    token = CancelToken()
    asyncio.get_running_loop().call_later(1, token.cancel)
    slow = Slow(0.05)
    async with no_leftovers():
        result = await agent_with(slow, turns=40).run("go", cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    assert now() - 1 <= LAST_WORDS + 0.001
    assert RunEnded in slow.begun


@virtual
async def test_g17_an_observer_that_does_not_stop_is_let_go_and_listed():
    release = asyncio.Event()

    class Stubborn(Plugin):
        async def event_observer(self, event):
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

    result = await agent_with(Stubborn()).run("go")
    assert now() - result.elapsed <= FAREWELL + LAST_WORDS + 0.001
    assert [(work.kind, work.tool_name) for work in result.abandoned] == [("observer", "stubborn")]
    release.set()
    await asyncio.sleep(0)


# --- nothing is lost in silence -------------------------------------------------------------------------------------


@virtual
async def test_what_a_slow_observer_has_missed_is_counted_and_logged_and_it_still_sees_the_end(caplog):
    slow, everything = Slow(0.05), EventRecorder()
    with caplog.at_level(logging.WARNING, "glidepath"):
        result = await agent_with(slow, turns=40, delay=0, event_sink=everything).run("go")
    shown = [event for event in everything.events if type(event).__name__ != "StreamChunk"]
    assert slow.seen[-1] is RunEnded
    assert result.missed_events == len(shown) - len(slow.seen) > 0
    assert f"observer 'slow' was too slow and has missed {result.missed_events} events" in caplog.text
    assert everything.one(RunEnded).result.missed_events == 0  # nobody knew it then
    everything.assert_legal()


@virtual
async def test_the_last_event_is_not_cut_short_while_there_is_time():
    for hundredths in (3, 7, 11, 13, 17, 19):
        slow = Slow(hundredths / 100)
        await agent_with(slow, turns=10).run("go")
        assert slow.seen[-1] is RunEnded


@virtual
async def test_an_observer_that_keeps_up_sees_every_event_in_order():
    slow, everything = Slow(0.01), EventRecorder()
    result = await agent_with(slow, turns=3, event_sink=everything).run("go")
    assert slow.seen == [type(event) for event in everything.events if type(event).__name__ != "StreamChunk"]
    assert result.missed_events == 0


@virtual
async def test_an_observer_whose_queue_is_full_is_reported_and_still_sees_the_end():
    slow, everything = Slow(0.2), EventRecorder()
    result = await agent_with(slow, turns=150, delay=0, event_sink=everything, limits=Limits(max_iterations=200)).run(
        "go"
    )
    assert slow.begun[-1] is RunEnded
    assert "events are dropped" in [event.effect for event in everything.of(HookFailed)]
    assert result.missed_events > 100


@virtual
async def test_an_observer_that_does_not_ask_for_the_end_is_not_shown_it():
    class Tools(Slow):
        events = (HookFailed,)

    quiet = Tools(0.1, "tools")
    result = await agent_with(quiet, Slow(0.1)).run("go")
    assert quiet.begun == []
    assert result.missed_events > 0


@virtual
async def test_the_observers_of_a_team_are_dismissed_within_a_second_and_see_its_end():
    slow = [Slow(50, f"slow {number}") for number in range(3)]
    model = ScriptedModel().forever(say("the answer"))
    team = Team([Agent(model=model, limits=LIMITS)], plugins=slow)
    async with no_leftovers():
        began = now()
        result = await team.run("go")
    assert now() - began <= FAREWELL + 0.001
    assert any("observers were too slow" in warning for warning in result.warnings)
    assert all(one.begun[-1].__name__.startswith("Team") for one in slow)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
@virtual
async def test_g3_an_async_observer_sees_every_event_when_tasks_begin_eagerly():
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    recorder, slow = EventRecorder(), Slow(0.001)
    agent = Agent(model=ScriptedModel([say("done")]), limits=LIMITS, plugins=[slow], event_sink=recorder)
    assert (await agent.run("go")).missed_events == 0
    assert slow.seen == [type(event) for event in recorder.events if type(event) is not StreamChunk]
