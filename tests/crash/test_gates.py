"""A crash opens no gate: a call that its turn did not allow does not run when the run goes on."""

import asyncio

import pytest

from glidepath import Agent, Limits, LoopOutcome, Plugin, tool
from glidepath.plugins import OpeningGate, ToolListGate
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, VirtualClock, call, calls, transcript_errors

LIMITS = Limits(max_iterations=4)


class Own(Plugin):
    def tool_gate(self, context):
        return {"look"}


class Crashing(Plugin):
    def tool_gate(self, context):
        return {"look"} if context.iteration == 0 else 1 / 0


GATES = [ToolListGate(deny=["erase"]), OpeningGate(["look"]), Own(), Crashing()]


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: type(gate).__name__)
def test_g9_a_call_that_was_hidden_before_a_crash_is_hidden_after_it(gate):
    ran = []

    @tool
    async def look() -> str:
        ran.append("look")
        await asyncio.get_running_loop().create_future()
        return ""

    @tool
    async def erase() -> str:
        ran.append("erase")
        return "erased"

    def agent(store, *turns):
        return Agent(model=ScriptedModel(turns), tools=[look, erase], plugins=[gate], limits=LIMITS, store=store)

    async def die(store):
        task = asyncio.create_task(agent(store, calls(call("look"), call("erase"))).run("go", session="s"))
        await asyncio.sleep(1)  # of virtual time: it is inside the first tool by now
        assert ran == ["look"]
        after = MemoryStore()  # what is on disk at this moment
        commits = (await store.load("s"))[1]
        lease = await after.claim("s", "x")
        for commit in commits:
            after.append(lease, commit)
        await after.release(lease)
        task.cancel()
        await asyncio.wait({task})
        return after

    async def fly():
        after = await die(MemoryStore())
        ran.clear()
        return await agent(after, "done").resume("s")

    result = VirtualClock().run(fly())
    assert result.outcome is LoopOutcome.DONE
    assert ran == []
    assert transcript_errors(result.messages) == []
    assert result.messages[3].tool_name == "erase"
    assert result.messages[3].kind == "hidden_tool"
