"""One of several processes that spend one wallet: `sharers.py ADDRESS TASKS AT_ONCE`; prints how many were done."""

import asyncio
import sys

from glidepath import Agent, Budget, Limits, Usage
from glidepath.sessions import PostgresStore, SqliteStore
from glidepath.testing import ScriptedModel, say

address, tasks, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


async def main():
    store = PostgresStore(address, max_connections=2) if address.startswith("postgresql:") else SqliteStore(address)
    model = ScriptedModel(max_output_tokens=200, delay=0.001, record=False, price=("3", "15"))
    agent = Agent(
        model=model.forever(say("ok " * 20, usage=Usage(input=52, output=20))), limits=Limits(max_iterations=3)
    )
    gate = asyncio.Semaphore(at_once)

    async def one(number):
        async with gate:
            wallet = Budget(Limits(max_tokens=6_000, max_cost="0.04"), name="team", store=store)
            return await agent.run(f"Item {number}", parent=wallet)

    results = await asyncio.gather(*[one(number) for number in range(tasks)])
    await store.close()
    print(sum(result.ok for result in results))


asyncio.run(main())
