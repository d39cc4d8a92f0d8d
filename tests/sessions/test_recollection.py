"""A process remembers the long sessions it has read: a new prompt costs the same, however long the session is."""

import asyncio
import gc
import sys
import weakref

import pytest
from tests.crash.postgres import fresh_schema

from glidepath import Agent, Limits, Session, Usage, tool
from glidepath.agent.prepare import RunRequest, prepare
from glidepath.messages import CustomMessage, ImageBlock, TextBlock, UserMessage
from glidepath.run import LONG, TranscriptStats, characters_of
from glidepath.sessions import (
    MemoryStore,
    PostgresStore,
    SqliteStore,
    export_journal,
    fold_cache as recollection,
    import_journal,
    read_folded_state,
    read_journal,
)
from glidepath.spi import Commit
from glidepath.testing import ScriptedModel, call, say
from glidepath.values import replace

STORES = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "s.db"),
    "postgres": lambda _: PostgresStore(fresh_schema()),
}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(recollection, "_LEAST", 5)


@tool
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


def agent(store, *turns):
    model = ScriptedModel(list(turns), usage=Usage(input=100, output=5))
    return Agent(model=model, tools=[look], limits=Limits(max_iterations=2_000), store=store)


async def talk(store, turns=3, name="s"):
    return await agent(store, *[call("look", n=n) for n in range(turns)], say("so")).run("look", session=name)


def seen(folded):
    found = {name: value for name, value in vars(folded).items() if name != "session"}
    session = folded.session
    found |= {name: getattr(session, name) for name in ("id", "messages", "totals", "state", "version", "last")}
    return found | {"snapshot": folded.snapshot}


async def read_again(store, name="s"):
    """What a claim would find now, and how many commits were read for it."""
    asked = []
    load = store.load

    async def counting(session_id, *, since=0):
        entry, commits = await load(session_id, since=since)
        asked.append(len(commits))
        return entry, commits

    store.load = counting
    try:
        return await read_folded_state(store, name, 5), sum(asked)
    finally:
        del store.load


@pytest.mark.parametrize("kind", STORES)
def test_what_is_remembered_is_what_the_whole_journal_says(kind, tmp_path):
    async def scene():
        store = STORES[kind](tmp_path)
        for _ in range(4):
            await talk(store)
            whole = await read_journal(store, "s")
            found, asked = await read_again(store)
            assert seen(found) == seen(whole.folded)
        assert asked < whole.entry.head / 3
        assert (await read_again(store))[1] == 0
        await store.close()

    asyncio.run(scene())


@pytest.mark.parametrize("kind", ["sqlite"])
def test_what_another_process_writes_is_read(kind, tmp_path):
    async def scene():
        mine, theirs = STORES[kind](tmp_path), STORES[kind](tmp_path)
        await talk(mine)
        await talk(mine)
        await talk(theirs)
        result = await talk(mine)
        assert [one.text for one in result.messages if one.role == "user"] == ["look"] * 4
        found, _ = await read_again(mine)
        assert seen(found) == seen((await read_journal(theirs, "s")).folded)
        await mine.close()
        await theirs.close()

    asyncio.run(scene())


@pytest.mark.parametrize("kind", STORES)
def test_another_session_under_the_same_name_is_read_whole(kind, tmp_path):
    async def scene():
        store = STORES[kind](tmp_path)
        for _ in range(3):
            await talk(store)
        longer = await export_journal(store, "s")
        await store.rewind("s", at=3)
        found, _ = await read_again(store)
        assert seen(found) == seen((await read_journal(store, "s")).folded)
        await store.remove("s")
        await import_journal(store, longer)
        found, _ = await read_again(store)
        assert seen(found) == seen((await read_journal(store, "s")).folded)
        assert found.imported
        await store.close()

    asyncio.run(scene())


def test_a_changed_commit_is_noticed_though_all_before_it_is_remembered():
    async def scene():
        store = MemoryStore()
        await talk(store)
        await talk(store)
        await read_again(store)
        await talk(store)
        shelf = store._shelves["s"]
        last = shelf.commits[-1]
        shelf.commits[-1] = Commit(last.number, last.body.replace(b"so", b"no"), last.hash)
        result = await talk(store)
        assert result.cause.metrics["kind"] == "damaged"

    asyncio.run(scene())


def test_nobody_changes_what_is_remembered():
    async def scene():
        store = MemoryStore()
        for _ in range(2):
            await talk(store)
        found, _ = await read_again(store)
        found.fields["guards"]["intruder"] = {"n": 1}
        found.messages.clear()
        found.session.totals.runs = 99
        found.controls.append({})
        found.decisions["x"] = None
        again, _ = await read_again(store)
        assert seen(again) == seen((await read_journal(store, "s")).folded)

    asyncio.run(scene())


