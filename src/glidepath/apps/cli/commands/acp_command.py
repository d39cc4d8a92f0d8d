"""Let an editor talk to an agent, in the Agent Client Protocol on standard input and output.

Register the command in your editor, for example in Zed:
"agent_servers": {"helper": {"command": "glidepath", "args": ["acp", "--agent", "my_package.agents:helper"]}}
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", required=True, metavar="MODULE:ATTR", help="the agent that answers the editor")
    parser.add_argument(
        "--store",
        metavar="URL",
        default="default",
        help="where sessions are kept: a path, postgresql://..., none, or default (default: default)",
    )
    parser.add_argument("--redact", metavar="NAME", help="rewrites what is stored: python:module:function")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Answer until the editor closes the connection."""
    import asyncio

    from glidepath.apps.cli.deck_server import load_agents
    from glidepath.apps.cli.extras import require_extra
    from glidepath.apps.cli.stores import open_redacted_store

    require_extra("acp", "serve")
    import acp

    from glidepath.apps.server.protocol_acp import EditorAgent

    ((_, agent),) = load_agents([options.agent], world).items()
    if agent.config.store is None and options.store != "none":
        agent = agent.replace(store=open_redacted_store(options.store, options.redact, world))
    answering: Any = EditorAgent(agent)
    asyncio.run(acp.run_agent(answering))
    return 0
