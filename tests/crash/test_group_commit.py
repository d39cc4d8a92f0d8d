"""Group commit: what waits and what does not, what is found after a death, and what the file gives back."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from glidepath import Agent, AgentState, Budget, Limits, LoopOutcome, tool
from glidepath.agent import durable
from glidepath.errors import StoreError
from glidepath.sessions import (
    SqliteStore,
    find_sessions,
    group_commit,
    read_journal,
    sqlite_file,
    sqlite_journals,
    this_owner,
    verify_commits,
)
from glidepath.spi import Commit
from glidepath.testing import ScriptedModel, call, no_leftovers, say
from glidepath.values import replace

from .test_damage import act, fly
from .test_owners import following


def agent(store, *turns, **options):
    return Agent(model=ScriptedModel(list(turns)), tools=[act], store=store, limits=Limits(max_iterations=9), **options)


async def add(store, lease, count, *, first=1, text="x"):
    """Commits one after the other; the last one's hash."""
    before = lease.hash
    for number in range(first, first + count):
        commit = following(lease, number, before, text)
        later = store.append(lease, commit)
        if later is not None:
            await later
        before = commit.hash
    return before


# --- groups ---------------------------------------------------------------------------------------------------------


def test_what_is_written_in_one_pass_is_one_transaction(tmp_path, monkeypatch):
    sizes, run = [], group_commit.run_group
    monkeypatch.setattr(group_commit, "run_group", lambda c, jobs, file: sizes.append(len(jobs)) or run(c, jobs, file))

    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        agents = [agent(store, call("act", n=1), say("done")) for _ in range(50)]
        results = await asyncio.gather(*[one.run("go", session=f"s{n}") for n, one in enumerate(agents)])
        assert {result.outcome for result in results} == {LoopOutcome.DONE}
        commits = sum([entry.head for entry in await store.entries()])
        await store.close()
        return commits

    assert asyncio.run(scene()) == 50 * 5
    assert sum(sizes) == 50 * 5 + 2 * 50  # claims and releases, too
    assert len(sizes) <= 12


def test_two_commits_of_one_session_in_one_pass_follow_each_other_or_none_does(tmp_path):
    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        lease, other = await store.claim("s", this_owner()), await store.claim("other", this_owner())
        one = following(lease)
        two = following(lease, 2, one.hash)
        await asyncio.gather(store.append(lease, one), store.append(lease, two))
        lost, behind = Commit(7, b"[]", b"x" * 16), following(lease, 8, b"x" * 16)
        found = await asyncio.gather(
            store.append(lease, lost),
            store.append(lease, behind),
            store.append(other, following(other)),
            return_exceptions=True,
        )
        assert [getattr(error, "kind", None) for error in found] == ["conflict", "conflict", None]
        await store.append(lease, following(lease, 3, two.hash))  # nothing was lost by it
        entry, commits = await store.load("s")
        assert len(list(verify_commits(commits, head=entry.head, hash_=entry.hash))) == 3
        await store.close()

    asyncio.run(scene())


def test_when_half_of_a_piece_of_work_is_written_each_is_done_alone(tmp_path):
    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        lease = await store.claim("s", this_owner())

        def half(connection):
            connection.execute("INSERT INTO meta VALUES('half', 'done')")
            raise StoreError("no further", kind="unavailable")

        def broken(connection):
            connection.execute("INSERT INTO nowhere VALUES(1)")

        found = await asyncio.gather(
            store._group.submit(half), store.flag("s", "enough"), store._group.submit(broken), return_exceptions=True
        )
        assert [getattr(error, "kind", None) for error in found] == ["unavailable", None, "unavailable"]
        assert (await store.load("s"))[0].flag == "enough"
        with closing(sqlite3.connect(store.path)) as file:
            assert file.execute("SELECT * FROM meta WHERE name = 'half'").fetchall() == []
        await store.release(lease)
        await store.close()

    asyncio.run(scene())


