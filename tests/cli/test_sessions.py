"""`glidepath sessions` and `glidepath fork`: find, label, fork, carry and delete sessions in a shell."""

import asyncio
import json

import pytest

from glidepath import Agent, Limits, tool
from glidepath.apps.cli import CliContext
from glidepath.apps.cli.deck_server import _choose_store
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call, say

from .shell_user import glidepath
from .terminal import Terminal


@tool
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


async def fill(folder, *names):
    store = SqliteStore(folder / "s.db")
    for name in names:
        model = ScriptedModel([call("pay", to="ann"), call("pay", to="bob"), say(f"end of {name}")])
        agent = Agent(model=model, tools=[pay], store=store, limits=Limits(max_iterations=9), agent_name=f"a-{name}")
        await agent.run(f"Task of {name}", session=name)
    await store.close()


@pytest.fixture
def shell(tmp_path):
    asyncio.run(fill(tmp_path, "one", "two", "three"))

    def run(*words, store="s.db"):
        return glidepath(*words, "--store", store, folder=tmp_path)

    return run


def ids(ran):
    return [line.split()[0] for line in ran.out.splitlines()[1:]]


def test_sessions_are_listed_by_page_and_searched(shell):
    page = shell("sessions", "list", "-n", "2")
    assert ids(page) == ["three", "two"]
    cursor = page.err.partition("--cursor '")[2].partition("'")[0]
    assert ids(shell("sessions", "list", "--limit", "2", "--cursor", cursor)) == ["one"]
    assert ids(shell("sessions", "search", "TASK OF t")) == ["three", "two"]
    assert ids(shell("sessions", "list", "--agent", "a-one")) == ["one"]
    assert ids(shell("sessions", "list", "--outcome", "DONE", "--newer-than", "1h")) == ["three", "two", "one"]
    nothing = shell("sessions", "search", "zebra")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no session matches\n")
    (line,) = shell("sessions", "search", "one", "--json").out.splitlines()
    told = json.loads(line)
    assert (told["session_id"], told["outcome"], told["turns"], told["tags"]) == ("one", "done", 3, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "--outcome", "dome"), "--outcome: 'dome' is not one of done, wrapped_up"),
        (("search", "x", "--state", "complete"), "--state: 'complete' is not one of idle, running"),
        (("delete", "--older-than", "0s", "--state", "al"), "--state: 'al' is not one of"),
    ],
    ids=["outcome", "state", "state of what is deleted"],
)
def test_a_mistyped_word_is_not_an_empty_list(shell, words, said):
    ran = shell("sessions", *words)
    assert (ran.code, ran.out, said in ran.err) == (2, "", True), ran


def test_a_session_that_is_named_like_a_team_is_shown_as_what_it_is(shell, tmp_path):
    asyncio.run(fill(tmp_path, "team:four"))
    for command in ("sessions", "runs"):
        ran = shell(command, "show", "team:four")
        assert ran.code == 0
        assert "end of team:four" in ran.out
    assert "there is no session 'team:five'" in shell("sessions", "show", "team:five").err


def test_a_session_gets_a_title_and_tags(shell):
    assert shell("sessions", "tag", "one", "--add", "june", "--add", "vip", "--title", "First of all").code == 0
    assert shell("sessions", "tag", "one", "--remove", "vip").err == "one: #june\n"
    assert ids(shell("sessions", "list", "--tag", "june")) == ["one"]
    shown = shell("sessions", "show", "one").out
    assert shown.startswith("session   one\ntitle     First of all\ntags      june\nstate ")
    assert '[assistant, turn 2] calls pay(to="bob")' in shown
    for words, said in (
        (("tag", "one", "--add", "a b"), "tag 'a b' contains ' '"),
        (("tag", "one", "--add", ""), "tag must be a word"),
        (("tag", "nobody", "--add", "x"), "there is no session 'nobody'"),
        (("list", "--tag", "a,b"), "tag 'a,b' contains ','"),
        (("list", "--limit", "0"), "limit must be a whole number"),
        (("list", "--cursor", "x"), "cursor 'x' is not from an earlier page"),
        (("list", "--older-than", "soon"), "--older-than: expected a time such as 12h"),
        (("list", "--min-cost", "lots"), "--min-cost: expected an amount in dollars"),
        (("show", "nobody"), "there is no session 'nobody'"),
        (("show", "a\udcffb"), "there is no session 'a\\udcffb'"),  # a byte that is no UTF-8, on the command line
        (("export", "nobody"), "there is no session 'nobody'"),
        (("export", "one", "-o", "no/such/folder"), "--out: no/such/folder cannot be written"),
        (("import", "nothing.jsonl"), "nothing.jsonl cannot be read"),
    ):
        ran = shell("sessions", *words)
        assert (ran.code, said in ran.err) == (2, True), (words, ran)


