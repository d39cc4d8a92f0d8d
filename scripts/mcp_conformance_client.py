"""The client that the official MCP conformance scenarios drive: an agent of ours with a scripted model.

The framework calls it with the address of its test server, and names the scenario in MCP_CONFORMANCE_SCENARIO.
"""

from __future__ import annotations

import asyncio
import os
import sys

import httpx2

from glidepath import Agent, Limits, answer
from glidepath.mcp import McpServer
from glidepath.mcp.oauth_login import Login
from glidepath.outcome import LoopOutcome
from glidepath.testing import ScriptedModel, call, say

AUTH = (call("test-tool"),)
CALLS = {
    "initialize": (),
    "tools_call": (call("add_numbers", a=5, b=3),),
    "elicitation-sep1034-client-defaults": (call("test_client_elicitation_defaults"),),
    "sse-retry": (call("test_reconnection"),),
}


async def main(url: str) -> int:
    """One run against the test server."""
    turns = CALLS.get(os.environ["MCP_CONFORMANCE_SCENARIO"], AUTH)
    async with Login(visit) as login:
        auth = login if turns is AUTH else None
        server = McpServer("conformance", url=url, mode="legacy", elicitation=True, required=True, auth=auth)
        return await flown(server, turns)


async def visit(address: str) -> None:
    """Go where a person would go, and come back with the browser's redirect."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(address)


async def flown(server: McpServer, turns: tuple[object, ...]) -> int:
    """One run; a question is answered with nothing, so that the form's defaults hold."""
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
