"""How good is an agent, and what does that cost? A dataset, one budget for all of it, and a page with plots."""

import asyncio
from pathlib import Path

from glidepath import Agent, Limits, tool
from glidepath.evals import Dataset, evaluate
from glidepath.testing import ScriptedModel, call, say

HANDBOOK = {"Monday": "open 9:00 to 18:00", "Friday": "open 9:00 to 18:00", "Sunday": "closed", "coat": "30 days"}


@tool
async def look_up(word: str) -> str:
    """Look a word up in the shop's handbook."""
    return HANDBOOK.get(word, "nothing about that")


def answer(request):  # in place of a model: it looks up the word that it knows, and reads the result out
    if request.messages[-1].role == "tool_result":
        return say(f"The handbook says: {request.messages[-1].text}.")
    question = request.messages[-1].text
    return call("look_up", word=next((word for word in HANDBOOK if word in question), "?"))


agent = Agent(
    model=ScriptedModel(price=("3", "15")).forever(answer),  # a real one: "anthropic:claude-sonnet-4-5"
    tools=[look_up],
    limits=Limits(max_iterations=5),
)


async def main() -> None:
    dataset = Dataset.load(Path(__file__).with_suffix(".csv"))
    report = await evaluate(dataset, agent, budget=Limits(max_cost="0.10"))
    low, high = report.interval
    print(f"{report.passed} of {len(report.covered)} cases passed ({low:.0%} to {high:.0%}), for ${report.cost}")
    for one in report.failures_first:
        print(f"{one.case_id:<10} {'passed' if one.passed else 'FAILED'}  {one.turns} turns  ${one.cost}")


if __name__ == "__main__":
    asyncio.run(main())
