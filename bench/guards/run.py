"""How often the default guards are right: public trajectories of real agents, honest specimens, generated circles.

    .venv/bin/python bench/guards/run.py [--data FILE] [--json FILE]

A scripted model makes the recorded calls and tools give the recorded results, errors as error results, with unmarked
tools and no limit that could end a run. A conversation is one run. The model does not react to a nudge. Exit code 0:
every bar is met. 1: one is not, and is named.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from glidepath import Agent, Limits, Tool, ToolResult, tool
from glidepath.events import GuardTripped
from glidepath.sim import fly
from glidepath.testing import SPECIMENS, ScriptedModel, call, calls, say
from glidepath.testing.simulator import default_config

SHIPPED = Path(__file__).with_name("trajectories.jsonl.gz")
GUARDS = ("repetition", "error_streak")
WINDOW, EQUAL, ERRORS = 10, 3, 5
CIRCLES = 50
MOST_NUDGED, LEAST_NOTICED = 0.005, 0.9
DIGEST = re.compile("[0-9a-f]{10}")
LONGEST = 200  # characters of a result that are played: only whether results are equal, brief or errors matters

Pair = tuple[str, str]  # a tool, and a digest of its arguments
Answer = tuple[str, int, bool]  # a digest of the text, its length, whether it is an error


class Step(NamedTuple):
    """The calls of one reply and what came back."""

    calls: tuple[Pair, ...]
    results: tuple[Answer, ...]


class Flown(NamedTuple):
    """One trajectory, and what the guards did about it: the most severe action of each guard."""

    name: str
    group: str
    acted: dict[str, str]


# --- the measure, which knows nothing of the guards ---------------------------------------------------------------


def circles(steps: Sequence[Step]) -> bool:
    """Three equal pairs of call and result within ten steps, or five steps in a row whose results are all errors."""
    for end in range(1, len(steps) + 1):
        window = steps[max(0, end - WINDOW) : end]
        seen = Counter(pair for step in window for pair in set(zip(step.calls, step.results, strict=False)))
        if seen and max(seen.values()) >= EQUAL:
            return True
    failed = 0
    for step in steps:
        failed = failed + 1 if step.results and all(error for _, _, error in step.results) else 0
        if failed == ERRORS:
            return True
    return False


def group_of(ok: bool | None, steps: Sequence[Step]) -> str:
    """Solved, stuck (failed and circling), failed otherwise, solved although circling, or unknown."""
    if ok is None:
        return "unknown"
    if ok:
        return "solved, circling" if circles(steps) else "solved"
    return "stuck" if circles(steps) else "failed"


# --- what is flown ------------------------------------------------------------------------------------------------


def trajectories(path: Path) -> Iterator[tuple[str, bool | None, list[Step]]]:
    """The recorded runs, each as one conversation."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            steps = [
                Step(tuple(tuple(one) for one in step["calls"]), tuple(tuple(one) for one in step["results"]))
                for turn in entry["turns"]
                for step in turn
            ]
            yield entry["id"], entry["ok"], steps


def generated(count: int = CIRCLES, seed: int = 0) -> list[tuple[str, list[Step]]]:
    """Circles of periods 1 to 4 after some honest steps; some of them batches, some of them errors."""
    made = []
    chance = Random(seed)  # noqa: S311 - for tests
    for number in range(count):
        period = number % 4 + 1
        before = [_step(chance, f"before {number}.{at}") for at in range(chance.randrange(12))]
        lap = [_step(chance, f"lap {number}.{at}", batch=chance.choice((1, 1, 2, 3))) for at in range(period)]
        made.append((f"circle {number} of period {period}", [*before, *lap * 5]))
    return made


def _step(chance: Random, name: str, batch: int = 1) -> Step:
    tools = chance.sample(("search", "read", "fetch", "run", "write"), batch)
    error = batch == 1 and chance.random() < 0.2
    return Step(
        tuple((one, f"{name} {one}") for one in tools),
        tuple((f"{name} {one}", chance.randrange(400), error) for one in tools),
    )


async def replay(steps: Sequence[Step]) -> dict[str, str]:
    """Fly one conversation through the default guards; the most severe action of each guard."""
    acted: dict[str, str] = {}
    rank = ("nudge", "withdraw", "land")

    def sink(event: Any) -> None:
        if type(event) is GuardTripped and event.guard in GUARDS:
            acted[event.guard] = max(acted.get(event.guard, "nudge"), event.action, key=rank.index)

    turns = [calls(*[call(name, {"a": digest}) for name, digest in step.calls]) for step in steps if step.calls]
    agent = Agent(
        model=ScriptedModel(turns, record=False).forever(say("done")),
        tools=_tools(steps),
        limits=Limits(max_iterations=10_000),
        event_sink=sink,
    )
    await agent.run("the task")
    return acted


