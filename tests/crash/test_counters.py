"""Recovery counts once: however often a process dies after it was resumed, the figures at the end are the same."""

import asyncio
import json
import random

import pytest

from glidepath import Agent, ExecutionMode, Limits, ToolContext, tool
from glidepath.errors import TransientError
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.sessions import MemoryStore, read_journal
from glidepath.testing import VirtualClock

from .frail import Frail

PRICES = dict.fromkeys(("pilot", "kid", "backup"), ("3", "15"))
LIMITS = Limits(max_iterations=60, max_tokens=200_000, max_cost="1", max_tool_calls=60)
SEEDS = 100


class Pilot:
    """Makes `total` calls, `width` at a time."""

    max_output_tokens = 100

    def __init__(self, name, tool_names, width, total, die=lambda calls: None):
        self.name, self.tool_names, self.width, self.total, self.die = name, tool_names, width, total, die

    async def stream(self, request):
        asked = sum(len(message.tool_calls) for message in request.messages if message.role == "assistant")
        await asyncio.sleep(0)
        self.die(asked)
        if asked >= self.total or not request.tools:
            yield TextDelta("done")
            yield StreamEnd("end_turn", Usage(50, 5))
            return
        for place in range(self.width):
            number = asked + place
            name = self.tool_names[number % len(self.tool_names)]
            yield ToolCallDelta(place, f"{self.name}{number}", name, json.dumps({"task": str(number)}))
        yield StreamEnd("tool_use", Usage(50, 5))


class Down:
    name, max_output_tokens = "pilot", 100

    async def stream(self, request):
        raise TransientError("down")
        yield


def make(store, scene, fatal):
    """An agent whose process dies in the call named `fatal`, once."""

    def effect(name):
        if fatal and fatal[0] == name:
            fatal.clear()
            store.die()

    @tool(idempotent=True)
    async def put(task: str, context: ToolContext) -> str:
        """Put."""
        await asyncio.sleep(0)
        effect(context.call_id)
        return f"put {task}"

    keywords = {"limits": LIMITS, "store": store, "prices": PRICES}
    mode = ExecutionMode.SEQUENTIAL if scene["sequential"] else ExecutionMode.PARALLEL
    if scene["kind"] == "fallback":
        backup = Pilot("backup", ["put"], scene["width"], scene["total"])
        return Agent(
            model=Down(), fallback_models=[backup], max_retries=0, tools=[put], default_execution_mode=mode, **keywords
        )
    if scene["kind"] == "calls":
        pilot = Pilot("pilot", ["put"], scene["width"], scene["total"])
        return Agent(model=pilot, tools=[put], default_execution_mode=mode, **keywords)
    kid = Agent(model=Pilot("kid", ["put"], 1, 3), tools=[put], agent_name="kid", prices=PRICES)
    pilot = Pilot("pilot", ["delegate", "put"], scene["width"], scene["total"])
    return Agent(
        model=pilot, tools=[kid.as_tool("delegate", "Hand over."), put], default_execution_mode=mode, **keywords
    )


async def figures(scene, fatal, deaths):
    """Fly, die in the call `fatal`, be resumed and die again right after that; then fly to the end."""
    store = Frail(MemoryStore())
    await make(store, scene, [fatal]).run("go", session="s")
    for _ in range(deaths if store.dead else 0):
        await store.revive()
        store.die_after(1)
        await make(store, scene, []).resume("s")
    await store.revive()
    result = await make(store, scene, []).resume("s")
    end = (await read_journal(store, "s")).folded.snapshot
    return {
        "outcome": result.outcome.name,
        "usage": result.usage,
        "cost": result.cost,
        "tool_calls": result.tool_calls,
        "children": len(result.children),
        "unknown": len(result.unknown_effects),
        "meters": (end.tokens, end.picodollars, end.turns, end.metered_tool_calls, end.descendants),
        "accounts": (end.spent, end.fallbacks_spent, end.children_spent),
    }


def scene_of(seed):
    chance = random.Random(seed)
    width = chance.choice((1, 2, 3))
    kind = ("calls", "children", "fallback")[seed % 3]
    scene = {"kind": kind, "width": width, "total": width * 3, "sequential": chance.random() < 0.5}
    speaker = {"calls": "pilot", "children": chance.choice(("kid", "pilot")), "fallback": "backup"}[kind]
    number = chance.randrange(3 if speaker == "kid" else width * 3)
    if kind == "children" and speaker == "pilot":
        number |= 1  # every other call is the tool itself
    return scene, f"{speaker}{number}", chance.randint(1, 4)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_g13_deaths_after_a_resume_change_no_figure(seed):
    scene, fatal, deaths = scene_of(seed)
    undisturbed = VirtualClock().run(figures(scene, "nobody", 0))
    once = VirtualClock().run(figures(scene, fatal, 0))
    often = VirtualClock().run(figures(scene, fatal, deaths))
    assert often == once
    assert once == undisturbed, "a death between model calls costs nothing"


def test_g13_a_limit_on_tool_calls_holds_through_a_crash_loop():
    scene = {"kind": "calls", "width": 3, "total": 40, "sequential": False}
    made = set()

    async def fly():
        store = Frail(MemoryStore())

        def agent(fatal):
            @tool(idempotent=True)
            async def put(task: str) -> str:
                """Put."""
                made.add(task)
                if fatal and task == fatal[0]:
                    store.die()
                return "ok"

            limits = Limits(max_iterations=60, max_tool_calls=6)
            return Agent(model=Pilot("pilot", ["put"], 3, scene["total"]), tools=[put], limits=limits, store=store)

        await agent(["2"]).run("go", session="s")
        for fatal in ("5", "8", "11"):
            for _ in range(3):
                await store.revive()
                store.die_after(1)
                await agent([]).resume("s")
            await store.revive()
            await agent([fatal]).resume("s")
        await store.revive()
        return await agent([]).resume("s")

    result = VirtualClock().run(fly())
    assert len(made) == 6
    assert result.tool_calls == 6
    assert result.cause.source == "ToolCallLimitConstraint"
