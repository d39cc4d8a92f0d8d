"""A call that asked a person in the middle had begun: it counts once, and is never called "not executed"."""

import pytest

from glidepath import Agent, CancelToken, Limits, LoopOutcome, Plugin, Session, answer, deny, tool
from glidepath.sessions import MemoryStore, read_journal
from glidepath.spi import Block
from glidepath.testing import ScriptedModel, call, calls, say, transcript_errors, virtual
from glidepath.tools import NeedsInput, ToolContext

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@tool
async def book(seat: str, context: ToolContext) -> str:
    """Book a seat, and ask for a name in the middle of the call."""
    if context.continuation is None:
        raise NeedsInput("for whom?", form=FORM, state="{}")
    return f"booked for {context.continuation.answer['name']}"


@tool
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


class Guard(Plugin):
    """Blocks whatever a person has approved."""

    async def before_tool_call(self, context):
        return Block("not today") if context.approved else None


def agent(store, *script, **more):
    model = ScriptedModel(script) if script else ScriptedModel().forever(say("ok"))
    more.setdefault("limits", Limits(max_iterations=9))
    return Agent(model=model, tools=[book.asking_back(), look], store=store, **more)


async def waiting(store, session="s"):
    batch = calls(call("book", seat="4A"), call("look", n=1))
    paused = await agent(store, batch).run("go", session=session)
    assert (paused.outcome, len(paused.pending), paused.tool_calls) == (LoopOutcome.PAUSED, 1, 2)
    return paused


def decide(paused, said):
    return {paused.pending[0].call.id: said}


def told(result):
    assert transcript_errors(result.messages) == []
    return [(one.kind, one.tool_name) for one in result.messages if one.role == "tool_result"]


def check_unknown(result, reason):
    assert told(result) == [("unknown_effect", "book"), (None, "look")]
    assert reason in next(one.content for one in result.messages if one.role == "tool_result")
    assert [one.name for one in result.unknown_effects] == ["book"]
    assert result.pending == ()


@pytest.mark.parametrize("kept", [True, False])
@virtual
async def test_a_call_that_goes_on_after_an_answer_counts_once(kept):
    store = MemoryStore() if kept else None
    paused = await waiting(store)
    limits = Limits(max_iterations=9, max_tool_calls=2)
    said = decide(paused, answer({"name": "eve"}))
    result = await agent(store).resume("s" if kept else paused, decisions=said, limits=limits)
    assert told(result) == [(None, "book"), (None, "look")]
    assert result.tool_calls == 2


@virtual
async def test_a_call_that_is_denied_in_the_middle_stays_counted():
    store = MemoryStore()
    paused = await waiting(store)
    result = await agent(store).resume("s", decisions=decide(paused, deny("no")))
    assert told(result) == [("denied", "book"), (None, "look")]
    assert result.tool_calls == 2


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("decided", [True, False])
@virtual
async def test_a_cancelled_resume_reports_it_as_unknown(kept, decided):
    store = MemoryStore() if kept else None
    paused = await waiting(store)
    token = CancelToken()
    token.cancel("enough")
    said = decide(paused, answer({"name": "eve"})) if decided else None
    result = await agent(store).resume("s" if kept else paused, decisions=said, cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    check_unknown(result, "the run ended first")


@virtual
async def test_a_hook_that_blocks_it_leaves_it_unknown():
    store = MemoryStore()
    paused = await waiting(store)
    said = decide(paused, answer({"name": "eve"}))
    check_unknown(await agent(store, plugins=[Guard()]).resume("s", decisions=said), "not allowed")


@virtual
async def test_a_new_prompt_instead_of_an_answer_reports_it_as_unknown_and_the_journal_says_the_same():
    store = MemoryStore()
    await waiting(store)
    result = await agent(store).run("something else", session="s")
    check_unknown(result, "a new prompt came instead")
    folded = (await read_journal(store, "s")).folded
    assert list(folded.messages) == list(result.messages)
    assert [one.name for one in folded.result.unknown_effects] == ["book"]
    last = await agent(store).run("and now", session="s")
    assert last.unknown_effects == ()


@virtual
async def test_a_new_prompt_in_a_session_without_a_store_reports_it_as_unknown_too():
    session = Session("s")
    await waiting(None, session)
    check_unknown(await agent(None).run("something else", session=session), "a new prompt came instead")


@pytest.mark.parametrize("kept", [True, False])
@virtual
async def test_a_cancel_while_it_waits_for_the_rest_of_its_batch_reports_it_as_unknown(kept):
    token = CancelToken()

    @tool
    async def stop() -> str:
        """Cancel the run."""
        token.cancel("enough")
        return "cancelled"

    model = ScriptedModel([calls(call("book", seat="4A"), call("stop"))])
    store = MemoryStore() if kept else None
    tools = [book.asking_back(), stop]
    alone = Agent(model=model, tools=tools, limits=Limits(max_iterations=9), store=store)
    result = await alone.run("go", cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    assert (told(result)[0], result.pending) == (("unknown_effect", "book"), ())
    assert [one.name for one in result.unknown_effects] == ["book"]
