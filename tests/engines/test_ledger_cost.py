"""What the fleet's ledger costs, and that being cheap loses nothing: the disk, the bell, an idle worker."""

import asyncio

import pytest
from tests.crash.postgres import Server
from tests.crash.test_postgres import Tap

from glidepath import Limits, LoopConfig
from glidepath.apps.fleet import FleetLedger
from glidepath.apps.fleet.contain import PARTS
from glidepath.engines.dbos import Quota
from glidepath.outcome import LoopOutcome
from glidepath.run import Amount
from glidepath.sessions import PostgresStore, link, this_owner

from . import crew
from .kit import Crew, fetch, fresh_database, until, within
from .test_ledger import admit, budget, fly, leave, seat, worker

NOTHING = {"landing": Amount(), "flight": Amount(), "least": Amount(1), "spare": Amount(), "spent": Amount()}


@pytest.fixture(scope="module")
def address():
    return fresh_database()


@pytest.fixture(scope="module")
def server():
    made = Server()
    yield made
    made.close()


# --- the disk -----------------------------------------------------------------------------------------------------


def test_only_what_an_operator_says_waits_for_the_disk(address):
    """A draw does not: the commit of the journal that follows it does, and the log is written in its order."""

    async def go():
        ledger = FleetLedger(address)
        hot = await ledger._fetchval("SHOW synchronous_commit")
        seen = []

        class Spy:
            def __init__(self, connection):
                self.connection = connection

            def __getattr__(self, name):
                return getattr(self.connection, name)

            async def execute(self, query, *arguments):
                answer = await self.connection.execute(query, *arguments)
                if "glidepath_budgets" in query or "glidepath_rates" in query or "glidepath_tenants" in query:
                    seen.append(await self.connection.fetchval("SHOW synchronous_commit"))
                return answer

        plain = ledger._run_with_retry
        ledger._run_with_retry = lambda work, **options: plain(lambda connection: work(Spy(connection)), **options)
        await ledger.set_budget(Quota(tokens=10))
        await ledger.set_tenant("acme", day=Quota(runs=1), month=Quota())
        await ledger.set_rate("pilot", requests=1, tokens=None)
        await ledger.set_budget(None)
        await ledger.close()
        return hot, seen

    hot, seen = asyncio.run(go())
    assert hot == "off"
    assert len(seen) >= 6
    assert set(seen) == {"on"}


@pytest.mark.process
def test_g4_a_draw_is_on_the_disk_with_the_commit_that_follows_it(server):
    """The server crashes right after the commit, and forgets whatever it had not written."""

    async def go():
        ledger, store = FleetLedger(server.dsn), PostgresStore(server.dsn)
        await ledger.set_budget(Quota(tokens=10_000))
        kept = []
        for round_ in range(3):
            session = f"disk {round_}"
            query = "SELECT glidepath_admit($1, 'small', NULL, 'go', 'digest', NULL)"
            await fetch(server.dsn, query, session)
            lease = await store.claim(session, this_owner())
            await ledger.open(session, lease.token, "here")
            await ledger.draw(session, lease.token, asked=Amount(700), **NOTHING)
            await store.append(lease, link(b"", 1, 1, 1.0, [("reserved", 700)]))
            await asyncio.to_thread(server.restart, "immediate")
            await store.release(lease)
            ((held,),) = await fetch(server.dsn, "SELECT tokens FROM glidepath_fleet_runs WHERE session = $1", session)
            kept.append((held, budget(await ledger.accounts()).tokens))
        await ledger.close()
        return kept

    assert asyncio.run(go()) == [(700, 700), (700, 1400), (700, 2100)]


