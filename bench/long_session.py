"""A new prompt in a long session: `python -m bench.long_session [TURNS ...]`.

Each session is made of runs of 50 turns. Then the CPU time of reading it, from its last base and whole; of one more
prompt of one turn in a process that has just begun (the store is opened anew); and of one in a process that goes on
with a session it knows. Best of 5. The scripted model says what it used, so that its own count is left out.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from glidepath import Agent, Limits, Usage, tool
from glidepath.sessions import SqliteStore, read_folded_state, read_journal
from glidepath.testing import ScriptedModel, call, say

RUN = 50


@tool
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}, " + "and so on " * 20


async def fill(store, turns):
    for _ in range(turns // RUN):
        model = ScriptedModel([*[call("look", n=n) for n in range(RUN - 1)], say("done")])
        agent = Agent(model=model, tools=[look], limits=Limits(max_iterations=RUN + 5), store=store)
        await agent.run("go on", session="s")


async def cpu(work):
    best = None
    for _ in range(5):
        begin = time.process_time()
        await work()
        spent = (time.process_time() - begin) * 1000
        best = spent if best is None else min(best, spent)
    return best


STORES = {"sqlite": SqliteStore}


async def prompt(store):
    model = ScriptedModel([say("yes", usage=Usage(input=1_000_000, output=2))])
    agent = Agent(model=model, tools=[look], limits=Limits(max_iterations=5), store=store)
    result = await agent.run("and?", session="s")
    assert result.text == "yes", result


async def row(kind, turns, folder):
    def opened():
        return STORES[kind](Path(folder) / kind)

    await fill(opened(), turns)
    store = opened()
    head = (await store.load("s"))[0].head

    async def anew():
        store = opened()
        await prompt(store)
        await store.close()

    async def from_base():
        await read_folded_state(opened(), "s", head)

    based, whole, first = await cpu(from_base), await cpu(lambda: read_journal(store, "s")), await cpu(anew)
    again = await cpu(lambda: prompt(store))
    await store.close()
    print(f"{kind:>9} {turns:>6} {based:>13.1f} {whole:>9.1f} {first:>17.1f} {again:>12.1f}")


async def main():
    sizes = [int(word) for word in sys.argv[1:]] or [50, 500, 5000]
    print(f"{'store':>9} {'turns':>6} {'from base ms':>13} {'whole ms':>9} {'first prompt ms':>17} {'the next ms':>12}")
    for kind in STORES:
        for turns in sizes:
            with tempfile.TemporaryDirectory() as folder:
                await row(kind, turns, folder)


asyncio.run(main())
