"""On the command line: what the tools may write, which HOME a command has, and that no sandbox is told."""

import pytest

from glidepath.workspace import toolset

from .shell_user import glidepath

MODEL = """
from glidepath.testing import ScriptedModel, call, calls, say

def writer():
    both = calls(call("write", path=".envrc", content="x"), call("write", path="a.txt", content="x"))
    return ScriptedModel([both, say("Done.")])

def homesick():
    return ScriptedModel([call("shell", command="echo $HOME > home"), say("Done.")])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "protected_models.py").write_text(MODEL)
    yield tmp_path
    import sys

    sys.modules.pop("protected_models", None)


def run(folder, model, *flags):
    return glidepath(
        "run", "go", "--model", f"python:protected_models:{model}", "--store", "none", *flags, folder=folder
    )


def test_a_protected_file_is_written_only_when_a_person_allows_it(folder):
    assert run(folder, "writer", "--tools", "write").code == 0
    assert (folder / "a.txt").exists()
    assert not (folder / ".envrc").exists()
    assert run(folder, "writer", "--tools", "write", "--allow-protected", ".envrc,.vscode").code == 0
    assert (folder / ".envrc").read_text() == "x"


def test_a_path_that_cannot_be_allowed_is_refused(folder):
    ran = run(folder, "writer", "--tools", "write", "--allow-protected", "../x")
    assert ran.code == 2
    assert "allow_protected: '../x' is not a path inside the workspace" in ran.err


@pytest.mark.process
def test_home_can_be_named(folder):
    (folder / "me").mkdir()
    flags = ("--tools", "shell", "--sandbox", "off", "--approve", "all")
    run(folder, "homesick", *flags)
    assert "glidepath-home-" in (folder / "home").read_text()
    run(folder, "homesick", *flags, "--shell-home", "me")
    assert (folder / "home").read_text() == f"{folder / 'me'}\n"
    ran = run(folder, "homesick", *flags, "--shell-home", "nowhere")
    assert ran.code == 2
    assert "shell_home: " in ran.err


@pytest.mark.process
def test_that_there_is_no_sandbox_is_told_once_and_only_with_a_shell(folder, monkeypatch):
    told = "no sandbox: shell commands run as you (bubblewrap is not installed)\n"
    monkeypatch.setattr("glidepath.workspace.sandbox.shutil.which", lambda *_, **__: None)
    assert run(folder, "homesick", "--tools", "shell", "--approve", "deny").err.count(told) == 1
    assert told not in run(folder, "writer", "--tools", "write").err


CREW = """\
model = "python:{module}:model"
[[members]]
name = "a"
tools = ["{tool}"]
[[steps]]
id = "s"
description = "d"
"""


def plant(folder, name):
    (folder / "planters.py").write_text(
        "from glidepath.testing import ScriptedModel, call, say\n"
        f"def model(): return ScriptedModel([call('write', path={name!r}, content='planted'), say('Done.')])\n"
    )
    import sys

    sys.modules.pop("planters", None)


@pytest.mark.parametrize("name", ["mine.toml", "runs.db", "runs.db-wal"])
def test_the_configuration_that_a_person_named_and_the_store_are_protected(folder, name):
    plant(folder, name)
    (folder / "mine.toml").write_text('tools = ["write"]\n')
    glidepath(
        "run", "go", "--model", "python:planters:model", "--config", "mine.toml", "--store", "runs.db", folder=folder
    )
    assert not (folder / name).exists() or (folder / name).read_bytes() != b"planted"


def test_the_file_of_a_team_is_protected(folder):
    plant(folder, "crew.toml")
    text = CREW.format(module="planters", tool="write")
    (folder / "crew.toml").write_text(text)
    ran = glidepath("team", "run", "crew.toml", "go", folder=folder)
    assert ran.code == 0
    assert (folder / "crew.toml").read_text() == text


def test_a_team_runs_no_shell_unasked_without_a_sandbox(folder, monkeypatch):

    monkeypatch.setattr(toolset, "try_sandbox", lambda: (None, "it is not installed"))
    (folder / "shells.py").write_text(
        "from glidepath.testing import ScriptedModel, call, say\n"
        "def model(): return ScriptedModel([call('shell', command='touch RAN'), say('Done.')])\n"
    )
    (folder / "crew.toml").write_text(CREW.format(module="shells", tool="shell"))
    ran = glidepath("team", "run", "crew.toml", "go", "--approve", "all", folder=folder)
    assert not (folder / "RAN").exists()
    assert ran.code == 2
    assert "a shell without approval needs one" in ran.err


@pytest.mark.parametrize("workspace", [".git/hooks", ".git", ".vscode", "sub/.husky"])
def test_a_found_file_does_not_move_the_workspace_into_a_protected_folder(folder, workspace):
    plant(folder, "pre-commit")
    (folder / workspace).mkdir(parents=True)
    (folder / "glidepath.toml").write_text(f'workspace = "{workspace}"\n')
    ran = glidepath(
        "run", "go", "--model", "python:planters:model", "--tools", "write", "--store", "none", folder=folder
    )
    assert "cannot set workspace" in ran.err
    assert not (folder / workspace / "pre-commit").exists()
