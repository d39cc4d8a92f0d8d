"""A whole evaluation: every case is run and kept, on one budget, and continued after any end."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from glidepath import Agent, Budget, CancelToken, ConfigurationError, Limits, tool
from glidepath.apps.evals import list_evaluations, sum_report
from glidepath.errors import RejectedError, StoreError
from glidepath.evals import Case, Dataset, EvalReport, evaluate
from glidepath.sessions import MemoryStore, SqliteStore, find_sessions, fork, read_journal, remove_sessions, send
from glidepath.testing import ScriptedModel, call, fail, hang, say, virtual

SCRIPT = Path(__file__).with_name("killable.py")
ROOMY = Limits(max_iterations=5)


@tool
async def look(n: int) -> str:
    """Look."""
    return "saw " + "it " * 40


def working(replies=3, **more):
    """An agent that calls a tool a few times and then says what is expected."""

    def make(case):
        turns = [call("look", n=n) for n in range(replies)]
        model = ScriptedModel([*turns, say(str(case.expected))], price=("1", "1"))
        return Agent(model=model, tools=[look], limits=ROOMY, **more)

    return make


def cases(count):
    return Dataset([Case(prompt=f"question {n}", expected=f"answer {n}") for n in range(1, count + 1)], name="numbers")


@virtual
async def test_every_case_is_run_as_often_as_asked_and_the_figures_add_up():
    said = []
    report = await evaluate(cases(5), working(), repeat=3, progress=said.append)
    assert (report.planned, report.passed, len(report.covered)) == (15, 15, 15)
    assert report.complete
    assert report.pass_rate == 1.0
    assert report.interval[1] == 1.0
    assert report.cost == sum((one.cost for one in report.results), Decimal(0)) > 0
    assert report.tokens == sum(one.tokens for one in report.results) > 0
    assert report.endings == {"completed/done": 15}
    assert [(one.case_id, one.repeat) for one in report.results[:6]] == [(str(n), 1) for n in range(1, 6)] + [("1", 2)]
    assert (said[-1].done, said[-1].planned, said[-1].passed, said[-1].cost) == (15, 15, 15, report.cost)


@virtual
async def test_a_run_that_fails_counts_against_the_agent():
    def make(case):
        return Agent(model=ScriptedModel([fail(RejectedError("no such model"))]), limits=ROOMY)

    report = await evaluate(cases(2), make)
    assert report.pass_rate == 0.0
    assert report.complete
    assert report.endings == {"error/failed": 2}


@virtual
async def test_one_agent_serves_all_cases_and_a_case_may_change_it():
    model = ScriptedModel().forever(lambda request: say(request.system_prompt or "nothing"))
    agent = Agent(model=model, limits=ROOMY)
    special = Case(prompt="a", expected="other", agent=lambda agent: agent.replace(system_prompt="other"))
    report = await evaluate([Case(prompt="a", expected="nothing"), special], agent)
    assert report.passed == 2


@virtual
async def test_a_maker_that_fails_for_one_case_is_reported_there():
    def make(case):
        if case.id == "2":
            raise ConfigurationError("no tools for this one")
        return working()(case)

    report = await evaluate(cases(3), make)
    assert [one.passed for one in report.results] == [True, None, True]
    assert "no tools for this one" in report.results[1].why


@virtual
async def test_a_call_that_waits_for_a_person_is_not_covered():
    @tool(requires_approval=True)
    async def pay(n: int) -> str:
        """Pay."""
        return "paid"

    def make(case):
        return Agent(model=ScriptedModel([call("pay", n=1), say("done")]), tools=[pay], limits=ROOMY)

    report = await evaluate(cases(1), make)
    assert report.uncovered == {"a person has to decide about a call": 1}


# --- one budget ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [Limits(max_tokens=9_000), Limits(max_cost="0.009")])
@virtual
async def test_the_budget_ends_in_the_middle_and_the_report_says_what_it_does_not_cover(limits):
    report = await evaluate(cases(60), working(), budget=limits, concurrency=20)
    spent, limit = (report.tokens, 9_000) if limits.max_tokens else (report.cost, Decimal("0.009"))
    assert spent <= limit
    assert 5 < len(report.covered) < 60
    assert len(report.results) == 60
    assert report.pass_rate == 1.0  # what was cut short does not count against the agent
    assert report.uncovered == {"the budget of the evaluation ended": 60 - len(report.covered)}


@virtual
async def test_with_20_at_once_the_budget_is_spent_as_with_one():
    budget = Limits(max_tokens=40_000)
    alone = await evaluate(cases(150), working(), budget=budget, concurrency=1)
    together = await evaluate(cases(150), working(), budget=budget, concurrency=20)
    assert together.tokens >= 0.9 * 40_000
    assert len(together.covered) >= 0.9 * len(alone.covered)


@virtual
async def test_a_limit_of_the_agent_itself_is_its_own_failure():
    def make(case):
        return working(replies=9)(case).replace(limits=Limits(max_iterations=3, max_tokens=2_000))

    report = await evaluate(cases(3), make, budget=Limits(max_tokens=50_000))
    assert report.complete
    assert report.pass_rate == 0.0


@virtual
async def test_with_more_budget_the_same_evaluation_goes_on_and_what_was_spent_stays_spent():
    store = MemoryStore()
    first = await evaluate(cases(40), working(), store=store, name="e", budget=Limits(max_tokens=5_000))
    assert 0 < len(first.covered) < 40
    nothing = await evaluate(cases(40), working(), store=store, name="e", budget=Limits(max_tokens=5_000))
    assert len(nothing.covered) <= len(first.covered) + 1
    assert nothing.tokens <= 5_000
    done = await evaluate(cases(40), working(), store=store, name="e", budget=Limits(max_tokens=100_000))
    assert done.complete
    assert done.passed == 40


@virtual
async def test_a_budget_goes_on_to_hold_when_nobody_gives_it_again():
    store, token = MemoryStore(), CancelToken()

    def stop(now):
        if now.done == 2:
            token.cancel("enough")

    more = {"store": store, "name": "e", "concurrency": 3}
    first = await evaluate(cases(12), working(), budget=Limits(max_tokens=9_000), progress=stop, cancel=token, **more)
    assert len(first.covered) < 12
    then = await evaluate(cases(12), working(), **more)
    assert (then.complete, then.limits) == (True, {"max_tokens": "9000"})
    small = {"store": store, "name": "small"}
    await evaluate(cases(12), working(), budget=Limits(max_tokens=1_500), **small)
    again = await evaluate(cases(12), working(), **small)
    assert again.tokens <= 1_500
    assert again.uncovered


class Program:
    """A subject that keeps no session of its own, like a command: a case that was interrupted begins again."""

    name, fingerprint = "program", "1"

    def limit_of(self, case):
        return ROOMY

    async def answer(self, case, errand):
        return await working()(case).replace(store=None).run(case.prompt, parent=errand.budget, cancel=errand.cancel)


@virtual
async def test_what_a_program_has_spent_stays_spent_when_its_case_begins_again():
    store, spent = MemoryStore(), []
    more = {"store": store, "name": "e", "concurrency": 1}
    for limit in (1_500, 3_000, 4_500):
        report = await evaluate(cases(12), Program(), budget=Limits(max_tokens=limit), **more)
        assert report.tokens <= limit
        assert report.uncovered
        assert {one.session_id for one in report.results} == {None}
        spent.append(report.tokens)
    assert spent == sorted(spent)
    assert any(one.earlier_tokens for one in report.results)


@pytest.mark.parametrize("name", ["judge", "judge-1-1"])
@virtual
async def test_a_case_may_be_called_like_a_judge(name):
    dataset = Dataset([Case(prompt="long " * 1000, expected="a", id=name)])
    store, token = MemoryStore(), CancelToken()

    def make(case):
        return Agent(model=ScriptedModel(script, price=("1", "1")), tools=[look], limits=ROOMY)

    script = [call("look", n=1), hang()]
    asyncio.get_running_loop().call_later(5, token.cancel, "Ctrl-C")
    await evaluate(dataset, make, store=store, name="e", cancel=token)
    used = sum(one.summary["tokens"] for one in (await find_sessions(store)).sessions)
    script = [say("a")]
    tight = await evaluate(dataset, make, store=store, name="e", budget=Limits(max_tokens=used + 1_000))
    assert tight.uncovered


@virtual
async def test_it_does_not_continue_with_other_evaluators():
    store = MemoryStore()
    await evaluate(cases(2), working(), evaluators="contains", store=store, name="e")
    with pytest.raises(ConfigurationError, match="has judged case '1' with contains, not exact"):
        await evaluate(cases(2), working(), evaluators="exact", repeat=2, store=store, name="e")


@virtual
async def test_a_budget_of_the_caller_bounds_an_evaluation_and_what_else_draws_from_it():
    budget = Budget(Limits(max_tokens=4_000))
    await evaluate(cases(30), working(), budget=budget)
    assert budget.meter.tokens <= 4_000
    assert budget.remaining().tokens < 1_000


# --- stopping and continuing --------------------------------------------------------------------------------------


@virtual
async def test_a_stopped_evaluation_says_what_is_missing_and_continues():
    store, token, asked = MemoryStore(), CancelToken(), Counter()

    def make(case):
        async def answer(request):
            asked[case.id, len(request.messages)] += 1
            await asyncio.sleep(1)
            if request.messages[-1].role == "tool_result":
                return say(str(case.expected))
            return call("look", n=1)

        return Agent(model=ScriptedModel().forever(answer), tools=[look], limits=ROOMY)

    asyncio.get_running_loop().call_later(3.5, token.cancel, "Ctrl-C")
    first = await evaluate(cases(9), make, store=store, name="e", concurrency=2, cancel=token)
    assert len(first.covered) == 2
    assert first.uncovered == {"not run yet": 7}
    done = await evaluate(cases(9), make, store=store, name="e", concurrency=2)
    assert done.passed == 9
    assert all(asked[str(n), 1] == 1 for n in (1, 2, 3, 4))  # finished cases, and first turns of begun ones
    assert done.began == first.began
    assert done.seconds >= first.seconds


def start(path, log, commit=None, side="after"):
    words = [sys.executable, SCRIPT, path, log, str(commit or "none"), side]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def finished_in(path):
    async def read():
        store = SqliteStore(path)
        try:
            report = await EvalReport.find("e", store)
            return {one.case_id for one in report.results}, {(one.case_id, one.repeat) for one in report.results}
        except ConfigurationError:
            return set(), set()
        finally:
            await store.close()

    return asyncio.run(read())[1]


def check_killed(tmp_path, kills):
    """Killed again and again: what was finished is not asked again, and everything is there in the end."""
    path, log = tmp_path / "s.db", tmp_path / "log"
    log.touch()
    for commit, side in kills:
        before, asked = finished_in(path) if path.exists() else set(), len(log.read_text().splitlines())
        dead = start(path, log, commit, side)
        again = Counter(line.split()[0] for line in log.read_text().splitlines()[asked:])
        both = {case for case, _ in before if (case, 1) in before and (case, 2) in before}
        assert not both & set(again), "a finished case was run again"
        if dead.returncode == 0:
            break
        assert dead.returncode == -signal.SIGKILL, dead.stderr
    done = start(path, log)
    assert done.returncode == 0, done.stderr
    passed, planned, complete, tokens = done.stdout.split()
    assert (passed, planned, complete) == ("12", "12", "True")
    assert int(tokens) <= 50_000
    return Counter(log.read_text().splitlines())


@pytest.mark.process
def test_g13_a_killed_evaluation_continues_without_repeating_a_finished_case(tmp_path):
    asked = check_killed(tmp_path, [(2, "before"), (9, "after"), (14, "before"), (25, "after")])
    assert max(asked.values()) <= 2 + 4  # two repeats, and at most one more for each kill


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("commit", range(1, 60))
def test_g13_an_evaluation_killed_at_any_commit_continues(commit, tmp_path):
    check_killed(tmp_path, [(commit, "before"), (commit // 2 + 1, "after")])


@virtual
async def test_a_finished_evaluation_is_not_run_again_and_more_repeats_are():
    store, made = MemoryStore(), []

    def make(case):
        made.append(case.id)
        return working()(case)

    await evaluate(cases(3), make, store=store, name="e")
    again = await evaluate(cases(3), make, store=store, name="e")
    assert again.passed == len(made) == 3
    more = await evaluate(cases(3), make, store=store, name="e", repeat=2)
    assert more.passed == len(made) == 6


@virtual
async def test_it_does_not_continue_with_other_cases_or_another_agent():
    store = MemoryStore()
    agent = Agent(model=ScriptedModel().forever(say("x")), limits=ROOMY)
    await evaluate(cases(3), agent, store=store, name="e")
    with pytest.raises(ConfigurationError, match="began with other cases"):
        await evaluate(cases(4), agent, store=store, name="e")
    with pytest.raises(ConfigurationError, match="began with another agent"):
        await evaluate(cases(3), agent.replace(system_prompt="Be brief."), store=store, name="e")


@virtual
async def test_a_store_that_fails_is_named_and_not_what_followed_from_it():
    class Full(MemoryStore):
        def append(self, lease, commit, **more):
            if lease.session_id.startswith("eval:") and commit.number == 4:
                return self.fail_later()
            return super().append(lease, commit, **more)

        async def fail_later(self):
            await asyncio.sleep(1)
            raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        await evaluate(cases(9), working(), store=Full(), name="e", concurrency=4)


@virtual
async def test_two_processes_do_not_run_the_same_evaluation():
    store = MemoryStore()
    slow = lambda case: Agent(model=ScriptedModel([hang()]), limits=ROOMY)  # noqa: E731
    token = CancelToken()
    first = asyncio.ensure_future(evaluate(cases(2), slow, store=store, name="e", cancel=token))
    await asyncio.sleep(0.1)
    with pytest.raises(ConfigurationError, match="is running in another process"):
        await evaluate(cases(2), slow, store=store, name="e")
    token.cancel()
    await first


@virtual
async def test_it_can_be_stopped_through_the_store():
    store = MemoryStore()
    slow = lambda case: Agent(model=ScriptedModel([hang()]), limits=ROOMY)  # noqa: E731
    first = asyncio.ensure_future(evaluate(cases(2), slow, store=store, name="e"))
    await asyncio.sleep(0.1)
    await store.flag("eval:e", "enough")
    assert (await first).uncovered == {"not run yet": 2}


@virtual
async def test_a_cancelled_caller_leaves_nothing_behind():
    store = MemoryStore()
    slow = lambda case: Agent(model=ScriptedModel([hang()]), limits=ROOMY)  # noqa: E731
    task = asyncio.ensure_future(evaluate(cases(2), slow, store=store, name="e"))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    report = await evaluate(cases(2), working(), store=store, name="e2")
    assert report.passed == 2


# --- in the store -------------------------------------------------------------------------------------------------


@virtual
async def test_the_results_are_in_the_store_and_every_case_is_a_session():
    store = MemoryStore()
    report = await evaluate(cases(3), working(), store=store, name="e", repeat=2)
    assert await EvalReport.find("e", store) == report
    for one in report.results:
        assert (await read_journal(store, one.session_id)).folded.result.run_id == one.run_id
    with pytest.raises(ConfigurationError, match="there is no evaluation 'f'"):
        await EvalReport.find("f", store)


@virtual
async def test_lists_show_how_far_a_running_evaluation_has_come():
    store, seen = MemoryStore(), []

    async def note(case, result):
        (entry,) = await list_evaluations(store)
        await asyncio.sleep(2)
        report = await EvalReport.find("e", store)
        seen.append((dict(entry.summary), sum_report(report, ended=False)))
        return case.id != "2"

    more = {"evaluators": [note], "store": store, "name": "e", "concurrency": 1}
    await evaluate(cases(6), working(), budget=Limits(max_tokens=1_500), **more)
    await evaluate(cases(6), working(), budget=Limits(max_tokens=100_000), repeat=2, **more)
    assert len(seen) == 12
    for shown, counted in seen:
        assert {name: shown[name] for name in counted} == counted
    assert {shown["status"] for shown, _ in seen} == {"running"}
    assert seen[-1][0]["covered"] == 11
    assert seen[-1][0]["cost"] is not None


@virtual
async def test_a_report_is_read_back_from_its_json():
    report = await evaluate(cases(3), working(), repeat=2)
    assert EvalReport.of_json(report.to_json()) == report
    with pytest.raises(ConfigurationError, match="not the report of an evaluation"):
        EvalReport.of_json("{}")


@virtual
async def test_nothing_else_takes_its_journal_for_a_run():
    store = MemoryStore()
    await evaluate(cases(2), working(), store=store, name="e")
    agent = Agent(model=ScriptedModel([say("x")]), limits=ROOMY, store=store)
    result = None
    with pytest.raises(ConfigurationError, match="the journal of an evaluation"):
        result = await agent.run("hello", session="eval:e")
    assert result is None
    with pytest.raises(ConfigurationError, match="a team or an evaluation"):
        await fork(store, "eval:e")
    with pytest.raises(ConfigurationError, match="a team or an evaluation"):
        await send(store, "eval:e", "hello")
    assert (await EvalReport.find("e", store)).passed == 2


@virtual
async def test_removing_an_evaluation_removes_its_runs():
    store = MemoryStore()
    await evaluate(cases(2), working(), store=store, name="e")
    await evaluate(cases(2), working(), store=store, name="e2")
    gone = await remove_sessions(store, ["eval:e"])
    assert sorted(gone) == ["e/1/1", "e/2/1", "eval:e"]
    assert {one.session_id for one in (await find_sessions(store)).sessions} == {"eval:e2", "e2/1/1", "e2/2/1"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"repeat": 0}, "repeat"),
        ({"concurrency": 0}, "concurrency"),
        ({"budget": "2"}, "evaluate.budget must be a Budget or Limits"),
        ({"name": "a/b"}, "the name of an evaluation"),
        ({"evaluators": [7]}, "expected an evaluator"),
        ({"evaluators": "exakt"}, "did you mean exact"),
        ({"evaluator_seconds": 0}, "evaluator_seconds"),
    ],
)
@virtual
async def test_wrong_arguments_are_refused_before_anything_runs(more, said):
    with pytest.raises(ConfigurationError, match=said):
        await evaluate(cases(1), working(), **more)


@virtual
async def test_what_is_not_an_agent_is_refused():
    with pytest.raises(ConfigurationError, match="the agent under test must be an Agent"):
        await evaluate(cases(1), "app:agent")
    report = await evaluate(cases(1), lambda case: "agent")
    assert "must return an Agent" in report.results[0].why
