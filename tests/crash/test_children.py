"""Children have journals of their own: a crash inside one repeats nothing, and what it spent is counted."""

import asyncio
from contextlib import suppress

import pytest

from glidepath import Agent, Limits, LoopOutcome, ToolContext, tool
from glidepath.sessions import MemoryStore, list_runs, read_journal
from glidepath.testing import ScriptedModel, VirtualClock, call, calls, say, transcript_errors

LIMITS = Limits(max_iterations=20, max_tokens=200_000)


class Dead(BaseException):
    """As good as a kill: nothing that is written to the store after this arrives."""


class Mortal(MemoryStore):
    """Takes no write after the n-th, from anybody, until it is revived."""

    def __init__(self, number):
        super().__init__()
        self.left = number

    def append(self, *args, **keywords):
        self.left -= 1
        if self.left < 0:
            raise Dead
        return super().append(*args, **keywords)

    def revive(self):
        self.left = 10**6
        for shelf in self._shelves.values():
            shelf.entry = shelf.entry.__class__(
                session_id=shelf.entry.session_id, head=shelf.entry.head, hash=shelf.entry.hash, token=shelf.entry.token
            )


def family(store, done, parent_turns, child_turns):
    @tool
    async def act(n: int) -> str:
        done.append(n)
        return f"did {n}"

    child = Agent(model=ScriptedModel(child_turns), tools=[act], limits=LIMITS, agent_name="child", prices=PRICES)
    helper = child.as_tool("delegate", "Hand over a task.")
    return Agent(model=ScriptedModel(parent_turns), tools=[helper], limits=LIMITS, store=store, prices=PRICES)


PRICES = {"scripted": ("3", "15")}
PARENT = [call("delegate", task="do it"), say("all done")]
CHILD = [call("act", n=1), call("act", n=2), say("child done")]


def test_a_child_has_a_journal_beside_its_parents():
    async def fly():
        store = MemoryStore()
        result = await family(store, [], PARENT, CHILD).run("go", session="s")
        assert result.outcome is LoopOutcome.DONE
        assert [entry.session_id for entry in await list_runs(store)] == ["s"]
        assert len(await list_runs(store, children=True)) == 2
        child = (await read_journal(store, "s/call_1.1")).folded
        assert child.result.text == "child done"
        assert child.opened.parent["session_id"] == "s"
        assert (await read_journal(store, "s")).folded.children[0].session_id == "s/call_1.1"

    VirtualClock().run(fly())


@pytest.mark.parametrize("number", range(2, 15))
def test_g13_a_crash_inside_a_child_repeats_nothing_and_forgets_no_spend(number):
    done = []

    async def die():
        store = Mortal(number)
        with suppress(Dead):
            await family(store, done, PARENT, CHILD).run("go", session="s")
        return store

    async def go_on(store):
        store.revive()
        parent = (await read_journal(store, "s")).folded
        asked = sum(message.role == "assistant" for message in parent.messages)
        try:
            child = (await read_journal(store, "s/call_1.1")).folded.messages
        except Exception:
            child = []
        answered = sum(message.role == "assistant" for message in child)
        agent = family(store, done, PARENT[asked:], CHILD[answered:])
        return await agent.resume("s")

    try:
        store = VirtualClock().run(die())
    except BaseException:
        pytest.fail("the loop must survive")
    result = VirtualClock().run(go_on(store))
    assert result.outcome is LoopOutcome.DONE, result.cause
    assert transcript_errors(result.messages) == []
    assert len(done) == len(set(done)), "an effect was repeated"
    unknown = [message for child in result.children for message in child.unknown_effects]
    assert sorted(done) == [1, 2] or unknown
    whole = asyncio.run(undisturbed())
    assert result.usage.total >= whole.usage.total


async def undisturbed():
    return await family(MemoryStore(), [], PARENT, CHILD).run("go", session="s")


def test_g13_what_a_child_of_an_unknown_call_spent_is_counted():
    """A tool that is not idempotent is not run again; what its child had used is still charged."""
    done = []

    def make(store, parent_turns, child_turns):
        child = Agent(model=ScriptedModel(child_turns), limits=LIMITS, agent_name="child", prices=PRICES)

        @tool
        async def once(context: ToolContext) -> str:
            done.append(1)
            return (await context.spawn(child, "think")).text

        return Agent(model=ScriptedModel(parent_turns), tools=[once], limits=LIMITS, store=store, prices=PRICES)

    async def fly():
        store = Mortal(6)  # the child has asked, and its answer is never written
        with suppress(Dead):
            await make(store, [call("once")], [say("deep thoughts")]).run("go", session="s")
        store.revive()
        before = (await read_journal(store, "s")).folded.snapshot
        result = await make(store, [say("so be it")], []).resume("s")
        return before, result

    before, result = VirtualClock().run(fly())
    assert done == [1]
    assert [one.name for one in result.unknown_effects] == ["once"]
    assert {spend.name for spend in result.breakdown if spend.kind == "child"} == {"child"}
    assert result.usage.total > before.tokens + 4096  # the child's call in flight, at its worst case


@pytest.mark.parametrize("number", range(2, 7))
def test_a_run_that_crashed_in_a_batch_is_closed_with_the_calls_that_began(number):
    begun = []

    @tool
    async def act(n: int) -> str:
        begun.append(n)
        return f"did {n}"

    async def fly():
        store = Mortal(number)
        batch = calls(*[call("act", n=n) for n in (1, 2, 3)])
        agent = Agent(model=ScriptedModel([batch]).forever(say("ok")), tools=[act], limits=LIMITS, store=store)
        with suppress(Dead):
            await agent.run("go", session="s")
        store.revive()
        result = await agent.run("again", session="s")
        assert result.outcome is LoopOutcome.DONE
        return (await read_journal(store, "s")).folded.session.totals.tool_calls

    assert VirtualClock().run(fly()) == len(begun)
