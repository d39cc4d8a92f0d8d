"""A replay gives a client the recorded replies, offline; a request that is another one is named with the field."""

import asyncio
import contextlib
import json
import sqlite3

import pytest
from tests.gate.foreign import LOOPS, fly_anthropic, in_real_time
from tests.gate.kept import names_in
from tests.gate.plain import Talk
from tests.gate.recordings.taped import SESSION, play, record_behind, replay

from glidepath.apps.gate.recordings import Place, read_tape
from glidepath.gate import Upstream
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing.upstream import ScriptedUpstream
from glidepath.values import StoreError

HEADERS = [(b"content-type", b"application/json"), (b"anthropic-version", b"2023-06-01")]


async def record(behavior="honest", fly=fly_anthropic, *, store=None, options=None, **flight):
    store = store or MemoryStore()
    async with record_behind(behavior, store, **(options or {})) as flown:
        return store, await fly(flown.url, flown.key, **flight)


@pytest.mark.parametrize("dialect", LOOPS)
@in_real_time
async def test_a_client_gets_the_same_replies_without_a_model(dialect):
    store, before = await record(fly=LOOPS[dialect])
    after, played = await replay(store, lambda gate: LOOPS[dialect](gate.url, gate.key))
    assert (after.text, after.calls, after.results) == (before.text, before.calls, before.results)
    assert played.is_same
    assert (played.replayed, played.total) == (4, 4)


@in_real_time
async def test_a_landed_run_is_replayed_as_it_landed():
    store, before = await record("loop", options={"max_tokens": 3_000})
    after, played = await replay(store, lambda gate: fly_anthropic(gate.url, gate.key))
    assert after.text == before.text
    assert played.is_same


async def ask(gate, body, *headers):
    """One request with exactly these bytes."""
    async with Talk(gate) as talk:
        talk.send(f"/{gate._line}/v1/messages", json.dumps(body).encode(), key=gate.key, headers=[*HEADERS, *headers])
        head = await talk.read_head()
        return head, [piece async for piece in talk.read_body(head)]


def body_of(text="hi", **members):
    said = [{"role": "user", "content": text}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 900, "stream": True, "messages": said, **members}


async def record_one(body, *headers, behavior="answer", scripted=None):
    store = MemoryStore()
    async with record_behind(behavior, store, scripted=scripted) as flown:
        recorded = await ask(flown.gate, body, *headers)
    return store, recorded


@in_real_time
async def test_a_stream_is_replayed_in_the_same_pieces():
    store, (_, before) = await record_one(body_of(), behavior="answer:tokens=80", scripted={"pace": 0.01})
    (_, after), played = await replay(store, lambda gate: ask(gate, body_of()))
    assert after == before
    assert len(after) > 4
    assert played.is_same


@in_real_time
async def test_with_timing_a_reply_takes_the_time_it_took():
    store, _ = await record_one(body_of(), behavior="answer:tokens=80", scripted={"pace": 0.05})
    (call,) = (await read_tape(store, SESSION)).calls
    loop, took = asyncio.get_running_loop(), []
    for timing in (True, False):
        began = loop.time()
        _, played = await replay(store, lambda gate: ask(gate, body_of()), timing=timing)
        took.append(loop.time() - began)
        assert played.is_same
    assert took[0] >= call.chunks[-1][0] / 1000 > took[1]


DIFFERENT = [
    (body_of("another task"), "messages[0].content", "the conversation is another one"),
    (body_of(model="claude-opus-4-5"), "model", "the request is another one"),
    (body_of(tools=[]), "tools", "the request is another one"),
    (
        body_of(tools=[{"name": "new", "input_schema": {"type": "object"}}]),
        "tools",
        "there are tools that the recording does not have: new",
    ),
]


@pytest.mark.parametrize(("body", "field", "sentence"), DIFFERENT)
@in_real_time
async def test_the_first_field_that_differs_is_named_with_both_values(body, field, sentence):
    store, _ = await record_one(body_of())
    (head, pieces), played = await replay(store, lambda gate: ask(gate, body))
    assert head.startswith(b"HTTP/1.1 402")
    assert b"this replay is over" in b"".join(pieces)
    difference = played.difference
    assert not played.is_same
    assert difference.field == field
    assert sentence in difference.sentence
    assert difference.recorded != difference.live
    assert difference.call == 1


