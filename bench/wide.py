"""What depends on the machine as well: one delta, 1,000 agents at once, cancelling a hundred, the import.

Each sample is a process of its own, the bare loop and glidepath in turn, and best is divided by best. The workloads are
those of `peers/`, here without other frameworks and in the interpreter that runs this. See README.md for the bars.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from run import BARE, ask_worker, best

OURS = "glidepath"
PYTHON = Path(sys.executable)
CELLS = {
    "delta": ("stream", {"deltas": 20_000}, 3.0),
    "crowd": ("crowd", {"agents": 1_000, "turns": 5}, 4.0),
    "cancel": ("cancel", {"agents": 100}, 10.0),
}
IMPORTS = {BARE: "import asyncio, msgspec", OURS: "import glidepath"}
IMPORT_BAR, KIB_BAR = 1.2, 32.0
TIMED = "import time; t = time.process_time(); {}; print(time.process_time() - t)"


def import_cost(statement: str) -> dict:
    """CPU time of an import in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", TIMED.format(statement)], capture_output=True, text=True, check=True)
    return {"cost_us": float(done.stdout) * 1e6}


def measure(rounds: int, scale: float) -> dict[str, dict]:
    rows = {}
    for name, (workload, options, bar) in CELLS.items():
        sizes = {key: max(1, round(value * scale)) for key, value in options.items()}
        samples: dict[str, list[dict]] = {BARE: [], OURS: []}
        for _ in range(rounds):
            for side, found in samples.items():
                found.append(ask_worker(PYTHON, side, workload, sizes))
        rows[name] = row(samples, bar)
        if workload == "crowd" and rows[name]["ratio"] is not None:
            kib = min(sample["kib_per_agent"] for sample in samples[OURS])
            rows["crowd_kib"] = {"ratio": None, "kib_per_agent": kib, "bar": KIB_BAR, "ok": kib <= KIB_BAR}
    samples = {BARE: [], OURS: []}
    for _ in range(3 * rounds):
        for side, found in samples.items():
            found.append(import_cost(IMPORTS[side]))
    rows["import"] = row(samples, IMPORT_BAR)
    return rows


def row(samples: dict[str, list[dict]], bar: float) -> dict:
    ours, bare = best(samples[OURS]), best(samples[BARE])
    if ours is None or bare is None:
        return {"ratio": None, "bar": bar, "ok": False, "samples": samples}
    ratio = ours["cost_us"] / bare["cost_us"]
    return {"ratio": ratio, "best_us": ours["cost_us"], "bar": bar, "ok": ratio <= bar, "samples": samples}


def table(rows: dict[str, dict]) -> str:
    lines = [f"{'cell':<14}{'figure':>10}{'bar':>7}  verdict"]
    for name, cell in rows.items():
        figure = cell["ratio"] if cell["ratio"] is not None else cell.get("kib_per_agent", float("nan"))
        lines.append(f"{name:<14}{figure:>10.2f}{cell['bar']:>7.1f}  {'ok' if cell['ok'] else 'OVER'}")
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
    return 1 if options.check and not all(cell["ok"] for cell in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
