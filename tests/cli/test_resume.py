"""A run with a store can be gone on with, and the last line says how."""

import contextlib
import json
import os
import re
import shlex
import sqlite3

import pytest

from glidepath import Agent, Limits
from glidepath.apps.cli import LoadedSettings
from glidepath.apps.cli.commands.run_command import describe_interruption, resume_line
from glidepath.apps.cli.layers import Known
from glidepath.errors import StoreError
from glidepath.messages import ToolCall
from glidepath.outcome import AgentState, ConfigurationChange, LoopOutcome, RunResult
from glidepath.sessions import SqliteStore, this_owner
from glidepath.testing import ScriptedModel, say

from .shell_user import glidepath


def last_line(ran):
    line = ran.err.splitlines()[-1]
    assert line.startswith("to continue: glidepath resume session_"), ran
    return shlex.split(line.removeprefix("to continue: glidepath "))


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


def test_an_agent_of_ones_own_goes_on_with_the_command_that_was_printed(tmp_path):
    (tmp_path / "bakery.py").write_text(
        "from glidepath import Agent, tool\n"
        "from glidepath.testing import ScriptedModel, call, say\n"
        "@tool\n"
        "def knead(times: int) -> str:\n"
        "    return f'kneaded {times} times'\n"
        "def bake(request):\n"
        "    return call('knead', times=len(request.messages)) if request.tools else say('Landed.')\n"
        "agent = Agent(model=ScriptedModel().forever(bake), tools=[knead])\n"
    )
    ran = glidepath("run", "bake", "--agent", "bakery:agent", "--store", "s.db", "--max-turns", "2", folder=tmp_path)
    assert (ran.code, ran.out) == (3, "Landed.\n")
    again = glidepath(*last_line(ran), "--output-format", "json", folder=tmp_path)
    assert again.code == 3, again.err
    assert json.loads(again.out)["iterations"] > 2


def test_the_command_to_continue_raises_the_limit_above_what_the_run_has_used_already(tmp_path):
    argv = ["--model", "python:flights:endless", "--store", "runs.db", "--tools", "list", "--landing", "force"]
    ran = glidepath("run", "go", *argv, "--max-turns", "6", folder=tmp_path)
    lower = glidepath(*last_line(ran)[:2], *argv, "--max-turns", "2", folder=tmp_path)
    assert last_line(lower)[-2:] == ["--max-turns", "10"]  # it has had five


def test_a_paused_run_goes_on_with_a_decision(tmp_path):
    argv = ["--model", "python:flights:shell", "--tools", "shell", "--store", "runs.db"]
    ran = glidepath("run", "go", *argv, folder=tmp_path)
    assert ran.code == 6
    assert "Nobody decided" not in ran.err  # a person can still be, by resuming it
    denied = glidepath(*last_line(ran), "--approve", "deny", "--output-format", "json", folder=tmp_path)
    assert not (tmp_path / "made.txt").exists()
    results = [m for m in json.loads(denied.out)["messages"] if m["role"] == "tool_result"]
    assert "denied here" in results[0]["content"]


def test_a_person_is_told_what_changed_and_what_may_have_happened():
    changes = (
        ConfigurationChange(what="tool", name="pay", before="a1"),
        ConfigurationChange(what="limit", name="timeout", before="5", now="9"),
        ConfigurationChange(what="tool", name="read", now="f0bc4393f1d7 idempotent"),
    )
    unknown = (ToolCall("c1", "pay", {"amount": 5}),)
    result = RunResult(
        run_id="r",
        session_id="s",
        state=AgentState.COMPLETED,
        outcome=LoopOutcome.DONE,
        changes=changes,
        unknown_effects=unknown,
    )
    told = list(describe_interruption(result))
    assert told[:3] == [
        "since the run was interrupted, tool pay is gone",
        "since the run was interrupted, limit timeout changed: 5 -> 9",
        "since the run was interrupted, tool read is new",
    ]
    assert told[3].startswith("outcome unknown, it may have taken effect: pay")
    assert len(list(describe_interruption(result, limits_named=True))) == 3


def test_another_model_since_the_pause_is_said(tmp_path):
    argv = ["--model", "python:flights:shell", "--tools", "shell", "--store", "runs.db"]
    ran = glidepath("run", "go", *argv, folder=tmp_path)
    words = last_line(ran)
    again = glidepath(*words, "--approve", "deny", "--system-prompt", "Be brief.", folder=tmp_path)
    assert "since the run was interrupted, system_prompt" in again.err


def test_a_resume_that_runs_nothing_does_not_repeat_what_had_changed_before(tmp_path):
    argv = ["--model", "python:flights:endless", "--store", "runs.db", "--max-turns", "2"]
    session = last_line(glidepath("run", "go", *argv, "--tools", "list", folder=tmp_path))[1]
    argv[1] = "python:flights:hello"
    assert "tool read is new" in glidepath("resume", session, *argv[:4], "--tools", "list,read", folder=tmp_path).err
    again = glidepath("resume", session, *argv[:4], folder=tmp_path)
    assert re.fullmatch(r"nothing ran: this run is already done, and this is its answer; .*\n", again.err), again


