"""`stream.text()`: the words of the model, as they are written, and nothing else."""

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.errors import TransientError
from glidepath.testing import ScriptedModel, call, fail, hang, say, thinking, virtual


@tool
async def look() -> str:
    """Look."""
    return "saw it"


def agent(*turns):
    return Agent(model=ScriptedModel(list(turns)), tools=[look], limits=Limits(max_iterations=9, timeout=60))


@virtual
async def test_the_pieces_are_the_answer():
    async with agent(call("look"), say("One two three.")).stream("go") as stream:
        pieces = [piece async for piece in stream.text()]
    assert "".join(pieces) == stream.result.text == "One two three."
    assert all(pieces)


@virtual
async def test_every_reply_but_the_first_begins_after_an_empty_line():
    turns = (call("look").with_text("Let me look."), call("look"), say("I saw it."))
    async with agent(*turns).stream("go") as stream:
        text = "".join([piece async for piece in stream.text()])
    assert text == "Let me look.\n\nI saw it."
    assert stream.result.text == "I saw it."


@virtual
async def test_what_is_asked_for_again_begins_after_an_empty_line_too():
    async with agent(fail(TransientError("cut"), text="Half "), say("Whole.")).stream("go") as stream:
        text = "".join([piece async for piece in stream.text()])
    assert text == "Half \n\nWhole."


@virtual
async def test_thoughts_are_left_out():
    async with agent(thinking("Hm, what now?", "Five.")).stream("go") as stream:
        assert [piece async for piece in stream.text()] == ["Five."]


@virtual
async def test_leaving_early_lands_the_run():
    async with agent(hang("Half of ")).stream("go") as stream:
        async for piece in stream.text():
            assert piece
            break
    assert stream.result.outcome is LoopOutcome.CANCELLED


def test_it_is_there_without_a_loop():
    with agent(call("look").with_text("Let me look."), say("I saw it.")).stream_sync("go") as stream:
        assert "".join(stream.text()) == "Let me look.\n\nI saw it."
    assert stream.result.outcome is LoopOutcome.DONE
