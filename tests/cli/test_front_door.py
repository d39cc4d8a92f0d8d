"""What a newcomer types first: the short help, an agent of one's own, a file for every folder, keys in the keyring."""

import json
import stat
import sys
import types

import pytest

from glidepath.apps.cli.commands import COMMANDS, GROUPS

from .shell_user import glidepath
from .terminal import Terminal

APP = """
from glidepath import Agent, Limits, tool
from glidepath.testing import ScriptedModel, call, say

@tool
async def weather(city: str) -> str:
    "The weather in a city."
    return "21 degrees"

@tool(requires_approval=True)
async def book(city: str) -> str:
    "Book a flight."
    return "booked"

def answer(request):
    if request.tools and request.messages[-1].role == "user":
        return call("book" if "book" in request.messages[-1].text else "weather", city="Lisbon")
    return say(f"It is {request.messages[-1].text}.")

agent = Agent(
    model=ScriptedModel(name="mine").forever(answer), tools=[weather, book], limits=Limits(max_iterations=5, timeout=60)
)
not_an_agent = 3
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "app", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("app", None)


def home(tmp_path):
    return {"HOME": str(tmp_path / "home")}


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [("--help",), ("-h",), ("help",)])
def test_the_short_help_fits_a_small_terminal(argv, tmp_path):
    ran = glidepath(*argv, folder=tmp_path)
    assert ran.code == 0
    rows = ran.out.splitlines()
    assert len(rows) <= 24
    assert max(map(len, rows)) <= 80
    shown = [row.split()[0] for row in rows if row.startswith("  ")]
    assert len(shown) <= 16
    assert set(shown) <= set(COMMANDS)
    assert sum(row.endswith(":") for row in rows) == 3 == len(GROUPS)


def test_the_short_help_breaks_no_word_in_a_narrow_terminal(tmp_path, monkeypatch):
    wide = glidepath("--help", folder=tmp_path).out
    monkeypatch.setenv("COLUMNS", "60")
    narrow = glidepath("--help", folder=tmp_path).out
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.split() == wide.split()


def test_nothing_typed_shows_the_short_help_as_an_error(tmp_path):
    ran = glidepath(folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "usage: glidepath COMMAND" in ran.err


def test_help_all_shows_every_command_and_the_exit_codes(tmp_path):
    ran = glidepath("--help-all", folder=tmp_path)
    assert ran.code == 0
    assert all(f"\n    {name} " in ran.out for name in COMMANDS)
    assert "3 ended by a limit" in ran.out


@pytest.mark.parametrize(("name", "said"), [("whatif", "tell it what to try"), ("tune", "none.db")])
def test_what_reads_old_runs_belongs_to_sim(name, said, tmp_path):
    for argv in (("sim", name), (name,)):
        ran = glidepath(*argv, "--store", "none.db", folder=tmp_path)
        assert ran.code == 2
        assert said in ran.err


# --- an agent of one's own --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--agent", "-a"])
def test_run_takes_the_agent_that_you_wrote(flag, app):
    ran = glidepath("run", flag, "app:agent", "hello", folder=app)
    assert (ran.code, ran.out.strip()) == (0, "It is 21 degrees."), ran


def test_a_flag_changes_the_agent_and_the_rest_stays_as_written(app):
    ran = glidepath("run", "-a", "app:agent", "--max-turns", "1", "--output-format", "json", "hello", folder=app)
    assert ran.code == 3
    assert json.loads(ran.out)["state"] == "max_steps"


def test_a_file_of_the_folder_does_not_change_the_agent_and_nobody_has_to_trust_it(app):
    (app / "glidepath.toml").write_text('model = "openai:gpt-5"\ntools = []\n[limits]\nmax_iterations = 1\n')
    ran = glidepath("run", "-a", "app:agent", "hello", folder=app)
    assert (ran.code, ran.err) == (0, ""), ran


def test_a_call_that_needs_approval_is_asked_about_and_yes_says_do_not_ask(app):
    assert glidepath("run", "-a", "app:agent", "--approve", "deny", "book", folder=app).out != "It is booked.\n"
    assert glidepath("run", "-a", "app:agent", "--yes", "book", folder=app).out.strip() == "It is booked."


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["-a", "app:agent", "--tools", "read"], "--tools: app:agent has its own tools"),
        (["-a", "app:agnet"], "did you mean app:agent?"),
        (["-a", "app"], "expected MODULE:NAME, such as app:agent"),
        (["-a", "app.py"], "expected MODULE:NAME, such as app:agent"),
        (["-a", "app.py:agent"], "expected MODULE:NAME, such as app:agent"),
        (["-a", "./app.py:agent"], "expected MODULE:NAME, such as app:agent"),
        (["-a", "elsewhere.py"], "such as my_package.agents:helper"),
        (["-a", "nowhere:agent"], "there is no module 'nowhere'"),
        (["-a", "app:not_an_agent"], "expected an Agent, got int"),
        (["-a", "app:agent", "--max-turns", "0"], "max"),
    ],
)
def test_a_wrong_agent_gets_the_right_sentence(argv, said, app):
    ran = glidepath("run", *argv, "hello", folder=app)
    assert ran.code == 2
    assert said in ran.err


def test_chat_talks_with_the_agent_that_you_wrote_and_names_it_in_the_line_to_come_back(app):
    with Terminal(100, app, "chat", "--agent", "app:agent", "--store", "kept.db", height=30) as terminal:
        terminal.until("mine")
        terminal.type("hello", "Enter")
        terminal.until("It is 21 degrees.")
        terminal.type("/quit", "Enter")
        assert terminal.code() == 0
        assert "--agent app:agent" in " ".join(terminal.screen().split())


# --- one file for every folder ----------------------------------------------------------------------------------------


def test_init_writes_a_file_that_config_check_can_read_and_never_overwrites_one(tmp_path):
    ran = glidepath("init", "--max-budget-usd", "0.5", folder=tmp_path, environ={"ANTHROPIC_API_KEY": "k"})
    assert ran.code == 0
    text = (tmp_path / "glidepath.toml").read_text()
    assert 'model = "anthropic:' in text
    assert "glidepath trust" in ran.err
    shown = json.loads(glidepath("config", "show", "--json", folder=tmp_path).out)
    assert shown["limits.max_iterations"] == 30
    again = glidepath("init", folder=tmp_path)
    assert again.code == 2
    assert "is there already" in again.err
    assert (tmp_path / "glidepath.toml").read_text() == text


def test_init_without_any_key_names_no_model_and_refuses_what_is_no_amount(tmp_path):
    assert glidepath("init", "--max-budget-usd", "lots", folder=tmp_path).code == 2
    assert not (tmp_path / "glidepath.toml").exists()
    ran = glidepath("init", folder=tmp_path)
    assert ran.code == 0
    assert "\nmodel" not in (tmp_path / "glidepath.toml").read_text()
    assert "glidepath models pull" in ran.err
    assert "Try it: glidepath run" not in ran.err, "that would be an error: no model is named"


def test_your_own_file_holds_everywhere_below_the_file_of_a_folder(tmp_path):
    mine = home(tmp_path)
    assert glidepath("init", "--user", "--model", "local:smollm2", folder=tmp_path, environ=mine).code == 0
    folder = tmp_path / "work"
    folder.mkdir()
    ran = glidepath("config", "show", "--origin", folder=folder, environ=mine)
    assert "local:smollm2" in ran.out
    assert "your user.toml" in ran.out
    (folder / "glidepath.toml").write_text("[limits]\nmax_iterations = 7\n")
    shown = json.loads(glidepath("config", "show", "--json", folder=folder, environ=mine).out)
    assert (shown["limits.max_iterations"], shown["model"]) == (7, "local:smollm2")
    bare = json.loads(glidepath("config", "show", "--json", "--no-config", folder=folder, environ=mine).out)
    assert "model" not in bare


def test_a_file_that_lies_in_a_folder_cannot_widen_your_own_limits(tmp_path):
    mine = home(tmp_path)
    glidepath("init", "--user", folder=tmp_path, environ=mine)
    (tmp_path / "glidepath.toml").write_text('[limits]\nmax_iterations = 31\nmax_tokens = "100k"\n')
    ran = glidepath("config", "show", "--json", folder=tmp_path, environ=mine)
    shown = json.loads(ran.out)
    assert (shown["limits.max_iterations"], shown["limits.max_tokens"]) == (30, 100_000)
    assert "not trusted" in ran.err


def test_a_mistake_in_your_own_file_is_named_with_its_file(tmp_path):
    place = tmp_path / "home" / ".config" / "glidepath"
    place.mkdir(parents=True)
    (place / "user.toml").write_text("modle = 'x'\n")
    ran = glidepath("config", "show", folder=tmp_path, environ=home(tmp_path))
    assert ran.code == 2
    assert "user.toml: there is no setting 'modle'; did you mean 'model'?" in ran.err


# --- keys in the keyring ----------------------------------------------------------------------------------------------


@pytest.fixture
def keyring(monkeypatch):
    """A keyring that keeps in memory, with the three functions of the real one."""
    kept = {}
    module = types.ModuleType("keyring")
    module.__spec__ = types.SimpleNamespace(name="keyring")
    module.set_password = lambda service, name, key: kept.__setitem__((service, name), key)
    module.get_password = lambda service, name: kept.get((service, name))
    module.delete_password = lambda service, name: kept.pop((service, name))
    monkeypatch.setitem(sys.modules, "keyring", module)
    return kept


def test_a_key_is_kept_used_listed_and_forgotten(keyring, tmp_path):
    ran = glidepath("models", "key", "anthropic", folder=tmp_path, stdin="sk-secret\n")
    assert ran.code == 0
    assert keyring == {("glidepath", "ANTHROPIC_API_KEY"): "sk-secret"}
    assert "sk-secret" not in ran.out + ran.err
    rows = [json.loads(row) for row in glidepath("models", "--json", folder=tmp_path).out.splitlines()]
    assert {row["provider"]: row["state"] for row in rows}["anthropic"] == "ready"
    ran = glidepath("config", "check", "--model", "anthropic:claude-sonnet-4-5", folder=tmp_path)
    assert ran.code == 0, ran
    assert glidepath("models", "key", "anthropic", "--remove", folder=tmp_path).code == 0
    assert not keyring


@pytest.mark.parametrize(
    ("argv", "stdin", "said"),
    [
        (["nobody"], "k", "there is no provider 'nobody'"),
        (["antropic"], "k", "did you mean anthropic?"),
        (["local"], "k", "local needs no key"),
        (["openai"], "", "no key was given"),
        (["openai", "--remove"], "", "the keyring refused"),
    ],
)
def test_a_wrong_key_command_gets_the_right_sentence(argv, stdin, said, keyring, tmp_path):
    ran = glidepath("models", "key", *argv, folder=tmp_path, stdin=stdin)
    assert ran.code == 2
    assert said in ran.err


def test_without_a_keyring_the_variable_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "keyring", None)
    ran = glidepath("models", "key", "openai", folder=tmp_path, stdin="k\n")
    assert ran.code == 2
    assert "set OPENAI_API_KEY" in ran.err


def test_models_list_is_json_when_asked(tmp_path):
    rows = [json.loads(row) for row in glidepath("models", "list", "--json", folder=tmp_path).out.splitlines()]
    assert {"openai", "anthropic", "local"} <= {row["provider"] for row in rows}


# --- chat -------------------------------------------------------------------------------------------------------------


def test_a_slash_opens_the_list_of_commands_and_rewind_takes_a_message_back(app):
    with Terminal(100, app, "chat", "--agent", "app:agent", "--store", "kept.db", height=30) as terminal:
        terminal.until("mine")
        terminal.type("first", "Enter")
        terminal.until("ready")
        terminal.type("second", "Enter")
        terminal.until("> second")
        terminal.until("ready")
        terminal.type("/limits", "Enter")
        terminal.until("5 for each message (the agent's own)")
        terminal.type("/re")
        terminal.until("/rewind")
        assert "/resume" in terminal.screen()
        terminal.type("wind", "Enter")
        terminal.until("1 message of yours taken back")
        terminal.type(" again", "Enter")
        terminal.until("> second again")
        terminal.type("/rewind 9", "Enter")
        terminal.until("There are 2 messages of yours to take back, not 9.")
        terminal.type("/rewind x", "Enter")
        terminal.until("/rewind HOW MANY")


def test_in_plan_mode_only_tools_that_read_run(tmp_path):
    (tmp_path / "note.txt").write_text("hello")
    argv = ["chat", "--model", "python:flights:writer", "--tools", "read,write", "--edits", "apply"]
    with Terminal(100, tmp_path, *argv, height=30) as terminal:
        terminal.until("writer")
        terminal.type("/plan", "Enter")
        terminal.until("Planning: only tools that read run")
        terminal.type("write it", "Enter")
        terminal.until("plan mode: only tools that read", "I was told: write it", "Plan first")
        assert not (tmp_path / "made.txt").exists()
        terminal.type("/plan off", "Enter")
        terminal.until("Planning is over")
        terminal.type("now write it", "Enter")
        terminal.until("I was told: now write it", "ready")
        assert (tmp_path / "made.txt").exists()
        terminal.type("/undo", "Enter")
        terminal.until("The model is told with your next message.")
        terminal.type("go on", "Enter")
        terminal.until("I have undone your last changes")


def test_a_conversation_keeps_its_tools_and_its_first_words(tmp_path):
    first = ("run", "--store", "kept.db", "--model", "python:flights:echoes", "--tools", "read", "--name", "one")
    assert glidepath(*first, "the first words", folder=tmp_path).code == 0
    ran = glidepath(
        "run", "--store", "kept.db", "-r", "one", "--model", "python:flights:echoes", "more", folder=tmp_path
    )
    assert ran.code == 0, ran
    assert "with the tools of this conversation: read" in ran.err
    rows = [
        json.loads(row)
        for row in glidepath("runs", "list", "--json", "--store", "kept.db", folder=tmp_path).out.splitlines()
    ]
    assert "the first words" in json.dumps(rows)
    assert '"more"' not in json.dumps(rows)


def test_the_file_that_init_writes_is_readable_by_others_but_a_link_is_not_followed(tmp_path):
    (tmp_path / "glidepath.toml").symlink_to(tmp_path / "elsewhere")
    assert glidepath("init", folder=tmp_path).code == 2
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "glidepath.toml").unlink()
    glidepath("init", folder=tmp_path)
    assert stat.S_IMODE((tmp_path / "glidepath.toml").stat().st_mode) & 0o022 == 0
