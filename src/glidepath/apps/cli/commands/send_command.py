"""Send a message to a run, in any process.

A run tells its model after the turn it is in. While nothing runs in the session, the message waits for the
next run there, or for the resume. It is in the store until a run has taken it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from glidepath.apps.cli.notes import describe_outcome, make_next_run_command
from glidepath.apps.cli.session_flags import act_on_store, add_store_flags, store_settings

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.spi import SessionStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="the session's id, the start of it, or its name")
    parser.add_argument("message", nargs="+", help="what to say; - reads standard input")
    add_store_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Send it, and say what it waits for when nothing is running."""
    from glidepath.apps.cli.chat_cards import make_session_flags
    from glidepath.apps.cli.commands.run_command import resume_line
    from glidepath.sessions import send

    text = world.stdin.read() if options.message == ["-"] else " ".join(options.message)
    ended = ""

    async def act(store: SessionStore) -> int:
        nonlocal ended
        await send(store, options.session, text)
        ended = await describe_outcome(store, options.session)
        return 0

    settings = store_settings(options, world)
    act_on_store(options, world, "send", act, settings)
    session = options.session
    world.note(f"sent to {session}")
    if ended == "done":
        world.note(
            f"the run has ended, and the message waits for the next one: {make_next_run_command(session, settings)}"
        )
    elif ended:
        line = [resume_line(session, settings), *make_session_flags(session, settings)]
        world.note(f"it waits until the run continues: {' '.join(line)}")
    return 0
