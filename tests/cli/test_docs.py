"""The page about the command line says what the command line does."""

import re
from pathlib import Path

from glidepath.apps.cli import make_parser
from glidepath.apps.cli.chat import COMMANDS as SLASH
from glidepath.apps.cli.commands import COMMANDS
from glidepath.workspace import TOOL_NAMES

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "command-line.md").read_text(encoding="utf-8")


def first_cells(heading):
    rows = PAGE.partition(heading)[2].splitlines()[2:]
    cells = []
    for row in rows:
        if not row.startswith("|"):
            break
        cells.append(row.split("|")[1].strip().strip("`"))
    return cells


def test_every_command_is_listed_with_its_line():
    assert first_cells("| command | what it does |") == [f"glidepath {name}" for name in COMMANDS]
    assert all(line in PAGE for line in COMMANDS.values())


def test_every_slash_command_is_listed():
    assert re.findall(r"^\| `(/\w+)` \|", PAGE, re.MULTILINE) == [f"/{name}" for name in SLASH]


def test_the_exit_codes_are_those_of_the_help():
    assert sorted(first_cells("| code | meaning |")) == sorted(re.findall(r"\b(\d+) ", make_parser([]).epilog))


def test_every_tool_is_listed_and_only_the_shell_asks():
    assert first_cells("| tool | what it does | asks first |") == list(TOOL_NAMES)
    assert re.findall(r"\| `(\w+)` \|[^|]*\| yes \|", PAGE) == ["shell"]
