"""The chat loses nothing on the way: letters, spaces, output, drafts, and what you said."""

import asyncio
import sys
from io import StringIO

import pytest
from rich.console import Console
from textual.events import Key
from textual.message import Message

from glidepath.apps.cli import CliContext, make_parser
from glidepath.apps.cli.attachments import load_pictures
from glidepath.apps.cli.chat.chat_limits import limit_used_up
from glidepath.apps.cli.chat.old_messages import answer_entries
from glidepath.apps.cli.chat.reply import ChatReply
from glidepath.apps.cli.chat.slash import describe_turn_end
from glidepath.apps.cli.chat_cards import card_of
from glidepath.apps.cli.file_changes import Changes, format_difference
from glidepath.apps.cli.instructions import load_custom_commands
from glidepath.apps.cli.status import strip_control_characters
from glidepath.apps.cli.user_shell import describe_result, run_user_command, tail_output
from glidepath.constraints import MaxIterationConstraint, TimeoutConstraint
from glidepath.events import StreamChunk
from glidepath.messages import ImageBlock, TextBlock
from glidepath.outcome import LoopOutcome, StopCause
from glidepath.values import replace
from glidepath.workspace import Workspace, workspace_tools

from .test_chat import play, say, shown, talk, users
from .test_chat_people import SAVED, settle


async def ignore(*_):
    return {}


# --- text -----------------------------------------------------------------------------------------------------------


def test_spaces_that_do_not_break_stay_in_an_answer(tmp_path):
    """10\u00a0000 is not 10000; what steers a terminal, or cannot be seen, is left out."""

    async def script(app, pilot):
        await say(app, pilot, "how much?")
        said = app.query(ChatReply).last().text
        assert said == "10\u00a0000\u202f\u20ac, \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645, ab[2J."

    play(tmp_path, script, "spaced")


def test_spaces_and_unseen_marks_are_not_shown_as_question_marks():
    assert strip_control_characters("10\u00a0000 \u3000 a\u200bb \U0001f469\u200d\U0001f467 x\u2028y\x1b") == (
        "10\u00a0000 \u3000 ab \U0001f469\U0001f467 x\ny?"
    )


# --- keys after an answer -------------------------------------------------------------------------------------------


def type_soon(app, *names):
    """Keys a tenth of a second apart, however long the machine takes."""
    now = Message().time + 60
    for number, name in enumerate(names):
        key = Key(name, name if len(name) == 1 else None)
        key.time = now + number / 10
        app.post_message(key)


async def answered(app, pilot, *typed):
    """Type this at the first question, and wait for the end of the turn."""
    prompt = app.query_one("#prompt")
    await say(app, pilot, "go", lambda app: app._asked is not None and prompt.single)
    type_soon(app, *typed)
    await settle(pilot, lambda: not app.talk.busy)
    return prompt


def test_a_message_that_begins_like_the_rest_of_the_answer_is_not_cut(tmp_path):
    async def script(app, pilot):
        prompt = await answered(app, pilot, "n", "o", "k")
        await settle(pilot, lambda: prompt.text == "ok")

    play(tmp_path, script, "shell")


def test_the_rest_of_the_word_and_its_enter_are_not_a_message(tmp_path):
    async def script(app, pilot):
        prompt = await answered(app, pilot, "n", "o", "enter", "h", "i")
        await settle(pilot, lambda: prompt.text == "hi")
        assert users(app) == ["go"]
        assert not app._waiting

    play(tmp_path, script, "shell")


def test_the_enter_after_an_answer_does_not_refuse_the_next_call(tmp_path):
    async def script(app, pilot):
        prompt = app.query_one("#prompt")
        await say(app, pilot, "go", lambda app: app._asked is not None and prompt.single)
        first, later = app._asked, Message().time + 60
        for number, name in enumerate(("y", "enter", "enter")):
            key = Key(name, name if len(name) == 1 else None)
            key.time = later + number / 10
            app.post_message(key)
        await settle(pilot, lambda: app._asked not in (None, first) and prompt.single)
        assert not prompt.text
        await pilot.press("y", "enter")
        await settle(pilot, lambda: not app.talk.busy)
        assert "Refused" not in shown(app)
        assert (tmp_path / "notes.txt").read_text() == "new line\n"

    (tmp_path / "notes.txt").write_text("old line\n")
    play(tmp_path, script, "edits", "--tools", "write,edit")


# --- commands of the person -----------------------------------------------------------------------------------------


def ran(command, folder, *, until=None):
    """How a command ended; it is cancelled as soon as the file `until` is there."""

    async def run():
        task = asyncio.create_task(run_user_command(command, folder))
        while until is not None and not (folder / until).exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        if until is not None:
            task.cancel()
        return await task

    return asyncio.run(run())


def test_a_command_that_is_stopped_keeps_what_it_has_printed(tmp_path):
    code, output = ran("echo so far; touch there; exec sleep 60", tmp_path, until="there")
    assert (describe_result(code), output) == ("stopped", "so far")
    assert tail_output(code, output, str) == "so far\n(stopped)"


