"""A start that does not fit now waits for what live runs give back, in order of arrival; it is not refused."""

import asyncio

import pytest

from glidepath import Agent, Limits
from glidepath.apps.fleet import FleetLedger, WorkerFlight
from glidepath.engines.dbos import Quota
from glidepath.messages import Usage
from glidepath.outcome import LoopOutcome
from glidepath.run import Amount, Reservation
from glidepath.testing import ScriptedModel, say

from .kit import fetch, fresh_database, within
from .test_ledger import Seat, admit, budget, fly, leave, seat, worker


@pytest.fixture(scope="module")
def address():
    return fresh_database()


@pytest.fixture(autouse=True)
def clean(address):
    async def empty():
        ledger = FleetLedger(address)
        await ledger.check()
        await ledger.close()
        await fetch(
            address,
            "TRUNCATE glidepath_budgets, glidepath_tenants, glidepath_fleet_runs, glidepath_rates, glidepath_waiting, "
            "glidepath_workers, glidepath_sessions CASCADE",
        )

    asyncio.run(empty())


async def on_duty(address, **more):
    """A worker whose lease is valid: only those who live keep their place."""
    one = await worker(address, **more)
    await fetch(address, "INSERT INTO glidepath_workers VALUES('here', 1e12, 0, '{}') ON CONFLICT DO NOTHING")
    return one


async def start(run: Seat, landing: int, first: int):
    """Board as `admit_to_budget` does; None when the ledger has refused."""
    whole = Amount(landing + first)
    await run.budget.draw(run, whole, whole, around=())
    if run.budget.refused is not None:
        return None
    got = run.meter.reserve_start(Amount(landing), Amount(first), queued=False)
    assert type(got) is Reservation
    await tell(run)
    return got


async def tell(run):
    """Any later draw tells the ledger what the run keeps for its landing."""
    root = run.budget.meter
    await run.budget.ledger.draw(
        run.budget.session,
        run.budget.leg,
        spent=run.budget.spent,
        landing=Amount(root.aside_tokens),
        flight=Amount(root.reserved_tokens),
        asked=Amount(),
        least=Amount(),
        spare=Amount(),
    )


async def end(run, reservation, spent):
    """Its first call costs this much, and the run ends."""
    reservation.settle(spent, 0)
    await run.budget.settle("done")


def test_a_start_waits_for_the_landings_of_others_and_is_not_refused(address):
    async def go():
        one = await on_duty(address)
        await one.ledger.set_budget(Quota(tokens=1_000))
        holder, waiter = await seat(one, "holder"), await seat(one, "waiter")
        held = await start(holder, 600, 100)
        waiting = asyncio.create_task(start(waiter, 300, 300))
        await asyncio.sleep(0.3)
        assert not waiting.done()  # 600 are kept for a landing: a call would be refused at once
        await end(holder, held, 50)
        assert await asyncio.wait_for(waiting, 4.0) is not None  # told at once, not at the next look
        await leave(one)

    asyncio.run(go())


