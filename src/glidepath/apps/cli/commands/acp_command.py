"""Let an editor talk to an agent, in the Agent Client Protocol on standard input and output.

Register the command in your editor, for example in Zed:
"agent_servers": {"helper": {"command": "glidepath", "args": ["acp", "--agent", "my_package.agents:helper"]}}
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext

MOST_LINE = 50 << 20  # bytes of a message that are read at once


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
    from acp.stdio import stdio_streams

    from glidepath.apps.server.acp_lines import MessageLines
    from glidepath.apps.server.protocol_acp import EditorAgent

    ((_, agent),) = load_agents([options.agent], world).items()
    if agent.config.store is None and options.store != "none":
        agent = agent.replace(store=open_redacted_store(options.store, options.redact, world))
    answering: Any = EditorAgent(agent)

    async def answer() -> None:
        reader, writer = await stdio_streams(limit=MOST_LINE)
        try:
            lines = MessageLines(reader, writer)
            await acp.run_agent(answering, writer, lines, use_unstable_protocol=True)  # close and resume a session
        finally:
            await answering.close()

    asyncio.run(answer())
    return 0
