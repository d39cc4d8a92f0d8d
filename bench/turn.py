"""Where an ordinary turn goes: opcodes and frames by part, and what a turn keeps. The same on every CPU.

    python bench/turn.py          # a table, as on docs/benchmarks.md
    python bench/turn.py --json   # for tests/bench/test_turn.py

One turn: a reply of twenty deltas with a call of an async tool, a believable report of its usage, every limit on, every
event consumed one by one. The same with ten custom constraints, and with ten plugins that override every hook; none of
them has anything to say.
"""

import asyncio
import gc
import json
import sys
from collections import Counter
from pathlib import Path

import glidepath
from glidepath import Agent, Limits, Plugin, ResourceConstraint, ResourceValidation, Usage, tool
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta
from glidepath.spi import HOOKS

HOUSE = Path(glidepath.__file__).parent
FIRST, LAST = 10, 20  # the turns that are counted: from the request of one to that of the other
DELTAS = 20
WAYS = ("stream", "batches", "run", "constraints", "plugins")
PARTS = {
    "the delta loop": ("kernel/model_call/attempt.py:pump",),
    "booking": (
        "kernel/model_call/booking.py",
        "kernel/model_call/settlement.py",
        "kernel/model_call/__init__.py",
        "kernel/model_call/gates.py",
        "run/ledger.py",
        "run/account.py",
        "run/resilience.py",
        "run/transcript_stats.py",
    ),
    "the reply and the messages": (
        "kernel/model_call/",
        "kernel/context/",
        "values/",
        "tools/text.py",
        "tools/token_estimate.py",
        "models/",
    ),
    "the tool call": ("kernel/tool_calls/", "tools/"),
    "judging and guards": ("guards/", "kernel/constraint_checks.py", "kernel/endings.py", "kernel/landing/"),
    "plugins": ("plugins/", "run/hooks.py", "kernel/polling.py"),
    "waiting and time limits": (
        "run/watch.py",
        "run/interrupting.py",
        "run/cancellation_probe.py",
        "run/abandoned.py",
        "kernel/loop.py",
        "agent/",
    ),
    "events": ("run/event_emitter.py",),
    "the stream to its consumer": ("run/stream.py",),
    "the state of the run": (
        "run/run_transcript.py",
        "run/wind_down.py",
        "run/run_inputs.py",
        "run/state.py",
        "run/unsaved.py",
    ),
}


def part_of(file, function):
    """The part that a function belongs to; what is not ours is asyncio's or the harness's."""
    path = Path(file)
    if not path.is_relative_to(HOUSE):
        return "model, tool and consumer" if path == Path(__file__) else "asyncio"
    place = f"{path.relative_to(HOUSE).as_posix()}:{function}"
    return next((part for part, starts in PARTS.items() if place.startswith(starts)), "the rest")


class Tally:
    """Counts opcodes and frames while it is on."""

    def __init__(self):
        self.opcodes, self.frames, self.functions, self.on = Counter(), Counter(), set(), False
        self.blocks = [0, 0]

    def trace(self, frame, _event, _argument):
        if not self.on:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code
        if code.co_name == "switch":
            return None  # our own
        part = part_of(code.co_filename, code.co_name)
        self.frames[part] += 1
        self.functions.add((code.co_filename, code.co_name))

        def local(frame, event, _argument):
            if event == "opcode" and self.on:
                self.opcodes[part] += 1
            return local

        return local


class Model:
    name, max_output_tokens = "steady", 4000

    def __init__(self, turns, at):
        self.turns, self.at, self.turn = turns, at, 0

    async def stream(self, request):
        self.turn += 1
        self.at(self.turn)
        await asyncio.sleep(0)
        for _ in range(DELTAS):
            yield TextDelta("some words ")
        if self.turn < self.turns:
            yield ToolCallDelta(0, f"c{self.turn}", "look", f'{{"query":"q{self.turn}","limit":3,"tags":["a"]}}')
        yield StreamEnd(
            "tool_use" if self.turn < self.turns else "end_turn", Usage(60 + 52 * len(request.messages), 55)
        )


@tool
async def look(query: str, limit: int, tags: list[str]) -> str:
    """Look."""
    return f"saw {query}"


class Quiet(ResourceConstraint):
    async def validate(self, context):
        return ResourceValidation.ok()


def silent(self, context):
    return None


Idle = type("Idle", (Plugin,), dict.fromkeys(HOOKS, silent))


def ten(kind):
    """Ten instances of ten subclasses: names are taken from the class and must differ."""
    return [type(f"{kind.__name__}{number}", (kind,), {})() for number in range(10)]


async def flown(at, way="stream"):
    limits = Limits(max_iterations=5000, max_tokens=100_000_000, timeout=600, max_tool_calls=5000)
    more = {"constraints": ten(Quiet)} if way == "constraints" else {"plugins": ten(Idle)} if way == "plugins" else {}
    agent = Agent(model=Model(LAST + 10, at), tools=[look], limits=limits, **more)
    if way == "run":
        await agent.run("go")
        return
    async with agent.stream("go") as stream:
        async for _ in stream.batches() if way == "batches" else stream:
            pass


def counted(way="stream"):
    """Opcodes by part and frames of one turn, and the blocks of memory that it keeps."""
    tally, kept = Tally(), {}

    def switch(turn):
        tally.on = FIRST <= turn < LAST

    def look_at_blocks(turn):
        if turn in (FIRST, LAST):
            gc.collect()
            kept[turn] = sys.getallocatedblocks()

    asyncio.run(flown(look_at_blocks, way))  # also warms up
    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # 3.12 counts none unless a frame has asked before  # noqa: SLF001
    sys.settrace(tally.trace)
    try:
        asyncio.run(flown(switch, way))
    finally:
        sys.settrace(before)
    turns = LAST - FIRST
    return {
        "opcodes": {part: count / turns for part, count in tally.opcodes.most_common()},
        "total": sum(tally.opcodes.values()) / turns,
        "frames": sum(tally.frames.values()) / turns,
        "functions": len(tally.functions),
        "blocks": (kept[LAST] - kept[FIRST]) / turns,
    }


def page(found, together, quiet, limited, plugged):
    lines = ["| part of a turn | opcodes | share |", "|---|---|---|"]
    total = found["total"]
    lines += [f"| {part} | {count:,.0f} | {count / total:.0%} |" for part, count in found["opcodes"].items()]
    lines.append(f"| **all, {found['frames']:.0f} frames of {found['functions']} functions** | **{total:,.0f}** | |")
    lines.append(f"| the same through `stream.batches()` | {together['total']:,.0f} | |")
    lines.append(f"| the same through `run()`, nobody listening | {quiet['total']:,.0f} | |")
    lines.append(f"| the same with ten custom async constraints | {limited['total']:,.0f} | |")
    lines.append(f"| the same with ten silent plugins on every hook | {plugged['total']:,.0f} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    found = {way: counted(way) for way in WAYS}
    print(json.dumps(found) if "--json" in sys.argv else page(*found.values()))
