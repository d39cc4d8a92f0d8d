"""A segment store that many processes use, clean up and die in: what is in it is whole, and so is a new index."""

import asyncio
import contextlib
import os
import random
import signal
import time

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.errors import StoreError
from glidepath.sessions import SegmentStore, own_segment, segment_desk, segment_index, segments
from glidepath.sessions.chain import link, verified
from glidepath.sessions.owner import this_owner
from glidepath.testing import ScriptedModel, call, say

from .test_segment_damage import lose_index
from .test_segment_owners import in_a_child, status


def everything(path):
    """Every session, verified."""

    async def look():
        store = SegmentStore(path)
        found = {}
        for listed in await store.entries():
            entry, commits = await store.load(listed.session_id)
            list(verified(commits, head=entry.head, hash_=entry.hash))
            found[entry.session_id] = (entry.head, entry.hash, dict(entry.summary))
        await store.close()
        return found

    return asyncio.run(look())


def check(path, removed=()):
    """An index that is made anew has what the old one had.

    A session that was claimed by a process which then died has no frame yet, and one that was being removed is not
    gone for good before its removal is written.
    """
    before = everything(path)
    lose_index(path)
    after = {name: found for name, found in everything(path).items() if name in before or name not in removed}
    assert after == {name: found for name, found in before.items() if found[0] or name in after}
    return before


def live(path, seed, seconds):
    """Claim, write, read, remove, close, in small segments that are cleaned up all the time."""
    segment_desk.SEGMENT, segment_desk.FLUSH, segments._TIDY = 5000, 1500, 5
    chance = random.Random(seed)

    async def step(store):
        name, what = f"s{chance.randrange(12)}", chance.random()
        if what < 0.5:
            lease = await store.claim(name, this_owner())
            before = lease.hash
            for number in range(lease.head + 1, lease.head + 1 + chance.randrange(8)):
                text = "x" * chance.randrange(300)
                commit = link(before, number, number, 1.0, [("note", {"n": chance.random(), "text": text})])
                store.append(lease, commit, summary={"number": number} if chance.random() < 0.5 else None)
                before = commit.hash
                if chance.random() < 0.1:
                    await asyncio.sleep(chance.random() * 0.02)
            if chance.random() < 0.9:
                await store.release(lease)
        elif what < 0.7:
            entry, commits = await store.load(name)
            list(verified(commits, head=entry.head, hash_=entry.hash))
        elif what < 0.8:
            await store.entries()
        elif what < 0.95:
            await store.remove(name)
        elif what < 0.97:
            await store.flag(name, "x")
        else:
            await store.close()

    async def scene():
        store = SegmentStore(path, lease=chance.choice([0.01, 0.05]))
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
    children = [in_a_child(lambda seed=seed: live(tmp_path / "s", seed, 1.0)) for seed in range(3)]
    assert [status(child) for child in children] == [0] * 3
    check(tmp_path / "s")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("seed", range(10))
def test_a_long_life_with_deaths(tmp_path, seed):
    chance = random.Random(seed)
    for turn in range(4):
        children = [
            in_a_child(lambda one=one, turn=turn: live(tmp_path / "s", 1000 * seed + 10 * turn + one, 5.0))
            for one in range(5)
        ]
        time.sleep(chance.uniform(0.5, 4.0))
        for child in children[:3]:
            os.kill(child, signal.SIGKILL)
        assert [status(child) for child in children] == [-signal.SIGKILL] * 3 + [0] * 2
    check(tmp_path / "s")


# --- a death at every write ---------------------------------------------------------------------------------------


@tool
async def act(n: int) -> str:
    return f"done {n}"


def agent_on(store, *script):
    return Agent(model=ScriptedModel(list(script)), tools=[act], store=store, limits=Limits(max_iterations=20))


class MortalOs:
    """The system, as one module sees it: the n-th write is cut short, or done, and then the process is gone."""

    def __init__(self, left, half):
        self.left, self.half = left, half

    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, fd, data):
        self.left -= 1
        if self.left == 0:
            os.write(fd, data[: len(data) // 2] if self.half else data)
            os.kill(os.getpid(), signal.SIGKILL)
        return os.write(fd, data)


def fly_until(path, number, half):
    def scene():
        own_segment.os = MortalOs(number, half)
        store = SegmentStore(path)
        asyncio.run(agent_on(store, call("act", n=1), call("act", n=2), say("done")).run("go", session="s"))
        asyncio.run(store.close())

    return status(in_a_child(scene))


@pytest.mark.process
@pytest.mark.parametrize("half", [True, False], ids=["half written", "written"])
def test_g13_killed_at_every_write_to_a_segment(tmp_path, half):
    deaths = 0
    for number in range(1, 20):
        path = tmp_path / str(number)
        asyncio.run(agent_on(SegmentStore(path), say("hello")).run("go", session="before"))
        died = fly_until(path, number, half)
        deaths += died == -signal.SIGKILL
        found = check(path)
        assert found["before"][0] == 3
        store = SegmentStore(path)
        with contextlib.suppress(Exception):  # there may be nothing to resume yet
            asyncio.run(agent_on(store, call("act", n=2), say("done")).resume("s"))
        result = asyncio.run(agent_on(store, say("again")).run("go", session="s"))
        assert result.outcome is LoopOutcome.DONE, (number, result.cause)
        asyncio.run(store.close())
        check(path)
        if died == 0:
            break
    assert deaths >= 8


class MortalIndex(segment_index.SegmentIndex):
    """An index whose process dies before or after its n-th transaction is there."""

    left, before = 0, True

    @contextlib.contextmanager
    def writing(self):
        MortalIndex.left -= 1
        try:
            with super().writing():
                yield
                if MortalIndex.left == 0 and self.before:
                    os.kill(os.getpid(), signal.SIGKILL)
        finally:
            if MortalIndex.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.process
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_g13_killed_at_every_transaction_of_the_index(tmp_path, before):
    from glidepath.sessions import segment_folder

    deaths = 0
    for number in range(1, 20):
        path = tmp_path / str(number)
        asyncio.run(agent_on(SegmentStore(path), say("hello")).run("go", session="before"))

        def scene(path=path, number=number):
            MortalIndex.left, MortalIndex.before = number, before
            segment_folder.SegmentIndex = MortalIndex
            store = SegmentStore(path)
            asyncio.run(agent_on(store, call("act", n=1), say("done")).run("go", session="s"))
            asyncio.run(agent_on(store, call("act", n=1), say("done")).run("go", session="t"))
            asyncio.run(store.remove("t"))
            asyncio.run(store.close())

        died = status(in_a_child(scene))
        deaths += died == -signal.SIGKILL
        found = check(path, removed=["t"])
        assert found["before"][0] == 3
        store = SegmentStore(path)
        result = asyncio.run(agent_on(store, say("again")).run("go", session="s"))
        assert result.outcome is LoopOutcome.DONE, (number, result.cause)
        asyncio.run(store.close())
        check(path)
        if died == 0:
            break
    assert deaths >= 4
