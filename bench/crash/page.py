"""Writes docs/crash-test.md and the small table of docs/index.md from the cells that were run."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from cell import CAP, GRACE, WATCHED, Cell, find_script
from roster import (
    CALLS,
    CONTROL,
    MODES,
    OURS,
    SECONDS,
    SEED,
    SPECIMENS,
    TITLES,
    find_agent,
    find_bounds,
    find_release,
    why_not,
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "crash-test.md"
BRIEF_PAGES = (ROOT / "docs" / "index.md", ROOT / "README.md")
BEGIN, END = "<!-- crash test: written by make crash-test -->", "<!-- end of crash test -->"
REASONS_PAGE = (Path(__file__).parent / "reasons.md").read_text(encoding="utf-8")
REASONS = {
    head.strip(): " ".join(text.split())
    for head, _, text in [part.partition("\n") for part in REASONS_PAGE.split("\n## ")[1:]]
}
"""Why the gate does not help, by what it does not help."""
Cells = Mapping[tuple[str, str, str], Cell]
SHORT = {
    "answer": "answer",
    "own words": "words",
    "error": "error",
    "no answer": "nothing",
    "worked on": "works on",
    "over the limit": "over",
    "did not end": "never",
}
"""What a cell of the overview says."""


def is_good(cell: Cell) -> bool:
    """Ended inside its limits with the answer; where there is none, with an error or with words that say why."""
    if cell.specimen != CONTROL.name and not SPECIMENS[cell.specimen].can_answer:
        return cell.verdict in ("answer", "own words", "error")
    return cell.verdict == "answer"


def has_ended(cell: Cell) -> bool:
    """Ended inside its limits, and nothing of it worked on, whatever it said."""
    return cell.verdict in ("answer", "own words", "error", "no answer")


def pick(cells: Cells, agent: str, mode: str) -> list[Cell]:
    """The cells of one agent, without the control."""
    return [cells[key] for name in SPECIMENS if (key := (agent, name, mode)) in cells]


def count(found: Iterable[Cell], holds: object) -> int:
    """How many of them it holds for."""
    return sum(1 for cell in found if holds(cell))  # type: ignore[operator]


def make_brief(cells: Cells) -> str:
    """Agents x {bare, behind the gate}: how many of the specimens ended well."""
    lines = [
        "| | bare: ended well | inside its limits | behind the gate: ended well | inside its limits |",
        "|---|---|---|---|---|",
    ]
    for agent, title in TITLES.items():
        row = []
        for mode in MODES:
            found = pick(cells, agent, mode)
            row += [f"{count(found, is_good)} of {len(found)}", f"{count(found, has_ended)}"]
        lines.append(f"| {f'**{title}**' if agent == OURS else title} | {' | '.join(row)} |")
    return "\n".join(lines)


def insert_brief(page: str, brief: str) -> str:
    """A page with this table between its marks; as it was, where it has none."""
    head, mark, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{brief}\n{END}{rest.partition(END)[2]}" if mark else page


def make_overview(cells: Cells, mode: str) -> str:
    """Specimens x agents, a word each."""
    lines = [f"| | {' | '.join(TITLES.values())} |", "|---" * (len(TITLES) + 1) + "|"]
    for name in SPECIMENS:
        words = [make_word(cells.get((agent, name, mode)), agent, name) for agent in TITLES]
        lines.append(f"| {name} | {' | '.join(words)} |")
    return "\n".join(lines)


def make_word(cell: Cell | None, agent: str, specimen: str) -> str:
    """One cell of the overview; what is good is bold."""
    if cell is None:
        return "cannot" if why_not(agent, specimen) else "not run"
    word = SHORT[cell.verdict]
    return f"**{word}**" if is_good(cell) else word


def make_detail(cells: Cells, agent: str) -> str:
    """Every figure of one agent."""
    lines = [
        "| | bare | calls | tokens | seconds | exit | behind the gate | calls | tokens | seconds | exit |",
        "|---" * 11 + "|",
    ]
    for name in (CONTROL.name, *SPECIMENS):
        row = []
        for mode in MODES:
            cell = cells.get((agent, name, mode))
            if cell is None:
                row += [make_word(None, agent, name), "", "", "", ""]
            else:
                code = "killed" if cell.code is None else str(cell.code)
                row += [describe_verdict(cell), f"{cell.calls:,}", f"{cell.tokens:,}", f"{cell.seconds:.0f}", code]
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines)


def describe_verdict(cell: Cell) -> str:
    """The verdict with what the table would hide."""
    more = []
    if cell.verdict == "over the limit":
        bounds = find_bounds(cell.agent, cell.specimen)
        more += ["calls"] * (cell.calls > bounds.calls) + ["tokens"] * (cell.tokens > bounds.tokens)
        more += ["time"] * (cell.seconds > bounds.seconds + GRACE)
        if cell.answer:
            more.append(f"with {'an answer' if cell.answer == 'model' else 'words of its own'}")
    if cell.late:
        more.append(f"{cell.late} requests after its end")
    if cell.left:
        more.append(f"{cell.left} processes left")
    return cell.verdict + (f" ({', '.join(more)})" if more else "")


def make_specimens() -> str:
    """What happens in each, and what would be good."""
    lines = ["| specimen | what happens | a good agent | the upstream's script |", "|---|---|---|---|"]
    lines += [f"| {one.name} | {one.does} | {one.good} | `{one.script_for(SEED)}` |" for one in SPECIMENS.values()]
    return "\n".join(lines)


def make_roster() -> str:
    """Releases and limits."""
    lines = ["| agent | release | dialect | tokens |", "|---|---|---|---|"]
    for agent, title in TITLES.items():
        dialect = find_agent(agent).dialect
        lines.append(f"| {title} | {find_release(agent)} | {dialect} | {find_bounds(agent, '').tokens:,} |")
    return "\n".join(lines)


def find_worse(cells: Cells) -> list[tuple[str, str]]:
    """Cells in which the agent ended well bare, and did not behind the gate."""
    return [
        (agent, name)
        for agent in TITLES
        for name in SPECIMENS
        if (bare := cells.get((agent, name, "bare")))
        and (gate := cells.get((agent, name, "gate")))
        and is_good(bare)
        and not is_good(gate)
    ]


def find_flat(cells: Cells) -> list[str]:
    """Agents that end well no more often behind the gate than bare."""
    return [
        agent
        for agent in TITLES
        if count(pick(cells, agent, "gate"), is_good) <= count(pick(cells, agent, "bare"), is_good)
    ]


def find_same(cells: Cells) -> dict[str, list[str]]:
    """By specimen: the agents that do not end well, with or without the gate."""
    found: dict[str, list[str]] = {}
    for name in SPECIMENS:
        for agent in TITLES:
            both = [cells.get((agent, name, mode)) for mode in MODES]
            if all(cell is not None and not is_good(cell) for cell in both):
                found.setdefault(name, []).append(TITLES[agent])
    return found


def make_limits_of_the_gate(cells: Cells) -> tuple[str, list[str]]:
    """Where the gate does not help, and why; and for which of it nobody has given a reason."""
    unexplained: list[str] = []
    lines = []

    def explain(key: str) -> str:
        if key not in REASONS:
            unexplained.append(key)
        return REASONS.get(key, "Nobody has found out yet.")

    for agent, name in find_worse(cells):
        cell = cells[agent, name, "gate"]
        reason = explain(f"{agent} {name}")
        lines.append(f"- **Worse behind the gate: {TITLES[agent]}, {name}** ({describe_verdict(cell)}). {reason}")
    lines += [f"- **No better as a whole: {TITLES[agent]}.** {explain(agent)}" for agent in find_flat(cells)]
    for name in SPECIMENS:
        own = cells.get((OURS, name, "bare"))
        if own is not None and not is_good(own):
            lines.append(
                f"- **Our own failure, bare: {name}** ({describe_verdict(own)}). {explain(f'{OURS} bare {name}')}"
            )
    for name, agents in find_same(cells).items():
        who = "all" if len(agents) == len(TITLES) else ", ".join(agents)
        lines.append(f"- **Neither way: {name}** ({who}). {explain(name)}")
    return "\n".join(lines), unexplained


def make_machine(cells: Cells) -> str:
    """When and where it was run."""
    found = list(cells.values())
    dates = sorted({cell.date for cell in found})
    loads = [cell.load for cell in found]
    busy = sum(cell.whole + WATCHED * cell.ended for cell in found)
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False) if has_node() else None
    return (
        f"{len(found)} cells, {' and '.join(dates)}, on {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"Node {'-' if node is None else node.stdout.strip().removeprefix('v')}. The load average was "
        f"{min(loads):.0f} to {max(loads):.0f}: other work shared the machine. One after the other the cells take "
        f"{busy / 60:.0f} minutes, three at a time {busy / 180:.0f}. Seconds of a cell mean little under load, and no "
        "verdict depends on them but those about time."
    )


def has_node() -> bool:
    """Whether Node is there at all."""
    return shutil.which("node") is not None


def by_hand() -> str:
    """Two commands that do what one cell does."""
    script = find_script("cut-stream")
    return f"""```sh
python -m glidepath.testing.upstream --behavior "{script}" --port 9090 --log calls.jsonl &
glidepath gate run --max-tokens 200k --max-calls {CALLS} --timeout {SECONDS}s --upstream http://127.0.0.1:9090 -- \\
  claude -p "Count the steps, then report." --allowedTools Bash Agent
```"""


def make_page(cells: Cells) -> tuple[str, list[str]]:
    """The page, and what nobody has explained."""
    limits, unexplained = make_limits_of_the_gate(cells)
    template = (Path(__file__).parent / "page.md").read_text(encoding="utf-8")
    details = "\n\n".join(f"### {title}\n{make_detail(cells, agent)}" for agent, title in TITLES.items())
    parts = {
        "brief": make_brief(cells),
        "bare": make_overview(cells, "bare"),
        "gate": make_overview(cells, "gate"),
        "limits": limits,
        "specimens": make_specimens(),
        "roster": make_roster(),
        "machine": make_machine(cells),
        "hand": by_hand(),
        "details": details,
        "calls": str(CALLS),
        "seconds": str(SECONDS),
        "grace": f"{GRACE:g}",
        "cap": f"{CAP:g}",
        "count": str(len(SPECIMENS)),
        "agents": str(len(TITLES)),
    }
    for name, text in parts.items():
        template = template.replace(f"@{name}@", text)
    return template, unexplained


def write_pages(cells: Cells) -> int:
    """Write both; 1 when cells are missing, or one is worse behind the gate and nobody has said why."""
    expected = [
        (agent, name, mode)
        for agent in TITLES
        for name in (CONTROL.name, *SPECIMENS)
        for mode in MODES
        if not why_not(agent, name)
    ]
    missing = [key for key in expected if key not in cells]
    text, unexplained = make_page(cells)
    PAGE.write_text(text, encoding="utf-8")
    for path in BRIEF_PAGES:
        path.write_text(insert_brief(path.read_text(encoding="utf-8"), make_brief(cells)), encoding="utf-8")
    print(make_brief(cells))
    for key in missing:
        print(f"not run: {' '.join(key)}", file=sys.stderr)
    for one in unexplained:
        print(f"{one}: say in bench/crash/reasons.md why the gate does not help", file=sys.stderr)
    return 1 if missing or unexplained else 0
