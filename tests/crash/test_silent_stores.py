"""Stores that do not answer, answer with nonsense, raise anything, or fail where nobody looks: the end is typed."""

import asyncio

import pytest

from glidepath import Agent, AgentState, CancelToken, Limits, LoopOutcome, tool
from glidepath.errors import StoreError
from glidepath.events import SessionSaved
from glidepath.sessions import MemoryStore, SqliteStore, read, read_journal
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, call, calls, no_leftovers, say

SCRIPT = [
    call("act", n=1),
    calls(call("act", n=2), call("act", n=3), text="half way"),
    call("act", n=4),
    say("all is done"),
]
WRITES = 10


async def forever():
    await asyncio.Event().wait()


async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


class Odd(MemoryStore):
    """Does `what` at the n-th call of `method`."""

    def __init__(self, method, number, what):
        super().__init__()
        self.method, self.left, self.what = method, number, what

    def _due(self, method):
        if method == self.method:
            self.left -= 1
            return not self.left
        return False

    def append(self, lease, commit, **keywords):
        if self._due("append"):
            return self.what()
        return super().append(lease, commit, **keywords)

    def claim(self, *args, **keywords):
        return self.what() if self._due("claim") else super().claim(*args, **keywords)

    def load(self, *args):
        return self.what() if self._due("load") else super().load(*args)

    def release(self, *args):
        return self.what() if self._due("release") else super().release(*args)

    def beat(self, *args, **keywords):
        return self.what() if self._due("beat") else super().beat(*args, **keywords)

    def written(self, session="s"):
        shelf = self._shelves.get(session)
        return [] if shelf is None else [record for commit in shelf.commits for record in read(commit)]


def make(store, done, **config):
    @tool
    async def act(n: int) -> str:
        await asyncio.sleep(n / 10)
        done.append(n)
        if isinstance(store, Odd):
            known = [record.kind for record in store.written()].count("intent")
            assert known >= len(done), "an effect without its intent"
        return f"done {n}"

    recorder = EventRecorder()
    agent = Agent(
        model=ScriptedModel(SCRIPT).forever(say("all is done")),
        tools=[act],
        store=store,
        limits=Limits(max_iterations=20, max_tokens=100_000),
        plugins=[recorder.as_plugin()],
        **config,
    )
    return agent, recorder


def fly(store, *, cancel_at=None, **config):
    """The result, what the tools did, how long it took, the events."""
    done = []

    async def flight():
        agent, recorder = make(store, done, **config)
        token, loop = CancelToken(), asyncio.get_running_loop()
        if cancel_at is not None:
            loop.call_later(cancel_at, token.cancel, "enough")
        began = loop.time()
        async with no_leftovers():
            result = await agent.run("go", session="s", cancel=token)
        recorder.assert_legal()
        return result, loop.time() - began, recorder.events

    result, took, events = VirtualClock().run(flight())
    return result, done, took, events


@pytest.mark.parametrize("what", [forever, stubborn])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_g1_a_store_that_never_answers_fails_the_run_in_bounded_time(number, what):
    result, done, took, _ = fly(Odd("append", number, what))
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert result.cause.source == "store"
    assert "not answered within 30 s" in result.cause.reason
    assert 30 <= took < 35
    assert len(done) == len(set(done))


@pytest.mark.parametrize("what", [forever, stubborn])
def test_a_cancel_does_not_make_a_silent_store_silent_for_longer(what):
    result, _, took, _ = fly(Odd("append", 4, what), cancel_at=5)
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "store")
    assert took < 35


@pytest.mark.parametrize("what", [forever, stubborn])
@pytest.mark.parametrize("method", ["claim", "release", "beat"])
def test_silence_around_the_run_is_bounded_too(method, what):
    result, _, took, _ = fly(Odd(method, 1, what))
    assert took < 35
    if method == "claim":
        assert (result.outcome, result.cause.source) == (LoopOutcome.FAILED, "store")
    else:
        assert result.outcome is LoopOutcome.DONE


