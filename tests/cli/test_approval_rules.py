"""Rules for approvals on the command line: in a file, in a folder nobody trusts, and tried on stored runs."""

import pytest

from glidepath import Agent, Limits, tool
from glidepath.sessions import Session, SqliteStore
from glidepath.testing import ScriptedModel, call, say

from .shell_user import glidepath


@tool
def shell(command: str) -> str:
    """Run a command."""
    return "done"


@tool
def write(path: str, content: str) -> str:
    """Write a file."""
    return "written"


@pytest.fixture
def stored(tmp_path):
    turns = [
        *[call("shell", command=command) for command in ("npm test", "npm test unit", "ls; rm x", "ls | wc")],
        call("write", path="src/a.py", content="x"),
        call("write", path=".github/x.yml", content="x"),
        say("done"),
    ]
    agent = Agent(
        model=ScriptedModel(turns),
        tools=[shell, write],
        limits=Limits(max_iterations=20),
        store=SqliteStore(tmp_path / "s.db"),
    )
    agent.run_sync("go", session=Session("s"))
    (tmp_path / "rules.toml").write_text(
        '[approvals]\nallow = ["shell(npm test *)", "write(src/**)"]\ndeny = ["shell(rm *)", "write(.github/**)"]\n'
    )
    return tmp_path


def test_what_if_counts_what_a_set_of_rules_would_have_decided(stored):
    done = glidepath("approvals", "what-if", "rules.toml", "s.db", "--calls", "deny", folder=stored)
    assert done.code == 0, done.err
    assert "6 calls: 3 would run, 1 would ask, 2 would not run; 0 covered by no rule" in done.out
    assert "2  would run      allow rule shell(npm test *)" in done.out
    assert "would not run: shell" in done.out
    listed = glidepath("approvals", "what-if", "rules.toml", "s.db", "--json", folder=stored)
    assert listed.out.count('"verdict":"allow"') == 3


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[approvals]\n", "there are no rules"),
        ("[approvals]\nallow = ['shell']\n", "would allow every command"),
        ("[approvals]\nallow = ['shell(sh *)']\n", "starts other programs"),
        ("[approvals]\nalow = ['read']\n", "there is no setting"),
        ("[approvals]\ndeny = 'read'\n", "a list of names"),
    ],
)
def test_a_file_whose_rules_make_no_sense_is_refused_with_the_reason(stored, text, what):
    (stored / "rules.toml").write_text(text)
    done = glidepath("approvals", "what-if", "rules.toml", "s.db", folder=stored)
    assert done.code == 2
    assert what in done.err


def test_what_if_without_such_a_file_says_so(stored):
    done = glidepath("approvals", "what-if", "nowhere.toml", "s.db", folder=stored)
    assert done.code == 2
    assert "there is no file 'nowhere.toml'" in done.err


def test_in_a_folder_that_nobody_trusts_a_file_may_forbid_and_never_allow(tmp_path):
    (tmp_path / "glidepath.toml").write_text(
        '[approvals]\nallow = ["write(**)"]\nreviewer = "openai:gpt-5"\ndeny = ["shell(rm *)"]\n'
    )
    shown = glidepath("config", "show", "--origin", folder=tmp_path)
    ignored = [line for line in shown.out.splitlines() if "approvals.allow" in line or "approvals.reviewer" in line]
    kept = [line for line in shown.out.splitlines() if "approvals.deny" in line]
    assert "cannot set approvals.allow and approvals.reviewer" in shown.err
    assert all("ignored" in line or "not trusted" in line for line in ignored), ignored
    assert "shell(rm *)" in kept[0]
