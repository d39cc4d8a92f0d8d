"""Runs that DBOS gave to somebody who does not fly them: they come back into their queue."""

import asyncio
from contextlib import asynccontextmanager

from glidepath.engines.dbos import Fleet, Worker

from . import crew
from .kit import fetch, fresh_database, until
from .test_stalls import Gate


@asynccontextmanager
async def at_work(address, agent, **options):
    one = Worker(address, agents={"small": agent}, poll=0.1, drain=0, **options)
    serving = asyncio.create_task(one.serve())
    try:
        await asyncio.wait_for(one.started(), 30)
        yield one
    finally:
        one.stop()
        await asyncio.wait_for(serving, 30)


async def give_to(address, session, worker):
    await fetch(
        address,
        "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = $2 WHERE workflow_uuid = $1",
        session,
        worker,
    )


async def status(address, session):
    query = "SELECT status FROM dbos.workflow_status WHERE workflow_uuid = $1"
    return (await fetch(address, query, session))[0][0]


def test_what_a_worker_takes_after_it_was_given_up_is_not_lost():
    """It woke up, took a run, and only then heard that it had been given up."""

    async def go():
        address, gate = fresh_database(), Gate()
        async with (
            at_work(address, lambda: crew.make(model=gate, tools=[]), lease=2) as one,
            Fleet(address) as fleet,
        ):
            first = one.id
            session = await fleet.submit("small", "go")
            await until(lambda: len(gate.calls) == 1)
            await fetch(address, "DELETE FROM glidepath_workers")  # the run was not there when others put its runs back
            await until(lambda: one.id != first)
            await until(lambda: len(gate.calls) == 2)
            gate.calls[1].set()
            return await fleet.wait(session, 30)

    assert asyncio.run(go()) == "done"


def test_a_run_that_nobody_flies_is_found():
    async def go():
        address = fresh_database()
        async with Fleet(address) as fleet:
            async with at_work(address, crew.small):
                pass
            session = await fleet.submit("small", "go")  # no worker is up
            await give_to(address, session, "one that is no more")
            async with at_work(address, crew.small, lease=0.8) as one:
                assert await fleet.wait(session, 20) == "done"

                async def recorded():
                    return await status(address, session) == "SUCCESS"

                await until(recorded)
                await give_to(address, session, one.id)  # and DBOS never started it
                await until(recorded)
                return one.id, await fetch(address, "SELECT id FROM glidepath_workers")

    mine, workers = asyncio.run(go())
    assert [row["id"] for row in workers] == [mine]
