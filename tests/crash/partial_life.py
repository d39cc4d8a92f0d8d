"""A run whose answer is read while it is written, in a process that dies; for the fork server of `flights`."""

import asyncio
import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

from glidepath import Agent, ConfigurationError, Limits, tool
from glidepath.messages import AssistantMessage, StreamEnd, TextDelta, ToolCallDelta, Usage

SAID = '{"name": "Lisbon", "people": 548000, "tags": ["sea", "hills"]}'


@dataclass
class City:
    name: str = ""
    people: int = 0
    tags: tuple[str, ...] = ()


class Pilot:
    """Looks once, then writes its answer in small pieces."""

    name, max_output_tokens = "pilot", 400

    async def stream(self, request):
        if not any(isinstance(one, AssistantMessage) for one in request.messages):
            yield ToolCallDelta(0, "c0", "look", "{}")
            yield StreamEnd("tool_use", Usage(100, 10))
            return
        for start in range(0, len(SAID), 4):
            yield TextDelta(SAID[start : start + 4])
            await asyncio.sleep(0.002)
        yield StreamEnd("end_turn", Usage(100, 20))


async def fly(leg, store):
    """One leg: start the run, or continue it, and die at the value that `die_in` says."""

    @tool
    def look() -> str:
        """Look."""
        with Path(leg["ledger"]).open("a", encoding="utf-8") as file:
            file.write("look\n")
        return "seen"

    limits = Limits(max_iterations=20, max_tokens=100_000)
    agent = Agent(model=Pilot(), tools=[look], output_type=City, limits=limits, store=store)
    try:
        seen, result = await _read(agent.stream(resume=leg["session"]), leg)
    except ConfigurationError:
        seen, result = await _read(agent.stream("Which city?", session=leg["session"]), leg)
    await store.close()
    return {
        "outcome": result.outcome.name,
        "seen": seen,
        "output": asdict(result.output),
        "replies": [one.text for one in result.messages if isinstance(one, AssistantMessage)],
        "tokens": result.usage.total,
        "unknown": [one.name for one in result.unknown_effects],
    }


async def _read(stream, leg):
    seen = []
    async with stream as values:
        async for value in values.partial():
            seen.append(json.loads(json.dumps(asdict(value))))
            if len(seen) == leg.get("die_in"):
                os.kill(os.getpid(), signal.SIGKILL)
        return seen, values.result
