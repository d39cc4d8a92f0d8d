"""Open the flight deck on a store, on a demo fleet, or write a run into one HTML file.

`glidepath deck` shows every run of a store and lets you take the controls. `--demo` starts a small scripted fleet.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from glidepath.apps.cli.commands.serve_command import add_server_flags

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext

_EXAMPLES = """\
examples:
  glidepath deck                                   the runs of the default store
  glidepath deck --store postgresql://host/db      the runs of a fleet
  glidepath deck --demo                            a small demo fleet, no key needed
  glidepath deck export SESSION run.html           one run as a file that opens offline
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("action", nargs="?", choices=("export",), help="export RUN FILE: write one self-contained page")
    parser.add_argument("run", nargs="?", metavar="RUN", help="the run or session to export")
    parser.add_argument("file", nargs="?", metavar="FILE", help="the file to write")
    parser.add_argument("--demo", action="store_true", help="start a small scripted fleet")
    parser.add_argument(
        "--agent", action="append", default=[], metavar="[NAME=]MODULE:ATTR", help="an Agent to resume runs with"
    )
    add_server_flags(parser, own_store=False)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Show it."""
    from glidepath.apps.cli.deck_server import export, serve_deck

    return export(options, world) if options.action == "export" else serve_deck(options, world)
