"""The inbox: messages, decisions and stops reach a run through its store, and none is lost or taken twice."""

import asyncio
import os

import pytest

from glidepath import Agent, Limits, approve, deny, tool
from glidepath.errors import ConfigurationError, StoreError
from glidepath.messages import UserMessage
from glidepath.outcome import LoopOutcome
from glidepath.sessions import MemoryStore, PostgresStore, RedactingStore, SqliteStore, decide, send, stop, this_owner
from glidepath.testing import ScriptedModel, VirtualClock, call, say

from .postgres import fresh_schema

STEPS = 4


class Counter:
    """Makes so many calls, whatever else it is told; then says how many messages of people it has seen."""

    name = "counter"
    max_output_tokens = 100

    def __init__(self, steps=STEPS):
        self.steps = steps

    async def stream(self, request):
        results = sum(message.role == "tool_result" for message in request.messages)
        told = [message.text for message in request.messages if type(message) is UserMessage]
        step = call("act", n=results) if results < self.steps and request.tools else say(f"told {len(told)}")
        async for event in ScriptedModel([step]).stream(request):
            yield event


def make(store, *, steps=STEPS, pause=1.0, needs_approval=False, before=None):
    @tool(idempotent=True, requires_approval=needs_approval)
    async def act(n: int) -> str:
        if before is not None:
            await before(n)
        await asyncio.sleep(pause)
        return f"done {n}"

    return Agent(model=Counter(steps), tools=[act], store=store, limits=Limits(max_iterations=20))


