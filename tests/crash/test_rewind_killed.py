"""kill -9 in the middle of a rewind: half a copy is never seen, and the next one leaves nothing of it behind."""

import asyncio
import subprocess
import sys

import pytest

from glidepath import Agent, Limits, tool
from glidepath.sessions import find_sessions, is_half_copy, read_journal, rewind
from glidepath.testing import ScriptedModel, call, say

from .flights import make_store
from .postgres import fresh_schema

DEATHS = 14

# One process makes all the sessions; each of its forks rewinds one, and dies at its own write, before or after it.
CRASHES = """
import asyncio, os, signal, sys
from tests.crash.test_rewind_killed import DEATHS, make_store, rewind, session_of_three_turns

address = sys.argv[1]


def dying(kind, left):
    class Dying(kind):
        def count(self):
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

        def append(self, *given, **more):
            self.count()
            done = super().append(*given, **more)
            if done is None:
                self.count()
                return None
            return self.counted(done)

        async def counted(self, done):
            await done
            self.count()

        async def cut(self, *given):
            self.count()
            await super().cut(*given)
            self.count()

    return Dying


async def make():
    store = make_store(address)
    for number in range(1, DEATHS + 1):
        await session_of_three_turns(store, f"s{number}")
    await store.close()


async def die(number):
    store = make_store(address)
    store.__class__ = dying(type(store), number)
    await rewind(store, f"s{number}", at=1)


asyncio.run(make())
for number in range(1, DEATHS + 1):
    child = os.fork()
    if not child:
        asyncio.run(die(number))
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""


@tool
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


async def session_of_three_turns(store, name):
    model = ScriptedModel([call("pay", to="ann"), call("pay", to="bob"), say("all paid")])
    await Agent(model=model, tools=[pay], store=store, limits=Limits(max_iterations=9)).run("pay", session=name)


def address_of(kind, tmp_path):
    places = {"sqlite": str(tmp_path / "sessions.db")}
    return places.get(kind) or fresh_schema()


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_killed_rewind_shows_no_half_copy_and_the_next_one_leaves_one_whole_copy(kind, tmp_path):
    address = address_of(kind, tmp_path)
    done = subprocess.run([sys.executable, "-c", CRASHES, address], capture_output=True, text=True, check=True)
    died = [int(status) == 9 for status in done.stdout.split()]
    assert sum(died) > DEATHS // 2  # they really were killed

    async def scene():
        store = make_store(address)
        seen = 0
        for number in range(1, DEATHS + 1):
            name = f"s{number}"
            listed = await find_sessions(store, prefix=f"{name}.fork-")
            for entry in listed.sessions:
                await read_journal(store, entry.session_id)  # whole
            raw = [one for one in await store.entries(f"{name}.fork-") if is_half_copy(one)]
            seen += len(raw)
            made = await rewind(store, name, at=1)
            copies = await store.entries(f"{name}.fork-")
            assert [one.session_id for one in copies if one.session_id == made.origin] == [made.origin], number
            assert not any(map(is_half_copy, copies)), number
            assert len(copies) == (1 if died[number - 1] else 2), number
            if died[number - 1]:  # else it was rewound twice
                assert len((await read_journal(store, made.origin)).folded.messages) == 6
            assert [m.text for m in (await read_journal(store, name)).folded.messages][2] == "paid ann"
        await store.close()
        return seen

    assert asyncio.run(scene())  # some of them had begun a copy
