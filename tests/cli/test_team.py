"""`glidepath team`: a team from a file, a board while it works, a report at the end."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glidepath.apps.cli import TeamBoard

from .shell_user import environment, glidepath, process
from .terminal import Terminal

TEAM = """
name = "press office"
model = "python:crews:worker"

[config]
risk_profile = "low"
max_feedback_rounds = 2

[limits]
max_total_tokens = 100000
max_cost = 0.5
max_parallel_steps = 2

[rubric]
required = ["sources"]

[[roles]]
name = "author"
instructions = "Write well."
required_capability = "write"

[[members]]
name = "bee"
capabilities = ["write"]
system_prompt = "You are a bee."
max_turns = 5

[[steps]]
id = "facts"
description = "collect facts"

[[steps]]
id = "text"
description = "write it"
role = "author"
depends_on = ["facts"]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "team.toml").write_text(TEAM, encoding="utf-8")
    return tmp_path


def change(folder, old, new):
    path = folder / "team.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_result_goes_to_a_pipe_and_the_report_to_the_error_stream(folder):
    ran = glidepath("team", "run", "team.toml", "a note", folder=folder)
    assert ran.code == 0, ran
    assert ran.out == "text with sources\n"
    lines = ran.err.splitlines()
    assert lines[0] == "facts: bee begins (attempt 1)"
    assert "facts: REVISE 0.00 1 of 1 criteria are not met." in lines
    assert "text: COMPLETED" in lines
    assert re.search(r"^facts  completed     2   1\.00 +\d+  \$0\.\d{4}$", ran.err, re.MULTILINE), ran.err
    assert "completed" in lines
    assert re.fullmatch(r"\d+\.\d s, \d+ tokens, \$0\.\d{4}", lines[-1])


def test_the_whole_result_as_json(folder):
    ran = glidepath("team", "run", "team.toml", "a note", "--output-format", "json", folder=folder)
    result = json.loads(ran.out)
    assert result["status"] == "completed"
    assert [outcome["step_id"] for outcome in result["step_outcomes"]] == ["facts", "text"]
    assert result["request"]["goal"] == "a note"


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("max_feedback_rounds = 2", "max_feedback_rounds = 1", 3, "degraded"),
        ('risk_profile = "low"\nmax_feedback_rounds = 2', "max_feedback_rounds = 1", 1, "failed"),
        ("python:crews:worker", "python:crews:broken", 1, "failed"),
    ],
)
def test_the_exit_code_says_how_it_ended(folder, old, new, code, said):
    if "broken" in new:
        change(folder, "max_cost = 0.5\n", "")
    change(folder, old, new)
    ran = glidepath("team", "run", "team.toml", "a note", folder=folder)
    assert ran.code == code, ran
    assert said in ran.err


def test_a_team_out_of_time_exits_with_3(folder):
    change(folder, "max_cost = 0.5\n", "")
    change(folder, "python:crews:worker", "python:crews:hangs")
    change(folder, "max_feedback_rounds = 2", "team_timeout = 0.4")
    ran = glidepath("team", "run", "team.toml", "a note", folder=folder)
    assert ran.code == 3, ran
    assert "timeout: the team's time is up" in ran.err


def test_a_planner_and_dispatch(folder):
    text = 'model = "python:crews:worker"\n[planner]\nmodel = "python:crews:planner"\n[[members]]\nname = "bee"\n'
    (folder / "team.toml").write_text(text, encoding="utf-8")
    ran = glidepath("team", "run", "team.toml", "a note", folder=folder)
    assert (ran.code, ran.out) == (0, "only done\n"), ran
    (folder / "team.toml").write_text(
        'coordinator = "dispatch"\n' + text.partition("[planner]")[0] + "[[members]]\n", encoding="utf-8"
    )
    ran = glidepath("team", "run", "team.toml", "a note", folder=folder)
    assert (ran.code, ran.out) == (0, "goal done\n"), ran


