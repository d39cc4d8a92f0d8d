"""The curve from one generous run, against real runs with the same deterministic model."""

import asyncio

import pytest

from glidepath import Agent, ConfigurationError, Limits, tool
from glidepath.apps.evals import CurveMaker
from glidepath.evals import Case, Dataset, EvalReport, evaluate
from glidepath.sessions import MemoryStore
from glidepath.teams import EvaluationStrategy, EvaluationVerdict, VerdictOutcome
from glidepath.testing import ScriptedModel, call, say, virtual


@tool
async def look(n: int) -> str:
    """Look."""
    return "saw " + "it " * 40


def make(case):
    """An agent that needs as many turns as the number of its case says."""
    steps = int(case.id) % 6
    turns = [call("look", n=n) for n in range(steps)]
    said = str(case.expected) if int(case.id) % 5 else "no"
    model = ScriptedModel([*turns, say(said)], price=("1", "2"))
    return Agent(model=model, tools=[look], limits=Limits(max_iterations=9))


def cases(count):
    return Dataset([Case(prompt=f"question {n}", expected=f"answer {n}", id=str(n)) for n in range(1, count + 1)])


@pytest.mark.parametrize("by", ["max_tokens", "max_cost", "max_iterations", "max_tool_calls"])
@virtual
async def test_the_prediction_equals_real_runs_but_for_landings_whose_text_differs(by):
    store = MemoryStore()
    before = await evaluate(cases(12), make, store=store, name="e")
    report = await CurveMaker(cases(12), make, store, "e", by=by).make(rerun=True)
    curve = report.curve
    assert report.results == before.results
    assert curve.runs == 12
    assert len(curve.points) >= (4 if by in ("max_iterations", "max_tool_calls") else 15)
    assert [one.wrong for one in curve.points] == [0] * len(curve.points)
    assert [one.landed for one in curve.points] == [one.real_landed for one in curve.points]
    for one in curve.points:
        assert abs(one.passed - one.real_passed) <= one.other_landings
    last = curve.points[-1]
    assert (last.passed, last.tokens, last.cost) == (before.passed, before.tokens, before.cost)
    assert (last.real_passed, last.real_tokens, last.real_cost) == (before.passed, before.tokens, before.cost)
    assert curve.points[0].passed < last.passed
    assert (await EvalReport.find("e", store)).curve == curve
    assert "run again with that budget" in report.to_html()


@virtual
async def test_a_prediction_calls_no_model_and_no_tool():
    store, asked = MemoryStore(), []

    @tool
    async def pay(n: int) -> str:
        """Pay."""
        asked.append(n)
        return "paid"

    def agent(case):
        async def answer(request):
            asked.append("model")
            paid = any(one.role == "tool_result" for one in request.messages)
            return say("done") if paid or not request.tools else call("pay", n=1)

        return Agent(model=ScriptedModel().forever(answer), tools=[pay], limits=Limits(max_iterations=5))

    dataset = Dataset([Case(prompt="pay", expected="done")])
    await evaluate(dataset, agent, store=store, name="e")
    before = list(asked)
    report = await CurveMaker(dataset, agent, store, "e", by="max_iterations").make()
    assert asked == before
    assert report.curve.points[0].real_passed is None


@virtual
async def test_what_cannot_be_predicted_is_counted_by_reason():
    store = MemoryStore()

    def landing(case):
        return make(case).replace(limits=Limits(max_iterations=3))

    await evaluate(cases(12), landing, store=store, name="e")
    report = await CurveMaker(cases(12), landing, store, "e", by="max_tokens").make()
    left_out = report.curve.left_out["it was landed or stopped itself"]
    assert report.curve.runs + left_out == 12
    assert left_out > 3


