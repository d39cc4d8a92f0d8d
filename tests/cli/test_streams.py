"""Honest streams: standard output holds the model's answer or nothing, and what is said helps."""

import json
import re
import shlex

import pytest

from .shell_user import glidepath

QUIET = ("--tools", "none")


def test_what_the_runtime_says_is_never_on_standard_output(tmp_path):
    ran = glidepath("run", "go", "--model", "python:flights:rejects", *QUIET, folder=tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert "bad request" in ran.err
    waits = glidepath("run", "go", "--model", "python:flights:shell", "--tools", "shell", folder=tmp_path)
    assert (waits.code, waits.out) == (6, "")
    assert 'shell(command="echo from the shell > made.txt' in waits.err  # the whole call


def test_an_answer_that_begins_like_our_own_words_is_an_answer(tmp_path):
    (tmp_path / "odd.py").write_text(
        "from glidepath.testing import ScriptedModel, say\n"
        "model = lambda: ScriptedModel([say('No answer was written. Honestly.')])\n"
    )
    ran = glidepath("run", "go", "--model", "python:odd:model", *QUIET, folder=tmp_path)
    assert ran.out == "No answer was written. Honestly.\n"


def test_the_way_to_continue_raises_the_limit_that_was_hit_and_works(tmp_path):
    argv = ("--model", "python:flights:endless", "--tools", "list", "--store", "runs.db")
    ran = glidepath("run", "go", *argv, "--max-turns", "3", folder=tmp_path)
    line = re.search(r"to continue: glidepath (.*)", ran.err).group(1)
    assert line.endswith("--max-turns 6")
    again = glidepath(*line.split(), folder=tmp_path)
    assert (again.code, again.out) == (3, "Landed.\n"), again  # the raised limit has wrapped it up, too
    assert again.err.rstrip().endswith("--max-turns 12")


def test_the_way_to_continue_keeps_every_other_limit_and_setting(tmp_path):
    argv = ["--model", "python:flights:endless", "--tools", "list", "--store", "runs.db", "--max-turns", "3"]
    price = 'prices={"scripted": ["3", "15"]}'
    limits = ["--max-tokens", "90k", "--max-budget-usd", "2", "--set", price, "--landing", "force"]
    ran = glidepath("run", "go", *argv, *limits, folder=tmp_path)
    line = re.search(r"to continue: glidepath (.*)", ran.err).group(1)
    words = shlex.split(line)
    for flag, value in (("--max-tokens", "90k"), ("--max-budget-usd", "2"), ("--set", price), ("--landing", "force")):
        assert words[words.index(flag) + 1] == value, line
    assert (words.count("--max-turns"), words[-2:]) == (1, ["--max-turns", "6"])
    assert glidepath(*words, folder=tmp_path).code in (0, 3)


def test_runs_have_a_heading_a_cost_a_limit_and_json(tmp_path):
    argv = ("--model", "python:flights:looks", "--store", "runs.db")
    for task in ("one", "two"):
        assert glidepath("run", task, *argv, folder=tmp_path).code == 0
    listed = glidepath("runs", "list", "-n", "1", "--store", "runs.db", folder=tmp_path).out.splitlines()
    assert listed[0].split() == ["SESSION", "LAST", "ACTIVE", "OUTCOME", "TURNS", "COST", "WHAT"]
    assert len(listed) == 2
    assert "$0.0018" in listed[1]
    rows = glidepath("runs", "list", "--json", "--store", "runs.db", folder=tmp_path).out.splitlines()
    first = json.loads(rows[0])
    assert (len(rows), first["task"]) == (2, "two")
    short = first["session_id"].removeprefix("session_")[:8]
    shown = glidepath("runs", "show", short, "--store", "runs.db", folder=tmp_path).out
    assert "cost      $0.0018" in shown
    assert 'calls list(path="."' in shown
    last = glidepath("runs", "show", short, "-n", "1", "--store", "runs.db", folder=tmp_path).out
    assert "(3 messages before)" in last
    assert "[user]" not in last
    whole = json.loads(glidepath("runs", "show", short, "--json", "--store", "runs.db", folder=tmp_path).out)
    assert [message["role"] for message in whole["messages"]] == ["user", "assistant", "tool_result", "assistant"]
    plot = glidepath("runs", "show", short, "--plot", "--store", "runs.db", folder=tmp_path).out
    assert "turns: 2 of 50 (4%)" in plot
    assert "tokens: 440, no limit" in plot


def test_a_session_is_resumed_as_the_last_one_and_an_unknown_one_is_said(tmp_path):
    argv = ("--model", "python:flights:endless", "--tools", "list", "--store", "runs.db", "--max-turns", "2")
    glidepath("run", "go", *argv, folder=tmp_path)
    resumed = glidepath("resume", "--last", *argv[:-1], "4", folder=tmp_path)
    assert (resumed.code, resumed.out) == (3, "Landed.\n"), resumed
    landed = glidepath("resume", "--last", *argv[:-1], "8", "--landed-ok", folder=tmp_path)
    assert (landed.code, landed.out) == (0, "Landed.\n"), landed
    assert "name a session" in glidepath("resume", *argv, folder=tmp_path).err
    assert "`glidepath sessions list`" in glidepath("resume", "zzz", *argv, folder=tmp_path).err


def test_quiet_prints_the_answer_and_errors_and_no_notes(tmp_path):
    (tmp_path / "AGENTS.md").write_text("Answer in verse.")
    ran = glidepath("run", "go", "-q", "--model", "python:flights:hello", folder=tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, "Hello from the script.\n", "")
    failed = glidepath("run", "go", "-q", "--model", "python:flights:rejects", folder=tmp_path)
    assert (failed.code, failed.out, failed.err.startswith("glidepath: error: failed")) == (1, "", True), failed


def test_instructions_that_nobody_trusts_are_mentioned_in_a_pipe_too(tmp_path):
    (tmp_path / "AGENTS.md").write_text("Answer in verse.")
    ran = glidepath("run", "go", "--model", "python:flights:hello", folder=tmp_path)
    assert ran.out == "Hello from the script.\n"
    assert ran.err == "AGENTS.md is not used: this folder is not trusted. `glidepath trust` trusts it.\n"


# --- flags ----------------------------------------------------------------------------------------------------------


def test_the_answer_goes_to_a_file_too_and_quiet_says_nothing_else(tmp_path):
    argv = ("-m", "python:flights:endless", "--tools", "list", "--max-turns", "2")
    ran = glidepath("run", "go", *argv, "-o", "answer.txt", "-q", folder=tmp_path)
    assert (ran.out, ran.err) == ("Landed.\n", "")
    assert (tmp_path / "answer.txt").read_text() == "Landed.\n"
    refused = glidepath("run", "go", *argv, "-o", "no/such/folder.txt", folder=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    loud = glidepath("run", "go", "-m", "python:flights:looks", "-v", "-p", folder=tmp_path)
    assert '> list(path="."' in loud.err


def test_an_answer_fits_a_schema_or_is_not_printed(tmp_path):
    (tmp_path / "schemes.py").write_text(
        "from glidepath.testing import ScriptedModel, say\n"
        'fits = lambda: ScriptedModel([say(\'{"total": "x"}\'), say(\'Here: {"total": 3}\')])\n'
        "never = lambda: ScriptedModel().forever(say('no'))\n"
    )
    schema = {"type": "object", "properties": {"total": {"type": "integer", "minimum": 1}}, "required": ["total"]}
    (tmp_path / "bill.json").write_text(json.dumps(schema))
    argv = ("--json-schema", "bill.json", *QUIET)
    fits = glidepath("run", "go", "-m", "python:schemes:fits", *argv, folder=tmp_path)
    assert (fits.code, fits.out) == (0, '{"total":3}\n'), fits
    never = glidepath("run", "go", "-m", "python:schemes:never", *argv, folder=tmp_path)
    assert never.out == ""
    assert never.code != 0
    assert "the answer does not fit the schema: there is no JSON object in it" in never.err
    (tmp_path / "bill.json").write_text("[]")
    assert "must describe an object" in glidepath("run", "go", "-m", "python:schemes:fits", *argv, folder=tmp_path).err


def test_a_picture_goes_along_and_what_is_none_is_refused(tmp_path):
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    argv = ("-m", "python:flights:hello", *QUIET, "--output-format", "json")
    ran = glidepath("run", "what is this?", "-i", "dot.png", *argv, folder=tmp_path)
    assert json.loads(ran.out)["messages"][0]["content"][0]["media_type"] == "image/png"
    assert "is not a picture" in glidepath("run", "x", "-i", "notes.txt", *argv, folder=tmp_path).err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--json",), "did you mean --output-format json?"),
        (("--tools", "bash"), "read, list, grep, write, edit, shell"),
        (("--max-budget-usd", "1"), '--set \'prices={"scripted": ["3", "15"]}\''),
        (("--max-budget-usd", "1"), "--set unpriced=estimate:MODEL"),
        (("--max-iterations", "3"), "did you mean --max-turns?"),
        (("--budget", "3"), "did you mean --max-budget-usd?"),
    ],
    ids=["json", "tools", "prices", "unpriced", "iterations", "budget"],
)
def test_wrong_words_get_the_right_one(tmp_path, argv, words):
    ran = glidepath("run", "go", "-m", "python:flights:hello", *argv, folder=tmp_path)
    assert ran.code == 2
    assert words in ran.err, ran.err