WRONG = [
    (
        "max_feedback_rounds = 2",
        "max_feedback_round = 2",
        "config: there is no setting 'max_feedback_round'; did you mean",
    ),
    ("max_feedback_rounds = 2", "max_feedback_rounds = 0", "TeamConfig.max_feedback_rounds"),
    ('risk_profile = "low"', 'risk_profile = "lowest"', "config.risk_profile must be one of low, medium, high"),
    ("max_parallel_steps = 2", "max_parallel = 2", "limits: there is no setting"),
    ('depends_on = ["facts"]', 'depends_on = ["nobody"]', "'nobody', which is not a step"),
    ('role = "author"', 'role = "pilot"', "there is no role 'pilot'"),
    ('name = "press office"', 'name = ""', "Team.name"),
    ('name = "press office"', 'names = "x"', "there is no setting 'names'; did you mean 'name'"),
    ('name = "press office"', 'coordinator = "chaos"', "coordinator must be expert or dispatch"),
    ('name = "press office"', 'coordinator = "dispatch"', "[rubric] has no effect"),
    ('model = "python:crews:worker"', "", "no model is named"),
    ('model = "python:crews:worker"', 'model = "python:crews:nobody"', "nobody"),
    ("max_turns = 5", "max_turns = 0", "max_iterations"),
    ('capabilities = ["write"]', "", "no member offers"),
    ("[[members]]", "[members]", "write [[members]]"),
    ("[limits]", "limits = 3\n[x]", "limits"),
    ("[limits]", "[limits", "not valid TOML"),
    ('capabilities = ["write"]', 'capabilities = "write"', 'members[1]: capabilities must be a list such as ["one"]'),
    ('capabilities = ["write"]', "capabilities = 3", "members[1]: capabilities must be a list"),
    ('capabilities = ["write"]', 'capabilities = [["write"]]', "members[1]: capabilities must be a list"),
    ("max_turns = 5", 'tools = "read"', 'members[1]: tools must be a list such as ["one"], not'),
    ("max_turns = 5", "tools = [1]", "members[1]: tools must be a list"),
    ('role = "author"', 'role = ["author"]', "there is no role ['author']"),
    ("[[members]]", '[[roles]]\nname = "author"\n[[members]]', "roles[2]: there is already a role 'author'"),
    ("[[members]]", "[judge]\nrubric = 3\n[[members]]", "team.toml: judge: AgentEvaluationStrategy.rubric"),
]


@pytest.mark.parametrize(("old", "new", "said"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_file_is_named(folder, old, new, said):
    change(folder, old, new)
    ran = glidepath("team", "run", "team.toml", "a note", folder=folder)
    assert ran.code in (1, 2), ran
    assert said in ran.err, ran
    assert ran.out == ""


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("team", "run", "nowhere.toml", "x"), "nowhere.toml: cannot be read"),
        (("team", "run", "team.toml", " "), "goal"),
        (("team", "resume", "team.toml", "request_1"), "--store"),
        (("team", "resume", "team.toml", "request_1", "--store", "x.db"), "has no request"),
        (("team", "fly", "team.toml", "x"), "invalid choice"),
    ],
)
def test_wrong_usage_is_said(folder, argv, said):
    ran = glidepath(*argv, folder=folder)
    assert ran.code == 2
    assert said in ran.err


def test_a_team_is_resumed_from_its_store(folder):
    ran = glidepath("team", "run", "team.toml", "a note", "--store", "teams.db", folder=folder)
    [request] = re.findall(r"resume with: glidepath team resume team.toml (\S+) --store teams.db", ran.err)
    again = glidepath("team", "resume", "team.toml", request, "--store", "teams.db", folder=folder)
    assert (again.code, again.out) == (0, "text with sources\n"), again
    assert "begins" not in again.err


@pytest.fixture
def desk(folder, monkeypatch):
    """A team whose member wants to publish, which needs a person's approval."""
    change(folder, "python:crews:worker", "python:crews:careful")
    change(folder, "max_turns = 5", 'max_turns = 5\ntools = ["python:crews:publish"]')
    change(folder, '[rubric]\nrequired = ["sources"]', "")
    monkeypatch.chdir(folder)
    return folder


