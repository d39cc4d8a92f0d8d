"""What a journal costs: bytes written a turn, CPU beside a run without a store, turns a second and loop lag.

    python bench/journal.py [--rounds 5] [--turns 600] [--agents 1000] [--durability sync] [--out FILE]

Every cell runs in a process of its own, the cells of a round one after the other, so that all of them meet the same
machine. A turn is a model call with a tool call; the model answers at once. Bytes are what the process handed to
write(2) and its like (wchar in /proc/self/io), CPU is that of the whole process while the runs flew. On a machine that
has other things to do, trust bytes and CPU ratios before turns a second. Of the rounds the best counts, as in the
other benchmarks: what is slower than that is the machine's other work.

Loop lag is how late a timer fires. It is asked for once a pass of the event loop, however long the pass is, so every
answer counts for as long as it took: a plain median of a dozen answers says more about the short passes at the end,
when runs give their sessions back one by one, than about the long ones that everybody waits for. The model answers at
once, so with 1,000 agents a pass is a turn of all of them, and the lag is a thousand times what a turn costs.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STORES = ("none", "memory", "sqlite")
FEW, TURNS_OF_FEW, TURNS_OF_MANY = 100, 40, 11
BEST = {"turns_per_second": max, "written": max}  # of several rounds; of every other figure the lowest
MOST_ALONE, MOST, LAG = 24_000, 3_000, 150  # the bars: bytes a turn; milliseconds of loop lag


def written() -> int:
    """Bytes that this process has handed to write(2) so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    return 0


def make_store(name: str, folder: str):
    from glidepath.sessions import MemoryStore, SqliteStore

    makers = {
        "none": lambda: None,
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(f"{folder}/sessions.db"),
    }
    return makers[name]()


def make_agent(store, turns: int, durability: str):
    from glidepath import Agent, Limits, Usage, tool
    from glidepath.models import StreamEnd, TextDelta, ToolCallDelta

    class Busy:
        """Calls a tool so many times, each time about something else, then ends."""

        name = "busy"
        max_output_tokens = 1000

        async def stream(self, request):
            left = turns - sum(message.role == "assistant" for message in request.messages[-2 * turns :])
            await asyncio.sleep(0)
            yield TextDelta(f"Let me look at number {left} of what you asked for.")
            if left > 1:
                arguments = json.dumps({"query": f"number {left}", "page": left})
                yield ToolCallDelta(0, f"call_{left}", "look", arguments)
            yield StreamEnd("tool_use" if left > 1 else "end_turn", Usage(1000, 60))

    class Counting(Busy):
        """The same, in time that does not grow with the transcript."""

        def __init__(self) -> None:
            self.left = turns

        async def stream(self, request):
            left, self.left = self.left, self.left - 1
            await asyncio.sleep(0)
            yield TextDelta(f"Let me look at number {left} of what you asked for.")
            if left > 1:
                yield ToolCallDelta(0, f"call_{left}", "look", json.dumps({"query": f"number {left}", "page": left}))
            yield StreamEnd("tool_use" if left > 1 else "end_turn", Usage(1000, 60))

    @tool
    async def look(query: str, page: int = 1) -> str:
        return f"page {page} about {query}: nothing new"

    return Agent(
        model=Counting(),
        tools=[look],
        store=store,
        durability=durability,
        limits=Limits(max_iterations=10**6, max_tokens=10**11, max_cost="1000000"),
        prices={"busy": ("3", "15")},
    )


def lag_at(share: float, lags: list[float]) -> float:
    """So much of the time passes in lags no longer than this, in milliseconds."""
    gone, total = 0.0, sum(lags)
    for lag in sorted(lags):
        gone += lag
        if gone >= share * total:
            return 1000 * lag
    return 0.0


