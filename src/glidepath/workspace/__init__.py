"""Tools for work on a folder: read, list, grep, write, edit, and a shell in a sandbox.

`workspace_tools(Workspace("."), ["read", "grep"])` gives the tools by name. None of the file tools can reach outside
the folder, whatever path a model asks for, and none writes files that something else would run or believe.
"""

from typing import TYPE_CHECKING

from glidepath.stability import withdrawn
from glidepath.workspace.root import Workspace
from glidepath.workspace.sandbox import Bubblewrap
from glidepath.workspace.shell import ShellLimits
from glidepath.workspace.toolset import runs_in_sandbox, workspace_tools

Sandbox = Bubblewrap
"""The name it had before there were policies."""

__all__ = ["Bubblewrap", "Sandbox", "ShellLimits", "Workspace", "runs_in_sandbox", "workspace_tools"]

if not TYPE_CHECKING:  # a checker knows only what is public
    __getattr__ = withdrawn(__name__, sandbox=("find_sandbox",), toolset=("TOOL_NAMES",))
