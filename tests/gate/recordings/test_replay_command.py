"""`glidepath replay` as people use it: a program of ours is recorded, and run again in the sandbox."""

import asyncio
import json
import os
import subprocess
import sys
import threading

import pytest
from tests.cli.shell_user import glidepath
from tests.gate.recordings.taped import NOWHERE

from glidepath.apps.gate.recordings import (
    check_inside,
    choose_environment,
    copy_home,
    copy_workspace,
    explain_no_sandbox,
    explain_own_sandbox,
    find_first,
    find_programs,
)
from glidepath.testing.upstream import ScriptedUpstream
from glidepath.values import ConfigurationError

pytestmark = pytest.mark.process
needs_sandbox = pytest.mark.skipif(bool(explain_no_sandbox()), reason="bubblewrap does not work here")

AGENT = """
import json, os, pathlib, socket, sys, urllib.request
said = pathlib.Path("input.txt").read_text()
for number in range(2):
    messages = [{"role": "user", "content": f"{number} {said}"}]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": messages}
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json",
               "anthropic-version": "2023-06-01"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    try:
        reply = json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))
    except urllib.error.HTTPError as error:
        sys.exit(f"refused: {error.status}")
    print(reply["content"][0]["text"])
pathlib.Path("made.txt").write_text("made by the agent")
print(os.getcwd(), os.environ.get("MY_TOKEN", "no token"))
for place in sys.argv[1:]:
    try:
        socket.create_connection(("127.0.0.1", int(place)), timeout=2)
        print("reached")
    except OSError:
        print("not reached")
"""


