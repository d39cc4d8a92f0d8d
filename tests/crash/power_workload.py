"""A life of a store, until it ends, is closed or is killed: power_workload.py STORE FOLDER MARKS SEED LIFE DURABILITY.

STORE is a name in `STORES`, or module:callable; it is given a path in FOLDER. Every line in MARKS is a promise.
"""

import asyncio
import logging
import os
import random
import sqlite3
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from glidepath import Agent, Budget, Limits, Usage, tool
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta
from glidepath.sessions import SqliteStore
from glidepath.spi import Note

SESSIONS, WALLETS = 4, 2


class ForgetfulStore(SqliteStore):
    """Says that a commit is on the disk when nobody has asked the disk."""

    def append(self, lease, commit, *, summary=None, durability="sync"):
        return super().append(lease, commit, summary=summary, durability="sync")


class Unsynced:
    """A connection that never asks the disk for anything, whatever it is told."""

    def execute(self, statement, *rest):
        if statement.startswith("PRAGMA synchronous"):
            statement = "PRAGMA synchronous = OFF"
        return super().execute(statement, *rest)


def connect_unsynced(connect, *where, factory=sqlite3.Connection, **options):
    """A connection of that kind, whichever kind the store asks for."""
    connection = connect(*where, factory=type("Unsynced", (Unsynced, factory), {}), **options)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


STORES = {"sqlite": SqliteStore, "forgetful": ForgetfulStore, "unsynced": SqliteStore}


def make_store(name, folder):
    """The store under test, with its files in this folder."""
    module, _, attribute = name.partition(":")
    kind = getattr(import_module(module), attribute) if attribute else STORES[name]
    return kind(f"{folder}/sessions.db")


class Model:
    """Calls a tool twice, then answers; what it costs is known."""

    name, max_output_tokens = "m", 100

    async def stream(self, request):
        last = max(at for at, message in enumerate(request.messages) if message.role == "user")
        done = sum(message.role == "tool_result" for message in request.messages[last:])
        await asyncio.sleep(0.0005)
        if not request.tools or done >= 2:
            yield TextDelta("done")
            yield StreamEnd("end_turn", Usage(10, 5))
        else:
            yield ToolCallDelta(index=0, id=f"c{last}.{done}", name="put", arguments='{"n": 1}')
            yield StreamEnd("tool_use", Usage(10, 5))


class Life:
    """One process that uses the store."""

    def __init__(self, store, folder, marks, seed, life, durability):
        self.chance = random.Random(f"{seed}/{life}")
        self.marks = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.name, self.durability = life, durability
        Path(folder).mkdir(parents=True, exist_ok=True)
        if store == "unsynced":
            sqlite3.connect = partial(connect_unsynced, sqlite3.connect)
        self.store = make_store(store, folder)
        self.append, self.store.append = self.store.append, self.marked_append

    def mark(self, *words):
        os.write(self.marks, (" ".join(map(str, words)) + "\n").encode())

    def marked_append(self, lease, commit, **options):
        words = (lease.session_id, commit.number, commit.hash.hex())
        self.mark("TRY", *words)
        later = self.append(lease, commit, **options)
        if later is None:
            self.mark("COMMIT", *words)
            return None

        async def wait():
            await later
            self.mark("COMMIT", *words)

        return wait()

    async def live(self):
        chance = self.chance

        @tool
        async def put(n: int) -> str:
            """Put something."""
            return "x" * chance.choice((10, 10, 3000))

        agent = Agent(
            model=Model(), tools=[put], limits=Limits(max_iterations=20), store=self.store, durability=self.durability
        )

        async def run(session):
            name = f"w{chance.randrange(WALLETS)}"
            wallet = Budget(Limits(max_tokens=1_000_000), name=name, store=self.store)
            result = await agent.run("go", session=session, parent=wallet)
            if result.ok:
                self.mark("SPENT", name, result.usage.total)

        for _ in range(chance.randint(1, 2)):
            names = chance.sample(range(SESSIONS), chance.randint(1, 3))
            await asyncio.gather(*[run(f"s{number}") for number in names])
            if chance.random() < 0.5:
                session, note = f"s{names[0]}", f"n{self.name}.{chance.randrange(1000)}"
                await self.store.post(session, Note(id=note, kind="message", body=b'"hello"'))
                self.mark("NOTE", session, note)

    async def end(self):
        how = self.chance.random()
        if how < 0.5:
            await self.store.close()
        elif how < 0.8:
            os.kill(os.getpid(), 9)


async def live(life, hold=None, ready=None):
    """Live and end; with `hold`, close first or do not, say so in a file, and wait for the power cut."""
    await life.live()
    if hold is None:
        await life.end()
    else:
        if hold == "closed":
            await life.store.close()
        os.close(os.open(ready, os.O_CREAT | os.O_WRONLY))
        await asyncio.sleep(60)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    arguments, more = sys.argv[1:7], sys.argv[7:]
    if random.Random(f"{arguments[3]}+{arguments[4]}").random() < 0.3 and not more:  # two at once
        two = [*arguments[:4], f"{arguments[4]}b", arguments[5]]
        other = subprocess.Popen([sys.executable, __file__, *two, "alone"])
        subprocess.run([sys.executable, __file__, *arguments, "alone"], check=False)
        other.wait()
    else:
        asyncio.run(live(Life(*arguments), *more[1:]))
        os._exit(0)
