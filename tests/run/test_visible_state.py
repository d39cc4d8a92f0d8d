"""Where a run stands can be seen while it flies: on its stream, on its session, and in its journal."""

import asyncio

import pytest

from glidepath import Agent, AgentState, Limits, Session, approve, tool
from glidepath.errors import TransientError
from glidepath.events import RetryScheduled, RunStarted, StreamStarted, ToolStarted
from glidepath.sessions import MemoryStore, read_journal
from glidepath.testing import ScriptedModel, call, fail, say, virtual

LIMITS = Limits(max_iterations=5)


def waiting_tool(seen):
    @tool(requires_approval=False)
    async def wait() -> str:
        """Wait."""
        seen.append("tool")
        await asyncio.sleep(5)
        return "waited"

    return wait


@pytest.mark.parametrize("store", [None, MemoryStore], ids=["plain", "store"])
@virtual
async def test_a_stream_and_a_session_show_every_state(store):
    session, states = Session("s"), []
    model = ScriptedModel([fail(TransientError("busy")), call("wait"), say("done")])
    kept = {} if store is None else {"store": store()}
    agent = Agent(model=model, tools=[waiting_tool([])], limits=LIMITS, **kept)
    stream = agent.stream("go", session=session)
    assert (stream.state, session.state, session.in_flight) == (AgentState.IDLE, AgentState.IDLE, False)
    async with stream:
        async for event in stream:
            if isinstance(event, RunStarted | StreamStarted | RetryScheduled | ToolStarted):
                await asyncio.sleep(0.01)  # the run goes on as far as it can
                states.append((type(event).__name__, stream.state, session.state, session.in_flight))
    shown = {name: state for name, state, _, _ in states}
    assert shown["RetryScheduled"] is AgentState.RECOVERING
    assert shown["ToolStarted"] is AgentState.WAITING_FOR_TOOL
    assert all(one == other and flying for _, one, other, flying in states[:-1])
    assert (stream.state, session.state, session.in_flight) == (AgentState.COMPLETED, AgentState.COMPLETED, False)


@virtual
async def test_a_run_that_is_not_streamed_shows_its_state_on_its_session():
    session, seen = Session("s"), []
    agent = Agent(model=ScriptedModel([call("wait"), say("done")]), tools=[waiting_tool(seen)], limits=LIMITS)
    flying = asyncio.create_task(agent.run("go", session=session))
    await asyncio.sleep(1)
    assert session.state is AgentState.WAITING_FOR_TOOL
    await flying
    assert session.state is AgentState.COMPLETED


@virtual
async def test_a_pause_can_be_seen():
    @tool(requires_approval=True)
    async def send() -> str:
        """Send."""
        return "sent"

    session = Session("s")
    agent = Agent(model=ScriptedModel([call("send"), say("done")]), tools=[send], limits=LIMITS)
    async with agent.stream("go", session=session) as stream:
        async for _ in stream:
            pass
    assert (stream.state, session.state) == (AgentState.WAITING_FOR_INPUT, AgentState.WAITING_FOR_INPUT)
    pending = session.last.pending[0].call.id
    async with agent.stream(resume=session, decisions={pending: approve()}) as stream:
        async for _ in stream:
            pass
    assert (stream.state, session.state) == (AgentState.COMPLETED, AgentState.COMPLETED)


@virtual
async def test_a_run_that_was_done_before_shows_how_it_ended():
    store = MemoryStore()
    agent = Agent(model=ScriptedModel([say("done")]), limits=LIMITS, store=store)
    await agent.run("go", session="s")
    async with agent.stream(resume="s") as stream:
        async for _ in stream:
            pass
    assert stream.state is AgentState.COMPLETED


@virtual
async def test_another_process_sees_where_a_run_stands():
    store, seen = MemoryStore(), []
    agent = Agent(
        model=ScriptedModel([call("wait"), say("done")]), tools=[waiting_tool(seen)], limits=LIMITS, store=store
    )
    flying = asyncio.create_task(agent.run("go", session="s"))
    await asyncio.sleep(1)
    assert (await read_journal(store, "s")).folded.state is AgentState.WAITING_FOR_TOOL
    await flying
    assert (await read_journal(store, "s")).folded.state is AgentState.COMPLETED
