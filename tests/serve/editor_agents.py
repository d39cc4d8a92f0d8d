"""Agents that an editor talks to in tests."""

import asyncio

from glidepath import Agent, Limits, tool
from glidepath.errors import RejectedError
from glidepath.testing import ScriptedModel, call, fail, say
from glidepath.values import Usage


@tool
async def search(query: str) -> str:
    """Search."""
    return f"found {query}"


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def wait() -> str:
    """Wait for a long time."""
    await asyncio.sleep(60)
    return "waited"


def told(request):
    return say(request.messages[-1].text)


def turn(*pair, **known):
    """One turn for an odd number of messages (a question), the other for what comes after a tool's result."""

    def answer(request):
        step = pair[0] if request.messages[-1].role == "user" else pair[1]
        return step(request) if callable(step) else step

    return ScriptedModel(price=("1", "2"), **known).forever(answer)


FEW = Limits(max_iterations=9, max_tokens=100_000)
searcher = Agent(model=turn(call("search", query="a"), say("It is done.")), tools=[search], limits=FEW)
measured = turn(call("search", query="a"), say("It is done."), context_window=8_000, usage=Usage(input=100, output=10))
wide = Agent(model=measured, tools=[search], limits=FEW)
payer = Agent(model=turn(call("pay", amount=5), told), tools=[pay], limits=FEW)
echoer = Agent(model=turn(call("echo", text="from the editor's server"), told), limits=FEW)
slow = Agent(model=turn(call("wait"), say("too late")), tools=[wait], limits=FEW)
broken = Agent(model=ScriptedModel([fail(RejectedError("no such key"))]), limits=FEW)
eager = Agent(
    model=ScriptedModel().forever(lambda request: call("search", query=str(len(request.messages)))),
    tools=[search],
    limits=Limits(max_iterations=3),
)
