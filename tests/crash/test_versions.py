"""Journals of other releases, and agents that changed between a crash and the resume."""

import asyncio
import json
from dataclasses import dataclass

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath._version import VERSION, is_newer
from glidepath.errors import StoreError
from glidepath.events import ConfigurationChanged, RunStarted
from glidepath.messages import StopReason, StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.outcome import AgentState
from glidepath.sessions import SCHEMA, MemoryStore, export_journal, hash_commit, read_journal, repair
from glidepath.spi import Commit
from glidepath.testing import EventRecorder

from .frail import Frail

LATER = "99.0.0"


class Putter:
    name, max_output_tokens = "putter", 100

    async def stream(self, request):
        done = sum(message.role == "tool_result" for message in request.messages)
        await asyncio.sleep(0)
        if done >= 3 or not request.tools:
            yield TextDelta("done")
            yield StreamEnd("end_turn", Usage(1000, 5))
            return
        yield ToolCallDelta(0, f"c{done}", "put", json.dumps({"n": done}))
        yield StreamEnd("tool_use", Usage(1000, 5))


def put_tool(store=None, die=None):
    @tool(idempotent=True)
    async def put(n: int) -> str:
        """Put."""
        if n == die:
            store.die()
        return f"put {n}"

    return put


def agent(store, die=None, **more):
    given = {"model": Putter(), "tools": [put_tool(store, die)], "limits": Limits(max_iterations=20), **more}
    return Agent(store=store, **given)


async def crashed(die=1, **more):
    store = Frail(MemoryStore())
    await agent(store, die, **more).run("go", session="s")
    await store.revive()
    return store


async def rewritten(change):
    """A crashed journal with some records changed, chained anew: as another release would have written it."""
    old = await crashed()
    _, commits = await old.load("s")
    store = MemoryStore()
    lease, before = await store.claim("s", "me"), b""
    for commit in commits:
        records = [made for record in json.loads(commit.body) for made in change(record)]
        body = json.dumps(records).encode()
        before = hash_commit(before, commit.number, body)
        store.append(lease, Commit(commit.number, body, before))
    await store.release(lease)
    return store


def edit(kind, change):
    return lambda record: [[*record[:3], change(record[3])] if record[2] == kind else record]


def later(change):
    """The same, and the leg says that a later release wrote it."""

    def both(record):
        for one in change(record):
            yield [*one[:3], {**one[3], "version": LATER}] if one[2] == "began" else one

    return both


READ = {
    "a record of an unknown kind": lambda r: [r, [r[0], r[1], "telemetry", {}]] if r[2] == "tick" else [r],
    "an unknown field in an intent": edit("intent", lambda p: {**p, "zone": "eu"}),
    "an unknown field in began": edit("began", lambda p: {**p, "fleet": "x"}),
    "an unknown field of the state": edit("state", lambda p: {**p, "mood": ["=", "fine"]}),
    "more figures in a tick": edit("tick", lambda p: [*p, 7, 8]),
    "an unknown stop reason in a tick": edit("tick", lambda p: [*p[:8], "full", *p[9:]] if p[8] else p),
    "an unknown stop reason in a reply": edit("message", lambda p: {**p, "stop_reason": "full"}),
    "an unknown role": lambda r: [r, [r[0], r[1], "message", {"role": "thought"}]] if r[2] == "reserved" else [r],
    "an unknown block": edit(
        "message", lambda p: {**p, "blocks": [*p["blocks"], {"type": "video"}]} if p["role"] == "assistant" else p
    ),
    "an unknown state in a verdict": edit(
        "state",
        lambda p: {
            **p,
            "verdict": ["=", {"state": "becalmed", "cause": {"source": "x", "action": "y", "reason": "z"}, "cut": "?"}],
        },
    ),
    "an unknown decision": edit("began", lambda p: {**p, "decisions": {"c9": {"kind": "defer"}}}),
}


@pytest.mark.parametrize("what", READ)
def test_what_a_later_release_may_add_is_read(what):
    async def look():
        store = await rewritten(READ[what])
        folded = (await read_journal(store, "s")).folded
        assert folded.snapshot.iterations == 2
        assert [message.role for message in folded.messages if message.role != "unknown"] == [
            "user",
            "assistant",
            "tool_result",
            "assistant",
        ]
        verdict = folded.snapshot.verdict
        if verdict is not None:
            assert (verdict.state, verdict.cut) == (AgentState.ERROR, LoopOutcome.FAILED)
            return
        if what == "an unknown stop reason in a reply":
            assert folded.messages[1].stop_reason is StopReason.OTHER
        result = await agent(store).resume("s")
        assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")

    asyncio.run(look())


async def state_in(store):
    return (await read_journal(store, "s")).folded.snapshot


NEWER = {
    "a schema in the first record": edit("opened", lambda p: {**p, "schema": SCHEMA + 1}),
    "a schema in a later leg": edit("began", lambda p: {**p, "schema": SCHEMA + 1}),
    "a patch that nobody knows": later(edit("state", lambda p: {**p, "guards": ["~", 1]})),
    "a figure that became a text": later(edit("tick", lambda p: ["soon", *p[1:]])),
    "an intent without an id": later(edit("intent", lambda p: {"calls": [p]})),
}


