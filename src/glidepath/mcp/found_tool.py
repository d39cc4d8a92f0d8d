"""Turns a server's listing into tools for an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath._wire import Record
from glidepath.mcp.definitions import clean_text, digest_of, make_legal_name, make_legal_schema, plain_definition
from glidepath.mcp.schema_check import ServerBinder
from glidepath.tools import Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from mcp.types import Tool as Definition

    from glidepath.mcp.mcp_tool_source import McpToolSource
    from glidepath.mcp.server_owner import Listing


class Found(Record, eq=False):
    """One tool of a server: the agent's, the server's name for it, and what its definition comes to."""

    tool: Tool
    wire_name: str
    digest: str
    definition: dict[str, Any]
    withdrawn: str | None = None
    """Why it may not be called now."""


def make_tools(supply: McpToolSource, listing: Listing) -> tuple[dict[str, Found], list[str]]:
    """The tools of a listing by their names, and a sentence for each that cannot be offered."""
    found: dict[str, Found] = {}
    problems: list[str] = []
    for definition in listing.tools:
        wrong = f"MCP server {supply.link.name!r}: tool {clean_text(definition.name, 80)!r} is left out: "
        name = make_legal_name(definition.name)
        if name in found:
            problems.append(f"{wrong}there is another one of that name; the server must name each tool once")
            continue
        schema, problem = make_legal_schema(definition.input_schema)
        if problem is not None:
            problems.append(f"{wrong}{problem}; the server must correct it, or leave the tool out with only(...)")
            continue
        plain = plain_definition(definition)
        one = Found(tool=_NOT_YET, wire_name=definition.name, digest=digest_of(plain), definition=plain)
        one.tool = _make_tool(supply, one, name, schema, definition)
        found[name] = one
    return found, problems


def require_approval(tool: Tool, reason: str) -> Tool:
    """The same tool, with every call approved by a person."""
    other = object.__new__(Tool)
    other.__dict__.update(tool.__dict__, requires_approval=True, approval_is_firm=True, approval_reason=reason)
    return other


async def _never_called(**_: object) -> None:
    """Never called: the tool's body is its server."""


_NOT_YET = Tool(name="placeholder", description="", parameters={"type": "object"}, fn=_never_called)


def _make_tool(supply: McpToolSource, found: Found, name: str, schema: dict[str, Any], definition: Definition) -> Tool:
    hints = definition.annotations if supply.link.trusted else None
    reads = bool(hints is not None and hints.read_only_hint)
    said = definition.description or definition.title or ""
    tool = Tool(
        name=name,
        description=clean_text(said),
        parameters=schema,
        fn=_never_called,
        read_only=reads,
        idempotent=reads or bool(hints is not None and hints.idempotent_hint),
        consequential=bool(hints is not None and hints.destructive_hint and not reads),
        untrusted=not supply.link.trusted,
        timeout=supply.link.call_timeout,
    )

    async def call(values: dict[str, Any], context: ToolContext | None) -> ToolResult:
        return await supply.call(found, values, context)

    tool = tool.checked_by(ServerBinder(name, schema, found.definition.get("inputSchema", {})))
    tool = tool.answering(call)
    return tool.asking_back() if supply.link.elicitation else tool
