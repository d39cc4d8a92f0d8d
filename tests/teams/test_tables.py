"""Risk x evaluator x attempts x dependency policy x failure: the documented status, states, events and output."""

import itertools

import pytest

from glidepath.errors import RejectedError
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    DependencyFailure,
    EvaluatorPreference,
    ExpertTeamCoordinator,
    RiskProfile,
    StepState,
    TeamStatus,
)
from glidepath.testing import fail, hang, no_leftovers, say, truncated, virtual

from .kit import AUTO, EXCEEDED, PASS, REVISE, Recorder, Verdicts, agent, request, step, team

S, R, D = StepState, RiskProfile, DependencyFailure

VERDICTS = {
    "pass": lambda: Verdicts(PASS),
    "revise once": lambda: Verdicts(REVISE, PASS),
    "revise": lambda: Verdicts(REVISE),
    "exceeded": lambda: Verdicts(EXCEEDED),
    "auto": lambda: Verdicts(AUTO),
    "crash": lambda: Verdicts(ValueError("boom")),
    "hang": lambda: Verdicts("hang"),
    "empty": lambda: Verdicts(None),
    "nonsense": lambda: Verdicts("PASS"),
}
ESCALATING = {"exceeded", "auto", "crash", "hang", "empty", "nonsense"}

MEMBERS = {
    "sound": lambda: say("work"),
    "broken": lambda: fail(RejectedError("no")),
    "cut off": lambda: truncated("half the work"),
    "hanging": hang,
}


def expected_step(risk, verdict, attempts, member):
    """What becomes of the first step, how many attempts it takes, and whether it has a text. The rules, once more."""
    if member == "hanging":  # out of time in the first attempt, without a text
        return S.FAILED, 1, False
    if member == "broken":
        return S.FAILED, attempts, False
    if member == "cut off":  # never reviewed: every attempt counts, the text is kept
        return (S.DEGRADED if risk is R.LOW else S.FAILED), attempts, True
    if verdict == "pass":
        return S.COMPLETED, 1, True
    if verdict == "revise once" and attempts > 1:
        return S.COMPLETED, 2, True
    used = 1 if verdict in ESCALATING else attempts
    return (S.DEGRADED if risk is R.LOW else S.FAILED), used, True


def expected_team(state, policy):
    if state.delivered:
        return (TeamStatus.COMPLETED if state is S.COMPLETED else TeamStatus.DEGRADED), S.COMPLETED
    if policy is D.RUN_DEGRADED:
        return TeamStatus.DEGRADED, S.COMPLETED
    return TeamStatus.FAILED, S.SKIPPED


ROWS = list(itertools.product(R, VERDICTS, (1, 2, 3), D, MEMBERS))


class FirstOnly:
    """Judges step a with one evaluator; step b always passes."""

    def __init__(self, evaluator):
        self.evaluator = evaluator

    async def evaluate(self, context):
        return PASS if context.step.id == "b" else await self.evaluator.evaluate(context)


def by_step(turn):
    return lambda given: turn if "Your step (a)" in given.messages[0].text else say("the end")


@pytest.mark.parametrize("risk", R)
@pytest.mark.parametrize("policy", D)
def test_every_combination_ends_as_documented(risk, policy):
    rows = [row for row in ROWS if row[0] is risk and row[3] is policy]
    assert len(rows) == len(VERDICTS) * 3 * len(MEMBERS)
    for _, verdict, attempts, _, member in rows:
        _one_combination(risk, verdict, attempts, policy, member)


@virtual
async def _one_combination(risk, verdict, attempts, policy, member):
    row = f"{risk} {verdict} {attempts} {policy} {member}"
    seen = Recorder()
    evaluator = FirstOnly(VERDICTS[verdict]())
    asked = request(
        step("a"),
        step("b", "a"),
        risk_profile=risk,
        max_feedback_rounds=attempts,
        dependency_failure=policy,
        step_timeout=50,
        evaluator_timeout=10,
        evaluator_preference=EvaluatorPreference.SIMPLE,
    )
    async with no_leftovers():
        result = await team(agent(by_step(MEMBERS[member]())), recorder=seen).run(
            asked, coordinator=ExpertTeamCoordinator(evaluator=evaluator)
        )
    seen.check(result)
    state, used, text = expected_step(risk, verdict, attempts, member)
    status, second = expected_team(state, policy)
    first = result.outcome("a")
    assert (first.state, first.attempts, bool(first.output)) == (state, used, text), row
    assert (result.status, result.outcome("b").state) == (status, second), row
    assert result.final_output == ("the end" if second is S.COMPLETED else ""), row
    assert seen.kinds().count("STEP_COMPLETED") == 2, row
    assert seen.kinds().count("STEP_ASSIGNED") == used + (second is S.COMPLETED), row
    assert ("HANDOFF" in seen.kinds()) is (state is not S.COMPLETED), row
    reviewed = member == "sound"
    assert seen.kinds().count("EVALUATION_RESULT") == used * reviewed + (second is S.COMPLETED), row
    assert seen.kinds().count("EVALUATION_STARTED") == seen.kinds().count("EVALUATION_RESULT"), row


DISPATCH = [
    # member, risk -> state of the step
    *(("sound", risk, S.COMPLETED) for risk in R),
    *(("broken", risk, S.FAILED) for risk in R),
    ("cut off", R.LOW, S.DEGRADED),
    ("cut off", R.MEDIUM, S.FAILED),
    ("cut off", R.HIGH, S.FAILED),
    *(("hanging", risk, S.FAILED) for risk in R),
]


@pytest.mark.parametrize("policy", D)
@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize(("member", "risk", "state"), DISPATCH)
@virtual
async def test_every_combination_of_dispatch_ends_as_documented(member, risk, state, attempts, policy):
    seen = Recorder()
    asked = request(
        step("a"),
        step("b", "a"),
        risk_profile=risk,
        max_feedback_rounds=attempts,
        dependency_failure=policy,
        step_timeout=50,
    )
    async with no_leftovers():
        result = await team(agent(by_step(MEMBERS[member]())), recorder=seen).run(
            asked, coordinator=DefaultTaskDispatchCoordinator()
        )
    seen.check(result)
    status, second = expected_team(state, policy)
    assert (result.outcome("a").state, result.outcome("b").state, result.status) == (state, second, status)
    tries = 1 if member in ("sound", "hanging") else attempts
    assert result.outcome("a").attempts == tries
    if member == "hanging":
        assert result.outcome("a").verdict.outcome.name == "REVIEW_EXCEEDED"