def _tools(steps: Sequence[Step]) -> list[Tool]:
    """Unmarked tools that answer as it was recorded."""
    answers: dict[Pair, list[Answer]] = {}
    for step in steps:
        for asked, result in zip(step.calls, step.results, strict=False):
            answers.setdefault(asked, []).append(result)

    def made(name: str) -> Tool:
        async def answer(a: str) -> ToolResult:
            waiting = answers[name, a]
            text, length, error = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            text = f"#{text}" if DIGEST.fullmatch(text) else text  # a digest has no words
            return ToolResult(text + "." * (min(length, LONGEST) - len(text)) if length else "", is_error=error)

        return tool(answer, name=name, description=name)

    return [made(name) for name in sorted({name for name, _ in answers})]


# --- the report ---------------------------------------------------------------------------------------------------


class Report(NamedTuple):
    """What was flown, and what was touched."""

    flown: list[Flown]
    circles: list[Flown]
    touched: list[str]
    """Honest specimens a guard spoke to."""
    honest: int

    def of(self, group: str) -> list[Flown]:
        """The trajectories of a group."""
        return [one for one in self.flown if one.group == group]

    def misses(self) -> list[str]:
        """The bars that are not met."""
        solved, stuck = self.of("solved"), self.of("stuck")
        found = [f"the honest specimen {name} was touched" for name in self.touched]
        nudged = [one for one in solved if one.acted]
        if len(nudged) > MOST_NUDGED * len(solved):
            found.append(
                f"{len(nudged)} of {len(solved)} solved trajectories were nudged; the bar is {MOST_NUDGED:.1%}"
            )
        hard = [one.name for one in solved if set(one.acted.values()) - {"nudge"}]
        if hard:
            found.append(f"a tool was withdrawn or the run landed in solved trajectories: {', '.join(hard)}")
        for what, group in (("stuck trajectories", stuck), ("generated circles", self.circles)):
            missed = [one.name for one in group if not one.acted]
            if len(missed) > (1 - LEAST_NOTICED) * len(group):
                found.append(f"{len(missed)} of {len(group)} {what} were not noticed: {', '.join(missed)}")
        return found


def measure(path: Path) -> Report:
    """Fly everything."""
    logging.getLogger("glidepath").disabled = True
    try:
        flown = [Flown(name, group_of(ok, steps), asyncio.run(replay(steps))) for name, ok, steps in trajectories(path)]
        made = [Flown(name, "generated", asyncio.run(replay(steps))) for name, steps in generated()]
        honest = [kind for kind in SPECIMENS if kind.honest]
        config = default_config()
        touched = [kind.name for kind in honest if "honest_work_stopped" in fly(config, kind, 0).problems]
    finally:
        logging.getLogger("glidepath").disabled = False
    return Report(flown, made, touched, len(honest))


def page(report: Report) -> str:
    """The figures as Markdown tables."""
    groups = ["solved", "solved, circling", "stuck", "failed", "unknown"]
    lines = [f"| guard | {' | '.join(groups)} | precision | recall |", "|" + "---|" * (len(groups) + 3)]
    for name, guards in (("repetition", ("repetition",)), ("error_streak", ("error_streak",)), ("either", GUARDS)):
        noticed = {group: [one for one in report.of(group) if set(guards) & one.acted.keys()] for group in groups}
        cells = [_cell(noticed[group], report.of(group), guards) for group in groups]
        right, wrong, all_stuck = len(noticed["stuck"]), len(noticed["solved"]), len(report.of("stuck"))
        precision = f"{right} of {right + wrong}"
        lines.append(f"| {name} | {' | '.join(cells)} | {precision} | {right} of {all_stuck} |")
    noticed_circles = sum(bool(one.acted) for one in report.circles)
    lines += [
        "",
        "| control | noticed |",
        "|---|---|",
        f"| generated circles of periods 1 to 4 | {noticed_circles} of {len(report.circles)} |",
        f"| honest specimens | {len(report.touched)} of {report.honest} |",
    ]
    return "\n".join(lines)


def _cell(noticed: list[Flown], group: list[Flown], guards: Sequence[str]) -> str:
    hard = [one for one in noticed if {one.acted.get(guard, "nudge") for guard in guards} - {"nudge"}]
    return f"{len(noticed)} of {len(group)}" + (f" ({len(hard)} stopped)" if hard else "")


def main() -> int:
    """Measure, print, say which bars are not met."""
    parser = argparse.ArgumentParser(description="Precision and recall of the default guards.")
    parser.add_argument("--data", type=Path, default=SHIPPED, help="trajectories to replay (default: the shipped ones)")
    parser.add_argument("--json", type=Path, help="write what happened to each trajectory")
    options = parser.parse_args()
    if not options.data.is_file():
        sys.stderr.write(f"no such file: {options.data}; leave --data out to replay the shipped trajectories\n")
        return 2
    report = measure(options.data)
    sys.stdout.write(page(report) + "\n")
    if options.json is not None:
        rows = [one._asdict() for one in (*report.flown, *report.circles)]
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for miss in report.misses():
        sys.stdout.write(f"NOT MET: {miss}\n")
    return 1 if report.misses() else 0


if __name__ == "__main__":
    sys.exit(main())
