"""Agents for servers in processes of their own: what they do depends on the transcript, not on who asks when."""

import asyncio
from pathlib import Path

from glidepath import Agent, Limits, ToolContext, tool
from glidepath.testing import ScriptedModel, call, say

TURNS = 12


@tool
async def note(text: str, context: ToolContext) -> str:
    """Write a line into a file: an effect that must not happen twice."""
    await asyncio.sleep(0.01)
    with Path("effects.txt").open("a") as file:  # noqa: ASYNC230 - a line
        file.write(f"{context.idempotency_key}\n")
    return f"noted {text}"


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def next_turn(request):
    done = sum(message.role == "assistant" for message in request.messages)
    if done < TURNS:
        return call("note", text=f"line {done}").with_text(f"step {done} ").with_id(f"call_{done}").with_delay(0.01)
    return say("all lines are written")


worker = Agent(
    model=ScriptedModel(name="steady", record=False, usage=None).forever(next_turn),
    tools=[note, pay],
    limits=Limits(max_iterations=50, max_tokens=1_000_000),
    agent_name="worker",
)


def pays_once(request):
    last = request.messages[-1]
    return call("pay", amount=5).with_id("call_pay").with_text("Paying.") if last.role == "user" else say(last.text)


payer = Agent(
    model=ScriptedModel(name="payer", record=False).forever(pays_once),
    tools=[pay],
    limits=Limits(max_iterations=9, max_tokens=100_000),
    agent_name="payer",
)


@tool
async def doze() -> str:
    """Wait longer than anybody."""
    await asyncio.sleep(600)
    return "awake"


sleeper = Agent(
    model=ScriptedModel(name="sleeper", record=False).forever(lambda _: call("doze")),
    tools=[doze],
    limits=Limits(max_iterations=9, max_tokens=100_000),
    agent_name="sleeper",
)


def answer_page(request):
    """Call the page's own tool, say what it returned, or tell a long story."""
    last = request.messages[-1]
    if last.role == "user" and "long" in last.text:
        return say("word " * 400).with_delay(0.05)
    return call("show_map", city="Oslo").with_text("Look.") if last.role == "user" else say(f"It says: {last.text}")


mapper = Agent(
    model=ScriptedModel(price=("1", "2")).forever(answer_page),
    limits=Limits(max_iterations=9, max_tokens=100_000),
    agent_name="mapper",
)
