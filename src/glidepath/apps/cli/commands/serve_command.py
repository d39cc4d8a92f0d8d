"""Serve agents over HTTP, with the flight deck in the browser.

Listens on 127.0.0.1:7447 and opens the browser with a one-time code, from a file that only you can read.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext

_EXAMPLES = """\
examples:
  glidepath serve --agent my_package.agents:helper
  glidepath serve --agent billing=my_package.agents:helper --store ./sessions
  glidepath serve --gate gate.toml                                 other makers' agents, in the deck
  glidepath keys add webchat --role run --max-cost 5 --per day     a key for one front end
  GLIDEPATH_SERVE_TOKEN=... glidepath serve --agent app:agent --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem \\
      --allowed-host deck.example.com
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--agent",
        action="append",
        default=[],
        metavar="[NAME=]MODULE:ATTR",
        help="an Agent, under its agent_name or under NAME, or the file of one, such as reviewer.md; may be repeated",
    )
    parser.add_argument(
        "--gate", metavar="FILE", help="a gate.toml: also put a gate before other agents, under /gate/ (see gate serve)"
    )
    add_server_flags(parser)


def add_server_flags(parser: argparse.ArgumentParser, *, port: int = 7447, own_store: bool = True) -> None:
    """Add the flags that all servers share."""
    add_lock_flags(parser)
    parser.add_argument(
        "--store",
        metavar="URL",
        help="where sessions are kept: a path, postgresql://..., serve, default, none (default: GLIDEPATH_STORE, else "
        + ("the server's own store, serve)" if own_store else "your own runs and chats, default)"),
    )
    parser.add_argument("--redact", metavar="NAME", help="rewrites what is stored: python:module:function")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=port, help=f"which port (default: {port}); 0 takes a free one")
    parser.add_argument("--no-browser", action="store_true", help="do not open the browser")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another host name that requests may use; may be repeated",
    )
    parser.add_argument("--prefix", default="", metavar="PATH", help="the path under which a proxy serves this")
    parser.add_argument(
        "--trace-url",
        default="",
        metavar="URL",
        help="where the deck links to for a trace, with {trace_id} in it",
    )
    parser.add_argument("--max-runs", type=int, default=100, metavar="N", help="runs at once (default: 100)")
    parser.add_argument(
        "--on-disconnect",
        choices=("land", "continue", "stop"),
        default="land",
        help="without a store: what a run does when its last reader has gone (default: land); "
        "stop: a client that leaves stops its run, with a store too",
    )
    parser.add_argument(
        "--webhooks", metavar="FILE", help="a TOML file: whom to tell when a run waits, fails or comes near a limit"
    )
    parser.add_argument(
        "--resume-lost", action="store_true", help="resume runs that a dead server has left in the store"
    )


def add_lock_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say who may come in. None of them takes a secret: other users can read a command line."""
    parser.add_argument("--token", metavar="VALUE", help=argparse.SUPPRESS)
    parser.add_argument("--view-token", metavar="VALUE", help=argparse.SUPPRESS)
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="has the token with full access, mode 0600 (default: GLIDEPATH_SERVE_TOKEN, else a random token)",
    )
    parser.add_argument(
        "--view-token-file",
        metavar="FILE",
        help="has another token, for viewing only (default: GLIDEPATH_SERVE_VIEW_TOKEN)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="speak TLS with this certificate chain (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="the certificate's private key (PEM)")
    parser.add_argument(
        "--behind-proxy", action="store_true", help="a proxy in front speaks TLS: allows another --host without it"
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this origin call, such as https://app.example.com; may be repeated",
    )


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Serve until Ctrl-C."""
    from glidepath.apps.cli.deck_server import load_agents, serve
    from glidepath.apps.cli.secrets_given import check_secrets
    from glidepath.values import ConfigurationError

    if not options.agent and not options.gate:
        raise ConfigurationError("nothing to serve: name an agent with --agent MODULE:ATTR, or a gate with --gate FILE")
    check_secrets(options, world)  # before any module of the user's is imported
    return serve(load_agents(options.agent, world), options, world)