@pytest.mark.parametrize("what", NEWER)
def test_what_a_later_release_changed_is_refused_as_newer_and_left_alone(what):
    async def look():
        store = await rewritten(NEWER[what])
        before = await store.load("s")
        with pytest.raises(StoreError, match="use a newer glidepath") as caught:
            await state_in(store)
        assert caught.value.kind == "newer"
        result = await agent(store).resume("s")
        assert (result.outcome, result.cause.metrics["kind"]) == (LoopOutcome.FAILED, "newer")
        if what != "a figure that became a text":
            with pytest.raises(StoreError, match="newer glidepath"):
                await repair(store, "s")
        assert (await store.load("s"))[1] == before[1]

    asyncio.run(look())


def test_what_this_release_cannot_have_written_is_damage():
    async def look():
        store = await rewritten(edit("state", lambda p: {**p, "guards": ["~", 1]}))
        with pytest.raises(StoreError, match="repair") as caught:
            await read_journal(store, "s")
        assert caught.value.kind == "damaged"

    asyncio.run(look())


@pytest.mark.parametrize(
    ("version", "newer"),
    [(VERSION, False), (LATER, True), ("0.0.1", False), ("", False), ("soon", False), ("1.0.0rc1", False)],
)
def test_releases_are_told_apart(version, newer):
    assert is_newer(version) is newer


def test_every_leg_says_which_release_and_which_agent_wrote_it():
    async def look():
        store = await crashed()
        await agent(store).resume("s")
        journal = await read_journal(store, "s")
        began = [json.loads(bytes(record.payload)) for record in journal.records() if record.kind == "began"]
        assert [one["resumed"] for one in began] == [False, True]
        assert {one["version"] for one in began} == {VERSION}
        assert {one["schema"] for one in began} == {SCHEMA}
        assert len({one["config"] for one in began}) == 1
        assert [record.kind for record in journal.records()].count("config") == 1  # nothing has changed
        assert journal.folded.opened.version == VERSION
        assert b"0.1.0" in await export_journal(store, "s")

    asyncio.run(look())


@dataclass
class Out:
    n: int


@tool(name="put", idempotent=True)
async def other_put(n: str, why: str) -> str:
    """Put."""
    return f"put {n}"


@tool(name="put")
async def put_once(n: int) -> str:
    """Put."""
    return f"put {n}"


class Other(Putter):
    name = "other"


CHANGES = {
    "nothing": ({}, []),
    "tool gone": ({"tools": []}, ["tool put"]),
    "tool new": ({"tools": [put_tool(), tool(put_once.fn, name="more")]}, ["tool more"]),
    "parameters": ({"tools": [other_put]}, ["tool put"]),
    "not idempotent": ({"tools": [put_once]}, ["tool put"]),
    "model": ({"model": Other()}, ["model"]),
    "prompt": ({"system_prompt": "Be brief."}, ["system_prompt"]),
    "limits": ({"limits": Limits(max_iterations=30, max_tokens=90_000)}, ["limit max_iterations", "limit max_tokens"]),
    "name": ({"agent_name": "somebody"}, ["agent"]),
    "output type": ({"output_type": Out}, ["system_prompt", "output_type"]),
    "fallback": ({"fallback_models": [Other()]}, ["fallback_models"]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changed_since_the_crash_is_in_the_result_and_an_event(what):
    given, wanted = CHANGES[what]

    async def look():
        store = await crashed()
        recorder = EventRecorder()
        result = await agent(store, **given, plugins=[recorder.as_plugin()]).resume("s")
        assert [f"{one.what} {one.name}".rstrip() for one in result.changes] == wanted
        told = [event for event in recorder.events if isinstance(event, ConfigurationChanged)]
        assert [event.changes for event in told] == ([result.changes] if wanted else [])
        recorder.assert_legal()
        assert isinstance(recorder.events[0], RunStarted)
        again = await agent(store, **given).resume("s")
        assert again.changes == () or again.outcome is LoopOutcome.DONE  # a stored result tells what it told

    asyncio.run(look())


def test_another_release_since_the_crash_is_a_change():
    async def look():
        store = await rewritten(edit("began", lambda p: {**p, "version": "0.0.9"}))
        result = await agent(store).resume("s")
        assert [str(one) for one in result.changes] == [f"version changed: 0.0.9 -> {VERSION}"]

    asyncio.run(look())


def test_a_change_reads_as_a_sentence():
    async def look():
        result = await agent(await crashed(), tools=[]).resume("s")
        assert [str(one) for one in result.changes] == ["tool put is gone"]
        result = await agent(await crashed(), limits=Limits(max_iterations=20, timeout=60)).resume("s")
        assert [str(one) for one in result.changes] == ["limit timeout is new: 60"]

    asyncio.run(look())


def test_limits_given_to_resume_are_a_change():
    async def look():
        store = await crashed()
        result = await agent(store).resume("s", limits=Limits(max_iterations=21))
        assert [(one.name, one.before, one.now) for one in result.changes] == [("max_iterations", "20", "21")]

    asyncio.run(look())


def test_a_journal_without_a_fingerprint_reports_no_change():
    async def look():
        store = await rewritten(lambda r: [] if r[2] == "config" else [r])
        assert (await agent(store, tools=[]).resume("s")).changes == ()

    asyncio.run(look())
