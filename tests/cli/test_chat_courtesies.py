"""The chat as a person meets it in the first ten minutes: questions, figures, names, and old conversations."""

import asyncio
import re
import shlex
from datetime import datetime

import pytest
from textual.events import Key, Paste

from glidepath.apps.cli import ApprovalAsked, CliContext, format_question, make_parser
from glidepath.apps.cli.approval_dialog import consult
from glidepath.apps.cli.chat.slash import estimate_next_message, rename_chat
from glidepath.apps.cli.chat_cards import ChatCard, card_of, choose_chat
from glidepath.apps.cli.file_changes import Changes
from glidepath.apps.cli.layers import gather
from glidepath.apps.cli.status import reserved_output_of, status_line
from glidepath.context import CharEstimator, make_sizer
from glidepath.errors import ConfigurationError
from glidepath.events import BudgetReserved, BudgetSettled, StreamChunk
from glidepath.messages import ToolCall, UserMessage
from glidepath.outcome import PendingCall
from glidepath.run import approve
from glidepath.tools import tool
from glidepath.workspace import Workspace, workspace_tools

from .shell_user import glidepath
from .test_chat import allow_always, play, say, shown, talk, users
from .test_chat_people import SAVED, settle

# --- questions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "fate"),
    [
        ("old line", "+ new"),
        ("gone", "It will fail: the old text is not in the file."),
        ("twice", "It will fail: the old text is in the file 2 times."),
    ],
)
def test_an_edit_is_in_the_workspace_whether_or_not_it_can_succeed(tmp_path, old, fate):
    (tmp_path / "notes.txt").write_text("old line\ntwice twice\n")
    space = Workspace(tmp_path)
    call = ToolCall(id="1", name="edit", arguments={"path": "notes.txt", "old": old, "new": "new"})
    planned = Changes(space).plan_change(call.name, call.arguments, workspace_tools(space, ["edit"]))
    rows = format_question(ApprovalAsked(name="1", pending=PendingCall(call=call), change=planned), 80)
    assert rows[0] == "The agent wants to call edit (in the workspace):"
    assert fate in "\n".join(rows)


def test_a_tool_of_your_own_called_edit_is_not_taken_for_the_one_of_the_workspace(tmp_path):
    @tool
    def edit(path: str, old: str, new: str) -> str:
        """Edit anything."""
        return path + old + new

    (tmp_path / "a").write_text("x")
    assert Changes(Workspace(tmp_path)).plan_change("edit", {"path": "a", "old": "x", "new": "y"}, [edit]) is None


def test_on_a_narrow_screen_the_agent_is_still_the_agent():
    one = ApprovalAsked(
        name="1", pending=PendingCall(call=ToolCall(id="1", name="shell", arguments={})), sandboxed=True
    )
    rows = format_question(one, 40)
    assert rows[0] == "The agent wants to call shell"
    assert " ".join(rows[1:-1]) == "(sandboxed: no network, writes only in the workspace):"
    assert max(map(len, rows)) <= 40


def test_keys_at_a_question(tmp_path):
    """Capital letters answer; a stray key says what to do about it; a command there is a command."""

    async def script(app, pilot):
        prompt, asking = app.query_one("#prompt"), lambda app: app._asked is not None and prompt.single
        await say(app, pilot, "change both", asking)
        assert str(prompt.placeholder) == "y or a and Enter; or press n, e or r"
        await pilot.press("q")
        await settle(pilot, lambda: "empty the line to press n" in str(app.query_one("#status").render()))
        await pilot.press("backspace")
        await settle(pilot, lambda: "your decision" in str(app.query_one("#status").render()))
        await say(app, pilot, "/undo", lambda app: "still waits for your answer" in shown(app))
        assert "A turn is running: Esc interrupts it." in shown(app)
        assert app._asked is not None
        await pilot.press("Y", "enter")
        await settle(pilot, lambda: (tmp_path / "new.txt").exists() and asking(app))
        await pilot.press("N")
        await settle(pilot, lambda: not app.talk.busy)
        assert str(prompt.placeholder) == "Message, or /help"
        assert (tmp_path / "notes.txt").read_text() == "old line\n"

    (tmp_path / "notes.txt").write_text("old line\n")
    play(tmp_path, script, "edits", "--tools", "write,edit")


