"""Tools that run at a vendor, as each vendor writes them, and why one of them does not have one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from glidepath.models.thinkers import LEVELED
from glidepath.spi import HOSTED_USES, CodeExecution, HostedTool, ModelRequest, WebFetch, WebSearch

_OLD_CLAUDE = re.compile(r"claude-2|claude-instant|claude-3-(opus|sonnet|haiku)|claude-3-5-sonnet-20240620")
_OLD_GEMINI = re.compile(r"(models/)?gemini-1")
_NO_FETCH = re.compile(r"(models/)?gemini-2\.0")
UNTRUSTED = frozenset({"web_search", "web_fetch", "mcp", "file_search"})
"""Tools of a vendor that read what nobody here has written."""


def hosted_to_declare(request: ModelRequest) -> tuple[HostedTool, ...]:
    """The hosted tools to declare: those that may be used, or all of them where no tool at all may be called.

    A request that allows nothing says so by its tool choice, which keeps the prefix of the cache.
    """
    if request.tools or request.hosted_tools:
        return request.hosted_tools
    return request.defined_hosted_tools


def is_closed(request: ModelRequest) -> bool:
    """Whether hosted tools are declared and none may be used."""
    return bool(request.defined_hosted_tools) and not request.hosted_tools


# --- Anthropic ------------------------------------------------------------------------------------------------


def anthropic_hosted(tool: HostedTool) -> dict[str, Any]:
    """A hosted tool as Anthropic takes it."""
    if isinstance(tool, CodeExecution):
        return {"type": "code_execution_20250825", "name": "code_execution"}
    kind = "web_search_20250305" if isinstance(tool, WebSearch) else "web_fetch_20250910"
    made: dict[str, Any] = {"type": kind, "name": tool.NAME, "max_uses": tool.max_uses or HOSTED_USES}
    if isinstance(tool, WebFetch):
        made["max_content_tokens"] = tool.max_content_tokens
    return {**made, **_domains(tool)}


def explain_no_anthropic(host: str, name: str, tool: HostedTool) -> str | None:
    """Why a Claude model does not have a hosted tool."""
    if _OLD_CLAUDE.match(name):
        return "this model is older than the tools of its provider"
    if host == "anthropic" or (host == "vertex" and isinstance(tool, WebSearch)):
        return None
    return f"{host} does not offer it for Claude"


# --- OpenAI ---------------------------------------------------------------------------------------------------


def openai_hosted(tool: HostedTool) -> dict[str, Any]:
    """A hosted tool as the Responses endpoint takes it."""
    if isinstance(tool, CodeExecution):
        return {"type": "code_interpreter", "container": {"type": "auto"}}
    domains = {"filters": {"allowed_domains": list(tool.allowed_domains)}} if tool.allowed_domains else {}
    return {"type": "web_search", **domains}


def count_openai_uses(tools: Sequence[HostedTool]) -> int:
    """Calls of hosted tools in one response: the endpoint has one limit for all of them."""
    return sum(tool.max_uses or HOSTED_USES for tool in tools)


def explain_no_openai(tool: HostedTool) -> str | None:
    """Why the Responses endpoint does not have a hosted tool."""
    if isinstance(tool, WebFetch):
        return "OpenAI has no tool that fetches a page: WebSearch opens the pages it finds"
    if isinstance(tool, WebSearch) and tool.blocked_domains:
        return "OpenAI takes allowed_domains only, not blocked_domains"
    return None


# --- Gemini ---------------------------------------------------------------------------------------------------


def gemini_hosted(tool: HostedTool) -> dict[str, Any]:
    """A hosted tool as Gemini takes it."""
    names = {WebSearch: "googleSearch", WebFetch: "urlContext", CodeExecution: "codeExecution"}
    return {names[type(tool)]: {}}


def explain_no_gemini(name: str, tool: HostedTool, others: Sequence[object], *, vertex: bool) -> str | None:
    """Why a Gemini model does not have a hosted tool, or not beside these other tools."""
    if _OLD_GEMINI.match(name) or (isinstance(tool, WebFetch) and _NO_FETCH.match(name)):
        return "this model is older than that tool"
    if tool.max_uses is not None:
        return f"Gemini cannot be held to max_uses: pass {type(tool).__name__}() without it"
    if not isinstance(tool, CodeExecution) and (tool.allowed_domains or tool.blocked_domains):
        return "Gemini cannot be held to domains"
    if isinstance(tool, WebFetch) and tool != WebFetch():
        return "Gemini cannot be held to max_content_tokens"
    if others and (vertex or LEVELED.match(name) is None):
        where = "on Vertex AI" if vertex else "before Gemini 3"
        return f"{where} a request has either hosted tools or tools of yours"
    return None


def _domains(tool: WebSearch | WebFetch) -> dict[str, list[str]]:
    given = {"allowed_domains": tool.allowed_domains, "blocked_domains": tool.blocked_domains}
    return {name: list(domains) for name, domains in given.items() if domains}
