"""Send a message to a run, in any process.

A run tells its model after the turn it is in. While nothing runs in the session, the message waits for the
next run there, or for the resume. It is in the store until a run has taken it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from glidepath.cli.notes import add_note_arguments, with_store

if TYPE_CHECKING:
    from glidepath.cli.world import World


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="the session's id, the start of it, or its name")
    parser.add_argument("message", nargs="+", help="what to say; - reads standard input")
    add_note_arguments(parser)


def execute(options: argparse.Namespace, world: World) -> int:
    """Send it."""
    from glidepath.sessions.inbox import send

    text = world.stdin.read() if options.message == ["-"] else " ".join(options.message)
    with_store(options, world, "send", lambda store: send(store, options.session, text))
    world.note(f"sent to {options.session}")
    return 0
