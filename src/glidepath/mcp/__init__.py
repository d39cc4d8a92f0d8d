"""MCP: tools from any server that speaks the Model Context Protocol, governed like our own.

`McpServer` goes in `tools=[...]`. The `mcp` SDK is imported when a server is first started, not before.
"""

from glidepath.mcp.mcp_server import McpServer, Sampling

__all__ = ["McpServer", "Sampling"]
