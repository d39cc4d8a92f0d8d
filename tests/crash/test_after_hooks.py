"""What an after-hook takes out of a result is never written down, not even while its batch is still running."""

import asyncio

import pytest

from glidepath import Agent, Limits, LoopOutcome, Plugin, tool
from glidepath.sessions import MemoryStore
from glidepath.spi import AfterDecision
from glidepath.testing import ScriptedModel, VirtualClock, call, calls, transcript_errors

SECRET = "4111111111111111"


class Redaction(Plugin):
    def after_tool_call(self, context):
        return AfterDecision(content=context.result.text.replace(SECRET, "[card]"))


async def copied(store):
    """The store as it is on disk at this moment."""
    after = MemoryStore()
    lease = await after.claim("s", "x")
    for commit in (await store.load("s"))[1]:
        after.append(lease, commit)
    await after.release(lease)
    return after


def agent(store, turns, slow):
    @tool
    async def look() -> str:
        return f"card {SECRET}"

    @tool
    async def wait() -> str:
        await slow()
        return "waited"

    limits = Limits(max_iterations=4)
    return Agent(model=ScriptedModel(turns), tools=[look, wait], plugins=[Redaction()], limits=limits, store=store)


@pytest.mark.parametrize("batch", [[call("look")], [call("look"), call("wait")], [call("wait"), call("look")]])
def test_what_a_hook_takes_out_is_nowhere_in_the_journal_and_does_not_come_back_with_a_resume(batch):
    async def fly():
        store, copies = MemoryStore(), []

        async def crash_here():
            await asyncio.sleep(1)
            copies.append(await copied(store))

        result = await agent(store, [calls(*batch), "done"], crash_here).run("go", session="s")
        assert "card [card]" in [message.text for message in result.messages]
        copies.append(await copied(store))
        for one in copies:
            assert not any(SECRET.encode() in commit.body for commit in (await one.load("s"))[1])
        if len(copies) > 1:  # it died while the other call was running
            resumed = await agent(copies[0], ["done"], crash_here).resume("s")
            assert resumed.outcome is LoopOutcome.DONE
            assert SECRET not in repr(resumed.messages)
            assert transcript_errors(resumed.messages) == []

    VirtualClock().run(fly())