@pytest.mark.parametrize("command", [["runs", "list"], ["sessions", "list"]])
def test_on_a_terminal_a_list_fits_and_its_short_ids_are_found(tmp_path, command):
    asyncio.run(fill(tmp_path, "session_0123456789abcdef", "mine"))
    with Terminal(80, tmp_path, *command, "--store", "s.db") as terminal:
        assert terminal.code() == 0
        head, *rows = terminal.screen().splitlines()
    assert head.startswith("SESSION   LAST ACTIVE")
    ids = [row.split()[0] for row in rows]
    assert sorted(ids) == ["01234567", "mine"]
    assert all("Task of" in row for row in rows)
    shown = glidepath("sessions", "show", "01234567", "--store", "s.db", folder=tmp_path)
    assert shown.out.startswith("session   session_0123456789abcdef\n")


def test_a_session_and_its_forks_keep_short_ids_of_their_own(tmp_path):
    session = "session_0123456789abcdef"
    asyncio.run(fill(tmp_path, session))
    fork = glidepath("fork", session, "--at", "1", "--store", "s.db", folder=tmp_path).out.strip()
    with Terminal(80, tmp_path, "sessions", "list", "--store", "s.db") as terminal:
        assert terminal.code() == 0
        ids = {row.split()[0] for row in terminal.screen().splitlines()[1:]}
    assert ids == {"01234567", fork.replace(session, "01234567")}
    for short in ids:
        shown = glidepath("sessions", "show", short, "--store", "s.db", folder=tmp_path)
        meant = fork if ".fork-" in short else session
        assert shown.out.startswith(f"session   {meant}\n"), (short, shown)
    several = glidepath("sessions", "show", "01234567.fork", "--store", "s.db", folder=tmp_path)
    assert several.out.startswith(f"session   {fork}\n")


def test_the_start_of_two_sessions_is_still_refused(tmp_path):
    asyncio.run(fill(tmp_path, "session_0123456789abcdef", "session_0123456789abcdef0"))
    shown = glidepath("sessions", "show", "01234567", "--store", "s.db", folder=tmp_path)
    assert (shown.code, "matches 2 sessions" in shown.err) == (2, True), shown


def test_a_fork_of_nothing_says_what_is_missing(shell):
    ran = shell("fork")
    assert (ran.code, "error: fork: name a session, or add --last for the last one" in ran.err) == (2, True), ran


def test_sessions_show_has_what_runs_show_has(shell):
    shown = json.loads(shell("sessions", "show", "one", "--json", "-n", "1").out)
    assert [message["role"] for message in shown["messages"]] == ["assistant"]
    assert "turn    1 |" in shell("sessions", "show", "one", "--plot").out


@pytest.mark.parametrize("words", [("fork",), ("sessions", "fork")], ids=" ".join)
def test_a_session_is_forked_at_a_turn(shell, words):
    made = shell(*words, "one", "--at", "1", "--as", "copy")
    assert (made.code, made.out) == (0, "copy\n")
    assert 'made after turn 1, and not undone: turn 2 pay(to="bob"): done' in made.err
    shown = shell("sessions", "show", "copy").out
    assert "fork      of one after turn 1" in shown
    assert "[assistant, turn 2]" not in shown
    again = shell(*words, "copy", "--at", "1")
    assert again.out.startswith("copy.fork-")
    wrong = shell(*words, "one", "--at", "7")
    assert (wrong.code, "at=7: there is no such turn in session 'one'; it has 3 turns: choose 0 to 3" in wrong.err) == (
        2,
        True,
    )
    assert "there is no session 'nobody'" in shell(*words, "nobody").err
    assert "--rewind needs --at TURN" in shell(*words, "one", "--rewind").err
    back = shell(*words, "one", "--at", "1", "--rewind")
    assert (back.code, back.out) == (0, "one\n")
    assert "one is back at turn 1; what it was is one.fork-" in back.err


