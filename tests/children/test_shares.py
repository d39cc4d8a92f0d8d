"""A share of a run's budget: what is started with it spends from it, with its events or without."""

import asyncio

import pytest

from glidepath import Agent, Budget, Limits, ToolContext, tool
from glidepath.agent import call_of
from glidepath.testing import ScriptedModel, call, say


@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_child_on_a_share_of_the_budget_spends_from_it(way):
    child = Agent(model=ScriptedModel([say("x")]), limits=Limits(max_iterations=3))
    shares = []

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        share = Budget.inside(call_of(context), Limits(max_tokens=50_000))
        shares.append(share)
        if way == "run":
            return (await child.run("go", parent=share)).text
        async with child.stream("go", parent=share) as stream:
            async for _ in stream:
                pass
        return stream.result.text

    model = ScriptedModel([call("work"), say("done")])
    limits = Limits(max_iterations=5, max_tokens=100_000)
    result = asyncio.run(Agent(model=model, tools=[work], limits=limits).run("x"))
    assert result.children[0].usage.total > 0
    assert shares[0].meter.tokens == result.children[0].usage.total
