"""Workers that stand still at the worst moment: a run has one owner and one outcome, and none is forgotten."""

import asyncio
from collections import Counter

import pytest

from glidepath import deny, tool
from glidepath.apps.fleet import WorkerFlight
from glidepath.engines.dbos import Fleet, Quota
from glidepath.messages import StreamEnd, TextDelta
from glidepath.run import Amount
from glidepath.sessions import PostgresStore

from . import crew
from .kit import fetch, fresh_database, until
from .test_fleet import check_transcript
from .test_ledger import admit, leave, worker


@pytest.fixture(scope="module")
def address():
    return fresh_database()


@pytest.fixture
def effects(tmp_path, monkeypatch):
    path = tmp_path / "effects"
    monkeypatch.setenv("CREW_EFFECTS", str(path))
    return lambda: Counter(line.split()[2] for line in path.read_text().splitlines() if line.startswith("send"))


async def let_the_lease_run_out(address, session):
    await fetch(address, "UPDATE glidepath_sessions SET expires = 0 WHERE id = $1", session)


async def heads(address, session):
    return (await fetch(address, "SELECT head FROM glidepath_sessions WHERE id = $1", session))[0][0]


class Gate:
    """A model that says nothing before it is let through; each call waits for its own turn."""

    name = "gate"
    max_output_tokens = 200

    def __init__(self):
        self.calls = []

    async def stream(self, request):
        mine = asyncio.Event()
        self.calls.append(mine)
        await mine.wait()
        yield TextDelta("through")
        yield StreamEnd("end_turn", crew.PER_CALL)


def test_g13_a_worker_that_stalls_before_it_claims_does_not_fly_the_run_again(address, effects):
    """It has seen that nothing had begun, stands still, and wakes up when another has flown the run to its end."""

    async def go():
        one, two = await worker(address), await worker(address)
        await admit(one, "late")
        claim = one.store.claim

        async def stalled(*arguments, **keywords):
            one.store.claim = claim
            assert await WorkerFlight(two, "late", "small", "go").run_to_end() == "done"
            return await claim(*arguments, **keywords)

        one.store.claim = stalled
        outcome = await WorkerFlight(one, "late", "small", "go").run_to_end()
        result = await Fleet(address, ledger=one.ledger).result("late")
        head = await heads(address, "late")
        await leave(one, two)
        return outcome, result, head

    outcome, result, head = asyncio.run(go())
    assert outcome == "done"
    check_transcript(result)
    assert head == 13
    assert set(effects().values()) == {1}


def test_g13_a_worker_that_stalls_before_it_resumes_does_not_go_on_with_what_has_ended(address):
    """A run that was cut off has ended: only its owner may go on with it, and that one has not asked."""

    async def go():
        one, two = await worker(address), await worker(address)
        await admit(one, "cut")
        flight = WorkerFlight(one, "cut", "small", "go")
        flight.hand_over()
        with pytest.raises(asyncio.CancelledError):
            await flight.run_to_end()
        claim = one.store.claim

        async def stalled(*arguments, **keywords):
            one.store.claim = claim
            await Fleet(address, ledger=one.ledger).stop("cut", "not wanted")
            assert await WorkerFlight(two, "cut", "small", "go").run_to_end() == "cancelled"
            return await claim(*arguments, **keywords)

        one.store.claim = stalled
        outcome = await WorkerFlight(one, "cut", "small", "go").run_to_end()
        result = await Fleet(address, ledger=one.ledger).result("cut")
        await leave(one, two)
        return outcome, result

    outcome, result = asyncio.run(go())
    assert outcome == result.outcome.value == "cancelled"
    assert result.iterations == 0


def test_g13_a_worker_that_wakes_up_in_a_call_says_nothing_about_the_run(address):
    """Its heartbeat finds that the run is another's: there is one outcome, that of the owner."""

    async def go():
        gate = Gate()
        agent = lambda: crew.make(model=gate, tools=[])  # noqa: E731
        one, two = await worker(address, agent), await worker(address, agent)
        await admit(one, "woken")
        first = asyncio.create_task(WorkerFlight(one, "woken", "small", "go").run_to_end())
        await until(lambda: len(gate.calls) == 1)
        await let_the_lease_run_out(address, "woken")
        second = asyncio.create_task(WorkerFlight(two, "woken", "small", "go").run_to_end())
        await until(lambda: len(gate.calls) == 2)
        await asyncio.sleep(1.2)  # real time: the first one's heartbeat is 0.5 s
        between = await one.ledger.outcome("woken")
        assert not first.done()  # it waits: were the other to die, it would go on
        assert not second.done()
        gate.calls[1].set()
        outcomes = await asyncio.wait_for(asyncio.gather(first, second), 20)
        result = await Fleet(address, ledger=one.ledger).result("woken")
        await leave(one, two)
        return between, outcomes, result, len(gate.calls)

    between, outcomes, result, calls = asyncio.run(go())
    assert between == (None, None)
    assert outcomes == ["done", "done"]
    assert (result.text, calls) == ("through", 2)


