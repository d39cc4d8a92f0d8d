"""What a person finds after a turn was cut off: by a key, a signal, or a process that was killed."""

import asyncio
import sqlite3

from glidepath.events import ToolStarted
from glidepath.run import approve

from .test_chat import talk
from .test_chat_people import SAVED

# --- coming back ----------------------------------------------------------------------------------------------------


async def ignore(*_):
    return {}


def as_if_killed(tmp_path):
    """The store as a process leaves it that is killed now."""
    with sqlite3.connect(tmp_path / "kept.db") as now, sqlite3.connect(tmp_path / "then.db") as then:
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

    asyncio.run(here.turn("make\x1b[2J it", look, allow))
    said = found_after_the_kill(tmp_path, here.session.id)
    assert "> make<U+001B>[2J it\n" in said
    assert 'Its outcome is unknown, because it had begun: shell(command="echo from the shell > made.txt;' in said


def test_a_call_that_waited_for_an_answer_when_the_chat_was_killed_is_shown(tmp_path):
    here = talk(tmp_path, "shell", *SAVED)

    async def look(_):
        as_if_killed(tmp_path)
        here.interrupt("over")
        return {}

    asyncio.run(here.turn("make it", ignore, look))
    said = found_after_the_kill(tmp_path, here.session.id)
    assert "> make it\n" in said
    assert 'Not run: shell(command="echo from the shell' in said


def test_a_conversation_that_ended_well_is_continued_with_its_last_words(tmp_path):
    here = talk(tmp_path, "echoes", *SAVED)
    asyncio.run(here.turn("one", ignore, ignore))
    said = asyncio.run(here.resume(here.session.id))
    assert said.split("\n")[1:] == ["> one", "You said: one"]
