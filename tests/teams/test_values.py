"""The values of a team are frozen, and wrong ones say which field."""

import math

import pytest

from glidepath import ConfigurationError
from glidepath.teams import (
    DependencyFailure,
    EvaluationContext,
    EvaluationVerdict,
    EvaluatorPreference,
    Member,
    PlannerFailureMode,
    RiskProfile,
    RoleDefinition,
    SimpleEvaluationStrategy,
    StepOutcome,
    StepState,
    Team,
    TeamConfig,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResourceConstraint,
    TeamResult,
    TeamStatus,
    TeamStep,
    VerdictOutcome,
)
from glidepath.values import decode, encode

from .kit import agent, plan, request, step

TEXTS = [7, None, b"x", "", "  ", "nul \0", "half \ud800"]
NAMES = [*TEXTS, "two\nlines", "two\rlines", "two\u2028lines", "x" * 201]
COUNTS = ["5", 5.0, math.nan, -1, 0, True, [5]]
SECONDS = ["5", math.nan, math.inf, -1, 0, True, [5]]

GOOD = {
    RoleDefinition: {"name": "writer"},
    TeamStep: {"id": "a", "description": "do a"},
    TeamExecutionPlan: {"steps": (TeamStep(id="a", description="do a"),)},
    TeamExecutionRequest: {"goal": "go"},
    TeamConfig: {},
    TeamResourceConstraint: {},
    EvaluationVerdict: {"outcome": VerdictOutcome.PASS},
    EvaluationContext: {"step": TeamStep(id="a", description="do a"), "artifact": "x"},
    StepOutcome: {"step_id": "a", "state": StepState.COMPLETED},
    TeamResult: {"request": TeamExecutionRequest(goal="go"), "team": "t", "status": TeamStatus.COMPLETED},
    Member: {"name": "bee", "agent": agent("x")},
    SimpleEvaluationStrategy: {},
}

BAD = [
    (RoleDefinition, "name", NAMES),
    (RoleDefinition, "instructions", [7, None, "nul \0", "\ud800"]),
    (RoleDefinition, "required_capability", [7, "", "two\nlines"]),
    (TeamStep, "id", NAMES),
    (TeamStep, "description", TEXTS),
    (TeamStep, "role", ["writer", {"name": "writer"}]),
    (TeamStep, "depends_on", ["b", 7, [7], ("a",), ("b", "b"), {"b"}]),
    (TeamStep, "member", [7, "", []]),
    (TeamExecutionPlan, "steps", [(), 7, "a", [7], ({"id": "a"},)]),
    (TeamExecutionPlan, "source", [7, ""]),
    (TeamExecutionRequest, "goal", TEXTS),
    (TeamExecutionRequest, "id", NAMES),
    (TeamExecutionRequest, "roles", ["writer", 7, ("writer",)]),
    (TeamExecutionRequest, "context", [7, "x", {"a": 7}, {7: "a"}, {"a": "\0"}]),
    (TeamExecutionRequest, "plan", [7, "plan", ()]),
    (TeamExecutionRequest, "plan_only", [1, "yes", None]),
    (TeamExecutionRequest, "config", [None, {}, TeamConfig]),
    (TeamConfig, "risk_profile", ["low", None, 1]),
    (TeamConfig, "evaluator_preference", ["auto", None]),
    (TeamConfig, "planner_failure_mode", ["fail_fast", None]),
    (TeamConfig, "dependency_failure", ["block", None]),
    (TeamConfig, "resource_constraint", [None, {}, 7]),
    (TeamConfig, "auto_pass", [1, None, True]),
    (TeamConfig, "max_feedback_rounds", [*COUNTS, None]),
    (TeamConfig, "team_timeout", [*SECONDS, None]),
    (TeamConfig, "step_timeout", [*SECONDS, None]),
    (TeamConfig, "evaluator_timeout", [*SECONDS, None]),
    (TeamResourceConstraint, "max_total_tokens", COUNTS),
    (TeamResourceConstraint, "max_parallel_steps", COUNTS),
    (TeamResourceConstraint, "max_duration", SECONDS),
    (TeamResourceConstraint, "max_cost", ["x", -1, 0, "NaN", True]),
    (EvaluationVerdict, "outcome", ["pass", None]),
    (EvaluationVerdict, "score", [-0.01, 1.01, math.nan, math.inf, "1", None, True]),
    (EvaluationVerdict, "feedback", [7, None]),
    (EvaluationVerdict, "suggestions", ["x", 7, [7]]),
    (EvaluationContext, "step", ["a", None]),
    (EvaluationContext, "artifact", [7, None]),
    (EvaluationContext, "attempt", [*COUNTS, None]),
    (EvaluationContext, "prior_verdicts", ["x", [7]]),
    (EvaluationContext, "config", [None, {}]),
    (StepOutcome, "step_id", NAMES),
    (StepOutcome, "state", ["completed", None]),
    (StepOutcome, "attempts", ["1", -1, 1.5]),
    (TeamResult, "request", ["go", None]),
    (TeamResult, "status", ["completed", None]),
    (TeamResult, "step_outcomes", ["x", [7]]),
    (TeamResult, "warnings", ["x", [7]]),
    (TeamResult, "plan", ["x", 7]),
    (Member, "name", NAMES),
    (Member, "agent", [None, "bee", Member]),
    (Member, "capabilities", ["write", 7, [7]]),
    (SimpleEvaluationStrategy, "required", ["x", [7], [""]]),
    (SimpleEvaluationStrategy, "forbidden", ["x", [7], [""]]),
    (SimpleEvaluationStrategy, "min_words", COUNTS),
    (SimpleEvaluationStrategy, "max_words", COUNTS),
    (SimpleEvaluationStrategy, "pass_score", ["1", 0, -1, 1.5, math.nan, True, None]),
]


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        pytest.param(kind, field, value, id=f"{kind.__name__}.{field}-{number}")
        for kind, field, values in BAD
        for number, value in enumerate(values)
    ],
)
def test_a_wrong_field_is_named(kind, field, value):
    with pytest.raises(ConfigurationError, match=f"{kind.__name__}.{field}"):
        kind(**(GOOD[kind] | {field: value}))


