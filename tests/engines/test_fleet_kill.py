"""A kill switch is stored: every worker and every server looks before a run starts, until a person releases it."""

import asyncio

import pytest
from tests.serve.deck import agent as helper, code, controls, serving

from glidepath.apps.fleet import FleetLedger, WorkerFlight
from glidepath.apps.fleet.kill_switches import list_thrown_switches, release, throw
from glidepath.engines.dbos import Fleet, Quota
from glidepath.errors import QuotaError
from glidepath.sessions import PostgresStore

from . import crew
from .kit import Crew, fetch, fresh_database, until
from .test_ledger import admit, leave, worker

UNTIL = "and none can start until the switch is released"


@pytest.fixture(scope="module")
def address():
    return fresh_database()


async def both(fleet):
    return await running(fleet) == ["of acme", "of other"]


async def running(fleet):
    return sorted(run.session for run in (await fleet.status()).runs if run.state == "running")


async def kill(client, active, **more):
    scope = "tenant" if "id" in more else "fleet"
    return await client.post("/api/kill", json={"scope": scope, "active": active, "reason": "unpaid", **more})


async def tenant_is_killed(fleet, client, flown):
    """The tenant's run stops, its next one is refused, and nobody else's notices."""
    for name in ("acme", "other"):
        await fleet.set_tenant(name, day=Quota(runs=100))
        await fleet.submit("sleepy", "go", tenant=name, session=f"of {name}")
    await until(lambda: both(fleet))
    await until(lambda: len(flown()) == 2)  # each is in its first model call
    assert (await kill(client, True, id="acme")).json()["message"] == f"1 run is stopped, {UNTIL}"
    assert await fleet.wait("of acme") == "cancelled"
    assert (await fleet.result("of acme")).cause.reason == "unpaid (by ada)"
    assert [(one["action"], one["who"]) for one in await controls(client, "of acme")] == [("kill", "ada")]
    assert await running(fleet) == ["of other"]
    with pytest.raises(QuotaError, match="kill switch of tenant acme is thrown: unpaid"):
        await fleet.submit("stepper", "go", tenant="acme")
    assert await fleet.wait(await fleet.submit("stepper", "go", tenant="other")) == "done"
    assert code(await kill(client, True, id="acem")) == (404, "unknown_tenant")
    (shown,) = (await client.get("/api/fleet")).json()["kill"]["switches"]
    assert (shown["scope"], shown["id"], shown["who"]) == ("tenant", "acme", "ada")
    assert (await kill(client, False, id="acme")).json()["message"] == "runs can start again"
    assert code(await kill(client, False, id="acme")) == (409, "not_thrown")
    assert await fleet.wait(await fleet.submit("stepper", "go", tenant="acme")) == "done"
    assert len(flown()) == 2 + 2 * (crew.STEPS + 1)


async def fleet_is_killed(fleet, client, flown):
    """What flies stops, and what waits in the queue ends before its first model call."""
    calls = len(flown())
    queued = await fleet.submit_many("sleepy", ["go"] * 3)
    await until(lambda: len(flown()) == calls + 1)  # the worker has room for one of them
    assert (await kill(client, True)).json()["message"] == f"4 runs are stopped, {UNTIL}"
    assert [await fleet.wait(name) for name in ("of other", *queued)] == ["cancelled"] * 4
    with pytest.raises(QuotaError, match="kill switch of the fleet is thrown"):
        await fleet.submit("stepper", "go")
    assert code(await client.post("/api/runs", json={"agent": "helper", "prompt": "x"})) == (409, "killed")
    assert len(flown()) == calls + 1


