"""`durability="full"`: what a run was told is written is on the disk, which is asked once for all who wait."""

import asyncio

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.sessions import MemoryStore, SqliteStore, group_commit, send, this_owner
from glidepath.testing import ScriptedModel, call, say

from .test_owners import following


@pytest.fixture
def transactions(monkeypatch):
    """How many pieces of work each transaction had, and what SQLite was told about the disk: 2 is FULL."""
    seen, run = [], group_commit.run_group

    def counted(connection, jobs, file):
        seen.append((len(jobs), connection.execute("PRAGMA synchronous").fetchone()[0]))
        return run(connection, jobs, file)

    monkeypatch.setattr(group_commit, "run_group", counted)
    return seen


def test_all_who_wait_for_the_disk_wait_for_one_sync(tmp_path, transactions):
    async def go():
        store = SqliteStore(tmp_path / "s.db")
        leases = await asyncio.gather(*[store.claim(f"s{number}", this_owner()) for number in range(20)])
        transactions.clear()
        await asyncio.gather(*[store.append(lease, following(lease), durability="full") for lease in leases])
        assert transactions == [(20, 2)]
        for lease in leases:
            await store.release(lease)
        await store.close()

    asyncio.run(go())


def test_every_commit_of_a_run_with_full_is_synced(tmp_path, transactions):
    @tool
    async def act(n: int) -> str:
        return "x"

    async def go():
        store = SqliteStore(tmp_path / "s.db")
        agent = Agent(
            model=ScriptedModel([call("act", n=1), say("done")]),
            tools=[act],
            store=store,
            durability="full",
            limits=Limits(max_iterations=9),
        )
        assert (await agent.run("go", session="s")).outcome is LoopOutcome.DONE
        head = (await store.load("s"))[0].head
        await store.close()
        return head

    head = asyncio.run(go())
    assert transactions.count((1, 2)) == head


def test_a_message_that_was_posted_is_on_the_disk(tmp_path, transactions):
    async def go():
        store = SqliteStore(tmp_path / "s.db")
        lease = await store.claim("s", this_owner())
        transactions.clear()
        await send(store, "s", "turn left")
        assert (1, 2) in transactions
        await store.release(lease)
        await store.close()

    asyncio.run(go())


@pytest.mark.parametrize("durability", ["async", "exit", "fsync"])
def test_there_are_two_durabilities(durability):
    with pytest.raises(ConfigurationError, match=r"durability.*sync.*full"):
        Agent(model=ScriptedModel([say("x")]), store=MemoryStore(), durability=durability, limits=Limits())
