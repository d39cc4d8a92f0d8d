"""MCP: tools from any server that speaks the Model Context Protocol, governed like our own.

`McpServer` goes in `tools=[...]`. The `mcp` SDK is imported when a server is first started, not before.
"""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.mcp.mcp_server import McpServer, Sampling

__all__ = ["McpServer", "Sampling"]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.mcp.artifacts import Artifacts as Artifacts
    from glidepath.mcp.definitions import digest_of as digest_of
    from glidepath.mcp.serve_agents import agent_server as agent_server

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__, definitions=("digest_of",), artifacts=("Artifacts",), serve_agents=("agent_server",)
    )