@pytest.mark.parametrize("kind", GOOD, ids=lambda kind: kind.__name__)
def test_a_value_is_frozen(kind):
    value = kind(**GOOD[kind])
    with pytest.raises(AttributeError):
        setattr(value, kind.__struct_fields__[0], "other")


def test_lists_are_taken_as_tuples():
    made = TeamStep(id="c", description="do c", depends_on=["a", "b"])
    assert made.depends_on == ("a", "b")
    assert hash(made)


def test_the_defaults_are_the_documented_ones():
    config = TeamConfig()
    assert config.risk_profile is RiskProfile.MEDIUM
    assert config.max_feedback_rounds == 3
    assert (config.team_timeout, config.step_timeout) == (600, 300)
    assert config.evaluator_preference is EvaluatorPreference.AUTO
    assert config.planner_failure_mode is PlannerFailureMode.FAIL_FAST
    assert config.dependency_failure is DependencyFailure.BLOCK
    assert config.resource_constraint == TeamResourceConstraint()


def test_the_time_of_a_team_is_the_lesser_of_its_two_limits():
    assert TeamConfig(team_timeout=50).time_limit == 50
    assert TeamConfig(resource_constraint=TeamResourceConstraint(max_duration=7)).time_limit == 7


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((step("a"), step("a")), "two steps have the id 'a'"),
        ((step("a", "z"),), "'z', which is not a step"),
        ((step("a", "b"), step("b", "a")), "wait for each other: a, b"),
        ((step("a"), step("b", "a", "d"), step("c", "b"), step("d", "c")), "wait for each other: b, c, d"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(steps, message):
    with pytest.raises(ConfigurationError, match=message):
        plan(*steps)


def test_a_request_and_its_result_survive_a_round_trip():
    asked = request(step("a", role=RoleDefinition(name="writer")), step("b", "a"), roles=(RoleDefinition(name="x"),))
    assert decode(encode(asked), TeamExecutionRequest) == asked
    outcomes = tuple(StepOutcome(step_id=name, state=StepState.COMPLETED, output="x") for name in "ab")
    result = TeamResult(
        request=asked, team="t", status=TeamStatus.COMPLETED, plan=asked.plan, step_outcomes=outcomes, final_output="x"
    )
    assert decode(encode(result), TeamResult) == result


def test_a_result_has_its_outcomes_in_plan_order():
    asked = request(step("a"), step("b"))
    outcomes = tuple(StepOutcome(step_id=name, state=StepState.COMPLETED) for name in "ba")
    with pytest.raises(ConfigurationError, match="plan order"):
        TeamResult(request=asked, team="t", status=TeamStatus.FAILED, plan=asked.plan, step_outcomes=outcomes)


TEAM = [
    ({"members": ()}, "Team.members"),
    ({"members": "bee"}, "Team.members"),
    ({"members": [7]}, "Team.members"),
    ({"members": agent("x")}, "Team.members"),
    ({"members": [agent("x"), agent("y")]}, "two members are named 'member'"),
    ({"name": ""}, "Team.name"),
    ({"coordinator": "expert"}, "coordinator"),
    ({"coordinator": object()}, "coordinator"),
    ({"plugins": "log"}, "Team.plugins"),
    ({"plugins": [7]}, "plugins"),
    ({"event_sink": "print"}, "Team.event_sink"),
    ({"store": "folder"}, "Team.store"),
]


@pytest.mark.parametrize(("wrong", "message"), TEAM, ids=range(len(TEAM)))
def test_a_wrong_team_is_named(wrong, message):
    with pytest.raises(ConfigurationError, match=message):
        Team(**({"members": [agent("x")]} | wrong))
