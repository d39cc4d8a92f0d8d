"""Members that raise what no program should, and members that do not stop."""

import asyncio
from contextlib import suppress

import pytest

from glidepath import Agent, Plugin, tool
from glidepath.teams import DefaultTaskDispatchCoordinator, ExpertTeamCoordinator, StepState, TeamStatus
from glidepath.testing import ScriptedModel, call, fail, no_leftovers, say, virtual

from .kit import ROOMY, Recorder, agent, request, step, team

both = pytest.mark.parametrize("coordinator", [DefaultTaskDispatchCoordinator, ExpertTeamCoordinator])


class Unusual(BaseException):
    """Something that is no `Exception`."""


class Refuses(Plugin):
    """Cannot be made for a run."""

    def __init__(self, error):
        self.error = error

    def steering(self, context):
        return None

    def for_run(self):
        raise self.error


@both
@pytest.mark.parametrize("error", [Unusual("odd"), GeneratorExit(), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("where", ["model", "plugin"])
@virtual
async def test_g1_a_member_that_raises_whatever_there_is_fails_its_step_only(coordinator, error, where):
    turns = fail(error) if where == "model" else say("x")
    plugins = [Refuses(error)] if where == "plugin" else []
    bad = Agent(model=ScriptedModel(name="bad").forever(turns), limits=ROOMY, agent_name="bad", plugins=plugins)
    seen = Recorder()
    crew = team(bad, agent("fine", name="good"), recorder=seen)
    asked = request(step("a", member="bad"), step("b", member="good"), max_feedback_rounds=2)
    async with no_leftovers():
        result = await crew.run(asked, coordinator=coordinator())
    seen.check(result)
    assert result.outcome("a").state is StepState.FAILED
    assert "ended ERROR/FAILED" in result.outcome("a").reason
    assert result.outcome("b").output == "fine"


@both
@virtual
async def test_g17_what_a_member_had_to_abandon_is_said(coordinator):
    @tool(timeout=5)
    async def stubborn() -> str:
        """Ignore whoever wants it to stop."""
        until = asyncio.get_running_loop().time() + 60
        while asyncio.get_running_loop().time() < until:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        return "late"

    result = await team(agent(call("stubborn"), say("ok"), tools=[stubborn])).run(
        request(step("a")), coordinator=coordinator()
    )
    assert result.status is TeamStatus.COMPLETED
    assert "step a: did not stop and may still be running: stubborn" in result.warnings
    await asyncio.sleep(120)
