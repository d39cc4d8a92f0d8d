"""The crash test: what ten agents do on twenty bad days, bare and behind the gate.

python bench/crash/run.py                                  # what is missing of the table, then the page
python bench/crash/run.py --only claude-code,cut-stream    # one cell, bare and behind the gate
python bench/crash/run.py --list

Each cell has its logs in build/crash-test/AGENT/SPECIMEN/bare or gate. A cell that is there, for the same release and
limits, is not run again; so the whole may be interrupted at any time, and continued by the same command.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "gate"))
sys.path.insert(0, str(Path(__file__).parent))

from cell import Cell, describe_key, run_cell
from page import write_pages
from roster import CONTROL, MODES, SPECIMENS, TITLES, find_release, why_not

from glidepath.values import close_to

LOGS = Path(__file__).parents[2] / "build" / "crash-test"
NAMES = (CONTROL.name, *SPECIMENS)


def place(logs: Path, agent: str, specimen: str, mode: str) -> Path:
    """Where the logs of a cell are."""
    return logs / agent.replace("/", "-") / specimen / mode


def read_cell(logs: Path, agent: str, specimen: str, mode: str) -> Cell | None:
    """A cell that was run before."""
    try:
        found = json.loads((place(logs, agent, specimen, mode) / "cell.json").read_text(encoding="utf-8"))
        return Cell(**found)
    except (OSError, ValueError, TypeError):
        return None


def choose(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """The agents, specimens and modes that are meant; all of a kind where none is named."""
    chosen: dict[str, list[str]] = {}
    kinds = {**dict.fromkeys(TITLES, "agent"), **dict.fromkeys(NAMES, "specimen"), **dict.fromkeys(MODES, "mode")}
    for word in [one.strip() for part in words for one in part.split(",") if one.strip()]:
        if word not in kinds:
            meant = close_to(word, kinds)
            hint = f"did you mean {meant}? " if meant else ""
            sys.exit(f"--only {word}: there is no such agent or specimen: {hint}--list shows all")
        named = chosen.setdefault(kinds[word], [])
        if word not in named:  # two runs of a cell would share its folder
            named.append(word)
    return (
        chosen.get("agent", list(TITLES)),
        chosen.get("specimen", list(NAMES)),
        chosen.get("mode", list(MODES)),
    )


async def run_all(cells: list[tuple[str, str, str]], logs: Path, jobs: int) -> None:
    """Run these cells, a few at a time; each is on disk when it is done."""
    room = asyncio.Semaphore(jobs)
    done = 0

    async def run_one(agent: str, specimen: str, mode: str) -> None:
        nonlocal done
        async with room:
            cell = await run_cell(agent, specimen, mode, place(logs, agent, specimen, mode))
        done += 1
        print(f"{done:3}/{len(cells)} {show(cell)}", flush=True)

    await asyncio.gather(*[run_one(*one) for one in cells])


def show(cell: Cell) -> str:
    """One line."""
    return (
        f"{cell.agent:24} {cell.specimen:19} {cell.mode:4} {cell.verdict:14} code {cell.code!s:5} {cell.seconds:5.1f} s"
        f" {cell.calls:4} calls {cell.tokens:8} tokens answer {cell.answer or '-':9} load {cell.load}"
    )


def list_all() -> None:
    """Agents with their releases, specimens with what they do."""
    for name, title in TITLES.items():
        print(f"{name:24} {title:16} {find_release(name) or 'not installed'}")
    for one in (CONTROL, *SPECIMENS.values()):
        print(f"{one.name:24} {one.does}")


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="AGENT,SPECIMEN", help="may be repeated")
    parser.add_argument("--jobs", type=int, default=3, help="cells at a time (default: 3)")
    parser.add_argument("--logs", type=Path, default=LOGS, help="where the cells are kept (default: build/crash-test)")
    parser.add_argument("--again", action="store_true", help="also run what is there already")
    parser.add_argument("--page", action="store_true", help="run nothing; write the page from what is there")
    parser.add_argument("--list", action="store_true", help="agents and specimens")
    options = parser.parse_args()
    if not Path("/proc/self/environ").exists():
        sys.exit("the crash test reads the process table from /proc: run it on Linux")
    if options.list:
        list_all()
        return 0
    agents, specimens, modes = choose(options.only)
    missing = [name for name in agents if not find_release(name)]
    for name in missing:
        print(f"{name}: not installed: python bench/gate/agents.py install {name.partition('/')[0]}", file=sys.stderr)
    wanted = [
        (agent, specimen, mode)
        for specimen in specimens
        for agent in agents
        for mode in modes
        if agent not in missing and not why_not(agent, specimen)
    ]
    left = [one for one in wanted if options.again or not is_there(options.logs, *one)]
    if not options.page:
        print(f"{len(left)} of {len(wanted)} cells to run; logs in {options.logs}", file=sys.stderr)
        asyncio.run(run_all(left, options.logs, options.jobs))
    if options.page or not options.only:
        found = {(a, s, m): read_cell(options.logs, a, s, m) for a in TITLES for s in NAMES for m in MODES}
        there = {key: cell for key, cell in found.items() if cell is not None}
        if not there:
            sys.exit(f"no cell was run in {options.logs}: leave --page out")
        return write_pages(there)
    return 0


def is_there(logs: Path, agent: str, specimen: str, mode: str) -> bool:
    """Whether a cell was run with this release, script and limits."""
    found = read_cell(logs, agent, specimen, mode)
    return found is not None and found.key == describe_key(agent, specimen)


if __name__ == "__main__":
    sys.exit(main())
