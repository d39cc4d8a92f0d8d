"""`deps` have their type in tools, in hooks and in `run()`."""

from typing import Any, assert_type

from glidepath import Agent, Limits, Plugin, RunResult, ToolContext, tool
from glidepath.run import RunStream
from glidepath.spi import AfterDecision, Block, GateContext, PollContext, RunInfo, ToolCallContext, ToolResultContext
from glidepath.testing import ScriptedModel


class Shop:
    stock: int = 3


@tool
async def count(context: ToolContext[Shop]) -> int:
    """Count."""
    assert_type(context.deps, Shop)
    return context.deps.stock


@tool
def anything(context: ToolContext) -> str:
    """Anything."""
    return str(context.deps)


class Guard(Plugin):
    def before_tool_call(self, context: ToolCallContext[Shop]) -> Block | None:
        assert_type(context.deps.stock, int)
        return Block("sold out") if context.deps.stock == 0 else None

    async def after_tool_call(self, context: ToolResultContext[Shop]) -> AfterDecision | None:
        return AfterDecision(content=str(context.deps.stock))

    def tool_gate(self, context: GateContext) -> set[str] | None:
        return {"count"} if context.iteration else None

    def steering(self, context: PollContext) -> list[str]:
        return ["Hurry."]


def make(run: RunInfo) -> Shop:
    return Shop()


model = ScriptedModel(["hello"])
LIMITS = Limits(max_iterations=3)
agent = Agent(model=model, tools=[count], deps_type=Shop, deps_factory=make, plugins=[Guard()], limits=LIMITS)
assert_type(agent, Agent[None, Shop])
both = Agent(model=model, tools=[count], output_type=dict, deps_type=Shop, limits=LIMITS)
assert_type(both.run_sync("Hi.", deps=Shop()), RunResult[dict[Any, Any]])


async def go() -> None:
    assert_type(await agent.run("Hi.", deps=Shop(), limits=LIMITS, model="openai:gpt-5"), RunResult[None])
    await agent.resume("s", deps=Shop(), accept_repair=True)
    assert_type(agent.stream("Hi.", deps=Shop(), session="s"), RunStream[None])
    assert_type(agent.stream(resume="s", deps=Shop(), decisions={}), RunStream[None])