@pytest.mark.process
@pytest.mark.parametrize("durability", ["sync", "full"])
def test_g4_a_server_that_is_killed_between_a_draw_and_its_call_remembers_the_draw(server, durability):
    """Whoever calls the model has drawn before: what may be spent now is in the ledger of the new server, too."""
    seen = []

    class Killer(crew.Pilot):
        async def stream(self, request):
            if len(seen) < 2:
                await asyncio.to_thread(server.restart, "immediate")  # as good as kill -9: nothing is written any more
                query = "SELECT base_tokens + tokens FROM glidepath_fleet_runs WHERE session = $1"
                ((held,),) = await fetch(server.dsn, query, f"killed {durability}")
                seen.append(held)
            async for delta in super().stream(request):
                yield delta

    async def go():
        limits = Limits(max_iterations=20)
        one = await worker(
            server.dsn, LoopConfig(model=Killer(), tools=[crew.send], limits=limits, durability=durability)
        )
        await one.ledger.set_budget(Quota(tokens=200_000))
        flown = await within(90, fly(one, f"killed {durability}"))
        await one.ledger.set_budget(None)
        await leave(one)
        return flown

    ((outcome, result),) = asyncio.run(go())
    assert (outcome, result.outcome) == ("done", LoopOutcome.DONE)
    assert len(seen) == 2
    assert seen[0] >= crew.Pilot.max_output_tokens
    assert seen[1] >= crew.Pilot.max_output_tokens + crew.PER_CALL.total


@pytest.mark.process
def test_the_journal_waits_for_the_disk_whatever_the_server_does_by_default(server):
    async def go():
        found = []
        for default in ("off", "local"):
            store = PostgresStore(f"{server.dsn}&options=-csynchronous_commit%3D{default}")
            found.append(await store._run_with_retry(lambda connection: connection.fetchval("SHOW synchronous_commit")))
            await store.close()
        return found

    assert asyncio.run(go()) == ["on", "local"]


@pytest.mark.process
def test_g4_runs_under_a_budget_ride_through_crashes_of_the_database(server):
    async def go():
        one, two = await worker(server.dsn, slow), await worker(server.dsn, slow)
        await one.ledger.set_budget(Quota(tokens=200_000))
        flights = [asyncio.create_task(fly((one, two)[number % 2], f"ride {number}")) for number in range(8)]
        for mode in ("immediate", "fast"):
            await asyncio.sleep(0.4)  # real time: let them fly
            await asyncio.to_thread(server.restart, mode)
        flown = await within(60, *flights)
        query = "SELECT sum(base_tokens + tokens) FROM glidepath_fleet_runs WHERE session LIKE 'ride %'"
        ((held,),) = await fetch(server.dsn, query)
        await leave(one, two)
        return flown, held

    flown, held = asyncio.run(go())
    assert {outcome for outcome, _ in flown} == {"done"}
    assert [result.unknown_effects for _, result in flown] == [()] * 8
    assert {result.outcome for _, result in flown} == {LoopOutcome.DONE}
    assert sum(result.usage.total for _, result in flown) == held


def slow():
    return crew.make(model=crew.Pilot(pause=0.15))


# --- the bell -----------------------------------------------------------------------------------------------------


def test_who_waits_for_a_budget_is_told_and_does_not_look(address, monkeypatch):
    monkeypatch.setattr("glidepath.apps.fleet.budget.LOOK", 60)

    async def go():
        one, two = await worker(address), await worker(address)
        await one.ledger.set_budget(Quota(tokens=1000))
        holder, waiter = await seat(one, "bell holder"), await seat(two, "bell waiter")
        await holder.budget.draw(holder, Amount(800), Amount(800))
        waiting = asyncio.create_task(waiter.budget.draw(waiter, Amount(500), Amount(500)))
        await asyncio.sleep(1)  # real time: it would look twenty times
        looked, ended = waiter.budget.draws, waiting.done()
        await holder.budget.settle("done")
        await within(10, waiting)
        await waiter.budget.settle("done")
        left = await fetch(address, "SELECT * FROM glidepath_waiting")
        await one.ledger.set_budget(None)
        await leave(one, two)
        return looked, ended, waiter.budget.refused, left

    looked, ended, refused, left = asyncio.run(go())
    assert not ended
    assert looked == 2
    assert refused is None
    assert left == []