def test_a_run_that_is_done_says_nothing_about_resuming(tmp_path):
    ran = glidepath("run", "go", "--model", "python:flights:hello", "--store", "runs.db", folder=tmp_path)
    assert (ran.code, ran.err) == (0, "")


def test_the_default_store_is_in_the_users_data_folder(tmp_path, monkeypatch):
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
    shown = glidepath("runs", "show", listed.splitlines()[1].split()[0], "--store", "runs.db", folder=tmp_path).out
    assert "before " in shown
    assert "\x1b" not in listed + shown
    assert "\x07" not in listed + shown


def test_resume_needs_a_store_and_a_session_that_is_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert "--store" in glidepath("resume", "session_1", "--model", "python:flights:hello", folder=tmp_path).err
    ran = glidepath("resume", "session_1", "--model", "python:flights:hello", "--store", "runs.db", folder=tmp_path)
    assert ran.code == 2
    assert "there is no session" in ran.err


def test_a_store_that_cannot_be_opened_is_a_failure_without_a_hint(tmp_path):
    ran = glidepath(
        "run", "go", "--model", "python:flights:hello", "--store", "no/such/folder/runs.db", folder=tmp_path
    )
    assert ran.code == 2
    assert "to continue" not in ran.err


def _later_layout(file):
    glidepath("run", "go", "--model", "python:flights:hello", "--store", "runs.db", folder=file.parent)
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    "spoil", [lambda file: file.write_text("not a database at all"), _later_layout], ids=["another file", "newer"]
)
def test_nothing_is_run_in_a_store_that_is_none_or_that_a_later_release_made(tmp_path, spoil):
    spoil(tmp_path / "runs.db")
    ran = glidepath("run", "go", "--model", "python:flights:hello", "--store", "runs.db", folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "runs.db" in ran.err


def test_a_run_whose_store_failed_on_the_way_can_be_gone_on_with(tmp_path):
    argv = ["--model", "python:flights:endless", "--tools", "list", "--store", "runs.db", "--max-turns", "9"]

    class Full(SqliteStore):
        def append(self, lease, commit, **keywords):
            if commit.number == 5:
                raise StoreError("the disk is full", kind="full")
            return super().append(lease, commit, **keywords)

    here = "glidepath.sessions"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{here}.SqliteStore", Full)
        ran = glidepath("run", "go", *argv, folder=tmp_path)
    assert ran.code == 1
    assert "the disk is full" in ran.err
    again = glidepath(*last_line(ran), "--max-turns", "9", folder=tmp_path)
    assert (again.code, again.out) == (3, "Landed.\n")


def test_after_a_crash_of_ours_the_last_line_still_says_how_to_go_on(tmp_path):
    argv = ["--model", "python:flights:endless", "--tools", "list", "--store", "runs.db", "--max-turns", "9"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glidepath.apps.cli.screens.PlainScreen.finish", lambda *_: 1 / 0)
        ran = glidepath("run", "go", *argv, folder=tmp_path)
    assert ran.code == 1
    assert "ZeroDivisionError" in ran.err
    assert last_line(ran)[0] == "resume"


def test_a_run_of_a_dead_process_is_listed_as_interrupted(tmp_path):
    argv = ["--model", "python:flights:endless", "--tools", "list", "--store", "runs.db", "--max-turns", "2"]
    glidepath("run", "go", *argv, folder=tmp_path)
    host, _, birth, nonce = this_owner().split("|")
    connection = sqlite3.connect(tmp_path / "runs.db")
    for pid, how in ((os.getpid(), "running    "), (2**22 + 1, "interrupted")):
        with connection:
            owner = f"{host}|{pid}|{birth}|{nonce}"
            connection.execute(
                "UPDATE sessions SET owner = ?, expires = 1e12, summary = ?", (owner, json.dumps({"task": "x"}))
            )
        assert f"  {how}      -         -  x" in glidepath("runs", "list", "--store", "runs.db", folder=tmp_path).out
    connection.close()


def test_no_password_is_shown(tmp_path):
    shown = glidepath("config", "show", "--store", "postgresql://me:hunter2@db/x", folder=tmp_path).out
    assert "hunter2" not in shown
    assert re.search(r"store +postgresql://me:\*\*\*@db/x", shown)


@pytest.mark.parametrize(
    ("key", "value", "typed"),
    [
        ("store", "postgresql://me:hunter2@db/x", "postgresql://me:hunter2@db/x"),
        ("extras", {"api_key": "hunter2"}, '{"api_key": "hunter2"}'),
        ("extras", {"headers": {"Authorization": "hunter2"}}, '{"headers": {"Authorization": "hunter2"}}'),
        ("system_prompt", "use Bearer hunter2hunter2", "use Bearer hunter2hunter2"),
    ],
)
@pytest.mark.parametrize("flag", ["flag --set", "flag --store"])
def test_the_line_that_continues_a_run_repeats_no_secret(key, value, typed, flag):
    settings = LoadedSettings({key: Known(value, flag, typed)}, None, found=False)
    assert "hunter2" not in resume_line("s", settings)


def test_the_line_that_continues_a_run_finds_a_database_in_the_environment():
    settings = LoadedSettings(
        {"store": Known("postgresql://me@db/x", "flag --set", "postgresql://me@db/x")}, None, found=False
    )
    assert resume_line("s", settings) == 'glidepath resume s --store "$GLIDEPATH_STORE"'


def named(folder, *flags, name="bob"):
    """A session of this name that has ended."""
    ran = glidepath("run", "go", "--model", "python:flights:echoes", "--name", name, *flags, folder=folder)
    assert ran.code == 0, ran


@pytest.mark.parametrize("words", [("-r", "bob"), ("--last",), ("-c",)], ids=["by name", "last", "last here"])
def test_a_session_is_continued_with_the_model_it_was_held_with(tmp_path, words):
    named(tmp_path)
    again = glidepath("run", *words, "and then?", folder=tmp_path)
    assert (again.code, again.out) == (0, "You said: and then?\n"), again


def test_a_run_is_resumed_with_the_model_it_was_made_with(tmp_path):
    argv = ["--model", "python:flights:endless", "--tools", "list", "--landing", "force", "--max-turns", "2"]
    assert glidepath("run", "go", *argv, "--name", "bob", folder=tmp_path).code == 3
    for words in (["bob"], ["--last"]):
        again = glidepath("resume", *words, "--landing", "force", "--max-turns", "5", folder=tmp_path)
        assert (again.code, again.out) == (3, "Landed.\n"), again
        assert "with the tools of this conversation: list" in again.err


@pytest.mark.parametrize("command", [("run", "-r", "nope", "hi"), ("resume", "nope")], ids=["run", "resume"])
def test_a_session_that_is_not_there_is_reported_before_a_model_that_is_missing(tmp_path, command):
    named(tmp_path)
    ran = glidepath(*command, folder=tmp_path)
    assert (ran.code, "there is no session 'nope'" in ran.err) == (2, True), ran


def test_resuming_a_run_that_is_done_says_that_nothing_ran(tmp_path):
    named(tmp_path)
    again = glidepath("resume", "bob", folder=tmp_path)
    assert (again.code, again.out) == (0, "You said: go\n")
    said, _, line = again.err.partition(": glidepath ")
    assert said == "nothing ran: this run is already done, and this is its answer; to say more"
    *words, text = shlex.split(line)
    assert text == "TEXT"
    assert glidepath(*words, "more", folder=tmp_path).out == "You said: more\n"


def test_a_done_run_whose_model_nobody_knows_is_an_error_and_promises_no_answer(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    agent = Agent(model=ScriptedModel([say("Hello.")]), limits=Limits(max_iterations=2), store=store)
    agent.run_sync("Hi.", session="mine")
    ran = glidepath("resume", "mine", "--store", "runs.db", folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "mine does not know which model it was held with: pass --model NAME" in ran.err
    assert "this is its answer" not in ran.err


def test_a_run_that_got_stuck_is_to_be_told_another_way(tmp_path):
    ran = glidepath("run", "go", "--model", "python:flights:stuck", "--tools", "list", "--name", "x", folder=tmp_path)
    assert ran.code == 4
    assert "glidepath resume" not in ran.err
    said, _, line = ran.err.splitlines()[-1].partition(": glidepath ")
    assert said == "it got stuck; to continue with other instructions"
    *words, text = shlex.split(line)
    assert (words[0], text) == ("run", "TEXT")
    again = glidepath(*words, "try this", "--model", "python:flights:echoes", folder=tmp_path)
    assert (again.code, again.out) == (0, "You said: try this\n"), again


def test_a_name_that_another_session_has_is_reported_with_the_id_to_use(tmp_path):
    named(tmp_path)
    named(tmp_path, name="bobby")
    argv = ("--model", "python:flights:echoes", "--name", " Bob  the first")
    for words in (("go",), ("-r", "Bob the  first", "more")):
        assert glidepath("run", *words, *argv, folder=tmp_path).err == ""
    argv = (*argv[:-1], "bob")
    second = glidepath("run", "go", *argv, folder=tmp_path)
    assert second.code == 0
    told = re.fullmatch(r"--name: another session is also called 'bob', so use the id of this one: (\w+)\n", second.err)
    assert glidepath("run", "-r", told[1], "hi", folder=tmp_path).out == "You said: hi\n"
    unclear = glidepath("run", "-r", "bob", "hi", folder=tmp_path)
    assert unclear.code == 2
    assert re.search(
        r"2 sessions are called 'bob': session_\w+ \(.*\), session_\w+ \(.*\); give the id of one", unclear.err
    )
