"""Tools: how a function becomes something a model can call, how a call is checked and run, and what it gives back."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
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

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.tools.advice import (
        explain_malformed_arguments as explain_malformed_arguments,
        find_closest as find_closest,
        unknown_tool_message as unknown_tool_message,
    )
    from glidepath.tools.asking import NeedsDecisions as NeedsDecisions
    from glidepath.tools.binding import SchemaBinder as SchemaBinder
    from glidepath.tools.docstrings import read_docstring as read_docstring
    from glidepath.tools.file_tree import (
        list_files_below as list_files_below,
        read_regular_file as read_regular_file,
    )
    from glidepath.tools.files import count_pages as count_pages, file_tokens as file_tokens
    from glidepath.tools.output import Output as Output, OutputError as OutputError
    from glidepath.tools.picture_size import (
        LEAST_PICTURE_TOKENS as LEAST_PICTURE_TOKENS,
        block_tokens as block_tokens,
        picture_bytes as picture_bytes,
        picture_tokens as picture_tokens,
        read_pixel_size as read_pixel_size,
    )
    from glidepath.tools.processes import Reference as Reference, run_in_process as run_in_process
    from glidepath.tools.quote_frames import QuoteFrame as QuoteFrame
    from glidepath.tools.results import (
        RecordedResult as RecordedResult,
        as_result as as_result,
        trim_result as trim_result,
    )
    from glidepath.tools.sandbox.policy import Boxed as Boxed, Sandbox as Sandbox, SandboxError as SandboxError
    from glidepath.tools.sources import SourceError as SourceError, ToolSource as ToolSource, ToolSupply as ToolSupply
    from glidepath.tools.text import (
        clean as clean,
        clean_data as clean_data,
        fill_cut as fill_cut,
        shorten as shorten,
        trim as trim,
    )
    from glidepath.tools.threads import (
        ThreadWorker as ThreadWorker,
        run_in_thread as run_in_thread,
        workers_of as workers_of,
    )
    from glidepath.tools.token_estimate import (
        BYTES_PER_TOKEN as BYTES_PER_TOKEN,
        MESSAGE_TOKENS as MESSAGE_TOKENS,
        opaque_tokens as opaque_tokens,
        text_tokens as text_tokens,
    )

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        advice=("explain_malformed_arguments", "find_closest", "unknown_tool_message"),
        asking=("NeedsDecisions",),
        binding=("SchemaBinder",),
        docstrings=("read_docstring",),
        file_tree=("list_files_below", "read_regular_file"),
        files=("count_pages", "file_tokens"),
        output=("Output", "OutputError"),
        picture_size=("LEAST_PICTURE_TOKENS", "block_tokens", "picture_bytes", "picture_tokens", "read_pixel_size"),
        processes=("Reference", "run_in_process"),
        quote_frames=("QuoteFrame",),
        results=("RecordedResult", "as_result", "trim_result"),
        sources=("SourceError", "ToolSource", "ToolSupply"),
        text=("clean", "clean_data", "fill_cut", "shorten", "trim"),
        threads=("ThreadWorker", "run_in_thread", "workers_of"),
        token_estimate=("BYTES_PER_TOKEN", "MESSAGE_TOKENS", "opaque_tokens", "text_tokens"),
        **{"sandbox.policy": ("Boxed", "Sandbox", "SandboxError")},
    )