class Upstream:
    """A scripted provider in a thread: the commands under test are processes."""

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.up = ScriptedUpstream("answer")
        asyncio.run_coroutine_threadsafe(self.up.start(), self._loop).result(10)
        return self.up

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self.up.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def run(folder, *words, home=None, **environ):
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return subprocess.run(
        [sys.executable, "-m", "glidepath", *words],
        cwd=folder,
        env={**kept, "HOME": str(home or folder.parent / "home"), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder in which a run was recorded; the provider is gone."""
    root = tmp_path_factory.mktemp("recorded")
    (root / "home").mkdir()
    work = root / "work"
    work.mkdir()
    (work / "input.txt").write_text("hello")
    (work / "agent.py").write_text(AGENT)
    with Upstream() as up:
        flags = ("--record", "--store", str(root / "s.db"), "--upstream", up.url)
        done = run(work, "gate", "run", *flags, "--", sys.executable, "agent.py")
    assert done.returncode == 0, done.stderr
    assert "2 calls recorded. To replay: glidepath replay gate:run-" in done.stderr
    (work / "made.txt").unlink()
    return root, done.stdout


def replay(recorded, *flags, words=("agent.py",), **environ):
    root, _ = recorded
    command = ("--store", str(root / "s.db"), *flags, "--", sys.executable, *words)
    return run(root / "work", "replay", "--last", *command, **environ)


@needs_sandbox
def test_a_run_is_replayed_on_a_copy_with_no_network_but_the_recording(recorded, tmp_path):
    with Upstream() as up:
        port = up.url.rpartition(":")[2]
        done = replay(recorded, "--keep", str(tmp_path / "copy"), words=("agent.py", port), MY_TOKEN="secret")
        assert up.usage.calls == 0
    assert done.returncode == 0, done.stderr
    assert done.stdout == recorded[1] + "not reached\n"
    assert "2 of 2 recorded calls replayed, nothing differs." in done.stderr
    assert (tmp_path / "copy" / "made.txt").read_text() == "made by the agent"
    assert not (recorded[0] / "work" / "made.txt").exists()


@needs_sandbox
def test_a_difference_is_a_sentence_with_both_values_and_an_exit_code(recorded, tmp_path):
    before = tmp_path / "before"
    copy_workspace(recorded[0] / "work", before)
    (before / "input.txt").write_text("hel\x1b[31mp")
    done = replay(recorded, "--workspace", str(before))
    assert done.returncode == 1
    assert "0 of 2 recorded calls replayed, then the run differs: the conversation is another one" in done.stderr
    assert "first difference, in call 1: messages[0].content" in done.stderr
    assert "recorded: 0 hello" in done.stderr
    assert "now:      0 hel<U+001B>[31mp" in done.stderr


@needs_sandbox
def test_a_command_that_ends_too_early_fails_although_it_exits_with_0(recorded):
    done = replay(recorded, words=("-c", "pass"))
    assert done.returncode == 1
    assert "0 of 2 recorded calls replayed; the command ended without making call 1, 2 again." in done.stderr


@needs_sandbox
def test_the_exit_code_of_the_command_is_passed_on(recorded):
    assert replay(recorded, words=("-c", "raise SystemExit(7)")).returncode == 7


def test_tools_run_again_as_you_only_when_asked(recorded):
    made = recorded[0] / "work" / "made.txt"
    done = replay(recorded, "--run-tools-again", MY_TOKEN="mine")
    assert done.returncode == 0, done.stderr
    assert "nothing differs" in done.stderr
    assert "mine" in done.stdout
    made.unlink()


@needs_sandbox
def test_from_a_turn_on_the_upstream_answers_and_the_run_is_kept(recorded):
    with Upstream() as up:
        done = replay(recorded, "--from-turn", "1", "--upstream", up.url, "--max-calls", "5", "--report", "r.json")
        assert up.usage.calls == 1
    assert done.returncode == 0, done.stderr
    assert "1 of 1 recorded call replayed, nothing differs." in done.stderr
    report = json.loads((recorded[0] / "work" / "r.json").read_text())
    assert report["calls"] == 1
    listed = run(recorded[0] / "work", "sessions", "list", "--store", str(recorded[0] / "s.db"))
    assert "gate:replay-" in listed.stdout


def test_a_gate_that_is_killed_leaves_a_recording_that_says_it_is_torn(tmp_path):
    # The program kills its gate, in the middle of a call of its own.
    killer = AGENT.replace("for number in range(2):", "for number in range(4):") + "\n"
    (tmp_path / "whole.py").write_text(killer)
    (tmp_path / "killer.py").write_text(
        killer.replace("    try:\n", "    if number == 3: os.kill(os.getppid(), 9)\n    try:\n", 1)
    )
    (tmp_path / "input.txt").write_text("x")
    with Upstream() as up:
        flags = ("--record", "--store", "s.db", "--upstream", up.url)
        done = run(tmp_path, "gate", "run", *flags, "--", sys.executable, "killer.py")
    assert done.returncode == -9
    words = ("--run-tools-again", "--", sys.executable, "whole.py")
    done = run(tmp_path, "replay", "--last", "--store", "s.db", *words)
    assert done.returncode == 1
    assert "the recording is torn: it breaks off after call" in done.stderr


@needs_sandbox
def test_an_agent_that_sandboxes_its_commands_itself_is_named_where_its_run_differs():
    hint = explain_own_sandbox("codex", ["codex", "exec", "x"])
    assert "record it with danger-full-access, or replay it with --run-tools-again" in hint
    assert explain_own_sandbox("codex", ["codex", "exec", "--sandbox=danger-full-access", "x"]) == ""
    assert explain_own_sandbox("claude-code", ["claude"]) == ""


# --- what is refused ------------------------------------------------------------------------------------------------


def ask(folder, *words):
    return glidepath("replay", *words, folder=folder)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a session"),
        (("gate:run-1",), "name the command after --"),
        (("x", "--max-tokens", "5", "--", "true"), "--max-tokens is for what follows a turn: add --from-turn N"),
        (("x", "--workspace", "absent", "--store", "s.db", "--", "true"), "there is no session store at"),
        (("x", "--last", "--", "true"), "take out --last or the id"),
    ],
)
def test_a_command_line_that_is_wrong_is_a_sentence(tmp_path, words, says):
    done = ask(tmp_path, *words)
    assert done.code == 2
    assert says in done.err


def test_a_session_without_a_recording_says_how_to_make_one(tmp_path):
    with Upstream() as up:
        flags = ("--store", "s.db", "--upstream", up.url)
        (tmp_path / "input.txt").write_text("x")
        (tmp_path / "agent.py").write_text(AGENT)
        done = run(tmp_path, "gate", "run", *flags, "--", sys.executable, "agent.py")
    assert done.returncode == 0, done.stderr
    for which, says in (
        ("--last", "nothing was recorded in this store"),
        ("gate:run", "recorded of session 'gate:run-"),
    ):
        done = ask(tmp_path, which, "--store", "s.db", "--", "true")
        assert done.code == 2
        assert says in done.err
        assert "glidepath gate run --record" in done.err


def test_without_a_sandbox_a_replay_is_refused(recorded, monkeypatch):
    monkeypatch.setattr(
        "glidepath.apps.gate.recordings.isolation.explain_no_sandbox", lambda: "bubblewrap is not installed"
    )
    done = ask(recorded[0] / "work", "--last", "--store", str(recorded[0] / "s.db"), "--", "true")
    assert done.code == 2
    assert "there is no sandbox here (bubblewrap is not installed)" in done.err
    assert "--run-tools-again" in done.err


def test_a_turn_that_is_not_there_is_named(recorded):
    words = ("--from-turn", "9", "--upstream", NOWHERE, "--run-tools-again", "--", "true")
    done = ask(recorded[0] / "work", "--last", "--store", str(recorded[0] / "s.db"), *words)
    assert done.code == 2
    assert "the recording has 2 turns of its main agent; name one from 1 to 2" in done.err


def test_the_table_of_what_may_differ_is_printed(tmp_path):
    done = ask(tmp_path, "--volatile")
    assert done.code == 0
    assert "| every | `id` |" in done.out


def test_secrets_and_ways_out_stay_outside():
    given = {"PATH": "/bin", "LANG": "C", "AWS_SECRET_ACCESS_KEY": "s", "GITHUB_TOKEN": "t", "HTTPS_PROXY": "http://p"}
    made = {**given, "ANTHROPIC_API_KEY": "gate-key"}
    assert choose_environment(given, made) == {"PATH": "/bin", "LANG": "C", "ANTHROPIC_API_KEY": "gate-key"}


def test_no_file_with_logins_is_copied_from_home(tmp_path):
    home = tmp_path / "home"
    logins = (".config/git/credentials", ".git-credentials", ".netrc", ".ssh/id_ed25519", ".claude/.credentials.json")
    for name in (".config/git/config", ".claude/settings.json", ".claude/skills/a/SKILL.md", *logins):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    copy_home(home, tmp_path / "copy", "claude-code", "/work")
    copied = {str(one.relative_to(tmp_path / "copy")) for one in (tmp_path / "copy").rglob("*") if one.is_file()}
    assert copied == {".config/git/config", ".claude/settings.json", ".claude/skills/a/SKILL.md"}


def test_a_workspace_is_copied_with_links_and_without_pipes(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("a")
    (source / "link").symlink_to("a")
    os.mkfifo(source / "pipe")
    copy_workspace(source, tmp_path / "copy")
    assert sorted(one.name for one in (tmp_path / "copy").iterdir()) == ["a", "link"]
    assert (tmp_path / "copy" / "link").is_symlink()


def test_a_workspace_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("glidepath.apps.gate.recordings.isolation.LARGEST_COPY", 2)
    (tmp_path / "a").write_text("abc")
    with pytest.raises(ConfigurationError, match="name a smaller folder with --workspace"):
        copy_workspace(tmp_path, tmp_path.parent / "copy")


def test_what_a_command_is_made_of_is_found(tmp_path):
    package = tmp_path / "lib" / "node_modules" / "agent" / "bin"
    package.mkdir(parents=True)
    tools = tmp_path / "tools" / "bin"
    tools.mkdir(parents=True)
    (tools / "node").write_text("#!/bin/sh\n")
    (tools / "node").chmod(0o755)
    (package / "agent.js").write_text("#!/usr/bin/env node\n")
    (package / "agent.js").chmod(0o755)
    shown = tmp_path / "shown" / "bin"
    shown.mkdir(parents=True)
    (shown / "agent").symlink_to(package / "agent.js")
    found = find_programs(["agent", "-p", "hello"], {"PATH": f"{shown}:{tools}"})
    assert set(found) >= {str(tmp_path / "lib" / "node_modules"), str(tmp_path / "tools")}


@pytest.mark.parametrize(
    ("folder", "home", "says"),
    [
        ("/", "/home/ann", "is part of the system"),
        ("/etc/app", "/home/ann", "is part of the system"),
        ("/home/ann", "/home/ann/", "made in the home folder"),
        ("/work", "/usr/home", "the home folder of the recording"),
    ],
)
def test_a_copy_takes_the_place_of_no_part_of_the_system(folder, home, says):
    with pytest.raises(ConfigurationError, match=says):
        check_inside(folder, home)


def test_a_workspace_is_not_copied_into_itself(tmp_path):
    (tmp_path / "build").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "build")
    for target in (tmp_path / "build" / "copy", tmp_path / "link" / "copy", tmp_path / "copy"):
        with pytest.raises(ConfigurationError, match="which is inside it: name another folder with --keep"):
            copy_workspace(tmp_path, target)
        assert not target.exists()


@pytest.mark.parametrize(
    ("folder", "home"),
    [
        ("/home/ann/w\0rk", "/home/ann"),
        ("/home/ann/../../srv/work", "/home/ann"),
        ("relative", "/home/ann"),
        ("//etc/app", "/home/ann"),
        ("/home/ann/work", "home"),
        ("/home/ann/work", "//usr"),
        ("/home/ann/work", "/home/\0"),
        ("/home/ann/work", "/srv/../home/ann"),
    ],
)
def test_a_recording_from_elsewhere_names_plain_places_or_is_refused(folder, home):
    with pytest.raises(ConfigurationError, match="is not a plain absolute path"):
        check_inside(folder, home)


def test_no_copy_takes_the_place_of_all_folders():
    with pytest.raises(ConfigurationError, match="part of the system"):
        check_inside("/home/ann/work", "/")


def test_what_looks_like_a_key_is_not_shown_where_two_requests_differ():
    key = "sk-ant-api03-" + "a1B2" * 12
    for before, after in ((f"{key} one", f"{key} two"), ([key], 1), (f"{'.' * 40}{key}", "." * 40)):
        found = find_first({"a": before}, {"a": after})
        assert found is not None
        assert "a1B2" not in str(found)
        assert "***" in str(found)