def test_a_store_remembers_a_few_sessions_and_goes_with_its_last_user(monkeypatch):
    monkeypatch.setattr(recollection, "_MOST_SESSIONS", 3)

    async def scene():
        store = MemoryStore()
        for number in range(5):
            for _ in range(2):
                await talk(store, name=f"s{number}")
        shelf = recollection._REMEMBERED[store]
        assert list(shelf) == ["s2", "s3", "s4"]
        monkeypatch.setattr(recollection, "_MOST_BYTES", 2.5 * shelf["s4"].weight)
        await talk(store, name="s3")
        assert list(shelf) == ["s3"]
        return weakref.ref(store)

    store = asyncio.run(scene())
    gc.collect()
    assert store() is None


# --- what is known of the messages ---------------------------------------------------------------------------------


def opened(messages, survey):
    """How a run begins with these messages, with and without a survey of them."""
    home = Session("s", messages=messages)
    home.survey = survey
    caught = []
    it = agent(None, say("end"))

    async def scene():
        run = prepare(RunRequest((UserMessage("go"),)), it._plan, home)
        caught.append(run.transcript)
        run.watch.stop_timer()

    asyncio.run(scene())
    return caught[0]


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8 + (40).to_bytes(4, "big") * 2


def long_talk(*, notices=False, custom=False, pictures=False):
    async def scene():
        home = Session("s")
        await agent(None, *[call("look", n=n) for n in range(LONG)], say("so")).run("look", session=home)
        if notices:
            home.messages.insert(1, UserMessage("hurry up", internal=True, reason="wind_down"))
            home.messages.append(UserMessage("enough", internal=True, reason="landing"))
        if custom:
            home.messages.insert(1, CustomMessage("note", {"a": 1}))
        if pictures:
            home.messages.append(UserMessage((TextBlock("see"), ImageBlock(media_type="image/png", data=PNG))))
        return home.messages

    return asyncio.run(scene())


@pytest.mark.parametrize("with_notices", [False, True])
@pytest.mark.parametrize("with_custom", [False, True])
@pytest.mark.parametrize("with_pictures", [False, True])
def test_a_run_begins_the_same_with_a_survey_and_without(with_notices, with_custom, with_pictures, monkeypatch):
    messages = long_talk(notices=with_notices, custom=with_custom, pictures=with_pictures)
    surveyed = opened(messages, TranscriptStats())
    monkeypatch.setattr("glidepath.agent.prepare.LONG", 1 << 60)
    plain = opened(messages, None)
    fields = ("messages", "sizes", "view", "view_tokens", "anchor", "first_new", "pinned", "call_ids", "stale")
    for name in (*fields, "picture_bytes"):
        assert getattr(surveyed, name) == getattr(plain, name), name
    assert (surveyed.apart is None) == (plain.apart is None)
    if not with_custom:
        assert surveyed.weighed_characters == sum(map(characters_of, plain.view))


def test_a_message_that_was_changed_is_looked_at_again():
    messages = long_talk()
    survey = TranscriptStats()
    opened(messages, survey)
    messages[2] = replace(messages[2], content="saw something that is much longer than it was before " * 9)
    transcript = opened(messages, survey)
    assert transcript.sizes == opened(messages, TranscriptStats()).sizes
    del messages[2]
    transcript = opened(messages, survey)
    assert "interrupted" in [getattr(one, "kind", None) for one in transcript.messages]


def opcodes_of(work):
    count = 0

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            count += 1
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # 3.12 counts none unless a frame has asked before
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", ["none", "memory", "sqlite"])
def test_a_prompt_in_a_long_session_takes_no_more_steps_than_in_a_short_one(kind, tmp_path):
    """Counted in opcodes: they do not depend on the machine."""

    async def prompts(turns, folder):
        folder.mkdir()
        store = None if kind == "none" else STORES[kind](folder)
        home = Session("s") if store is None else "s"
        await talk(store, turns, home)
        asked = agent(store, *[say("yes")] * 3)
        for _ in range(2):
            await asked.run("and?", session=home)
        loop = asyncio.new_event_loop()
        try:
            return await asyncio.to_thread(opcodes_of, lambda: loop.run_until_complete(asked.run("and?", session=home)))
        finally:
            loop.close()
            if store is not None:
                await store.close()

    short = asyncio.run(prompts(60, tmp_path / "short"))
    long = asyncio.run(prompts(600, tmp_path / "long"))
    assert long < 1.2 * short, (short, long)
