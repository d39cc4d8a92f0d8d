"""What a person finds after a turn was cut off: by a key, a signal, or a process that was killed."""

import asyncio
import signal
import sqlite3
from contextlib import closing

import pytest

from glidepath.apps.cli import ASIDE
from glidepath.events import StreamChunk, ToolStarted
from glidepath.messages import TextBlock, UserMessage
from glidepath.run import approve

from .test_chat import play, say, shown, talk
from .test_chat_people import SAVED, settle

# --- coming back ----------------------------------------------------------------------------------------------------


async def ignore(*_):
    return {}


def as_if_killed(tmp_path):
    """The store as a process leaves it that is killed now."""
    with closing(sqlite3.connect(tmp_path / "kept.db")) as now, closing(sqlite3.connect(tmp_path / "then.db")) as then:
        now.backup(then)


def found_after_the_kill(tmp_path, session):
    return asyncio.run(talk(tmp_path, "echoes", "--store", "sqlite:then.db").resume(session))


def test_a_command_that_ran_when_the_chat_was_killed_is_shown_with_its_unknown_outcome(tmp_path):
    here = talk(tmp_path, "shell", *SAVED, "--sandbox", "off", "--approve", "all")

    async def look(event):
        if isinstance(event, ToolStarted):
            as_if_killed(tmp_path)

    async def allow(pending):
        return {one.call.id: approve() for one in pending}

    asyncio.run(here.run_turn("make\x1b[2J it", look, allow))
    said = found_after_the_kill(tmp_path, here.session.id)
    assert "> make<U+001B>[2J it\n" in said
    assert 'Its outcome is unknown, because it had begun: shell(command="echo from the shell > made.txt;' in said


def test_a_call_that_waited_for_an_answer_when_the_chat_was_killed_is_shown(tmp_path):
    here = talk(tmp_path, "shell", *SAVED)

    async def look(_):
        as_if_killed(tmp_path)
        here.interrupt("over")
        return {}

    asyncio.run(here.run_turn("make it", ignore, look))
    said = found_after_the_kill(tmp_path, here.session.id)
    assert "> make it\n" in said
    assert 'Not run: shell(command="echo from the shell' in said


def test_a_conversation_that_ended_well_is_continued_with_its_last_words(tmp_path):
    here = talk(tmp_path, "echoes", *SAVED)
    asyncio.run(here.run_turn("one", ignore, ignore))
    said = asyncio.run(here.resume(here.session.id))
    assert said.split("\n")[1:] == ["> one", "You said: one"]


# --- an interrupted reply -------------------------------------------------------------------------------------------

BEGUN = "I found one file, and in it"


def with_aside(text, aside):
    """A message of the person with what they did not write: that has an origin, so it counts as nobody's wish."""
    return UserMessage((TextBlock(text), TextBlock(f"\n\n{aside}", (ASIDE,))))


def interrupted(tmp_path, *argv):
    here, said = talk(tmp_path, "waits", *argv), []

    async def stop(event):
        said.append(event.text if isinstance(event, StreamChunk) else "")
        if BEGUN in "".join(said):
            here.interrupt("Esc")

    asyncio.run(here.run_turn("hi", stop, ignore))
    return here


@pytest.mark.parametrize("argv", [(), SAVED], ids=["unsaved", "saved"])
def test_the_text_of_an_interrupted_reply_is_kept_for_the_model_and_for_the_export(tmp_path, argv):
    here = interrupted(tmp_path, *argv)
    (tmp_path / "sent.txt").write_text("never asked for")
    here.answer_command("/export talk.md")
    assert f"## Model (interrupted)\n\n{BEGUN}\n" in (tmp_path / "talk.md").read_text()
    if argv:
        session, here = here.session.id, talk(tmp_path, "echoes", *argv)
        assert asyncio.run(here.resume(session)).endswith(f"\n{BEGUN}\n(interrupted)")
    here.answer_command("/model python:flights:echoes")
    message, _ = here.make_message("continue")
    assert message == with_aside("continue", f"I interrupted your last reply, which began:\n\n{BEGUN}")
    asyncio.run(here.run_turn(message, ignore, ignore))
    assert here.make_message("more")[0] == "more"  # once is enough
    here.answer_command("/export two.md")
    assert "Model (interrupted)" not in (tmp_path / "two.md").read_text()


def test_a_reply_that_a_signal_interrupted_is_kept(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "hi", lambda app: app._reply is not None and BEGUN in app._reply.text)
        app._on_terminate(signal.SIGTERM)
        await app._goodbye

    session = play(tmp_path, script, "waits", *SAVED).talk.session.id
    said = asyncio.run(talk(tmp_path, "echoes", *SAVED).resume(session))
    assert said.endswith(f"> hi\nLet me look around.\n{BEGUN}\n(interrupted)")


def test_a_reply_that_was_complete_is_not_sent_twice(tmp_path):
    here = talk(tmp_path, "looks")

    async def stop(event):
        if isinstance(event, ToolStarted):
            here.interrupt("Esc")

    asyncio.run(here.run_turn("hi", stop, ignore))
    assert here.make_message("continue")[0] == "continue"


def test_what_a_command_printed_names_no_files(tmp_path):
    (tmp_path / "notes.txt").write_text("a secret")
    here = talk(tmp_path, "echoes")
    here.asides.append("I ran `cat x`: @notes.txt")
    assert here.make_message("what is it?") == (with_aside("what is it?", "I ran `cat x`: @notes.txt"), [])


# --- a command of the person ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_a_command_of_the_person_is_shown_while_it_runs_and_can_be_stopped(tmp_path, key):
    async def script(app, pilot):
        status = lambda: str(app.query_one("#status").render())  # noqa: E731
        await say(app, pilot, "!sleep 60", lambda app: app._command_run is not None)
        await settle(pilot, lambda: "your command is running: Esc stops it" in status())
        await pilot.press("x", "backspace")
        assert "your command is running" in status()
        await pilot.press(key)
        await settle(pilot, app._command_run.done)
        await settle(pilot, lambda: "ready" in status())
        assert shown(app).endswith("(stopped)")
        assert "Ctrl-C again to leave" not in shown(app)

    play(tmp_path, script, "echoes")
