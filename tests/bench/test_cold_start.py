"""What a first scripted run imports, counted: that does not depend on the machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "bench" / "cold.py"
MOST_OF_OURS, MOST_OTHERS = 163, 20
"""Modules of glidepath, and others that asyncio and msgspec do not import anyway. Raise them only with a reason."""
NOT_FOR_A_FIRST_RUN = (
    "dataclasses",
    "difflib",
    "glidepath.agent.durable",
    "glidepath.agent.own_loop",
    "glidepath.agent.purse",
    "glidepath.sessions.forking",
    "glidepath.sessions.scribe",
    "glidepath.testing.recorder",
    "hashlib",
    "html",
    "pathlib",
    "random",
    "sqlite3",
    "urllib.parse",
)


def imported(*options):
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout)["modules"])


@pytest.fixture(scope="module")
def modules():
    """What a first run imports beside what asyncio and msgspec import by themselves."""
    return imported() - imported("--base")


def test_a_first_run_imports_no_more_modules_than_it_did(modules):
    ours = {name for name in modules if name.partition(".")[0] == "glidepath"}
    assert len(ours) <= MOST_OF_OURS
    assert len(modules - ours) <= MOST_OTHERS


@pytest.mark.parametrize("name", NOT_FOR_A_FIRST_RUN)
def test_a_first_run_does_without(modules, name):
    assert name not in modules
