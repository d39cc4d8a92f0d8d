"""The heartbeat of runs: one for all of a loop, and nothing of a run is left when it is over."""

import asyncio
import gc
import weakref

from glidepath import Agent, Limits, LoopOutcome
from glidepath.sessions import JournalRecorder, MemoryStore, SqliteStore, send
from glidepath.spi import Sign
from glidepath.testing import ScriptedModel, VirtualClock, hang, say


class Counted(MemoryStore):
    """Counts its heartbeats, and the leases in each."""

    def __init__(self):
        super().__init__()
        self.beats = []

    async def beat(self, leases, *, renew):
        self.beats.append((renew, [lease.session_id for lease in leases]))
        return await super().beat(leases, renew=renew)


def waiting(store, seconds):
    model = ScriptedModel([say("done", delay=seconds)])
    return Agent(model=model, limits=Limits(max_iterations=3, timeout=600), store=store)


def test_a_hundred_runs_ask_the_store_once_a_beat():
    store = Counted()

    async def fly():
        runs = [waiting(store, 4.9).run("go", session=f"s{number}") for number in range(100)]
        return await asyncio.gather(*runs)

    results = VirtualClock().run(fly())
    assert {result.outcome for result in results} == {LoopOutcome.DONE}
    assert len(store.beats) == 9
    assert all(len(names) == 100 for _, names in store.beats)
    assert [renew for renew, _ in store.beats].count(True) == 1


def test_the_heartbeat_ends_with_the_last_run_and_begins_again():
    store = Counted()

    async def fly():
        for number in range(2):
            await waiting(store, 0.9).run("go", session=f"s{number}")
            assert [task.get_name() for task in asyncio.all_tasks() if "heartbeat" in task.get_name()] == []
        await asyncio.sleep(60)

    VirtualClock().run(fly())
    assert [names for _, names in store.beats] == [["s0"], ["s1"]]


def test_only_the_run_that_a_sign_is_about_hears_it():
    class OneIsTaken(MemoryStore):
        async def beat(self, leases, *, renew):
            return [Sign(session_id="s1", lost=True), Sign(session_id="nobody", stop="never heard of")]

    async def fly():
        store = OneIsTaken()
        return await asyncio.gather(*[waiting(store, 3).run("go", session=f"s{number}") for number in range(3)])

    results = VirtualClock().run(fly())
    assert [result.outcome for result in results] == [LoopOutcome.DONE, LoopOutcome.FAILED, LoopOutcome.DONE]


def test_notes_that_cannot_be_read_keep_nobody_else_from_theirs():
    class OneBrokenInbox(MemoryStore):
        async def notes(self, session_id, after=0):
            if session_id == "s0":
                raise OSError("broken")
            return await super().notes(session_id, after)

    async def fly():
        store = OneBrokenInbox()
        agents = [
            Agent(model=ScriptedModel([say("one", delay=2), say("two")]), limits=Limits(max_iterations=5), store=store)
            for _ in range(2)
        ]
        runs = [asyncio.create_task(agent.run("go", session=f"s{n}")) for n, agent in enumerate(agents)]
        await asyncio.sleep(0.1)
        await send(store, "s0", "are you there?")
        await send(store, "s1", "are you there?")
        return await asyncio.gather(*runs)

    lost, found = VirtualClock().run(fly())
    assert [message.text for message in found.messages if message.role == "user"] == ["go", "are you there?"]
    assert [message.text for message in lost.messages if message.role == "user"] == ["go"]


def test_a_heartbeat_that_hangs_holds_no_run_for_long():
    class Hangs(MemoryStore):
        async def beat(self, leases, *, renew):
            await asyncio.Event().wait()

    async def fly():
        began = asyncio.get_running_loop().time()
        result = await waiting(Hangs(), 1).run("go", session="s")
        return result, asyncio.get_running_loop().time() - began

    result, took = VirtualClock().run(fly())
    assert result.outcome is LoopOutcome.DONE
    assert took < 5


def test_two_leases_of_one_session_are_never_in_one_question():
    async def fly():
        store = Counted()
        store._lease = 0.01  # it runs out before the next beat, so the second run takes the session
        store._clock = asyncio.get_running_loop().time
        stuck = Agent(model=ScriptedModel([hang()]), limits=Limits(max_iterations=3, timeout=600), store=store)
        first = asyncio.create_task(stuck.run("go", session="s"))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(waiting(store, 2).run("go", session="s"))
        return await asyncio.gather(first, second), store.beats

    (first, second), beats = VirtualClock().run(fly())
    assert first.cause.metrics["kind"] == "fenced"
    assert second.outcome is LoopOutcome.DONE
    assert all(len(names) == len(set(names)) for _, names in beats)


def test_a_run_that_is_over_leaves_nothing_for_the_garbage_collector(tmp_path, monkeypatch):
    seen, attend = [], JournalRecorder.follow_run

    def watched(self, run, **keywords):
        seen.append(weakref.ref(self))
        attend(self, run, **keywords)

    monkeypatch.setattr(JournalRecorder, "follow_run", watched)

    async def fly():
        store = SqliteStore(tmp_path / "s")
        gc.disable()
        try:
            await waiting(store, 0).run("go", session="s")
            await asyncio.sleep(0.01)
            return [ref() for ref in seen]
        finally:
            gc.enable()
            await store.close()

    assert asyncio.run(fly()) == [None]


def test_runs_that_end_together_give_their_sessions_back_without_a_task(tmp_path, monkeypatch):
    given, give_back = [], JournalRecorder._give_back

    async def counted(self):
        given.append(self.lease.session_id)
        await give_back(self)

    monkeypatch.setattr(JournalRecorder, "_give_back", counted)

    async def fly():
        store = SqliteStore(tmp_path / "s")
        results = await asyncio.gather(*[waiting(store, 0).run("go", session=f"s{n}") for n in range(5)])
        owners = [entry.owner for entry in await store.entries()]
        await store.close()
        return [result.outcome for result in results], owners

    outcomes, owners = asyncio.run(fly())
    assert outcomes == [LoopOutcome.DONE] * 5
    assert owners == [None] * 5
    assert given == []


def test_a_store_that_overrides_release_is_asked_for_it(tmp_path):
    released = []

    class Watched(SqliteStore):
        async def release(self, lease):
            released.append(lease.session_id)
            await super().release(lease)

    async def fly():
        store = Watched(tmp_path / "s")
        await asyncio.gather(*[waiting(store, 0).run("go", session=f"s{n}") for n in range(3)])
        await store.close()

    asyncio.run(fly())
    assert sorted(released) == ["s0", "s1", "s2"]


def test_a_heartbeat_that_is_about_to_begin_or_has_its_answer_holds_no_run_up(monkeypatch):
    slow, give_back = [], JournalRecorder._give_back

    async def counted(self):
        slow.append(self.lease.session_id)
        await give_back(self)

    monkeypatch.setattr(JournalRecorder, "_give_back", counted)

    async def fly():
        store = MemoryStore()
        runs = [waiting(store, 0.5 + number / 1000).run("go", session=f"s{number}") for number in range(3)]
        await asyncio.gather(*runs)
        return [entry.owner for entry in await store.entries()], [task.get_name() for task in asyncio.all_tasks()]

    owners, tasks = VirtualClock().run(fly())
    assert owners == [None] * 3
    assert slow == []
    assert not any("heartbeat" in name for name in tasks)