def test_of_many_who_wait_each_gets_its_turn(address, monkeypatch):
    monkeypatch.setattr("glidepath.apps.fleet.budget.LOOK", 60)

    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=1000))
        runs = [await seat(one, f"turn {number}") for number in range(12)]

        async def whole(run):
            await run.budget.draw(run, Amount(900), Amount(900))
            await asyncio.sleep(0.01)
            await run.budget.settle("done")
            return run.budget.refused

        refused = await within(30, *[whole(run) for run in runs])
        draws = sum(run.budget.draws for run in runs)
        await one.ledger.set_budget(None)
        await leave(one)
        return refused, draws

    refused, draws = asyncio.run(go())
    assert refused == [None] * 12
    assert draws < 100  # not one for each who waits whenever something comes back: that would be far more


def test_a_larger_budget_is_heard_of_at_once(address, monkeypatch):
    monkeypatch.setattr("glidepath.apps.fleet.budget.LOOK", 60)

    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=1000))
        holder, waiter = await seat(one, "larger holder"), await seat(one, "larger waiter")
        await holder.budget.draw(holder, Amount(800), Amount(800))
        waiting = asyncio.create_task(waiter.budget.draw(waiter, Amount(500), Amount(500)))
        await asyncio.sleep(0.3)
        await one.ledger.set_budget(Quota(tokens=5000))
        await within(10, waiting)
        for run in (holder, waiter):
            await run.budget.settle("done")
        await one.ledger.set_budget(None)
        await leave(one)
        return waiter.budget.refused

    assert asyncio.run(go()) is None


def test_without_a_bell_a_run_looks_by_itself(address, monkeypatch):
    monkeypatch.setattr("glidepath.apps.fleet.budget.LOOK", 0.1)

    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=1000))
        holder, waiter = await seat(one, "deaf holder"), await seat(one, "deaf waiter")
        one.ledger.bell._on_freed = lambda *_: None
        await holder.budget.draw(holder, Amount(800), Amount(800))
        waiting = asyncio.create_task(waiter.budget.draw(waiter, Amount(500), Amount(500)))
        await asyncio.sleep(0.2)
        await holder.budget.settle("done")
        await within(10, waiting)
        await waiter.budget.settle("done")
        await one.ledger.set_budget(None)
        await leave(one)

    asyncio.run(go())


# --- older tables, idle workers -----------------------------------------------------------------------------------


def test_the_functions_of_an_older_release_are_replaced_and_its_rows_kept(address):
    async def go():
        one = await worker(address)
        assert await admit(one, "of before") == ""
        await leave(one)
        await fetch(address, "DROP TABLE glidepath_fleet_parts, glidepath_waiting, glidepath_switches")
        await fetch(address, "DROP TRIGGER glidepath_session_gone ON glidepath_sessions")
        await fetch(address, "DROP FUNCTION glidepath_tell, glidepath_session_gone, glidepath_forget, glidepath_held")
        ledger = FleetLedger(address)
        look = await ledger.read_state("of before")
        ((parts,),) = await fetch(address, "SELECT version FROM glidepath_fleet_parts")
        await ledger.settle("of before", None, Amount(), "done", None)
        await ledger.close()
        return look, parts

    look, parts = asyncio.run(go())
    assert look is not None
    assert parts == PARTS


@pytest.mark.process
def test_an_idle_worker_costs_under_five_round_trips_a_second(tmp_path):
    """And a run that is submitted is taken at once all the same."""

    async def go():
        async with Tap(fresh_database(), tmp_path).open() as tap:
            with Crew(tap.address, tmp_path, lease=10) as made:
                made.start(1)
                await until(made.ready)
                await asyncio.sleep(2.5)  # real time: its threads find their pace
                tap.take()
                await asyncio.sleep(4)
                trips = tap.take()
                done = await asyncio.to_thread(made.command, "submit", "stepper", "go", "--wait")
                return trips / 4, done.stdout

    trips, said = asyncio.run(go())
    assert said == "all steps are done\n"
    assert trips < 5