def test_a_session_is_carried_to_another_store(shell, tmp_path):
    assert shell("sessions", "export", "one", "--out", "one.jsonl").code == 0
    assert shell("sessions", "import", "one.jsonl", "--as", "uno", store="t.db").code == 0
    assert ids(shell("sessions", "list", store="t.db")) == ["uno"]
    assert "imported from a file" in shell("sessions", "show", "uno", store="t.db").out
    (tmp_path / "bad.jsonl").write_bytes((tmp_path / "one.jsonl").read_bytes()[:-9])
    bad = shell("sessions", "import", "bad.jsonl", "--as", "x", store="t.db")
    assert (bad.code, "not an exported journal, or not a whole one" in bad.err) == (2, True)


def test_sessions_are_deleted_by_name_or_by_age(shell, tmp_path):
    assert shell("sessions", "delete", "one").err == "deleted 1 session\n"
    assert ids(shell("sessions", "list")) == ["three", "two"]
    assert "there is no session 'one'" in shell("sessions", "delete", "one").err
    assert "one of the two" in shell("sessions", "delete").err
    assert "one of the two" in shell("sessions", "delete", "two", "--older-than", "1d").err
    assert "--tag needs --older-than" in shell("sessions", "delete", "two", "--tag", "x").err
    shell("sessions", "tag", "two", "--add", "scratch")
    dry = shell("sessions", "delete", "--older-than", "0s", "--tag", "scratch", "--dry-run")
    assert (dry.out, dry.err) == ("two\n", "1 session would be deleted, with their children\n")
    assert shell("sessions", "delete", "--older-than", "1h").err == "deleted 0 sessions\n"
    assert shell("sessions", "delete", "--older-than", "0s", "--tag", "scratch").err == "deleted 1 session\n"
    assert shell("sessions", "delete", "--older-than", "0s", "--state", "error").err == "deleted 0 sessions\n"
    assert shell("sessions", "delete", "--older-than", "0s", "--state", "any").err == "deleted 1 session\n"


def test_what_is_said_is_redacted_before_it_is_stored(tmp_path):
    (tmp_path / "vault.py").write_text(
        "import re\ndef hide(text):\n    return re.sub('hunter2', '[hidden]', text)\n", encoding="utf-8"
    )
    flags = ("--store", "s.db", "--redact", "python:vault:hide")
    ran = glidepath("run", "my password is hunter2", "--model", "python:flights:hello", *flags, folder=tmp_path)
    assert ran.code == 0, ran
    listed = glidepath("sessions", "list", "--store", "s.db", folder=tmp_path)
    assert "my password is [hidden]" in listed.out
    assert not any(b"hunter2" in file.read_bytes() for file in tmp_path.glob("s.db*"))
    for name, said in (("vault:hide", "redact: expected python:module:function"), ("python:vault:nothing", "nothing")):
        bad = glidepath(
            "run", "x", "--model", "python:flights:hello", "--store", "s.db", "--redact", name, folder=tmp_path
        )
        assert (bad.code, said in bad.err) == (2, True), bad


def test_a_repaired_session_is_resumed_only_when_somebody_says_so(shell, tmp_path):
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "s.db")) as file, file:
        key = file.execute("SELECT key FROM sessions WHERE id = 'one'").fetchone()[0]
        changed = file.execute("UPDATE commits SET body = ? WHERE session = ? AND number = 5", (b"[]", key))
        assert changed.rowcount == 1
    file.close()
    done = shell("runs", "repair", "one")
    assert "kept 4 commits" in done.err
    assert "may have taken effect: pay" in done.err
    assert "glidepath resume --accept-repair one" in done.err
    flags = ("--model", "python:flights:hello", "--tools", "read")
    asked = shell("resume", "one", *flags)
    assert (asked.code, "--accept-repair" in asked.err) == (1, True), asked
    ended = shell("resume", "one", "--accept-repair", *flags)
    assert ended.code == 0, ended
    assert "outcome unknown, it may have taken effect" in ended.err


