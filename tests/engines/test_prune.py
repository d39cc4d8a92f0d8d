"""Deleting a fleet's sessions deletes what the fleet and its engine keep of them, and leaves what still waits."""

import asyncio

import asyncpg

from glidepath.engines.dbos import Fleet
from glidepath.sessions import PostgresStore, find_sessions, prune, remove_sessions

from .kit import Crew, fetch, fresh_database, until

TABLES = {
    "glidepath_sessions": "id",
    "glidepath_catalog": "id",
    "glidepath_fleet_runs": "session",
    "dbos.workflow_status": "workflow_uuid",
    "dbos.workflow_output": "workflow_uuid",
    "dbos.workflow_input": "workflow_uuid",
    "dbos.operation_outputs": "workflow_uuid",
}


async def recorded(address, names):
    """Whether the engine has recorded the end of these runs."""
    query = "SELECT 1 FROM dbos.workflow_status WHERE workflow_uuid = ANY($1) AND status IN ('PENDING', 'ENQUEUED')"
    return not await fetch(address, query, names)


async def rows(address, names):
    connection = await asyncpg.connect(address)
    try:
        found = {}
        for table, column in TABLES.items():
            if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table):
                found[table] = await connection.fetchval(
                    f"SELECT count(*) FROM {table} WHERE {column} = ANY($1)", names
                )
        return found
    finally:
        await connection.close()


def test_what_a_fleet_keeps_of_a_session_goes_with_it(tmp_path):
    async def go():
        address = fresh_database()
        with Crew(address, tmp_path) as crew:
            crew.start(1)
            async with Fleet(address) as fleet:
                await until(crew.ready)
                done = [await fleet.submit("stepper", f"task {number}") for number in range(2)]
                for session in done:
                    assert await fleet.wait(session, 30) == "done"
                await until(lambda: recorded(address, done))  # the engine hears of the end a moment after the ledger
                crew.close()
                crew.workers.clear()
                waits = await fleet.submit("stepper", "nobody is there to fly it")
        store = PostgresStore(address)
        (queued,) = (await find_sessions(store, state="queued")).sessions
        assert queued.session_id == waits
        before = await rows(address, done)
        assert before["glidepath_fleet_runs"] == before["dbos.workflow_status"] == 2
        assert await remove_sessions(store, [waits]) == []
        assert sorted(await prune(store, older_than=-60)) == sorted(done)
        assert set((await rows(address, done)).values()) == {0}
        kept = await rows(address, [waits])
        assert (kept["glidepath_fleet_runs"], kept["glidepath_sessions"]) == (1, 1)
        await store.close()

    asyncio.run(go())