async def fly(name: str, agents: int, turns: int, durability: str) -> dict:
    """One cell: so many agents at once, each of so many turns."""
    lags: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            lags.append(time.perf_counter() - before - 0.005)

    with tempfile.TemporaryDirectory(dir=os.environ.get("GLIDEPATH_BENCH_DIR")) as folder:
        store = make_store(name, folder)
        await make_agent(store, 3, durability).run("warm up", session=None if store is None else "warm")
        crew = [make_agent(store, turns, durability) for _ in range(agents)]
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.02)
        lags.clear()
        bytes_before, cpu, began = written(), time.process_time(), time.perf_counter()
        # Without a store a session has no name: to say that it is not kept would take time, a thousand times.
        names = [None if store is None else f"s{number}" for number in range(agents)]
        results = await asyncio.gather(*[one.run("go", session=name) for one, name in zip(crew, names, strict=True)])
        took, cpu, much = time.perf_counter() - began, time.process_time() - cpu, written() - bytes_before
        await asyncio.sleep(0.02)
        watching.cancel()
        assert {result.outcome.name for result in results} == {"DONE"}, results[0].cause
        if store is not None:
            await store.close()
    return {
        "written": much / (agents * turns),
        "cpu_us": cpu / (agents * turns) * 1e6,
        "turns_per_second": agents * turns / took,
        "lag_p50_ms": lag_at(0.5, lags),
        "lag_p99_ms": lag_at(0.99, lags),
    }


def cell(name: str, agents: int, turns: int, durability: str) -> dict:
    command = [sys.executable, __file__, "--cell", name, str(agents), str(turns), durability]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def bars(table: dict, many: int) -> list[tuple[str, bool]]:
    """What the embedded store is meant to reach, with what it did reach."""
    found = []
    for agents, most in ((1, MOST_ALONE), (FEW, MOST), (many, MOST)):
        row = table[f"sqlite {agents}"]
        found.append(
            (f"{agents} agents: {row['written']:.0f} bytes written a turn, at most {most}", row["written"] <= most)
        )
    lag = table[f"sqlite {many}"]["lag_p50_ms"]
    found.append((f"{many} agents: {lag:.0f} ms of loop lag (p50), at most {LAG}", lag <= LAG))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=600, help="of the run that flies alone")
    parser.add_argument("--agents", type=int, default=1000, help=f"that fly together, {TURNS_OF_MANY} turns each")
    parser.add_argument("--durability", default="sync")
    parser.add_argument("--out")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        name, agents, turns, durability = options.cell
        print(json.dumps(asyncio.run(fly(name, int(agents), int(turns), durability))))
        return
    shapes = [(1, options.turns), (FEW, TURNS_OF_FEW), (options.agents, TURNS_OF_MANY)]
    found: dict[str, list[dict]] = {}
    for _ in range(options.rounds):
        for agents, turns in shapes:
            for name in STORES:
                found.setdefault(f"{name} {agents}", []).append(cell(name, agents, turns, options.durability))
    table = {
        key: {figure: round(BEST.get(figure, min)(one[figure] for one in cells), 1) for figure in cells[0]}
        for key, cells in found.items()
    }
    for agents, _ in shapes:
        bare = table[f"none {agents}"]["cpu_us"]
        for name in STORES:
            table[f"{name} {agents}"]["cpu_x"] = round(table[f"{name} {agents}"]["cpu_us"] / bare, 2)
    print(f"{'store':10} {'agents':>6} {'B/turn':>8} {'us/turn':>8} {'x':>5} {'turns/s':>8} {'lag p50/p99 ms':>15}")
    for key, row in table.items():
        name, agents = key.split()
        lag = f"{row['lag_p50_ms']:.1f}/{row['lag_p99_ms']:.1f}"
        figures = f"{row['written']:8.0f} {row['cpu_us']:8.0f} {row['cpu_x']:5.2f} {row['turns_per_second']:8.0f}"
        print(f"{name:10} {agents:>6} {figures} {lag:>15}")
    for said, met in bars(table, options.agents):
        print(f"{'met   ' if met else 'MISSED'} {said}")
    if options.out:
        Path(options.out).write_text(json.dumps({"options": vars(options), "table": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
