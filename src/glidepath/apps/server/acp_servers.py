"""The MCP servers that an editor configures for a session, as sources of tools.

The editor's user has chosen them, so they are started. What they return is still untrusted, their hints are not
believed, and pins, limits and approvals hold as for every server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import acp

from glidepath.mcp import McpServer
from glidepath.values import ConfigurationError, install_line

__all__ = ["make_servers"]

MOST_SERVERS = 32
_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def make_servers(given: Sequence[Any], cwd: str) -> tuple[McpServer, ...]:
    """The servers of a session; raises an error of the protocol that names the one that cannot be used."""
    if len(given) > MOST_SERVERS:
        raise _refuse(f"a session may have {MOST_SERVERS} servers at most, not {len(given)}")
    if given and find_spec("mcp") is None:
        raise _refuse(f"MCP servers need mcp: {install_line('mcp')}")
    found: dict[str, McpServer] = {}
    for place, one in enumerate(given):
        name = _choose_name(str(one.name), found)
        try:
            found[name] = _make_server(name, one, cwd)
        except ConfigurationError as error:
            raise _refuse(f"server {place}, {one.name!r:.80}: {error}") from None
    return tuple(found.values())


def _make_server(name: str, given: Any, cwd: str) -> McpServer:
    kind = getattr(given, "type", None) or "stdio"
    if kind == "stdio":
        env = {one.name: one.value for one in given.env or ()}
        return McpServer(name, command=given.command, args=given.args or (), env=env, cwd=cwd)
    if kind == "http":
        return McpServer(name, url=given.url, headers={one.name: one.value for one in given.headers or ()})
    raise ConfigurationError(f"its transport {kind!r:.40} is not supported: use stdio or http")


def _choose_name(said: str, taken: dict[str, McpServer]) -> str:
    """A name that servers may have: what people read in an editor may have any characters."""
    name = _NAME.sub("_", said).strip("_")[:48] or "server"
    number = 2
    chosen = name
    while chosen in taken:
        chosen, number = f"{name}_{number}", number + 1
    return chosen


def _refuse(why: str) -> acp.RequestError:
    return acp.RequestError.invalid_params({"mcpServers": why})
