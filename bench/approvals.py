"""How many calls of recorded runs ask a person, before and after a few rules.

    PYTHONPATH=src python bench/approvals.py                     # the shipped trajectories
    PYTHONPATH=src python bench/approvals.py --commands FILE...  # mini-swe-agent's *.traj.json, which have the commands

"Before" every call asks, as with tools that need approval; "after" those that no rule allows. Of the arguments the
shipped trajectories have digests only: a command is known if it is one of `COMMON`, and any other counts as asking.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from glidepath import Rules
from glidepath.guards.approvals.rules import decide, read_rules

DATA = Path(__file__).resolve().parent / "guards" / "trajectories.jsonl.gz"
READING = ("get_*", "find_*", "list_*", "search_*", "retrieve_*", "open_webpage", "inspect_*", "trace_*")
THINKING = ("think", "calculate")
COMMANDS = ("bash(ls -la *)", "bash(ls *)", "bash(cat *)", "bash(echo *)", "bash(git status *)", "bash(git diff *)")
COMMON = (
    *("ls -la", "ls -la data/", "ls -la /app", "ls -la /app/", "ls -la tests/", "ls -la hello.txt", "ls", "git status"),
    *(
        "cat results.json",
        "cat tests/test_outputs.py",
        "cat Dockerfile",
        "cat hello.txt",
        "cat report.txt",
        "cat test.py",
    ),
    *("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "cat /app/answer.txt", "python test.py", "make", "df -h"),
)
Call = tuple[str, Mapping[str, Any] | None]
"""A tool, and its arguments where they are known."""


def digest_of(arguments: Mapping[str, Any]) -> str:
    """What the shipped trajectories have of a call's arguments."""
    return hashlib.sha256(json.dumps(arguments).encode()).hexdigest()[:10]


def read_shipped(data: Path) -> Iterator[tuple[str, Call]]:
    """Each call of the shipped trajectories, with the source of its run."""
    known = {digest_of({"command": command}): {"command": command} for command in COMMON}
    with gzip.open(data, "rt", encoding="utf-8") as lines:
        for line in lines:
            run = json.loads(line)
            for step in (step for turn in run["turns"] for step in turn):
                for name, digest in step["calls"]:
                    yield run["source"].partition(" ")[0], (name, known.get(digest) if name == "bash" else {})


def read_commands(files: Iterable[Path]) -> Iterator[tuple[str, Call]]:
    """Each command of these runs of mini-swe-agent."""
    for file in files:
        for message in json.loads(file.read_text(encoding="utf-8"))["messages"]:
            for action in (message.get("extra") or {}).get("actions") or ():
                yield file.name, ("bash", {"command": action["command"]})


def count_asks(calls: Iterable[tuple[str, Call]], rules: Rules) -> dict[str, tuple[int, int]]:
    """By source: how many calls there are, and how many of them ask with these rules."""
    read = read_rules(rules)
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for source, (name, arguments) in calls:
        before[source] += 1
        subject = "command" if name == "bash" else ""
        found = None if arguments is None else decide(read, name, None, arguments, subject)
        after[source] += found is None or found.verdict != "allow"
    return {source: (count, after[source]) for source, count in sorted(before.items())}


def make_table(found: Mapping[str, tuple[int, int]]) -> str:
    """The counts as Markdown, with a line for all of them."""
    total = tuple(map(sum, zip(*found.values(), strict=True)))
    rows = [("runs of", "calls that ask before", "with the rules"), ("---",) * 3]
    for source, (before, after) in [*found.items(), ("all", total)]:
        rows.append((source, f"{before:,}", f"{after:,} ({after / before:.0%})"))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--commands", type=Path, nargs="+")
    given = parser.parse_args()
    rules = Rules(allow=(*READING, *THINKING, *COMMANDS))
    if given.commands:
        print(make_table(count_asks(read_commands(given.commands), rules)))
    else:
        print(make_table(count_asks(read_shipped(given.data), rules)))


if __name__ == "__main__":
    main()
