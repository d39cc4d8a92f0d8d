"""A long flight with everything that could break the prefix of a request, and how much of it each request keeps."""

import json
from itertools import pairwise
from typing import Any

from glidepath import Agent, Limits, Plugin, tool
from glidepath.context import SpillResults
from glidepath.events import ContextShaped, StreamStarted
from glidepath.spi import Gate

from .dialects import Anthropic, Chat, Google, Responses
from .server import Answer, Wire

TURNS = 30
GATED = range(8, 13)
STUCK = range(14, 18)
FACTS = "The rule changed in spring; see section {n} of the handbook for who decides and by when. " * 5


@tool(read_only=True)
async def look(n: int) -> str:
    """Look something up."""
    return f"{n}: " + FACTS.format(n=n)


@tool
async def write(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


@tool
async def status() -> str:
    """Ask how far it is."""
    return "still waiting"


class Narrow(Plugin):
    """Some turns may only write."""

    name = "narrow"

    def tool_gate(self, context: Any) -> Any:
        return Gate(allowed=frozenset({"write", "status"})) if context.iteration + 1 in GATED else None


def _reply(dialect: Any, number: int) -> Answer:
    """Turn by turn: look, write while the gate is closed, ask for the status again and again until it is withdrawn."""
    name, arguments = "look", json.dumps({"n": number})
    if number in GATED:
        name, arguments = "write", json.dumps({"text": f"note {number}"})
    if number in STUCK:
        name, arguments = "status", "{}"
    if number > TURNS:
        return Answer([*dialect.text("Here is ", "what I found."), *dialect.end()])
    calls = dialect.calls((f"c{number}", name, arguments))
    return Answer([*dialect.text(f"Step {number}. "), *calls, *dialect.end("tools", usage=False)])


async def fly(
    dialect: Any, *, window: int | None = None, spill: SpillResults | None = None, **settings: Any
) -> "Flight":
    """The flight: a gate, a withdrawal, a compaction where the `window` is small, and a landing."""
    events: list[Any] = []

    async with Wire([_reply(dialect, number) for number in range(1, TURNS + 2)]) as wire:
        model = dialect.model(wire.url)
        agent = Agent(
            model=model,
            system_prompt="You are a careful clerk. " * 20,
            tools=[look, write, status, *([spill.tool] if spill else [])],
            plugins=[Narrow(), *([spill] if spill else [])],
            context_window=window,
            event_sink=events.append,
            **{"limits": Limits(max_iterations=TURNS), **settings},
        )
        result = await agent.run("Find out which leave rules changed this year.")
        await model.aclose()
        return Flight(dialect, result, [request.body for request in wire.requests], events)


class Flight:
    """What was sent."""

    def __init__(self, dialect: Any, result: Any, bodies: list[dict[str, Any]], events: list[Any]) -> None:
        self.dialect, self.result, self.bodies, self.events = dialect, result, bodies, events

    def shaped(self) -> list[int]:
        """The places of requests before which the context was shaped."""
        made = [event for event in self.events if type(event) in (StreamStarted, ContextShaped)]
        return [
            sum(type(earlier) is StreamStarted for earlier in made[:place])
            for place, event in enumerate(made)
            if type(event) is ContextShaped
        ]

    def kept(self) -> list[float]:
        """For each request but the first: how much of the one before it is at its beginning."""
        texts = [cached(self.dialect, body) for body in self.bodies]
        return [_common(before, now) / len(before) for before, now in pairwise(texts)]


ORDER = {
    Chat: ("tools", "messages"),
    Responses: ("tools", "instructions", "input"),
    Anthropic: ("tools", "system", "messages"),
    Google: ("tools", "systemInstruction", "contents"),
}


def cached(dialect: Any, body: dict[str, Any]) -> str:
    """The part of a body that a vendor caches, in its order; the marks themselves are not part of it."""
    return "\n".join(json.dumps(_unmarked(body.get(field))) for field in ORDER[type(dialect)])


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(part) for key, part in value.items() if key != "cache_control"}
    return [_unmarked(part) for part in value] if isinstance(value, list) else value


def _common(before: str, now: str) -> int:
    for place, (old, new) in enumerate(zip(before, now, strict=False)):
        if old != new:
            return place
    return min(len(before), len(now))
