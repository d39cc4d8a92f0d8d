"""Runs every workload of every framework, each in an environment of its own, and writes the figures to a JSON file.

A figure is only ever compared with the hand-written loop of the same cell: frameworks take turns within a round, so
that a slow spell of the machine hits all of them, and best is divided by best. Figures are CPU time. See ../README.md.
"""

import argparse
import datetime as dt
import json
import os
import platform
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from environments import FRAMEWORKS, HERE, REPOSITORY, make_environment

BASE = "base"  # the bare loop in the same cell
BARE = "bare"


@dataclass(frozen=True)
class Cell:
    """A workload with its options; `base` is what the bare loop does meanwhile."""

    what: str
    rounds: int
    options: dict = field(default_factory=dict)
    base: str | None = None
    base_options: dict = field(default_factory=dict)


CELLS = {
    "import": Cell("import of the framework in a fresh interpreter", 5),
    "turn": Cell("one tool turn: 20 text deltas and one tool call with validated arguments", 3, {"turns": 200}),
    "stream": Cell("one text delta of a 5,000 delta answer, end to end", 3, {"deltas": 5_000}),
    "checks": Cell("one tool turn with ten custom checks that find nothing", 3, {"turns": 60}, "turn", {"turns": 60}),
    "plugins": Cell("one tool turn with ten plugins that have nothing to say", 3, {"turns": 60}, "turn", {"turns": 60}),
    "cancel": Cell("cancel 100 agents that wait inside a tool", 3, {"agents": 100}),
    "persist": Cell(
        "one tool turn of 100, kept on disk by the framework's own means",
        3,
        {"turns": 100, "seconds": 10},
        "turn",
        {"turns": 100},
    ),
    "crowd": Cell("1,000 agents at once, one tool turn and an answer each", 3, {"agents": 1_000, "turns": 1}),
    "long": Cell("one run of 5,000 tool turns, or as far as 6 CPU seconds go", 3, {"turns": 5_000, "seconds": 6}),
}


def ask_worker(python: Path, framework: str, workload: str, options: dict, seconds: float = 600) -> dict:
    """The figures of one workload in a fresh process, or its error."""
    command = [str(python), str(HERE / "worker.py"), framework, workload, "--options", json.dumps(options)]
    quiet = {name: value for name, value in os.environ.items() if "PROXY" not in name.upper()}
    quiet |= {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1", "AGNO_TELEMETRY": "false"}
    quiet.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody pays for compiling at every start
    try:
        done = subprocess.run(
            command, cwd=HERE, env=quiet, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not through after {seconds:.0f} s"}
    lines = done.stdout.strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"error": (done.stderr or done.stdout).strip()[-300:]}


def measure(cell: Cell, workload: str, pythons: dict[str, Path], rounds: int) -> dict[str, list[dict]]:
    """Samples by framework; whoever is absent or failed once is not asked again."""
    samples: dict[str, list[dict]] = {BASE: [], **{name: [] for name in pythons}}
    out: set[str] = set()
    order = list(pythons)
    for number in range(rounds):
        if cell.base is not None:
            samples[BASE].append(ask_worker(pythons[BARE], BARE, cell.base, cell.base_options))
        for name in order[number % len(order) :] + order[: number % len(order)]:
            if name in out:
                continue
            figures = ask_worker(pythons[name], name, workload, cell.options)
            samples[name].append(figures)
            if "cost_us" not in figures:
                out.add(name)
            print(f"  {workload} {number + 1}/{rounds} {name}: {json.dumps(figures)[:150]}", file=sys.stderr)
    if cell.base is None:
        samples[BASE] = samples[BARE]
    for figures in (figures for values in samples.values() for figures in values):
        figures.update({key: round(value, 3) for key, value in figures.items() if isinstance(value, float)})
    return samples


def machine() -> dict:
    model = next(
        (
            line.partition(": ")[2]
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {"processor": model, "cores": os.cpu_count(), "system": platform.system()}


def best(samples: list[dict]) -> dict | None:
    """The cheapest sample: noise only ever adds."""
    good = [figures for figures in samples if figures.get("cost_us") is not None]
    return min(good, key=lambda figures: figures["cost_us"]) if good else None


def table(name: str, samples: dict[str, list[dict]]) -> str:
    base = best(samples[BASE])
    lines = [f"{name:<18}{'CPU us':>14}{'ratio':>10}"]
    for framework, values in samples.items():
        figures = best(values)
        if framework == BASE or figures is None or base is None:
            continue
        lines.append(f"  {framework:<16}{figures['cost_us']:>14.1f}{figures['cost_us'] / base['cost_us']:>10.1f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of the environments; made when missing")
    parser.add_argument("--out", type=Path, required=True, help="JSON file; cells that are not run now are kept")
    parser.add_argument("--cells", default=",".join(CELLS), help="comma-separated")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="comma-separated; the bare loop always runs")
    parser.add_argument("--rounds", type=int, help="instead of each cell's own number")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies turns, deltas and agents (for a quick look)"
    )
    options = parser.parse_args()
    wanted, names = options.cells.split(","), [BARE, *(n for n in options.frameworks.split(",") if n != BARE)]
    if unknown := [name for name in wanted if name not in CELLS] + [n for n in names if n not in FRAMEWORKS]:
        parser.error(f"unknown: {', '.join(unknown)}")
    if (options.rounds is not None and options.rounds < 1) or options.scale <= 0:
        parser.error("--rounds must be 1 or more, --scale more than 0")
    pythons = {name: make_environment(options.cache, name) for name in names}
    report = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else {}
    report |= {"python": platform.python_version(), "machine": machine()}
    about = {name: ask_worker(python, name, "about", {}) for name, python in pythons.items()}
    report["frameworks"] = report.get("frameworks", {}) | about
    for name in wanted:
        cell = scaled(CELLS[name], options.scale)
        load = os.getloadavg()[0]
        samples = measure(cell, name, pythons, options.rounds or cell.rounds)
        report.setdefault("cells", {})[name] = {
            "what": cell.what,
            "options": cell.options,
            "rounds": options.rounds or cell.rounds,
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "commit": commit(),
            "command": command(options),
            "load": round(load, 1),
            "samples": samples,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(table(name, samples), flush=True)
    return 0


def scaled(cell: Cell, scale: float) -> Cell:
    def shrink(options: dict) -> dict:
        return {key: max(1, round(value * scale)) if key != "seconds" else value for key, value in options.items()}

    if scale == 1.0:
        return cell
    return Cell(cell.what, cell.rounds, shrink(cell.options), cell.base, shrink(cell.base_options))


def commit() -> str:
    """The last change of the code that is measured."""
    done = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", "src"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def command(options: argparse.Namespace) -> str:
    """How to run this again, without the places of this machine."""
    words = ["python", "bench/peers/run.py", "--cache", "build/peers", "--out", "bench/results/peers.json"]
    for name in ("cells", "frameworks", "rounds", "scale"):
        value = getattr(options, name)
        if value is not None and value != 1.0 and value != ",".join(CELLS) and value != ",".join(FRAMEWORKS):
            words += [f"--{name}", str(value)]
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
