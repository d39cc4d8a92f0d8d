"""A run whose journal a later release has written is left to workers that can read it."""

import asyncio

import pytest

from glidepath.apps.fleet import WorkerFlight
from glidepath.sessions import SCHEMA, Opened, link

from .kit import fetch, fresh_database
from .test_ledger import admit, leave, worker


@pytest.fixture(scope="module")
def address():
    return fresh_database()


def test_a_worker_leaves_what_it_cannot_read_to_others(address):
    async def go():
        one = await worker(address)
        await admit(one, "later")
        lease = await one.store.claim("later", "a later release")
        written = link(b"", 1, 1, 1.0, [("opened", Opened(schema=SCHEMA + 1, session_id="later"))])
        await one.store.append(lease, written)
        await one.store.release(lease)
        for _ in range(3):
            with pytest.raises(asyncio.CancelledError, match="later release"):
                await WorkerFlight(one, "later", "small", "go").run_to_end()
        rows = await fetch(address, "SELECT taken, outcome FROM glidepath_fleet_runs WHERE session = 'later'")
        await leave(one)
        return rows

    [(taken, outcome)] = asyncio.run(go())
    assert (taken, outcome) == (0, None)  # nobody has tried it, and it has not failed
