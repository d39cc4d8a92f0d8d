"""Research with a dollar limit: it reads until the money is nearly spent, then answers with what it has.

The price and the cap on one reply are what makes "ten cents" mean ten cents: the worst case of a call is reserved
before it is made, and a part of the budget is kept back for the last answer.
"""

import asyncio
import textwrap
from decimal import Decimal

from glidepath import Agent, Limits, tool
from glidepath.events import BudgetSettled, NoticeSent
from glidepath.models import ModelRequest
from glidepath.testing import ScriptedModel, Turn, call as asks, calls, say

LIMIT = Decimal("0.10")
SOURCES = {number: f"Source {number}: " + "bees dance, and the dance has a meaning. " * 40 for number in range(1, 100)}


@tool(read_only=True)  # nothing is changed, so calls may run side by side
async def read(source: int) -> str:
    """Read one source."""
    await asyncio.sleep(0.001)
    return SOURCES[source]


def researcher(request: ModelRequest) -> Turn:
    """A model that would read forever; say model="anthropic:claude-sonnet-4-5" for a real one."""
    if not request.tools:  # taken away: the last answer
        return say("Bees dance to tell each other where the flowers are. Some sources are unread.")
    done = sum(message.role == "tool_result" for message in request.messages)
    return calls(*[asks("read", source=done + number) for number in (1, 2, 3)])


async def main() -> None:
    agent = Agent(
        model=ScriptedModel(max_output_tokens=1_000).forever(researcher),
        tools=[read],
        system_prompt="You research thoroughly and name your sources.",
        limits=Limits(max_cost=LIMIT, max_iterations=50, timeout=120),  # money first; the others are seat belts
        prices={"scripted": ("3", "15")},  # dollars per million tokens; real models are in genai-prices
    )
    spent = Decimal(0)
    async with agent.stream("How do bees find flowers?") as stream:
        async for event in stream:
            if isinstance(event, BudgetSettled):
                spent += event.cost or 0
                print(f"spent ${spent:.4f} of ${LIMIT}")
            elif isinstance(event, NoticeSent):
                print(textwrap.fill(f"told the model: {event.text}", 78, subsequent_indent="  "))
    result = stream.result
    print(
        f"\n{result.outcome.name} because of {result.cause.source}, after {result.tool_calls} sources:\n{result.text}"
    )
    assert result.cost <= LIMIT  # noqa: S101 - the point of the example


if __name__ == "__main__":
    asyncio.run(main())
