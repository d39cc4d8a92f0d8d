"""Every agent behind the gate, with models that would never stop: exit code 0, an answer, and nothing over the limit.

python bench/gate/fly.py                                   # all agents x loop, spawn, stubborn, endless
python bench/gate/fly.py claude-code codex --cells loop spawn --out build/gate.json

Each cell runs `glidepath gate run --max-tokens N --report FILE --upstream URL -- COMMAND` with its own scripted
upstream, which counts the tokens. Cells that a program cannot express are marked from the table, before anything runs.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from flight import Stage, describe, run_command
from install import is_installed
from table import AGENTS

from glidepath.testing import ScriptedUpstream

CELLS = {
    "loop": "loop",
    "spawn": "spawn:children=3",
    "stubborn": "stubborn",
    "endless": "endless",
}
MODEL = r"SCRIPTED-ANSWER (after [1-9]|without)"
"""The model's last words after work, or the beginning of its endless reply: not what it said to a call on the side."""
OWN = r"\[glidepath\]"
"""How the gate's own words begin, where the model gave none."""
LARGE = ("claude-code", "codex", "codex/classic", "opencode", "gemini-cli", "qwen-code")
LIMITS = {"smolagents": 20_000, "mini-swe-agent": 20_000, "aider": 20_000}
SECONDS = 300


@dataclass
class Cell:
    """One run behind a gate. `tokens` is what the upstream counted, `told` what the gate's report says."""

    agent: str
    cell: str
    verdict: str
    why: str = ""
    limit: int = 0
    tokens: int = 0
    told: int | None = None
    calls: int = 0
    children: int = 0
    refused: int = 0
    open: int = 0
    code: int = 0
    seconds: float = 0.0
    answer: str = ""
    logs: str = ""


def limit_of(agent: str, cell: str) -> int:
    """A limit in tokens: room for a dozen calls of the program."""
    if agent in LARGE:
        return 400_000 if cell == "spawn" else 200_000
    return LIMITS.get(agent, 8_000)


def gate_command(limit: int, report: Path, url: str, command: list[str]) -> list[str]:
    """The command line of a run behind a gate."""
    flags = ["--max-tokens", str(limit), "--report", str(report), "--upstream", url]
    return [sys.executable, "-m", "glidepath", "gate", "run", *flags, "--", *command]


def has_gate() -> bool:
    """Whether this glidepath has the command."""
    asked = [sys.executable, "-m", "glidepath", "gate", "run", "--help"]
    return subprocess.run(asked, capture_output=True, check=False, timeout=60).returncode == 0


async def fly_cell(name: str, cell: str, logs: Path, *, seconds: float, limit: int | None = None) -> Cell:
    """Run one cell and judge it."""
    agent = AGENTS[name]
    if cell in agent.cannot:
        return Cell(name, cell, "cannot", agent.cannot[cell])
    if not is_installed(agent.program):
        return Cell(name, cell, "missing", "not installed")
    folder = logs / name.replace("/", "-") / cell
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.json"
    for old in (report, folder / "upstream.jsonl"):
        old.unlink(missing_ok=True)
    limit = limit or limit_of(name, cell)
    async with ScriptedUpstream(CELLS[cell], log=folder / "upstream.jsonl", bodies=True, keep=0) as up:
        stage = Stage(agent, folder, f"Count the steps #run-{cell}, then report.", up.url, "upstream-key")
        command, env = stage.prepare(bare=False)
        env |= {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
        whole = gate_command(limit, report, up.url, command)
        code, spent = await asyncio.to_thread(run_command, whole, env, stage.folder, seconds)
        flight = describe(name, stage.folder, code, spent, f"{MODEL}|{OWN}")
        said = (folder / "stdout").read_text(encoding="utf-8", errors="replace")
        usage = up.usage
        found = Cell(name, cell, "", limit=limit, tokens=usage.tokens, calls=usage.calls, refused=usage.refused)
        found.code, found.seconds, found.logs, found.open = code, flight.seconds, str(folder), usage.open
        found.answer = "model" if re.search(MODEL, said) else "own words" if flight.answer else ""
    found.told = read_report(report).get("tokens")
    found.children = count_children(folder / "upstream.jsonl")
    found.verdict, found.why = judge(found, flight.last_words)
    return found


def read_report(path: Path) -> dict:
    """The gate's report; nothing when it wrote none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def count_children(log: Path) -> int:
    """How many different children sent calls."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    return len({child for line in lines if (child := json.loads(line)["child"])})


def judge(cell: Cell, words: str) -> tuple[str, str]:
    """`ok`, or what is wrong."""
    wrong = []
    if cell.code:
        wrong.append(f"exit code {cell.code}: {words[-160:]!r}")
    if not cell.answer:
        wrong.append("no answer")
    if cell.tokens > cell.limit:
        wrong.append(f"{cell.tokens - cell.limit} tokens over")
    if cell.calls == 0:
        wrong.append("no call arrived")
    if cell.cell == "spawn" and not cell.children:
        wrong.append("no sub-agent called")
    if cell.refused:
        wrong.append(f"{cell.refused} illegal requests")
    return ("ok", "") if not wrong else ("FAILED", "; ".join(wrong))


def show(cell: Cell) -> str:
    """One line of the table."""
    if cell.verdict in ("cannot", "missing"):
        return f"{cell.agent:24} {cell.cell:9} {cell.verdict:8} {cell.why}"
    share = 100 * cell.tokens / cell.limit
    return (
        f"{cell.agent:24} {cell.cell:9} {cell.verdict:8} code {cell.code:3} {cell.seconds:6.1f} s {cell.calls:4} calls "
        f"{cell.tokens:7} of {cell.limit:6} ({share:5.1f} %) told {cell.told} answer {cell.answer or '-':9} {cell.why}"
    )


def main() -> int:
    """Entry point: 0 when every cell that can be expressed is ok."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="AGENT")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--limit", type=int, help="tokens, instead of the agent's own limit")
    parser.add_argument("--timeout", type=float, default=SECONDS)
    parser.add_argument("--out", type=Path, help="the table as JSON")
    parser.add_argument("--logs", type=Path)
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(AGENTS))
    if unknown:
        parser.error(f"{', '.join(unknown)}: not in the table; python bench/gate/agents.py list")
    if not has_gate():
        print("this glidepath has no `gate run`", file=sys.stderr)
        return 2
    logs = options.logs or Path(tempfile.mkdtemp(prefix="gate-fly-"))
    cells = []
    for name in options.names or AGENTS:
        for cell in options.cells:
            found = asyncio.run(fly_cell(name, cell, logs, seconds=options.timeout, limit=options.limit))
            cells.append(found)
            print(show(found), flush=True)
            if options.out:
                options.out.write_text(json.dumps([asdict(one) for one in cells], indent=1) + "\n", encoding="utf-8")
    done = [one for one in cells if one.verdict in ("ok", "FAILED")]
    good = [one for one in done if one.verdict == "ok"]
    print(f"{len(good)} of {len(done)} cells ok; {len(cells) - len(done)} cannot be run; logs: {logs}")
    return 0 if len(good) == len(done) and done else 1


if __name__ == "__main__":
    sys.exit(main())
