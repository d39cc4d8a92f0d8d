"""Evaluators: what they pass, and that none of them can break or hold up an evaluation."""

import asyncio
import threading

import pytest

from glidepath import Agent, Budget, CancelToken, Limits, tool
from glidepath.errors import RejectedError
from glidepath.evals import Case, Contains, Dataset, Delivered, EvalReport, Exact, Matches, SameJson, evaluate
from glidepath.sessions import MemoryStore, find_sessions
from glidepath.teams import AgentEvaluationStrategy, SimpleEvaluationStrategy
from glidepath.testing import ScriptedModel, call, fail, hang, say, virtual

BUDGET = Limits(max_iterations=5)


def answering(text):
    return lambda _: Agent(model=ScriptedModel([say(text)]), limits=BUDGET)


async def judge(text, *evaluators, expected=None, **more):
    """What is said about an answer: passed, and why."""
    case = Case(prompt="a question", expected=expected, evaluators=evaluators)
    report = await evaluate([case], answering(text), **more)
    (attempt,) = report.results
    return attempt


@pytest.mark.parametrize(
    ("text", "evaluator", "expected", "passed"),
    [
        ("Paris", Exact(), "Paris", True),
        (" Paris\n", Exact(), "Paris", True),
        ("paris", Exact(), "Paris", False),
        ("paris", Exact(ignore_case=True), "Paris", True),
        ("It is paris.", Contains(), "Paris", True),
        ("It is paris.", Contains(ignore_case=False), "Paris", False),
        ("a and b", Contains(), ["a", "b"], True),
        ("a", Contains(), ["a", "b"], False),
        ('{"n": 1}', SameJson(), {"n": 1.0}, True),
        ('Here:\n```json\n{"n": 1}\n```', SameJson(), {"n": 1}, True),
        ("[1, 2]", SameJson(), [1, 2], True),
        ('{"n": 1, "m": 2}', SameJson(), {"n": 1}, False),
        ("no json", SameJson(), {"n": 1}, False),
        ("call 555-1234", Matches(pattern=r"\d{3}-\d{4}"), None, True),
        ("call me", Matches(), r"\d", False),
        ("anything", Delivered(), None, True),
    ],
)
@virtual
async def test_built_in_evaluators(text, evaluator, expected, passed):
    attempt = await judge(text, evaluator, expected=expected)
    assert attempt.passed is passed
    assert bool(attempt.why) is not passed


@pytest.mark.parametrize(
    ("expected", "text", "passed"),
    [("Paris", "It is Paris", True), ({"n": 1}, '{"n": 1}', True), (None, "something", True), ("Paris", "no", False)],
)
@virtual
async def test_without_an_evaluator_the_expectation_chooses_one(expected, text, passed):
    assert (await judge(text, expected=expected)).passed is passed


@pytest.mark.parametrize(
    ("answer", "passed"),
    [(True, True), (False, False), (1, True), (0.5, True), (0.49, False), ((False, "too long"), False)],
)
@virtual
async def test_a_function_answers_yes_no_or_a_number(answer, passed):
    attempt = await judge("x", lambda case, result: answer)
    assert attempt.passed is passed
    if answer == (False, "too long"):
        assert "too long" in attempt.why


@virtual
async def test_a_function_sees_the_case_and_the_result_and_may_wait():
    async def check(case, result):
        return result.text == case.expected and result.iterations == 1

    assert (await judge("x", check, expected="x")).passed is True


@pytest.mark.parametrize("answer", [None, "yes", 2, -1, float("nan"), [True], object()])
@virtual
async def test_an_answer_that_is_not_an_opinion_is_reported(answer):
    attempt = await judge("x", lambda case, result: answer)
    assert attempt.passed is None
    assert "it must be True, False, or a number from 0 to 1" in attempt.why


def crash(case, result):
    raise KeyError("price")


def leave(case, result):
    raise SystemExit(3)


async def wait_forever(case, result):
    await asyncio.Event().wait()


