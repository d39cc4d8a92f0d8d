"""A run with a store can be gone on with, and the last line says how."""

import json
import re
import shlex

from .shell_user import glidepath


def last_line(ran):
    line = ran.err.splitlines()[-1]
    assert line.startswith("go on with: glidepath resume session_"), ran
    return shlex.split(line.removeprefix("go on with: glidepath "))


def test_a_run_that_met_a_limit_goes_on_with_a_higher_one(tmp_path):
    argv = ["--model", "python:flights:endless", "--store", "runs.db", "--tools", "list", "--landing", "force"]
    ran = glidepath("run", "go", *argv, "--max-turns", "2", folder=tmp_path)
    assert (ran.code, ran.out) == (3, "Landed.\n")
    again = glidepath(
        *last_line(ran), "--landing", "force", "--max-turns", "6", "--output-format", "json", folder=tmp_path
    )
    result = json.loads(again.out)
    assert again.code == 3
    assert result["iterations"] == 5  # the sixth is the grace
    assert [m["content"] for m in result["messages"] if m["role"] == "user" and not m["internal"]] == ["go"]


def test_a_paused_run_goes_on_with_a_decision(tmp_path):
    argv = ["--model", "python:flights:shell", "--tools", "shell", "--store", "runs.db"]
    ran = glidepath("run", "go", *argv, folder=tmp_path)
    assert ran.code == 6
    denied = glidepath(*last_line(ran), "--approve", "deny", "--output-format", "json", folder=tmp_path)
    assert not (tmp_path / "made.txt").exists()
    results = [m for m in json.loads(denied.out)["messages"] if m["role"] == "tool_result"]
    assert "denied here" in results[0]["content"]


def test_a_run_that_is_done_says_nothing_about_resuming(tmp_path):
    ran = glidepath("run", "go", "--model", "python:flights:hello", "--store", "runs.db", folder=tmp_path)
    assert (ran.code, ran.err) == (0, "")


def test_the_default_store_is_a_file_in_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    argv = ["--model", "python:flights:endless", "--tools", "list", "--landing", "force"]
    ran = glidepath("run", "go", *argv, "--store", "default", "--max-turns", "2", folder=tmp_path)
    assert ran.code == 3
    kept = tmp_path / "data" / "glidepath"
    assert (kept / "sessions.db").is_file()
    assert kept.stat().st_mode & 0o077 == 0, "what was said is nobody else's"
    assert "--store" not in last_line(ran)
    again = glidepath(*last_line(ran), "--landing", "force", "--max-turns", "6", folder=tmp_path)
    assert (again.code, again.out) == (3, "Landed.\n")
    listed = glidepath("runs", "list", folder=tmp_path)
    assert listed.code == 0
    assert last_line(ran)[1] in listed.out


def test_what_runs_shows_cannot_steer_the_terminal(tmp_path):
    task = "do \x1b[2J\x1b]0;title\x07 it"
    argv = ["--store", "runs.db", "--model", "python:flights:steers"]
    assert glidepath("run", task, *argv, folder=tmp_path).code == 0
    listed = glidepath("runs", "list", "--store", "runs.db", folder=tmp_path).out
    shown = glidepath("runs", "show", listed.split()[0], "--store", "runs.db", folder=tmp_path).out
    assert "before " in shown
    assert "\x1b" not in listed + shown
    assert "\x07" not in listed + shown


def test_resume_needs_a_store_and_a_session_that_is_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert "--store" in glidepath("resume", "session_1", "--model", "python:flights:hello", folder=tmp_path).err
    ran = glidepath("resume", "session_1", "--model", "python:flights:hello", "--store", "runs.db", folder=tmp_path)
    assert ran.code == 2
    assert "there is no session 'session_1'" in ran.err


def test_a_store_that_cannot_be_opened_is_a_failure_without_a_hint(tmp_path):
    ran = glidepath(
        "run", "go", "--model", "python:flights:hello", "--store", "no/such/folder/runs.db", folder=tmp_path
    )
    assert ran.code == 1
    assert "go on with" not in ran.err


def test_no_password_is_shown(tmp_path):
    shown = glidepath("config", "show", "--store", "postgresql://me:hunter2@db/x", folder=tmp_path).out
    assert "hunter2" not in shown
    assert re.search(r"store +postgresql://me:\*\*\*@db/x", shown)
