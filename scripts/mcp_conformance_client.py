"""The client that the official MCP conformance scenarios drive: an agent of ours with a scripted model.

The framework calls it with the address of its test server, and names the scenario in MCP_CONFORMANCE_SCENARIO.
"""

from __future__ import annotations

import asyncio
import os
import sys

from glidepath import Agent, Limits, answer
from glidepath.mcp import McpServer
from glidepath.outcome import LoopOutcome
from glidepath.testing import ScriptedModel, call, say

CALLS = {
    "initialize": (),
    "tools_call": (call("add_numbers", a=5, b=3),),
    "elicitation-sep1034-client-defaults": (call("test_client_elicitation_defaults"),),
    "sse-retry": (call("test_reconnection"),),
}


async def main(url: str) -> int:
    """One run against the test server; a question is answered with nothing, so that the form's defaults hold."""
    turns = CALLS[os.environ["MCP_CONFORMANCE_SCENARIO"]]
    server = McpServer("conformance", url=url, mode="legacy", elicitation=True, required=True)
    agent = Agent(model=ScriptedModel([*turns, say("done")]), tools=[server], limits=Limits(max_iterations=9))
    async with agent:
        result = await agent.run("go")
        while result.outcome is LoopOutcome.PAUSED:
            result = await agent.resume(result, decisions={one.call.id: answer({}) for one in result.pending})
    print(result)
    for message in result.messages:
        print(f"  {message.role}: {message.text}")
    return 0 if result.outcome is LoopOutcome.DONE else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
