"""The state machine of a step is total, and the team's status follows from its steps."""

import itertools
import time

import pytest
from hypothesis import given, strategies as st

from glidepath.teams import (
    STEP_TRANSITIONS,
    DependencyFailure,
    IllegalMove,
    StepOutcome,
    StepState,
    StepTable,
    TeamStatus,
)

from .kit import plan, step

S = StepState
LIVE = {S.PENDING, S.IN_FLIGHT, S.EVALUATING, S.ESCALATED, S.WAITING}


def board(*steps, policy=DependencyFailure.BLOCK):
    return StepTable(plan(*steps), policy)


def at(state):
    made = board(step("a"))
    made.states["a"] = state
    return made


def test_the_table_is_total():
    assert set(STEP_TRANSITIONS) == set(S)
    assert {state for state in S if not STEP_TRANSITIONS[state]} == set(S) - LIVE
    assert {state for state in S if state.terminal} == set(S) - LIVE


@pytest.mark.parametrize("state", sorted(LIVE))
def test_skip_failure_and_cancel_may_follow_any_live_state(state):
    assert {S.SKIPPED, S.FAILED, S.CANCELLED} <= STEP_TRANSITIONS[state]


@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)))
def test_a_move_is_made_when_the_table_has_it_and_refused_when_not(before, after):
    made = at(before)
    if after in STEP_TRANSITIONS[before]:
        made.move("a", after)
        assert made.states["a"] is after
    else:
        with pytest.raises(IllegalMove, match=f"{before.name} to {after.name}"):
            made.move("a", after)
        assert made.states["a"] is before


ILLEGAL = [
    (S.PENDING, S.COMPLETED),
    (S.PENDING, S.EVALUATING),
    (S.EVALUATING, S.WAITING),
    (S.WAITING, S.COMPLETED),
    (S.COMPLETED, S.IN_FLIGHT),
    (S.FAILED, S.COMPLETED),
    (S.SKIPPED, S.PENDING),
    (S.CANCELLED, S.IN_FLIGHT),
    (S.IN_FLIGHT, S.IN_FLIGHT),
]


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_what_must_never_happen_is_not_in_the_table(before, after):
    assert after not in STEP_TRANSITIONS[before]


def ended(made, **states):
    for name, state in states.items():
        made.restore([StepOutcome(step_id=name, state=state, output=name.upper() if state is not S.SKIPPED else "")])
    return made


DIAMOND = (step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ({"a": S.COMPLETED, "b": S.COMPLETED, "c": S.COMPLETED, "d": S.COMPLETED}, TeamStatus.COMPLETED),
        ({"a": S.DEGRADED, "b": S.COMPLETED, "c": S.COMPLETED, "d": S.COMPLETED}, TeamStatus.DEGRADED),
        ({"a": S.COMPLETED, "b": S.FAILED, "c": S.COMPLETED, "d": S.COMPLETED}, TeamStatus.DEGRADED),
        ({"a": S.COMPLETED, "b": S.FAILED, "c": S.COMPLETED, "d": S.SKIPPED}, TeamStatus.FAILED),
        ({"a": S.COMPLETED, "b": S.COMPLETED, "c": S.COMPLETED, "d": S.FAILED}, TeamStatus.FAILED),
        ({"a": S.COMPLETED, "b": S.WAITING, "c": S.FAILED}, TeamStatus.PAUSED),
    ],
)
def test_the_status_follows_from_the_steps(states, status):
    assert ended(board(*DIAMOND), **states).status() is status


def test_a_step_that_a_person_stopped_fails_the_team_only_when_nothing_else_is_delivered():
    two = board(step("a"), step("b"))
    two.restore([StepOutcome(step_id="a", state=S.SKIPPED, stopped=True)])
    two.restore([StepOutcome(step_id="b", state=S.COMPLETED, output="B")])
    assert two.status() is TeamStatus.DEGRADED
    one = board(step("a"))
    one.restore([StepOutcome(step_id="a", state=S.SKIPPED, stopped=True)])
    assert one.status() is TeamStatus.FAILED


@pytest.mark.parametrize(
    ("states", "output"),
    [
        ({"a": S.COMPLETED, "b": S.COMPLETED, "c": S.COMPLETED, "d": S.COMPLETED}, "D"),
        ({"a": S.COMPLETED, "b": S.COMPLETED, "c": S.FAILED, "d": S.SKIPPED}, "B"),
        ({"a": S.COMPLETED, "b": S.COMPLETED, "c": S.COMPLETED, "d": S.CANCELLED}, "B\n\nC"),
        ({"a": S.COMPLETED, "b": S.FAILED, "c": S.FAILED, "d": S.SKIPPED}, "A"),
        ({"a": S.FAILED, "b": S.SKIPPED, "c": S.SKIPPED, "d": S.SKIPPED}, ""),
        ({"a": S.CANCELLED}, "A"),
    ],
)
def test_the_final_output_is_what_was_delivered_furthest_down(states, output):
    assert ended(board(*DIAMOND), **states).final_output() == output


def test_blocked_steps_are_those_behind_one_that_did_not_deliver():
    made = ended(board(*DIAMOND), a=S.COMPLETED, b=S.FAILED)
    assert [(item.id, to_blame) for item, to_blame in made.blocked()] == [("d", "b")]
    assert [item.id for item in made.ready()] == ["c"]
    degraded = ended(board(*DIAMOND, policy=DependencyFailure.RUN_DEGRADED), a=S.COMPLETED, b=S.FAILED, c=S.SKIPPED)
    assert degraded.blocked() == []
    assert [item.id for item in degraded.ready()] == ["d"]


def test_a_long_plan_is_no_burden():
    began = time.process_time()
    steps = [step(f"s{number}", *([f"s{number - 1}"] if number else [])) for number in range(2_000)]
    made = ended(board(*steps), **{item.id: S.COMPLETED for item in steps})
    assert made.final_output() == "S1999"
    assert time.process_time() - began < 3.0


@given(st.lists(st.sampled_from(S), max_size=30))
def test_no_sequence_of_moves_leaves_the_table(states):
    made = board(step("a"))
    for state in states:
        before = made.states["a"]
        try:
            made.move("a", state)
        except IllegalMove:
            assert made.states["a"] is before
        else:
            assert state in STEP_TRANSITIONS[before]
            assert not before.terminal
