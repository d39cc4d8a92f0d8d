"""The agents of the test workers. Where a line goes for each effect, and how slow things are, comes from outside."""

import asyncio
import json
import os

from glidepath import Agent, Limits, LoopConfig, ToolContext, tool
from glidepath.messages import AssistantMessage, StreamEnd, TextDelta, ToolCallDelta, Usage

STEPS = 5
PER_CALL = Usage(100, 10)


class Pilot:
    """Knows from the transcript alone what comes next: one message to send for each of its steps."""

    name = "pilot"
    max_output_tokens = 200

    def __init__(self, steps=STEPS, pause=0.0):
        self.steps = steps
        self.pause = pause

    async def stream(self, request):
        step = sum(type(message) is AssistantMessage for message in request.messages)
        note("call", f"{os.getpid()}")
        await asyncio.sleep(self.pause)
        if step >= self.steps:
            yield TextDelta("all steps are done")
            yield StreamEnd("end_turn", PER_CALL)
            return
        yield ToolCallDelta(0, f"c{step}", "send", json.dumps({"number": step}))
        yield StreamEnd("tool_use", PER_CALL)


def note(kind, what):
    path = os.environ.get("CREW_EFFECTS")
    if path:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(handle, f"{kind} {what}\n".encode())
        os.close(handle)


@tool
async def send(number: int, context: ToolContext) -> str:
    """Something that must not happen twice."""
    await asyncio.sleep(float(os.environ.get("CREW_PAUSE", "0")))
    note("send", f"{context.idempotency_key} {number} {os.getpid()}")
    if context.user is not None:
        note("for", f"{context.user} {json.dumps(dict(context.metadata))}")
    await asyncio.sleep(float(os.environ.get("CREW_PAUSE", "0")))
    return f"sent {number}"


def make(**changes):
    pause = float(os.environ.get("CREW_PAUSE", "0"))
    fields = {
        "model": Pilot(pause=pause),
        "tools": [send],
        "limits": Limits(max_iterations=20),
        "agent_name": "stepper",
    }
    return Agent(**{**fields, **changes})


def stepper():
    return make()


def priced():
    return make(prices={"pilot": ("10", "10")}, limits=Limits(max_iterations=20, landing_tokens=256))


def small():
    """One that reserves little: 256 tokens for a landing, and the least for an answer."""
    return make(limits=Limits(max_iterations=20, landing_tokens=256), min_output_tokens=64)


@tool(name="send", requires_approval=True)
async def send_if_allowed(number: int, context: ToolContext) -> str:
    """Something that a person allows."""
    note("send", f"{context.idempotency_key} {number} {os.getpid()}")
    return f"sent {number}"


def careful():
    """One that asks before its only step."""
    return make(model=Pilot(1), tools=[send_if_allowed])


CONFIG = LoopConfig(model=Pilot(0), limits=Limits(max_iterations=3))
NOT_AN_AGENT = 7


def broken():
    raise RuntimeError("no key")


def sleepy():
    """One whose model answers long after every test is over."""
    return make(model=Pilot(pause=3600.0))


def hide(text):
    """A redaction hook."""
    return text.replace("4929000000000001", "[card]")