@in_real_time
async def test_tools_that_are_missing_are_named():
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "mcp__tracker__find")]
    store, _ = await record_one(body_of(tools=tools))
    _, played = await replay(store, lambda gate: ask(gate, body_of(tools=tools[:1])))
    assert "tools are missing that the recording has: mcp__tracker__find" in played.difference.sentence


@in_real_time
async def test_another_release_of_the_agent_is_said():
    store, _ = await record_one(body_of(), (b"user-agent", b"claude-cli/2.1.0 (external)"))
    _, played = await replay(
        store, lambda gate: ask(gate, body_of("x"), (b"user-agent", b"claude-cli/2.2.0 (external)"))
    )
    assert "the recording is of 2.1.0, and this is 2.2.0" in played.difference.sentence


@in_real_time
async def test_another_working_folder_is_said_where_its_name_does_not_explain_the_difference():
    store, _ = await record_one(body_of("list of files: a"))
    tape = await read_tape(store, SESSION)
    place = Place(folder="/somewhere/else", home=tape.head.home)
    _, played = await replay(store, lambda gate: ask(gate, body_of("list of files: b")), place=place)
    assert f"the recording was made in {tape.head.folder}, and this is /somewhere/else" in played.difference.sentence


@in_real_time
async def test_a_call_that_was_not_recorded_and_one_that_is_not_made_are_differences():
    store, _ = await record()
    _, played = await replay(store, lambda gate: fly_anthropic(gate.url, gate.key, most=2))
    assert played.difference is None
    assert played.left == (3, 4)
    assert not played.is_same

    async def ask_twice(gate):
        await ask(gate, body_of())
        return await ask(gate, body_of())

    store, _ = await record_one(body_of())
    _, played = await replay(store, ask_twice)
    assert "asks again for what it got as the reply to call 1" in played.difference.sentence


@in_real_time
async def test_a_recording_that_breaks_off_is_told_as_torn():
    store, _ = await record()
    tape = await read_tape(store, SESSION)
    lease = await store.claim(next(name for name in await names_in(store) if "/recording." in name), "test")
    _, commits = await store.load(lease.session_id)
    await store.cut(lease, commits[2].number, commits[2].hash)
    torn = await read_tape(store, SESSION)
    assert len(torn.calls) == 2 < len(tape.calls)
    async with play(torn) as gate:
        with pytest.raises(Exception, match="the recording is torn: it breaks off after call 2"):
            await fly_anthropic(gate.url, gate.key)


@in_real_time
async def test_a_recording_whose_bytes_were_changed_is_named_as_damaged(tmp_path):
    store = SqliteStore(tmp_path / "s.db")
    await record(store=store)
    await store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as file, file:
        ((key,),) = file.execute("select key from sessions where id like '%/recording.%'").fetchall()
        file.execute("update commits set body = body || x'00' where session = ? and number = 2", (key,))
    store = SqliteStore(tmp_path / "s.db")
    with pytest.raises(StoreError, match=r"the recording 'gate:run-1/recording\..*' is damaged: commit 2 was changed"):
        await read_tape(store, SESSION)
    await store.close()


VOLATILE = (
    "id 0190f2b4-7a00-7000-8000-{0:012x} at 2026-01-{0:02d}T10:00:0{0}Z in /srv/{1}/a.txt, port 127.0.0.1:50{0:02d}"
)


@in_real_time
async def test_what_is_volatile_is_no_difference_and_what_is_beside_it_is():
    store, _ = await record_one(body_of(VOLATILE.format(1, "there")))
    tape = await read_tape(store, SESSION)
    tape.head = type(tape.head)(started=0, folder="/srv/there", home="/home/ann")
    place = Place(folder="/srv/here", home="/home/ann")
    for text, is_same in ((VOLATILE.format(2, "here"), True), (VOLATILE.format(2, "here") + "!", False)):
        async with play(tape, place=place) as gate:
            await ask(gate, body_of(text))
        assert gate.player.report().is_same is is_same


