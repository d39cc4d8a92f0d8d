"""The folder of a segment store: its modes, its size, what is in it after a while, and what if it cannot be written."""

import asyncio
import errno
import gc
import os
import resource
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from glidepath import Agent, AgentState, Limits, LoopOutcome, tool
from glidepath.errors import StoreError
from glidepath.sessions import SegmentStore, segment_desk, segments
from glidepath.sessions.archive import list_runs, prune, read_journal
from glidepath.sessions.chain import link, verified
from glidepath.sessions.owner import this_owner
from glidepath.spi.sessions import Note
from glidepath.testing import ScriptedModel, call, say

from .test_damage import as_somebody_else
from .test_segment_damage import fly, lose_index
from .test_segment_owners import following, in_a_child, status


@tool
async def act(n: int) -> str:
    return f"done {n}"


def files(path):
    return sorted(file.name for file in (path / "segments").iterdir())


async def write(store, name, count, size=100):
    """A session of so many commits."""
    lease = await store.claim(name, this_owner())
    before = lease.hash
    for number in range(lease.head + 1, lease.head + 1 + count):
        commit = link(before, number, number, 1.5, [("note", {"text": "x" * size})])
        store.append(lease, commit, summary={"state": "completed", "number": number})
        before = commit.hash
    await store.release(lease)


async def whole(store, name):
    entry, commits = await store.load(name)
    return len(list(verified(commits, head=entry.head, hash_=entry.hash)))


# --- modes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277])
def test_a_new_store_is_its_owners_alone_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:

        async def run():
            store = SegmentStore(tmp_path / "s")
            await fly(store)
            found = {
                file.relative_to(tmp_path).as_posix(): stat.S_IMODE(file.stat().st_mode)
                for file in (tmp_path / "s", *(tmp_path / "s").rglob("*"))
            }
            await store.close()
            return found

        found = asyncio.run(run())
    finally:
        os.umask(before)
    names = {"s", "s/STORE", "s/lock", "s/leases", "s/segments", "s/segments/00000001.seg"}
    assert set(found) == names | {"s/index.db", "s/index.db-wal", "s/index.db-shm"}
    assert {name: mode for name, mode in found.items() if mode not in (0o600, 0o700)} == {}
    assert {name for name, mode in found.items() if mode == 0o700} == {"s", "s/segments"}


@pytest.mark.parametrize(("old", "new"), [(0o755, 0o700), (0o777, 0o770), (0o770, 0o770), (0o700, 0o700)])
def test_a_folder_that_everybody_could_read_is_closed_to_others(tmp_path, old, new):
    asyncio.run(fly(SegmentStore(tmp_path / "s")))
    (tmp_path / "s").chmod(old)
    asyncio.run(fly(SegmentStore(tmp_path / "s"), "other"))
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == new


# --- segments come and go -----------------------------------------------------------------------------------------


def test_a_run_that_outgrows_its_segment_goes_on_in_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_desk, "SEGMENT", 4096)

    async def run():
        store = SegmentStore(tmp_path / "s")
        await asyncio.gather(*[write(store, f"s{number}", 40) for number in range(3)])
        assert [await whole(store, f"s{number}") for number in range(3)] == [40] * 3
        await write(store, "s1", 10)
        entries = {entry.session_id: entry for entry in await store.entries()}
        await store.close()
        return entries

    entries = asyncio.run(run())
    assert len(files(tmp_path / "s")) > 3
    for lost in (False, True):
        if lost:
            lose_index(tmp_path / "s")
        store = SegmentStore(tmp_path / "s")
        assert [asyncio.run(whole(store, f"s{number}")) for number in range(3)] == [40, 50, 40]
        assert {entry.session_id: entry.summary for entry in asyncio.run(store.entries())} == {
            name: entry.summary for name, entry in entries.items()
        }
        asyncio.run(store.close())


def test_an_owner_is_fenced_in_the_segment_it_writes_now(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_desk, "SEGMENT", 2048)

    async def run():
        first, second = SegmentStore(tmp_path / "s", lease=0.01), SegmentStore(tmp_path / "s")
        lease = await first.claim("s", this_owner())
        before = lease.hash
        for number in range(1, 31):
            commit = following(lease, number, before, "x" * 100)
            first.append(lease, commit)
            before = commit.hash
        await asyncio.sleep(0.02)
        taken = await second.claim("s", this_owner())
        assert taken.head == 30
        for number in range(31, 60):  # also when it begins another
            with pytest.raises(StoreError):
                first.append(lease, following(lease, number, before, "x" * 500))
        second.append(taken, following(taken))
        assert await whole(second, "s") == 31

    asyncio.run(run())


