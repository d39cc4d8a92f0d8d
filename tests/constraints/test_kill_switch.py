"""The kill switch stops a run within a tenth of a second, wherever it is, and makes no further call."""

import asyncio
import os
import threading

import pytest

from glidepath import Agent, AgentState, CancelToken, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.constraints import KillSwitchConstraint
from glidepath.errors import TransientError
from glidepath.events import ConstraintViolated, StreamStarted
from glidepath.testing import ScriptedModel, call, calls, fail, hang, no_leftovers, say, transcript_errors, virtual

from .chain import fly, named

SOON = 0.1
LIMITS = Limits(max_iterations=5)


@tool
async def slow() -> str:
    """Be slow."""
    await asyncio.sleep(3600)
    return "never"


def by_event(tmp_path):
    event = threading.Event()
    return KillSwitchConstraint(event), event.set


def by_file(tmp_path):
    path = tmp_path / "stop"
    return KillSwitchConstraint(path), path.touch


def by_path_text(tmp_path):
    path = tmp_path / "stop"
    return KillSwitchConstraint(str(path)), path.touch


def by_function(tmp_path):
    thrown = []
    return KillSwitchConstraint(lambda: bool(thrown)), lambda: thrown.append(1)


KINDS = [by_event, by_file, by_path_text, by_function]
PHASES = {
    "before the first delta": [hang()],
    "in a stream": [hang("so far ")],
    "in a tool": [call("slow").with_text("so far ")],
    "in a back-off": [fail(TransientError("x"), text="so far ")] * 9,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phase", PHASES)
@virtual
async def test_g7_a_switch_thrown_in_the_middle_stops_the_run_within_100_ms(kind, phase, tmp_path):
    switch, throw = kind(tmp_path)
    model = ScriptedModel(PHASES[phase])
    at = 0.01 if phase == "in a back-off" else 3.0
    asyncio.get_running_loop().call_later(at, throw)
    async with no_leftovers():
        result, recorder = await fly(switch, model=model, tools=[slow], limits=Limits(max_iterations=5))
    assert result.elapsed <= at + SOON
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert result.cause.source == "KillSwitchConstraint"
    assert result.landing_calls == 0
    assert transcript_errors(result.messages) == []
    assert [event for event in recorder.of(StreamStarted) if event.landing] == []
    if "text" not in phase and phase != "before the first delta":
        assert result.text == "so far "


@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_a_switch_that_is_already_thrown_lets_nothing_start(kind, tmp_path):
    switch, throw = kind(tmp_path)
    throw()
    model = ScriptedModel([])
    result, recorder = await fly(switch, named("later"), model=model)
    assert (result.state, result.outcome, model.calls) == (AgentState.CANCELLED, LoopOutcome.CANCELLED, 0)
    events = [(event.constraint, event.skipped) for event in recorder.of(ConstraintViolated)]
    assert events == [("KillSwitchConstraint", False), ("later", True)]


@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_a_switch_that_is_not_thrown_changes_nothing(kind, tmp_path):
    switch, _ = kind(tmp_path)
    result, _ = await fly(switch)
    assert result.outcome is LoopOutcome.DONE


class Failing:
    """A switch that can be read from one time to another, and is never thrown."""

    def __init__(self, *, readable_until=0.0, readable_from=10**9):
        self.times = (readable_until, readable_from)
        self.looks = 0

    def __call__(self):
        self.looks += 1
        now = asyncio.get_running_loop().time()
        if self.times[0] <= now < self.times[1]:
            raise OSError("no such disk")
        return False


@virtual
async def test_g9_a_switch_that_cannot_be_read_for_the_grace_counts_as_thrown():
    switch = KillSwitchConstraint(Failing(readable_until=3))
    result, _ = await fly(switch, model=ScriptedModel([hang("so far ")]))
    assert 8 - SOON <= result.elapsed <= 8 + SOON
    assert (result.state, result.outcome, result.text) == (AgentState.CANCELLED, LoopOutcome.CANCELLED, "so far ")
    assert result.cause.source == "KillSwitchConstraint"
    assert "could not be read for 5 s and counts as thrown: OSError: no such disk" in result.cause.reason


@virtual
async def test_g9_nothing_is_spent_while_a_switch_cannot_be_read():
    model = ScriptedModel([])
    result, _ = await fly(KillSwitchConstraint(Failing()), model=model, kill_switch_grace=2)
    assert (result.outcome, model.calls, result.usage.total) == (LoopOutcome.CANCELLED, 0, 0)
    assert 2 - SOON <= result.elapsed <= 2 + SOON


@virtual
async def test_a_switch_that_can_be_read_again_within_the_grace_lets_the_run_go_on():
    result, _ = await fly(KillSwitchConstraint(Failing(readable_from=4)))
    assert result.outcome is LoopOutcome.DONE
    assert 4 <= result.elapsed <= 4 + SOON


@pytest.mark.parametrize("width", [1, 16])
@virtual
async def test_g9_no_tool_starts_while_a_switch_cannot_be_read(width):
    loop, began = asyncio.get_running_loop(), []
    blind = []

    def read():
        if blind and loop.time() < blind[0] + 3:
            raise OSError("no such disk")
        return False

    @tool
    async def work(n: int) -> str:
        """Work."""
        began.append(loop.time())
        if not blind:
            blind.append(loop.time())
        await asyncio.sleep(1)
        return f"done {n}"

    model = ScriptedModel([calls(call("work", n=1), call("work", n=2)), call("work", n=3), say("end")])
    result, _ = await fly(KillSwitchConstraint(read), model=model, tools=[work], max_parallel_tools=width)
    assert result.outcome is LoopOutcome.DONE
    assert all(at == began[0] or at >= began[0] + 3 for at in began)
    assert len(began) == 3


@virtual
async def test_a_cancel_ends_the_wait_for_a_switch():
    token = CancelToken()
    asyncio.get_running_loop().call_later(1, token.cancel)
    model = ScriptedModel([])
    agent = Agent(model=model, constraints=[KillSwitchConstraint(Failing())], limits=LIMITS)
    result = await agent.run("go", cancel=token)
    assert (result.cause.source, result.elapsed, model.calls) == ("cancel", 1, 0)


@pytest.mark.parametrize("path", ["/etc/passwd/stop", "/tmp/" + "x" * 300], ids=["no folder", "too long"])
@virtual
async def test_g9_a_path_that_cannot_be_looked_at_counts_as_thrown(path):
    model = ScriptedModel([])
    result, _ = await fly(KillSwitchConstraint(path), model=model)
    assert (result.outcome, model.calls) == (LoopOutcome.CANCELLED, 0)
    assert 5 - SOON <= result.elapsed <= 5 + SOON


@virtual
async def test_a_folder_that_never_was_is_a_file_that_is_missing(tmp_path):
    result, _ = await fly(KillSwitchConstraint(tmp_path / "none" / "stop"))
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_g9_a_folder_that_has_gone_away_is_a_switch_that_cannot_be_read(tmp_path):
    folder = tmp_path / "share"
    folder.mkdir()
    asyncio.get_running_loop().call_later(3, folder.rmdir)
    result, _ = await fly(KillSwitchConstraint(folder / "stop"), model=ScriptedModel([hang()]))
    assert result.outcome is LoopOutcome.CANCELLED
    assert 8 - SOON <= result.elapsed <= 8 + SOON
    assert "FileNotFoundError" in result.cause.reason


def test_g7_a_look_that_hangs_blocks_nothing_and_counts_as_unreadable(tmp_path, monkeypatch):
    let_go, turns = threading.Event(), 0

    def stat(path, **options):
        let_go.wait(30)
        raise FileNotFoundError

    async def main():
        nonlocal turns
        switch = KillSwitchConstraint(tmp_path / "stop")
        monkeypatch.setattr("glidepath.guards.constraints.os.stat", stat)

        async def beside():
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        task = asyncio.create_task(beside())
        model = ScriptedModel([])
        try:
            return model, await fly(switch, model=model, kill_switch_grace=0.3)
        finally:
            task.cancel()

    try:
        model, (result, _) = asyncio.run(main())
    finally:
        let_go.set()
    assert (result.outcome, model.calls) == (LoopOutcome.CANCELLED, 0)
    assert "no answer within" in result.cause.reason
    assert [(work.kind, work.tool_name) for work in result.abandoned] == [("thread", "KillSwitchConstraint")]
    assert turns > 3


@virtual
async def test_many_runs_share_one_look(tmp_path, monkeypatch):
    looks, stat = [], os.stat

    def counted(path, **options):
        looks.append(path)
        return stat(path, **options)

    monkeypatch.setattr("glidepath.guards.constraints.os.stat", counted)
    switch = KillSwitchConstraint(tmp_path / "stop")
    agent = Agent(model=ScriptedModel().forever(say("x", delay=10)), constraints=[switch], limits=LIMITS)
    await asyncio.gather(*[agent.run("go") for _ in range(50)])
    assert len(looks) < 2 * (20 * 10 + 50 * 4)


@pytest.mark.parametrize("switch", ["", "a\0b", b"stop"])
def test_what_can_be_no_path_is_refused(switch):
    with pytest.raises(ConfigurationError, match="switch"):
        KillSwitchConstraint(switch)


def test_an_async_function_is_refused_as_a_switch():
    async def ask():
        return False

    with pytest.raises(ConfigurationError, match="check_every"):
        KillSwitchConstraint(ask)


@virtual
async def test_a_kill_between_checkpoints_is_recorded_with_what_it_skipped():
    thrown = []
    switch = KillSwitchConstraint(lambda: bool(thrown))
    asyncio.get_running_loop().call_later(1, thrown.append, 1)
    result, recorder = await fly(switch, model=ScriptedModel([hang()]))
    assert [event.constraint for event in recorder.of(ConstraintViolated)] == ["KillSwitchConstraint"]
    assert [r.constraint for r in result.validations if r.validation.violated] == ["KillSwitchConstraint"]


@virtual
async def test_a_kill_during_the_landing_call_stops_the_landing():
    thrown = []
    switch = KillSwitchConstraint(lambda: bool(thrown))
    asyncio.get_running_loop().call_later(1, thrown.append, 1)
    model = ScriptedModel([call("work").with_text("step 1"), hang("the end is ")])
    result, _ = await fly(switch, model=model, limits=Limits(max_iterations=1))
    assert result.elapsed <= 1 + SOON
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert (result.text, result.landing_calls) == ("the end is ", 1)


@pytest.mark.parametrize("switch", [None, 5, True, object()])
def test_what_can_be_no_switch_is_refused(switch):
    with pytest.raises(ConfigurationError, match="switch"):
        KillSwitchConstraint(switch)


@virtual
async def test_the_answer_already_given_is_kept_when_the_switch_is_thrown_in_a_follow_up():
    thrown = []

    @tool
    async def throw() -> str:
        """Throw the switch."""
        thrown.append(1)
        return "thrown"

    model = ScriptedModel([call("throw").with_text("so far"), say("never asked")])
    switch = KillSwitchConstraint(lambda: bool(thrown))
    result, _ = await fly(switch, model=model, tools=[throw])
    assert (result.text, result.state, model.calls) == ("so far", AgentState.CANCELLED, 1)
