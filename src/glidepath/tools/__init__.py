"""Tools: how a function becomes something a model can call, how a call is checked and run, and what it gives back."""

from glidepath.tools.asking import CallsMade, Continuation, NeedsCalls, NeedsInput, ProgramSession
from glidepath.tools.binding import ArgumentsError
from glidepath.tools.context import ToolContext
from glidepath.tools.definition import Tool, tool
from glidepath.tools.results import ToolResult
from glidepath.tools.transactions import StoreConnection

__all__ = [
    "ArgumentsError",
    "CallsMade",
    "Continuation",
    "NeedsCalls",
    "NeedsInput",
    "ProgramSession",
    "StoreConnection",
    "Tool",
    "ToolContext",
    "ToolResult",
    "tool",
]
