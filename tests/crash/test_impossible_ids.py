"""Ids that some store could not keep are in none of them: each says so in the same way, and names the id."""

import asyncio

import pytest

from glidepath import Agent, ConfigurationError, Limits
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore, PostgresStore, SegmentStore, SqliteStore
from glidepath.sessions.finding import annotate
from glidepath.spi.sessions import Note
from glidepath.testing import ScriptedModel, say

from .postgres import fresh_schema

STORES = {
    "memory": lambda place: MemoryStore(),
    "sqlite": lambda place: SqliteStore(place / "sessions.db"),
    "segments": lambda place: SegmentStore(place / "sessions"),
    "postgresql": lambda place: PostgresStore(fresh_schema()),
}
NOTE = Note(id="n", kind="message", body=b"{}")
ASKED = {
    "claim": lambda store, name: store.claim(name, "me"),
    "reclaim": lambda store, name: store.claim(name, "me", create=False),
    "load": lambda store, name: store.load(name),
    "flag": lambda store, name: store.flag(name, "stop"),
    "post": lambda store, name: store.post(name, NOTE),
    "notes": lambda store, name: store.notes(name),
    "pick": lambda store, name: store.pick(name, [1]),
    "annotate": lambda store, name: annotate(store, name, title="t"),
    "remove": lambda store, name: store.remove(name),
    "fork": lambda store, name: store.fork(name),
}


@pytest.mark.parametrize("kind", STORES)
def test_a_store_has_no_session_whose_id_has_nul_or_a_lone_surrogate_and_says_which(kind, tmp_path):
    async def scene():
        store = STORES[kind](tmp_path)
        await store.release(await store.claim("there", "me"))
        for name in ("a\0b", "a\ud800b"):
            for what, ask in ASKED.items():
                with pytest.raises(StoreError) as caught:
                    await ask(store, name)
                assert (what, caught.value.kind) == (what, "missing")
                assert repr(name) in str(caught.value), what
            assert await store.entries(name) == []
        await store.flag("there", "stop\0now")
        assert (await store.load("there"))[0].flag in ("stop\0now", "stop now")
        await store.close()

    asyncio.run(scene())


def test_a_run_refuses_such_an_id_before_it_begins():
    async def scene():
        agent = Agent(model=ScriptedModel([say("hi")]), store=MemoryStore(), limits=Limits(max_iterations=2))
        with pytest.raises(ConfigurationError, match=r"without lone surrogates and NUL characters, not 'a\\x00b'"):
            await agent.run("go", session="a\0b")

    asyncio.run(scene())
