"""Calls that seldom happen, and what the rules say about them."""

import pytest

from glidepath import Agent, CancelToken, Limits, LoopOutcome, ToolContext, approve, tool
from glidepath.events import HookFailed, ToolEnded
from glidepath.messages import ToolCall
from glidepath.spi import GuardVerdict, ProtocolPolicy
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, say, virtual

FEW = Limits(max_iterations=6, max_tool_calls=20)


@tool(read_only=True, votes_on_termination=False)
async def look(what: str) -> str:
    """Look."""
    return f"{what} seen"


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def agent(*turns, **settings):
    return Agent(**{"model": ScriptedModel([*turns]), "tools": [look, pay], "limits": FEW, **settings})


def told(result, name):
    return [message.text for message in result.messages if message.role == "tool_result" and message.tool_name == name]


@virtual
async def test_only_an_agent_can_be_spawned():
    @tool
    async def hand_over(context: ToolContext) -> str:
        """Hand over."""
        return (await context.spawn("helper", "do it")).text

    result = await agent(call("hand_over"), say("done"), tools=[hand_over]).run("Go.")
    assert "spawn() takes an Agent, not str" in told(result, "hand_over")[0]
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_g7_nothing_is_spawned_once_the_run_is_being_stopped():
    token, child = CancelToken(), ScriptedModel([])

    @tool
    async def hand_over(context: ToolContext) -> str:
        """Hand over."""
        token.cancel("enough")
        return (await context.spawn(Agent(model=child, limits=FEW), "do it")).text

    result = await agent(call("hand_over"), tools=[hand_over]).run("Go.", cancel=token)
    assert "the run is being stopped: nothing can be spawned any more" in told(result, "hand_over")[0]
    assert (result.outcome, child.calls) == (LoopOutcome.CANCELLED, 0)


@pytest.mark.parametrize(
    "answer",
    [
        lambda calls: [ToolCall(calls[0].id, 7, {})],
        lambda calls: [ToolCall(calls[0].id, "look", ["a"])],
        lambda calls: [],
    ],
    ids=["a name that is no text", "arguments that are no dict", "too few"],
)
@virtual
async def test_g9_a_policy_that_repairs_calls_into_nonsense_keeps_them_from_running(answer):
    class Odd(ProtocolPolicy):
        def normalize_tool_calls(self, calls, tool_names):
            return answer(calls)

    recorder = EventRecorder()
    odd = agent(call("look", what="a"), say("done"), protocol_policy=Odd(), event_sink=recorder)
    result = await odd.run("Go.")
    assert any(isinstance(event, HookFailed) for event in recorder.events)
    assert not any("seen" in text for text in told(result, "look"))


@virtual
async def test_g11_a_guard_that_only_withdraws_tells_the_model_nothing():
    class Quiet:
        name = "quiet"
        before = None

        def after(self, step, results):
            return GuardVerdict(action="withdraw", reason="enough", tools=frozenset({"look"}))

    result = await agent(call("look", what="a"), say("done"), guards=[Quiet()]).run("Go.")
    assert result.outcome is LoopOutcome.WRAPPED_UP
    assert [message.text for message in result.messages if message.role == "user"] == ["Go."]


@virtual
async def test_a_call_that_has_no_vote_does_not_end_a_batch_that_waits():
    both = agent(calls(call("look", what="a"), call("pay", amount=5)), say("done"))
    paused = await both.run("Go.")
    (waiting,) = paused.pending
    result = await both.resume(paused, decisions={waiting.call.id: approve()})
    assert (result.text, told(result, "look"), told(result, "pay")) == ("done", ["a seen"], ["paid 5"])


@virtual
async def test_g6_calls_beyond_the_limit_of_a_parent_do_not_run_in_a_child():
    child = agent(*[call("look", what=str(number)) for number in range(9)], say("child done"))
    parent = agent(
        call("helper", task="look around"),
        say("done"),
        tools=[child.as_tool("helper", "Ask the helper.")],
        limits=Limits(max_iterations=30, max_tool_calls=4),
    )
    recorder = EventRecorder()
    result = await parent.replace(event_sink=recorder).run("Go.")
    ran = [event for event in recorder.events if isinstance(event, ToolEnded) and "seen" in event.result.text]
    assert len(ran) <= 3
    assert result.tool_calls + sum(one.tool_calls for one in result.children) <= 4
