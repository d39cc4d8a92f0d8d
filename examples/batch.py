"""500 tasks under one budget: twenty at a time, and when the money is spent the rest is told so, not dropped.

One `Agent` serves all of them: configuration is shared, state is per run. The `Budget` is the parent of every run, so
that no twenty runs together can spend what one of them could not.
"""

import asyncio
from collections import Counter
from decimal import Decimal

from glidepath import Agent, Budget, Limits, RunResult
from glidepath.models import ModelRequest
from glidepath.testing import ScriptedModel, Turn, VirtualClock, say

TASKS = [f"Sort letter {number} into a drawer." for number in range(500)]
AT_ONCE = 20
LIMIT = Decimal("0.50")


def clerk(request: ModelRequest) -> Turn:
    letter = int(request.messages[0].text.split()[2])
    return say(f"drawer {letter % 7}, because of what it says on the first page")


async def main() -> None:
    agent = Agent(
        model=ScriptedModel(delay=0.05, max_output_tokens=60, price=("15", "75")).forever(clerk),
        # Of each task. What is kept back for its last answer is kept back twenty times over: no more than it needs.
        limits=Limits(max_iterations=3, timeout=60, landing_tokens=60),
    )
    budget = Budget(Limits(max_cost=LIMIT, timeout=3600))  # of all of them
    door = asyncio.Semaphore(AT_ONCE)  # as many as the provider's rate limit bears

    async def one(task: str) -> RunResult:
        async with door:
            return await agent.run(task, parent=budget)

    results = await asyncio.gather(*[one(task) for task in TASKS])
    done = [result for result in results if result.outcome.name in {"DONE", "WRAPPED_UP"}]
    spent = sum(result.cost for result in results)
    print(f"{len(done)} of {len(TASKS)} tasks done, ${spent} of ${LIMIT} spent")
    for (outcome, reason), count in sorted(Counter(map(ending, results)).items()):
        print(f"  {count:>3} {outcome:<10} {reason}")
    again = [task for task, result in zip(TASKS, results, strict=True) if result not in done]
    print(f"for tomorrow: {again[0]!r} and {len(again) - 1} more")
    assert spent <= LIMIT  # noqa: S101 - the point of the example


def ending(result: RunResult) -> tuple[str, str]:
    return result.outcome.name, result.cause.source if result.cause else "finished by itself"


if __name__ == "__main__":
    VirtualClock().run(main())  # nobody waits for the replies here
