"""Bases: a long session is read from its last base, which says exactly what the whole journal says."""

import asyncio

import pytest
from tests.crash.postgres import fresh_schema

from glidepath import Agent, Limits, LoopOutcome, Session, tool
from glidepath.sessions import (
    Folded,
    MemoryStore,
    PostgresStore,
    RedactingStore,
    SqliteStore,
    checkpoints as bases,
    export_journal,
    import_journal,
    read_folded_state,
    read_journal,
    repair,
)
from glidepath.sessions.checkpoints import Base
from glidepath.spi import Commit
from glidepath.testing import ScriptedModel, call, calls, say

LIMITS = Limits(max_iterations=50)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(bases, "SPAN", 6)


@tool
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


def agent(store, *turns, **fields):
    return Agent(model=ScriptedModel(list(turns)), tools=[look], limits=LIMITS, store=store, **fields)


async def talk(store, prompts, name="s"):
    for number in range(prompts):
        turns = (call("look", n=number), calls(call("look", n=1), call("look", n=2)), say(f"answer {number}"))
        await agent(store, *turns).run(f"prompt {number}", session=name)


def seen(folded):
    """Everything there is in a folded state, for comparing."""
    found = {name: value for name, value in vars(folded).items() if name != "session"}
    session = folded.session
    found |= {name: getattr(session, name) for name in ("id", "messages", "totals", "state", "version", "last")}
    return found | {"snapshot": folded.snapshot}


async def both(store, name="s"):
    whole = (await read_journal(store, name)).folded
    asked = []
    load = store.load

    async def counting(session_id, *, since=0):
        entry, commits = await load(session_id, since=since)
        asked.append(len(commits))
        return entry, commits

    store.load = counting
    try:
        found = await read_folded_state(store, name, whole.sequence)
    finally:
        del store.load
    return whole, found, asked


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redacting"])
def test_what_a_base_says_is_what_the_whole_journal_says(kind, tmp_path):
    async def scene():
        store = {
            "memory": MemoryStore,
            "sqlite": lambda: SqliteStore(tmp_path / "s.db"),
            "postgres": lambda: PostgresStore(fresh_schema()),
            "redacting": lambda: RedactingStore(MemoryStore(), str.upper),
        }[kind]()
        for rounds in range(1, 6):
            await talk(store, 2)
            whole, found, asked = await both(store)
            assert seen(found) == seen(whole)
            assert len(found.bases) == max(0, 2 * rounds - 1)
            if rounds > 1:
                assert asked[-1] <= 8, "the whole journal was read"
        await store.close()

    asyncio.run(scene())


def test_every_part_of_a_folded_state_is_in_a_base():
    """Whoever adds an attribute to `Folded` says here how a base keeps it."""
    kept = set(Base.__struct_fields__)
    between_runs = {"reserved", "intents", "results", "queued", "repaired"}  # empty when a base is written
    elsewhere = {"session", "bases", "based", "flag"}  # a stop is in the store, not in the journal
    assert set(vars(Folded())) == (kept & set(vars(Folded()))) | between_runs | elsewhere
    assert {"totals", "version", "result", "messages"} <= kept


def test_a_run_goes_on_from_a_base_as_from_the_whole():
    async def scene():
        store = MemoryStore()
        await talk(store, 4)
        cut = agent(store, *[call("look", n=n) for n in range(20)])
        stopped = await Agent(cut.config.__class__(**_fields(cut.config, limits=Limits(max_iterations=2)))).run(
            "long work", session="s"
        )
        assert stopped.outcome is not LoopOutcome.DONE
        await talk(store, 1)
        whole, found, _ = await both(store)
        assert seen(found) == seen(whole)
        result = await agent(store, say("end")).run("the end", session="s")
        assert result.messages[0].text == "prompt 0"
        assert result.text == "end"

    asyncio.run(scene())


def _fields(config, **changes):
    from glidepath._wire import asdict

    return {**asdict(config), **changes}


def test_a_session_object_and_a_name_see_the_same():
    async def scene():
        store = MemoryStore()
        home = Session("s")
        for number in range(6):
            await agent(store, call("look", n=1), say("x")).run(f"p {number}", session=home)
        whole, found, _ = await both(store)
        assert seen(found) == seen(whole)
        assert [m.text for m in found.messages] == [m.text for m in home.messages]

    asyncio.run(scene())


@pytest.mark.parametrize("harm", ["body", "older", "summary", "hash"])
def test_a_base_that_does_not_fit_is_not_believed(harm):
    async def scene():
        store = MemoryStore()
        await talk(store, 6)
        shelf = store._shelves["s"]
        number = shelf.entry.summary["base"]
        from glidepath.values import replace

        if harm in ("body", "older"):
            place = number - 1 if harm == "body" else (await read_journal(store, "s")).folded.bases[0][0] - 1
            old = shelf.commits[place]
            shelf.commits[place] = Commit(old.number, old.body.replace(b"answer", b"Answer"), old.hash)
        elif harm == "summary":
            shelf.entry = replace(shelf.entry, summary={**shelf.entry.summary, "base": number - 1})
        else:
            shelf.entry = replace(shelf.entry, hash=b"x" * 16)
        result = await agent(store, say("end")).run("go", session="s")
        if harm == "summary":
            assert result.text == "end"
        else:
            assert (result.outcome, result.cause.metrics["kind"]) == (LoopOutcome.FAILED, "damaged")

    asyncio.run(scene())


def test_copies_have_bases_of_their_own():
    async def scene():
        store = MemoryStore()
        await talk(store, 5)
        made = await store.fork("s", at=13, name="f")
        assert made.at == 13
        other = MemoryStore()
        await import_journal(other, await export_journal(store, "s"))
        await import_journal(other, await export_journal(store, "s"), session_id="copy")
        await store.rewind("s", at=7)
        store._shelves["s"].commits[9:10] = []
        await repair(store, "s")
        for where, name in ((store, "f"), (store, "s"), (other, "s"), (other, "copy")):
            assert "base" not in {k for k, v in where._shelves[name].entry.summary.items() if v}
            whole, found, _ = await both(where, name)
            assert seen(found) == seen(whole)
            await talk(where, 4, name)
            whole, found, asked = await both(where, name)
            assert seen(found) == seen(whole)
            assert asked[-1] <= 9, name

    asyncio.run(scene())


def test_a_base_is_found_at_its_place_and_not_by_walking_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr("glidepath.sessions.sqlite_journals._BATCH", 5)

    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        await talk(store, 6)
        number = (await store.load("s"))[0].summary["base"]
        asked = []
        store._group.connection().set_trace_callback(asked.append)
        (found,) = await store.pick("s", [number])
        store._group.connection().set_trace_callback(None)
        plans = [
            row[3]
            for one in asked
            if "FROM places" in one
            for row in store._group.connection().execute(f"EXPLAIN QUERY PLAN {one}")
        ]
        await store.close()
        return number, found.number, plans

    number, found, plans = asyncio.run(scene())
    assert number == found
    assert plans
    assert all(step.startswith("SEARCH") for step in plans)
