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
    from glidepath.mcp.definitions import (
        clean_text as clean_text,
        digest_of as digest_of,
        make_legal_name as make_legal_name,
        make_legal_schema as make_legal_schema,
    )
    from glidepath.mcp.elicitation import (
        Question as Question,
        combine_questions as combine_questions,
        fill_defaults as fill_defaults,
        find_secret_field as find_secret_field,
        question_of as question_of,
    )
    from glidepath.mcp.resource_tools import list_prompts as list_prompts, prompt_text as prompt_text
    from glidepath.mcp.schema_check import make_schema_type as make_schema_type, schema_problems as schema_problems
    from glidepath.mcp.serve_agents import agent_server as agent_server
    from glidepath.mcp.tool_answers import as_tool_result as as_tool_result

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        artifacts=("Artifacts",),
        definitions=("clean_text", "digest_of", "make_legal_name", "make_legal_schema"),
        elicitation=("Question", "combine_questions", "fill_defaults", "find_secret_field", "question_of"),
        resource_tools=("list_prompts", "prompt_text"),
        schema_check=("make_schema_type", "schema_problems"),
        serve_agents=("agent_server",),
        tool_answers=("as_tool_result",),
    )
