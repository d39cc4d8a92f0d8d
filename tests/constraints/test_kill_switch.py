"""The kill switch stops a run within a tenth of a second, wherever it is, and makes no further call."""

import asyncio
import threading

import pytest

from glidepath import AgentState, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.constraints import KillSwitchConstraint
from glidepath.errors import TransientError
from glidepath.events import ConstraintViolated, StreamStarted
from glidepath.testing import ScriptedModel, call, fail, hang, no_leftovers, say, transcript_errors, virtual

from .chain import fly, named

SOON = 0.1


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


@virtual
async def test_g9_a_switch_that_cannot_be_read_counts_as_thrown():
    failing = []

    def read():
        if failing:
            raise OSError("no such disk")
        return False

    asyncio.get_running_loop().call_later(3, failing.append, 1)
    result, _ = await fly(KillSwitchConstraint(read), model=ScriptedModel([hang("so far ")]))
    assert result.elapsed <= 3 + SOON
    assert (result.state, result.text) == (AgentState.CANCELLED, "so far ")


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
