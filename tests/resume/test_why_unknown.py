"""A call whose outcome nobody knows: its result says why in one field, and the model reads a sentence made of it."""

import asyncio

import pytest

from glidepath import Agent, Limits, _wire, tool
from glidepath.sessions import MemoryStore, RedactingStore, export_journal, import_journal
from glidepath.testing import ScriptedModel, call, say
from glidepath.values import Unknown

LIMITS = Limits(max_iterations=5)


def pay_of(*, idempotent, kind=str):
    async def pay(card: kind) -> str:
        """Pay."""
        return "paid"

    return tool(pay, idempotent=idempotent)


def cut_behind_the_intent(store):
    """The journal as a process leaves it that dies in its first call."""
    shelf = store._shelves["s"]
    place = next(place for place, commit in enumerate(shelf.commits) if b'"intent"' in commit.body)
    del shelf.commits[place + 1 :]
    last = shelf.commits[-1]
    shelf.entry = _wire.replace(shelf.entry, head=last.number, hash=last.hash, owner=None, summary={})


async def resumed(tools, *, before, redacts=None, moves=False):
    inner = MemoryStore()
    store = inner if redacts is None else RedactingStore(inner, redacts)
    turns = [call("pay", card="sk-1"), say("x")]
    await Agent(model=ScriptedModel(turns), tools=[before], limits=LIMITS, store=store).run("go", session="s")
    cut_behind_the_intent(inner)
    if moves:
        data, store = await export_journal(inner, "s"), MemoryStore()
        await import_journal(store, data)
    agent = Agent(model=ScriptedModel([say("end")]), tools=tools, limits=LIMITS, store=store)
    result = await agent.resume("s")
    (told,) = [one for one in result.messages if one.role == "tool_result"]
    return told, result


CASES = {
    Unknown.DIED: {"before": pay_of(idempotent=False), "tools": [pay_of(idempotent=False)]},
    Unknown.TOOL_GONE: {"before": pay_of(idempotent=True), "tools": []},
    Unknown.ARGUMENTS: {"before": pay_of(idempotent=True), "tools": [pay_of(idempotent=True, kind=int)]},
    Unknown.REDACTED: {
        "before": pay_of(idempotent=True),
        "tools": [pay_of(idempotent=True)],
        "redacts": lambda text: text.replace("sk-1", "[hidden]"),
    },
    Unknown.IMPORTED: {"before": pay_of(idempotent=False), "tools": [pay_of(idempotent=False)], "moves": True},
}


@pytest.mark.parametrize("why", CASES, ids=lambda why: why.value)
def test_its_result_says_why_nobody_knows(why):
    told, result = asyncio.run(resumed(**CASES[why]))
    assert (told.kind, told.details) == ("unknown_effect", {"unknown": why.value})
    assert told.text == f"Outcome unknown: {why.reason}. It may have taken effect; find out before you repeat it."
    assert [one.name for one in result.unknown_effects] == ["pay"]


def test_an_idempotent_call_that_can_run_again_does():
    told, result = asyncio.run(resumed([pay_of(idempotent=True)], before=pay_of(idempotent=True)))
    assert (told.text, result.unknown_effects) == ("paid", ())


def test_every_reason_is_a_word_for_programs_and_a_clause_for_the_model():
    assert len({why.value for why in Unknown}) == len(Unknown)
    assert all(why.reason and not why.reason.endswith(".") for why in Unknown)
