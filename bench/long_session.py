"""A new prompt in a long session: `python -m bench.long_session [TURNS ...]`.

Each session is made of runs of 50 turns. Then the CPU time of reading it, from its last base and whole, and of one
more prompt of one turn, the store opened anew: best of 5.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from glidepath import Agent, Limits, tool
from glidepath.sessions import SqliteStore
from glidepath.sessions.archive import read_journal
from glidepath.sessions.bases import folded_state
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


async def main():
    sizes = [int(word) for word in sys.argv[1:]] or [50, 500, 5000]
    print(f"{'turns':>6} {'from base ms':>13} {'whole ms':>9} {'a prompt ms':>12}")
    for turns in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "s.db"
            await fill(SqliteStore(path), turns)
            store = SqliteStore(path)
            head = (await store.load("s"))[0].head
            based = await cpu(lambda store=store, head=head: folded_state(store, "s", head))
            whole = await cpu(lambda store=store: read_journal(store, "s"))

            async def prompt(path=path):
                model = ScriptedModel([say("yes")])
                agent = Agent(model=model, tools=[look], limits=Limits(max_iterations=5), store=SqliteStore(path))
                await agent.run("and?", session="s")
                await agent.config.store.close()

            asked = await cpu(prompt)
            print(f"{turns:>6} {based:>13.1f} {whole:>9.1f} {asked:>12.1f}")


asyncio.run(main())
