"""The figures of docs/approval-rules.md about recorded runs are what the bench finds."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from glidepath import Rules

ROOT = Path(__file__).resolve().parent.parent.parent


def _load():
    spec = importlib.util.spec_from_file_location("bench_approvals", ROOT / "bench" / "approvals.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_approvals"] = module
    spec.loader.exec_module(module)
    return module


approvals = _load()

RULES = Rules(allow=(*approvals.READING, *approvals.THINKING, *approvals.COMMANDS))


def test_the_page_has_what_the_bench_finds():
    table = approvals.make_table(approvals.count_asks(approvals.read_shipped(approvals.DATA), RULES))
    assert table in (ROOT / "docs/approval-rules.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("tool", ["cancel_reservation", "modify_user_address", "make_payment", "submit_external_form"])
def test_what_changes_something_asks_as_before(tool):
    assert approvals.count_asks([("one", (tool, {}))], RULES) == {"one": (1, 1)}


def test_runs_that_have_their_commands_are_judged_by_them(tmp_path):
    commands = ["ls -la src", "cat a.py | head", "python a.py", "cat a.py"]
    actions = [{"extra": {"actions": [{"command": command}]}} for command in commands]
    file = tmp_path / "one.traj.json"
    file.write_text(json.dumps({"messages": [{"role": "system", "content": "x"}, *actions]}))
    assert approvals.count_asks(approvals.read_commands([file]), RULES) == {"one.traj.json": (4, 2)}
