"""Tools for work on a folder: read, list, grep, write, edit, and a shell in a sandbox.

`workspace_tools(Workspace("."), ["read", "grep"])` gives the tools by name. None of the file tools can reach outside
the folder, whatever path a model asks for, and none writes files that something else would run or believe.
"""

from glidepath.workspace.root import Workspace
from glidepath.workspace.sandbox import Bubblewrap, find_sandbox
from glidepath.workspace.shell import ShellLimits
from glidepath.workspace.toolset import TOOL_NAMES, runs_in_sandbox, workspace_tools

Sandbox = Bubblewrap
"""The name it had before there were policies."""

__all__ = [
    "TOOL_NAMES",
    "Bubblewrap",
    "Sandbox",
    "ShellLimits",
    "Workspace",
    "find_sandbox",
    "runs_in_sandbox",
    "workspace_tools",
]