@virtual
async def test_what_has_no_curve_is_refused_with_a_reason():
    store = MemoryStore()
    await evaluate(cases(2), make, store=store, name="e")
    with pytest.raises(ConfigurationError, match="not by 'timeout'"):
        CurveMaker(cases(2), make, store, "e", by="timeout")
    with pytest.raises(ConfigurationError, match="began with other cases"):
        await CurveMaker(cases(3), make, store, "e").make()
    with pytest.raises(ConfigurationError, match="there is no evaluation 'other'"):
        await CurveMaker(cases(2), make, store, "other").make()


@virtual
async def test_a_slow_checker_judges_a_predicted_run_as_it_judges_a_real_one():
    async def check_slowly(case, result):
        await asyncio.sleep(20)
        return True

    store = MemoryStore()
    dataset = Dataset(cases(1).cases, name="slow", evaluators=[check_slowly])
    await evaluate(dataset, make, store=store, name="e")
    report = await CurveMaker(dataset, make, store, "e", by="max_iterations").make(rerun=True, values=[2])
    (point,) = report.curve.points
    assert (point.landed, point.passed, point.real_passed) == (1, 1, 1)


@virtual
async def test_a_run_cut_short_is_judged_by_what_it_did_even_if_it_says_the_same():
    def make(case):
        return Agent(
            model=ScriptedModel(
                [call("look", n=1).with_text("done"), call("look", n=2), say("done")], price=("1", "2")
            ),
            tools=[look],
            limits=Limits(max_iterations=9),
        )

    def looked_twice(case, result):
        return sum(one.role == "tool_result" and not one.is_error for one in result.messages) == 2

    store = MemoryStore()
    dataset = Dataset([Case(prompt="look twice")], evaluators=[looked_twice])
    await evaluate(dataset, make, store=store, name="e")
    report = await CurveMaker(dataset, make, store, "e", by="max_iterations").make(rerun=True, values=[2, 9])
    assert [(one.passed, one.real_passed, one.landed) for one in report.curve.points] == [(0, 0, 1), (1, 1, 0)]


@virtual
async def test_a_reviewer_of_texts_says_of_the_same_text_what_it_said_before():
    class Strict(EvaluationStrategy):
        asked = 0

        async def evaluate(self, context):
            Strict.asked += 1
            return EvaluationVerdict(outcome=VerdictOutcome.PASS, score=1.0)

    def make(case):
        model = ScriptedModel([call("look", n=1), say("done"), say("done")], price=("1", "2"))
        return Agent(model=model, tools=[look], limits=Limits(max_iterations=9))

    store = MemoryStore()
    dataset = Dataset([Case(prompt="look")], evaluators=[Strict()])
    await evaluate(dataset, make, store=store, name="e")
    report = await CurveMaker(dataset, make, store, "e", by="max_iterations").make(values=[1, 9])
    assert Strict.asked == 1
    assert [one.passed for one in report.curve.points] == [1, 1]


@virtual
async def test_the_last_point_of_a_curve_holds_no_run_back():
    def make(case):
        model = ScriptedModel([say("done")], price=("1", "2"))
        return Agent(model=model, limits=Limits(max_iterations=2, max_tokens=100_000))

    store = MemoryStore()
    dataset = Dataset([Case(prompt="say it", expected="done")])
    await evaluate(dataset, make, store=store, name="e")  # a few tokens, and a landing that is kept free beside them
    points = (await CurveMaker(dataset, make, store, "e", by="max_tokens").make(rerun=True)).curve.points
    assert (points[0].passed, points[-1].passed) == (0, 1)
    assert (points[-1].landed, points[-1].real_passed) == (0, 1)
    assert 10 <= len(points) <= 20


@virtual
async def test_a_limit_that_lands_most_runs_is_marked_because_what_they_say_is_assumed():
    store = MemoryStore()
    await evaluate(cases(12), make, store=store, name="e")
    report = await CurveMaker(cases(12), make, store, "e", by="max_iterations").make(values=[1, 4, 9])
    assert [(one.landed, one.is_assumed) for one in report.curve.points] == [(10, True), (6, False), (0, False)]
    assert "At 1 limit, marked ~, most runs land" in report.curve.describe()
    assert report.to_html().count('fill="Canvas"') == 1
