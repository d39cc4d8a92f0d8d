"""A run with calls in the background, flown in a process that dies; for the fork server of `flights`."""

import asyncio
import os
import re
from pathlib import Path

from glidepath import Agent, ConfigurationError, Limits, tool
from glidepath.messages import AssistantMessage, ToolResultMessage
from glidepath.testing import Turn, call, say

STARTED = re.compile(r"Started in the background as (bg-\d+)")


class Pilot:
    """Starts a payment and an index, works a little, and collects what it has started."""

    name, max_output_tokens = "pilot", 400

    async def stream(self, request):
        from glidepath.testing import ScriptedModel

        async for delta in ScriptedModel([next_step(request.messages)], max_output_tokens=400).stream(request):
            yield delta


def next_step(messages) -> Turn:
    """The turn after these messages: the transcript alone says how far the run has come."""
    replies = [one for one in messages if isinstance(one, AssistantMessage)]
    results = [one for one in messages if isinstance(one, ToolResultMessage)]
    steps = ("pay", "index", "work", "work")
    if len(replies) < len(steps):
        return call(steps[len(replies)])
    ids = [found[1] for one in results if (found := STARTED.match(one.text))]
    collected = {one.arguments["id"] for reply in replies for one in reply.tool_calls if one.name == "collect"}
    left = [one for one in ids if one not in collected]
    return call("collect", id=left[0]) if left else say("Done.")


def make_tools(ledger):
    def write(line):
        with Path(ledger).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    @tool(background=True)
    async def pay() -> str:
        """Pay."""
        write("pay")
        await asyncio.sleep(0.02)
        write("paid")
        return "paid"

    @tool(background=True, idempotent=True)
    async def index() -> str:
        """Index."""
        write("index")
        await asyncio.sleep(0.02)
        return "indexed"

    @tool
    async def work() -> str:
        """Work."""
        await asyncio.sleep(0.01)
        return "worked"

    return [pay, index, work]


async def fly(leg, store):
    """One leg: start the run, or continue it."""
    agent = Agent(model=Pilot(), tools=make_tools(leg["ledger"]), limits=Limits(max_iterations=30), store=store)
    try:
        result = await agent.resume(leg["session"])
    except ConfigurationError:
        result = await agent.run("Go.", session=leg["session"])
    await store.close()
    return {
        "outcome": result.outcome.name,
        "calls": [one.id for m in result.messages if isinstance(m, AssistantMessage) for one in m.tool_calls],
        "results": [
            [m.call_id, m.tool_name, m.kind, m.text] for m in result.messages if isinstance(m, ToolResultMessage)
        ],
        "unknown": [one.name for one in result.unknown_effects],
    }
