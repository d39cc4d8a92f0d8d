"""What coordinators share: whatever the code for one step does, the plan ends as a plan ends."""

import asyncio

import pytest

from glidepath import ConfigurationError
from glidepath.sessions import MemoryStore
from glidepath.teams import PlanRun, StepOutcome, StepState, TeamResourceConstraint, TeamStatus
from glidepath.testing import no_leftovers, virtual

from .kit import REVISE, Recorder, agent, request, step, team


class Custom:
    """A coordinator made of one function."""

    def __init__(self, perform, **more):
        self.perform, self.more = perform, more

    async def execute(self, request, team):
        return await PlanRun(request, team, self.perform, name="Custom", **self.more).carry_out()


async def once(plan, step):
    result = await plan.attempt(step)
    return plan.cut_short(step, result) or step.outcome(StepState.COMPLETED)


async def crashes(plan, step):
    raise ValueError("boom")


async def answers_text(plan, step):
    return "done"


async def answers_for_another(plan, step):
    return StepOutcome(step_id="other", state=StepState.COMPLETED)


async def gives_back(plan, step):
    return None


def picks_text(plan, task):
    return "bee"


def picks_nobody(plan, task):
    return None


@pytest.mark.parametrize(
    ("perform", "more", "why"),
    [
        (crashes, {}, "ValueError: boom"),
        (answers_text, {}, "perform must return an outcome of step 'a' or None, not 'done'"),
        (answers_for_another, {}, "perform must return an outcome of step 'a' or None"),
        (gives_back, {}, "perform gave step 'a' back without attempting it"),
        (once, {"pick": picks_text}, "what pick returns must be a Member, not 'bee'"),
        (once, {"pick": picks_nobody}, "step a pending: nobody did it"),
    ],
)
@virtual
async def test_g1_a_coordinator_that_is_wrong_about_a_step_fails_and_says_why(perform, more, why):
    seen = Recorder()
    async with no_leftovers():
        result = await team(agent("ok"), recorder=seen).run(request(step("a")), coordinator=Custom(perform, **more))
    seen.check(result)
    assert result.status is TeamStatus.FAILED
    assert why in result.reason


@virtual
async def test_as_many_steps_at_once_as_the_coordinator_allows():
    for parallel, asked, most in ((1, None, 1), (2, None, 2), (3, 2, 2), (None, None, 4)):
        at_work, seen = [0], []

        async def counted(plan, step, at_work=at_work, seen=seen):
            at_work[0] += 1
            seen.append(at_work[0])
            await asyncio.sleep(1)
            at_work[0] -= 1
            return await once(plan, step)

        limits = {} if asked is None else {"resource_constraint": TeamResourceConstraint(max_parallel_steps=asked)}
        steps = [step(name) for name in "abcd"]
        result = await team(agent("ok")).run(request(*steps, **limits), coordinator=Custom(counted, parallel=parallel))
        assert result.status is TeamStatus.COMPLETED
        assert max(seen) == most
    with pytest.raises(ConfigurationError, match=r"PlanRun\.parallel"):
        await team(agent("ok")).run(request(step("a")), coordinator=Custom(once, parallel=0))


@virtual
async def test_a_completed_step_delivers_what_was_made_last_and_a_failed_one_what_was_best():
    async def second_time(plan, step):
        for _ in range(2):
            await plan.attempt(step)
            step.judged(REVISE)
        return step.outcome(StepState.COMPLETED if step.id == "a" else StepState.FAILED)

    result = await team(agent("one", "two", "three", "")).run(
        request(step("a"), step("b", "a")), coordinator=Custom(second_time)
    )
    assert (result.outcome("a").output, result.outcome("b").output) == ("two", "three")


@virtual
async def test_a_person_reaches_the_steps_of_any_plan():
    plans = []

    async def waits(plan, step):
        plans.append(plan)
        await step.interrupted
        return plan.cut_short(step)

    work = asyncio.create_task(team(agent("ok")).run(request(step("a"), step("b", "a")), coordinator=Custom(waits)))
    await asyncio.sleep(1)
    [plan] = plans
    assert plan.steer("b", "mention honey")
    assert not plan.steer("c", "mention honey")
    assert plan.stop_step("a", "enough")
    assert (await work).outcome("a").reason == "stopped: enough"
    assert not plan.stop_step("a", "enough")


@virtual
async def test_g13_a_coordinator_of_ones_own_goes_on_after_a_death():
    store, asked, done = MemoryStore(), request(step("a"), step("b", "a")), []

    async def dies_at_b(plan, step):
        if step.id == "b" and not done:
            done.append(plan.team)
            plan.team.events.fail("the process died")
        return await once(plan, step)

    first = await team(agent("ok"), store=store).run(asked, coordinator=Custom(dies_at_b))
    assert first.status is TeamStatus.FAILED
    seen, member = Recorder(), agent("again")
    result = await team(member, store=store, recorder=seen).resume(asked.id, coordinator=Custom(once))
    assert [outcome.output for outcome in result.step_outcomes] == ["ok", "again"]
    assert member.config.model.calls == 1
