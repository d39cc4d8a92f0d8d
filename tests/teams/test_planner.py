"""Planning: a model's plan, one repair, and what happens when there is none."""

import json
import time

import pytest

from glidepath.errors import RejectedError
from glidepath.teams import (
    ExpertTeamCoordinator,
    Member,
    PlannerFailureMode,
    RoleDefinition,
    TeamConfig,
    TeamStatus,
    objects_in,
)
from glidepath.testing import fail, hang, virtual

from .kit import Recorder, agent, request, step, team

ROLES = (
    RoleDefinition(name="writer", instructions="Write it."),
    RoleDefinition(name="checker", instructions="Check it.", required_capability="check"),
)
GOOD = {
    "steps": [
        {"id": "draft", "description": "write a draft", "role": "writer", "depends_on": []},
        {"id": "check", "description": "check the draft", "role": "checker", "depends_on": ["draft"]},
    ]
}
BAD = {"steps": [{"id": "draft", "description": "x", "depends_on": ["nobody"]}]}


def crew(recorder=None):
    return team(Member(name="bee", agent=agent("done"), capabilities={"check"}), recorder=recorder)


def planned_by(*answers):
    return ExpertTeamCoordinator(planner=agent(*answers, name="planner"))


def model_of(coordinator):
    return coordinator.planner.config.model


@virtual
async def test_a_planners_plan_is_carried_out():
    seen, coordinator = Recorder(), planned_by(f"Here you are:\n```json\n{json.dumps(GOOD)}\n```")
    result = await crew(seen).run(request(roles=ROLES), coordinator=coordinator)
    seen.check(result)
    assert result.status is TeamStatus.COMPLETED
    assert [(item.id, item.depends_on) for item in result.plan.steps] == [("draft", ()), ("check", ("draft",))]
    assert result.plan.step("check").role == ROLES[1]
    assert result.plan.source == "planner"
    assert model_of(coordinator).calls == 1
    prompt = model_of(coordinator).requests[0].messages[0].text
    assert "the goal" in prompt
    assert "- bee: check" in prompt
    assert "- writer: Write it." in prompt


@virtual
async def test_a_wrong_plan_is_repaired_once_with_what_was_wrong():
    coordinator = planned_by(json.dumps(BAD), json.dumps(GOOD))
    result = await crew().run(request(roles=ROLES), coordinator=coordinator)
    assert result.status is TeamStatus.COMPLETED
    repair = model_of(coordinator).requests[1].messages[0].text
    assert "'nobody', which is not a step" in repair
    assert '"depends_on": ["nobody"]' in repair


