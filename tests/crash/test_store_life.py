"""A store that many processes use, clean up and die in: what is in it is whole."""

import asyncio
import os
import random
import signal
import sqlite3
import time
from contextlib import closing

import pytest

from glidepath.errors import StoreError
from glidepath.sessions import SqliteStore, link, sqlite_journals, this_owner, verify_commits

from .test_owners import in_a_child, status


def everything(path):
    """Every session, verified."""

    async def look():
        store = SqliteStore(path)
        found = {}
        for listed in await store.entries():
            entry, commits = await store.load(listed.session_id)
            list(verify_commits(commits, head=entry.head, hash_=entry.hash))
            found[entry.session_id] = (entry.head, entry.hash, dict(entry.summary))
        await store.close()
        return found

    return asyncio.run(look())


def check(path):
    """Every session is whole, and where its commits are agrees with what is there."""
    everything(path)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (indexed,) = file.execute("SELECT seq FROM indexed").fetchone()
        placed = set(file.execute("SELECT session, number, seq FROM places"))
        assert placed == set(file.execute("SELECT session, number, seq FROM commits WHERE seq <= ?", (indexed,)))
        orphans = "SELECT count(*) FROM commits WHERE session NOT IN (SELECT key FROM sessions)"
        assert file.execute(orphans).fetchone() == (0,)


def live(path, seed, seconds):
    """Claim, write, read, remove, close; places are noted all the time."""
    sqlite_journals._BATCH = 7
    chance = random.Random(seed)

    async def step(store):
        name, what = f"s{chance.randrange(12)}", chance.random()
        if what < 0.5:
            lease = await store.claim(name, this_owner())
            before = lease.hash
            for number in range(lease.head + 1, lease.head + 1 + chance.randrange(8)):
                text = "x" * chance.randrange(300)
                commit = link(before, number, number, 1.0, [("note", {"n": chance.random(), "text": text})])
                how = chance.choice(["sync", "sync", "sync", "full"])
                later = store.append(
                    lease, commit, summary={"number": number} if chance.random() < 0.5 else None, durability=how
                )
                if later is not None:
                    await later
                before = commit.hash
                if chance.random() < 0.1:
                    await asyncio.sleep(chance.random() * 0.02)
            if chance.random() < 0.9:
                await store.release(lease)
        elif what < 0.7:
            entry, commits = await store.load(name)
            list(verify_commits(commits, head=entry.head, hash_=entry.hash))
        elif what < 0.8:
            await store.entries()
        elif what < 0.95:
            await store.remove(name)
        elif what < 0.97:
            await store.flag(name, "x")
        else:
            await store.close()

    async def scene():
        store = SqliteStore(path, lease=chance.choice([0.01, 0.05]))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                await step(store)
            except StoreError as error:
                if error.kind not in ("busy", "fenced", "missing"):
                    raise
            await asyncio.sleep(0)

    asyncio.run(scene())


@pytest.mark.process
def test_a_store_that_is_used_and_cleaned_up_by_many_is_whole(tmp_path):
    children = [in_a_child(lambda seed=seed: live(tmp_path / "s.db", seed, 1.0)) for seed in range(3)]
    assert [status(child) for child in children] == [0] * 3
    check(tmp_path / "s.db")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("seed", range(10))
def test_a_long_life_with_deaths(tmp_path, seed):
    chance = random.Random(seed)
    for turn in range(4):
        children = [
            in_a_child(lambda one=one, turn=turn: live(tmp_path / "s.db", 1000 * seed + 10 * turn + one, 5.0))
            for one in range(5)
        ]
        time.sleep(chance.uniform(0.5, 4.0))
        for child in children[:3]:
            os.kill(child, signal.SIGKILL)
        assert [status(child) for child in children] == [-signal.SIGKILL] * 3 + [0] * 2
    check(tmp_path / "s.db")