def rude(error):
    def what():
        raise error

    return what


def later(error):
    async def failing():
        raise error

    return failing


ODD = {
    "SystemExit": rude(SystemExit(3)),
    "CancelledError": rude(asyncio.CancelledError()),
    "GeneratorExit": rude(GeneratorExit()),
    "SystemExit later": later(SystemExit(3)),
    "CancelledError later": later(asyncio.CancelledError()),
    "KeyboardInterrupt later": later(KeyboardInterrupt()),
    "ZeroDivisionError later": later(ZeroDivisionError()),
    "True": lambda: True,
    "a list": list,
}


@pytest.mark.parametrize("durability", ["sync", "full"])
@pytest.mark.parametrize("number", [1, 2, 4, WRITES])
@pytest.mark.parametrize("what", ODD)
def test_whatever_a_store_raises_or_answers_fails_the_run_and_nothing_follows_in_the_journal(what, number, durability):
    store = Odd("append", number, ODD[what])
    result, _, _, _ = fly(store, durability=durability)
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "store")
    assert len(store._shelves["s"].commits) == number - 1
    assert "ended" not in [record.kind for record in store.written()]


def test_a_keyboard_interrupt_inside_the_store_cancels_the_run_and_is_not_taken_for_a_commit():
    store = Odd("append", 3, rude(KeyboardInterrupt()))
    result, _, _, _ = fly(store)
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "store")
    assert len(store._shelves["s"].commits) == 2


@pytest.mark.parametrize("what", [later(ZeroDivisionError()), later(SystemExit(1)), lambda: None, lambda: 7])
def test_a_claim_that_goes_wrong_is_a_typed_end_and_no_exception(what):
    result, done, _, _ = fly(Odd("claim", 1, what))
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "store")
    assert done == []


@pytest.mark.parametrize("what", [forever, later(ZeroDivisionError()), lambda: None, lambda: 7])
def test_a_load_that_goes_wrong_is_a_typed_end_and_no_exception(what):
    store = Odd("load", 1, what)

    async def flight():
        agent, _ = make(store, [])
        await agent.run("go", session="s")
        async with no_leftovers():
            return await agent.run("go on", session="s")

    result = VirtualClock().run(flight())
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "store")


@pytest.mark.parametrize("rounds", range(6))
@pytest.mark.parametrize("slow", [False, True])
def test_a_session_is_not_left_taken_by_a_run_that_was_cancelled_while_it_was_claimed(rounds, slow):
    class Slow(MemoryStore):
        async def claim(self, *args, **keywords):
            lease = await super().claim(*args, **keywords)
            if slow:
                await asyncio.sleep(0)
            return lease

    store = Slow()

    async def flight():
        agent, _ = make(store, [])
        task = asyncio.get_running_loop().create_task(agent.run("go", session="s"))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return store._shelves["s"].entry.owner if "s" in store._shelves else None

    owner = VirtualClock().run(flight())
    assert owner is None or (slow and rounds)  # one that stops in the middle keeps what it has taken


class Failing(SqliteStore):
    """Its n-th write fails, on whatever thread it is done."""

    number = 0

    def _append(self, held, commit, summary, connection):
        if commit.number == self.number:
            raise StoreError("the disk is full", kind="full")
        super()._append(held, commit, summary, connection)


@pytest.mark.parametrize("durability", ["sync", "full"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_g13_a_failed_commit_is_never_taken_for_written(number, durability, tmp_path):
    store = Failing(tmp_path / "s.db")
    store.number = number
    result, done, _, events = fly(store, durability=durability)
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "store")
    assert result.cause.metrics["kind"] == "full"
    assert len([event for event in events if type(event) is SessionSaved]) == number - 1

    async def look():
        journal = await read_journal(store, "s")
        await store.close()
        return journal

    journal = asyncio.run(look())
    assert [commit.number for commit in journal.commits] == list(range(1, number))
    assert journal.folded.result is None
    intents = [record for record in journal.records() if record.kind == "intent"]
    assert len(done) <= len(intents)
