"""The pages about teams say what the code says, and the benchmark does what it says."""

import asyncio
import importlib.util
import re
from pathlib import Path

import pytest

from glidepath.plugins import snake_case
from glidepath.teams import (
    TEAM_EVENTS,
    EvaluationStrategy,
    TeamConfig,
    TeamCoordinator,
    TeamEvent,
    TeamStatus,
    VerdictOutcome,
)

ROOT = Path(__file__).resolve().parent.parent.parent


def rows(page, heading):
    """The cells of the table whose heading begins like this."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(heading)) + 2
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def test_every_team_event_is_listed_with_its_fields():
    envelope = set(TeamEvent.__struct_fields__)
    listed = [
        (kind.strip("`"), name.strip("`"), re.findall(r"`(\w+)`", says))
        for kind, name, says, _ in rows("teams.md", "| kind |")
    ]
    assert listed == [
        (
            snake_case(kind.__name__).upper(),
            kind.__name__,
            [field for field in kind.__struct_fields__ if field not in envelope],
        )
        for kind in TEAM_EVENTS
    ]


def test_every_status_is_explained():
    assert [row[0].strip("`") for row in rows("teams.md", "| status |")] == [status.name for status in TeamStatus]


def test_every_verdict_is_explained():
    listed = [row[0].strip("`") for row in rows("writing-an-evaluator.md", "| verdict |")]
    assert listed == [outcome.name for outcome in VerdictOutcome]


def test_every_setting_is_listed_with_its_default():
    listed = {row[0].strip("`"): row[1].strip("`") for row in rows("choosing-a-coordinator.md", "| `TeamConfig` |")}
    config = TeamConfig()
    names = sorted(TeamConfig.__struct_fields__)
    assert sorted(listed) == names
    for name in names:
        value = getattr(config, name)
        shown = "TeamResourceConstraint()" if name == "resource_constraint" else str(value)
        assert listed[name] == shown


@pytest.mark.parametrize("port", [TeamCoordinator, EvaluationStrategy])
def test_a_contract_has_numbered_clauses(port):
    numbers = [int(number) for number in re.findall(r"^\s*(\d+)\.\s", port.__doc__, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 7


@pytest.mark.parametrize("kind", ["dispatch", "expert"])
def test_200_teams_of_5_members_run_at_once_in_one_process(kind):
    spec = importlib.util.spec_from_file_location("bench_teams", ROOT / "bench" / "teams.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    asyncio.run(bench.run_teams(bench.make_teams(200), kind))  # it checks every result itself