def test_an_outcome_is_said_once(address):
    async def go():
        one = await worker(address)
        await admit(one, "once")
        first = await one.ledger.settle("once", None, Amount(), "done", None)
        second = await one.ledger.settle("once", None, Amount(), "failed", "too late")
        said = await one.ledger.outcome("once")
        await leave(one)
        return first, second, said

    assert asyncio.run(go()) == (True, False, ("done", None))


def test_a_run_whose_flight_fails_in_a_way_nobody_foresaw_has_an_outcome(address):
    class Broken:
        async def run(self, *_, **__):
            raise RuntimeError("nobody foresaw this")

    async def go():
        one = await worker(address)
        one.agents["small"] = Broken()
        await admit(one, "unforeseen")
        outcome = await asyncio.wait_for(WorkerFlight(one, "unforeseen", "small", "go").run_to_end(), 20)
        said = await one.ledger.outcome("unforeseen")
        await leave(one)
        return outcome, said

    assert asyncio.run(go()) == ("failed", ("failed", "RuntimeError: nobody foresaw this"))


def test_a_run_whose_journal_was_removed_is_not_flown_from_the_start(address, effects):
    async def go():
        one = await worker(address)
        await admit(one, "removed")
        await one.store.remove("removed")
        outcome = await asyncio.wait_for(WorkerFlight(one, "removed", "small", "go").run_to_end(), 20)
        said = await one.ledger.outcome("removed")
        await leave(one)
        return outcome, said

    outcome, (said, why) = asyncio.run(go())
    assert outcome == said == "failed"
    assert "there is no session 'removed'" in why


def test_a_stop_that_is_asked_for_while_a_run_is_taken_up_is_heard(address):
    async def go():
        one = await worker(address)
        await admit(one, "stopped")
        claim = one.store.claim

        async def stopped(*arguments, **keywords):
            await one.store.flag("stopped", "not wanted")
            return await claim(*arguments, **keywords)

        one.store.claim = stopped
        one.agents["small"] = type(one.agents["small"])(
            model=Gate(), store=one.store, limits=crew.Limits(max_iterations=3)
        )
        outcome = await asyncio.wait_for(WorkerFlight(one, "stopped", "small", "go").run_to_end(), 20)
        await leave(one)
        return outcome

    assert asyncio.run(go()) == "cancelled"


def test_a_run_that_paused_and_was_gone_on_with_says_how_it_ended(address):
    """A person goes on with it outside the fleet. Meanwhile, nobody says that it was never flown."""

    async def go():
        asked = tool(crew.send.fn, name="send", requires_approval=True)
        one = await worker(address, lambda: crew.make(tools=[asked]))
        await admit(one, "asks")
        fleet = Fleet(address, ledger=one.ledger)
        paused = await WorkerFlight(one, "asks", "small", "go").run_to_end()
        said = [(await fleet.result("asks")).outcome.value, await fleet.outcome("asks")]
        gate = Gate()
        person = crew.make(model=gate, tools=[asked], store=PostgresStore(address))
        flying = asyncio.create_task(
            person.resume("asks", decisions={"c0": deny("no")}, limits=crew.Limits(max_iterations=9))
        )
        await until(lambda: len(gate.calls) == 1)
        said += [await fleet.result("asks"), await fleet.outcome("asks")]
        gate.calls[0].set()
        await flying
        said += [(await fleet.result("asks")).outcome.value, await fleet.outcome("asks")]
        await leave(one, fleet)
        return paused, said

    assert asyncio.run(go()) == ("paused", ["paused", "paused", None, "paused", "done", "done"])


# --- what the dead hold ---------------------------------------------------------------------------------------------

DRAW = {"spent": Amount(), "landing": Amount(), "flight": Amount(), "least": Amount(1), "spare": Amount()}


