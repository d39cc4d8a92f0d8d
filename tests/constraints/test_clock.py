"""A constraint may be asked on a clock: its emergency interrupts what is in flight."""

import asyncio
from itertools import pairwise
from math import inf, nan

import pytest

from glidepath import (
    Agent,
    AgentState,
    ConfigurationError,
    Limits,
    LoopOutcome,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
    tool,
)
from glidepath.errors import TransientError
from glidepath.events import ConstraintViolated, HookFailed
from glidepath.testing import ScriptedModel, call, fail, hang, no_leftovers, say, transcript_errors, virtual

from .chain import fly

EMERGENCY, GRACEFUL, WARN = ResourceAction.EMERGENCY_STOP, ResourceAction.GRACEFUL_EXIT, ResourceAction.WARN_CONTINUE


@tool
async def slow() -> str:
    """Be slow."""
    await asyncio.sleep(50)
    return "done"


class Clock(ResourceConstraint):
    """Violated from a time on; notes when and where it was asked."""

    check_every = 0.5
    state = AgentState.BUDGET_EXCEEDED

    def __init__(self, action=EMERGENCY, at=3.0):
        self.action = action
        self.at = at
        self.asked = []

    async def validate(self, context):
        self.asked.append((asyncio.get_running_loop().time(), context.checkpoint))
        if asyncio.get_running_loop().time() < self.at:
            return ResourceValidation.ok()
        return ResourceValidation.violation("the signal is on", signal=1)

    def on_violation(self, validation):
        return self.action


class Plain(Clock):
    def validate(self, context):
        self.asked.append((asyncio.get_running_loop().time(), context.checkpoint))
        on = asyncio.get_running_loop().time() >= self.at
        return ResourceValidation.violation("the signal is on", signal=1) if on else ResourceValidation.ok()


class Waiting(Clock):
    async def validate(self, context):
        await asyncio.sleep(0.01)
        return await super().validate(context)


PHASES = {
    "in a stream": [hang("so far ")],
    "in a tool": [call("slow").with_text("so far ")],
    "in a back-off": [fail(TransientError("x", retry_after=100), text="so far ")],
}


@pytest.mark.parametrize("kind", [Clock, Plain, Waiting])
@pytest.mark.parametrize("phase", PHASES)
@virtual
async def test_g7_an_emergency_on_the_clock_interrupts_what_is_in_flight(kind, phase):
    constraint = kind()
    async with no_leftovers():
        result, recorder = await fly(
            constraint, model=ScriptedModel(PHASES[phase]), tools=[slow], limits=Limits(max_iterations=5)
        )
    assert 3 <= result.elapsed <= 3.6
    assert (result.state, result.outcome, result.text) == (
        AgentState.BUDGET_EXCEEDED,
        LoopOutcome.CUT_OFF,
        "so far ",
    )
    assert (result.cause.source, result.cause.action) == (constraint.name, "emergency_stop")
    assert result.cause.metrics == {"signal": 1}
    assert result.landing_calls == 0
    [violated] = recorder.of(ConstraintViolated)
    assert (violated.checkpoint, violated.action) == ("in_flight", EMERGENCY)
    assert transcript_errors(result.messages) == []


@pytest.mark.parametrize("action", [GRACEFUL, WARN])
@virtual
async def test_what_is_milder_waits_for_the_checkpoint(action):
    constraint = Clock(action)
    model = ScriptedModel([call("slow"), say("answer")])
    result, recorder = await fly(constraint, model=model, tools=[slow], limits=Limits(max_iterations=5))
    assert result.elapsed >= 50
    assert "done" in [message.text for message in result.messages]
    assert {event.checkpoint for event in recorder.of(ConstraintViolated)} <= {"after_tools", "pre_flight"}
    assert (result.outcome is LoopOutcome.WRAPPED_UP) is (action is GRACEFUL)


@virtual
async def test_it_is_asked_at_its_own_pace():
    constraint = Clock(at=inf)
    await fly(constraint, model=ScriptedModel([say("a", delay=10)]))
    times = [at for at, where in constraint.asked if where == "in_flight"]
    assert len(times) >= 19
    assert all(round(later - earlier, 6) >= 0.5 for earlier, later in pairwise(times))


@virtual
async def test_without_a_clock_it_is_asked_at_checkpoints_only():
    constraint = Clock(at=inf)
    constraint.check_every = None
    await fly(constraint, model=ScriptedModel([say("a", delay=10)]))
    assert "in_flight" not in {where for _, where in constraint.asked}


class Breaks(Clock):
    def __init__(self, how):
        super().__init__(at=inf)
        self.how = how

    async def validate(self, context):
        if context.checkpoint != "in_flight":
            return ResourceValidation.ok()
        if self.how == "hangs":
            await asyncio.sleep(100)
        if self.how == "ignores its cancellation":
            while True:
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    continue
        if isinstance(self.how, BaseException):
            raise self.how
        return self.how


@pytest.mark.parametrize(
    "how",
    [OSError("gone"), SystemExit(3), asyncio.CancelledError(), None, "no", "hangs", "ignores its cancellation"],
    ids=repr,
)
@virtual
async def test_g9_a_constraint_that_breaks_on_the_clock_lands_the_run_at_the_next_checkpoint(how):
    model = ScriptedModel([call("slow"), say("landed")])
    result, recorder = await fly(Breaks(how), model=model, tools=[slow], limits=Limits(max_iterations=5))
    assert (result.state, result.outcome, result.text) == (AgentState.ERROR, LoopOutcome.WRAPPED_UP, "landed")
    assert "done" in [message.text for message in result.messages]
    assert [event.plugin for event in recorder.of(HookFailed)] == ["Breaks"]
    assert [work.kind for work in result.abandoned] == (["task"] if how == "ignores its cancellation" else [])
    await asyncio.sleep(2)


@virtual
async def test_an_emergency_in_the_landing_ends_the_landing():
    model = ScriptedModel([call("work").with_text("step 1"), hang("the end is ")])
    result, _ = await fly(Clock(), model=model, limits=Limits(max_iterations=1))
    assert (result.cause.source, result.outcome, result.text) == ("Clock", LoopOutcome.CUT_OFF, "the end is ")
    assert result.elapsed <= 3.6


@pytest.mark.parametrize("value", [0, -1, 0.001, nan, inf, 10**400, "1", True])
def test_a_clock_that_cannot_be_is_refused(value):
    constraint = Clock()
    constraint.check_every = value
    with pytest.raises(ConfigurationError, match=r"Clock\.check_every must be None or a number of seconds"):
        Agent(model=ScriptedModel([]), constraints=[constraint], limits=Limits(max_iterations=1))
