"""Serve agents over HTTP, with the flight deck in the browser.

Listens on 127.0.0.1:7447 and opens the browser with a token in the address's fragment, which never leaves the browser.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidepath.cli.world import World

_EXAMPLES = """\
examples:
  glidepath serve --agent my_package.agents:helper
  glidepath serve --agent billing=my_package.agents:helper --store ./sessions
  glidepath serve --agent app:agent --host 0.0.0.0 --token "$TOKEN" --allowed-host deck.example.com
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--agent",
        action="append",
        required=True,
        metavar="[NAME=]MODULE:ATTR",
        help="an Agent, under its agent_name or under NAME; may be repeated",
    )
    add_server_flags(parser)


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that all servers share."""
    parser.add_argument(
        "--store",
        metavar="URL",
        help="where sessions are kept: a path, postgresql://..., none, default (default: GLIDEPATH_STORE)",
    )
    parser.add_argument("--redact", metavar="NAME", help="rewrites what is stored: python:module:function")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=7447, help="which port (default: 7447); 0 takes a free one")
    parser.add_argument(
        "--token", help="the token with full access (default: GLIDEPATH_SERVE_TOKEN, else a random one)"
    )
    parser.add_argument("--view-token", metavar="TOKEN", help="another token, for viewing only")
    parser.add_argument("--no-browser", action="store_true", help="do not open the browser")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another host name that requests may use; may be repeated",
    )
    parser.add_argument("--prefix", default="", metavar="PATH", help="the path under which a proxy serves this")
    parser.add_argument("--max-runs", type=int, default=100, metavar="N", help="runs at once (default: 100)")
    parser.add_argument(
        "--on-disconnect",
        choices=("land", "continue"),
        default="land",
        help="without a store: what a run does when its last reader has gone (default: land)",
    )
    parser.add_argument(
        "--resume-lost", action="store_true", help="resume runs that a dead server has left in the store"
    )


def execute(options: argparse.Namespace, world: World) -> int:
    """Serve until Ctrl-C."""
    from glidepath.cli.deck_server import checked_address, named_agents, serve

    checked_address(options, world)
    return serve(named_agents(options.agent, world), options, world)
