"""A person decides: the run pauses, the process ends, and days later another process continues with the answer.

Nothing is held open while it waits. What runs is exactly what was approved, and the time spent waiting does not count.
"""

import asyncio
import tempfile
from pathlib import Path

from glidepath import Agent, Limits, approve, deny, tool
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call, calls, say

SENT = []
MOST = 1_000


@tool(requires_approval=True)
async def pay(who: str, amount: int) -> str:
    """Pay somebody."""
    SENT.append((who, amount))
    return f"paid {amount} to {who}"


def bookkeeper(store: SqliteStore, *script) -> Agent:
    """Each process makes its agent again, from the same code."""
    return Agent(model=ScriptedModel(script), tools=[pay], store=store, limits=Limits(max_iterations=10, timeout=60))


async def on_monday(store: SqliteStore) -> None:
    agent = bookkeeper(store, calls(call("pay", who="Ann", amount=120), call("pay", who="Eve", amount=9_000)))
    paused = await agent.run("Pay the open bills.", session="bills")
    print(f"monday: {paused.outcome.name}; paid so far: {SENT}")


async def on_thursday(store: SqliteStore) -> None:
    agent = bookkeeper(store, say("Ann is paid. Eve's bill was refused, I will ask her about it."))
    waiting = (await agent.resume("bills")).pending  # no decisions yet: it pauses again, without a call
    decisions = {}
    for one in waiting:  # a person would look at these on a screen
        arguments = one.call.arguments
        small = arguments["amount"] < MOST
        decisions[one.call.id] = approve() if small else deny("too much for one bill")
        print(f"thursday: {one.call.name} {arguments}: {'approved' if small else 'denied'}")
    result = await agent.resume("bills", decisions=decisions)
    print(f"thursday: {result.outcome.name}: {result.text}")
    print(f"paid: {SENT}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for day in (on_monday, on_thursday):
            store = SqliteStore(Path(folder) / "runs.db")  # a new process would open it again, too
            await day(store)
            await store.close()


if __name__ == "__main__":
    asyncio.run(main())