# --- waiting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "full"])
def test_g7_a_lock_of_another_process_is_never_waited_for_on_the_event_loop(tmp_path, durability):
    path = tmp_path / "s.db"
    asyncio.run(fly(SqliteStore(path), "before"))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    async def scene():
        other.execute("BEGIN IMMEDIATE")
        released = threading.Timer(1.0, other.execute, ["ROLLBACK"])
        released.start()
        lags = []

        async def watch():
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0.01)
                lags.append(time.perf_counter() - before - 0.01)

        watching = asyncio.create_task(watch())
        store = SqliteStore(path)
        agents = [agent(store, call("act", n=1), say("done"), durability=durability) for _ in range(8)]
        began = time.perf_counter()
        results = await asyncio.gather(*[one.run("go", session=f"s{n}") for n, one in enumerate(agents)])
        took = time.perf_counter() - began
        watching.cancel()
        released.join()
        await store.close()
        return {result.outcome for result in results}, took, max(lags)

    outcomes, took, lag = asyncio.run(scene())
    other.close()
    assert outcomes == {LoopOutcome.DONE}
    assert took > 0.5
    assert lag < 0.3  # a loop that waits for the lock is late by a second


def test_a_lock_that_is_never_given_back_ends_the_run(tmp_path):
    path = tmp_path / "s.db"
    asyncio.run(fly(SqliteStore(path), "before"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def scene():
        store = SqliteStore(path, busy=0.2)
        async with no_leftovers():
            result = await fly(store, "refused")
        await store.close()
        return result

    result = asyncio.run(scene())
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "locked")
    other.execute("ROLLBACK")
    other.close()


def test_the_thread_ends_by_itself_when_nobody_stops_it(tmp_path, monkeypatch):
    monkeypatch.setattr(group_commit, "IDLE", 0.05)

    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        lease = await store.claim("s", this_owner())  # and never given back
        await store.append(lease, following(lease), durability="full")
        thread = store._group._thread._thread
        thread.join(5)
        assert not thread.is_alive()
        commit = following(lease, 2, following(lease).hash)
        await store.append(lease, commit, durability="full")  # another one is started
        await store.close()

    asyncio.run(scene())


# --- exceptions of signal handlers ----------------------------------------------------------------------------------


class SoftLimit(Exception):  # noqa: N818 - what a worker calls it
    pass


@pytest.mark.parametrize("at", ["behind BEGIN", "before COMMIT", "behind COMMIT"])
def test_an_exception_of_a_signal_handler_leaves_no_transaction_open(tmp_path, monkeypatch, at):
    path, armed = tmp_path / "s.db", []

    class Handler:
        """A connection whose next such statement is followed, or preceded, by an exception."""

        def __init__(self, connection):
            self._connection = connection

        def __getattr__(self, name):
            return getattr(self._connection, name)

        def __setattr__(self, name, value):
            object.__setattr__(self if name == "_connection" else self._connection, name, value)

        def commit_all(self):
            type(self._connection).commit_all(self)

        def execute(self, statement, *given):
            hit = armed and statement.startswith("BEGIN" if at == "behind BEGIN" else "COMMIT")
            if hit and at == "before COMMIT":
                armed.clear()
                raise SoftLimit
            done = self._connection.execute(statement, *given)
            if hit:
                armed.clear()
                raise SoftLimit
            return done

    async def scene():
        store = SqliteStore(path, busy=0.3)
        assert (await fly(store, "first")).outcome is LoopOutcome.DONE
        store._group._inline = Handler(store._group.connection())
        armed.append(True)
        hit = await fly(store, "hit")
        assert (hit.state, hit.cause.source) == (AgentState.ERROR, "store")
        for name in ("after", "hit"):
            assert (await fly(store, name)).outcome is LoopOutcome.DONE
        other = SqliteStore(path, busy=0.3)
        assert (await fly(other, "another")).outcome is LoopOutcome.DONE
        for name in ("first", "after", "hit", "another"):
            await read_journal(other, name)
        await other.close()
        await store.close()

    asyncio.run(scene())


def test_resume_returns_a_result_when_what_was_pinned_was_never_written(tmp_path, monkeypatch):
    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        limits = Limits(max_iterations=1)
        cut = Agent(model=ScriptedModel([call("act", n=1)]), tools=[act], store=store, limits=limits, landing="off")
        assert (await cut.run("go", session="s")).outcome is not LoopOutcome.DONE
        found = durable.snapshot_of
        monkeypatch.setattr(durable, "snapshot_of", lambda result: replace(found(result), pinned=(0, 99)))
        result = await agent(store, say("done")).resume("s", limits=Limits(max_iterations=5))
        assert result.text == "done"
        await store.close()

    asyncio.run(scene())


# --- where it is ----------------------------------------------------------------------------------------------------


def test_a_relative_path_stays_where_it_was_when_the_folder_is_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    @tool
    async def move() -> str:
        os.chdir(tmp_path / "elsewhere")
        return "moved"

    async def scene():
        store = SqliteStore("sessions.db")
        wallet = Budget(Limits(max_tokens=100_000), name="customer", store=store)
        it = Agent(
            model=ScriptedModel([call("move"), say("one"), say("two")]),
            tools=[move],
            store=store,
            limits=Limits(max_iterations=5),
        )
        assert (await it.run("go", session="s", parent=wallet)).outcome is LoopOutcome.DONE
        before = (await wallet.account()).tokens
        result = await it.run("again", session="s", parent=wallet)
        assert len([message for message in result.messages if message.role == "user"]) == 2
        assert (await wallet.account()).tokens > before > 0
        await store.close()

    asyncio.run(scene())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:20 / / rw - ext4 /dev/sda rw\n"
        f"23 22 0:21 / {tmp_path}/my\\040share rw - nfs4 host:/x rw\n"
        "24 22 0:22 / /somewhere rw - tmpfs tmpfs rw\n"
    )
    place = tmp_path / "my share"
    place.mkdir()
    assert sqlite_file.file_system_of(str(place / "s.db"), str(mounts)) == "nfs4"
    assert sqlite_file.file_system_of(str(tmp_path / "s.db"), str(mounts)) == "ext4"
    real = sqlite_file.file_system_of
    monkeypatch.setattr(sqlite_file, "file_system_of", lambda path: real(path, str(mounts)))
    result = asyncio.run(fly(SqliteStore(place / "s.db"), "s"))
    assert result.cause.source == "store"
    assert "network file system (nfs4)" in result.cause.reason
    assert "PostgresStore" in result.cause.reason
    assert not (place / "s.db").exists()
    assert asyncio.run(fly(SqliteStore(tmp_path / "s.db"), "s")).outcome is LoopOutcome.DONE


