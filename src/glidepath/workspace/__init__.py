"""Tools for work on a folder: read, list, grep, write, edit, and a shell in a sandbox.

`workspace_tools(Workspace("."), ["read", "grep"])` gives the tools by name. None of the file tools can reach outside
the folder, whatever path a model asks for, and none writes files that something else would run or believe.
"""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.workspace.root import Workspace
from glidepath.workspace.sandbox import Bubblewrap
from glidepath.workspace.shell import ShellLimits
from glidepath.workspace.toolset import runs_in_sandbox, workspace_tools

__all__ = ["Bubblewrap", "ShellLimits", "Workspace", "runs_in_sandbox", "workspace_tools"]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.workspace.sandbox import try_sandbox as try_sandbox
    from glidepath.workspace.seccomp import MACHINES as MACHINES, filter_program as filter_program
    from glidepath.workspace.secret_files import SecretFiles as SecretFiles
    from glidepath.workspace.shell import run_command as run_command
    from glidepath.workspace.spill import SpillResults as SpillResults
    from glidepath.workspace.toolset import TOOL_NAMES as TOOL_NAMES

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(  # noqa: S604 - a module of this name
        __name__,
        sandbox=("try_sandbox",),
        seccomp=("MACHINES", "filter_program"),
        secret_files=("SecretFiles",),
        shell=("run_command",),
        spill=("SpillResults",),
        toolset=("TOOL_NAMES",),
    )