def test_outside_the_chat_a_slash_command_is_not_a_reason_for_refusing():
    said = iter(["/undo", "y"])
    rows = []

    async def ask(shown, *_, **__):
        rows.extend(shown)
        return next(said)

    one = ApprovalAsked(name="1", pending=PendingCall(call=ToolCall(id="1", name="shell", arguments={})))
    assert asyncio.run(consult(one, (80, 24), ask)) == approve()
    assert rows[-1] == "/undo is a command of the chat, not an answer."


# --- figures --------------------------------------------------------------------------------------------------------


async def ignore(*_):
    return {}


def test_context_and_status_count_what_the_next_message_really_sends(tmp_path):
    """The system prompt and the tools are in it; after a turn it is what the model itself has counted."""
    here = talk(tmp_path, "echoes", "--system-prompt", "Be brief. " * 20)
    booked, used = [], []

    async def hear(event):
        if isinstance(event, BudgetReserved):
            booked.append(event.tokens - reserved_output_of(here.agent.config))
        elif isinstance(event, BudgetSettled):
            used.append(event.usage)

    async def both():
        before = sum(estimate_next_message(here).values())
        await here.run_turn("one", hear, ignore)
        assert booked == [before + make_sizer(CharEstimator())(UserMessage("one"))]
        after = sum(estimate_next_message(here).values())
        assert abs(after - used[0].total) <= 3  # the parts are rounded
        await here.run_turn("two", hear, ignore)
        assert 0 <= used[1].input - after < 12

    asyncio.run(both())
    total = sum(estimate_next_message(here).values())
    assert f"Your next message sends about {total} tokens, and what you type:" in here.answer_command("/context")
    assert "the system prompt" in here.answer_command("/context")
    assert f"your next message sends about {total} tokens" in here.answer_command("/status")


def test_the_status_line_shows_an_estimate_while_a_reply_streams(tmp_path):
    here = talk(tmp_path, "echoes")
    before, lines = sum(estimate_next_message(here).values()), []

    async def hear(event):
        lines.append((type(event).__name__, status_line(here.status, 80)))

    asyncio.run(here.run_turn("x" * 400, hear, ignore))
    chunks = [line for name, line in lines if name == "StreamChunk"]
    assert f"| ~{before + make_sizer(CharEstimator())(UserMessage('x' * 400)) + 103} tokens |" in chunks[-1]
    assert "~" not in lines[-1][1]


# --- names and old conversations ------------------------------------------------------------------------------------


def kept(tmp_path, *words, model="echoes", **flags):
    here = talk(tmp_path, model, *SAVED)
    for word in words:
        asyncio.run(here.run_turn(word, ignore, ignore))
    return here


def test_the_hint_of_a_name_repeats_what_is_needed_and_works_as_printed(tmp_path):
    here = kept(tmp_path, "hello")
    said = asyncio.run(rename_chat(here, "my 'first' talk"))
    line = said.partition("To come back: ")[2]
    assert shlex.split(line)[:4] == ["glidepath", "chat", "--resume", "my 'first' talk"]
    assert "--model python:flights:echoes" in line
    assert "--store sqlite:kept.db" in line
    options = make_parser(["chat"]).parse_args(shlex.split(line)[1:])
    world = CliContext(environ={}, folder=tmp_path)
    assert choose_chat(options, gather(options, world), world) == here.session.id


@pytest.mark.parametrize("name", ["the same", "-dash"])
def test_a_name_that_two_conversations_have_is_not_printed_as_the_way_back(tmp_path, name):
    first, second = kept(tmp_path, "one"), kept(tmp_path, "two")
    assert name in asyncio.run(rename_chat(first, name)).partition("To come back: ")[2]
    said = asyncio.run(rename_chat(second, name))
    assert f"--resume {second.session.id[8:16]} " in said
    assert f"This conversation is now called {name!r}, and so is another one." in said
    with pytest.raises(ConfigurationError, match="2 sessions are called") as caught:
        chosen(tmp_path, f"--resume={name}")
    for one in (first, second):
        when = r"\d{4}-\d\d-\d\d \d\d:\d\d"
        assert re.search(rf"{one.session.id} \({when}, .*{tmp_path.name}\)", str(caught.value))
    assert str(caught.value).endswith("; give the id of one")


