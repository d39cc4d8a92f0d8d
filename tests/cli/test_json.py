"""Every command that prints a table prints the same for programs with `--json`."""

import argparse
import asyncio
import json

import pytest
from tests.skills.conftest import write_skill

from glidepath import Agent, Limits
from glidepath.apps.cli import make_parser
from glidepath.apps.cli.commands import COMMANDS
from glidepath.evals import Case, Dataset, evaluate
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, say

from .shell_user import glidepath

# The command, and a field that every object it prints has.
TABLES = [
    (("runs", "list"), "session_id"),
    (("sessions", "list"), "session_id"),
    (("sessions", "search", "go"), "session_id"),
    (("wallets", "list"), "max_tokens"),
    (("wallets", "show", "team"), "bills"),
    (("keys", "list"), "role"),
    (("models",), "provider"),
    (("models", "list"), "provider"),
    (("mcp", "list", "--mcp-config", "servers.json"), "name"),
    (("skills", "list"), "tokens_when_read"),
    (("trust", "list"), "state"),
    (("config", "show"), "limits.max_iterations"),
    (("whatif", "runs.db", "--limits", "max_tokens=10"), "stopped_by"),
    (("approvals", "what-if", "rules.toml", "runs.db"), "verdict"),
    (("sessions", "verify"), "is_whole"),
    (("sim", "--list"), "family"),
    (("sim", "tune", "runs.db"), "proposed"),
    (("eval", "list"), "pass_rate"),
    (("eval", "show", "sums"), "pass_rate"),
    (("eval", "compare", "sums", "sums"), "sentence"),
]
WHOLE = {("config", "show"), ("eval", "show", "sums"), ("eval", "compare", "sums", "sums")}  # one object, indented
IN_STORE = {"runs", "sessions", "wallets", "keys", "eval"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one of everything in it."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(home / "data"))
        folder = home / "project"
        write_skill(folder / ".agents/skills", "pdf", body="Step one.")
        (folder / "servers.json").write_text('{"mcpServers": {"time": {"command": "python3"}}}')
        (folder / "rules.toml").write_text('[approvals]\nallow = ["list"]\n')
        (folder / "glidepath.toml").write_text("[limits]\nmax_iterations = 3\n")
        ran = [
            glidepath("trust", "--yes", folder=folder),
            glidepath(
                "run", "go", "--model", "python:flights:looks", "--tools", "read", "--store", "runs.db", folder=folder
            ),
            glidepath("wallets", "set", "team", "--max-tokens", "100", "--store", "runs.db", folder=folder),
            glidepath("keys", "add", "ann", "--role", "view", "--store", "runs.db", folder=folder),
        ]
        assert [one.code for one in ran] == [0] * 4, ran
        agent = Agent(model=ScriptedModel().forever(say("2")), limits=Limits(max_iterations=2))
        sums = Dataset([Case(id="one", prompt="1+1?", expected="2")], name="sums")
        asyncio.run(evaluate(sums, agent, store=SqliteStore(folder / "runs.db"), name="sums"))
        yield folder, home


def printed(folder, words, *flags):
    store = ("--store", "runs.db") if words[0] in IN_STORE else ()
    ran = glidepath(*words, *flags, *store, folder=folder)
    assert ran.code == 0, ran
    return ran.out


@pytest.mark.parametrize(("words", "field"), TABLES, ids=[" ".join(words) for words, _ in TABLES])
def test_each_table_is_printed_for_programs(folder, monkeypatch, words, field):
    folder, home = folder
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    told = printed(folder, words, "--json")
    objects = [json.loads(text) for text in ([told] if words in WHOLE else told.splitlines())]
    assert objects, "nothing was printed, so nothing was tried"
    assert all(field in one for one in objects)
    assert printed(folder, words) != told


def test_no_command_that_lists_is_without_it():
    """A command with an action `list`, or of one of these names, takes --json: also one that comes tomorrow."""
    missing = []
    for name, command in choices_of(make_parser(list(COMMANDS))).items():
        tables = {one: sub for one, sub in choices_of(command).items() if one in ("list", "status", "search")}
        if not tables and name in ("fleet", "trust", "whatif", "tune", "sim", "eval", "models"):
            tables = {"": command}
        missing += [f"{name} {one}" for one, sub in tables.items() if "--json" not in sub._option_string_actions]
    assert not missing


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trust", "--json"), "--json is for `glidepath trust list`"),
        (("trust", "revoke", "--json"), "--json is for `glidepath trust list`"),
        (("sim", "--list", "--json", "flights.json"), "--list writes no file"),
        (("eval", "list", "--json", "evaluations.json"), "it writes no file"),
    ],
    ids=["trust", "revoke", "sim", "eval"],
)
def test_json_where_it_would_have_no_effect_is_refused(tmp_path, words, said):
    ran = glidepath(*words, folder=tmp_path)
    assert (ran.code, said in ran.err) == (2, True), ran
    assert not list(tmp_path.iterdir())


def choices_of(parser):
    """The actions of a command, by name."""
    groups = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return {name: sub for group in groups for name, sub in group.choices.items()}
