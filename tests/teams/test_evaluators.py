"""Reviewers: the rubric, the judge, who is chosen, and the wrapper that nothing can break."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, ConfigurationError
from glidepath.errors import RejectedError
from glidepath.sessions import MemoryStore
from glidepath.teams import (
    AgentEvaluationStrategy,
    EvaluationContext,
    EvaluationVerdict,
    EvaluatorPreference,
    ExpertTeamCoordinator,
    RiskProfile,
    SimpleEvaluationStrategy,
    TeamConfig,
    VerdictOutcome,
)
from glidepath.teams.evaluate import choose_evaluator, review
from glidepath.testing import ScriptedModel, fail, no_leftovers, say, virtual
from glidepath.values import settle_field

from .kit import AUTO, EXCEEDED, PASS, REVISE, ROOMY, Verdicts, agent, request, step, team

V = VerdictOutcome


def context(artifact="some text", **more):
    return EvaluationContext(step=step("a"), artifact=artifact, **more)


# --- the rubric ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rubric", "artifact", "outcome", "score"),
    [
        ({}, "anything", V.PASS, 1.0),
        ({}, "", V.REVISE, 0.0),
        ({}, " \n\t", V.REVISE, 0.0),
        ({"required": ["Bees"]}, "about bees", V.PASS, 1.0),
        ({"required": ["bees", "honey"]}, "about bees", V.REVISE, 0.5),
        ({"required": ["bees", "honey"], "pass_score": 0.5}, "about bees", V.PASS, 0.5),
        ({"forbidden": ["TODO"]}, "todo: write", V.REVISE, 0.0),
        ({"forbidden": ["TODO"]}, "written", V.PASS, 1.0),
        ({"min_words": 3}, "two words", V.REVISE, 0.0),
        ({"min_words": 3, "max_words": 4}, "one two three four five", V.REVISE, 0.5),
        ({"min_words": 3, "max_words": 4}, "one two three", V.PASS, 1.0),
    ],
)
@virtual
async def test_the_rubric_counts_what_is_met(rubric, artifact, outcome, score):
    verdict = await SimpleEvaluationStrategy(**rubric).evaluate(context(artifact))
    assert (verdict.outcome, verdict.score) == (outcome, score)
    assert bool(verdict.feedback) is (score < 1)


def test_the_rubric_says_what_to_change():
    rubric = SimpleEvaluationStrategy(required=["honey"], forbidden=["wasp"], min_words=9)
    verdict = rubric.judge(context("a wasp"))
    assert verdict.suggestions == (
        "Say something about 'honey'.",
        "Remove 'wasp'.",
        "Write at least 9 words; there are 2.",
    )


@given(st.text(max_size=200), st.lists(st.text(min_size=1).filter(str.strip), max_size=3))
def test_the_rubric_is_deterministic_and_in_range(artifact, words):
    words = [word.encode("utf-8", "ignore").decode().replace("\0", "") for word in words]
    rubric = SimpleEvaluationStrategy(required=[word for word in words if word.strip()])
    first = rubric.judge(context(artifact))
    assert (
        first
        == rubric.judge(context(artifact))
        == SimpleEvaluationStrategy(required=rubric.required).judge(context(artifact))
    )
    assert 0 <= first.score <= 1
    assert artifact.strip() or first.outcome is V.REVISE


# --- the judge ----------------------------------------------------------------------------------------------------

READABLE = [
    ('{"verdict": "PASS", "score": 0.9, "feedback": "good"}', V.PASS, 0.9),
    ('Sure!\n```json\n{"verdict": "revise", "score": 0.2, "suggestions": ["x"]}\n```\nHope that helps', V.REVISE, 0.2),
    ('{"outcome": "Pass"}', V.PASS, 1.0),
    ('{"verdict": "REJECT"}', V.REVISE, 0.0),
    ('{"verdict": "pass", "score": "85%"}', V.PASS, 0.85),
    ('I think {this} is it: {"verdict": "pass", "score": "0.5", "suggestions": "one"}', V.PASS, 0.5),
    ('{"verdict": "review exceeded"}', V.REVIEW_EXCEEDED, 0.0),
    ('{"verdict": "pass", "feedback": "a } in a \\"string\\""}', V.PASS, 1.0),
    ('First {"length": 12}, then {"verdict": "revise", "score": 0.4}', V.REVISE, 0.4),
    ('{"verdict": "pass", "score": 0.5} or rather {"verdict": "PASS", "score": 0.7}', V.PASS, 0.7),
    ('{"verdict": "revise", "suggestions": 7}', V.REVISE, 0.0),
]


@pytest.mark.parametrize(("answer", "outcome", "score"), READABLE)
@virtual
async def test_a_judge_is_read_tolerantly(answer, outcome, score):
    verdict = await AgentEvaluationStrategy(agent(answer)).evaluate(context())
    assert (verdict.outcome, verdict.score) == (outcome, score)


UNREADABLE = [
    "it is fine",
    "{}",
    '{"verdict": "maybe"}',
    '{"verdict": "pass", "score": 7}',
    '{"verdict": "pass", "score": -1}',
    '{"verdict": "pass", "score": "high"}',
    '{"verdict": "pass", "score": [1]}',
    '{"verdict": "pass", "score": true}',
    '{"verdict": "pass", "score": "NaN"}',
    '{"verdict": "pass"',
    "{" * 5000,
    '[{"verdict"}]',
    'The work says {"verdict": "PASS", "score": 1}, but I say {"verdict": "REVISE", "score": 0.1}',
    '{"verdict": "REVISE"} although it says {"verdict": "PASS"}',
    '{"verdict": "pass"} {"verdict": "maybe"}',
]


@pytest.mark.parametrize("answer", UNREADABLE, ids=range(len(UNREADABLE)))
@virtual
async def test_what_a_judge_says_and_nobody_can_read_is_no_review(answer):
    found = await review(AgentEvaluationStrategy(agent(answer)), context(), seconds=10)
    assert found.verdict.outcome is V.REVIEW_EXCEEDED
    assert "crashed" in found.verdict.feedback


@virtual
async def test_a_judge_is_held_to_the_form_of_a_verdict_and_asked_once_more():
    judge = agent(say("I like it."), say('{"verdict": "pass", "score": "90%"}'))
    verdict = await AgentEvaluationStrategy(judge).evaluate(context())
    assert (verdict.outcome, verdict.score) == (V.PASS, 0.9)
    assert judge.config.model.calls == 2
    schema = judge.config.model.requests[0].output_schema
    assert set(schema["properties"]) == {"verdict", "score", "feedback", "suggestions"}


@virtual
async def test_a_judge_that_never_keeps_to_the_form_may_still_be_read():
    verdict = await AgentEvaluationStrategy(agent('It is fine: {"outcome": "PASS", "feedback": "good"}')).evaluate(
        context()
    )
    assert (verdict.outcome, verdict.feedback) == (V.PASS, "good")


@virtual
async def test_a_judge_with_a_form_of_its_own_keeps_it():
    @dataclass
    class Mine:
        outcome: str

    scripted = ScriptedModel([say('{"outcome": "REVISE"}')])
    judge = Agent(model=scripted, limits=ROOMY, output_type=Mine)
    assert (await AgentEvaluationStrategy(judge).evaluate(context())).outcome is V.REVISE
    assert set(scripted.requests[0].output_schema["properties"]) == {"outcome"}


@virtual
async def test_a_judge_that_fails_is_no_review():
    judge = AgentEvaluationStrategy(agent(fail(RejectedError("no"))))
    found = await review(judge, context(), seconds=10)
    assert found.verdict.outcome is V.REVIEW_EXCEEDED
    assert "ERROR/FAILED" in found.verdict.feedback


@virtual
async def test_a_judge_sees_the_step_the_artifact_the_rubric_and_earlier_verdicts():
    judge = agent('{"verdict": "pass"}')
    given = context("the artifact", prior_verdicts=(REVISE,), goal="the goal", attempt=2)
    await AgentEvaluationStrategy(judge, rubric="must be short").evaluate(given)
    prompt = judge.config.model.requests[0].messages[0].text
    for part in ("the artifact", "do a", "must be short", "more detail", "add figures", "the goal", "attempt 2"):
        assert part in prompt
    assert "risk of a mistake is MEDIUM" in prompt


@virtual
async def test_a_blank_artifact_never_reaches_the_judge():
    judge = agent('{"verdict": "pass"}')
    verdict = await AgentEvaluationStrategy(judge).evaluate(context(" "))
    assert verdict.outcome is V.REVISE
    assert judge.config.model.calls == 0


@pytest.mark.parametrize("wrong", [None, "judge", 7])
def test_a_judge_must_be_an_agent(wrong):
    with pytest.raises(ConfigurationError, match=r"AgentEvaluationStrategy\.agent"):
        AgentEvaluationStrategy(wrong)
    with pytest.raises(ConfigurationError, match=r"AgentEvaluationStrategy\.rubric"):
        AgentEvaluationStrategy(agent("x"), rubric=7)


# --- who is chosen ------------------------------------------------------------------------------------------------

P, R = EvaluatorPreference, RiskProfile


@pytest.mark.parametrize(
    ("risk", "preference", "judged", "chosen", "warned"),
    [
        (R.LOW, P.AUTO, True, "simple", False),
        (R.MEDIUM, P.AUTO, True, "simple", False),
        (R.HIGH, P.AUTO, True, "judge", False),
        (R.HIGH, P.AUTO, False, "simple", True),
        (R.LOW, P.SIMPLE, True, "simple", False),
        (R.HIGH, P.SIMPLE, True, "simple", False),
        (R.LOW, P.AGENT, True, "judge", False),
        (R.HIGH, P.AGENT, True, "judge", False),
        (R.MEDIUM, P.AGENT, False, None, False),
    ],
)
def test_the_evaluator_follows_risk_and_preference(risk, preference, judged, chosen, warned):
    config = TeamConfig(risk_profile=risk, evaluator_preference=preference)
    judge = "judge" if judged else None
    if chosen is None:
        with pytest.raises(ConfigurationError, match="there is no judge"):
            choose_evaluator(config, simple="simple", judge=judge)
        return
    found, warning = choose_evaluator(config, simple="simple", judge=judge)
    assert found == chosen
    assert (warning is not None) is warned


# --- the wrapper --------------------------------------------------------------------------------------------------


def forged(score):
    verdict = EvaluationVerdict(outcome=V.PASS, score=1.0)
    settle_field(verdict, "score", score)
    return verdict


class Plain:
    """An evaluator that forgot to be async."""

    def __init__(self, answer):
        self.answer = answer

    def evaluate(self, context):
        return self.answer


class Unspeakable:
    """An answer that cannot even be shown."""

    def __init__(self, error):
        self.error = error

    def __repr__(self):
        raise self.error


BROKEN = [
    (Verdicts(ValueError("boom")), "crashed: ValueError: boom"),
    (Verdicts(asyncio.CancelledError()), "cancelled"),
    (Verdicts(SystemExit(3)), "SystemExit"),
    (Verdicts(KeyboardInterrupt()), "KeyboardInterrupt"),
    (Verdicts("hang"), "did not answer within 10 s"),
    (Verdicts(None), "answered nothing"),
    (Verdicts("PASS"), "answered 'PASS'"),
    (Verdicts(V.PASS), "answered <VerdictOutcome.PASS"),
    (Verdicts(forged(1.5)), "out of range"),
    (Verdicts(forged(float("nan"))), "out of range"),
    (Verdicts(AUTO), "auto_pass"),
    (Plain(None), "answered nothing"),
    (object(), "crashed: AttributeError"),
    (Verdicts(Unspeakable(RuntimeError("no"))), "answered an object of type Unspeakable that cannot be shown"),
    (Verdicts(Unspeakable(SystemExit(3))), "answered an object of type Unspeakable that cannot be shown"),
]


@pytest.mark.parametrize(("evaluator", "why"), BROKEN, ids=range(len(BROKEN)))
@virtual
async def test_a_broken_evaluator_is_no_review_and_never_a_pass(evaluator, why):
    async with no_leftovers():
        found = await review(evaluator, context(), seconds=10)
    assert found.verdict.outcome is V.REVIEW_EXCEEDED
    assert why in found.verdict.feedback


@virtual
async def test_strange_characters_in_a_verdict_do_not_break_the_journal():
    odd = EvaluationVerdict(outcome=V.PASS, score=1.0, feedback="half \ud800 a pair", suggestions=("\udc00",))
    for evaluator, state in ((Verdicts(odd), "COMPLETED"), (Verdicts(ValueError("half \ud800")), "FAILED")):
        crew = team(agent("ok"), store=MemoryStore())
        result = await crew.run(request(step("a")), coordinator=ExpertTeamCoordinator(evaluator=evaluator))
        assert result.outcome("a").state.name == state
        assert "half \ufffd" in result.outcome("a").verdict.feedback
        assert await crew.resume(result.request_id) == result


@pytest.mark.parametrize("verdict", [PASS, REVISE, EXCEEDED])
@virtual
async def test_a_sound_verdict_is_taken_as_it_is(verdict):
    assert (await review(Verdicts(verdict), context(), seconds=10)).verdict == verdict
    assert (await review(Plain(verdict), context(), seconds=10)).verdict == verdict


@virtual
async def test_auto_pass_counts_only_when_asked_for_at_low_risk():
    lenient = TeamConfig(risk_profile=RiskProfile.LOW, auto_pass=True)
    found = await review(Verdicts(AUTO), context(config=lenient), seconds=10)
    assert found.verdict == AUTO
    assert found.warning == "passed without a review: unseen"
    strict = TeamConfig(risk_profile=RiskProfile.LOW)
    assert (await review(Verdicts(AUTO), context(config=strict), seconds=10)).verdict.outcome is V.REVIEW_EXCEEDED


class Stubborn:
    """Ignores its cancellation for a while."""

    async def evaluate(self, context):
        until = asyncio.get_running_loop().time() + 3
        while asyncio.get_running_loop().time() < until:
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        return PASS


@virtual
async def test_an_evaluator_that_ignores_its_cancellation_is_let_go():
    before = asyncio.get_running_loop().time()
    found = await review(Stubborn(), context(), seconds=1)
    assert found.verdict.outcome is V.REVIEW_EXCEEDED
    assert found.warning == "the reviewer did not stop and was abandoned"
    assert asyncio.get_running_loop().time() - before <= 2.1
    await asyncio.sleep(5)
