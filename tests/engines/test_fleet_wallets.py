"""Runs of a fleet on a wallet: inside it and inside the fleet's budgets, whichever worker flies them."""

import asyncio

import pytest

from glidepath import Budget, Limits
from glidepath.apps.fleet import WorkerFlight
from glidepath.engines.dbos import Fleet, Quota
from glidepath.outcome import LoopOutcome

from .kit import Crew, fresh_database, until
from .test_ledger import admit, budget, leave, worker


@pytest.fixture(scope="module")
def address():
    return fresh_database()


async def open_wallet(store, tokens, name="c"):
    made = Budget(Limits(max_tokens=tokens), name=name, store=store)
    await store.open_wallets(made.line)


async def held(store, name="c"):
    (found,) = await store.wallets(name)
    return found.tokens, found.held_tokens, found.holds


async def flown(one, session, wallet="c"):
    assert await admit(one, session) == ""
    outcome = await WorkerFlight(one, session, "small", "go", {"wallet": wallet}).run_to_end()
    return outcome, await Fleet(one.ledger.dsn, ledger=one.ledger).result(session)


def test_g4_runs_of_two_workers_stay_within_a_wallet_and_the_fleet(address):
    async def go():
        one, two = await worker(address), await worker(address)
        await one.ledger.set_budget(Quota(tokens=1_000_000))
        await open_wallet(one.store, 4_000)
        flights = [flown((one, two)[number % 2], f"both {number}") for number in range(12)]
        results = await asyncio.gather(*flights)
        figures, fleet = await held(one.store), budget(await one.ledger.accounts()).tokens
        await one.ledger.set_budget(None)
        await leave(one, two)
        return results, figures, fleet

    results, figures, fleet = asyncio.run(go())
    spent = sum(result.usage.total for _, result in results)
    assert 1_500 < spent <= 4_000
    assert figures == (spent, 0, 0)
    assert fleet == spent
    short = [result for _, result in results if result.outcome is not LoopOutcome.DONE]
    assert short
    assert {result.cause.source for result in short} == {"wallet c"}


def test_a_fleet_that_has_nothing_left_is_named_though_the_wallet_is_full(address):
    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=600))
        await open_wallet(one.store, 1_000_000, "full")
        results = [await flown(one, f"tight {number}", "full") for number in range(3)]
        figures = await held(one.store, "full")
        await one.ledger.set_budget(None)
        await leave(one)
        return results, figures

    results, figures = asyncio.run(go())
    assert figures == (sum(result.usage.total for _, result in results), 0, 0)
    assert results[-1][1].cause.source == "budget of fleet"


def test_a_wallet_that_is_gone_fails_the_run_and_costs_nothing(address):
    async def go():
        one = await worker(address)
        assert await admit(one, "gone") == ""
        outcome = await WorkerFlight(one, "gone", "small", "go", {"wallet": "nobody's"}).run_to_end()
        _, error = await one.ledger.outcome("gone")
        await leave(one)
        return outcome, error

    outcome, error = asyncio.run(go())
    assert outcome == "failed"
    assert "nobody's" in error


@pytest.mark.process
@pytest.mark.timeout(200)
def test_g13_a_submitted_run_spends_from_its_wallet_over_the_death_of_its_worker(tmp_path):
    address = fresh_database()
    with Crew(address, tmp_path, pause=0.15) as crew:
        crew.start(1)

        async def go():
            async with Fleet(address) as fleet:
                await until(lambda: crew.ready() == 1)
                await open_wallet(fleet.store, 100_000)
                session = await fleet.submit("stepper", "go", wallet="c")
                await until(lambda: len(crew.sent()) >= 2)
                crew.kill(crew.workers[0])
                crew.start(1)
                outcome = await fleet.wait(session, 60)
                result = await fleet.result(session)
                await until(lambda: asyncio.ensure_future(_settled(fleet.store)), 30)
                return outcome, result, await held(fleet.store)

        outcome, result, figures = asyncio.run(go())
        unknown = crew.command("submit", "stepper", "go", "--wallet", "nobody's")
        known = crew.command("submit", "stepper", "go", "--wallet", "c", "--wait")
    assert outcome == "done"
    assert figures == (result.usage.total, 0, 0)
    assert unknown.returncode == 2
    assert "nobody's" in unknown.stderr
    assert known.returncode == 0


async def _settled(store):
    return (await held(store))[1:] == (0, 0)