def test_the_way_back_names_the_model_that_answers_now(tmp_path):
    here = kept(tmp_path, "hello")
    here.answer_command("/model python:flights:talkative")
    assert "--model python:flights:talkative" in here.return_command()


def chosen(tmp_path, *argv, folder=None):
    options = make_parser(["chat"]).parse_args(["chat", *SAVED, *argv])
    world = CliContext(environ={}, folder=folder or tmp_path)
    settings = gather(options, world)
    return choose_chat(options, settings, world), settings.get("model")


def test_a_conversation_that_knows_its_model_continues_without_naming_it(tmp_path, capsys):
    here = kept(tmp_path, "hello")
    here.remember()
    whole = here.session.id
    for how in (["-r", whole[8:16]], ["-c"], ["--last"]):
        assert chosen(tmp_path, *how) == (whole, "python:flights:echoes")
    assert capsys.readouterr().err.splitlines()[-1].endswith("with the tools of this conversation: list,shell")
    chosen(tmp_path, "-c", "--tools", "none")
    assert capsys.readouterr().err == ""
    assert chosen(tmp_path, "-r", whole, "-m", "python:flights:hello")[1] == "python:flights:hello"


def test_a_conversation_that_is_killed_in_its_first_turn_is_the_one_to_continue(tmp_path):
    kept(tmp_path, "the one before").remember()
    here = talk(tmp_path, "waits", *SAVED)

    async def leave(event):
        if isinstance(event, StreamChunk):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(here.run_turn("hello", leave, ignore))
    assert chosen(tmp_path, "-c") == (here.session.id, "python:flights:waits")


def test_a_conversation_without_a_known_model_says_what_to_pass(tmp_path, monkeypatch):
    here = kept(tmp_path, "hello")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another machine"))
    with pytest.raises(ConfigurationError, match=r"does not know which model it was held with: pass --model NAME"):
        chosen(tmp_path, "-r", here.session.id)


def test_a_model_that_is_code_of_another_folder_is_not_taken_from_this_one(tmp_path):
    here = kept(tmp_path, "hello")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    flags = ["-r", here.session.id, "--store", f"sqlite:{tmp_path}/kept.db"]
    with pytest.raises(ConfigurationError, match="continue it there, or pass --model NAME"):
        chosen(tmp_path, *flags, folder=elsewhere)


def test_the_list_shows_when_how_long_where_and_what_about(tmp_path):
    here, other = kept(tmp_path, "hello\nthere", "again"), kept(tmp_path)
    other.columns = 200
    head, row, how = asyncio.run(other.resume("")).split("\n")
    assert head.split() == ["SESSION", "LAST", "ACTIVE", "MESSAGES", "FOLDER", "NAME", "OR", "FIRST", "WORDS"]
    words = row.split()
    assert words[0] == here.session.id[8:16]
    assert datetime.strptime(" ".join(words[1:3]), "%Y-%m-%d %H:%M")  # noqa: DTZ007 - in local time
    assert words[3:] == ["4", f".../{tmp_path.name}", "hello", "there"]
    assert how == "To continue one: /resume ID (its id, the start of it, or its name)"


def test_ctrl_c_empties_the_line_before_it_leaves_and_up_brings_it_back(tmp_path):
    async def script(app, pilot):
        prompt = app.query_one("#prompt")
        prompt.value = "a draft"
        await pilot.press("ctrl+c")
        assert prompt.value == ""
        assert "Ctrl-C again" not in shown(app)
        await pilot.press("up")
        assert prompt.value == "a draft"

    play(tmp_path, script, "echoes")


def test_a_whole_word_at_a_question_answers_one_question_and_is_not_a_message(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "change both", lambda app: app._asked is not None and app.query_one("#prompt").single)
        for key in "yes":
            app.post_message(Key(key, key))  # as fast as a paste
        app.post_message(Key("enter", "\r"))
        await settle(pilot, lambda: "words never approve a call: press y" in shown(app) and app._asked is not None)
        assert not (tmp_path / "new.txt").exists()
        await settle(pilot, lambda: app.query_one("#prompt").single)
        await pilot.press("y", "enter")
        await settle(pilot, lambda: (tmp_path / "new.txt").exists() and app._asked is not None)
        assert app._waiting == []
        assert app.query_one("#prompt").value == ""
        await pilot.press("escape")
        await settle(pilot, lambda: not app.talk.busy)
        assert users(app) == ["change both"]

    (tmp_path / "notes.txt").write_text("old line\n")
    play(tmp_path, script, "edits", "--tools", "write,edit")


