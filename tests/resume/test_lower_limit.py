"""Calls that were queued when the process died respect the limit that the resume sets."""

import asyncio

import pytest

from glidepath import Agent, Budget, Limits, tool
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, calls, say, transcript_errors, virtual


class Mortal(MemoryStore):
    """Takes nothing any more once it is dead; `revive` frees what the dead process held."""

    dead = False

    def append(self, *args, **keywords):
        if self.dead:
            raise StoreError("the process is dead")
        return super().append(*args, **keywords)

    def revive(self):
        self.dead = False
        for shelf in self._shelves.values():
            entry = shelf.entry
            shelf.entry = type(entry)(session_id=entry.session_id, head=entry.head, hash=entry.hash)


class Killed:
    """A run of five calls whose process dies in the second; the other three are queued."""

    def __init__(self):
        self.store, self.done = Mortal(), []

        @tool
        async def work(n: int) -> str:
            """Work."""
            self.done.append(n)
            if self.done == [1, 2]:
                self.store.dead = True
                await asyncio.sleep(1_000)
            return f"did {n}"

        self.tools = [work]

    def agent(self, model, limit=None):
        limits = Limits(max_iterations=9, max_tool_calls=limit)
        return Agent(model=model, tools=self.tools, limits=limits, store=self.store)

    async def die(self):
        batch = calls(*[call("work", n=n) for n in range(1, 6)])
        flight = asyncio.create_task(self.agent(ScriptedModel([batch]), 9).run("go", session="s"))
        await asyncio.sleep(1)
        flight.cancel()
        await asyncio.wait({flight})
        assert self.done == [1, 2]
        self.done.clear()
        self.store.revive()

    async def resume(self, limit=None, **more):
        result = await self.agent(ScriptedModel().forever(say("ok")), limit).resume("s", **more)
        assert transcript_errors(result.messages) == []
        return result


def kinds(result):
    return [message.kind for message in result.messages if message.role == "tool_result"]


@pytest.mark.parametrize(
    ("limit", "runs"),
    [(1, []), (2, []), (3, [3]), (4, [3, 4]), (5, [3, 4, 5]), (None, [3, 4, 5])],
)
@virtual
async def test_queued_calls_run_as_far_as_a_lower_limit_allows(limit, runs):
    killed = Killed()
    await killed.die()
    result = await killed.resume(limit)
    assert killed.done == runs
    assert kinds(result) == [None, "unknown_effect", *[None for _ in runs], *["skipped"] * (3 - len(runs))]
    assert result.tool_calls == 2 + len(runs)


@virtual
async def test_a_lower_limit_of_a_parent_budget_holds_for_queued_calls():
    killed = Killed()
    await killed.die()
    budget = Budget(Limits(max_tool_calls=1))
    result = await killed.resume(parent=budget)
    assert killed.done == [3]
    assert kinds(result) == [None, "unknown_effect", None, "skipped", "skipped"]
    assert budget.meter.tool_calls == 1