def test_a_process_goes_on_in_the_segment_that_another_has_closed(tmp_path):
    for number in range(5):
        store = SegmentStore(tmp_path / "s")
        asyncio.run(write(store, f"s{number}", 3))
        asyncio.run(store.close())
    assert files(tmp_path / "s") == ["00000001.seg"]
    store = SegmentStore(tmp_path / "s")
    assert [asyncio.run(whole(store, f"s{number}")) for number in range(5)] == [3] * 5
    asyncio.run(store.close())


def test_a_process_goes_on_in_the_segment_of_a_dead_one_unless_it_is_torn(tmp_path):
    path = tmp_path / "s"

    def die(torn):
        store = SegmentStore(path)
        asyncio.run(write(store, f"{torn}", 3))
        if torn:
            os.write(store._desk.own.fd, b"half a frame")
        os._exit(0)

    for torn in (False, True):
        assert status(in_a_child(lambda torn=torn: die(torn))) == 0
        store = SegmentStore(path)
        asyncio.run(store.entries())  # whoever looks finds out that it is dead
        asyncio.run(write(store, f"after {torn}", 1))
        asyncio.run(store.close())
    assert files(path) == ["00000001.seg", "00000002.seg"]
    store = SegmentStore(path)
    for name, count in {"False": 3, "True": 3, "after False": 1, "after True": 1}.items():
        assert asyncio.run(whole(store, name)) == count
    asyncio.run(store.close())


def test_a_writer_of_another_container_or_before_a_restart_is_known_to_be_dead(tmp_path):
    """Its process number means nothing here: the lock on its segment does."""
    path = tmp_path / "s"

    def die():
        segment_desk.this_owner = lambda: "elsewhere/another start/namespace|1|1|cafe"
        asyncio.run(write(SegmentStore(path), "first", 3))
        os._exit(0)

    assert status(in_a_child(die)) == 0
    store = SegmentStore(path)
    asyncio.run(store.entries())
    asyncio.run(write(store, "second", 1))
    asyncio.run(store.close())
    assert files(path) == ["00000001.seg"]


def test_segments_that_nobody_needs_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_desk, "SEGMENT", 8192)

    async def run():
        store = SegmentStore(tmp_path / "s")
        for number in range(20):
            await write(store, f"s{number}", 10)
        grown = len(files(tmp_path / "s"))
        await prune(store, older_than=-1)
        assert list(await store.entries()) == []
        await store.close()
        return grown

    assert asyncio.run(run()) > 3
    assert len(files(tmp_path / "s")) <= 2  # the news of what was removed
    lose_index(tmp_path / "s")
    store = SegmentStore(tmp_path / "s")
    assert list(asyncio.run(store.entries())) == []
    asyncio.run(write(store, "new", 1))
    assert asyncio.run(whole(store, "new")) == 1
    asyncio.run(store.close())


@pytest.mark.parametrize("lost", [False, True], ids=["index kept", "index lost"])
def test_what_is_left_of_thin_segments_is_moved_and_stays_whole(tmp_path, monkeypatch, lost):
    monkeypatch.setattr(segment_desk, "SEGMENT", 8192)

    async def run():
        store = SegmentStore(tmp_path / "s")
        for number in range(40):
            await write(store, f"s{number}", 5, 60)
        grown = len(files(tmp_path / "s"))
        for number in range(0, 40, 10):
            await store.annotate(f"s{number}", title=f"Number {number}", tags=["kept"])
            await store.post(f"s{number}", Note(id="n", kind="message", body=b"{}"))
        kept = {f"s{number}": (await store.load(f"s{number}")) for number in range(0, 40, 10)}
        for number in range(40):
            if f"s{number}" not in kept:
                await store.remove(f"s{number}")
        await store.close()
        return grown, kept

    grown, kept = asyncio.run(run())
    assert len(files(tmp_path / "s")) < grown / 2
    if lost:
        lose_index(tmp_path / "s")

    async def look():
        store = SegmentStore(tmp_path / "s")
        assert {entry.session_id for entry in await store.entries()} == set(kept)
        for name, (before, commits) in kept.items():
            entry, found = await store.load(name)
            assert found == commits
            assert (entry.head, entry.hash, entry.summary) == (before.head, before.hash, before.summary)
            assert (entry.updated, entry.title, entry.tags) == (before.updated, before.title, ("kept",))
            assert [note.id for note in await store.notes(name)] == ["n"]
            await write(store, name, 2)
            assert await whole(store, name) == 7
        await store.close()

    asyncio.run(look())


