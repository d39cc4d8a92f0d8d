"""Tools: how a function becomes something a model can call, how a call is checked and run, and what it gives back."""

from glidepath.tools.advice import closest, malformed_arguments_message, unknown_tool_message
from glidepath.tools.asking import CallsMade, Continuation, NeedsCalls, NeedsInput, ProgramSession
from glidepath.tools.binding import ArgumentsError, Bound
from glidepath.tools.context import RecordingContext, ToolContext, ToolHost
from glidepath.tools.definition import Tool, tool
from glidepath.tools.options import ToolOptions
from glidepath.tools.output import Output, OutputError
from glidepath.tools.results import ToolResult, as_result, trim_result
from glidepath.tools.text import trim

__all__ = [
    "ArgumentsError",
    "Bound",
    "CallsMade",
    "Continuation",
    "NeedsCalls",
    "NeedsInput",
    "Output",
    "OutputError",
    "ProgramSession",
    "RecordingContext",
    "Tool",
    "ToolContext",
    "ToolHost",
    "ToolOptions",
    "ToolResult",
    "as_result",
    "closest",
    "malformed_arguments_message",
    "tool",
    "trim",
    "trim_result",
    "unknown_tool_message",
]
