"""What depends on the machine as well: one delta, 1,000 agents at once, cancelling a hundred, the import, a cold start.

Each sample is a process of its own, the bare loop and glidepath in turn, and best is divided by best. The workloads are
those of `peers/`, here without other frameworks and in the interpreter that runs this. See README.md for the bars.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from run import BARE, ask_worker

OURS, UNHEARD = "glidepath", "glidepath_run"
PYTHON = Path(sys.executable)
CROWD = {"agents": 1_000, "turns": 10}
CELLS = {
    "delta": (OURS, "stream", {"deltas": 20_000}, 2.0),
    "crowd": (OURS, "crowd", CROWD, 1 / 0.23),
    "crowd_run": (UNHEARD, "crowd", CROWD, 1 / 0.3),
    "short_runs": (OURS, "crowd", {"agents": 100, "turns": 10}, 3.5),
    "cancel": (OURS, "cancel", {"agents": 100}, 5.0),
}
"""Whom, which workload, how much of it, and the bar. That of a crowd is a share of the bare turns per second."""
COSTS = {"cancel": "heard_us"}
"""What of a sample is compared; `cost_us` elsewhere. A cancel is over when the last tool has heard of it."""
IMPORTS = {BARE: "import asyncio, msgspec", OURS: "import glidepath"}
IMPORT_BAR, KIB_BAR, COLD_BAR = 1.2, 32.0, 80.0
TIMED = "import time; t = time.process_time(); {}; print(time.process_time() - t)"
COLD = Path(__file__).parent / "cold.py"


def compiled() -> dict[str, str]:
    """An environment in which nobody pays for compiling at every start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def import_cost(statement: str) -> dict:
    """CPU time of an import in a fresh interpreter."""
    command = [sys.executable, "-c", TIMED.format(statement)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=compiled())
    return {"cost_us": float(done.stdout) * 1e6}


def cold_start(*options: str) -> dict:
    """CPU time of a process up to its first scripted result."""
    command = [sys.executable, str(COLD), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=compiled())
    figures = json.loads(done.stdout)
    return {"cost_us": figures["cost_us"], "modules": len(figures["modules"])}


def measure(rounds: int, scale: float) -> dict[str, dict]:
    rows = {}
    for name, (ours, workload, options, bar) in CELLS.items():
        sizes = {key: max(1, round(value * scale)) for key, value in options.items()}
        samples: dict[str, list[dict]] = {BARE: [], ours: []}
        for _ in range(rounds):
            for side, found in samples.items():
                found.append(ask_worker(PYTHON, side, workload, sizes))
        rows[name] = row(samples[BARE], samples[ours], bar, COSTS.get(name, "cost_us"))
        if name in COSTS:
            rows[f"{name}_landed"] = row(samples[BARE], samples[ours], None)
        if name == "crowd" and rows[name]["ratio"] is not None:
            kib = min(sample["kib_per_agent"] for sample in samples[OURS])
            rows["crowd_kib"] = {"ratio": None, "figure": kib, "bar": KIB_BAR, "ok": kib <= KIB_BAR}
    pairs = [(import_cost(IMPORTS[BARE]), import_cost(IMPORTS[OURS])) for _ in range(3 * rounds)]
    rows["import"] = row(*map(list, zip(*pairs, strict=True)), IMPORT_BAR)
    pairs = [(cold_start("--base"), cold_start()) for _ in range(3 * rounds + 1)]  # the first may compile
    rows["cold_ratio"] = row(*map(list, zip(*pairs, strict=True)), None)
    milliseconds = rows["cold_ratio"]["best_us"] / 1_000
    rows["cold_ms"] = {"ratio": None, "figure": milliseconds, "bar": COLD_BAR, "ok": milliseconds <= COLD_BAR}
    return rows


def row(bare: list[dict], ours: list[dict], bar: float | None, cost: str = "cost_us") -> dict:
    """Best against best; without a bar it is only reported."""
    samples = {BARE: bare, OURS: ours}
    good = {side: [sample[cost] for sample in found if sample.get(cost)] for side, found in samples.items()}
    if not all(good.values()):
        return {"ratio": None, "bar": bar, "ok": False, "samples": samples}
    mine, base = min(good[OURS]), min(good[BARE])
    ok = None if bar is None else mine / base <= bar
    return {"ratio": mine / base, "best_us": mine, "bare_us": base, "bar": bar, "ok": ok, "samples": samples}


def table(rows: dict[str, dict]) -> str:
    lines = [f"{'cell':<16}{'figure':>10}{'bar':>7}  verdict"]
    for name, cell in rows.items():
        figure = cell["ratio"] if cell["ratio"] is not None else cell.get("figure", float("nan"))
        bar = "-" if cell["bar"] is None else f"{cell['bar']:.2f}"
        verdict = {None: "", True: "ok", False: "OVER"}[cell["ok"]]
        lines.append(f"{name:<16}{figure:>10.2f}{bar:>7}  {verdict}".rstrip())
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies deltas, agents and turns (for a quick look)"
    )
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    options = parser.parse_args()
    if options.rounds < 1 or options.scale <= 0:
        parser.error("--rounds must be 1 or more, --scale more than 0")
    rows = measure(options.rounds, options.scale)
    print(table(rows))
    if options.out:
        figures = {"python": sys.version.split()[0], "rounds": options.rounds, "cells": rows}
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 1 if options.check and any(cell["ok"] is False for cell in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
