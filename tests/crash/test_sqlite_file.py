"""The SQLite file itself: opened by many at once, taken away, on a disk that was full."""

import asyncio
import os
import shutil
import sqlite3
import threading
import time

import pytest

from glidepath import Agent, AgentState, Budget, Limits, LoopOutcome, tool
from glidepath.errors import StoreError
from glidepath.sessions import SqliteStore, this_owner
from glidepath.spi import Commit
from glidepath.testing import ScriptedModel, call, say

from .test_damage import fly
from .test_owners import in_a_child, status


@pytest.mark.process
def test_processes_that_open_a_new_file_together_all_succeed(tmp_path):
    for turn in range(8):
        path, start = tmp_path / f"s{turn}.db", time.time() + 0.05

        def open_it(path=path, start=start):
            time.sleep(max(0.0, start - time.time()))
            store = SqliteStore(path)
            asyncio.run(store.claim(f"s{os.getpid()}", this_owner()))

        assert [status(child) for child in [in_a_child(open_it) for _ in range(8)]] == [0] * 8


def test_a_wallet_waits_for_whoever_is_making_the_file(tmp_path):
    path = tmp_path / "s.db"
    maker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")
    finished = threading.Timer(0.2, maker.execute, ["COMMIT"])
    finished.start()
    wallet = Budget(Limits(max_tokens=10_000), name="shared", store=SqliteStore(path))
    assert asyncio.run(Agent(model=ScriptedModel([say("done")])).run("go", parent=wallet)).ok
    finished.join()
    maker.close()


def taken_away(path):
    for name in ("", "-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)


def moved(path):
    path.rename(path.with_name("elsewhere.db"))


def replaced(path):
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").replace(path)


@pytest.mark.parametrize("take", [taken_away, moved, replaced], ids=lambda take: take.__name__)
def test_a_file_that_is_taken_away_in_mid_run_is_noticed(tmp_path, take):
    path = tmp_path / "s.db"

    @tool
    async def lose() -> str:
        take(path)
        return "gone"

    async def run():
        store = SqliteStore(path)
        agent = Agent(
            model=ScriptedModel([call("lose"), say("done")]), tools=[lose], store=store, limits=Limits(max_iterations=5)
        )
        result = await agent.run("go", session="s")
        again = await fly(store, "next")  # what is there now is opened, or made
        await store.close()
        return result, again

    result, again = asyncio.run(run())
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "missing")
    assert "removed or replaced" in result.cause.reason
    assert again.outcome is LoopOutcome.DONE


def test_a_beat_notices_that_the_file_is_gone(tmp_path):
    async def run():
        store = SqliteStore(tmp_path / "s.db")
        lease = await store.claim("s", this_owner())
        assert list(await store.beat([lease], renew=False)) == []
        taken_away(tmp_path / "s.db")
        with pytest.raises(StoreError) as caught:
            await store.beat([lease], renew=False)
        assert caught.value.kind == "missing"
        with pytest.raises(StoreError, match="removed or replaced"):
            store.append(lease, Commit(1, b"[]", b"x" * 16))
        with pytest.raises(StoreError, match="removed or replaced"):
            await store.beat([lease], renew=True)

    asyncio.run(run())


def test_a_lease_that_could_not_be_given_back_is_free_for_the_same_process(tmp_path):
    async def run():
        store = SqliteStore(tmp_path / "s.db")
        lease = await store.claim("s", this_owner())
        connection = store._group.connection()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError):
            await store.release(lease)
        connection.execute("PRAGMA query_only = OFF")
        assert pages
        await store.close()
        other = SqliteStore(tmp_path / "s.db")  # the process matters, not the object
        again = await other.claim("s", this_owner())
        assert again.token > lease.token
        with pytest.raises(StoreError) as caught:
            await other.claim("s", this_owner())
        assert caught.value.kind == "busy"
        await other.release(again)
        await other.close()

    asyncio.run(run())


def test_a_log_that_has_grown_is_written_into_the_file_when_the_last_run_ends(tmp_path):
    path = tmp_path / "s.db"

    async def run():
        store = SqliteStore(path)
        lease, other = await store.claim("s", this_owner()), await store.claim("other", this_owner())
        for number in range(1, 200):
            await store.append(lease, Commit(number, b"x" * 2000, b"h" * 16))
        await store.release(lease)
        before = path.stat().st_size
        await store.release(other)
        return before, path.stat().st_size

    before, after = asyncio.run(run())
    assert before < 100_000 < after
