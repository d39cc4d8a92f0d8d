"""CPU cost of one tool turn: glidepath against a hand-written loop, in one process.

Every cell plays the same script: a fake model streams 20 text deltas and one tool call per turn, then a last answer.
Cells take turns within a round, so that a slow spell of the machine hits all of them, and the best round of one is
compared with the best round of the other. See README.md for the cells and their bars.
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

PROMPT = "Please work through the task."
DELTAS = ["token "] * 20
FLAT_TURNS = 5_000
EARLY, LATE = slice(10, 110), slice(4_900, 5_000)
BARS = {"stream": 3.8, "run": 2.7, "constraints10": 6.0, "plugins10": None, "journal": 8.0, "flat": 1.2}
PLUGINS_ADD = 1.5  # ten silent plugins on every hook may add this many times a bare turn

Cell = Callable[[], Awaitable[None]]


class Script:
    """What the fake model says and the tool answers; shared by all cells, played by one at a time."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, turns: int) -> None:
        self.turns = turns
        self.asked = self.called = self.seen = 0
        self.stamps: list[int] = []

    async def next_call(self) -> str | None:
        """Arguments of this turn's tool call as JSON, or None when it is time to answer."""
        await asyncio.sleep(0)  # one suspension per model call, as any network call has
        self.stamps.append(time.process_time_ns())
        self.asked += 1
        if self.asked > self.turns:
            return None
        return f'{{"query": "item {self.asked}", "limit": 7, "tags": ["a", "b", "c"]}}'

    async def lookup(self, query: str, limit: int, tags: list[str]) -> str:
        if type(query) is not str or type(limit) is not int or type(tags) is not list:
            raise TypeError("the tool received arguments that were not validated")
        self.called += 1
        return f"{query}: found {limit} entries"

    def check(self, *, listening: bool) -> None:
        """A cell that skipped work must not look fast."""
        assert self.called == self.turns, f"{self.called} tool calls instead of {self.turns}"
        assert self.asked == self.turns + 1, f"{self.asked} model calls instead of {self.turns + 1}"
        expected = (self.turns + 1) * len(DELTAS)
        assert not listening or self.seen == expected, f"{self.seen} deltas seen instead of {expected}"


SCRIPT = Script()


# The bare side: what a careful person writes by hand, with no limits, guards or events.


class LookupArgs(BaseModel):
    query: str
    limit: int
    tags: list[str]


@dataclass(slots=True)
class BareDelta:
    kind: str
    text: str
    call_id: str = ""


async def bare_model(_messages: list[dict]) -> AsyncIterator[BareDelta]:
    arguments = await SCRIPT.next_call()
    for text in DELTAS:
        yield BareDelta("text", text)
    if arguments is not None:
        yield BareDelta("call", "lookup", f"call_{SCRIPT.asked}")
        yield BareDelta("arguments", arguments)


async def bare_lookup(args: LookupArgs) -> str:
    return await SCRIPT.lookup(args.query, args.limit, args.tags)


BARE_TOOLS = {"lookup": (LookupArgs, bare_lookup)}


class Kept(list):
    """A transcript that is appended to a file, line by line, and flushed."""

    def __init__(self, file) -> None:
        super().__init__()
        self.file = file

    def append(self, message: dict) -> None:
        super().append(message)
        self.file.write(json.dumps(message) + "\n")
        self.file.flush()


async def bare_agent(prompt: str, messages: list[dict] | None = None) -> AsyncIterator[BareDelta]:
    messages = [] if messages is None else messages
    messages.append({"role": "user", "content": prompt})
    while True:
        text: list[str] = []
        calls: list[dict] = []
        async for delta in bare_model(messages):
            if delta.kind == "text":
                text.append(delta.text)
                yield delta
            elif delta.kind == "call":
                calls.append({"id": delta.call_id, "name": delta.text, "arguments": ""})
            else:
                calls[-1]["arguments"] += delta.text
        messages.append({"role": "assistant", "content": "".join(text), "tool_calls": calls})
        if not calls:
            return
        for call in calls:
            schema, function = BARE_TOOLS[call["name"]]
            try:
                result = await function(schema.model_validate_json(call["arguments"]))
            except ValueError as error:
                result = f"error: {error}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


