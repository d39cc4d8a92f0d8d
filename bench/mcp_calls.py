"""What a call of an MCP server's tool costs, against the same call with the SDK alone; and how long a line may hold us.

    python bench/mcp_calls.py [--calls 300] [--rounds 7]

CPU time of this process, interleaved, best of several rounds against best of several: the server's own time is not in
it. The same call on stdio, four ways: with the SDK's client and its own transport; with our tool, invoked as a run
invokes it; in a run of an agent whose tool is a function around the SDK's client; and in a run that has our server.
The second part sends a line of 32 MiB while a neighbor on the loop does turns, and says how long it had to wait.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from mcp import Client, StdioServerParameters

from glidepath import Agent, Limits, tool
from glidepath.mcp import McpServer
from glidepath.testing import ScriptedModel, call, say

FAKE = str(Path(__file__).parents[1] / "tests" / "mcp_client" / "fake_server.py")


def server(**setup):
    return McpServer("bench", command=sys.executable, args=["-S", FAKE, json.dumps(setup)])


async def with_sdk(client, calls):
    began = time.process_time()
    for number in range(calls):
        await client.call_tool("echo", {"text": f"hello {number}"})
    return (time.process_time() - began) / calls


async def with_tool(echo, calls):
    began = time.process_time()
    for number in range(calls):
        bound = echo.bind({"text": f"hello {number}"})
        await echo.invoke(bound.values)
    return (time.process_time() - began) / calls


async def with_run(name, calls, **settings):
    turns = [say("warm"), *[call(name, text=f"hello {number}") for number in range(calls)], say("done")]
    agent = Agent(model=ScriptedModel(turns), limits=Limits(max_iterations=10 * calls), **settings)
    async with agent:
        await agent.run("start the server")
        began = time.process_time()
        result = await agent.run("go")
        took = time.process_time() - began
    assert result.outcome.name == "DONE", result
    return took / calls


async def costs(calls, rounds):
    supply = server(tools=["echo"]).open()
    [echo] = await supply.tools()
    rows = {"sdk": [], "tool": [], "sdk run": [], "run": []}
    parameters = StdioServerParameters(command=sys.executable, args=["-S", FAKE, json.dumps({"tools": ["echo"]})])
    async with Client(parameters, cache=None) as client:
        for _ in range(rounds):
            rows["sdk"].append(await with_sdk(client, calls))
            rows["tool"].append(await with_tool(echo, calls))

        @tool
        async def around(text: str) -> str:
            """Say it back."""
            return (await client.call_tool("echo", {"text": text})).content[0].text

        for _ in range(rounds):
            rows["sdk run"].append(await with_run("around", calls, tools=[around]))
            rows["run"].append(await with_run("echo", calls, tools=[server(tools=["echo"])]))
    await supply.close()
    best = {name: min(taken) for name, taken in rows.items()}
    print(f"a call with the SDK alone           {best['sdk'] * 1e6:7.0f} us")
    print(f"the same call of our tool           {best['tool'] * 1e6:7.0f} us   {best['tool'] / best['sdk']:.2f}x")
    print(f"a turn of a run, tool with the SDK  {best['sdk run'] * 1e6:7.0f} us")
    print(f"the same turn with our server       {best['run'] * 1e6:7.0f} us   {best['run'] / best['sdk run']:.2f}x")
    return best


TURN = 0.001  # seconds between two turns of the neighbor


async def neighbor(stop):
    """Turns of another agent's loop: how long each had to wait for the loop, in CPU and in wall time."""
    waits, walls = [], []
    while not stop.is_set():
        cpu, wall = time.thread_time(), time.monotonic()
        await asyncio.sleep(TURN)
        waits.append(time.thread_time() - cpu)  # what the loop did meanwhile
        walls.append(time.monotonic() - wall - TURN)  # how much later than asked for
    return max(waits), max(walls)


async def line():
    agent = Agent(
        model=ScriptedModel([call("echo", text="warm"), call("long", mib=32), say("done")]),
        tools=[server(tools=["echo", "long"])],
        limits=Limits(max_iterations=5),
    )
    stop = asyncio.Event()
    beside = None
    async with agent, agent.stream("go") as stream:
        async for event in stream:
            if type(event).__name__ == "ToolStarted" and event.tool_name == "long":
                beside = asyncio.create_task(neighbor(stop))
    stop.set()
    cpu, wall = await beside
    print(f"a line of 32 MiB came in: a neighbor waited at most {cpu * 1e3:.1f} ms (CPU), {wall * 1e3:.1f} ms (wall)")
    return cpu


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    asyncio.run(costs(options.calls, options.rounds))
    asyncio.run(line())
