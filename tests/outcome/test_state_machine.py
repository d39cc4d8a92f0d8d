"""The states of a run: every transition, legal and illegal, every ending, and what other protocols call it (SPEC 4)."""

import itertools

import pytest

from glidepath import AgentState, LoopOutcome, RunResult, StopCause
from glidepath.errors import RunNotCompleted
from glidepath.outcome import PROTOCOL_STOPS, TRANSITIONS, ResourceAction, ResourceValidation
from glidepath.values import ENDINGS

S, O = AgentState, LoopOutcome  # noqa: E741 - the two columns of the table
TRANSIENT = {S.IDLE, S.RUNNING, S.WAITING_FOR_TOOL, S.RECOVERING, S.WAITING_FOR_INPUT}
STOPS = {S.MAX_STEPS, S.BUDGET_EXCEEDED, S.TIMED_OUT, S.CANCELLED, S.ERROR}
TERMINAL = STOPS | {S.COMPLETED}

# Beside the stops, which may follow every state that is not terminal.
FORWARD = {
    S.IDLE: {S.RUNNING},
    S.RUNNING: {S.WAITING_FOR_TOOL, S.RECOVERING, S.WAITING_FOR_INPUT, S.COMPLETED},
    S.WAITING_FOR_TOOL: {S.RUNNING, S.WAITING_FOR_INPUT, S.COMPLETED},
    S.RECOVERING: {S.RUNNING, S.COMPLETED},
    S.WAITING_FOR_INPUT: {S.RUNNING, S.WAITING_FOR_TOOL},
}


def test_the_table_is_total():
    assert set(TRANSITIONS) == set(AgentState) == TRANSIENT | TERMINAL


@pytest.mark.parametrize(
    ("before", "after"), [*itertools.product(AgentState, AgentState)], ids=lambda state: state.name
)
def test_every_transition_is_legal_or_not(before, after):
    legal = before in TRANSIENT and (after in STOPS or after in FORWARD[before])
    assert (after in TRANSITIONS[before]) == legal


@pytest.mark.parametrize("state", AgentState)
def test_a_state_is_terminal_when_nothing_follows_it(state):
    assert state.terminal == (state in TERMINAL)


def test_the_tables_cannot_be_changed():
    with pytest.raises(TypeError):
        TRANSITIONS[S.IDLE] = frozenset()
    with pytest.raises(TypeError):
        PROTOCOL_STOPS[S.COMPLETED, O.DONE] = {}


WORDS = {  # state, outcome -> what ACP, A2A and AG-UI call it
    (S.COMPLETED, O.DONE): ("end_turn", "completed", "RUN_FINISHED/success"),
    (S.COMPLETED, O.WRAPPED_UP): ("end_turn", "completed", "RUN_FINISHED/success"),
    (S.COMPLETED, O.CUT_OFF): ("max_tokens", "failed", "RUN_FINISHED/success"),
    (S.MAX_STEPS, O.WRAPPED_UP): ("max_turn_requests", "completed", "RUN_FINISHED/success"),
    (S.MAX_STEPS, O.CUT_OFF): ("max_turn_requests", "failed", "RUN_FINISHED/success"),
    (S.BUDGET_EXCEEDED, O.WRAPPED_UP): ("max_turn_requests", "completed", "RUN_FINISHED/success"),
    (S.BUDGET_EXCEEDED, O.CUT_OFF): ("max_turn_requests", "failed", "RUN_FINISHED/success"),
    (S.TIMED_OUT, O.WRAPPED_UP): ("max_turn_requests", "completed", "RUN_FINISHED/success"),
    (S.TIMED_OUT, O.CUT_OFF): ("max_turn_requests", "failed", "RUN_FINISHED/success"),
    (S.CANCELLED, O.WRAPPED_UP): ("cancelled", "completed", "RUN_FINISHED/success"),
    (S.CANCELLED, O.CUT_OFF): ("cancelled", "failed", "RUN_FINISHED/cancelled"),
    (S.CANCELLED, O.CANCELLED): ("cancelled", "canceled", "RUN_FINISHED/cancelled"),
    (S.ERROR, O.WRAPPED_UP): ("end_turn", "completed", "RUN_FINISHED/success"),
    (S.ERROR, O.CUT_OFF): ("error", "failed", "RUN_FINISHED/success"),
    (S.ERROR, O.FAILED): ("error", "failed", "RUN_ERROR"),
    (S.WAITING_FOR_INPUT, O.PAUSED): ("end_turn", "input-required", "RUN_FINISHED/interrupt"),
}


def test_the_endings_are_the_rows_of_the_specification():
    assert set(WORDS) == ENDINGS


@pytest.mark.parametrize("ending", WORDS, ids=lambda ending: "/".join(part.name for part in ending))
def test_every_ending_has_exactly_one_word_in_every_protocol(ending):
    acp, a2a, agui = WORDS[ending]
    assert PROTOCOL_STOPS[ending] == {"acp": acp, "a2a": a2a, "ag_ui": agui}


def test_there_is_a_word_for_every_ending_and_for_nothing_else():
    assert set(PROTOCOL_STOPS) == ENDINGS


def test_every_state_a_run_can_end_in_has_an_ending():
    assert {state for state, _ in ENDINGS} == TERMINAL | {S.WAITING_FOR_INPUT}


# --- results --------------------------------------------------------------------------------------------------


def result(outcome, **fields):
    state = next(state for state, other in sorted(ENDINGS, key=str) if other is outcome)
    return RunResult(run_id="r", session_id="s", state=state, outcome=outcome, text="the text", **fields)


@pytest.mark.parametrize("outcome", [O.DONE, O.WRAPPED_UP])
def test_unwrap_gives_the_text_of_a_run_that_delivered(outcome):
    assert result(outcome).unwrap() == "the text"


def test_unwrap_gives_the_output_where_there_is_one():
    assert result(O.DONE, output={"n": 0}).unwrap() == {"n": 0}
    assert result(O.DONE, output=0).unwrap() == 0


@pytest.mark.parametrize("outcome", [O.CUT_OFF, O.FAILED, O.CANCELLED, O.PAUSED])
def test_unwrap_raises_for_every_other_outcome_and_carries_the_result(outcome):
    ended = result(outcome, cause=StopCause(source="x", action="y", reason="because of z"))
    with pytest.raises(RunNotCompleted, match=f"{outcome.name}: because of z") as caught:
        ended.unwrap()
    assert caught.value.result is ended


def test_unwrap_says_how_the_run_ended_without_a_cause_too():
    with pytest.raises(RunNotCompleted, match=r"WAITING_FOR_INPUT/PAUSED$"):
        result(O.PAUSED).unwrap()


# --- actions --------------------------------------------------------------------------------------------------


def test_actions_are_ordered_by_an_explicit_severity():
    names = ["ALLOW", "WARN_CONTINUE", "GRACEFUL_EXIT", "EMERGENCY_STOP"]
    assert sorted(ResourceAction, key=lambda action: action.severity) == [ResourceAction[name] for name in names]
    assert len({action.severity for action in ResourceAction}) == len(ResourceAction)


def test_validations_are_made_by_what_they_say():
    assert not ResourceValidation.ok().violated
    assert ResourceValidation.ok(left=3).metrics == {"left": 3}
    bad = ResourceValidation.violation("too much", notice="slow down", used=9)
    assert (bad.violated, bad.reason, bad.metrics, bad.notice) == (True, "too much", {"used": 9}, "slow down")