async def bare() -> None:
    async for _delta in bare_agent(PROMPT):
        SCRIPT.seen += 1


async def bare_kept() -> None:
    with tempfile.TemporaryFile("w") as file:
        async for _delta in bare_agent(PROMPT, Kept(file)):
            SCRIPT.seen += 1


# The glidepath side, imported late so that the bare side runs alone.


def lookup_agent():
    """What makes the agent of every cell: a fake model, one tool, and limits on everything that are never reached."""
    from glidepath import Agent, Limits, Usage, tool
    from glidepath.models import StreamEnd, TextDelta, ToolCallDelta

    class FakeModel:
        name = "fake"
        max_output_tokens = 1_000

        async def stream(self, request):
            arguments = await SCRIPT.next_call()
            for text in DELTAS:
                yield TextDelta(text=text)
            if arguments is not None:
                yield ToolCallDelta(index=0, id=f"call_{SCRIPT.asked}", name="lookup", arguments=arguments)
            reason = "end_turn" if arguments is None else "tool_use"
            usage = Usage(input=60 + 52 * len(request.messages), output=55)  # as a provider would count
            yield StreamEnd(stop_reason=reason, usage=usage)

    @tool(name="lookup", description="Look something up.")
    async def lookup(query: str, limit: int, tags: list[str]) -> str:
        return await SCRIPT.lookup(query, limit, tags)

    limits = Limits(max_iterations=10**6, max_tokens=10**10, max_cost="1000000", timeout=3_600, max_tool_calls=10**6)

    def agent(**more) -> Agent:
        return Agent(model=FakeModel(), tools=[lookup], limits=limits, prices={"fake": (1.0, 1.0)}, **more)

    return agent


def streaming(agent) -> Cell:
    """A cell that reads every event of a run."""
    from glidepath.events import StreamChunk

    async def cell() -> None:
        async with agent.stream(PROMPT) as stream:
            async for event in stream:
                if type(event) is StreamChunk and event.text:
                    SCRIPT.seen += 1

    return cell


def glidepath_cells() -> dict[str, Cell]:
    """The cells by name."""
    from glidepath import Plugin, ResourceAction, ResourceConstraint, ResourceValidation
    from glidepath.sessions import SqliteStore
    from glidepath.spi import HOOKS

    class Quiet(ResourceConstraint):
        async def validate(self, context):
            return ResourceValidation.ok()

        def on_violation(self, validation):
            return ResourceAction.GRACEFUL_EXIT

    def ten(kind: type) -> tuple:
        """Ten instances of ten subclasses, because names are taken from the class and must differ."""
        return tuple(type(f"{kind.__name__}{number}", (kind,), {})() for number in range(10))

    def silent(self, context):
        return None

    agent = lookup_agent()
    plain = agent()

    async def run() -> None:
        await plain.run(PROMPT)

    folder = tempfile.TemporaryDirectory()  # gone with the process
    kept_run = streaming(agent(store=SqliteStore(f"{folder.name}/sessions.db")))
    kept_run.folder = folder

    idle = type("Idle", (Plugin,), dict.fromkeys(HOOKS, silent))
    return {
        "stream": streaming(plain),
        "run": run,
        "constraints10": streaming(agent(constraints=ten(Quiet))),
        "plugins10": streaming(agent(plugins=ten(idle))),
        "journal": kept_run,
    }


# Measuring.


async def cpu_per_turn(cell: Cell, turns: int, *, listening: bool = True) -> float:
    """Microseconds of process CPU time per turn of one run."""
    SCRIPT.start(turns)
    gc.collect()
    before = time.process_time_ns()
    await asyncio.create_task(cell())
    spent = time.process_time_ns() - before
    SCRIPT.check(listening=listening)
    return spent / turns / 1_000


