"""What type checkers must refuse about `deps`, per-run settings and hooks."""

from glidepath import Agent, Limits, Plugin, ToolContext, tool
from glidepath.spi import Block, ToolCallContext
from glidepath.testing import ScriptedModel

model = ScriptedModel(["hello"])
LIMITS = Limits(max_iterations=3)


class Shop:
    stock: int = 3


@tool
async def count(context: ToolContext[Shop]) -> int:
    """Count."""
    return context.deps.stok  # wrong


class Guard(Plugin):
    def before_tool_call(self, context: ToolCallContext[Shop]) -> str:  # wrong
        return context.deps.stok  # wrong


class Fine(Plugin):
    def before_tool_call(self, context: ToolCallContext[Shop]) -> Block | None:
        return None


agent = Agent(model=model, tools=[count], deps_type=Shop, limits=LIMITS)
agent.run_sync("Hi.", deps="shop")  # wrong
agent.stream_sync("Hi.", deps="shop")  # wrong
agent.resume_sync("s", deps="shop")  # wrong
agent.run_sync("Hi.", modle=model)  # wrong


async def go() -> None:
    await agent.run("Hi.", deps="shop")  # wrong
    await agent.run("Hi.", limits="many")  # wrong
    await agent.run("Hi.", modle=model)  # wrong
    await agent.run("Hi.", decisions={})  # wrong
    await agent.resume("s", deps="shop")  # wrong
    await agent.resume("s", session="s")  # wrong
    agent.stream("Hi.", deps="shop")  # wrong
    agent.stream("Hi.", sesion="s")  # wrong
    agent.run_sync("Hi.", deps="shop")  # wrong
    agent.stream_sync("Hi.", deps="shop")  # wrong
    agent.resume_sync("s", deps="shop")  # wrong