async def hold(one, session, tokens, verdict="granted"):
    """A run that has drawn, and whose worker is no more."""
    await admit(one, session)
    await one.ledger.open(session, 1, "dead")
    assert (await one.ledger.draw(session, 1, asked=Amount(tokens), **DRAW)).verdict == verdict
    await fetch(one.ledger.dsn, "UPDATE glidepath_sessions SET updated = 1 WHERE id = $1", session)


def test_a_grant_whose_holder_is_never_flown_again_is_not_waited_for_for_ever(address, monkeypatch):
    """All workers wait for what a dead one's run has, and so nobody has room to go on with that run."""
    monkeypatch.setattr("glidepath.apps.fleet.budget.PATIENCE", 0.3)

    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=4000))
        await hold(one, "held", 3900)
        await admit(one, "waits")
        outcome = await asyncio.wait_for(WorkerFlight(one, "waits", "small", "go").run_to_end(), 20)
        result = await Fleet(address, ledger=one.ledger).result("waits")
        back = await one.ledger.settle("held", 1, Amount(100), "done", None)
        (account,) = await one.ledger.accounts()
        ((firm,),) = await fetch(address, "SELECT firm_tokens FROM glidepath_budgets")
        await one.ledger.set_budget(None)
        await leave(one)
        return outcome, result, back, account.tokens, firm

    outcome, result, back, tokens, firm = asyncio.run(go())
    assert outcome in ("cut_off", "wrapped_up")
    assert result.cause.source == "budget of fleet"
    assert back is True
    assert tokens == firm == 100 + result.usage.total  # it was only put aside: what was not spent went back


def test_what_is_held_by_one_that_flies_is_waited_for(address, monkeypatch):
    monkeypatch.setattr("glidepath.apps.fleet.budget.PATIENCE", 0.1)

    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=20_000))
        await hold(one, "flies", 19_900)
        await fetch(address, "UPDATE glidepath_sessions SET expires = 1e12 WHERE id = 'flies'")
        await admit(one, "patient")
        flying = asyncio.create_task(WorkerFlight(one, "patient", "small", "go").run_to_end())
        await asyncio.sleep(0.8)
        assert not flying.done()
        await one.ledger.settle("flies", 1, Amount(100), "done", None)
        outcome = await asyncio.wait_for(flying, 20)
        await one.ledger.set_budget(None)
        await leave(one)
        return outcome

    assert asyncio.run(go()) == "done"


def test_what_a_failed_run_holds_counts_as_spent_and_is_not_waited_for(address):
    async def go():
        one = await worker(address)
        await one.ledger.set_budget(Quota(tokens=4000))
        await hold(one, "doomed", 3900)
        await one.ledger.fail("doomed", "its journal cannot be read")
        await admit(one, "after")
        outcome = await asyncio.wait_for(WorkerFlight(one, "after", "small", "go").run_to_end(), 20)
        await one.ledger.set_budget(None)
        await leave(one)
        return outcome

    assert asyncio.run(go()) in ("cut_off", "wrapped_up")


def test_a_run_that_fails_while_it_waits_for_a_budget_waits_no_more(address):
    """Its last worker died there; each budget that is given back would ring for it for ever."""

    async def go():
        one = await worker(address)
        fleet = Fleet(address, ledger=one.ledger)
        await one.ledger.set_budget(Quota(tokens=8000))
        await hold(one, "holder", 7900)
        await hold(one, "starved", 5000, verdict="wait")
        before = await fleet.status()
        shorts = [before.short]
        await fetch(address, "UPDATE glidepath_sessions SET expires = 1e12, owner = 'w' WHERE id = 'starved'")
        shorts.append((await fleet.status()).short)
        await one.ledger.fail("starved", "no worker survives it")
        after = await fleet.status()
        shorts.append(after.short)
        assert (after.failed, after.running) == (before.failed + 1, before.running)
        left = await fetch(address, "SELECT * FROM glidepath_waiting")
        await one.ledger.set_budget(None)
        await leave(one)
        return shorts, left

    assert asyncio.run(go()) == ([0, 1, 0], [])


def test_a_rate_that_was_far_too_low_holds_nobody_up_once_it_is_changed(address):
    async def go():
        one = await worker(address)
        await one.ledger.set_rate("slow", requests=1, tokens=None, per=3600)
        for _ in range(3):
            await one.ledger.take_slot("slow", 10)
        await one.ledger.set_rate("slow", requests=600, tokens=None)
        seconds = await one.ledger.take_slot("slow", 10)
        await leave(one)
        return seconds

    assert asyncio.run(go()) <= 0.2
