"""Public benchmarks as datasets: what a run did is read from its transcript, and a new world catches up with it."""

import sys
from pathlib import Path

import pytest

from glidepath import Agent, ConfigurationError, Limits, tool
from glidepath.apps.evals.benchmarks import WorldCheck, WorldPlugin, furnish, list_done
from glidepath.evals import Case, Dataset, agentdojo, bfcl, evaluate, tau
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, say, virtual

BENCH = Path(__file__).parents[2] / "bench"


class Till:
    """A world: what is in it only grows."""

    def __init__(self):
        self.paid = []

    def act(self, name, arguments):
        assert name == "pay"
        if arguments["amount"] < 0:
            raise ValueError("a payment is positive")
        self.paid.append(arguments["amount"])
        return f"{sum(self.paid)} in the till"

    def make_tools(self):
        @tool
        async def pay(amount: int) -> str:
            """Pay."""
            return self.act("pay", {"amount": amount})

        @tool
        async def look() -> str:
            """Look into the till."""
            return str(self.paid)

        return [pay, look]


def agent(*script, **more):
    return Agent(model=ScriptedModel(list(script)), limits=Limits(max_iterations=9), **more)


@virtual
async def test_only_what_ended_without_an_error_counts_as_done_under_the_question_that_asked_for_it():
    till = Till()
    asked = ("pay two", "pay five")
    one = agent(call("pay", amount=2), say("ok"), call("pay", amount=-1), call("pay", amount=5), say("ok"))
    result = await furnish(one, till.make_tools(), WorldPlugin(till.act, asked)).run("pay two")
    assert [[dict(done.arguments) for done in turn] for turn in list_done(result.messages, asked)] == [
        [{"amount": 2}],
        [{"amount": 5}],
    ]
    assert till.paid == [2, 5]


@virtual
async def test_a_question_that_the_run_did_not_come_to_has_no_list():
    till, asked = Till(), ("pay two", "pay five")
    one = agent(call("pay", amount=2), say("ok")).replace(limits=Limits(max_iterations=1))
    result = await furnish(one, till.make_tools(), WorldPlugin(till.act, asked)).run("pay two")
    assert len(list_done(result.messages, asked)) == 1


@virtual
async def test_a_tool_that_is_withheld_is_there_from_its_question_on():
    till, asked, shown = Till(), ("what is there?", "pay"), []

    def answer(request):
        shown.append({one.name for one in request.tools})
        return say("ok")

    one = Agent(model=ScriptedModel().forever(answer), limits=Limits(max_iterations=9))
    plugin = WorldPlugin(till.act, asked, {1: frozenset({"pay"})})
    await furnish(one, till.make_tools(), plugin).run(asked[0])
    assert shown == [{"look"}, {"look", "pay"}]


@virtual
async def test_a_run_that_is_continued_in_a_new_world_finds_what_it_had_done():
    store, tills = MemoryStore(), []

    def start(*script):
        tills.append(Till())
        one = agent(*script, store=store)
        return furnish(one, tills[-1].make_tools(), WorldPlugin(tills[-1].act))

    first = start(call("pay", amount=2), call("pay", amount=3), say("done")).replace(limits=Limits(max_iterations=1))
    await first.run("pay", session="s")
    again = start(call("pay", amount=4), call("look"), say("done"))
    result = await again.run("go on", session="s")
    assert tills[1].paid[0] == 2
    assert tills[1].paid[-1] == 4
    assert str(tills[1].paid) in [one.text for one in result.messages if one.role == "tool_result"]


@virtual
async def test_the_check_of_a_benchmark_judges_what_was_done():
    def prepare(one):
        till = Till()
        return furnish(one, till.make_tools(), WorldPlugin(till.act))

    def judge(case, result):
        paid = [one.arguments["amount"] for one in list_done(result.messages)[0]]
        return "" if sum(paid) == case.expected else f"{sum(paid)} paid"

    check = (WorldCheck("till", judge),)
    cases = [Case(prompt="pay", expected=n, evaluators=check, agent=prepare, id=f"pay {n}") for n in (2, 3)]
    report = await evaluate(Dataset(cases), lambda _: agent(call("pay", amount=2), say("done")), store=MemoryStore())
    assert [(one.passed, one.why) for one in report.results] == [(True, ""), (False, "till: 2 paid")]


@virtual
async def test_a_case_whose_agent_cannot_be_made_is_not_covered_and_the_others_run():
    def broken(_):
        raise RuntimeError("no world today")

    cases = [Case(prompt="a", id="a", agent=broken), Case(prompt="b", id="b")]
    report = await evaluate(Dataset(cases), agent(say("done")))
    assert {one.case_id: one.passed for one in report.results} == {"a": None, "b": True}
    assert "no world today" in next(one.why for one in report.results if one.case_id == "a")


@pytest.mark.parametrize(("make", "package"), [(agentdojo, "agentdojo"), (bfcl, "bfcl-eval"), (tau, "inspect-evals")])
def test_a_benchmark_whose_package_is_missing_says_what_to_install(make, package):
    with pytest.raises(ConfigurationError, match=f"pip install {package}"):
        make()


def test_a_part_that_a_benchmark_does_not_have_is_named_with_those_it_has():
    with pytest.raises(ConfigurationError, match="suites='bank' is not one of workspace, travel, banking, slack"):
        agentdojo("bank")
    with pytest.raises(ConfigurationError, match="domains is empty"):
        tau([])


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("name", "every", "points"), [("agentdojo", 4, 20), ("bfcl", 20, 20), ("tau", 20, 5)])
def test_the_curve_of_a_benchmark_equals_real_runs(name, every, points):
    sys.path.insert(0, str(BENCH / "eval_curves"))
    from run import fly, misses

    report = fly(name, every, points=points)
    assert misses(name, report) == []
    assert report["passed"] == report["cases"]
