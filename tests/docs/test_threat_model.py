"""The threat model's rows are kept by tests that exist: each row names at least one."""

import re

import pytest

from .pages import ROOT, tables

PAGE = ROOT / "docs" / "threat-model.md"
COLUMNS = ["row", "who, with what", "can", "cannot, because", "tests"]
ROWS = [
    "caller-nobody",
    "caller-network",
    "caller-page",
    "key-view",
    "key-run",
    "key-approve",
    "key-control",
    "key-budget",
    "key-lost",
    "mcp-session",
    "gate-nobody",
    "gate-key",
    "gate-names",
    "gate-provider",
    "gate-command",
    "user-argv",
    "user-files",
    "user-log",
    "user-port",
    "viewer-chats",
    "auditor-who",
    "folder-cloned",
    "folder-changed",
    "file-outside",
    "file-protected",
    "file-planted",
    "file-secret",
    "file-attached",
    "file-journal",
    "file-export",
    "model-call",
    "model-haste",
    "model-always",
    "text-stranger",
    "text-client",
    "tool-sandboxed",
    "tool-landlock",
    "server-names",
    "server-bytes",
    "server-login",
    "server-words",
    "server-stdio",
]
"""Every row, by name: one that is taken out of the page is missed here."""
FILE = re.compile(r"\[[\w/]+\]\(\.\./(tests/[\w/]+\.py)\): ([^;]+)")


def rows():
    return [row for head, *found in tables(PAGE) for row in found if head == COLUMNS]


def test_every_table_of_the_page_has_the_same_columns():
    heads = [head for head, *_ in tables(PAGE)]
    assert heads
    assert all(head == COLUMNS for head in heads)
    assert [row[0] for row in rows()] == ROWS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_names_tests_that_exist(row):
    name, _, can, cannot, tests = row
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", name)
    assert can
    assert cannot
    found = FILE.findall(tests)
    assert found, f"{name} names no test: write [file](../tests/file.py): `test_name`"
    for path, said in found:
        there = (ROOT / path).read_text(encoding="utf-8")
        for test in re.findall(r"`(\w+)`", said):
            assert f"def {test}(" in there, f"{name}: {path} has no {test}"
