"""The n-th call of the store fails, for every n: a typed outcome each time, and the journal opens afterwards."""

import asyncio

import pytest

from glidepath import Agent, AgentState, CancelToken, Limits, LoopOutcome, tool
from glidepath.errors import RejectedError, StoreError, TransientError
from glidepath.sessions import MemoryStore, read_journal
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    VirtualClock,
    call,
    calls,
    no_leftovers,
    say,
    transcript_errors,
    virtual,
)

SCRIPT = [
    call("act", n=1),
    calls(call("act", n=2), call("act", n=3), call("act", n=4), text="half way"),
    call("act", n=5),
    say("all is done"),
]
WRITES = 11


class Faulty(MemoryStore):
    """Fails at its n-th write: before or after it is done, at once or later, with an error or a defect; or is slow."""

    def __init__(self, number, how):
        super().__init__()
        self.left = number
        self.how = how

    def append(self, lease, commit, **keywords):
        self.left -= 1
        if self.left and self.how == "later":
            return self._soon(lease, commit, keywords)
        if self.left:
            return super().append(lease, commit, **keywords)
        if self.how == "full":
            raise StoreError("the disk is full", kind="full")
        if self.how == "rude":
            raise ZeroDivisionError("a defect of the store")
        if self.how == "lost answer":
            super().append(lease, commit, **keywords)
            raise StoreError("the connection was lost")
        return self._fail_later(lease, commit, keywords)

    async def _soon(self, lease, commit, keywords):
        await asyncio.sleep(0.01)
        super().append(lease, commit, **keywords)

    async def _fail_later(self, lease, commit, keywords):
        await asyncio.sleep(5)
        if self.how == "later":
            raise StoreError("no answer in time")
        super().append(lease, commit, **keywords)


def make(store, done, begun=None, **config):
    @tool
    async def act(n: int) -> str:
        if begun is not None:
            begun.append(n)
        await asyncio.sleep(n / 10)
        done.append(n)
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


@pytest.mark.parametrize("how", ["full", "rude", "lost answer", "later"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_a_store_that_fails_ends_the_run_typed_and_opens_afterwards(how, number):
    done, begun = [], []

    async def fly():
        store = Faulty(number, how)
        agent, recorder = make(store, done, begun)
        async with no_leftovers():
            result = await agent.run("go", session="s")
        assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
        assert result.cause.source == "store"
        assert result.cause.metrics["kind"] == ("full" if how == "full" else "unavailable")
        assert transcript_errors(result.messages) == []
        assert result.text
        assert result.tool_calls == len(begun)
        recorder.assert_legal()
        return store

    store = VirtualClock().run(fly())

    async def look():
        try:
            return (await read_journal(store, "s")).folded
        except StoreError as error:
            return error

    folded = asyncio.run(look())
    if number == 1 and how != "lost answer":
        assert folded.messages == []
    else:
        assert folded.messages[0].text == "go"
    assert len(done) == len(set(done))


def test_there_are_as_many_writes_as_the_faults_above_assume():
    async def fly():
        store = MemoryStore()
        agent, _ = make(store, [])
        await agent.run("go", session="s")
        return (await store.load("s"))[0].head

    assert VirtualClock().run(fly()) == WRITES


@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_a_slow_store_delays_and_changes_nothing(number):
    async def fly():
        agent, recorder = make(Faulty(number, "slow"), [])
        result = await agent.run("go", session="s")
        recorder.assert_legal()
        return result

    result = VirtualClock().run(fly())
    assert result.outcome is LoopOutcome.DONE
    assert result.elapsed >= 5 or number == WRITES  # the last one is written when the time has been taken


@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_a_run_that_is_cancelled_while_a_slow_store_writes_starts_nothing_new(number):
    done, cancelled = [], []

    async def fly():
        token = CancelToken()
        store = Faulty(number, "slow")
        fail_later = store._fail_later

        async def cancelling(*args):
            asyncio.get_running_loop().call_later(1, stop)
            await fail_later(*args)

        def stop():
            cancelled.append(len(done))
            token.cancel("enough")

        store._fail_later = cancelling
        agent, recorder = make(store, done)
        async with no_leftovers():
            result = await agent.run("go", session="s", cancel=token)
        recorder.assert_legal()
        assert transcript_errors(result.messages) == []
        folded = (await read_journal(store, "s")).folded
        assert folded.result == result
        return result

    result = VirtualClock().run(fly())
    assert result.outcome in (LoopOutcome.CANCELLED, LoopOutcome.DONE)  # done: it was the last write
    assert (result.outcome is LoopOutcome.DONE) == (number == WRITES)
    if result.outcome is LoopOutcome.CANCELLED:
        assert len(done) - cancelled[0] <= 3  # what was in flight may end, nothing begins


@pytest.mark.parametrize("error", [RejectedError, TransientError, ValueError])
@virtual
async def test_half_a_surrogate_pair_in_a_provider_s_error_does_not_hide_it_from_the_journal(error):
    class Garbled:
        name = "garbled"
        max_output_tokens = 100

        async def stream(self, request):
            raise error("no such \ud800 thing")
            yield

    store = MemoryStore()
    agent = Agent(model=Garbled(), limits=Limits(max_iterations=4), store=store, max_retries=1)
    result = await agent.run("go", session="s1")
    assert (result.state, result.cause.source) == (AgentState.ERROR, "provider")
    assert "no such \ufffd thing" in result.cause.reason
    assert (await agent.resume("s1")).run_id == result.run_id