def test_a_session_with_a_name_is_kept_in_a_pipe_too(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    argv = ["--model", "python:flights:hello"]
    assert glidepath("run", "go", *argv, "--name", "morning", folder=tmp_path).code == 0
    assert "morning" in glidepath("sessions", "list", folder=tmp_path).out
    assert glidepath("run", "go", *argv, "--name", "none", "--store", "none", folder=tmp_path).code == 0
    assert "none" not in glidepath("sessions", "list", folder=tmp_path).out


def test_sessions_are_deleted_by_their_titles_and_by_the_start_of_their_ids_all_or_none(shell):
    shell("sessions", "tag", "one", "--title", "First of all")
    wrong = shell("sessions", "delete", "First of all", "nobody")
    assert (wrong.code, "there is no session 'nobody'" in wrong.err) == (2, True)
    several = shell("sessions", "delete", "t")
    assert (several.code, "'t' matches 2 sessions" in several.err) == (2, True)
    assert ids(shell("sessions", "list")) == ["three", "two", "one"]
    gone = shell("sessions", "delete", "First of all", "tw", "two")
    assert gone.err == "'First of all' is one\n'tw' is two\ndeleted 2 sessions\n"
    assert ids(shell("sessions", "list")) == ["three"]


@pytest.fixture
def vault(tmp_path):
    (tmp_path / "vault.py").write_text("def hide(text):\n    return text.replace('hunter2', '[hidden]')\n", "utf-8")
    return tmp_path


def kept(folder):
    return [file.name for file in folder.glob("s.db*") if b"hunter2" in file.read_bytes()]


HOOK = {"GLIDEPATH_REDACT": "python:vault:hide"}


def test_a_message_that_is_sent_is_redacted_before_it_is_stored(vault):
    asyncio.run(fill(vault, "one"))
    ran = glidepath("send", "one", "it is hunter2", "--store", "s.db", folder=vault, environ=HOOK)
    assert (ran.code, kept(vault)) == (0, []), ran
    flag = glidepath("send", "one", "it is hunter2", "--store", "s.db", "--redact", "python:vault:hide", folder=vault)
    assert (flag.code, kept(vault)) == (0, []), flag


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_the_journal_of_a_team_is_redacted_in_a_shell_too(vault, how):
    (vault / "team.toml").write_text(
        'model = "python:crews:worker"\n[[members]]\nname = "ann"\ncapabilities = ["write"]\n', "utf-8"
    )
    flags = ("--redact", "python:vault:hide") if how == "flag" else ()
    environ = None if how == "flag" else HOOK
    ran = glidepath(
        "team", "run", "team.toml", "find hunter2", "--store", "s.db", *flags, folder=vault, environ=environ
    )
    assert (kept(vault), (vault / "s.db").exists()) == ([], True), ran


def test_a_server_redacts_what_it_stores(vault):
    asyncio.run(fill(vault, "one"))  # without agents it shows what is there
    store = _choose_store({}, "s.db", CliContext(environ=HOOK, folder=vault))
    assert store.redact("hunter2") == "[hidden]"


def test_a_hook_in_a_file_that_is_not_trusted_keeps_everything_out_of_the_store(vault):
    (vault / "glidepath.toml").write_text('redact = "python:vault:hide"\n', "utf-8")
    asyncio.run(fill(vault, "one"))
    for words in (
        ("run", "it is hunter2", "--model", "python:flights:hello"),
        ("send", "one", "it is hunter2"),
        ("sessions", "tag", "one", "--title", "it is hunter2"),
    ):
        ran = glidepath(*words, "--store", "s.db", folder=vault)
        assert (ran.code, "is not trusted, so nothing is stored" in ran.err, kept(vault)) == (2, True, []), ran
    assert glidepath("sessions", "show", "one", "--store", "s.db", folder=vault).code == 0