def test_a_segment_store_is_told_what_it_is_called_now():
    import glidepath.sessions

    with pytest.raises(ImportError, match=r"SqliteStore\(path\)"):
        from glidepath.sessions import SegmentStore  # noqa: F401
    with pytest.raises(AttributeError, match=r"SqliteStore\(path\)"):
        glidepath.sessions.SegmentStore  # noqa: B018
    assert not hasattr(glidepath.sessions, "SegmentStore")


def test_a_copy_is_another_store_and_its_sessions_are_free(tmp_path):
    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        lease = await store.claim("s", this_owner())
        await add(store, lease, 3)
        for name in ("s.db", "s.db-wal"):
            shutil.copy(tmp_path / name, tmp_path / f"copy{name[1:]}")
        copy = SqliteStore(tmp_path / "copy.db")
        taken = await copy.claim("s", this_owner())  # nobody writes it here
        assert (taken.head, taken.token > lease.token) == (3, True)
        await copy.release(taken)
        await add(store, lease, 2, first=4)
        with pytest.raises(StoreError, match="in flight"):
            await SqliteStore(tmp_path / "s.db").claim("s", this_owner())
        names = [(tmp_path / name) for name in ("s.db", "copy.db")]
        await store.release(lease)
        await store.close()
        await copy.close()
        found = []
        for name in names:
            with closing(sqlite3.connect(name)) as file:
                found += file.execute("SELECT value FROM meta WHERE name = 'store'").fetchall()
        assert len(set(found)) == 2

    asyncio.run(scene())


