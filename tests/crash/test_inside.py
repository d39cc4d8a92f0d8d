"""A run that was started inside a tool or a hook, without a word about its parent, survives a crash like a child."""

import asyncio
import shutil
import sqlite3
from contextlib import closing, suppress

import pytest

from glidepath import Agent, Limits, LoopOutcome, Plugin, tool
from glidepath.sessions import MemoryStore, SqliteStore, list_runs, read_journal
from glidepath.testing import ScriptedModel, VirtualClock, call, say

from .test_children import CHILD, LIMITS, PARENT, PRICES, Dead, Mortal

ASKED = [call("go_on"), say("all done")]


def family(store, done, parent_turns, child_turns):
    """A parent whose tool runs the child by `agent.run`."""

    @tool
    async def act(n: int) -> str:
        done.append(n)
        return f"did {n}"

    child = Agent(model=ScriptedModel(child_turns), tools=[act], limits=LIMITS, agent_name="child", prices=PRICES)

    @tool(idempotent=True)
    async def delegate(task: str) -> str:
        return (await child.run(task)).text

    return Agent(model=ScriptedModel(parent_turns), tools=[delegate], limits=LIMITS, store=store, prices=PRICES)


def hooked(store, done, parent_turns, child_turns):
    """A parent whose hook runs the child before every call."""

    @tool
    async def act(n: int) -> str:
        done.append(n)
        return f"did {n}"

    @tool(idempotent=True)
    async def go_on() -> str:
        return "fine"

    child = Agent(model=ScriptedModel(child_turns), tools=[act], limits=LIMITS, agent_name="child", prices=PRICES)

    class Asks(Plugin):
        name = "asks"
        inheritable_to_child = False

        async def before_tool_call(self, context):
            await child.run(f"look at {context.call.name}")

    return Agent(
        model=ScriptedModel(parent_turns), tools=[go_on], limits=LIMITS, store=store, prices=PRICES, plugins=[Asks()]
    )


async def children_of(store, session="s"):
    return [entry.session_id for entry in await list_runs(store, children=True) if entry.session_id != session]


@pytest.mark.parametrize(("make", "turns"), [(family, PARENT), (hooked, ASKED)], ids=["tool", "hook"])
def test_a_run_inside_has_a_journal_beside_its_parents(make, turns):
    async def fly():
        store = MemoryStore()
        result = await make(store, [], turns, CHILD).run("go", session="s")
        assert result.outcome is LoopOutcome.DONE
        assert [entry.session_id for entry in await list_runs(store)] == ["s"]
        (child,) = await children_of(store)
        assert (await read_journal(store, child)).folded.result.text == "child done"

    VirtualClock().run(fly())


@pytest.mark.parametrize(("make", "turns"), [(family, PARENT), (hooked, ASKED)], ids=["tool", "hook"])
@pytest.mark.parametrize("number", range(2, 15))
def test_g13_a_crash_in_a_run_inside_repeats_nothing_and_forgets_no_spend(number, make, turns):
    done = []

    async def die():
        store = Mortal(number)
        with suppress(Dead):
            await make(store, done, turns, CHILD).run("go", session="s")
        return store

    async def go_on(store):
        store.revive()
        parent = (await read_journal(store, "s")).folded
        asked = sum(message.role == "assistant" for message in parent.messages)
        answered = 0
        for child in await children_of(store):
            with suppress(Exception):
                messages = (await read_journal(store, child)).folded.messages
                answered += sum(message.role == "assistant" for message in messages)
        return await make(store, done, turns[asked:], CHILD[answered:]).resume("s")

    result = VirtualClock().run(go_on(VirtualClock().run(die())))
    assert result.outcome is LoopOutcome.DONE, result.cause
    assert len(done) == len(set(done)), "an effect was repeated"
    unknown = [message for child in result.children for message in child.unknown_effects]
    assert sorted(done) == [1, 2] or unknown
    whole = VirtualClock().run(make(MemoryStore(), [], turns, CHILD).run("go", session="s"))
    assert result.usage.total >= whole.usage.total


def test_g13_a_run_inside_is_found_again_in_sqlite(tmp_path):
    """The process dies while the child works: the child that goes on is the one that had begun."""
    disk, copy, done, begun = tmp_path / "disk", tmp_path / "copy", [], asyncio.Event()
    disk.mkdir()

    def make(folder, parent_turns, child_turns):
        @tool(idempotent=True)
        async def wait() -> str:
            if not begun.is_set():
                begun.set()
                await asyncio.Event().wait()
            done.append(1)
            return "waited"

        child = Agent(model=ScriptedModel(child_turns), tools=[wait], agent_name="child")

        @tool(idempotent=True)
        def delegate() -> str:
            return child.run_sync("think").text

        store = SqliteStore(folder / "runs.db")
        return Agent(model=ScriptedModel(parent_turns), tools=[delegate], limits=Limits(max_iterations=9), store=store)

    async def die():
        flight = asyncio.create_task(make(disk, [call("delegate")], [call("wait")]).run("go", session="s"))
        await begun.wait()
        shutil.copytree(disk, copy)  # what the disk had when the process died
        flight.cancel()
        with suppress(asyncio.CancelledError):
            await flight

    asyncio.run(die())
    with closing(sqlite3.connect(copy / "runs.db")) as dead, dead:
        dead.execute("UPDATE sessions SET expires = 0")  # its leases have run out
    result = asyncio.run(make(copy, [say("all done")], [say("child done")]).resume("s"))
    assert result.outcome is LoopOutcome.DONE, result.cause
    assert [child.text for child in result.children] == ["child done"]
    assert done == [1]
    assert asyncio.run(children_of(SqliteStore(copy / "runs.db"))) == ["s/call_1.1"]
