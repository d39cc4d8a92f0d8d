"""The exit code of every way a run can end."""

import pytest

from glidepath.apps.cli import exit_code
from glidepath.messages import StopReason
from glidepath.outcome import AgentState, LoopOutcome, RunResult, StopCause
from glidepath.values import ENDINGS

from .shell_user import glidepath

S, O = AgentState, LoopOutcome  # noqa: E741 - a table reads better with short names
LAND = StopCause(source="repetition", action="land", reason="again and again")
CRASH = StopCause(source="mine", action="graceful_exit", reason="mine failed")
WITHDRAWN = StopCause(source="repetition", action="withdraw", reason="again and again")
LIMIT = StopCause(source="MaxIterationConstraint", action="graceful_exit", reason="5 turns")

TABLE = [
    (S.COMPLETED, O.DONE, None, 0),
    (S.COMPLETED, O.WRAPPED_UP, LIMIT, 3),
    (S.COMPLETED, O.WRAPPED_UP, WITHDRAWN, 0),
    (S.COMPLETED, O.CUT_OFF, LIMIT, 3),
    (S.MAX_STEPS, O.WRAPPED_UP, LIMIT, 3),
    (S.MAX_STEPS, O.CUT_OFF, LIMIT, 3),
    (S.BUDGET_EXCEEDED, O.WRAPPED_UP, LIMIT, 3),
    (S.BUDGET_EXCEEDED, O.CUT_OFF, LIMIT, 3),
    (S.TIMED_OUT, O.WRAPPED_UP, LIMIT, 3),
    (S.TIMED_OUT, O.CUT_OFF, LIMIT, 3),
    (S.CANCELLED, O.WRAPPED_UP, LIMIT, 3),
    (S.CANCELLED, O.CUT_OFF, LIMIT, 3),
    (S.CANCELLED, O.CANCELLED, LIMIT, 3),
    (S.ERROR, O.WRAPPED_UP, LAND, 4),
    (S.ERROR, O.CUT_OFF, LAND, 4),
    (S.ERROR, O.WRAPPED_UP, CRASH, 1),
    (S.ERROR, O.CUT_OFF, CRASH, 1),
    (S.ERROR, O.FAILED, CRASH, 1),
    (S.WAITING_FOR_INPUT, O.PAUSED, None, 6),
]


def result(state, outcome, cause, stop_reason=StopReason.END_TURN):
    return RunResult(run_id="r", session_id="s", state=state, outcome=outcome, cause=cause, stop_reason=stop_reason)


def test_the_table_has_every_ending():
    assert {(state, outcome) for state, outcome, _, _ in TABLE} == set(ENDINGS)


@pytest.mark.parametrize(("state", "outcome", "cause", "code"), TABLE)
def test_an_ending_has_one_exit_code(state, outcome, cause, code):
    assert exit_code(result(state, outcome, cause)) == code


@pytest.mark.parametrize(("state", "outcome", "cause", "code"), TABLE)
def test_landed_ok_makes_0_of_an_answer_that_a_limit_hurried_and_of_nothing_else(state, outcome, cause, code):
    landed = code == 3 and outcome is O.WRAPPED_UP
    assert exit_code(result(state, outcome, cause), landed_ok=True) == (0 if landed else code)


@pytest.mark.parametrize(("state", "outcome", "cause", "code"), TABLE)
def test_a_signal_comes_first_and_a_refusal_second(state, outcome, cause, code):
    assert exit_code(result(state, outcome, cause), 2) == 130
    assert exit_code(result(state, outcome, cause, StopReason.REFUSAL), 15) == 143
    assert exit_code(result(state, outcome, cause, StopReason.REFUSAL)) == 5


@pytest.mark.parametrize(
    ("model", "argv", "code", "out"),
    [
        ("hello", [], 0, "Hello from the script.\n"),
        ("rejects", [], 1, None),
        ("endless", ["--max-turns", "3", "--set", "landing=force"], 3, "Landed.\n"),
        ("cut", [], 3, None),
        ("stuck", [], 4, None),
        ("refuses", [], 5, "I will not.\n"),
        ("policy", [], 5, None),
        ("shell", ["--tools", "shell"], 6, None),
    ],
)
def test_a_real_run_exits_with_its_code(tmp_path, model, argv, code, out):
    ran = glidepath("run", "go", "--model", f"python:flights:{model}", *argv, folder=tmp_path)
    assert ran.code == code, ran
    if out is not None:
        assert ran.out == out
    if code:
        assert ran.err.strip(), "whoever is not done says why"
