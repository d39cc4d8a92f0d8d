"""Task-board dispatch: order, parallelism, turns, attempts, and what reaches the next step."""

import asyncio
import re

import pytest

from glidepath.errors import RejectedError
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    DependencyFailure,
    Member,
    RiskProfile,
    RoleDefinition,
    StepAssigned,
    StepState,
    TeamResourceConstraint,
    TeamStatus,
)
from glidepath.testing import fail, no_leftovers, say, truncated, virtual

from .kit import Recorder, agent, request, step, team

DIAMOND = (step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))


def asked(model):
    return [recorded.messages[0].text for recorded in model.requests]


def named(prompt, names="abcdefgh"):
    return next(name for name in names if f"Your step ({name})" in prompt)


def answering(**answers):
    """A model that answers by the step it is asked about."""

    async def answer(given):
        prompt = given.messages[0].text
        found = next((answers[name] for name in answers if f"Your step ({name})" in prompt), "fine")
        return await found(given) if asyncio.iscoroutinefunction(found) else found

    return answer


@virtual
async def test_steps_run_after_what_they_depend_on_and_see_it():
    seen = Recorder()
    member = agent(answering(a="result A", b="result B", c="result C", d="result D"))
    async with no_leftovers():
        result = await team(member, recorder=seen).run(request(*DIAMOND))
    seen.check(result)
    assert result.status is TeamStatus.COMPLETED
    assert result.final_output == "result D"
    assert [named(prompt) for prompt in asked(member.config.model)] == ["a", "b", "c", "d"]
    last = asked(member.config.model)[-1]
    assert re.search(r"Result of step b:\n\[quote \w+\]\nresult B\n", last)
    assert re.search(r"Result of step c:\n\[quote \w+\]\nresult C\n", last)
    assert "result A" not in last  # not one of its dependencies
    assert "Goal of the team: the goal" in last


@virtual
async def test_a_step_starts_as_soon_as_its_own_dependencies_are_done():
    """No wave barrier: e needs only the quick one."""
    times = {}

    def timed(name, seconds):
        async def answer(given):
            times[name] = [asyncio.get_running_loop().time()]
            await asyncio.sleep(seconds)
            times[name].append(asyncio.get_running_loop().time())
            return "ok"

        return answer

    script = answering(a=timed("a", 1), b=timed("b", 50), e=timed("e", 1))
    members = [agent(script, name=f"m{number}") for number in range(3)]
    result = await team(*members).run(request(step("a"), step("b"), step("e", "a")))
    assert result.status is TeamStatus.COMPLETED
    assert times["e"][1] < times["b"][1]


@virtual
async def test_a_member_does_one_step_at_a_time_and_takes_turns():
    seen = Recorder()
    members = [agent("ok", name=name, first_chunk_delay=1.0) for name in ("x", "y", "z")]
    result = await team(*members, recorder=seen).run(request(*(step(name) for name in "abcdef")))
    assert result.status is TeamStatus.COMPLETED
    assert [event.member for event in seen.of(StepAssigned)] == ["x", "y", "z", "x", "y", "z"]
    assert asyncio.get_running_loop().time() == pytest.approx(2.0, abs=0.1)


@virtual
async def test_no_more_steps_run_at_once_than_allowed():
    running, most = 0, 0

    async def busy(given):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return "ok"

    members = [agent(busy, name=f"m{number}") for number in range(8)]
    limit = TeamResourceConstraint(max_parallel_steps=3)
    result = await team(*members).run(request(*(step(name) for name in "abcdefgh"), resource_constraint=limit))
    assert result.status is TeamStatus.COMPLETED
    assert most == 3


@virtual
async def test_a_pinned_step_goes_to_its_member_and_a_role_to_one_who_can():
    seen = Recorder()
    writer = RoleDefinition(name="writer", instructions="Write well.", required_capability="write")
    members = [
        Member(name="x", agent=agent("ok")),
        Member(name="y", agent=agent("ok")),
        Member(name="z", agent=agent("ok"), capabilities={"write"}),
    ]
    steps = (step("a", member="y"), step("b", member="y"), step("c", role=writer), step("d", role=writer))
    result = await team(*members, recorder=seen).run(request(*steps))
    assert result.status is TeamStatus.COMPLETED
    assert {event.step_id: event.member for event in seen.of(StepAssigned)} == {"a": "y", "b": "y", "c": "z", "d": "z"}
    assert "Your role: writer. Write well." in asked(members[2].agent.config.model)[0]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"role": RoleDefinition(name="pilot", required_capability="fly")}, "no member offers 'fly'"),
        ({"member": "nobody"}, "there is no member 'nobody'"),
        (
            {"member": "member", "role": RoleDefinition(name="pilot", required_capability="fly")},
            "member 'member' does not offer 'fly'",
        ),
    ],
)
@virtual
async def test_a_plan_that_nobody_can_carry_out_fails_before_any_step(wanted, message):
    seen = Recorder()
    result = await team(recorder=seen).run(request(step("a"), step("b", **wanted)))
    seen.check(result)
    assert seen.kinds() == ["TEAM_STARTED", "TEAM_FAILED"]
    assert message in result.reason


