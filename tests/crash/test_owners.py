"""Who may write in a store that is a file, among processes, threads, loops and forks."""

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from glidepath import Agent, Limits, LoopOutcome
from glidepath.errors import StoreError
from glidepath.sessions import SqliteStore, is_alive, is_of_this_process, link, read_journal, this_owner, verify_commits
from glidepath.testing import ScriptedModel, say


def following(lease, number=None, before=None, text=""):
    """The commit after the lease's head."""
    number = lease.head + 1 if number is None else number
    return link(lease.hash if before is None else before, number, number, 1.0, [("note", {"text": text})])


def in_a_child(scene):
    """Run this in a forked process; its exit status is 0 when nothing was raised."""
    pid = os.fork()
    if pid:
        return pid
    try:
        scene()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(3)
    os._exit(0)


def status(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_fork_and_a_fork_of_it_have_names_of_their_own_and_know_whose_theirs_are():
    name = this_owner()

    def scene(depth=2):
        mine = this_owner()
        assert mine.split("|")[1] == str(os.getpid())
        assert is_of_this_process(mine)
        assert not is_of_this_process(name)
        assert is_alive(name)
        if depth:
            assert status(in_a_child(lambda: scene(depth - 1))) == 0

    assert status(in_a_child(scene)) == 0
    assert is_of_this_process(name)


# --- fences -------------------------------------------------------------------------------------------------------


def test_what_an_owner_was_told_is_written_is_what_the_next_one_finds(tmp_path):
    """One that is replaced between two writes is fenced at the second, and its successor has the first."""

    async def look():
        first, second = SqliteStore(tmp_path / "s", lease=0.01), SqliteStore(tmp_path / "s")
        lease = await first.claim("s", this_owner())
        kept = following(lease)
        first.append(lease, kept)
        await asyncio.sleep(0.02)
        taken = await second.claim("s", this_owner())
        assert (taken.head, taken.hash) == (1, kept.hash)
        with pytest.raises(StoreError) as caught:
            first.append(lease, following(lease, 2, kept.hash, "late"))
        assert caught.value.kind == "fenced"
        second.append(taken, following(taken, text="mine"))
        entry, commits = await second.load("s")
        assert [commit.number for commit in commits] == [1, 2]
        assert b"mine" in commits[1].body
        assert (await first.load("s"))[1] == commits
        list(verify_commits(commits, head=entry.head, hash_=entry.hash))
        await first.close()
        await second.close()

    asyncio.run(look())


def test_a_fence_for_one_session_leaves_the_others_of_its_owner_alone(tmp_path):
    async def look():
        first, second = SqliteStore(tmp_path / "s", lease=0.01), SqliteStore(tmp_path / "s")
        lost, kept = await first.claim("lost", this_owner()), await first.claim("kept", this_owner())
        await asyncio.sleep(0.02)
        await second.claim("lost", this_owner())
        one = following(kept)
        await first.append(kept, one)
        await first.append(kept, following(kept, 2, one.hash))
        with pytest.raises(StoreError):
            await first.append(lost, following(lost))
        assert len((await second.load("kept"))[1]) == 2
        await first.close()

    asyncio.run(look())


def hammer(path, seed, log, seconds):
    """Claim, write, stall, lose, again and again; note what was reported as written."""

    async def scene():
        chance = random.Random(seed)
        store = SqliteStore(path, lease=chance.choice([0.002, 0.005, 0.02]))
        until = time.monotonic() + seconds
        with Path(log).open("w") as notes:  # noqa: ASYNC230 - nobody else is on this loop
            while time.monotonic() < until:
                name = f"s{chance.randrange(3)}"
                try:
                    lease = await store.claim(name, this_owner())
                    before = lease.hash
                    for number in range(lease.head + 1, lease.head + 1 + chance.randrange(12)):
                        commit = following(lease, number, before, str(chance.random()))
                        later = store.append(lease, commit, durability=chance.choice(["sync", "sync", "full"]))
                        if later is not None:
                            await later
                        before = commit.hash
                        notes.write(f"{name} {number} {commit.hash.hex()}\n")
                        if chance.random() < 0.3:
                            await asyncio.sleep(chance.random() * 0.01)
                    if chance.random() < 0.8:
                        await store.release(lease)
                except StoreError as error:
                    if error.kind not in ("busy", "fenced"):
                        raise
                    await asyncio.sleep(chance.random() * 0.003)
                if chance.random() < 0.1:
                    store = SqliteStore(path, lease=0.005)

    asyncio.run(scene())


def check_hammered(path, logs):
    have = set()

    async def collect():
        store = SqliteStore(path)
        for listed in await store.entries():
            entry, commits = await store.load(listed.session_id)
            list(verify_commits(commits, head=entry.head, hash_=entry.hash))
            have.update((entry.session_id, str(commit.number), commit.hash.hex()) for commit in commits)
        await store.close()

    asyncio.run(collect())
    told = {tuple(line.split()) for log in logs for line in Path(log).read_text().splitlines()}
    assert told
    assert told <= have, "something was reported as written and is not there"


def fight(tmp_path, processes, seconds):
    path, logs = tmp_path / "s", [tmp_path / f"log{number}" for number in range(processes)]
    children = [
        in_a_child(lambda seed=seed, log=log: hammer(path, seed, log, seconds)) for seed, log in enumerate(logs)
    ]
    assert [status(child) for child in children] == [0] * processes
    check_hammered(path, logs)


@pytest.mark.process
@pytest.mark.parametrize("processes", [2, 5])
def test_g13_owners_that_take_over_from_each_other_lose_nothing_they_wrote(tmp_path, processes):
    fight(tmp_path, processes, 1.0)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("processes", [2, 4, 8])
def test_g13_a_long_fight_over_three_sessions(tmp_path, processes):
    fight(tmp_path, processes, 20.0)


@pytest.mark.process
def test_g13_an_owner_that_was_stopped_and_wakes_up_cannot_write(tmp_path):
    path, ready = tmp_path / "s", tmp_path / "ready"

    def sleeper():
        async def scene():
            store = SqliteStore(path, lease=0.3)
            lease = await store.claim("s", this_owner())
            before, number = lease.hash, 0
            try:
                while True:
                    number += 1
                    commit = following(lease, number, before, "owner")
                    store.append(lease, commit)
                    before = commit.hash
                    ready.write_text(str(number))
                    await asyncio.sleep(0.001)
            except StoreError as error:
                (tmp_path / "fenced").write_text(f"{error.kind} {number}")

        asyncio.run(scene())

    child = in_a_child(sleeper)
    wait_for(lambda: written(ready) > 20)
    os.kill(child, signal.SIGSTOP)

    async def take():
        store = SqliteStore(path)
        lease = None
        while lease is None:
            with contextlib.suppress(StoreError):  # busy, until its lease is over
                lease = await store.claim("s", this_owner())
            await asyncio.sleep(0.05)
        head = lease.head
        store.append(lease, following(lease, text="thief"))
        os.kill(child, signal.SIGCONT)
        assert status(child) == 0
        kind, number = (tmp_path / "fenced").read_text().split()
        assert (kind, int(number) >= head) == ("fenced", True)
        journal, commits = await store.load("s")
        list(verify_commits(commits, head=journal.head, hash_=journal.hash))
        assert [b"thief" in commit.body for commit in commits] == [False] * head + [True]
        await store.close()

    asyncio.run(take())


def written(ready):
    """The number in the file, read once: the writer empties the file before it writes the next number."""
    return int((ready.read_text() if ready.exists() else "") or 0)


def wait_for(what, seconds=30.0):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.005)