def test_colors_and_progress_of_a_command_are_not_shown_as_garbage(tmp_path):
    code, output = ran(r"printf '\033[31mred\033[0m\n10%%\r20%%\r100%%\nend\r\n'; false", tmp_path)
    assert (describe_result(code), output) == ("exit code 1", "red\n100%\nend")


def test_a_command_that_prints_without_end_does_not_fill_the_memory(tmp_path):
    many = f"{sys.executable} -c \"print('x' * 79 + '\\n' * 1, end='') or [print('y' * 999) for _ in range(900)]\""
    code, output = ran(many, tmp_path)
    assert code == 0
    assert output.startswith("... (the beginning is left out)\n")
    assert len(output) < 31_000


def test_a_command_in_a_folder_that_is_gone_says_so(tmp_path):
    assert ran("true", tmp_path / "gone") == (1, "cannot be run: No such file or directory")


# --- money ----------------------------------------------------------------------------------------------------------


def test_when_the_money_is_used_up_the_way_back_allows_more(tmp_path):
    """With the same limit, the conversation could be opened again, but nothing in it would be answered."""

    async def script(app, pilot):
        await say(app, pilot, "how much?")
        assert "the next call would exceed the cost limit" in shown(app)
        more = f"type /limits cost AMOUNT, or leave and type: {app.talk.return_command()}"
        assert f"To continue with a larger budget, {more}" in shown(app)
        assert app.talk.return_command().endswith(" --max-budget-usd 0.004")

    play(tmp_path, script, "chat", *SAVED, "--max-budget-usd", "0.002")


@pytest.mark.parametrize(
    ("name", "flag", "given", "more"),
    [("turns", "--max-turns", "2", "4"), ("tokens", "--max-tokens", "6000", "12000")],
)
def test_a_limit_of_the_conversation_that_is_used_up_is_raised_on_the_way_back(tmp_path, name, flag, given, more):
    here = talk(tmp_path, "endless", *SAVED, flag, given)
    result = asyncio.run(here.run_turn("go", ignore, ignore))
    assert result.outcome is LoopOutcome.WRAPPED_UP
    assert here.return_command().endswith(f" {flag} {more}")
    on = f"type /limits {name} AMOUNT, or leave and type: {here.return_command()}"
    assert describe_turn_end(result, here).endswith(f"\nTo continue with a higher limit, {on}")
    session, back = here.session.id, talk(tmp_path, "echoes", *SAVED, flag, more)
    asyncio.run(back.resume(session))
    assert asyncio.run(back.run_turn("and now?", ignore, ignore)).text == "You said: and now?"


def ended_for(kind, result):
    """The result as if this limit had ended it."""
    cause = StopCause(source=kind.__name__, action="land", reason="it is used up")
    return replace(result, outcome=LoopOutcome.WRAPPED_UP, cause=cause)


def test_working_time_counts_from_the_opening_so_the_way_back_has_the_same(tmp_path):
    here = talk(tmp_path, "echoes", *SAVED, "--timeout", "60")
    result = here.session.last = ended_for(TimeoutConstraint, asyncio.run(here.run_turn("go", ignore, ignore)))
    assert limit_used_up(here, result) == "time"
    assert here.return_command().endswith(" --timeout 60")
    assert "type /limits time AMOUNT" in describe_turn_end(result, here)


def test_a_default_is_for_each_message_and_is_not_raised_for_the_next(tmp_path):
    here = talk(tmp_path, "echoes", *SAVED)
    result = here.session.last = ended_for(MaxIterationConstraint, asyncio.run(here.run_turn("go", ignore, ignore)))
    assert "--max-turns" not in here.return_command()
    assert "/limits" not in describe_turn_end(result, here)


# --- what is sent with a message ------------------------------------------------------------------------------------


def test_a_long_file_that_is_cut_within_a_character_is_text(tmp_path):
    (tmp_path / "long.txt").write_text("x" + "\u65e5" * 100_000, encoding="utf-8")
    message, said = talk(tmp_path, "echoes").make_message("see @long.txt")
    assert said == ["@long.txt: 1 line (the beginning)"]
    assert "\u65e5\n</file-" in message.text


def test_a_folder_is_called_a_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    message, said = talk(tmp_path, "echoes").make_message("look into @sub, @sub/ and @nobody")
    assert message == "look into @sub, @sub/ and @nobody"
    assert said == [f"@{name}: a folder, sent as a word: name a file in it" for name in ("sub,", "sub/")]


def test_a_resumed_chat_shows_what_was_typed_and_not_what_was_sent_with_it(tmp_path):
    (tmp_path / "notes.txt").write_text("in the notes")

    async def script(app, pilot):
        await say(app, pilot, "!echo " + "x" * 400, lambda app: app.talk.asides)
        await say(app, pilot, "why @notes.txt?")
        assert "\n> why @notes.txt?\n" in await app.talk.resume(app.talk.session.id)
        assert card_of(app.talk.session.id).first == "why @notes.txt?"

    play(tmp_path, script, "echoes", *SAVED)