def published(folder):
    path = folder / "published.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_a_team_that_waits_says_how_to_go_on_and_goes_on(desk):
    ran = glidepath("team", "run", "team.toml", "a note", "--store", "my teams.db", folder=desk)
    assert ran.code == 6, ran
    assert 'step facts is waiting for a decision about publish(text="Bees dance."' in ran.err
    assert "facts: waits for a person" in ran.err
    assert "--approve all or --approve deny" in ran.err
    assert published(desk) == []
    [line] = re.findall(r"to continue: glidepath (.*)", ran.err)
    words = shlex.split(line)
    assert words[-1] == "my teams.db"
    again = glidepath(*words, folder=desk)
    assert (again.code, published(desk)) == (6, []), again
    done = glidepath(*words, "--approve", "all", folder=desk)
    assert (done.code, done.out) == (0, "It is out.\n"), done
    assert published(desk) == ["Bees dance."] * 2


def test_a_team_that_waits_without_a_store_says_what_to_do(desk):
    ran = glidepath("team", "run", "team.toml", "a note", folder=desk)
    assert ran.code == 6, ran
    assert "nothing was saved: run it with --store FILE to continue later" in ran.err


@pytest.mark.parametrize(("policy", "done"), [("all", 2), ("deny", 0)])
def test_a_policy_decides_for_a_team(desk, policy, done):
    ran = glidepath("team", "run", "team.toml", "a note", "--approve", policy, folder=desk)
    assert ran.code == 0, ran
    assert len(published(desk)) == done
    assert ("denied here" in ran.out) == (policy == "deny")


@pytest.mark.process
def test_a_person_decides_for_a_team_at_the_terminal(desk):
    with Terminal(80, desk, "team", "run", "team.toml", "a note", frozen=False) as terminal:
        terminal.until("bee (step facts) wants to call publish", "Bees dance.", "allow it?")
        terminal.type("y", "Enter")
        terminal.until("bee (step text) wants to call publish")
        terminal.type("not twice", "Enter")
        assert terminal.code() == 0
        terminal.until("not twice", "completed")
    assert published(desk) == ["Bees dance."]


@pytest.mark.process
def test_ctrl_c_at_the_question_leaves_the_team_paused(desk):
    with Terminal(80, desk, "team", "run", "team.toml", "a note", "--store", "t.db", frozen=False) as terminal:
        terminal.until("allow it?")
        terminal.type("C-c")
        assert terminal.code() == 130
        terminal.until("paused", "to continue: glidepath team resume team.toml")


def test_a_plan_is_shown_first_and_carried_out_by_resume(folder):
    ran = glidepath("team", "run", "team.toml", "a note", "--plan-only", "--store", "t.db", folder=folder)
    assert ran.code == 6, ran
    assert ran.out == "facts: collect facts\ntext: write it (as author; after facts)\n"
    [line] = re.findall(r"to continue: glidepath (.*)", ran.err)
    done = glidepath(*shlex.split(line), folder=folder)
    assert (done.code, done.out) == (0, "text with sources\n"), done


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.process
def test_the_board_of_a_resumed_team_shows_what_was_done_before(folder, width):
    change(folder, "max_cost = 0.5\n", "")
    ran = process("team", "run", "team.toml", "a note", "--plan-only", "--store", "t.db", folder=folder)
    [request] = re.findall(r"resume team.toml (\S+)", ran.err)[:1]
    change(folder, "python:crews:worker", "python:crews:hangs")
    with Terminal(width, folder, "team", "resume", "team.toml", request, "--store", "t.db", frozen=False) as terminal:
        shown = terminal.until("facts  working")
        assert "text   pending" in shown
        assert all(len(line) <= width for line in shown.splitlines())
        terminal.type("C-c")
        terminal.until("finishing up")
        terminal.type("C-c")
        assert terminal.code() == 130


@pytest.mark.process
def test_a_models_words_do_not_steer_the_terminal(folder):
    change(folder, "python:crews:worker", "python:crews:wicked")
    change(folder, 'id = "facts"', 'id = "f\\u001b[2Jacts"')
    change(folder, 'depends_on = ["facts"]', "")
    with Terminal(80, folder, "team", "run", "team.toml", "a note", frozen=False) as terminal:
        assert terminal.code() == 0
        shown = terminal.until("?]0;owned?sources ?[2Jhere", "completed")
    assert "f [2Jacts" in shown


