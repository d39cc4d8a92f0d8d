"""Tools: how a function becomes something a model can call, how a call is checked and run, and what it gives back."""

from typing import TYPE_CHECKING

from glidepath.stability import withdrawn
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

if not TYPE_CHECKING:  # a checker knows only what is public
    __getattr__ = withdrawn(
        __name__,
        advice=("closest", "malformed_arguments_message", "unknown_tool_message"),
        binding=("Bound",),
        context=("RecordingContext", "ToolHost"),
        options=("ToolOptions",),
        output=("Output", "OutputError"),
        results=("as_result", "trim_result"),
        text=("trim",),
    )
