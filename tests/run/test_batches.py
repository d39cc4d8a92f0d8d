"""`stream.batches()`: what came together as one list; nothing is lost, nothing is empty, the order is kept."""

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.events import RunEnded, RunStarted
from glidepath.testing import ScriptedModel, call, hang, say, virtual


@tool
async def look(query: str) -> str:
    """Look."""
    return f"saw {query}"


def agent(*turns):
    script = turns or (call("look", query="a"), call("look", query="b"), say("Done."))
    return Agent(model=ScriptedModel(list(script)), tools=[look], limits=Limits(max_iterations=9, timeout=60))


@virtual
async def test_batches_hold_every_event_in_order():
    async with agent().stream("go") as stream:
        batches = [events async for events in stream.batches()]
    events = [event for batch in batches for event in batch]
    assert all(batches)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert (type(events[0]), type(events[-1])) == (RunStarted, RunEnded)
    assert len(batches) < len(events)
    assert stream.result.outcome is LoopOutcome.DONE


@virtual
async def test_a_batch_begins_where_single_events_have_stopped():
    async with agent().stream("go") as stream:
        first = await anext(stream)
        rest = [event async for events in stream.batches() for event in events]
    assert [event.sequence for event in (first, *rest)] == list(range(1, len(rest) + 2))


@virtual
async def test_single_events_go_on_where_a_batch_has_ended():
    async with agent().stream("go") as stream:
        async for events in stream.batches():
            first = events
            break
        rest = [event async for event in stream]
    assert [event.sequence for event in (*first, *rest)] == list(range(1, len(first) + len(rest) + 1))


@virtual
async def test_leaving_the_block_between_two_batches_lands_the_run():
    async with agent(hang()).stream("go") as stream:
        async for events in stream.batches():
            assert events
            break
    assert stream.result.outcome is LoopOutcome.CANCELLED


@virtual
async def test_a_stream_must_be_entered_before_it_hands_out_batches():
    with pytest.raises(RuntimeError, match="enter the stream first"):
        await anext(agent().stream("go").batches())