# --- leases ---------------------------------------------------------------------------------------------------------


def test_a_lease_of_a_fast_clock_is_over(tmp_path):
    async def scene():
        fast, right = SqliteStore(tmp_path / "s.db", clock=lambda: time.time() + 3600), SqliteStore(tmp_path / "s.db")
        stranger = "elsewhere/boot/pid:[1]|4711|99|abcd"
        await fast.claim("s", stranger)
        lease = await right.claim("s", this_owner())
        with pytest.raises(StoreError, match="in flight"):  # ours is alive, and so is its lease
            await SqliteStore(tmp_path / "s.db").claim("s", this_owner())
        await right.release(lease)
        await right.claim("t", stranger)  # a lease of the right length holds
        with pytest.raises(StoreError, match="in flight"):
            await SqliteStore(tmp_path / "s.db").claim("t", this_owner())

    asyncio.run(scene())


# --- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3, 4, 1000])
def test_a_head_that_was_never_noted_is_found_in_the_commits(tmp_path, monkeypatch, batch):
    monkeypatch.setattr(sqlite_journals, "_BATCH", batch)

    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        leases = [await store.claim(f"s{number}", this_owner()) for number in range(3)]
        hashes = [await add(store, lease, 5 + number) for number, lease in enumerate(leases)]
        copy = tmp_path / "dead"
        copy.mkdir()
        for name in ("s.db", "s.db-wal"):
            shutil.copy(tmp_path / name, copy / name)
        dead = SqliteStore(copy / "s.db")
        assert {entry.session_id: entry.head for entry in await dead.entries()} == {"s0": 5, "s1": 6, "s2": 7}
        assert {one.session_id: one.head for one in (await find_sessions(dead)).sessions} == {"s0": 5, "s1": 6, "s2": 7}
        for number, name in enumerate(("s0", "s1", "s2")):
            lease = await dead.claim(name, this_owner())
            assert (lease.head, lease.hash) == (5 + number, hashes[number])
            await add(dead, lease, 2, first=lease.head + 1)
            await dead.release(lease)
            entry, commits = await dead.load(name)
            assert len(list(verify_commits(commits, head=entry.head, hash_=entry.hash))) == 7 + number
            picked = await dead.pick(name, [1, 6, 99])
            assert [one.number for one in picked] == [1, 6]
        await dead.close()
        await store.close()

    asyncio.run(scene())


@pytest.mark.parametrize("batch", [2, 5])
def test_commits_after_others_were_deleted_are_found(tmp_path, monkeypatch, batch):
    """The numbers of rows at the end are used again: what was noted about them is forgotten."""
    monkeypatch.setattr(sqlite_journals, "_BATCH", batch)

    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        for turn in range(6):
            for name in ("stays", f"goes{turn}"):
                lease = await store.claim(name, this_owner())
                await add(store, lease, 3, first=lease.head + 1)
                await store.release(lease)
            await store.remove(f"goes{turn}")
            entry, commits = await store.load("stays")
            assert len(list(verify_commits(commits, head=entry.head, hash_=entry.hash))) == 3 * (turn + 1)
        await store.close()

    asyncio.run(scene())


# --- room -----------------------------------------------------------------------------------------------------------


def test_the_room_of_what_was_deleted_is_given_back(tmp_path):
    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        empty = None
        for number in range(30):
            lease = await store.claim(f"s{number}", this_owner())
            if empty is None:
                empty = (tmp_path / "s.db").stat().st_size
            await add(store, lease, 10, text="a secret " * 2000)
            await store.release(lease)
        await store.close()
        full = (tmp_path / "s.db").stat().st_size
        assert full > 4_000_000
        await store.remove_many([f"s{number}" for number in range(30)])
        assert list(await store.entries()) == []
        left = [(tmp_path / name).read_bytes() for name in ("s.db", "s.db-wal") if (tmp_path / name).exists()]
        assert b"a secret" not in b"".join(left)
        assert sum(map(len, left)) < full / 10
        await store.close()

    asyncio.run(scene())