def test_a_picture_named_on_the_command_line_goes_with_the_first_message(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG...")
    options = make_parser(["chat"]).parse_args(["chat", "-m", "x", "-i", "a.png"])
    world = CliContext(folder=tmp_path)
    world.notes = []
    here = talk(tmp_path, "echoes")
    here.asides += load_pictures(options.image, world)
    assert world.notes == ["a.png: a picture of 7 bytes, sent with your first message"]
    message, _ = here.make_message("what is it?")
    assert message.content == (ImageBlock("image/png", data=b"\x89PNG..."), TextBlock("what is it?"))
    assert here.make_message("and now?") == ("and now?", [])


def test_export_knows_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    here = talk(tmp_path, "echoes")
    asyncio.run(here.run_turn("hi", ignore, ignore))
    assert here.answer_command("/export ~/talk.md") == f"Written to {tmp_path}/home/talk.md"


def test_a_draft_is_kept_when_you_leave(tmp_path):
    async def script(app, pilot):
        app.query_one("#prompt").value = "a draft"
        await pilot.press("ctrl+d")
        await settle(pilot, lambda: not app.is_running)
        assert app.query_one("#prompt").past.lines[-1] == "a draft"

    play(tmp_path, script, "echoes")


# --- words ----------------------------------------------------------------------------------------------------------


def test_a_reply_that_is_cut_off_is_told_in_words(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "go")
        assert shown(app).count("the reply was cut off by its output limit; the model is asked to continue\n") == 2
        assert "max_tokens_recovery" not in shown(app)

    play(tmp_path, script, "cut")


def test_a_write_that_changes_nothing_says_so(tmp_path):
    (tmp_path / "a.txt").write_text("same\n")
    space = Workspace(tmp_path)
    planned = Changes(space).plan_change(
        "write", {"path": "a.txt", "content": "same\n"}, workspace_tools(space, ["write"])
    )
    assert format_difference(planned, 80) == ["  a.txt (no change: the file has this text already)"]


def test_commands_of_a_folder_that_is_not_trusted_are_not_left_out_in_silence(tmp_path):
    place = tmp_path / ".glidepath" / "commands"
    place.mkdir(parents=True)
    (place / "review.md").write_text("Review it.")
    world = CliContext(folder=tmp_path)
    world.notes = []
    assert "review" not in load_custom_commands(world)
    assert world.notes == [".glidepath/commands is not used: this folder is not trusted. `glidepath trust` trusts it."]


def test_no_row_of_an_answer_to_a_command_is_wider_than_the_log(tmp_path):
    """A row that is one column too wide is broken again, in the middle of a table."""

    async def script(app, pilot):
        await pilot.resize_terminal(40, 12)
        await settle(pilot, lambda: app.talk.columns == 37)
        for command in ("/help", "/tools"):
            rows = app.talk.answer_command(command).splitlines()
            assert 30 < max(map(len, rows)) <= 37

    play(tmp_path, script, "echoes", "--tools", "write,shell")


def test_the_answer_of_a_resumed_chat_is_laid_out_as_markdown(tmp_path):
    said = "Continuing 1 (2 messages).\n> why?\n# Head\n\nA **bold** `word`.\nNot run: shell()"
    head, answer, tail = answer_entries("/resume", said, "# Head\n\nA **bold** `word`.")
    assert (str(head.content), str(tail.content)) == ("Continuing 1 (2 messages).\n> why?", "Not run: shell()")
    console = Console(width=40, file=StringIO())
    console.print(answer.content)
    assert [row.rstrip() for row in console.file.getvalue().splitlines()] == ["Head", "", "A bold word."]
    assert len(answer_entries("/resume", said, "")) == len(answer_entries("/cost", said, "# Head")) == 1


def test_a_message_that_another_process_keeps_from_being_sent_comes_back_into_the_line(tmp_path):
    """And the conversation is still there: it can be exported, and there is a way back."""
    first = talk(tmp_path, "waits", *SAVED)

    async def script(app, pilot):
        writing = asyncio.Event()

        async def look(event):
            if isinstance(event, StreamChunk):
                writing.set()

        await say(app, pilot, "hello")
        first.session = first.make_session(app.talk.session.id)
        other = asyncio.create_task(first.run_turn("from there", look, ignore))
        await writing.wait()
        app.talk.asides.append("printed")
        await say(app, pilot, "from here", lambda app: "Not sent: " in shown(app) and not app.talk.busy)
        assert "has a run in flight" in shown(app)
        assert app.query_one("#prompt").value == "from here"
        assert app.talk.asides == ["printed"]
        assert len(app.talk.session.messages) == 2
        assert app.talk.return_command()
        first.interrupt("over")
        await other

    play(tmp_path, script, "echoes", *SAVED)