async def windows(cell: Cell) -> tuple[float, float]:
    """Median microseconds of an early and of a late turn of one long run."""
    await cpu_per_turn(cell, FLAT_TURNS)
    turns = [(after - before) / 1_000 for before, after in zip(SCRIPT.stamps, SCRIPT.stamps[1:], strict=False)]
    return statistics.median(turns[EARLY]), statistics.median(turns[LATE])


async def measure_turns(
    cells: dict[str, Cell], rounds: int, turns: int, *, listening: bool = True
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in cells}
    for name, cell in cells.items():
        await cpu_per_turn(cell, 20, listening=listening and name != "run")  # warm up
    for _ in range(rounds):
        for name, cell in cells.items():
            samples[name].append(await cpu_per_turn(cell, turns, listening=listening and name != "run"))
    return samples


async def measure_flat(cells: dict[str, Cell], rounds: int) -> dict[str, list[tuple[float, float]]]:
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in cells}
    for _ in range(rounds):
        for name, cell in cells.items():
            samples[name].append(await windows(cell))
    return samples


def row(ratio: float | None, bar: float | None, **figures) -> dict:
    return {"ratio": ratio, "bar": bar, "ok": None if ratio is None or bar is None else ratio <= bar, **figures}


async def measure(wanted: set[str], rounds: int, turns: int) -> dict[str, dict]:
    ours = glidepath_cells() if wanted - {"bare"} else {}
    cells = (
        {"bare": bare}
        | ({"bare_kept": bare_kept} if "journal" in wanted else {})
        | {name: cell for name, cell in ours.items() if name in wanted}
    )
    samples = await measure_turns(cells, rounds, turns)
    base = min(samples["bare"])
    rows = {
        name: row(min(values) / base, BARS.get(name), best_us=min(values), all_us=values)
        for name, values in samples.items()
    }
    if "journal" in samples:  # both keep what happens: the bare loop as lines of JSON
        rows["journal"] = row(
            min(samples["journal"]) / min(samples["bare_kept"]),
            BARS["journal"],
            best_us=min(samples["journal"]),
            all_us=samples["journal"],
        )
    if {"stream", "plugins10"} <= set(samples):
        added = min(samples["plugins10"]) - min(samples["stream"])
        rows["plugins_add"] = row(added / base, PLUGINS_ADD, best_us=added)
    if "flat" in wanted:
        # The bare loop is the control: what it drifts, the machine drifts.
        for name, pairs in (await measure_flat({"flat": ours["stream"], "flat_bare": bare}, min(rounds, 3))).items():
            early, late = (min(values) for values in zip(*pairs, strict=True))
            rows[name] = row(late / early, BARS.get(name), early_us=early, late_us=late, all_us=pairs)
    return rows


def table(rows: dict[str, dict]) -> str:
    lines = [f"{'cell':<14}{'us/turn':>10}{'ratio':>8}{'bar':>7}  verdict"]
    for name, cell in rows.items():
        cost = cell.get("best_us", cell.get("late_us"))
        bar = "-" if cell["bar"] is None else f"{cell['bar']:.1f}"
        verdict = {None: "", True: "ok", False: "OVER"}[cell["ok"]]
        lines.append(f"{name:<14}{cost:>10.1f}{cell['ratio']:>8.2f}{bar:>7}  {verdict}".rstrip())
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="CELLS", help="comma-separated: bare, " + ", ".join(BARS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turns", type=int, default=1_000)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    options = parser.parse_args()
    wanted = set(options.only.split(",")) if options.only else {"bare", *BARS}
    if unknown := wanted - {"bare", *BARS}:
        parser.error(f"unknown cells: {', '.join(sorted(unknown))}")
    rows = asyncio.run(measure(wanted, options.rounds, options.turns))
    print(table(rows))
    if options.out:
        figures = {"python": sys.version.split()[0], "rounds": options.rounds, "turns": options.turns, "cells": rows}
        options.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 1 if options.check and any(cell["ok"] is False for cell in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
