"""Decide about a call of a paused run, from anywhere.

The decision waits in the store, and resuming the run applies it. `glidepath runs show SESSION` lists the calls
that wait. In a fleet, `glidepath fleet resume` decides and lets the run continue.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from glidepath.cli.notes import add_decision, add_note_arguments, decided, with_store

if TYPE_CHECKING:
    from glidepath.cli.world import World


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="the session's id")
    add_decision(parser, required=True)
    add_note_arguments(parser)


def execute(options: argparse.Namespace, world: World) -> int:
    """Leave the decision in the store."""
    from glidepath.sessions.inbox import decide

    decisions = decided(options)
    with_store(options, world, "decide", lambda store: decide(store, options.session, decisions))
    world.note(f"noted; to continue: glidepath resume {options.session}")
    return 0
