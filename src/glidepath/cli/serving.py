"""`glidepath mcp serve`: agents of a Python module, offered on stdio or HTTP."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidepath.cli.world import World

LAST_PORT = 65_535


def serve(options: argparse.Namespace, world: World) -> int:
    """Serve until the client goes away or the process is stopped."""
    from glidepath.cli.deck_server import address_of, find_agent
    from glidepath.errors import ConfigurationError
    from glidepath.mcp.serve_agents import agent_server

    agents: dict[str, Any] = {}
    for said in options.agent:
        found = find_agent(said, world)
        label = getattr(getattr(found, "config", None), "agent_name", "agent")
        label = said.rpartition(":")[2] if label == "agent" else label
        if label in agents:
            raise ConfigurationError(f"--agent {said}: there is another agent named {label!r}; set agent_name")
        agents[label] = found
    if not 0 < options.port <= LAST_PORT:
        raise ConfigurationError(f"--port must be between 1 and {LAST_PORT}, not {options.port}")
    server = agent_server(agents, name=options.name)
    names = ", ".join(agents)
    try:
        if options.http:
            world.note(f"Serving {names} at {address_of(options.host, options.port)}/mcp; Ctrl-C stops.")
            server.run("streamable-http", host=options.host, port=options.port)
        else:
            world.note(f"Serving {names} on standard input and output.")
            server.run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0