@in_real_time
async def test_a_list_of_models_that_was_not_recorded_is_not_found_and_ends_nothing():
    store, _ = await record()

    async def fly(gate):
        async with Talk(gate) as talk:
            talk.send("/replay/v1/models", None, method="GET", key=gate.key)
            reply = await talk.read_reply()
        return reply.status, await fly_anthropic(gate.url, gate.key)

    (status, flight), played = await replay(store, fly)
    assert status == 404
    assert flight.calls == 4
    assert played.is_same


# --- several agents ---------------------------------------------------------------------------------------------------


def child(session, name):
    return {"x-claude-code-session-id": session, "x-claude-code-agent-id": name}


async def fly_family(url, key, session, names, tasks):
    """A main agent and its sub-agents, all at once, each with its own conversation."""
    main = {"x-claude-code-session-id": session}
    flights = [fly_anthropic(url, key, headers=main, task="Lead.")]
    flights += [
        fly_anthropic(url, key, headers=child(session, name), task=task)
        for name, task in zip(names, tasks, strict=True)
    ]
    return await asyncio.gather(*flights)


@in_real_time
async def test_agents_beside_each_other_get_the_replies_of_their_own_conversations():
    store = MemoryStore()
    async with record_behind("honest:calls=4", store) as flown:
        before = await fly_family(flown.url, flown.key, "s1", ["a1", "a2", "a3"], ["one", "two", "two"])

    async def fly(gate):
        return await fly_family(gate.url, gate.key, "s2", ["b1", "b2", "b3"], ["two", "one", "two"])

    after, played = await replay(store, fly)
    assert played.is_same
    assert played.replayed == 20
    assert [one.calls for one in after] == [one.calls for one in before]


@in_real_time
async def test_replies_come_in_the_order_in_which_they_were_recorded():
    store = MemoryStore()
    async with record_behind("answer", store) as flown:
        for name in ("a1", "a2"):
            await fly_anthropic(flown.url, flown.key, headers=child("s", name), task=name)
    ended = []

    async def fly(gate):
        async def one(name):
            await fly_anthropic(gate.url, gate.key, headers=child("t", f"b{name}"), task=name)
            ended.append(name)

        late = asyncio.ensure_future(one("a2"))
        await asyncio.sleep(0.1)
        await one("a1")
        await late

    _, played = await replay(store, fly, patience=5)
    assert ended == ["a1", "a2"]
    assert played.is_same


# --- from a turn on ---------------------------------------------------------------------------------------------------


@in_real_time
async def test_from_a_turn_on_another_model_answers_and_its_limits_hold_for_what_is_new():
    store, before = await record("honest:calls=6")
    tape = await read_tape(store, SESSION)
    async with ScriptedUpstream("loop") as up:
        upstreams = [Upstream("anthropic", "anthropic", up.url, "swap", "env:UPSTREAM_KEY")]
        async with play(tape, turns=3, upstreams=upstreams, max_iterations=4) as gate:
            after = await fly_anthropic(gate.url, gate.key)
        played = gate.player.report()
        assert up.usage.calls == played.live == 4
    assert played.replayed == 3
    assert played.is_same
    assert after.calls == 7
    assert before.calls == 7
    assert gate.report()["landed"]


@in_real_time
async def test_a_request_before_the_turn_that_differs_never_reaches_a_model():
    store, _ = await record("honest:calls=6")
    tape = await read_tape(store, SESSION)
    async with ScriptedUpstream("loop") as up:
        upstreams = [Upstream("anthropic", "anthropic", up.url, "swap", "env:UPSTREAM_KEY")]
        async with play(tape, turns=3, upstreams=upstreams) as gate:
            with pytest.raises(Exception, match="this replay is over"):
                await fly_anthropic(gate.url, gate.key, task="Something else.")
        assert up.usage.calls == 0
    assert gate.player.report().difference is not None


@in_real_time
async def test_a_client_that_leaves_may_ask_again():
    store, (_, before) = await record_one(body_of(), behavior="answer:tokens=400", scripted={"pace": 0.02})

    async def fly(gate):
        async with Talk(gate) as talk:
            talk.send("/replay/v1/messages", json.dumps(body_of()).encode(), key=gate.key, headers=HEADERS)
            await talk.read_head()
        await asyncio.sleep(0.1)
        return await ask(gate, body_of())

    (_, after), played = await replay(store, fly, timing=True)
    assert b"".join(after) == b"".join(before)
    assert played.is_same