def test_starts_are_served_in_order_of_arrival_by_all_workers_together(address):
    async def go():
        one, two = await on_duty(address), await on_duty(address)
        await one.ledger.set_budget(Quota(tokens=1_000))
        holder = await seat(one, "holder")
        held = await start(holder, 400, 200)
        order = []

        async def queue(name, where, size):
            run = await seat(where, name)
            got = await start(run, size // 2, size // 2)
            order.append(name)
            await asyncio.sleep(0.02)
            await end(run, got, 10)

        tasks = []
        # The last one is small enough to fit at once, beside the holder: it would go ahead of the others.
        for number, (where, size) in enumerate([(two, 900), (one, 800), (two, 700), (one, 850), (two, 200)]):
            tasks.append(asyncio.create_task(queue(f"w{number}", where, size)))
            await asyncio.sleep(0.15)
        assert order == []
        await end(holder, held, 20)
        await within(20, *tasks)
        await leave(one, two)
        return order

    assert asyncio.run(go()) == ["w0", "w1", "w2", "w3", "w4"]


def test_a_start_that_is_short_of_its_own_quota_keeps_nobody_else_waiting(address):
    async def go():
        one = await on_duty(address)
        await one.ledger.set_budget(Quota(tokens=10_000))
        await one.ledger.set_tenant("acme", day=Quota(tokens=1_000), month=Quota())
        await one.ledger.set_tenant("zeta", day=Quota(tokens=1_000), month=Quota())
        seats = {}
        for name, tenant in (("a1", "acme"), ("a2", "acme"), ("z1", "zeta")):
            assert await admit(one, name, tenant) == ""
            seats[name] = Seat(one.ledger, name, await one.ledger.read_state(name))
        held = await start(seats["a1"], 500, 200)
        waiting = asyncio.create_task(start(seats["a2"], 400, 200))
        await asyncio.sleep(0.2)
        assert await asyncio.wait_for(start(seats["z1"], 400, 200), 2.0) is not None
        assert not waiting.done()
        await end(seats["a1"], held, 10)
        assert await asyncio.wait_for(waiting, 4.0) is not None
        await leave(one)

    asyncio.run(go())


def test_what_cannot_fit_even_alone_and_what_nobody_gives_back_is_refused_at_once(address):
    async def go():
        one = await on_duty(address)
        await one.ledger.set_budget(Quota(tokens=1_000))
        holder, big, late = await seat(one, "holder"), await seat(one, "big"), await seat(one, "late")
        held = await start(holder, 500, 200)
        assert await asyncio.wait_for(start(big, 600, 500), 2.0) is None
        assert big.budget.refused.source == "budget of fleet"
        await end(holder, held, 450)  # spent: it does not come back
        assert await asyncio.wait_for(start(late, 300, 300), 2.0) is None
        await leave(one)

    asyncio.run(go())


def test_a_start_behind_one_whose_worker_is_gone_does_not_wait_for_it(address):
    async def go():
        one = await on_duty(address)
        await one.ledger.set_budget(Quota(tokens=1_000))
        holder, gone, here = await seat(one, "holder"), await seat(one, "gone"), await seat(one, "here too")
        held = await start(holder, 500, 200)
        lost = asyncio.create_task(start(gone, 450, 450))
        await asyncio.sleep(0.2)
        lost.cancel()
        await fetch(address, "UPDATE glidepath_fleet_runs SET worker = 'dead' WHERE session = 'gone'")
        assert await asyncio.wait_for(start(here, 100, 100), 2.0) is not None
        await end(holder, held, 10)
        await leave(one)

    asyncio.run(go())


def test_a_submission_is_not_refused_for_landings_that_come_back(address):
    async def go():
        one = await on_duty(address)
        await one.ledger.set_budget(Quota(tokens=1_000))
        holder = await seat(one, "holder")
        held = await start(holder, 1_000, 0)
        assert await admit(one, "next") == ""
        held.settle(1_000, 0)
        await holder.budget.settle("done")
        assert "all 1000 tokens are used" in await admit(one, "too late")
        await leave(one)

    asyncio.run(go())


def small(pause=0.01, **more):
    turn = say("Four words of text.").with_usage(Usage(60, 20)).with_delay(pause)
    model = ScriptedModel(max_output_tokens=100).forever(turn)
    return Agent(model=model, limits=Limits(max_iterations=3, landing_tokens=256), min_output_tokens=64, **more)


def test_a_shared_budget_is_spent_as_well_by_many_at_once(address):
    async def go(at_once):
        one = await on_duty(address, agent=small())
        await one.ledger.set_budget(None)
        await one.ledger.set_budget(Quota(tokens=3_000))
        lanes = asyncio.Semaphore(at_once)

        async def task(session):
            async with lanes:
                if await admit(one, session):
                    return None  # all of it is used
                return await WorkerFlight(one, session, "small", "go").run_to_end()

        outcomes = await within(90, *[task(f"{at_once} {number}") for number in range(50)])
        account = budget(await one.ledger.accounts())
        await leave(one)
        return outcomes.count("done"), account.tokens

    alone, many = asyncio.run(go(1)), asyncio.run(go(10))
    assert many[1] <= 3_000
    assert many[1] >= 0.9 * 3_000 - 300  # the last run that fits leaves less than a start
    assert many[0] >= 0.9 * alone[0], (many, alone)


def test_start_timeout_ends_the_wait(address):
    async def go():
        one = await on_duty(address, agent=small(start_timeout=0.3))
        await one.ledger.set_budget(Quota(tokens=1_000))
        holder = await seat(one, "holder")
        held = await start(holder, 900, 50)
        _, result = await fly(one, "patient")
        await end(holder, held, 10)
        await leave(one)
        return result

    result = asyncio.run(go())
    assert result.outcome is LoopOutcome.CUT_OFF
    assert result.cause.source == "start_timeout"


def test_nobody_waits_for_the_landing_of_a_run_that_no_worker_touches(address):
    async def go():
        one = await on_duty(address)
        await one.ledger.set_budget(Quota(tokens=1_000))
        holder, waiter = await seat(one, "holder"), await seat(one, "waiter")
        await start(holder, 600, 0)
        waiting = asyncio.create_task(start(waiter, 300, 300))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await fetch(address, "UPDATE glidepath_sessions SET updated = updated - 60 WHERE id = 'holder'")
        assert await asyncio.wait_for(waiting, 8.0) is None
        await leave(one)

    asyncio.run(go())