def test_a_log_that_grows_is_emptied_while_runs_are_in_flight(tmp_path, monkeypatch):
    monkeypatch.setattr(group_commit, "LARGE_LOG", 1 << 20)

    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        lease, sizes = await store.claim("s", this_owner()), []
        before = b""
        for number in range(1, 2001):
            commit = following(lease, number, before, "x" * 1000)
            later = store.append(lease, commit)
            if later is not None:
                await later
            before = commit.hash
            sizes.append((tmp_path / "s.db-wal").stat().st_size)
            await asyncio.sleep(0)
        await store.release(lease)
        await store.close()
        return sizes

    sizes = asyncio.run(scene())
    assert max(sizes) < 4 << 20
    assert sum(sizes[at] > sizes[at + 1] for at in range(len(sizes) - 1)) >= 2


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)  # also when a test has left something open


@pytest.mark.process
def test_a_full_disk_ends_the_run_and_leaves_the_store_whole(small_disk):
    path, filler = small_disk / "s.db", small_disk / "filler"

    @tool
    async def fill() -> str:
        with filler.open("wb", buffering=0) as file:
            for size in (4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue
        return "x" * 20000

    async def run():
        store = SqliteStore(path)
        await fly(store, "before")
        await store.close()
        agent = Agent(
            model=ScriptedModel([call("fill"), call("act", n=1), say("done")]),
            tools=[fill, act],
            store=store,
            limits=Limits(max_iterations=5),
        )
        result = await agent.run("go", session="big")
        assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
        assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "full")
        assert len(await store.entries()) == 2
        assert (await fly(store, "refused")).cause.metrics["kind"] == "full"
        other = SqliteStore(path)
        assert len((await read_journal(other, "before")).commits) == 11  # reading needs no room
        assert len((await find_sessions(other)).sessions) == 2
        await other.close()
        filler.unlink()
        agent = Agent(model=ScriptedModel([say("there is room again")]), tools=[fill, act], store=store, unbounded=True)
        again = await agent.resume("big")  # at once: nobody has to wait for a lease
        assert again.text == "there is room again"
        assert (await fly(store, "refused")).outcome is LoopOutcome.DONE
        await store.close()

    asyncio.run(run())


@pytest.mark.process
def test_a_closed_store_on_a_full_disk_can_be_listed(small_disk):
    path, filler = small_disk / "s.db", small_disk / "filler"
    asyncio.run(fly(SqliteStore(path), "before"))
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue

    async def look():
        store = SqliteStore(path)
        assert [entry.session_id for entry in await store.entries()] == ["before"]
        assert [entry.session_id for entry in (await find_sessions(store)).sessions] == ["before"]
        assert len((await read_journal(store, "before")).commits) == 11
        await store.close()

    asyncio.run(look())


@pytest.mark.process
def test_a_store_that_another_process_gave_its_identity_meanwhile_keeps_its_leases(tmp_path, monkeypatch):
    """Two processes open the same new file: the one that looked first and writes last must not void a lease."""
    path, real, asked = tmp_path / "new.db", sqlite_file._is_own_file, []
    claim = "import asyncio, sys; from glidepath.sessions import SqliteStore\n"
    claim += "asyncio.run(SqliteStore(sys.argv[1]).claim('s', 'other'))"

    def knows(connection, inode):
        asked.append(inode)
        if len(asked) == 1:  # between the first look and the write, another process opens the file and claims
            subprocess.run([sys.executable, "-c", claim, str(path)], check=True)
            return False
        return real(connection, inode)

    async def open_it():
        store = SqliteStore(path)
        lease = await store.claim("t", this_owner())
        await store.release(lease)
        await store.close()

    monkeypatch.setattr(sqlite_file, "_is_own_file", knows)
    asyncio.run(open_it())
    assert len(asked) == 2
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT owner FROM sessions WHERE id = 's'").fetchone() == ("other",)