def test_a_refusal_is_shown_with_the_reason_that_the_model_gets(tmp_path):
    async def script(app, pilot):
        prompt, asking = app.query_one("#prompt"), lambda app: app._asked is not None and prompt.single
        await say(app, pilot, "change both", asking)
        prompt.post_message(Paste("y\ny"))
        await settle(pilot, lambda: prompt.value == "y\ny")
        await pilot.press("enter")
        await settle(pilot, lambda: "Refused. The model is told why: y y" in shown(app) and asking(app))
        await pilot.press("n")
        await settle(pilot, lambda: not app.talk.busy)
        assert "\nRefused.\n" in shown(app)
        assert not (tmp_path / "new.txt").exists()

    (tmp_path / "notes.txt").write_text("old line\n")
    play(tmp_path, script, "edits", "--tools", "write,edit")


def test_a_question_is_laid_out_again_when_the_window_changes(tmp_path):
    async def script(app, pilot):
        prompt, asking = app.query_one("#prompt"), lambda: app._asked is not None and prompt.single
        whole = "The agent wants to call write (in the workspace):"
        await pilot.resize_terminal(24, 12)
        await say(app, pilot, "change both", lambda app: asking())
        assert whole not in shown(app)
        await pilot.resize_terminal(100, 30)
        await settle(pilot, lambda: whole in shown(app) and asking())
        assert len(app.query(".ask")) == 1
        assert "y or a (always)" in shown(app)
        await pilot.press("y", "enter")
        await settle(pilot, lambda: (tmp_path / "new.txt").exists() and asking())
        await pilot.press("escape")
        await settle(pilot, lambda: not app.talk.busy)

    (tmp_path / "notes.txt").write_text("old line\n")
    play(tmp_path, script, "edits", "--tools", "write,edit")


def test_the_help_fits_a_narrow_screen(tmp_path):
    here = talk(tmp_path)
    here.columns = 50
    rows = here.answer_command("/help").split("\n")
    assert max(map(len, rows)) <= 50
    assert {len(row) - len(row.lstrip()) for row in rows} == {0, 13}


def test_a_deleted_conversation_leaves_none_of_its_words_behind(tmp_path):
    here = kept(tmp_path, "a secret")
    assert card_of(here.session.id).first == "a secret"
    assert glidepath("sessions", "delete", here.session.id, *SAVED, folder=tmp_path).code == 0
    assert card_of(here.session.id) == ChatCard()


def test_nothing_in_a_note_steers_the_terminal(tmp_path):
    async def script(app, pilot):
        await app._note("hello \x1b]2;TITLE\x07 \x1b[1;1H\u202eend")
        app.talk.answer_command = lambda line: "\x1b[31mred"
        await say(app, pilot, "/status")
        await pilot.pause()
        rows = shown(app)
        assert "hello ?]2;TITLE? ?[1;1H?end" in rows
        assert "?[31mred" in rows

    play(tmp_path, script)


def test_always_holds_for_the_conversation_in_which_it_was_said(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("old line\n")

    async def script(app, pilot):
        prompt = app.query_one("#prompt")
        await say(app, pilot, "change both", lambda app: app._asked is not None and prompt.single)
        first = app._asked
        await pilot.press("n")
        await settle(pilot, lambda: app._asked not in (None, first) and prompt.single)
        await allow_always(app, pilot)
        await settle(pilot, lambda: not app.talk.busy)
        assert notes.read_text() == "new line\n"
        await say(app, pilot, "/clear")
        await say(app, pilot, "once more", lambda app: app._asked is not None and prompt.single)
        await pilot.press("n")
        await settle(pilot, lambda: not app.talk.busy)
        assert notes.read_text() == "new line\n"

    play(tmp_path, script, "edits", "--tools", "write,edit")
