"""The workloads: each plays scripts through one adapter and returns figures. Times are CPU time of all threads."""

import asyncio
import gc
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

from script import CURRENT, Script

MICRO = 1e6


async def play(adapter, script: Script) -> None:
    async def run() -> None:
        CURRENT.set(script)
        await adapter.play(script)

    await asyncio.create_task(run())  # a context of its own


async def warm(adapter, **more) -> None:
    await play(adapter, Script(turns=3, label="warm", **more))
    gc.collect()


def spans(script: Script) -> list[float]:
    """CPU microseconds from each model call to the next."""
    return [(after - before) / 1_000 for before, after in zip(script.stamps, script.stamps[1:], strict=False)]


def growth(script: Script, width: int = 20) -> dict:
    """An early and the last window of a run: does a turn cost more the longer the run is?"""
    costs = spans(script)
    if len(costs) < 3 * width:
        return {"early_us": None, "late_us": None, "growth": None}
    early, late = statistics.median(costs[width : 2 * width]), statistics.median(costs[-width:])
    return {"early_us": early, "late_us": late, "growth": late / early}


async def turn(adapter, turns: int = 200, extras: str | None = None) -> dict:
    """One agent, one tool call and 20 deltas a turn."""
    await warm(adapter, extras=extras)
    script = Script(turns=turns, extras=extras)
    before = time.process_time()
    await play(adapter, script)
    spent = time.process_time() - before
    script.check()
    return {"cost_us": spent / turns * MICRO, **growth(script)}


async def checks(adapter, turns: int = 100) -> dict:
    return await turn(adapter, turns, "checks")


async def plugins(adapter, turns: int = 100) -> dict:
    return await turn(adapter, turns, "plugins")


async def stream(adapter, deltas: int = 5_000) -> dict:
    """One long answer, no tool."""
    await warm(adapter)
    script = Script(turns=0, deltas=deltas)
    before = time.process_time()
    await play(adapter, script)
    spent = time.process_time() - before
    script.check()
    return {"cost_us": spent / deltas * MICRO}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def crowd(adapter, agents: int = 1_000, turns: int = 3) -> dict:
    """Many agents at once in one process. Memory is the peak of the process, less what it had before."""
    await warm(adapter)
    before_bytes = resident()
    scripts = [Script(turns=turns, label=f"s{number}") for number in range(agents)]
    before, started = time.process_time(), time.perf_counter()
    await asyncio.gather(*(play(adapter, script) for script in scripts))
    spent, wall = time.process_time() - before, time.perf_counter() - started
    for script in scripts:
        script.check()
    total = agents * turns
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "cost_us": spent / total * MICRO,
        "turns_per_cpu_second": total / spent,
        "wall_seconds": wall,
        "kib_per_agent": (peak - before_bytes) / agents / 1024,
        "overlapped": max(s.stamps[0] for s in scripts) < min(s.stamps[-1] for s in scripts),
    }


async def long(adapter, turns: int = 5_000, seconds: float = 20.0, folder: str | None = None) -> dict:
    """One long run, until it is through, breaks or has used up its CPU seconds."""
    until = time.process_time_ns() + int(seconds * 1e9)
    script = Script(turns=turns, folder=folder, label="long", until_ns=until)
    error = None
    before = time.process_time()
    try:
        await play(adapter, script)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"[:160]
    spent = time.process_time() - before  # with what is done at the end of a run, as writing a whole session
    if error is None:
        script.check()
    done = len(spans(script))
    return {
        "cost_us": spent / max(1, done) * MICRO,
        "turns": done,
        "through": done >= turns,
        "error": error,
        **growth(script),
    }


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def written() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(fields["wchar"])


async def persist(adapter, turns: int = 300, seconds: float = 20.0) -> dict:
    """A run that is kept on disk by the framework's own means."""
    with tempfile.TemporaryDirectory() as folder:
        await warm(adapter, folder=str(Path(folder, "warm")))
        kept = Path(folder, "kept")
        before = written()
        figures = await long(adapter, turns, seconds, str(kept))
        moved = written() - before
        taken = size(kept)
    return {**figures, "disk_bytes": taken, "written_bytes_per_turn": moved / max(1, figures["turns"])}


async def cancel(adapter, agents: int = 100) -> dict:
    """All agents wait inside a tool; their tasks are cancelled at once."""
    await warm(adapter)
    scripts = [Script(turns=1, hold=60.0, label=f"c{number}") for number in range(agents)]
    tasks = [asyncio.create_task(play(adapter, script)) for script in scripts]
    limit = time.perf_counter() + 30
    while not all(script.holding for script in scripts) and time.perf_counter() < limit:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    inside = sum(script.holding for script in scripts)
    gc.collect()
    began, before = time.perf_counter(), time.process_time()
    for task in tasks:
        task.cancel()
    ended, _ = await asyncio.wait(tasks, timeout=5)
    wall, spent = time.perf_counter() - began, time.process_time() - before
    await asyncio.sleep(0.2)
    return {
        "cost_us": spent / agents * MICRO,
        "heard_us": (max(script.released_cpu for script in scripts) - before) / agents * MICRO,
        "wall_ms": wall * 1_000,
        "inside_tool": inside,
        "tasks_ended": len(ended),
        "tools_cancelled": sum(script.released_at is not None for script in scripts),
        "raised_cancelled": sum(task.cancelled() for task in ended),
    }
