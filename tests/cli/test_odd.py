"""Odd words and odd places: what a command says when an address, a name or the output is none."""

import asyncio
import io
import subprocess
import sys

import pytest

from glidepath.apps.cli import CliContext
from glidepath.cli import main
from glidepath.sessions import SqliteStore

from .shell_user import environment, glidepath


@pytest.mark.parametrize("address", ["postgresql://u:hunter22@h:port/db", "postgresql://u:hunter22@[::1/db"])
@pytest.mark.parametrize("argv", [("runs", "list"), ("run", "hi", "--model", "openai-compatible:m@http://h/v1")])
def test_an_address_of_a_store_that_cannot_be_read_is_refused_and_not_shown(tmp_path, argv, address):
    ran = glidepath(*argv, "--store", address, folder=tmp_path)
    assert ran.code in (1, 2), ran
    assert "address of the session store" in ran.err
    assert "hunter22" not in ran.out + ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("host", ["h:port", "[::1", "h:99999", "a:1,b:x"])
def test_an_address_of_a_fleet_that_cannot_be_read_is_refused_and_not_shown(tmp_path, host):
    ran = glidepath("submit", "agent", "hi", "--store", f"postgresql://u:hunter22@{host}/db", folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "address of the fleet's database" in ran.err
    assert "hunter22" not in ran.err


class Glass(io.StringIO):
    """A standard output that somebody looks at."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("out", "steered"), [(Glass(), False), (io.StringIO(), True)])
def test_a_reply_steers_no_terminal_however_plain_it_is(tmp_path, out, steered):
    argv = ["run", "hi", "--model", "python:flights:steers", "--store", "none"]
    world = CliContext(environ={"TERM": "dumb"}, stdin=io.StringIO(), stdout=out, stderr=io.StringIO(), folder=tmp_path)
    assert main(argv, world) == 0
    assert ("\x1b" in out.getvalue()) is steered


@pytest.mark.parametrize("address", ["mysql://u:hunter22@h/db", "sqlite:///runs.db"])
def test_a_store_of_a_kind_that_there_is_not_is_no_file(tmp_path, address):
    ran = glidepath("run", "hi", "--model", "openai-compatible:m@http://h/v1", "--store", address, folder=tmp_path)
    assert ran.code == 2, ran
    assert "postgresql://" in ran.err
    assert "hunter22" not in ran.out + ran.err
    assert list(tmp_path.iterdir()) == []


class Full:
    """A standard output on a full disk, without a buffer."""

    def write(self, _text):
        raise OSError(28, "No space left on device")

    def flush(self):
        raise OSError(28, "No space left on device")

    def isatty(self):
        return False


def test_a_full_disk_is_said_in_words_whoever_writes(tmp_path):
    async def begin():
        store = SqliteStore(tmp_path / "runs.db")
        await store.claim("session_1", "me")
        await store.close()

    asyncio.run(begin())
    err = io.StringIO()
    argv = ["runs", "list", "--store", "runs.db"]
    world = CliContext(arguments=argv, environ={}, stdin=io.StringIO(), stdout=Full(), stderr=err, folder=tmp_path)
    assert main(argv, world) == 1
    assert err.getvalue() == "glidepath: error: the output cannot be written: No space left on device\n"


def test_a_command_that_is_nearly_right_is_said(tmp_path):
    ran = glidepath("rnu", "hi", folder=tmp_path)
    assert ran.code == 2
    assert "there is no command rnu; did you mean run?" in ran.err


def test_help_is_a_word_that_helps(tmp_path):
    ran = glidepath("help", folder=tmp_path)
    assert ran.code == 0
    assert "give an agent one task" in ran.out


@pytest.mark.parametrize("words", [("run",), ("sessions",), ("sessions", "tag"), ("run", "--max-turns")], ids=" ".join)
def test_help_for_a_command_is_that_commands_help(tmp_path, words):
    ran = glidepath("help", *words, folder=tmp_path)
    named = " ".join(word for word in words if not word.startswith("-"))
    assert (ran.code, ran.out.startswith(f"usage: glidepath {named} [-h]")) == (0, True), ran


def test_help_for_a_wrong_word_suggests_the_right_one(tmp_path):
    ran = glidepath("help", "rnu", folder=tmp_path)
    assert (ran.code, "there is no command rnu; did you mean run?" in ran.err) == (2, True), ran


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("what is 2+2?",),
            "there is no command 'what is 2+2?'; to give an agent a task: glidepath run 'what is 2+2?'",
        ),
        (("-p", "hi"), "-p belongs to a command: glidepath run -p hi"),
        (("-m", "openai:gpt-5", "say hi"), "-m belongs to a command: glidepath run -m openai:gpt-5 'say hi'"),
        (("--model", "x:y", "chat"), "--model belongs behind the command: glidepath chat --model x:y"),
        (("-c",), "-c belongs to a command: glidepath chat -c"),
        (("--resume", "abc"), "--resume belongs to a command: glidepath chat --resume abc"),
        (("history",), "there is no command history; did you mean sessions list?"),
        (("search", "x"), "there is no command search; did you mean sessions search?"),
        (("--zzz",), "there is no flag --zzz"),
    ],
)
def test_a_task_or_a_flag_where_the_command_goes_gets_the_whole_line(tmp_path, words, said):
    ran = glidepath(*words, folder=tmp_path)
    assert (ran.code, ran.out, said in ran.err) == (2, "", True), ran


@pytest.mark.process
def test_the_package_is_the_command(tmp_path):
    argv = [sys.executable, "-m", "glidepath", "--version"]
    ran = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split()[0]) == (0, "glidepath")


@pytest.mark.parametrize("command", [("serve",), ("sim",), ("mcp", "serve")], ids=["serve", "sim", "mcp"])
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("crew_here", "expected MODULE:NAME, such as crew_here:agent"),
        ("python:crew_here", "expected MODULE:NAME, such as crew_here:agent"),
        ("no_such.crew:agent", "there is no module 'no_such' in this folder or among the installed packages"),
        ("crew_here:agnt", "module 'crew_here' has no 'agnt'; did you mean crew_here:agent?"),
        ("crew_here:zebra", "module 'crew_here' has no 'zebra'"),
        ("crew_broken:agent", "ZeroDivisionError"),
    ],
    ids=["no name", "prefix and no name", "no module", "mistyped", "no such name", "broken module"],
)
def test_an_agent_that_cannot_be_found_is_explained_in_the_words_of_its_flag(tmp_path, monkeypatch, command, said, why):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "crew_here.py").write_text(
        "from glidepath import Agent\nfrom glidepath.testing import ScriptedModel\nagent = Agent(model=ScriptedModel())"
    )
    (tmp_path / "crew_broken.py").write_text("1 / 0")
    ran = glidepath(*command, "--agent", said, folder=tmp_path)
    assert ran.code == 2
    assert f"--agent {said}: " in ran.err
    assert why in ran.err