def test_a_team_is_listed_and_shown_as_it_ended(folder):
    glidepath("team", "run", "team.toml", "a note", "--store", "t.db", folder=folder)
    listed = glidepath("runs", "list", "--store", "t.db", folder=folder)
    [line] = re.findall(r"^team:.*$", listed.out, re.MULTILINE)
    assert re.search(r"completed .* a note$", line), line
    shown = glidepath("runs", "show", line.split()[0], "--store", "t.db", folder=folder)
    assert shown.code == 0, shown
    assert "facts: bee begins (attempt 1)" in shown.out
    assert re.search(r"^text +completed +2", shown.out, re.MULTILINE), shown.out
    assert glidepath("runs", "show", "team:nobody", "--store", "t.db", folder=folder).code == 2


def start(folder, **streams):
    command = [sys.executable, "-m", "glidepath.cli", "team", "run", "team.toml", "a note"]
    return subprocess.Popen(command, cwd=folder, env=environment(), text=True, **streams)


@pytest.mark.process
def test_the_second_ctrl_c_stops_a_team(folder):
    change(folder, "max_cost = 0.5\n", "")
    change(folder, "python:crews:worker", "python:crews:hangs")
    child = start(folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = child.stderr.readline()
    assert "begins" in line
    child.send_signal(signal.SIGINT)
    assert "finishing up" in child.stderr.readline()
    time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "cancelled" in err


@pytest.mark.process
def test_on_a_terminal_the_board_is_rewritten_in_place(folder):
    leader, follower = pty.openpty()
    child = start(folder, stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    out, _ = child.communicate(timeout=30)
    text = shown.decode()
    assert child.returncode == 0
    assert out == "text with sources\n"
    assert "in review" in text
    assert "\x1b[" in text  # in place
    assert "completed" in text


def test_the_file_of_the_documentation_is_a_team(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "teams.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    text = re.sub(r'model = ".*"', 'model = "python:crews:worker"', text).replace("read", "list")
    (tmp_path / "team.toml").write_text(text, encoding="utf-8")
    ran = glidepath("team", "run", "team.toml", "a note", folder=tmp_path)
    assert ran.code == 3, ran  # the worker is no judge: LOW risk keeps its work
    assert "text: DEGRADED" in ran.err


def test_a_board_fits_its_width():
    board = TeamBoard()
    board.rows = {"a-step-with-a-very-long-name-that-never-ends": {"state": "working", "tokens": 12}}
    assert all(len(line) <= 30 for line in board.lines(30))


def test_a_board_counts_columns_and_not_signs():
    board = TeamBoard()
    board.rows = {"\u8702\u871c": {"state": "working", "tokens": 1}, "bees": {"state": "working", "tokens": 1}}
    heading, wide, plain = board.lines(79)
    assert plain.index("working") == wide.index("working") + 2 == heading.index("state")


def test_the_runs_of_a_request_are_replayed(tmp_path):
    text = 'model = "python:crews:worker"\n[[members]]\nname = "ann"\ncapabilities = ["write"]\n'
    (tmp_path / "team.toml").write_text(text, "utf-8")
    ran = glidepath("team", "run", "team.toml", "a note", "--store", "t.db", folder=tmp_path)
    request = re.findall(r"request_\w+", ran.err)[0]
    again = glidepath("team", "replay", "team.toml", request, "--store", "t.db", folder=tmp_path)
    assert (again.code, "every hash the same" in again.err, "ann" in again.err) == (0, True, True), again
    changed = text.replace("name =", 'system_prompt = "Be brief."\nname =')
    (tmp_path / "team.toml").write_text(changed, "utf-8")
    other = glidepath("team", "replay", "team.toml", request, "--store", "t.db", folder=tmp_path)
    assert (other.code, "system_prompt" in other.err) == (1, True), other
    for words, said in (((request,), "replay needs --store"), (("nobody", "--store", "t.db"), "no run for request")):
        ran = glidepath("team", "replay", "team.toml", *words, folder=tmp_path)
        assert (ran.code, said in ran.err) == (2, True), ran