WRONG = {
    "prose": "first we write, then we check",
    "empty list": '{"steps": []}',
    "no list": '{"steps": "draft"}',
    "cycle": json.dumps(
        {
            "steps": [
                {"id": "a", "description": "x", "depends_on": ["b"]},
                {"id": "b", "description": "x", "depends_on": ["a"]},
            ]
        }
    ),
    "same id": json.dumps({"steps": [{"id": "a", "description": "x"}, {"id": "a", "description": "x"}]}),
    "no description": json.dumps({"steps": [{"id": "a"}]}),
    "number": json.dumps({"steps": [7]}),
    "unknown role": json.dumps({"steps": [{"id": "a", "description": "x", "role": "pilot"}]}),
    "dependencies": json.dumps({"steps": [{"id": "a", "description": "x", "depends_on": 7}]}),
    "too many": json.dumps({"steps": [{"id": str(number), "description": "x"} for number in range(41)]}),
    "no id": json.dumps({"steps": [{"description": "x"}]}),
    "null id": json.dumps({"steps": [{"id": None, "description": "x"}]}),
    "object id": json.dumps({"steps": [{"id": {"a": 1}, "description": "x"}]}),
    "two lines": json.dumps({"steps": [{"id": "a\rb", "description": "x"}]}),
    "failed": fail(RejectedError("no")),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@virtual
async def test_without_a_valid_plan_the_team_fails_fast(wrong):
    seen, coordinator = Recorder(), planned_by(wrong)
    member = agent("done")
    result = await team(member, recorder=seen).run(request(roles=ROLES[:1]), coordinator=coordinator)
    seen.check(result)
    assert seen.kinds() == ["TEAM_STARTED", "TEAM_FAILED"]
    assert "no valid plan" in result.reason
    assert model_of(coordinator).calls == 2
    assert member.config.model.calls == 0
    assert result.usage.total > 0 or wrong is WRONG["failed"]


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@virtual
async def test_with_fallback_the_deterministic_plan_is_used_and_said(wrong):
    seen, coordinator = Recorder(), planned_by(wrong)
    asked = request(roles=ROLES, planner_failure_mode=PlannerFailureMode.FALLBACK)
    result = await crew(seen).run(asked, coordinator=coordinator)
    seen.check(result)
    assert result.status is TeamStatus.COMPLETED
    assert result.plan.source == "deterministic"
    assert [item.id for item in result.plan.steps] == ["1-writer", "2-checker"]
    assert any("the planner failed" in warning for warning in result.warnings)


@virtual
async def test_a_plan_with_a_role_nobody_can_play_fails_also_the_fallback():
    coordinator = planned_by(json.dumps(GOOD))
    asked = request(roles=ROLES, planner_failure_mode=PlannerFailureMode.FALLBACK)
    result = await team(agent("done")).run(asked, coordinator=coordinator)
    assert result.status is TeamStatus.FAILED
    assert "no member offers 'check'" in result.reason


@virtual
async def test_a_planner_that_hangs_is_stopped():
    coordinator = planned_by(hang())
    asked = request(step_timeout=20, team_timeout=100)
    result = await team().run(asked, coordinator=coordinator)
    assert result.status is TeamStatus.FAILED
    assert "planning took too long" in result.reason
    assert result.duration < 30


@virtual
async def test_a_planner_that_failed_is_the_reason_and_not_its_silence():
    result = await team().run(request(), coordinator=planned_by(fail(RejectedError("no such model"))))
    assert "the planner ended FAILED" in result.reason
    assert "no such model" in result.reason


@virtual
async def test_a_plan_among_other_objects_is_found():
    coordinator = planned_by(f'My thoughts: {{"mood": "good"}}. The plan: {json.dumps(GOOD)}')
    result = await crew().run(request(roles=ROLES), coordinator=coordinator)
    assert [item.id for item in result.plan.steps] == ["draft", "check"]


def test_no_answer_takes_much_longer_to_be_read_than_a_good_one():
    def cost(answer, objects):
        began = time.process_time()
        assert len(list(objects_in(answer))) == objects
        return time.process_time() - began

    good = cost(json.dumps({"ones": [1] * 60_000}), 1)
    endless = '{"a":' * 60 + "[" + "1, " * 60_000
    for answer in ("{" * 1_000_000, '{"a":' * 200_000, '{"a": "' * 200_000, endless):
        assert cost(answer, 0) < 15 * good  # with every try reading on to the end it would be 50 and more


@virtual
async def test_a_team_whose_time_is_up_while_planning_is_timed_out():
    result = await team().run(request(team_timeout=10, step_timeout=50), coordinator=planned_by(hang()))
    assert result.status is TeamStatus.TIMEOUT
    assert result.plan is None


@virtual
async def test_a_given_plan_is_not_planned_again():
    coordinator = planned_by("never asked")
    result = await team().run(request(step("a")), coordinator=coordinator)
    assert result.plan.source == "given"
    assert model_of(coordinator).calls == 0


@virtual
async def test_planning_is_charged_to_the_team():
    coordinator = planned_by(json.dumps(GOOD))
    result = await crew().run(request(roles=ROLES), coordinator=coordinator)
    spent = sum(outcome.usage.total for outcome in result.step_outcomes)
    assert result.usage.total > spent
    assert TeamConfig() == result.request.config