# --- forks, threads, loops ----------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_store_works_on_both_sides_of_a_fork_and_a_lease_stays_with_its_process(tmp_path):
    store = SqliteStore(tmp_path / "s")
    lease = asyncio.run(store.claim("parent", this_owner()))

    def child():
        with pytest.raises(StoreError) as caught:
            store.append(lease, following(lease))
        assert caught.value.kind == "fenced"
        asyncio.run(store.release(lease))  # that is none of its business
        agent = Agent(model=ScriptedModel([say("hello")]), store=store, limits=Limits(max_iterations=2))
        assert asyncio.run(agent.run("go", session="child")).outcome is LoopOutcome.DONE
        asyncio.run(store.close())

    assert status(in_a_child(child)) == 0
    store.append(lease, following(lease))
    asyncio.run(store.release(lease))
    assert {entry.session_id: entry.head for entry in asyncio.run(store.entries())} == {"parent": 1, "child": 3}
    asyncio.run(store.close())


def test_threads_with_loops_of_their_own_share_a_store(tmp_path):
    store = SqliteStore(tmp_path / "s")
    failed = []

    def fly(number):
        async def scene():
            for turn in range(5):
                lease = await store.claim(f"s{number}/{turn}", this_owner())
                before = b""
                for place in range(1, 21):
                    commit = following(lease, place, before)
                    later = store.append(lease, commit, durability="full" if place % 7 == 0 else "sync")
                    if later is not None:
                        await later
                    before = commit.hash
                await store.beat([lease], renew=True)
                await store.release(lease)

        try:
            asyncio.run(scene())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=fly, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []

    async def look():
        entries = await store.entries()
        assert len(entries) == 30
        for entry in entries:
            found, commits = await store.load(entry.session_id)
            assert len(list(verify_commits(commits, head=found.head, hash_=found.hash))) == 20
            assert found.owner is None
        await store.close()

    asyncio.run(look())
    assert not [thread for thread in threading.enumerate() if thread.name == "glidepath-store"]


def test_a_store_keeps_nothing_alive_after_its_loop(tmp_path):
    store = SqliteStore(tmp_path / "s")
    for number in range(3):
        agent = Agent(model=ScriptedModel([say("x")]), store=store, durability="full", limits=Limits(max_iterations=2))
        assert agent.run_sync("go", session=f"s{number}").outcome is LoopOutcome.DONE
        assert "glidepath-store" not in {thread.name for thread in threading.enumerate()}
    assert len(asyncio.run(read_journal(store, "s2")).commits) == 3
    asyncio.run(store.close())


def test_a_claim_that_nobody_waits_for_any_more_is_given_back(tmp_path):
    async def look():
        store = SqliteStore(tmp_path / "s")
        for delay in (0, 1, 2):
            task = asyncio.create_task(store.claim(f"s{delay}", this_owner()))
            for _ in range(delay):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            lease = await store.claim(f"s{delay}", this_owner())  # nobody holds it
            await store.release(lease)
        await store.close()

    asyncio.run(look())


# --- many at a new file-- -----------------------------------------------------------------------------------------


@pytest.mark.process
def test_processes_that_open_a_new_folder_together_all_succeed(tmp_path):
    for turn in range(5):
        path, start = tmp_path / f"s{turn}", time.time() + 0.1

        def fly(path=path, start=start):
            time.sleep(max(0.0, start - time.time()))
            agent = Agent(model=ScriptedModel([say("x")]), store=SqliteStore(path), limits=Limits(max_iterations=2))
            result = agent.run_sync("go", session=f"s{os.getpid()}")
            assert result.outcome is LoopOutcome.DONE, result.cause

        assert [status(child) for child in [in_a_child(fly) for _ in range(6)]] == [0] * 6
        assert len(asyncio.run(SqliteStore(path).entries())) == 6
