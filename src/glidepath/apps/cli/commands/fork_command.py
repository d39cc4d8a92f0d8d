"""Make a new session from a turn of another one, which does not change.

Prints the id of the new session. Continue with `glidepath resume ID`; calls that the original made after that turn are
listed, because no fork undoes them.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from glidepath.apps.cli.commands.sessions_command import add_fork_arguments, fork
from glidepath.apps.cli.session_flags import act_on_store, add_store_flags

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_fork_arguments(parser)
    add_store_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Fork, and print the new id."""
    return act_on_store(options, world, "fork", lambda store: fork(options, store, world))
