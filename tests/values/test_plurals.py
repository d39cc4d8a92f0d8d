"""Counts are written as people write them."""

import re
from pathlib import Path

import pytest

import glidepath
from glidepath.testing import ScriptedModel
from glidepath.values import pluralize

SOURCES = Path(glidepath.__file__).parent


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 turns"), (1, "1 turn"), (2, "2 turns"), (1.0, "1.0 turn"), (0.5, "0.5 turns")]
)
def test_one_is_singular_and_every_other_number_plural(number, text):
    assert pluralize(number, "turn") == text


def test_the_number_may_be_shortened():
    assert pluralize(1234, "token", "1.2k") == "1.2k tokens"


def test_a_result_of_one_turn_says_so():
    agent = glidepath.Agent(model=ScriptedModel(["hi"]), limits=glidepath.Limits(max_iterations=3))
    result = agent.run_sync("go")
    assert "1 turn," in repr(result)
    assert "1 turn," in result._repr_html_()


def test_counts_of_turns_calls_tokens_and_runs_use_the_helper():
    """What is left are constants above one, templates, and `3 of 20 tokens`."""
    plain = re.compile(
        r"\{(?!how_many)[^{}]*[a-z][^{}]*\} (?:model |tool )?(?:turns|calls|tokens|runs|commits|sessions)\b"
    )
    found = {
        f"{path.relative_to(SOURCES)}: {hit[0]}"
        for path in SOURCES.rglob("*.py")
        if "conformance" not in path.parts
        for hit in plain.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == {
        "apps/cli/commands/fleet_command.py: {_format_limit(account.max_runs)} runs",
        "apps/cli/commands/fleet_command.py: {_format_limit(account.max_tokens)} tokens",
        "apps/cli/commands/wallets_command.py: {tokens} tokens",
        "apps/cli/demo_scenarios.py: {result.usage.total:>4} tokens",
        "apps/cli/session_names.py: {len(found)} sessions",
        "apps/cli/status.py: {tokens} tokens",
        "testing/simulator/findings.py: {CEILING.calls:,} model calls",
        "testing/simulator/findings.py: {CEILING.tokens:,} tokens",
        "testing/simulator/findings.py: {CEILING.tool_calls:,} tool calls",
        "values/texts.py: {limit} tool calls",
    }
