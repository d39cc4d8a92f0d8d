"""What an evaluation costs beside the runs themselves: CPU time and memory of 1,000 cases with a scripted model.

python bench/evals.py [--cases 1000]

The same runs are made once alone, with the same store and as many at a time, and once as an evaluation. Bars: CPU time
a case at most 1.3 times that of the run alone, and memory that does not grow with the number of cases beyond what a
report keeps of them. Each way runs in its own process; the best of three counts.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from glidepath import Agent, Limits, tool
from glidepath.evals import Case, Dataset, evaluate
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call, say

AT_ONCE = 8
TURNS = 4
MOST = 1.3
TIMES = 3


@tool
async def look(n: int) -> str:
    """Look."""
    return "saw it"


def make(case):
    turns = [call("look", n=n) for n in range(TURNS - 1)]
    model = ScriptedModel([*turns, say(str(case.expected))], record=False)
    return Agent(model=model, tools=[look], limits=Limits(max_iterations=9))


async def run_alone(cases, store):
    waiting = iter(cases)

    async def work():
        for case in waiting:
            await make(case).replace(store=store).run(case.prompt, session=f"alone/{case.id}")

    await asyncio.gather(*[work() for _ in range(AT_ONCE)])


async def fly(way, count, path):
    cases = [Case(prompt=f"question {n}", expected=f"answer {n}", id=str(n)) for n in range(count)]
    store = SqliteStore(path)
    began = time.process_time()
    if way == "alone":
        await run_alone(cases, store)
    else:
        report = await evaluate(Dataset(cases), make, store=store, name="e", concurrency=AT_ONCE)
        assert report.passed == count
    spent = time.process_time() - began
    await store.close()
    return {"ms": 1000 * spent / count, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(way, count):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--way", way, "--cases", str(count), "--path", str(Path(folder) / "s.db")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", type=int, default=1000)
    options.add_argument("--times", type=int, default=TIMES)
    options.add_argument("--way")
    options.add_argument("--path")
    chosen = options.parse_args()
    if chosen.way:
        print(json.dumps(asyncio.run(fly(chosen.way, chosen.cases, chosen.path))))
        return 0
    found = {}
    for way in ("alone", "evaluated"):
        runs = [measure(way, chosen.cases) for _ in range(chosen.times)]
        found[way] = min(runs, key=lambda one: one["ms"])
        print(f"{way:<10} {found[way]['ms']:.2f} ms CPU a case, {found[way]['mb']:.0f} MB at most")
    ratio = found["evaluated"]["ms"] / found["alone"]["ms"]
    half = measure("evaluated", chosen.cases // 2)["mb"]
    print(f"ratio      {ratio:.2f} (bar: {MOST}); with half the cases {half:.0f} MB")
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
