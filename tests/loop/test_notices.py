"""What the runtime told the model in one run is not shown to it in the next run of the session."""

import pytest

from glidepath import Agent, GuardrailsConfig, Limits, LoopOutcome, Session, approve, tool
from glidepath.messages import CustomMessage, UserMessage
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, say, truncated, virtual


@tool
async def look(n: int = 0) -> str:
    """Look."""
    return "the same"


def told(request):
    return [message.reason for message in request.messages if message.role == "user" and message.internal]


def words(request):
    return [message.text for message in request.messages]


stored = pytest.mark.parametrize("kept", [False, True], ids=["session", "store"])


def homes(kept):
    """Where the runs of a conversation live: settings for the agents, and the session they share."""
    return ({"store": MemoryStore()}, "s") if kept else ({}, Session("s"))


@stored
@virtual
async def test_a_wind_down_is_of_its_run(kept):
    more, session = homes(kept)
    limits = Limits(max_iterations=3, grace_iterations=1)
    first = ScriptedModel([call("look", n=1), call("look", n=2), say("wrapped up")])
    result = await Agent(model=first, tools=[look], limits=limits, **more).run("go", session=session)
    assert result.outcome is LoopOutcome.WRAPPED_UP
    assert "wind_down" in told(first.requests[-1])
    second = ScriptedModel([call("look", n=3), say("more")])
    again = await Agent(model=second, tools=[look], limits=Limits(max_iterations=9), **more).run("on", session=session)
    assert [told(request) for request in second.requests] == [[], []]
    assert "wrapped up" in words(second.requests[0])
    assert any(message.role == "user" and message.internal for message in again.messages)  # people still find it


@stored
@virtual
async def test_a_landing_is_of_its_run(kept):
    more, session = homes(kept)
    first = ScriptedModel([call("look"), say("landed")])
    limits = Limits(max_iterations=1, grace_iterations=0)
    result = await Agent(model=first, tools=[look], limits=limits, **more).run("go", session=session)
    assert result.landing_calls == 1
    second = ScriptedModel([say("more")])
    await Agent(model=second, tools=[look], limits=Limits(max_iterations=9), **more).run("on", session=session)
    assert told(second.requests[0]) == []


@virtual
async def test_nudges_are_of_their_run():
    session = Session("s")
    first = ScriptedModel([truncated("one, "), say("two"), *[call("look")] * 4, say("enough")])
    agent = Agent(model=first, tools=[look], limits=Limits(max_iterations=20), guardrails=GuardrailsConfig())
    await agent.run("count", session=session)
    await Agent(model=ScriptedModel([say(""), say("three")]), limits=Limits(max_iterations=9)).run(
        "on", session=session
    )
    nudged = [message for message in session.messages if message.role == "user" and message.internal]
    assert nudged
    last = ScriptedModel([say("four")])
    await Agent(model=last, limits=Limits(max_iterations=9)).run("on", session=session)
    assert told(last.requests[0]) == []


@stored
@virtual
async def test_a_run_that_is_resumed_still_sees_its_own_notices(kept):
    more, session = homes(kept)

    @tool(requires_approval=True)
    async def send() -> str:
        """Send."""
        return "sent"

    limits = Limits(max_iterations=4, grace_iterations=2)
    early = ScriptedModel([call("look", n=1), call("look", n=2), call("look", n=3), say("early")])
    await Agent(model=early, tools=[look, send], limits=limits, **more).run("go", session=session)
    model = ScriptedModel([call("look", n=4), call("look", n=5), call("send"), say("sent it")])
    agent = Agent(model=model, tools=[look, send], limits=limits, **more)
    paused = await agent.run("send it", session=session)
    seen = words(model.requests[-1])
    assert told(model.requests[-1]) == ["wind_down"]
    result = await agent.resume(paused, decisions={paused.pending[0].call.id: approve()})
    assert result.outcome is LoopOutcome.WRAPPED_UP
    assert words(model.requests[-1])[: len(seen)] == seen, "the prompt cache is of no use"
    assert told(model.requests[-1]) == ["wind_down"]


@pytest.mark.parametrize("strategy", ["compact", "sliding_window", "summarize"])
@virtual
async def test_shaping_the_context_does_not_bring_old_notices_back(strategy):
    session = Session("s")
    first = ScriptedModel([call("look", n=1), call("look", n=2), say("wrapped up " * 40)])
    limits = Limits(max_iterations=3, grace_iterations=1)
    await Agent(model=first, tools=[look], limits=limits).run("go " * 300, session=session)

    @tool
    async def read(n: int) -> str:
        """Read."""
        return f"page {n} " * 300

    def summary_or(turn):
        return lambda request: turn if request.tools else say("a summary of it all")

    second = ScriptedModel([summary_or(call("read", n=n)) for n in range(30)]).forever(say("read"))
    agent = Agent(
        model=second,
        tools=[read],
        limits=Limits(max_iterations=14, grace_iterations=0),
        context_window=4000,
        context_strategy=strategy,
        max_output_tokens=300,
    )
    await agent.run("read it all", session=session)
    assert any(
        len(words(request)) < len(words(earlier))
        for earlier, request in zip(second.requests, second.requests[1:], strict=False)
    )
    old = [message.text for message in session.messages[:8] if message.role == "user" and message.internal]
    assert old
    for request in second.requests[:-1]:
        assert not any(old[0] in text for text in words(request)), "an old notice came back"


@virtual
async def test_messages_that_an_application_marks_as_internal_stay():
    mine = UserMessage("The customer prefers short answers.", internal=True)
    session = Session("s", messages=[UserMessage("hi"), mine, CustomMessage("note", {"by": "me"})])
    model = ScriptedModel([say("hello")])
    await Agent(model=model, limits=Limits(max_iterations=3)).run("on", session=session)
    assert mine.text in words(model.requests[0])
