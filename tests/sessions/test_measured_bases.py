"""A base keeps what its messages are like: the first prompt of a process does not measure a long session again."""

import asyncio

import pytest

from glidepath import Agent, Limits, tool
from glidepath.messages import AssistantMessage, TextBlock, ToolCall, ToolResultMessage, UserMessage
from glidepath.run import TranscriptStats, transcript_stats as survey_module
from glidepath.run.transcript_stats import MEASURE
from glidepath.sessions import (
    MemoryStore,
    RedactingStore,
    SqliteStore,
    checkpoints as bases,
    export_journal,
    import_journal,
    read,
    read_folded_state,
)
from glidepath.sessions.checkpoints import _base_in
from glidepath.testing import ScriptedModel, call, calls, say

FIELDS = ("sizes", "tokens", "characters", "call_ids", "notices", "unsent", "pictures", "first_task")
KINDS = {"sqlite": SqliteStore}


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(bases, "SPAN", 6)
    for place in ("agent.prepare", "sessions.session"):
        monkeypatch.setattr(f"glidepath.{place}.LONG", 4)


@tool
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


def agent(store, *turns):
    return Agent(model=ScriptedModel(list(turns)), tools=[look], limits=Limits(max_iterations=50), store=store)


async def talk(store, prompts, name="s"):
    for number in range(prompts):
        turns = (call("look", n=number), calls(call("look", n=1), call("look", n=2)), say(f"answer {number}"))
        await agent(store, *turns).run(f"prompt {number}", session=name)


async def written_bases(store, name="s"):
    _, commits = await store.load(name)
    return [_base_in(one) for one in commits if any(record.kind == "base" for record in read(one))]


async def recalled(store, name="s"):
    entry, _ = await store.load(name)
    return (await read_folded_state(store, name, max(entry.head, bases.SPAN))).session


def looked_at(messages):
    """The survey of a process that measures all of them."""
    found = TranscriptStats()
    assert found.take_new_messages(messages, agent(None, say("end"))._plan)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_base_knows_of_its_messages_is_what_measuring_them_finds(kind, tmp_path):
    async def scene():
        store = KINDS[kind](tmp_path / "s")
        await talk(store, 6)
        await store.close()
        again = KINDS[kind](tmp_path / "s")
        made = await written_bases(again)
        session = await recalled(again)
        await again.close()
        return made, session

    made, session = asyncio.run(scene())
    assert len(made) > 2
    assert all(base.measured is not None for base in made)
    count = len(session.survey.sizes)
    assert count == made[-1].count
    measured = looked_at(session.messages[:count])
    for name in FIELDS:
        assert getattr(session.survey, name) == getattr(measured, name), name


def test_the_first_prompt_of_a_process_measures_only_what_came_after_the_last_base(tmp_path, monkeypatch):
    asked = []
    counting = survey_module.characters_of

    async def scene():
        store = SqliteStore(tmp_path / "s")
        await talk(store, 6)
        await store.close()
        monkeypatch.setattr(survey_module, "characters_of", lambda one: asked.append(one) or counting(one))
        again = SqliteStore(tmp_path / "s")
        result = await agent(again, say("end")).run("and?", session="s")
        await again.close()
        return result

    result = asyncio.run(scene())
    assert len(result.messages) > 40
    assert len(asked) < 20  # those since the last base, and those of the base that this run writes


@pytest.mark.parametrize("why", ["another way of counting", "an older base", "another number of messages"])
def test_measures_that_do_not_fit_are_not_used(why, tmp_path, monkeypatch):
    if why == "an older base":
        monkeypatch.setattr("glidepath.agent.durable.add_measures", lambda base, *_: base)
    if why == "another number of messages":
        made = bases.add_measures
        monkeypatch.setattr(
            "glidepath.agent.durable.add_measures",
            lambda base, messages, plan: made(bases._wire.replace(base, count=base.count - 1), messages, plan),
        )

    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        await talk(store, 6)
        await store.close()
        if why == "another way of counting":
            monkeypatch.setattr(survey_module, "MEASURE", MEASURE + 1)
        again = SqliteStore(tmp_path / "s.db")
        session = await recalled(again)
        result = await agent(again, say("end")).run("and?", session="s")
        await again.close()
        return session, result

    session, result = asyncio.run(scene())
    assert session.survey is None or not session.survey.sizes
    assert result.text == "end"


def test_a_journal_from_elsewhere_is_measured_here(tmp_path):
    async def scene():
        store, other = SqliteStore(tmp_path / "s.db"), SqliteStore(tmp_path / "t.db")
        await talk(store, 6)
        await import_journal(other, await export_journal(store, "s"))
        session = await recalled(other)
        await store.close()
        await other.close()
        return session

    session = asyncio.run(scene())
    assert len(session.messages) > 40
    assert session.survey is None or not session.survey.sizes


def test_what_was_redacted_before_it_was_written_is_measured_as_it_is_read():
    async def scene():
        store = RedactingStore(MemoryStore(), lambda text: text.replace("saw", "have seen"))
        await talk(store, 4)
        return await written_bases(store)

    made = asyncio.run(scene())
    assert made
    assert all(base.measured is None for base in made)


def test_who_counts_otherwise_changes_the_number_that_says_so():
    """Bases that were written before would be believed: raise `MEASURE` together with these figures."""
    messages = [
        UserMessage("Where is the harbor?"),
        AssistantMessage((TextBlock("I look."), ToolCall("c1", "look", {"n": 1}))),
        ToolResultMessage("c1", "look", "saw 1"),
        AssistantMessage((TextBlock("Zwölf Häuser, 日本語."),)),
    ]
    found = looked_at(messages)
    assert (MEASURE, found.sizes, found.characters) == (1, [15, 28, 12, 17], 52)
