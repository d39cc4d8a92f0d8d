"""What a first scripted run imports, counted: that does not depend on the machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "bench" / "cold.py"
MOST_OF_OURS, MOST_OTHERS = 150, 4
"""Modules of glidepath, and others that asyncio and msgspec do not import anyway. Raise them only with a reason."""
NOT_FOR_A_FIRST_RUN = (
    "glidepath.agent.builder",
    "glidepath.agent.discovery",
    "glidepath.agent.durable",
    "glidepath.agent.tool_sources",
    "glidepath.agent.many_tools",
    "glidepath.agent.sync_api",
    "glidepath.agent.wallet_client",
    "glidepath.agent.resuming",
    "glidepath.agent.setters",
    "glidepath.kernel.model_call.metered",
    "glidepath.kernel.model_call.source",
    "glidepath.kernel.model_call.summary",
    "glidepath.kernel.model_call.thinking",
    "glidepath.kernel.context.summarize",
    "glidepath.guards.own",
    "glidepath.kernel.periodic_checks",
    "glidepath.plugins.builtin_gates",
    "glidepath.plugins.channel",
    "glidepath.plugins.observer",
    "glidepath.kernel.programs",
    "glidepath.run.decisions",
    "glidepath.run.seams",
    "glidepath.run.kill_switch_polling",
    "glidepath.sessions.forking",
    "glidepath.sessions.journal_recorder",
    "glidepath.spi.sessions",
    "glidepath.spi.wallets",
    "glidepath.testing.recorder",
    "glidepath.tools.files",
)
NOT_OF_THE_LIBRARY = (
    "argparse",
    "concurrent.futures.process",
    "concurrent.futures.thread",
    "configparser",
    "csv",
    "ctypes",
    "dataclasses",
    "difflib",
    "email",
    "fnmatch",
    "glob",
    "hashlib",
    "hmac",
    "html",
    "http",
    "http.client",
    "importlib.metadata",
    "importlib.resources",
    "importlib.util",
    "multiprocessing",
    "pathlib",
    "pickle",
    "pprint",
    "queue",
    "random",
    "secrets",
    "shutil",
    "sqlite3",
    "statistics",
    "tempfile",
    "tomllib",
    "unittest",
    "urllib.parse",
    "urllib.request",
    "xml",
    "zipfile",
    "zlib",
    "zoneinfo",
)
"""Slow to import, or large. What the two that are needed anyway import by themselves is not looked at."""
NEEDED_TO_LAND = (
    "glidepath.kernel.model_call.fallback",
    "glidepath.kernel.model_call.pictures",
    "glidepath.kernel.endings",
    "glidepath.kernel.tool_calls.batch",
    "glidepath.kernel.constraint_checks",
    "glidepath.kernel.landing.ladder",
    "glidepath.kernel.landing.landing_view",
    "glidepath.kernel.landing.notice",
    "glidepath.kernel.plain_text",
    "glidepath.run.abandoned",
    "glidepath.run.snapshot",
    "glidepath.tools.advice",
    "glidepath.tools.json_fallback",
)
"""Loaded before a run begins: a process without a free file descriptor cannot import, and must still land."""


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


def test_a_first_run_does_without_what_few_runs_need(modules):
    assert modules.intersection(NOT_FOR_A_FIRST_RUN) == set()


def test_a_first_run_does_without_slow_modules_of_the_library(modules):
    assert modules.intersection(NOT_OF_THE_LIBRARY) == set()


def test_what_lands_a_run_is_loaded_before_it_begins(modules):
    assert modules.issuperset(NEEDED_TO_LAND)


@pytest.mark.parametrize("name", [name for name in NOT_FOR_A_FIRST_RUN if name != "glidepath.testing.recorder"])
def test_the_modules_that_a_first_run_does_without_exist(name):
    source = SCRIPT.parent.parent / "src" / Path(*name.split("."))
    assert source.with_suffix(".py").is_file() or (source / "__init__.py").is_file()
