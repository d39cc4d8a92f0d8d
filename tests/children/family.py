"""Parents and children for the tests of this folder."""

import asyncio

from glidepath import Agent, Limits, ToolContext, tool
from glidepath.testing import ScriptedModel, call, calls, say

__all__ = ["ROOMY", "child_of", "delegating", "fanning", "stubborn_tool"]

ROOMY = Limits(max_iterations=200, max_descendants=100)


def child_of(*turns, limits=ROOMY, **more):
    return Agent(model=ScriptedModel(turns, name="child-model"), limits=limits, agent_name="child", **more)


def delegating(*children, limits=ROOMY, at_once=False, child_limits=None, **more):
    """A parent that gives each child a task: one call after the other, or all in one turn; then it answers."""
    results = []

    @tool(parallel_safe=True)
    async def delegate(number: int, context: ToolContext) -> str:
        """Delegate."""
        result = await context.spawn(children[number], f"task {number}", child_limits)
        results.append(result)
        return result.text

    asked = [call("delegate", number=number) for number in range(len(children))]
    turns = [calls(*asked)] if at_once else asked
    model = ScriptedModel([*turns, say("the parent's answer")], name="parent-model")
    return Agent(model=model, tools=[delegate], limits=limits, agent_name="parent", **more), results


def fanning(child, width, *, limits=ROOMY, turns=None, **more):
    """A parent whose one tool call spawns `width` children together."""
    results = []

    @tool
    async def fan(context: ToolContext) -> str:
        """Fan out."""
        tasks = [context.spawn(child, f"task {number}") for number in range(width)]
        results.extend(await asyncio.gather(*tasks))
        return "all back"

    model = ScriptedModel(turns or [call("fan"), say("the parent's answer")], name="parent-model")
    return Agent(model=model, tools=[fan], limits=limits, agent_name="parent", **more), results


def stubborn_tool(seconds=5.0):
    """A tool that swallows every cancellation for a while."""

    @tool
    async def stubborn() -> str:
        """Never give up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                continue
        return "done"

    return stubborn
