"""A call that waits for a person is never lost because the tool is missing when the run is resumed."""

import pytest

from glidepath import Agent, Limits, LoopOutcome, answer, approve, deny, tool
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, say, transcript_errors, virtual
from glidepath.tools import NeedsInput, ToolContext

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
DONE: list[str] = []


@tool
async def book(seat: str, context: ToolContext) -> str:
    """Book a seat, and ask for a name in the middle of the call."""
    if context.continuation is None:
        raise NeedsInput("for whom?", form=FORM, state="{}")
    DONE.append(seat)
    return f"booked for {context.continuation.answer['name']}"


@tool(requires_approval=True)
async def pay(seat: str) -> str:
    """Pay for a seat."""
    DONE.append(seat)
    return f"paid for {seat}"


TOOLS = {"book": book.asking_back(), "pay": pay}


def agent(store, *tools, script=None):
    model = ScriptedModel().forever(say("as you wish")) if script is None else ScriptedModel(script)
    return Agent(model=model, tools=tools, limits=Limits(max_iterations=5), store=store)


async def waiting(name, store):
    DONE.clear()
    paused = await agent(store, TOOLS[name], script=[call(name, seat="4A")]).run("go", session="s")
    assert (paused.outcome, [one.call.name for one in paused.pending]) == (LoopOutcome.PAUSED, [name])
    return paused


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", TOOLS)
@virtual
async def test_an_undecided_call_stays_pending_until_its_tool_is_back(name, kept):
    store = MemoryStore() if kept else None
    paused = await waiting(name, store)
    without = await agent(store).resume("s" if kept else paused)
    assert (without.outcome, without.pending) == (LoopOutcome.PAUSED, paused.pending)
    said = answer({"name": "eve"}) if name == "book" else approve()
    last = await agent(store, TOOLS[name]).resume(
        "s" if kept else without, decisions={without.pending[0].call.id: said}
    )
    assert (last.outcome, DONE, last.unknown_effects) == (LoopOutcome.DONE, ["4A"], ())


@pytest.mark.parametrize("said", [approve(), answer({"name": "eve"})])
@virtual
async def test_a_call_that_had_begun_is_unknown_when_its_answer_finds_no_tool(said):
    store = MemoryStore()
    paused = await waiting("book", store)
    result = await agent(store).resume("s", decisions={paused.pending[0].call.id: said})
    assert (result.outcome, result.pending, DONE) == (LoopOutcome.DONE, (), [])
    [told] = [message for message in result.messages if message.role == "tool_result"]
    assert (told.kind, told.is_error) == ("unknown_effect", True)
    assert "'book'" in told.content
    assert "no longer exists" in told.content
    assert [one.name for one in result.unknown_effects] == ["book"]
    assert transcript_errors(result.messages) == []


@virtual
async def test_an_approved_call_without_its_tool_gets_a_result_that_says_why():
    store = MemoryStore()
    paused = await waiting("pay", store)
    result = await agent(store).resume("s", decisions={paused.pending[0].call.id: approve()})
    [told] = [message for message in result.messages if message.role == "tool_result"]
    assert (told.kind, told.content) == ("unknown_tool", "Not executed: the tool 'pay' no longer exists.")
    assert result.unknown_effects == ()


@pytest.mark.parametrize("name", TOOLS)
@virtual
async def test_a_denial_needs_no_tool(name):
    store = MemoryStore()
    paused = await waiting(name, store)
    result = await agent(store).resume("s", decisions={paused.pending[0].call.id: deny("no")})
    [told] = [message for message in result.messages if message.role == "tool_result"]
    assert (told.kind, result.outcome) == ("denied", LoopOutcome.DONE)