def test_fish_gets_a_completion_script(tmp_path):
    script = glidepath("completion", "fish", folder=tmp_path).out
    assert "complete -c glidepath -n __fish_use_subcommand -a run -d" in script
    assert "-n '__fish_seen_subcommand_from run' -s m -l model -r" in script
    assert "-l approve -x -a 'ask all deny'" in script


def test_a_store_that_cannot_be_opened_is_wrong_usage_and_nothing_is_printed(tmp_path):
    (tmp_path / "file").write_text("")
    argv = ("run", "hi", "--model", "python:flights:hello", "--store", str(tmp_path / "file" / "s.db"))
    ran = glidepath(*argv, folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be opened" in ran.err


def test_a_setting_outside_its_section_and_a_price_lead_to_what_works(tmp_path):
    argv = ("run", "go", "--model", "python:flights:hello")
    wrong = glidepath(*argv, "--set", "max_tool_calls=7", folder=tmp_path)
    assert (wrong.code, wrong.err.endswith("did you mean --set limits.max_tool_calls=7?\n")) == (2, True), wrong
    assert glidepath(*argv, "--set", "limits.max_tool_calls=7", folder=tmp_path).code == 0
    price = glidepath(*argv, "--price", "3/15", folder=tmp_path)
    assert (price.code, """did you mean --set 'prices={"MODEL": ["3", "15"]}'""" in price.err) == (2, True), price
    priced = ("--set", 'prices={"scripted": ["3", "15"]}', "--max-budget-usd", "1")
    assert glidepath(*argv, *priced, folder=tmp_path).code == 0
