"""The programs of the pages about migrating: a peer's and ours get the same from the same model on the wire."""

import importlib.util
import itertools
import os
import subprocess
import sys

import pytest

from .pages import ROOT, blocks
from .wire_model import wire_model

PROGRAMS = ROOT / "examples" / "migrating"
OURS = PROGRAMS / "refunds.py"
LIMIT = "--- four turns are not enough\n"
NOTE = "# no-run: needs a model; tests/docs/test_side_by_side.py runs it with one on the wire\n"
PEERS = {  # page: its program, its environment, its packages, how it ends at the limit
    "from-langgraph.md": ("refunds_langgraph.py", "langgraph_wire", "GraphRecursionError"),
    "from-openai-agents.md": ("refunds_openai_agents.py", "openai_agents", "MaxTurnsExceeded"),
    "from-pydantic-ai.md": ("refunds_pydantic_ai.py", "pydantic_ai_wire", "UsageLimitExceeded"),
}


def printed(python, program):
    """What a program prints, with a model that follows a script on the wire."""
    with wire_model() as (address, asked):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTHON", "OPENAI"))}
        environ = {**clean, "OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        done = subprocess.run(
            [str(python), str(program)], env=environ, capture_output=True, text=True, timeout=240, check=False
        )
    assert done.returncode == 0, done.stderr
    assert asked, "the model was not asked"
    return done.stdout


def shown(page):
    """The programs of a page and what each prints."""
    found = blocks(ROOT / "docs" / page)
    return [
        (block.text.removeprefix(NOTE), after.text)
        for block, after in itertools.pairwise(found)
        if block.text.startswith(NOTE)
    ]


@pytest.mark.process
def test_our_program_prints_what_every_page_about_migrating_shows():
    output = printed(sys.executable, OURS)
    for page in PEERS:
        assert shown(page)[1] == (OURS.read_text(encoding="utf-8"), output), page


@pytest.mark.parametrize("page", PEERS)
def test_a_page_about_migrating_shows_the_peers_program_as_it_is(page):
    program, _, error = PEERS[page]
    text, output = shown(page)[0]
    assert text == (PROGRAMS / program).read_text(encoding="utf-8")
    ours = shown(page)[1][1]
    assert output == ours.partition(LIMIT)[0] + LIMIT + f"no answer: {error}\n"  # the same, up to the limit


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PEERS)
def test_the_peers_program_prints_what_its_page_shows(page):
    spec = importlib.util.spec_from_file_location("environments", ROOT / "bench" / "peers" / "environments.py")
    environments = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(environments)
    program, environment, _ = PEERS[page]
    python = environments.make_environment(ROOT / "build" / "peers", environment)
    assert printed(python, PROGRAMS / program) == shown(page)[0][1]
