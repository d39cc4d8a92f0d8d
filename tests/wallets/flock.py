"""One of several processes whose agents share a wallet: `flock.py ADDRESS LIMIT AGENTS SEED BILL KIND`.

The model bills outside, in a file, before it says anything: whatever happens to the process, the bill is the truth.
KIND is `journal` (runs are kept, and what a dead process left is resumed) or `plain`.
"""

import asyncio
import os
import random
import sys

from glidepath import Agent, Budget, Limits, tool
from glidepath.errors import ConfigurationError, StoreError
from glidepath.messages import AssistantMessage, StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.sessions import PostgresStore, SqliteStore

LEASE = 2.0
MOST_OUTPUT = 120


class Biller:
    """A model that says how much it costs before it answers, and takes a moment for it."""

    name = "biller"
    max_output_tokens = MOST_OUTPUT

    def __init__(self, bill, chance):
        self.handle = os.open(bill, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.chance = chance

    async def stream(self, request):
        turns = sum(type(message) is AssistantMessage for message in request.messages)
        size = sum(len(message.text) for message in request.messages) + 200 * len(request.tools)
        usage = Usage(max(1, size // 5), self.chance.randint(5, 40))
        os.write(self.handle, f"{usage.total}\n".encode())
        await asyncio.sleep(self.chance.random() * 0.02)
        if request.tools and turns < 4:
            yield ToolCallDelta(0, f"c{turns}", "look", f'{{"number": {turns}}}')
            yield StreamEnd("tool_use", usage)
            return
        yield TextDelta("that is all")
        yield StreamEnd("end_turn", usage)


@tool(idempotent=True)
async def look(number: int) -> str:
    """Look at something."""
    await asyncio.sleep(0)
    return f"{number} is fine"


def make_store(address):
    if address.startswith("postgresql:"):
        return PostgresStore(address, lease=LEASE, max_connections=4)
    return SqliteStore(address, lease=LEASE, busy=20.0)


def make_wallet(store, limit):
    above = Budget(Limits(), name="company", store=store)
    return Budget(Limits(max_tokens=limit), name="flock", store=store, per="month", parent=above)


async def main(address, limit, agents, seed, bill, kind):
    chance = random.Random(seed)
    store = make_store(address)
    journal = make_store(address) if kind == "elsewhere" else store
    wallet = make_wallet(store, limit)
    limits = Limits(max_iterations=12)
    agent = Agent(model=Biller(bill, chance), tools=[look], limits=limits, store=None if kind == "plain" else journal)

    async def take_over():
        """Go on with what others left."""
        try:
            entries = await journal.entries("flock-")
        except StoreError:  # the first process is about to make the file
            return
        for entry in entries:
            if entry.summary.get("outcome") is None:
                try:
                    await agent.resume(entry.session_id, parent=wallet)
                except ConfigurationError:
                    continue

    async def fly(number):
        for turn in range(10_000):
            result = await agent.run("Look.", session=f"flock-{seed}-{number}-{turn}", parent=wallet)
            if result.iterations == 0:
                return

    await asyncio.gather(*[fly(number) for number in range(agents)], *([take_over()] if kind == "journal" else []))
    await store.close()


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    ADDRESS, LIMIT, AGENTS, SEED, BILL, KIND = sys.argv[1:]
    asyncio.run(main(ADDRESS, int(LIMIT), int(AGENTS), int(SEED), BILL, KIND))
