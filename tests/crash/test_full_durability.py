"""`durability="full"`: what a run was told is written is on the disk, which is asked once for all who wait."""

import asyncio
import errno
import os
import shutil
import stat
import threading

import pytest

from glidepath import Agent, Limits, LoopOutcome, ToolContext, tool
from glidepath.errors import StoreError
from glidepath.sessions import SegmentStore, SqliteStore, segment_desk, segment_sessions
from glidepath.sessions.archive import read_journal
from glidepath.sessions.owner import this_owner
from glidepath.testing import ScriptedModel, call, say

from .test_segment_owners import following


class Disk:
    """What a power cut would leave: of each file what was synced, in a folder what it had when it was synced."""

    def __init__(self, monkeypatch):
        self.kept, self.listed, self.syncs = {}, set(), 0
        self.fails = None
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self.sync, raising=False)

    def sync(self, fd):
        about = os.fstat(fd)
        if stat.S_ISDIR(about.st_mode):
            self.listed |= {entry.inode() for entry in os.scandir(fd)}
            return
        assert self.may_go_on.wait(60)
        self.syncs += 1
        if self.fails:
            raise self.fails.pop()
        self.kept[about.st_ino] = about.st_size

    def after_a_power_cut(self, path, target):
        """The store as it is found when the power is back; the index is a cache, and may be lost."""
        shutil.copytree(path, target, ignore=shutil.ignore_patterns("index.db*", "leases", "*.seg"))
        (target / "segments").mkdir(exist_ok=True)
        for file in (path / "segments").iterdir():
            if (number := file.stat().st_ino) in self.listed:
                (target / "segments" / file.name).write_bytes(file.read_bytes()[: self.kept.get(number, 0)])
        return SegmentStore(target)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def test_g13_a_power_cut_forgets_no_call_that_full_let_begin(tmp_path, monkeypatch, disk):
    """Three runs in small segments; the power is cut in each of their calls."""
    for module in (segment_desk, segment_sessions):
        monkeypatch.setattr(module, "SEGMENT", 4096)
    checked = []

    @tool
    async def act(n: int, session: str, context: ToolContext) -> str:
        place = tmp_path / f"cut{len(checked)}"
        checked.append(place)
        after = disk.after_a_power_cut(tmp_path / "s", place)
        intents = (await read_journal(after, session)).folded.intents
        assert context.call_id in intents
        await after.close()
        return "x" * 700

    async def go():
        store = SegmentStore(tmp_path / "s")
        agents = [
            Agent(
                model=ScriptedModel([*[call("act", n=n, session=f"s{place}") for n in range(4)], say("done")]),
                tools=[act],
                store=store,
                durability="full",
                limits=Limits(max_iterations=9),
            )
            for place in range(3)
        ]
        results = await asyncio.gather(*[one.run("go", session=f"s{place}") for place, one in enumerate(agents)])
        await store.close()
        return results

    results = asyncio.run(go())
    assert [[message.text for message in one.messages if message.role == "tool_result"] for one in results] == [
        ["x" * 700] * 4
    ] * 3
    assert len(checked) == 12
    assert len(list((tmp_path / "s" / "segments").iterdir())) > 3


def test_all_who_wait_for_the_disk_wait_for_one_sync(tmp_path, disk):
    async def go():
        store = SegmentStore(tmp_path / "s")
        leases = [await store.claim(f"s{number}", this_owner()) for number in range(20)]
        disk.may_go_on.clear()
        syncs = disk.syncs
        waiting = [asyncio.ensure_future(store.append(lease, following(lease), durability="full")) for lease in leases]
        await asyncio.sleep(0)  # all have asked; a sync that the first of them began comes too early for the others
        disk.may_go_on.set()
        await asyncio.gather(*waiting)
        syncs = disk.syncs - syncs
        for lease in leases:
            await store.release(lease)
        await store.close()
        return syncs

    assert asyncio.run(go()) in (1, 2)


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, "unavailable"), (errno.ENOSPC, "full")])
def test_a_disk_that_refuses_a_sync_ends_the_run_and_nothing_is_written_behind_it(tmp_path, disk, number, kind):
    """The system forgets what it could not write: a later sync of the same file would say that all is well."""

    async def go():
        store = SegmentStore(tmp_path / "s")
        lease = await store.claim("s", this_owner())
        await store.append(lease, following(lease), durability="full")
        other = await store.claim("other", this_owner())
        disk.fails = [OSError(number, os.strerror(number))]
        with pytest.raises(StoreError) as caught:
            await store.append(other, following(other), durability="full")
        assert caught.value.kind == kind
        third = await store.claim("third", this_owner())
        await store.append(third, following(third), durability="full")
        names = sorted(file.name for file in (tmp_path / "s" / "segments").iterdir())
        after = disk.after_a_power_cut(tmp_path / "s", tmp_path / "cut")
        assert {entry.session_id: entry.head for entry in await after.entries()} | {"other": 0} == {
            "s": 1,
            "other": 0,
            "third": 1,
        }
        for held in (lease, other, third):
            await store.release(held)
        for one in (store, after):
            await one.close()
        return names

    assert asyncio.run(go()) == ["00000001.seg", "00000002.seg"]


def test_a_segment_that_is_full_before_its_first_sync_is_synced_with_the_next(tmp_path, monkeypatch, disk):
    for module in (segment_desk, segment_sessions):
        monkeypatch.setattr(module, "SEGMENT", 1024)

    async def go():
        store = SegmentStore(tmp_path / "s")
        lease, other = [await store.claim(name, this_owner()) for name in ("s", "other")]
        later = store.append(lease, following(lease), durability="full")  # written, and not waited for yet
        hash_ = other.hash
        for number in range(1, 20):  # meanwhile another run fills the segment
            commit = following(other, number, hash_)
            store.append(other, commit)
            hash_ = commit.hash
        await later
        after = disk.after_a_power_cut(tmp_path / "s", tmp_path / "cut")
        assert (await after.load("s"))[0].head == 1
        for held in (lease, other):
            await store.release(held)
        for one in (store, after):
            await one.close()

    asyncio.run(go())


def test_full_in_a_file_is_sqlites_full(tmp_path):
    """SQLite syncs by itself: what can be seen is what it was told."""

    async def go():
        store = SqliteStore(tmp_path / "s.db")
        levels = []

        @tool
        async def act(n: int) -> str:
            levels.append(store._full.execute("PRAGMA synchronous").fetchone()[0])
            return "x"

        agent = Agent(
            model=ScriptedModel([call("act", n=1), say("done")]),
            tools=[act],
            store=store,
            durability="full",
            limits=Limits(max_iterations=9),
        )
        assert (await agent.run("go", session="s")).outcome is LoopOutcome.DONE
        await store.close()
        return levels

    assert asyncio.run(go()) == [2]
