"""The table of the page docs/twenty-jobs.md: how long each job is, and what had to be written by hand.

    python examples/jobs/table.py           # print it
    python examples/jobs/table.py --write   # and put it into the page

Lines are those with code: no comments, no blank lines, every program formatted alike at 120 columns. In a comment, a
program says what the framework does not have: `# by hand: ...`, written out in the lines below it, or
`# missing: ...`, which the program goes without.
"""

import io
import re
import sys
import tokenize
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "twenty-jobs.md"
BEGIN, END = "<!-- jobs: written by examples/jobs/table.py -->", "<!-- end of jobs -->"
OURS = "glidepath"
PEERS = {"Pydantic AI": "pydantic_ai", "OpenAI Agents": "openai_agents"}
JOBS = {  # program: the job
    "structured_output": "A typed answer, checked, and asked for again twice",
    "partial_output": "The same while it is written, as typed values",
    "dependencies": "A tool that needs something of the application",
    "delegation": "An agent as a tool of another, on one budget",
    "handoff": "The conversation goes over to another agent",
    "memory": "A conversation that outlives the process",
    "approval": "A person decides over the web, the next day",
    "server_sent_events": "Answers as server-sent events",
    "retrieval": "Answers from your own search",
    "mcp_tools": "Tools of an MCP server",
    "many_items": "Many items at once, on one budget",
    "evaluation": "Cases, a pass rate, a table",
    "dynamic_prompt": "A prompt that depends on who asks",
    "pictures": "A picture and a PDF in the prompt",
    "fallback": "A second provider takes over",
    "reasoning": "More reasoning",
    "hosted_tools": "The provider's own web search, on one site",
    "telemetry": "OpenTelemetry",
    "team": "Planner, worker, reviewer, on one budget",
    "costs": "What each user has cost this month",
}
WITHOUT = {  # why there is no program
    "openai_agents/evaluation": "no evaluations",
    "openai_agents/fallback": "no second model",
    "openai_agents/telemetry": "spans go to a processor that you write",
}
_MARK = re.compile(r"# (by hand|missing): (.*)")
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
}  # fmt: skip


class Written(NamedTuple):
    """One program: its lines, and what it says that its framework lacks."""

    lines: int
    by_hand: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return "partly" if self.missing else "by hand" if self.by_hand else ""


def measure(program: Path) -> Written | None:
    """None where there is no such program."""
    if not program.exists():
        return None
    text, lines, marks = program.read_text(encoding="utf-8"), set(), []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (found := _MARK.fullmatch(token.string)) is not None:
            marks.append(found.groups())
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    said = {kind: tuple(words for mark, words in marks if mark == kind) for kind in ("by hand", "missing")}
    return Written(len(lines), said["by hand"], said["missing"])


def read_row(job: str) -> dict[str, Written | None]:
    """The programs of a job."""
    return {OURS: measure(HERE / f"{job}.py"), **{name: measure(HERE / at / f"{job}.py") for name, at in PEERS.items()}}


def find_misses() -> list[str]:
    """The bars that are not met: no job of ours missing or partly by hand, and none longer than a peer's."""
    found = []
    for job in JOBS:
        ours, *peers = read_row(job).values()
        if ours is None:
            found.append(f"{job}: there is no program")
        elif ours.verdict:
            found.append(f"{job}: {ours.verdict}")
        else:
            found += [
                f"{job}: {ours.lines} lines, a peer {peer.lines}" for peer in peers if peer and peer.lines < ours.lines
            ]
    return found


def describe(job: str, folder: str, written: Written | None) -> str:
    if written is None:
        return f"missing: {WITHOUT[f'{folder}/{job}']}"
    why = "; ".join([*written.by_hand, *(f"without {words}" for words in written.missing)])
    return f"{written.lines}, {written.verdict}: {why}" if written.verdict else str(written.lines)


def make_table() -> str:
    rows = [("job", f"{OURS}, lines", *(f"{name}, lines" for name in PEERS)), ("---",) * (2 + len(PEERS))]
    for job, what in JOBS.items():
        ours, *peers = read_row(job).values()
        first = f"[{what}](../examples/jobs/{job}.py)"
        cells = [describe(job, folder, one) for folder, one in zip(PEERS.values(), peers, strict=True)]
        rows.append((first, str(ours.lines if ours else "-"), *cells))
    totals = [f"{job}" for job in JOBS if all(read_row(job).values())]
    sums = [str(sum(read_row(job)[name].lines for job in totals)) for name in (OURS, *PEERS)]
    rows.append((f"the {len(totals)} that all three have", *sums))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    made = make_table()
    print(made)
    if "--write" in sys.argv[1:]:
        head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    sys.exit("\n".join(find_misses()) or 0)


if __name__ == "__main__":
    main()
