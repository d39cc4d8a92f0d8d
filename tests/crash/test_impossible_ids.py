"""Ids that some store could not keep are in none of them: each says so in the same way, and names the id."""

import asyncio

import pytest

from glidepath import Agent, ConfigurationError, Limits, approve
from glidepath.errors import StoreError
from glidepath.sessions import (
    MemoryStore,
    PostgresStore,
    SqliteStore,
    annotate,
    decide,
    export_journal,
    remove_sessions,
    send,
    stop,
)
from glidepath.spi import Note
from glidepath.testing import ScriptedModel, say

from .postgres import fresh_schema

STORES = {
    "memory": lambda place: MemoryStore(),
    "sqlite": lambda place: SqliteStore(place / "sessions.db"),
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
    "export": export_journal,
    "set_wallet": lambda store, name: store.set_wallet(name, max_tokens=1, max_money=None),
    "close_wallet": lambda store, name: store.close_wallet(name),
    "remove_wallet": lambda store, name: store.remove_wallet(name),
}
IMPOSSIBLE = ("a\0b", "a\ud800b")


@pytest.mark.parametrize("kind", STORES)
def test_a_store_has_no_session_whose_id_has_nul_or_a_lone_surrogate_and_says_which(kind, tmp_path):
    async def scene():
        store = STORES[kind](tmp_path)
        await store.release(await store.claim("there", "me"))
        for name in IMPOSSIBLE:
            for what, ask in ASKED.items():
                with pytest.raises(StoreError) as caught:
                    await ask(store, name)
                assert (what, caught.value.kind) == (what, "missing")
                assert repr(name) in str(caught.value), what
            with pytest.raises(ConfigurationError, match="valid Unicode, without lone surrogates and NUL"):
                await store.fork(name)
            assert await store.entries(name) == []
            assert not await store.wallets(name)
        await store.close()

    asyncio.run(scene())


@pytest.mark.parametrize("kind", STORES)
def test_removing_many_skips_such_an_id_and_removes_the_others(kind, tmp_path):
    async def scene():
        store = STORES[kind](tmp_path)
        for name in ("one", "two"):
            await store.release(await store.claim(name, "me"))
        assert await store.remove_many(["one", *IMPOSSIBLE]) == ["one"]
        assert await remove_sessions(store, [*(f"team:{name}" for name in IMPOSSIBLE), "two"]) == ["two"]
        assert await store.entries() == []
        await store.close()

    asyncio.run(scene())


@pytest.mark.parametrize("kind", STORES)
def test_a_stop_is_given_whatever_its_reason_has_in_it(kind, tmp_path):
    async def scene():
        store = STORES[kind](tmp_path)
        await store.release(await store.claim("there", "me"))
        for reason in ("stop\0now", "stop\ud800now"):
            await stop(store, "there", reason)
            flag = (await store.load("there"))[0].flag
            assert flag[:4] + flag[-3:] == "stopnow"
            flag.encode()
            await store.flag("there", None)
        await store.close()

    asyncio.run(scene())


def test_a_decision_about_a_call_with_such_an_id_is_refused():
    async def scene():
        store = MemoryStore()
        await store.release(await store.claim("there", "me"))
        with pytest.raises(ConfigurationError, match=r"'a\\ud800b' is not the id of a call"):
            await decide(store, "there", {"a\ud800b": approve()})
        with pytest.raises(ConfigurationError, match=r"note_id 'a\\ud800b'"):
            await send(store, "there", "hello", note_id="a\ud800b")

    asyncio.run(scene())


def test_a_run_refuses_such_an_id_before_it_begins():
    async def scene():
        agent = Agent(model=ScriptedModel([say("hi")]), store=MemoryStore(), limits=Limits(max_iterations=2))
        with pytest.raises(ConfigurationError, match=r"without lone surrogates and NUL characters, not 'a\\x00b'"):
            await agent.run("go", session="a\0b")

    asyncio.run(scene())