@virtual
async def test_a_failed_attempt_goes_to_the_next_member():
    seen = Recorder()
    broken = agent(fail(RejectedError("no")), name="broken")
    sound = agent("ok", name="sound")
    result = await team(broken, sound, recorder=seen).run(request(step("a")))
    assert result.status is TeamStatus.COMPLETED
    assert result.outcome("a").attempts == 2
    assert result.outcome("a").member == "sound"
    assert [event.member for event in seen.of(StepAssigned)] == ["broken", "sound"]
    prompt = asked(sound.config.model)[0]
    assert "What the reviews of your attempts said" in prompt
    assert "RejectedError" in prompt or "no" in prompt


@virtual
async def test_at_most_three_attempts_are_made():
    member = agent(fail(RejectedError("no")))
    seen = Recorder()
    result = await team(member, recorder=seen).run(request(step("a"), step("b", "a")))
    seen.check(result)
    assert result.status is TeamStatus.FAILED
    assert member.config.model.calls == 3
    assert result.outcome("a").state is StepState.FAILED
    assert result.outcome("b").state is StepState.SKIPPED
    assert result.outcome("b").reason == "step a did not deliver"
    assert "step a failed" in result.reason


@virtual
async def test_run_degraded_goes_on_without_what_failed():
    member = agent(answering(a=fail(RejectedError("no")), b="B without A"))
    result = await team(member).run(
        request(step("a"), step("b", "a"), dependency_failure=DependencyFailure.RUN_DEGRADED)
    )
    assert result.status is TeamStatus.DEGRADED
    assert result.final_output == "B without A"
    assert "Step a delivered nothing (FAILED" in asked(member.config.model)[-1]


@pytest.mark.parametrize(("risk", "state"), [(RiskProfile.LOW, "DEGRADED"), (RiskProfile.HIGH, "FAILED")])
@virtual
async def test_work_that_was_cut_off_is_kept_and_used_only_at_low_risk(risk, state):
    result = await team(agent(truncated("half an ans"))).run(request(step("a"), risk_profile=risk))
    assert result.status.name == state
    assert result.outcome("a").state.name == state
    assert result.outcome("a").output.startswith("half an ans")
    assert bool(result.final_output) is (state == "DEGRADED")


@virtual
async def test_artifacts_with_strange_characters_reach_the_next_step():
    member = agent(answering(a=say("nul \0 and half \ud800 a pair"), b="fine"))
    result = await team(member).run(request(step("a"), step("b", "a")))
    assert result.status is TeamStatus.COMPLETED


@virtual
async def test_a_huge_artifact_does_not_drown_the_next_step():
    member = agent(answering(a=say("x" * 120_000), b="fine"))
    result = await team(member).run(request(step("a"), step("b", "a")))
    assert result.status is TeamStatus.COMPLETED
    assert len(result.outcome("a").output) == 120_000
    assert len(asked(member.config.model)[-1]) < 40_000


@virtual
async def test_without_a_plan_there_is_one_step_for_each_role_or_one_in_all():
    roles = (RoleDefinition(name="author", instructions="Write it."), RoleDefinition(name="critic"))
    result = await team().run(request(roles=roles))
    assert [(item.id, item.depends_on) for item in result.plan.steps] == [("1-author", ()), ("2-critic", ("1-author",))]
    alone = await team().run("just this")
    assert [item.description for item in alone.plan.steps] == ["just this"]
    assert alone.plan.source == "deterministic"


@virtual
async def test_the_context_of_a_request_reaches_every_step():
    member = agent("ok")
    await team(member).run(request(step("a"), context={"Audience": "beekeepers"}))
    assert "Audience: beekeepers" in asked(member.config.model)[0]


@virtual
async def test_a_coordinator_may_be_called_directly():
    seen = Recorder()
    crew = team(recorder=seen)
    async with no_leftovers():
        result = await DefaultTaskDispatchCoordinator().execute(request(step("a")), crew)
    seen.check(result)
    assert result.status is TeamStatus.COMPLETED
    assert crew._in_flight == {}