def test_a_session_that_was_moved_and_then_removed_does_not_come_back(tmp_path, monkeypatch):
    """What older segments still have of it does not count, also when the index is made anew."""
    monkeypatch.setattr(segment_desk, "SEGMENT", 6000)
    monkeypatch.setattr(segments, "_TIDY", 1)

    async def run():
        store = SegmentStore(tmp_path / "s")
        await write(store, "wide", 3)  # stays in the first segment
        for number in range(12):
            await write(store, f"s{number}", 5, 60)
        await write(store, "moves", 40, 60)
        for number in range(12):
            await store.remove(f"s{number}")
        await store.remove("moves")
        for number in range(8):
            await write(store, f"t{number}", 20, 60)
            await store.remove(f"t{number}")
        await store.close()

    asyncio.run(run())
    lose_index(tmp_path / "s")
    store = SegmentStore(tmp_path / "s")
    assert [entry.session_id for entry in asyncio.run(store.entries())] == ["wide"]
    assert asyncio.run(whole(store, "wide")) == 3
    asyncio.run(store.close())


# --- files that are taken away ------------------------------------------------------------------------------------


def taken_away(path):
    shutil.rmtree(path)


def moved(path):
    path.rename(path.with_name("elsewhere"))


def replaced(path):
    path.rename(path.with_name("elsewhere"))
    asyncio.run(write(SegmentStore(path), "another", 1))


@pytest.mark.parametrize("take", [taken_away, moved, replaced], ids=lambda take: take.__name__)
def test_a_store_that_is_taken_away_in_mid_run_is_noticed(tmp_path, take):
    path = tmp_path / "s"

    @tool
    async def lose() -> str:
        await asyncio.to_thread(take, path)
        return "gone"

    async def run():
        store = SegmentStore(path)
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


@pytest.mark.parametrize("name", ["index.db", "leases", "STORE", "lock"])
def test_a_part_that_is_taken_away_in_mid_run_is_made_anew(tmp_path, name):
    path = tmp_path / "s"

    @tool
    async def lose() -> str:
        (path / name).unlink()
        return "gone"

    async def run():
        store = SegmentStore(path)
        agent = Agent(
            model=ScriptedModel([call("lose"), say("done")]), tools=[lose], store=store, limits=Limits(max_iterations=5)
        )
        result = await agent.run("go", session="s")
        assert result.outcome is LoopOutcome.DONE, result.cause
        assert await whole(store, "s") == 5
        assert (await fly(store, "next")).outcome is LoopOutcome.DONE
        await store.close()

    asyncio.run(run())
    store = SegmentStore(path)
    assert {entry.session_id for entry in asyncio.run(store.entries())} == {"s", "next"}
    asyncio.run(store.close())


def test_a_beat_notices_that_the_store_is_gone(tmp_path):
    async def run():
        store = SegmentStore(tmp_path / "s")
        lease = await store.claim("s", this_owner())
        assert list(await store.beat([lease], renew=True)) == []
        shutil.rmtree(tmp_path / "s")
        store._looked = 0.0
        with pytest.raises(StoreError) as caught:
            await store.beat([lease], renew=True)
        assert caught.value.kind == "missing"
        with pytest.raises(StoreError, match="removed or replaced"):
            store.append(lease, following(lease))

    asyncio.run(run())