@virtual
async def test_a_text_that_cannot_be_written_spoils_no_other_case():
    class Odd:
        name = "odd \ud800"

        def __call__(self, case, result):
            return case.id == "fine", "because \udfff"

    store, answer = MemoryStore(), answering("x")
    odd = Case(prompt="a", id="odd", expected=["\ud800"], evaluators=(Contains(), Odd()))
    cases = [odd, Case(prompt="b", id="fine", evaluators=(Odd(),))]
    for kept in (store, None):
        report = await evaluate(cases, answer, store=kept, name="e")
        assert [one.passed for one in report.results] == [False, True]
        assert EvalReport.of_json(report.to_json()) == report


@virtual
async def test_a_reason_without_end_does_not_fill_the_report():
    attempt = await judge("4", lambda case, result: (False, "x" * 1_000_000))
    assert attempt.passed is False
    assert len(attempt.why) + len(attempt.scores[0].why) < 10_000


@pytest.mark.parametrize(("evaluator", "said"), [(crash, "KeyError"), (leave, "SystemExit"), (wait_forever, "within")])
@virtual
async def test_an_evaluator_that_raises_or_hangs_is_reported_and_the_other_cases_are_judged(evaluator, said):
    broken = Case(prompt="a", id="broken", evaluators=(evaluator,))
    report = await evaluate([broken, Case(prompt="b", id="fine")], answering("x"), evaluator_seconds=5)
    assert {one.case_id: one.passed for one in report.results} == {"broken": None, "fine": True}
    assert said in report.results[0].why
    assert not report.complete
    assert sum(report.uncovered.values()) == 1


def test_a_function_that_blocks_holds_up_nothing():
    let_go = threading.Event()

    def block(case, result):
        return let_go.wait(60)

    cases = [Case(prompt="a", evaluators=(block,)), Case(prompt="b")]
    report = asyncio.run(evaluate(cases, answering("x"), evaluator_seconds=0.1))
    assert not let_go.is_set()
    assert [one.passed for one in report.results] == [None, True]
    let_go.set()


@pytest.mark.process
def test_a_pattern_that_never_ends_is_killed():
    attempt = asyncio.run(judge("a" * 40 + "!", Matches(pattern="(a+)+$"), evaluator_seconds=1.0))
    assert attempt.passed is None
    assert "took longer than 1 s" in attempt.why


@virtual
async def test_one_failure_is_enough_whatever_another_evaluator_does():
    attempt = await judge("x", Exact(text="y"), crash)
    assert attempt.passed is False


@virtual
async def test_the_reviewers_of_teams_are_evaluators():
    assert (await judge("about bees", SimpleEvaluationStrategy(required=("bees",)))).passed is True
    assert (await judge("about wasps", SimpleEvaluationStrategy(required=("bees",)))).passed is False


def judging(*replies):
    model = ScriptedModel([*replies], price=("1", "1"))
    return AgentEvaluationStrategy(Agent(model=model, limits=BUDGET), rubric="short")


@virtual
async def test_a_model_as_judge_sees_task_expectation_and_answer_and_its_cost_is_charged():
    reviewer = judging(say('{"verdict": "PASS", "score": 0.9}'))
    attempt = await judge("4", reviewer, expected="four", budget=Limits(max_tokens=100_000))
    asked = reviewer.agent.config.model.requests[0].messages[0].text
    assert "a question" in asked
    assert "four" in asked
    assert attempt.passed is True
    assert attempt.scores[0].tokens > 0
    assert attempt.scores[0].cost > 0


@virtual
async def test_the_cost_of_judges_is_in_the_report_and_in_the_budget():
    reviewer = judging(*[say('{"verdict": "PASS"}')] * 50)
    cases = [Case(prompt=f"q{n}") for n in range(50)]
    make = answering("x" * 400)
    report = await evaluate(cases, make, evaluators=[reviewer], budget=Limits(max_tokens=8_000), concurrency=1)
    assert report.tokens <= 8_000
    assert sum(one.judge_tokens for one in report.results) > report.tokens / 2
    assert report.uncovered  # the budget paid for some of them only
    assert report.passed == len(report.covered) > 5


