"""What somebody is told whose test class gives too little, or whose implementation has another shape altogether."""

import pytest

from glidepath.conformance import (
    EvaluationStrategyContract,
    ResourceConstraintContract,
    SessionStoreContract,
    TeamCoordinatorContract,
)
from glidepath.teams import (
    PlanReady,
    StepAssigned,
    StepCompleted,
    StepOutcome,
    StepState,
    TeamCompleted,
    TeamExecutionPlan,
    TeamResult,
    TeamStarted,
    TeamStatus,
    TeamStep,
)


class Empty:
    """The clauses of a contract without anything to try them on."""

    coordinator = type("GivesNothing", (TeamCoordinatorContract,), {"__test__": False})()
    store = type("GivesNothing", (SessionStoreContract,), {"__test__": False})()
    constraint = type("GivesNothing", (ResourceConstraintContract,), {"__test__": False})()
    evaluator = type("GivesNothing", (EvaluationStrategyContract,), {"__test__": False, "good": "a", "bad": "b"})()


@pytest.mark.parametrize(
    ("clause", "wanted"),
    [
        (
            Empty.coordinator.test_coord_2_team_started_is_first,
            "make_coordinator: A coordinator as a user would create",
        ),
        (Empty.store.test_store_4_bytes_are_bytes, "make_store: An empty store"),
        (Empty.constraint.test_constr_2_it_stops_what_it_is_for, "make_constraint: The constraint"),
        (Empty.evaluator.test_eval_3_it_tells_good_from_bad, "make_strategy: The strategy"),
    ],
)
def test_what_the_test_class_must_give_is_named(clause, wanted):
    with pytest.raises(NotImplementedError, match=f"GivesNothing must have a method {wanted}"):
        clause()


class OwnPlan:
    """Carries out a plan of its own, whatever it is asked; closes what it was given."""

    async def execute(self, request, team):
        plan = TeamExecutionPlan(steps=[TeamStep(id="all", description=request.goal)])
        team.emit(TeamStarted(request=request))
        team.emit(PlanReady(plan=plan))
        team.emit(StepAssigned(step_id="all", attempt=1, member=team.members[0].name))
        outcome = StepOutcome(step_id="all", state=StepState.COMPLETED, output="x", attempts=1)
        team.emit(StepCompleted(step_id="all", attempt=1, outcome=outcome))
        result = TeamResult(
            request=request, team=team.name, status=TeamStatus.COMPLETED, plan=plan, step_outcomes=[outcome]
        )
        team.emit(TeamCompleted(result=result))
        await team.close()
        return result


class Plain:
    """Is not async."""

    def execute(self, request, team):
        return None


def clauses(make):
    return type("Kit", (TeamCoordinatorContract,), {"__test__": False, "make_coordinator": lambda _: make()})()


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        (clauses(OwnPlan).test_coord_8_dependencies_come_first, "there is no step 'all' in the plan"),
        (clauses(OwnPlan).test_coord_13_steps_move_along_the_table, "there is no step 'all' in the plan"),
        (clauses(OwnPlan).test_coord_32_it_leaves_the_run_open, "does not close the team run it was given"),
        (clauses(Plain).test_coord_1_what_members_deliver_is_the_result, "execute() must be async: it answered None"),
        (clauses(Plain).test_coord_32_it_leaves_the_run_open, "execute() must be async: it answered None"),
    ],
)
def test_a_coordinator_of_another_shape_is_told_what_is_wrong(clause, said):
    with pytest.raises(AssertionError) as failure:
        clause()
    assert said in str(failure.value)


def test_an_outcome_that_is_missing_is_named_with_those_that_are_there():
    with pytest.raises(KeyError, match="no outcome for step 'a'; there are outcomes for: all"):
        clauses(OwnPlan).test_coord_21_degraded_keeps_its_output()