# --- what cannot be written ---------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_read_only_folder_can_be_read_and_nothing_else(tmp_path):
    folder = Path(tempfile.mkdtemp(prefix="gp-ro-"))
    there = folder / "s"
    asyncio.run(fly(SegmentStore(tmp_path / "s"), "well"))  # and never closed: the index is behind
    shutil.copytree(tmp_path / "s", there)
    for path in (there, *there.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)

    async def look():
        store = SegmentStore(there)
        listed = len(await list_runs(store))
        commits = len((await read_journal(store, "well")).commits)
        kinds = []
        for act_ in (
            lambda: store.claim("well", "me"),
            lambda: store.flag("well", "x"),
            lambda: store.remove("well"),
            lambda: SegmentStore(folder / "new").claim("x", "me"),
        ):
            try:
                await act_()
            except StoreError as error:
                kinds.append(error.kind)
        result = await fly(store, "well")
        return listed, commits, kinds, result.cause.metrics["kind"]

    try:
        found = as_somebody_else(look)
    finally:
        for path in (folder, there, *there.rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(folder)
    assert found == str((1, 11, ["read_only"] * 4, "read_only"))


@pytest.mark.process
def test_a_limit_on_the_size_of_files_ends_segments_not_runs(tmp_path):
    path = tmp_path / "s"

    def limited():
        asyncio.run(fly(SegmentStore(path), "first"))
        size = max(file.stat().st_size for file in path.rglob("*") if file.is_file())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2000, size + 2000))
        store = SegmentStore(path)
        for number in range(10):
            result = asyncio.run(fly(store, f"s{number}"))
            if result.outcome is not LoopOutcome.DONE:  # the index cannot grow any more
                assert result.cause.source == "store"
                assert result.cause.metrics["kind"] in ("full", "unavailable"), result.cause
        asyncio.run(store.entries())

    assert status(in_a_child(limited)) == 0
    store = SegmentStore(path)
    for entry in asyncio.run(store.entries()):
        if entry.head:
            asyncio.run(read_journal(store, entry.session_id))
    assert asyncio.run(whole(store, "first")) == 11
    asyncio.run(store.close())


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
    path, filler = small_disk / "s", small_disk / "filler"

    @tool
    async def fill() -> str:
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(b"x" * 4096)
                    file.flush()
            except OSError:
                return "x" * 20000

    async def run():
        store = SegmentStore(path)
        await fly(store, "before")
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
        other = SegmentStore(path)
        assert len((await read_journal(other, "before")).commits) == 11  # reading needs no room
        filler.unlink()
        agent = Agent(model=ScriptedModel([say("there is room again")]), tools=[fill, act], store=store, unbounded=True)
        again = await agent.resume("big")  # at once: nobody has to wait for a lease
        assert again.text == "there is room again"
        assert (await fly(store, "refused")).outcome is LoopOutcome.DONE
        await store.close()
        await other.close()

    asyncio.run(run())
    lose_index(path)
    store = SegmentStore(path)
    assert {entry.session_id for entry in asyncio.run(store.entries())} == {"before", "big", "refused"}
    for entry in asyncio.run(store.entries()):
        asyncio.run(read_journal(store, entry.session_id))
    asyncio.run(store.close())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to count open files")  # noqa: PTH112
@pytest.mark.parametrize("fails", ["leases", "index"])
def test_a_store_that_cannot_be_opened_keeps_no_file_open(tmp_path, monkeypatch, fails):
    path = tmp_path / "s"
    asyncio.run(fly(SegmentStore(path), "before"))
    if fails == "leases":
        (path / "leases").unlink()
        (path / "leases").mkdir()
    else:
        lose_index(path)
        monkeypatch.setattr("glidepath.sessions.segment_folder.discover", no_room)

    async def refused():
        with pytest.raises(StoreError) as caught:
            await SegmentStore(path).claim("before", this_owner())
        return caught  # whose frames hold what was not closed

    kept = [asyncio.run(refused())]
    gc.collect()  # of what earlier tests have left
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    kept += [asyncio.run(refused()) for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) <= before, kept  # noqa: PTH208


def no_room(index):
    raise OSError(errno.ENOSPC, "no space left on device")


def test_an_index_that_another_process_holds_is_waited_for_without_stopping_the_loop(tmp_path):
    import sqlite3

    path = tmp_path / "s"
    asyncio.run(fly(SegmentStore(path), "before"))
    other = sqlite3.connect(path / "index.db", isolation_level=None)

    async def scene(released):
        other.execute("BEGIN IMMEDIATE")
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1
                if released and ticks == 4:
                    other.execute("ROLLBACK")

        ticking = asyncio.create_task(tick())
        store = SegmentStore(path, busy=60.0 if released else 0.5)
        result = await fly(store, "patient")
        ticking.cancel()
        await store.close()
        assert ticks >= 4
        return result

    assert asyncio.run(scene(True)).outcome is LoopOutcome.DONE
    result = asyncio.run(scene(False))
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "locked")
    other.execute("ROLLBACK")
    other.close()
