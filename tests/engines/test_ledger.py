"""The fleet's ledger: budgets, quotas and rates hold for all workers together, whoever asks when."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath.apps.fleet import FleetBudget, FleetLedger, WorkerFlight
from glidepath.engines.dbos import Fleet, Quota, Worker
from glidepath.errors import ConfigurationError, StoreError
from glidepath.messages import StreamEnd, TextDelta, Usage
from glidepath.run import Amount, Caps, Meter, Reservation

from . import crew
from .kit import fetch, fresh_database, within


@pytest.fixture(scope="module")
def address():
    return fresh_database()


@pytest.fixture(autouse=True)
def clean(address):
    async def empty():
        ledger = FleetLedger(address)
        await ledger.check()
        await ledger.close()
        await fetch(address, "TRUNCATE glidepath_budgets, glidepath_tenants, glidepath_fleet_runs, glidepath_rates")

    asyncio.run(empty())


class Clock:
    """The day that the ledger believes in."""

    def __init__(self, *moment):
        self.at = datetime(*moment, tzinfo=UTC)

    def __call__(self):
        return self.at


async def worker(address, agent=crew.small, clock=None):
    """A worker without its queue: its runs are put on its desk by hand."""
    made = Worker(address, agents={"small": agent}, ledger=FleetLedger(address, now=clock))
    await made._prepare()
    made.id = "here"
    return made


async def leave(*workers):
    for one in workers:
        await one.ledger.close()
        await one.store.close()


async def admit(one, session, tenant=None):
    query = "SELECT glidepath_admit($1, 'small', $2, 'go', 'digest', $3)"
    ((answer,),) = await fetch(one.ledger.dsn, query, session, tenant, one.ledger._now())
    return answer


async def fly(one, session, tenant=None):
    assert await admit(one, session, tenant) == ""
    flight = WorkerFlight(one, session, "small", "go")
    outcome = await flight.run_to_end()
    return outcome, (await Fleet(one.ledger.dsn, ledger=one.ledger).result(session))


def budget(rows, name="fleet"):
    return next(row for row in rows if row.name == name)


# --- the fleet's budget -------------------------------------------------------------------------------------------


def test_g4_two_workers_and_twelve_runs_never_spend_more_than_the_fleet_may(address):
    async def go():
        one, two = await worker(address), await worker(address)
        await one.ledger.set_budget(Quota(tokens=4000))
        seen = []

        async def look():
            while True:
                seen.append(budget(await one.ledger.accounts()).tokens)
                await asyncio.sleep(0.005)

        looking = asyncio.create_task(look())
        flown = await within(60, *[fly((one, two)[number % 2], f"g4 {number}") for number in range(12)])
        looking.cancel()
        account = budget(await one.ledger.accounts())
        await leave(one, two)
        return flown, seen, account

    flown, seen, account = asyncio.run(go())
    assert max(seen) <= 4000
    assert sum(result.usage.total for _, result in flown) == account.tokens <= 4000
    assert account.tokens > 1500  # it was used, not only guarded
    short = [result for outcome, result in flown if result.cause is not None]
    assert short
    sources = {result.cause.source for result in short}
    assert "budget of fleet" in sources
    assert sources <= {"budget of fleet", "TokenBudgetConstraint"}  # refused, or told in time that little was left
    refused = [result for result in short if result.cause.source == "budget of fleet"]
    assert all(result.state.name == "BUDGET_EXCEEDED" for result in refused)


class Seat:
    """A run on the ground: its budget, its meter, and what a draw looks at."""

    def __init__(self, ledger, session, look):
        self.budget = FleetBudget(ledger, session, "here", look, frozenset)
        self.meter = Meter(Caps(), self.budget.meter)
        self.journal = SimpleNamespace(lease=SimpleNamespace(token=1), durability="sync")

    async def board(self, landing, first):
        whole = Amount(landing + first)
        await self.budget.draw(self, whole, whole)
        assert type(self.meter.reserve_start(Amount(landing), Amount(first), queued=False)) is Reservation


async def seat(one, name):
    assert await admit(one, name) == ""
    return Seat(one.ledger, name, await one.ledger.read_state(name))


def test_g1_runs_that_have_boarded_never_wait_for_each_others_first_calls(address):
    """Each holds a landing and a first call, asks for a longer reply, and nothing else will ever come back."""

    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=2 * 400 + 50))
        both = [await seat(one, "left"), await seat(one, "right")]
        for run in both:
            await run.board(250, 150)
        await within(10, *[longer(run) for run in both])
        await leave(one)
        return [run.budget.refused for run in both]

    async def longer(run):
        await run.budget.draw(run, Amount(130), Amount(0))
        await run.budget.settle("done")

    assert asyncio.run(go()) == [None, None]  # the first flies with what is left, the other waits for that


def test_g1_a_run_waits_for_what_others_hold_only_so_long(address, monkeypatch):
    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=1000))
        holder, waiter = await seat(one, "holder"), await seat(one, "waiter")
        await holder.budget.draw(holder, Amount(800), Amount(800))  # and it neither spends nor ends
        await within(10, waiter.budget.draw(waiter, Amount(500), Amount(500)))
        await leave(one)
        return waiter.budget.refused

    monkeypatch.setattr("glidepath.apps.fleet.budget.LONGEST", 0.2)
    refused = asyncio.run(go())
    assert refused.source == "budget of fleet"
    assert "waited 0.2 s for what other runs hold" in refused.reason


def test_g4_money_is_counted_as_tokens_are(address):
    async def go():
        one = await worker(address, crew.priced)
        await one.ledger.set_budget(Quota(cost="0.03"))
        flown = await asyncio.gather(*[fly(one, f"money {number}") for number in range(6)])
        account = budget(await one.ledger.accounts())
        await leave(one)
        return flown, account

    flown, account = asyncio.run(go())
    assert sum(result.cost for _, result in flown) == account.cost
    assert 0 < account.cost <= account.max_cost
    assert any(result.cause is not None and "cost limit of fleet" in result.cause.reason for _, result in flown)


def test_a_fleet_without_a_budget_asks_the_ledger_for_nothing(address):
    async def go():
        one = await worker(address)
        outcome, _ = await fly(one, "free")
        ((row,),) = await fetch(address, "SELECT row_to_json(r) FROM glidepath_fleet_runs r WHERE session = 'free'")
        await leave(one)
        return outcome, row

    outcome, row = asyncio.run(go())
    assert outcome == "done"
    assert '"line":[]' in row


def test_what_a_run_does_not_use_goes_back_when_it_ends(address):
    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=1_000_000))
        _, result = await fly(one, "refund")
        account = budget(await one.ledger.accounts())
        await leave(one)
        return result, account

    result, account = asyncio.run(go())
    assert account.tokens == result.usage.total == 6 * crew.PER_CALL.total


class Talker:
    """Answers at length, without a cap to keep to."""

    name = "talker"

    async def stream(self, request):
        for _ in range(100):
            yield TextDelta("word " * 200)
            await asyncio.sleep(0)
        yield StreamEnd("end_turn", Usage(100, 25_000))


@pytest.mark.parametrize(("most", "whole"), [(1_000_000, True), (15_000, False)])
def test_g4_a_reply_that_outgrows_its_grant_draws_more_while_it_streams(address, most, whole):
    def talker():
        return crew.make(model=Talker(), tools=[])

    async def go():
        one = await worker(address, talker)
        await one.ledger.set_budget(Quota(tokens=most))
        outcome, result = await fly(one, f"talk {most}")
        account = budget(await one.ledger.accounts())
        await leave(one)
        return outcome, result, account

    outcome, result, account = asyncio.run(go())
    assert (outcome == "done") is whole
    assert (len(result.text) > 99_000) is whole
    assert len(result.text) > 20_000  # what was paid for is kept
    assert result.usage.total == account.tokens <= most


# --- tenants ------------------------------------------------------------------------------------------------------


def test_a_tenant_over_its_day_is_refused_until_the_next_day(address):
    async def go():
        clock = Clock(2026, 3, 30, 23)
        one = await worker(address, clock=clock)
        await one.ledger.set_tenant("acme", day=Quota(runs=2, tokens=2000), month=Quota())
        await one.ledger.set_tenant("other", day=Quota(), month=Quota())
        assert (await fly(one, "day 1", "acme"))[0] == "done"
        assert (await fly(one, "day 2", "acme"))[0] == "done"
        refused = await admit(one, "day 3", "acme")
        other = await admit(one, "day 3 of another", "other")
        clock.at = datetime(2026, 3, 31, 1, tzinfo=UTC)
        next_day = await admit(one, "day 3", "acme")
        await leave(one)
        return refused, other, next_day

    refused, other, next_day = asyncio.run(go())
    assert refused == "tenant acme, day 2026-03-30: all 2 runs are used"
    assert (other, next_day) == ("", "")


def test_a_run_that_outgrows_its_tenants_day_lands(address):
    async def go():
        one = await worker(address, clock=Clock(2026, 3, 30))
        await one.ledger.set_tenant("acme", day=Quota(tokens=900), month=Quota())
        outcome, result = await fly(one, "lands", "acme")
        accounts = await one.ledger.accounts()
        await leave(one)
        return outcome, result, budget(accounts, "tenant acme, day 2026-03-30")

    outcome, result, day = asyncio.run(go())
    assert result.state.name == "BUDGET_EXCEEDED"
    assert 1 <= result.tool_calls < crew.STEPS
    assert result.usage.total == day.tokens <= 900
    assert outcome in ("wrapped_up", "cut_off")


def test_a_tenant_over_its_month_is_refused_until_the_next_month(address):
    async def go():
        clock = Clock(2026, 3, 30)
        one = await worker(address, clock=clock)
        await one.ledger.set_tenant("acme", day=Quota(), month=Quota(tokens=660))
        first = await fly(one, "month 1", "acme")
        clock.at = datetime(2026, 3, 31, tzinfo=UTC)
        number = 2
        while not await admit(one, f"asked {number}", "acme"):  # a run can start with little; then nothing is left
            _, result = await fly(one, f"month {number}", "acme")
            if not result.iterations:
                assert result.cause.source == "budget of tenant acme, month 2026-03"
                break
            number += 1
        clock.at = datetime(2026, 4, 1, tzinfo=UTC)
        april = await admit(one, "april", "acme")
        accounts = await one.ledger.accounts()
        await leave(one)
        return first, budget(accounts, "tenant acme, month 2026-03"), april

    (_, result), march, april = asyncio.run(go())
    assert result.usage.total <= march.tokens <= 660
    assert april == ""


def test_a_month_that_is_used_up_refuses_in_words(address):
    async def go():
        one = await worker(address, crew.priced, Clock(2026, 3, 30))
        await one.ledger.set_tenant("acme", day=Quota(), month=Quota(cost="5"))
        await fetch(
            address, "UPDATE glidepath_budgets SET money = max_money, firm_money = max_money WHERE max_money > 0"
        )
        refused = await admit(one, "money", "acme")
        await leave(one)
        return refused

    assert asyncio.run(go()) == "tenant acme, month 2026-03: all $5 are used"


def test_what_is_spent_after_midnight_counts_on_the_new_day(address):
    async def go():
        clock = Clock(2026, 3, 30)
        one = await worker(address, clock=clock)
        await one.ledger.set_tenant("acme", day=Quota(tokens=100_000), month=Quota(tokens=100_000))
        assert await admit(one, "night", "acme") == ""
        draw = {"landing": Amount(256), "flight": Amount(), "least": Amount(10), "spare": Amount()}
        await one.ledger.open("night", 1, "here")
        await one.ledger.draw("night", 1, spent=Amount(), asked=Amount(1000), **draw)
        clock.at = datetime(2026, 3, 31, tzinfo=UTC)
        await one.ledger.draw("night", 1, spent=Amount(400), asked=Amount(1000), **draw)
        assert await one.ledger.settle("night", 1, Amount(700), "done", None)
        accounts = {account.name: account.tokens for account in await one.ledger.accounts()}
        await leave(one)
        return accounts

    assert asyncio.run(go()) == {
        "tenant acme, day 2026-03-30": 400,
        "tenant acme, day 2026-03-31": 300,
        "tenant acme, month 2026-03": 700,
    }


# --- rates --------------------------------------------------------------------------------------------------------


def test_a_models_rate_holds_for_all_workers_together(address):
    async def go():
        one, two = await worker(address), await worker(address)
        await one.ledger.set_rate("pilot", requests=20, tokens=None, per=1.0)
        one.rated = two.rated = frozenset({"pilot"})
        loop = asyncio.get_running_loop()
        began = loop.time()
        flown = await asyncio.gather(fly(one, "rate 1"), fly(two, "rate 2"), fly(two, "rate 3"))
        took = loop.time() - began
        await leave(one, two)
        return flown, took

    flown, took = asyncio.run(go())
    calls = sum(result.iterations for _, result in flown)
    assert calls == 18
    assert took >= (calls - 1) / 20


def test_slots_are_evenly_spaced_and_tokens_have_a_rate_of_their_own(address):
    async def go():
        one = await worker(address)
        await one.ledger.set_rate("pilot", requests=60, tokens=None, per=60, burst=3)
        requests = [await one.ledger.take_slot("pilot", 10) for _ in range(6)]
        await one.ledger.set_rate("other", requests=None, tokens=100, per=10)
        tokens = [await one.ledger.take_slot("other", 50) for _ in range(4)]
        free = await one.ledger.take_slot("third", 10)
        await leave(one)
        return requests, tokens, free

    requests, tokens, free = asyncio.run(go())
    assert requests[:3] == [0, 0, 0]
    assert requests[3:] == pytest.approx([1, 2, 3], abs=0.5)
    assert tokens == pytest.approx([0, 5, 10, 15], abs=0.5)
    assert free == 0


# --- legs, and whatever comes in which order ------------------------------------------------------------------------


def test_an_earlier_leg_can_neither_draw_nor_settle(address):
    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=10_000))
        await admit(one, "legs")
        draw = {"landing": Amount(), "flight": Amount(), "least": Amount(1), "spare": Amount()}
        await one.ledger.open("legs", 1, "first")
        await one.ledger.draw("legs", 1, spent=Amount(), asked=Amount(500), **draw)
        await one.ledger.open("legs", 2, "second")
        late = await one.ledger.draw("legs", 1, spent=Amount(), asked=Amount(500), **draw)
        settled = await one.ledger.settle("legs", 1, Amount(), "done", None)
        with pytest.raises(StoreError, match="taken over") as fenced:
            await one.ledger.open("legs", 1, "first")
        account = budget(await one.ledger.accounts())
        await leave(one)
        return late, settled, fenced.value.kind, account

    late, settled, kind, account = asyncio.run(go())
    assert (late.verdict, settled, kind) == ("fenced", False, "fenced")
    assert account.tokens == 500


def test_a_run_that_takes_every_worker_down_is_not_tried_for_ever(address):
    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=10_000))
        await admit(one, "poison")
        await fetch(address, "UPDATE glidepath_fleet_runs SET taken = 20")
        outcome = await WorkerFlight(one, "poison", "small", "go").run_to_end()
        _, error = await one.ledger.outcome("poison")
        await leave(one)
        return outcome, error

    outcome, error = asyncio.run(go())
    assert outcome == "failed"
    assert "20 workers took this run" in error


def test_a_run_that_ended_and_was_not_settled_is_settled_and_not_flown_again(address):
    """The worker died between the last commit of the journal and the ledger."""

    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=100_000))
        _, result = await fly(one, "between")
        await fetch(address, "UPDATE glidepath_fleet_runs SET outcome = NULL, ended = NULL, tokens = tokens + 500")
        await fetch(address, "UPDATE glidepath_budgets SET tokens = tokens + 500")
        again = await WorkerFlight(one, "between", "small", "go").run_to_end()
        account = budget(await one.ledger.accounts())
        heads = await fetch(address, "SELECT head FROM glidepath_sessions WHERE id = 'between'")
        await leave(one)
        return result, again, account, heads

    result, again, account, heads = asyncio.run(go())
    assert again == "done"
    assert account.tokens == result.usage.total
    assert heads[0][0] == 13


STEP = st.tuples(
    st.sampled_from(["draw", "draw", "spend", "end", "crash"]),
    st.integers(0, 3),
    st.integers(1, 900),
    st.integers(1, 100),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=25), most=st.integers(100, 3000))
def test_g4_in_any_order_the_budget_holds_and_its_sum_is_right(address, steps, most):
    """Runs draw, spend within what they hold, crash, go on and end: the row is always the sum of what they hold."""

    async def go():
        ledger = FleetLedger(address)
        await ledger._execute("DELETE FROM glidepath_budgets")
        await ledger._execute("DELETE FROM glidepath_fleet_runs")
        await ledger._execute(
            "INSERT INTO glidepath_fleet_runs(session, agent, digest, submitted) "
            "SELECT 'run ' || n, 'small', '', 0 FROM generate_series(0, 3) n"
        )
        await ledger.set_budget(Quota(tokens=most))
        runs = {number: {"leg": 0, "spent": 0, "held": 0} for number in range(4)}
        for what, number, asked, least in steps:
            run, session = runs[number], f"run {number}"
            if what == "draw":
                drawn = await ledger.draw(
                    session,
                    run["leg"],
                    spent=Amount(run["spent"]),
                    landing=Amount(),
                    flight=Amount(),
                    asked=Amount(asked),
                    least=Amount(min(asked, least)),
                    spare=Amount(asked),
                )
                run["held"] = drawn.tokens
                if drawn.verdict == "granted":
                    assert drawn.tokens - run["spent"] >= min(asked, least)
            elif what == "spend":
                run["spent"] = min(run["held"], run["spent"] + asked)
            elif what == "end":
                assert await ledger.settle(session, run["leg"], Amount(run["spent"]), None, None)
                run["held"] = run["spent"]
            else:
                run["leg"] += 1
                await ledger.open(session, run["leg"], "there")
            account = budget(await ledger.accounts())
            assert account.tokens == sum(one["held"] for one in runs.values()) <= most
        await ledger.close()

    asyncio.run(go())


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"tokens": 0}, "budget.tokens"),
        ({"tokens": True}, "budget.tokens"),
        ({"cost": "much"}, "budget.cost"),
        ({"cost": 10_000_000}, "larger than a budget row"),
        ({"runs": -1}, "budget.runs"),
    ],
)
def test_a_wrong_budget_is_refused_by_its_name(address, fields, names):
    async def go():
        async with Fleet(address) as fleet:
            await fleet.set_budget(**fields)

    with pytest.raises(ConfigurationError, match=names):
        asyncio.run(go())


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, None, "a/b", "-a"])
def test_a_wrong_tenant_is_refused(address, name):
    async def go():
        async with Fleet(address) as fleet:
            await fleet.set_tenant(name)

    with pytest.raises(ConfigurationError, match="tenant must be"):
        asyncio.run(go())


@pytest.mark.parametrize("fields", [{"requests": 0}, {"tokens": "1"}, {"requests": 1, "per": 0}])
def test_a_wrong_rate_is_refused(address, fields):
    async def go():
        async with Fleet(address) as fleet:
            await fleet.set_rate("pilot", **fields)

    with pytest.raises(ConfigurationError, match=next(reversed(fields))):
        asyncio.run(go())


@pytest.mark.parametrize("dsn", ["runs.db", "", None, "mysql://x"])
def test_a_fleet_lives_in_postgresql(dsn):
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        FleetLedger(dsn)


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        ("crew", "expected module:attribute"),
        ("nowhere:agent", "ModuleNotFoundError"),
        (crew.NOT_AN_AGENT, "must be an Agent"),
        (crew.broken, "no key"),
    ],
)
def test_a_wrong_agent_is_refused_when_the_worker_is_made(agent, names):
    with pytest.raises(ConfigurationError, match=names):
        Worker("postgresql://host/db", agents={"small": agent})


@pytest.mark.parametrize("module", ["my-agents", "01_agents"])
def test_an_agent_may_be_in_any_module_that_can_be_imported(tmp_path, monkeypatch, module):
    (tmp_path / f"{module}.py").write_text("from tests.engines import crew\n\n\nclass Ours:\n    small = crew.small\n")
    monkeypatch.syspath_prepend(tmp_path)
    Worker("postgresql://host/db", agents={"small": f"{module}:Ours.small"})


@pytest.mark.parametrize(
    "fields",
    [{"concurrency": 0}, {"lease": 0}, {"poll": None}, {"drain": -1}, {"agents": {}}, {"agents": {"a b": crew.small}}],
)
def test_a_wrong_worker_is_refused(fields):
    with pytest.raises(ConfigurationError, match="agent" if "agents" in fields else next(iter(fields))):
        Worker("postgresql://host/db", **{"agents": {"small": crew.small}, **fields})


@pytest.mark.parametrize("session", ["nobody", "a\0b", "a\ud800b"], ids=["unknown", "nul", "surrogate"])
def test_a_run_that_cannot_be_there_is_missing(address, session):
    async def go():
        async with Fleet(address) as fleet:
            for ask in (fleet.outcome, fleet.result, fleet.wait, fleet.stop, fleet.resume):
                with pytest.raises(StoreError) as caught:
                    await ask(session)
                assert (caught.value.kind, repr(session) in str(caught.value)) == ("missing", True)
            with pytest.raises(StoreError) as caught:
                await fleet.send(session, "hello")
            assert caught.value.kind == "missing"
            if session != "nobody":
                with pytest.raises(ConfigurationError, match="model must be the name of a model"):
                    await fleet.set_rate(session, requests=1)

    asyncio.run(go())