@pytest.mark.process
def test_a_kill_switch_holds_the_workers_until_a_person_releases_it(tmp_path):
    async def go():
        address = fresh_database()
        agents = ("stepper=crew:stepper", "sleepy=crew:sleepy")
        with Crew(address, tmp_path, concurrency=2, agents=agents) as crew:
            crew.start(1)
            async with Fleet(address) as fleet:
                await until(crew.ready)
                async with serving(helper(), store=PostgresStore(address)) as client:
                    await tenant_is_killed(fleet, client, lambda: crew.lines("call"))
                    await fleet_is_killed(fleet, client, lambda: crew.lines("call"))
                async with serving(helper(), store=PostgresStore(address)) as client:  # a server that has restarted
                    assert (await client.get("/api/fleet")).json()["kill"]["active"] is True
                    shown = await asyncio.to_thread(crew.command, "fleet", "status")
                    assert "kill switch of the fleet: unpaid (by ada)" in shown.stdout
                    assert (await kill(client, False)).json()["message"] == "runs can start again"
                    assert await fleet.wait(await fleet.submit("stepper", "go")) == "done"
        query = "SELECT scope, name, who, released_by FROM glidepath_switches ORDER BY id"
        return [tuple(row) for row in await fetch(address, query)]

    rows = asyncio.run(go())
    assert rows == [("tenant", "acme", "ada", "ada"), ("fleet", "", "ada", "ada")]


def test_a_run_that_was_queued_as_the_switch_was_thrown_ends_before_its_first_model_call(address):
    """Nobody has asked this run to stop: the worker that takes it looks by itself."""
    calls = []

    class Counting(crew.Pilot):
        async def stream(self, request):
            calls.append(request)
            async for part in super().stream(request):
                yield part

    async def go():
        one = await worker(address, agent=lambda: crew.make(model=Counting(0)))
        await one.ledger.set_tenant("slow", day=Quota(), month=Quota())
        for session, tenant in (("held", "slow"), ("free", None)):
            assert await admit(one, session, tenant) == ""
        await throw(one.ledger, "slow", "stuck", "ada")
        outcomes = [await WorkerFlight(one, name, "small", "go").run_to_end() for name in ("held", "free")]
        result = await Fleet(address, ledger=one.ledger).result("held")
        await release(one.ledger, "slow", "mended", "ada")
        assert await admit(one, "later", "slow") == ""
        outcomes.append(await WorkerFlight(one, "later", "small", "go").run_to_end())
        await leave(one)
        return outcomes, result

    outcomes, result = asyncio.run(go())
    assert outcomes == ["cancelled", "done", "done"]
    assert "the kill switch of tenant slow is thrown: stuck" in result.cause.reason
    assert len(calls) == 2


def test_a_switch_that_is_thrown_twice_is_one_switch_and_is_released_once(address):
    async def go():
        ledger = FleetLedger(address)
        await throw(ledger, None, "first", "ada")
        await throw(ledger, None, "second", "bob")
        (one,) = await list_thrown_switches(ledger)
        answers = [await release(ledger, None, "", "bob") for _ in range(2)]
        left = await list_thrown_switches(ledger)
        await ledger.close()
        return one, answers, left

    one, answers, left = asyncio.run(go())
    assert (one.scope, one.reason, one.who) == ("fleet", "first", "ada")
    assert (answers, left) == ([True, False], [])


def test_a_paused_run_does_not_continue_while_its_tenant_is_held(address):
    async def go():
        one = await worker(address, agent=crew.careful)
        fleet = Fleet(address, ledger=one.ledger)
        await one.ledger.set_tenant("shy", day=Quota(), month=Quota())
        assert await admit(one, "asks", "shy") == ""
        assert await WorkerFlight(one, "asks", "small", "go").run_to_end() == "paused"
        await throw(one.ledger, "shy", "no", "ada")
        with pytest.raises(QuotaError, match="kill switch of tenant shy"):
            await fleet.resume("asks")
        async with serving(helper(name="stepper"), store=PostgresStore(address)) as client:
            (call,) = (await client.get("/api/runs/asks")).json()["pending"]
            body = {"id": call["id"], "decision": "approve", "reason": "fine"}
            assert code(await client.post("/api/runs/asks/decide", json=body)) == (409, "killed")
            assert await controls(client, "asks") == []
        await release(one.ledger, "shy", "", "ada")
        outcome = await fleet.outcome("asks")
        await leave(one)
        return outcome

    assert asyncio.run(go()) == "paused"