def told(messages):
    return [message.text for message in messages if type(message) is UserMessage]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def opened(request, tmp_path):
    """A function that opens the same store again."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "s.db")
    address = fresh_schema()
    return lambda: PostgresStore(address)


# --- messages -----------------------------------------------------------------------------------------------------


def test_a_message_reaches_a_run_in_flight(opened):
    async def go():
        async def sent(n):
            if n == 1:
                await send(opened(), "s", "mind the gap")

        agent = make(opened(), before=sent, pause=0.4)
        return await agent.run("go", session="s")

    result = asyncio.run(go())
    assert result.outcome is LoopOutcome.DONE
    assert told(result.messages) == ["go", "mind the gap"]
    assert result.text == "told 2"


def test_a_message_that_comes_during_the_last_answer_keeps_the_run_going():
    store = MemoryStore()

    class Slow(Counter):
        async def stream(self, request):
            if len(told(request.messages)) < 2:
                await send(store, "s", "one more thing", note_id="once")
                await asyncio.sleep(2)
            async for event in super().stream(request):
                yield event

    agent = Agent(model=Slow(0), store=store, limits=Limits(max_iterations=9))
    result = VirtualClock().run(agent.run("go", session="s"))
    assert result.text == "told 2"


def test_a_message_to_a_session_in_which_nothing_flies_waits_for_the_next_run(opened):
    async def go():
        agent = make(opened(), steps=0)
        await agent.run("one", session="s")
        await send(opened(), "s", "by the way")
        second = await agent.run("two", session="s")
        third = await agent.run("three", session="s")
        return second, third

    second, third = asyncio.run(go())
    assert told(second.messages) == ["one", "two", "by the way"]
    assert told(third.messages) == ["one", "two", "by the way", "three"]


def test_what_a_run_took_and_could_not_deliver_waits_again():
    store = MemoryStore()

    async def go():
        async def sent(n):
            if n == 1:
                await send(store, "s", "too late")
                await asyncio.sleep(1)  # the run takes it
                await stop(store, "s", "enough")
                await asyncio.sleep(5)

        first = await make(store, before=sent).run("go", session="s")
        second = await make(store).run("again", session="s")
        return first, second

    first, second = VirtualClock().run(go())
    assert first.outcome is LoopOutcome.CANCELLED
    assert told(first.messages) == ["go"]
    assert [message.text for message in first.undelivered] == ["too late"]
    assert told(second.messages) == ["go", "again", "too late"]


def test_g13_a_run_that_dies_after_any_commit_has_each_message_once():
    """The journal is cut after each of its commits, as if the process had died there, and the run goes on."""
    store = MemoryStore()

    async def sent(n):
        if n in (0, 2):
            await send(store, "s", f"note {n}", note_id=f"n{n}")

    whole = VirtualClock().run(make(store, before=sent).run("go", session="s"))
    assert told(whole.messages) == ["go", "note 0", "note 2"]
    shelf = store._shelves["s"]
    commits = list(shelf.commits)

    async def resumed(head):
        other = MemoryStore()
        lease = await other.claim("s", this_owner())
        for commit in commits[:head]:
            other.append(lease, commit, summary=shelf.entry.summary)
        await other.release(lease)
        for note in shelf.notes:
            await other.post("s", note)
        return await make(other).resume("s")

    for head in range(1, len(commits)):
        result = VirtualClock().run(resumed(head))
        assert result.outcome is LoopOutcome.DONE
        assert sorted(told(result.messages)) == ["go", "note 0", "note 2"], head


class Mortal(SqliteStore):
    """Kills its process before or after its n-th commit."""

    def __init__(self, path, number, when):
        super().__init__(path)
        self.left, self.when = number, when

    def append(self, lease, commit, **keywords):
        self.left -= 1
        if not self.left and self.when == "before":
            os.kill(os.getpid(), 9)
        answer = super().append(lease, commit, **keywords)
        if not self.left:
            os.kill(os.getpid(), 9)
        return answer


@pytest.mark.process
@pytest.mark.parametrize("when", ["before", "after"])
def test_g13_kill_9_between_taking_and_committing_loses_and_doubles_no_message(tmp_path, when):
    """Every commit of a run that takes three messages is the one at which the process dies."""

    async def flight(store):
        async def sent(n):
            await send(SqliteStore(store.path), "s", f"note {n}", note_id=f"n{n}")

        return await make(store, before=sent, steps=3, pause=0.6).run("go", session="s")

    async def rest(path):
        store = SqliteStore(path)
        result = await make(store, steps=3, pause=0.0).resume("s")
        posted = [note.id for note in await store.notes("s")]
        return told(result.messages), [f"note {name[1:]}" for name in posted]

    children = {}
    for number in range(2, 8):
        path = tmp_path / f"{number}.db"
        pid = os.fork()
        if not pid:
            try:
                asyncio.run(flight(Mortal(path, number, when)))
            finally:
                os._exit(0)
        children[pid] = path
    for pid, path in children.items():
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
        seen, posted = asyncio.run(rest(path))
        assert sorted(seen) == sorted(["go", *posted]), path


@pytest.mark.parametrize("message", ["", "  ", "a\0b", 7, None, "\ud800"])
def test_what_no_model_can_be_told_is_not_sent(message):
    async def go():
        store = MemoryStore()
        await make(store, steps=0).run("go", session="s")
        await send(store, "s", message)

    with pytest.raises(ConfigurationError, match=r"send\(\) takes"):
        VirtualClock().run(go())


def test_a_message_to_no_session_is_refused(opened):
    async def go():
        await make(opened(), steps=0).run("go", session="s")
        await send(opened(), "other", "hello")

    with pytest.raises(StoreError, match="no session 'other'"):
        asyncio.run(go())


def test_a_store_without_an_inbox_says_so():
    class Plain:
        pass

    with pytest.raises(ConfigurationError, match="Plain has no inbox"):
        asyncio.run(send(Plain(), "s", "hello"))


def test_a_store_that_redacts_keeps_no_note_as_it_was_said():
    async def go():
        plain = MemoryStore()
        store = RedactingStore(plain, lambda text: text.replace("4711", "[pin]"))
        await make(store, steps=0).run("go", session="s")
        await send(store, "s", "my pin is 4711")
        with pytest.raises(ConfigurationError, match="this store redacts"):
            await decide(store, "s", {"c": approve({"pin": "4711"})})
        await decide(store, "s", {"c": approve()})
        result = await make(store, steps=0).run("again", session="s")
        return [note.body for note in await plain.notes("s")], told(result.messages)

    bodies, seen = VirtualClock().run(go())
    assert len(bodies) == 2
    assert not any(b"4711" in body for body in bodies)
    assert seen[-1] == "my pin is [pin]"


def test_a_fork_has_an_inbox_of_its_own_and_a_rewind_says_nothing_again():
    store = MemoryStore()

    async def go():
        agent = make(store, steps=0)
        await agent.run("one", session="s")
        await send(store, "s", "by the way")
        await agent.run("two", session="s")
        fork = await store.fork("s", at=2)
        await send(store, fork.session_id, "to the fork")
        forked = await agent.run("three", session=fork.session_id)
        await store.rewind("s", at=1)
        return forked, await agent.run("four", session="s")

    forked, rewound = VirtualClock().run(go())
    assert told(forked.messages)[-2:] == ["three", "to the fork"]
    assert "by the way" not in told(rewound.messages)


# --- decisions ----------------------------------------------------------------------------------------------------


def test_whoever_resumes_a_paused_run_finds_what_was_decided(opened):
    async def go():
        agent = make(opened(), steps=1, needs_approval=True, pause=0)
        paused = await agent.run("go", session="s")
        (waiting,) = paused.pending
        await decide(opened(), "s", {waiting.call.id: approve()})
        await decide(opened(), "s", {waiting.call.id: deny("too late")})
        done = await make(opened(), steps=1, needs_approval=True, pause=0).resume("s")
        return paused, done

    paused, done = asyncio.run(go())
    assert paused.outcome is LoopOutcome.PAUSED
    assert done.outcome is LoopOutcome.DONE
    assert [message.text for message in done.messages if message.role == "tool_result"] == ["done 0"]


def test_a_decision_about_a_call_that_waits_no_more_changes_nothing():
    async def go():
        store = MemoryStore()
        agent = make(store, steps=2, needs_approval=True)
        first = (await agent.run("go", session="s")).pending[0].call.id
        second = (await agent.resume("s", decisions={first: approve()})).pending[0].call.id
        await decide(store, "s", {first: deny("changed my mind")})
        await decide(store, "s", {second: deny("no")})
        return await agent.resume("s")

    result = VirtualClock().run(go())
    texts = [message.text for message in result.messages if message.role == "tool_result"]
    assert texts[0] == "done 0"
    assert "no" in texts[1]


@pytest.mark.parametrize("decisions", [{}, None, {"c": "yes"}, {7: approve()}, [approve()]])
def test_what_is_no_decision_is_refused(decisions):
    async def go():
        store = MemoryStore()
        await make(store, steps=0).run("go", session="s")
        await decide(store, "s", decisions)

    with pytest.raises(ConfigurationError, match="decisions"):
        VirtualClock().run(go())


# --- stops --------------------------------------------------------------------------------------------------------


def test_g7_a_stop_given_while_nobody_flies_is_found_by_whoever_takes_the_run_up(opened):
    async def go():
        agent = make(opened(), steps=1, needs_approval=True, pause=0)
        waiting = (await agent.run("go", session="s")).pending[0]
        decided = {waiting.call.id: approve()}
        await stop(opened(), "s", "stop this at once")
        stopped = await make(opened(), steps=1, needs_approval=True, pause=0).resume("s", decisions=decided)
        entry, _ = await opened().load("s")
        done = await make(opened(), steps=1, needs_approval=True, pause=0).resume("s")
        return stopped, entry, done

    stopped, entry, done = asyncio.run(go())
    assert (stopped.outcome, stopped.cause.reason) == (LoopOutcome.CANCELLED, "stop this at once")
    assert entry.flag is None  # it was obeyed
    assert done.outcome is LoopOutcome.DONE


def test_g7_a_stop_that_the_journal_has_acknowledged_stops_nothing_again():
    """The process died after the last commit, before the stop was taken back."""

    class Forgetful(MemoryStore):
        alive = False

        async def flag(self, session_id, reason):
            if reason is not None or self.alive:
                await super().flag(session_id, reason)

    store = Forgetful()

    async def go():
        async def stopped(n):
            if n == 1:
                await stop(store, "s", "enough")
                await asyncio.sleep(5)

        first = await make(store, before=stopped).run("go", session="s")
        left, store.alive = store._shelves["s"].entry.flag, True
        return first, left, await make(store).resume("s")

    first, left, second = VirtualClock().run(go())
    assert first.cause.reason == left == "enough"
    assert second.outcome is LoopOutcome.DONE


def test_a_stop_that_was_meant_for_an_earlier_run_does_not_stop_a_new_one(opened):
    async def go():
        agent = make(opened(), steps=1, pause=0.7)
        await agent.run("one", session="s")
        await stop(opened(), "s", "too late")
        return await agent.run("two", session="s")

    assert asyncio.run(go()).outcome is LoopOutcome.DONE
