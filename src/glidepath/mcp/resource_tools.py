"""A server's resources as two tools, and its prompts as texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value
from glidepath.mcp.definitions import clean_text, make_legal_name
from glidepath.mcp.tool_answers import KEPT, resource_blocks
from glidepath.tools import SourceError, Tool, ToolContext, ToolResult
from glidepath.values import TextBlock, pluralize

if TYPE_CHECKING:
    from mcp import Client

    from glidepath.mcp.mcp_tool_source import McpToolSource

__all__ = ["OfferedPrompt", "list_prompts", "prompt_text", "resource_tools"]

MOST_LISTED = 200
MOST_PAGES = 10


class OfferedPrompt(Value, frozen=True, kw_only=True):
    """A prompt that a server offers: its name, what it is for, and the names of its arguments, those needed first."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


async def _never_called(**_: object) -> None:
    """Never called: `answering` gives the body."""


def resource_tools(supply: McpToolSource) -> tuple[Tool, ...]:
    """Tools that list and read what a server has."""
    name = make_legal_name(supply.link.name)
    lister = Tool(
        name=f"{name}_list_resources",
        description=f"List the resources (documents, files, records) of the server {supply.link.name}.",
        parameters={"type": "object", "properties": {}},
        fn=_never_called,
        read_only=True,
        untrusted=not supply.link.trusted,
    )
    reader = Tool(
        name=f"{name}_read_resource",
        description=f"Read one resource of the server {supply.link.name} by its address.",
        parameters={
            "type": "object",
            "properties": {"uri": {"type": "string", "description": "The resource's address, as listed."}},
            "required": ["uri"],
        },
        fn=_never_called,
        read_only=True,
        untrusted=not supply.link.trusted,
    )

    async def list_resources(_values: dict[str, Any], _context: ToolContext | None) -> ToolResult:
        return ToolResult(await _describe_resources(supply))

    async def read(values: dict[str, Any], _context: ToolContext | None) -> ToolResult:
        return await _read(supply, values["uri"])

    return lister.answering(list_resources), reader.answering(read)


async def _describe_resources(supply: McpToolSource) -> str:
    async def send(client: Client) -> tuple[list[Any], list[Any]]:
        found: list[Any] = []
        cursor = None
        for _ in range(MOST_PAGES):
            page = await client.list_resources(cursor=cursor, cache_mode="bypass")
            found += page.resources
            cursor = page.next_cursor
            if not cursor or len(found) >= MOST_LISTED:
                break
        try:
            templates = (await client.list_resource_templates(cache_mode="bypass")).resource_templates
        except Exception:  # a server need not have any
            templates = []
        return found, templates

    resources, templates = await supply.owner.request(send)
    lines = [_line(one.uri, one) for one in resources[:MOST_LISTED]]
    lines += [
        f"{_line(one.uri_template, one)} (a template: fill in what is in braces)" for one in templates[:MOST_LISTED]
    ]
    return "\n".join(lines) or "This server has no resources."


def _line(uri: object, one: Any) -> str:
    about = [clean_text(str(part), 200) for part in (one.title or one.name, one.mime_type, one.description) if part]
    return f"{clean_text(str(uri), 500)}  {'; '.join(about)}"


async def _read(supply: McpToolSource, uri: str) -> ToolResult:
    async def send(client: Client) -> Any:
        return await client.session.read_resource(uri, allow_input_required=True)

    answer = await supply.owner.request(send)
    if getattr(answer, "result_type", None) == "input_required":
        raise SourceError(f"MCP server {supply.link.name!r} asks for input before it shows {uri!r:.100}")
    blocks = [block for one in answer.contents[:50] for block in resource_blocks(one, supply.artifacts)]
    total = sum(len(block.text) for block in blocks if isinstance(block, TextBlock))
    if total > KEPT:
        whole = "\n".join([block.text for block in blocks if isinstance(block, TextBlock)])
        note = supply.artifacts.keep(whole.encode(), "txt", f"the whole text, {pluralize(total, 'character')}")
        return ToolResult(f"{whole[: KEPT - len(note) - 1]}\n{note}")
    return ToolResult(tuple(blocks))


async def list_prompts(supply: McpToolSource) -> tuple[OfferedPrompt, ...]:
    """The prompts of a server; none when it has none."""
    listing = await supply.owner.await_listing()
    if not listing.prompts:
        return ()

    async def send(client: Client) -> Any:
        return (await client.list_prompts(cache_mode="bypass")).prompts

    return tuple(
        OfferedPrompt(
            name=one.name,
            description=clean_text(one.description or one.title or "", 300),
            arguments=tuple(argument.name for argument in one.arguments or ()),
            required=tuple(argument.name for argument in one.arguments or () if argument.required),
        )
        for one in (await supply.owner.request(send))[:MOST_LISTED]
    )


async def prompt_text(supply: McpToolSource, name: str, arguments: Mapping[str, str]) -> str:
    """What a prompt says, as one text to send; raises `SourceError`."""
    await supply.owner.await_listing()

    async def send(client: Client) -> Any:
        return await client.session.get_prompt(name, dict(arguments), allow_input_required=True)

    answer = await supply.owner.request(send)
    if getattr(answer, "result_type", None) == "input_required":
        raise SourceError(f"MCP server {supply.link.name!r} asks for input before it gives the prompt {name!r:.80}")
    texts = [getattr(message.content, "text", "") for message in answer.messages]
    return "\n\n".join(text for text in texts if text)
