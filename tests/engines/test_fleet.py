"""A fleet: workers are killed, and every run ends once, with nothing done twice and no budget exceeded."""

import asyncio
import random
import signal
import time

import pytest

from glidepath.engines.dbos import Fleet
from glidepath.messages import AssistantMessage

from .crew import PER_CALL, STEPS
from .kit import Crew, fetch, fresh_database, until

pytestmark = pytest.mark.process


async def wait_for_all(fleet, sessions, seconds):
    async def ended():
        query = "SELECT count(*) FROM glidepath_fleet_runs WHERE ended IS NOT NULL"
        return (await fetch(fleet.ledger.dsn, query))[0][0] == len(sessions)

    await until(ended, seconds)


def check_transcript(result):
    """G6: every call has one result, in its order."""
    calls = [call.id for one in result.messages if type(one) is AssistantMessage for call in one.tool_calls]
    assert calls == [f"c{number}" for number in range(STEPS)]
    assert [one.call_id for one in result.messages if one.role == "tool_result"] == calls


async def check_books(address):
    """What the budgets say is what the runs say, and nothing is out any more."""
    (row,) = await fetch(
        address,
        "SELECT (SELECT tokens FROM glidepath_budgets WHERE name = 'fleet') AS budget, "
        "(SELECT firm_tokens FROM glidepath_budgets WHERE name = 'fleet') AS firm, "
        "(SELECT sum(base_tokens + tokens) FROM glidepath_fleet_runs) AS runs",
    )
    assert row["budget"] == row["firm"] == row["runs"]
    return row["budget"]


async def campaign(folder, *, runs, kills, seconds, seed, pause=0.02):
    """Four workers, some of them killed at random: what is left is looked at afterwards."""
    chance = random.Random(seed)
    address = fresh_database()
    most = runs * (STEPS + 1) * 2000
    highest = 0
    with Crew(address, folder, pause=pause, lease=2) as crew:
        crew.start(4)
        async with Fleet(address) as fleet:
            await fleet.set_budget(tokens=most)
            await until(lambda: crew.ready() == 4)
            sessions = [await fleet.submit("stepper", f"Do all the steps of run {number}.") for number in range(runs)]
            for _ in range(kills):
                share = chance.uniform(0.1, 0.6)
                await until(lambda share=share: len(crew.sent()) >= share * runs * STEPS, seconds)
                crew.kill(chance.choice(crew.workers))
                ((tokens,),) = await fetch(address, "SELECT tokens FROM glidepath_budgets WHERE name = 'fleet'")
                highest = max(highest, tokens)
            await wait_for_all(fleet, sessions, seconds)
            unknown = 0
            for session in sessions:
                result = await fleet.result(session)
                assert result.outcome.name in ("DONE", "WRAPPED_UP"), result.cause
                assert result.text == "all steps are done"
                check_transcript(result)
                unknown += len(result.unknown_effects)
        sent = crew.sent()
        assert max(sent.values()) == 1, "a message was sent twice"
        assert runs * STEPS - unknown <= len(sent) <= runs * STEPS
        spent = await check_books(address)
        assert runs * (STEPS + 1) * PER_CALL.total <= spent <= most
        assert highest <= most
        return unknown


def test_g13_g6_g4_forty_runs_and_a_killed_worker(tmp_path):
    asyncio.run(campaign(tmp_path, runs=40, kills=1, seconds=60, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_g13_g6_g4_two_hundred_runs_and_two_killed_workers(tmp_path, seed):
    began = time.monotonic()
    asyncio.run(campaign(tmp_path, runs=200, kills=2, seconds=240, seed=seed))
    assert time.monotonic() - began < 240


def test_g13_a_worker_that_is_killed_in_a_call_leaves_the_run_to_another(tmp_path):
    async def go():
        address = fresh_database()
        with Crew(address, tmp_path, pause=0.15, lease=2) as crew:
            crew.start(1)
            async with Fleet(address) as fleet:
                await until(crew.ready)
                session = await fleet.submit("stepper", "go", user="u-1", metadata={"order": "A-17"})
                await until(lambda: len(crew.sent()) == 3)
                crew.kill(crew.workers[0])  # in the middle of its third call: sent, and the result not written
                crew.start(1)
                assert await fleet.wait(session, 30) == "done"
                result = await fleet.result(session)
        check_transcript(result)
        assert [call.id for call in result.unknown_effects] == ["c2"]
        assert set(crew.sent().values()) == {1}
        assert len({pid for *_, pid in crew.lines("send")}) == 2
        assert [" ".join(line) for line in crew.lines("for")] == ['u-1 {"order": "A-17"}'] * len(crew.sent())

    asyncio.run(go())


def test_two_workers_never_own_one_run(tmp_path):
    """One that stands still for longer than its lease loses its runs, and changes nothing when it wakes up."""

    async def go():
        address = fresh_database()
        with Crew(address, tmp_path, pause=0.1, lease=1) as crew:
            crew.start(1)
            async with Fleet(address) as fleet:

                async def both_at_work():
                    return len(await fleet.workers()) == 2

                await until(crew.ready)
                sessions = [await fleet.submit("stepper", "go") for _ in range(3)]
                await until(lambda: len(crew.sent()) >= 3)
                stalled = crew.workers[0]
                stalled.send_signal(signal.SIGSTOP)
                crew.start(1)
                await wait_for_all(fleet, sessions, 30)
                stalled.send_signal(signal.SIGCONT)
                again = await fleet.submit("stepper", "go")
                await fleet.wait(again, 30)
                await until(lambda: "was silent for too long" in crew.log.read_text())
                await until(both_at_work)  # it noticed, and works again under another name
                heads = await fetch(address, "SELECT head FROM glidepath_sessions ORDER BY id")
                await asyncio.sleep(0.5)  # real time: what it would write, it would write now
                assert heads == await fetch(address, "SELECT head FROM glidepath_sessions ORDER BY id")
                for session in (*sessions, again):
                    check_transcript(await fleet.result(session))

                async def all_recorded():
                    owners = await fetch(address, "SELECT status, count(*) FROM dbos.workflow_status GROUP BY status")
                    return [tuple(row) for row in owners] == [("SUCCESS", 4)]

                await until(all_recorded)  # DBOS is told last
        assert set(crew.sent().values()) == {1}

    asyncio.run(go())


def test_a_worker_that_is_stopped_hands_its_runs_over(tmp_path):
    async def go():
        address = fresh_database()
        with Crew(address, tmp_path, pause=0.5, lease=20) as crew:
            crew.options += ["--drain", "0"]
            crew.start(1)
            async with Fleet(address) as fleet:
                await until(crew.ready)
                session = await fleet.submit("stepper", "go")
                await until(lambda: len(crew.sent()) == 1)
                crew.workers[0].send_signal(signal.SIGTERM)
                assert crew.workers.pop().wait(15) == 143
                assert await fleet.workers() == []
                crew.start(1)
                assert await fleet.wait(session, 30) == "done"  # long before its lease would have been over
                check_transcript(await fleet.result(session))
        assert set(crew.sent().values()) == {1}

    asyncio.run(go())
