"""Plays every misbehaving case to every framework, each in an environment of its own, and writes the verdicts as JSON.

Each case has a fresh process. A framework whose control case does not end well has no column: its adapter is broken.
See ../README.md.
"""

import argparse
import ast
import datetime as dt
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "peers")]

from cases import CASES, HARD_SECONDS, SPARE_SECONDS  # noqa: E402
from environments import make_environment  # noqa: E402

FRAMEWORKS = ("glidepath", "agent_framework", "langgraph", "openai_agents", "pydantic_ai", "strands")
COMMAND = "python bench/matrix/run.py --cache build/peers --out bench/results/matrix.json"


def configuration(framework: str) -> str:
    """The source of an adapter's `configure`: what is shown is what was run."""
    source = (HERE / "adapters" / f"{framework}.py").read_text(encoding="utf-8")
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    return next(ast.get_source_segment(source, node) or "" for node in functions if node.name == "configure")


def ask_worker(python: Path, framework: str, case: str, seconds: float = 120) -> dict:
    quiet = {name: value for name, value in os.environ.items() if "PROXY" not in name.upper()}
    quiet |= {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    quiet.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [str(python), str(HERE / "worker.py"), framework, case]
    try:
        done = subprocess.run(
            command, cwd=HERE, env=quiet, capture_output=True, text=True, timeout=seconds, check=False
        )
        return json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"not through after {seconds:.0f} s"}
    except (IndexError, ValueError):
        return {"error": (done.stderr or done.stdout).strip()[-300:]}


def word(row: dict) -> str:
    """A cell for a terminal."""
    if "error" in row:
        return "ERROR"
    held = "held" if row["contained"] else row["ending"] if row["ending"] in {"killed", "crashed"} else "over"
    return f"{held}{'+answer' if row['answer'] else ''}{'' if row['truthful'] else ' (untrue)'}"


def play(framework: str, python: Path, names: list[str]) -> dict[str, dict]:
    rows = {}
    for name in names:
        rows[name] = ask_worker(python, framework, name)
        print(f"  {framework}, {name}: {word(rows[name])} {json.dumps(rows[name])[:200]}", file=sys.stderr)
        if name == "control" and not (rows[name].get("contained") and rows[name].get("truthful")):
            raise SystemExit(f"{framework}: the control case did not end well, so its column would mean nothing")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of the environments; made when missing")
    parser.add_argument("--out", type=Path, required=True, help="JSON file; frameworks that are not run now are kept")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="comma-separated")
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated; the control always runs")
    parser.add_argument("--jobs", type=int, default=2, help="frameworks at once")
    options = parser.parse_args()
    names = ["control", *(name for name in options.cases.split(",") if name != "control")]
    wanted = options.frameworks.split(",")
    if unknown := [n for n in names if n not in CASES] + [f for f in wanted if f not in FRAMEWORKS]:
        parser.error(f"unknown: {', '.join(unknown)}")
    if options.jobs < 1:
        parser.error("--jobs must be 1 or more")
    pythons = {name: make_environment(options.cache, name) for name in wanted}
    report = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else {}
    report |= {
        "command": COMMAND,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "python": platform.python_version(),
        "hard_seconds": HARD_SECONDS,
        "spare_seconds": SPARE_SECONDS,
        "cases": {name: {"what": case.what, "watched": case.watched} for name, case in CASES.items()},
    }
    with ThreadPoolExecutor(options.jobs) as pool:
        columns = pool.map(lambda name: play(name, pythons[name], names), wanted)
        for name, rows in zip(wanted, columns, strict=True):
            column = report.setdefault("frameworks", {}).setdefault(name, {"rows": {}})
            column |= ask_worker(pythons[name], name, "about") | {"configuration": configuration(name)}
            column["rows"] |= rows
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for name in wanted:
        rows = report["frameworks"][name]["rows"]
        print(f"{name:<18}" + "  ".join(f"{case}: {word(row)};" for case, row in rows.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