@pytest.mark.parametrize("reply", [say("I like it"), fail(RejectedError("no"))])
@virtual
async def test_a_judge_that_does_not_judge_is_not_a_pass(reply):
    attempt = await judge("4", judging(reply, reply))
    assert attempt.passed is None


@virtual
async def test_an_evaluator_that_was_mended_judges_again_without_running_again():
    store, asked = MemoryStore(), []

    def make(case):
        asked.append(case.id)
        return Agent(model=ScriptedModel([say("x")]), limits=BUDGET)

    cases = [Case(prompt="a"), Case(prompt="b")]
    broken = await evaluate(Dataset(cases), make, evaluators=[crash], store=store, name="e")
    assert [one.passed for one in broken.results] == [None, None]
    turns = [one.run_id for one in broken.results]
    mended = await evaluate(Dataset(cases), make, evaluators=[lambda case, result: True], store=store, name="e")
    assert [one.passed for one in mended.results] == [True, True]
    assert [one.run_id for one in mended.results] == turns
    assert mended.complete


@virtual
async def test_a_judge_that_is_asked_again_is_paid_again_and_the_report_says_so():
    store, dataset = MemoryStore(), Dataset([Case(prompt="a")])
    reviewer = judging(say("I like it"), say("Indeed"), say('{"verdict": "PASS"}'))
    first = await evaluate(dataset, answering("x"), evaluators=[reviewer], store=store, name="e")
    then = await evaluate(dataset, answering("x"), evaluators=[reviewer], store=store, name="e")
    (before,), (one,) = first.results, then.results
    assert (before.passed, one.passed) == (None, True)
    assert one.earlier_tokens == before.judge_tokens > 0
    assert then.tokens == one.tokens + before.judge_tokens + one.judge_tokens
    assert then.cost == first.cost + one.judge_cost


@tool
async def weigh(text: str) -> str:
    """Weigh an answer."""
    return "heavy " * 50


@pytest.mark.parametrize("store", [MemoryStore(), None])
@virtual
async def test_what_a_judge_that_hangs_has_used_is_in_the_report(store):
    agent = Agent(
        model=ScriptedModel([call("weigh", text="x"), hang()], price=("1", "1")), tools=[weigh], limits=BUDGET
    )
    reviewer, budget = AgentEvaluationStrategy(agent, rubric="short"), Budget(Limits(max_tokens=100_000))
    more = {"evaluators": [reviewer, Delivered()], "store": store, "budget": budget}
    report = await evaluate([Case(prompt="a")], answering("x"), evaluator_seconds=5, **more)
    (one,) = report.results
    assert "did not answer within 5 s" in one.why
    assert report.tokens == budget.meter.tokens > one.judge_tokens > 0


@virtual
async def test_what_a_judge_had_spent_when_it_was_stopped_stays_spent():
    def judge_with(*replies):
        agent = Agent(model=ScriptedModel([*replies], price=("1", "1")), tools=[weigh], limits=BUDGET)
        return AgentEvaluationStrategy(agent, rubric="short")

    dataset, store, token = Dataset([Case(prompt="long " * 1000)]), MemoryStore(), CancelToken()
    asyncio.get_running_loop().call_later(5, token.cancel, "Ctrl-C")
    more = {"store": store, "name": "e"}
    stopped = judge_with(call("weigh", text="x"), hang())
    await evaluate(dataset, answering("x"), evaluators=[stopped], cancel=token, **more)
    used = sum(one.summary["tokens"] for one in (await find_sessions(store)).sessions)
    going_on, budget = judge_with(say('{"verdict": "PASS"}')), Limits(max_tokens=used + 1_000)
    report = await evaluate(dataset, answering("x"), evaluators=[going_on], budget=budget, **more)
    assert report.uncovered
