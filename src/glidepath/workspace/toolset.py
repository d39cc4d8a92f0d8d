"""The workspace tools: their names, descriptions for the model, and how each may run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from glidepath._wire import Meta, replace
from glidepath.tools import Sandbox, SandboxError, Tool, ToolContext, find_closest, tool
from glidepath.tools.workspace_marks import ROOT_MARK, SANDBOX_MARK
from glidepath.values import ConfigurationError
from glidepath.workspace import file_tools
from glidepath.workspace.root import Workspace
from glidepath.workspace.sandbox import Bubblewrap, try_sandbox
from glidepath.workspace.shell import NO_SANDBOX, SANDBOXED, ShellLimits, describe_sandbox, run_command

_LOOKS: Mapping[str, Any] = {"read_only": True, "untrusted": True, "idempotent": True}
_CHANGES: Mapping[str, Any] = {"exclusive": True, "consequential": True}
_FILE_TOOLS: Mapping[str, tuple[Callable[..., str], Mapping[str, Any]]] = {
    "read": (file_tools.read_file, _LOOKS),
    "list": (file_tools.list_folder, _LOOKS),
    "write": (file_tools.write_file, {**_CHANGES, "idempotent": True}),
    "edit": (file_tools.edit_file, _CHANGES),
}
TOOL_NAMES = ("read", "list", "grep", "write", "edit", "shell")
_GREP_SECONDS = 30.0
_SHELL_SECONDS = 120.0
_MOST_SHELL_SECONDS = 600.0

SandboxChoice = Literal["auto", "require", "off"]


def workspace_tools(
    workspace: Workspace,
    names: Iterable[str] = ("read", "list", "grep"),
    *,
    sandbox: SandboxChoice | Bubblewrap | Sandbox = "auto",
    shell_approval: bool = True,
    shell_home: str | Path | None = None,
    shell_limits: ShellLimits | None = None,
) -> tuple[Tool, ...]:
    """The tools of these names, bound to a workspace; by default those that change nothing.

    A person decides about every shell command, unless `shell_approval` is false; that needs a sandbox that works, or
    `sandbox="off"` to say that none is wanted. HOME of a command is its own empty folder, which is removed
    afterwards; `shell_home` names another one, which is read-only in the sandbox. With a
    `glidepath.sandbox.Sandbox` a command sees only what that names and the workspace, and reaches the hosts it lists.
    """
    made = []
    for name in names:
        if name == "shell":
            made.append(_shell(workspace, sandbox, shell_approval, shell_home, shell_limits))
        elif name == "grep":
            made.append(_grep(workspace))
        elif name in _FILE_TOOLS:
            function, options = _FILE_TOOLS[name]
            found = tool(_bind_workspace(function, workspace), name=name, **options)
            made.append(found.asking_back() if name == "read" else found)
        else:
            meant = find_closest(str(name), TOOL_NAMES)
            hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(TOOL_NAMES)}"
            raise ConfigurationError(f"there is no workspace tool {name!r:.80}; {hint}")
    return tuple(made)


def runs_in_sandbox(tool: Tool) -> bool:
    """True for a shell whose commands run in a sandbox; any other tool runs as you."""
    return getattr(tool.fn, SANDBOX_MARK, False) is True


def _bind_workspace(function: Callable[..., str], workspace: Workspace) -> Callable[..., str]:
    """The function for this workspace, marked with where its paths begin."""
    bound = partial(function, workspace)
    bound.__dict__[ROOT_MARK] = workspace.root
    return bound


def _grep(workspace: Workspace) -> Tool:
    from glidepath.tools.processes import Reference, run_in_process

    run = partial(run_in_process, Reference(file_tools.search))

    async def grep(
        context: ToolContext,
        pattern: Annotated[str, Meta(description="a regular expression")],
        path: str = ".",
        glob: Annotated[str | None, Meta(description="only files like this, such as *.py")] = None,
        ignore_case: bool = False,
    ) -> str:
        """Find the lines that match a pattern in a file, or in all files below a folder."""
        values = {"pattern": pattern, "path": path, "glob": glob, "ignore_case": ignore_case}
        return str(
            await run({"root": str(workspace.root), "secrets": list(workspace.secrets.patterns), **values}, context)
        )

    grep.__dict__[ROOT_MARK] = workspace.root
    return tool(grep, timeout=_GREP_SECONDS, **_LOOKS)


def _shell(
    workspace: Workspace,
    choice: SandboxChoice | Bubblewrap | Sandbox,
    approval: bool,
    home: str | Path | None,
    limits: ShellLimits | None,
) -> Tool:
    if not isinstance(choice, Bubblewrap | Sandbox) and choice not in ("auto", "require", "off"):
        raise ConfigurationError(f"sandbox must be 'auto', 'require', 'off' or a Sandbox, not {choice!r:.80}")
    sandbox: Bubblewrap | Sandbox | None = None
    missing = "it is switched off"
    if isinstance(choice, Sandbox):
        sandbox = _make_closed_shell(choice, workspace, home)
    elif isinstance(choice, Bubblewrap):
        sandbox = choice
    elif choice != "off":
        sandbox, missing = try_sandbox()
    if sandbox is None and choice != "off" and (choice == "require" or not approval):
        why = "sandbox='require'" if choice == "require" else "a shell without approval needs one"
        raise ConfigurationError(
            f"no sandbox works here and {why}: {missing}. Install bubblewrap 0.7 or newer and allow user namespaces, "
            "or say sandbox='off' to run commands without one"
        )
    place = _home(home)

    async def shell(
        command: str,
        seconds: Annotated[float | None, Meta(description="seconds it may take, at most 600; 120 unless given")] = None,
    ) -> str:
        limit = min(max(_SHELL_SECONDS if seconds is None else seconds, 0.1), _MOST_SHELL_SECONDS)
        return await run_command(workspace, sandbox, command, limit, home=place, limits=limits)

    shell.__dict__[SANDBOX_MARK] = sandbox is not None
    reason = f"{NO_SANDBOX} ({missing})" if sandbox is None else SANDBOXED
    if isinstance(sandbox, Sandbox):
        reason = sandbox.told()
    return tool(
        shell,
        description=describe_sandbox(sandbox),
        untrusted=True,
        requires_approval=approval,
        approval_reason=reason,
        **_CHANGES,
    )


def _make_closed_shell(policy: Sandbox, workspace: Workspace, home: str | Path | None) -> Sandbox:
    """The policy for commands in this workspace: only bubblewrap can protect its files from writes."""
    if home is not None:
        raise ConfigurationError("shell_home: with a Sandbox HOME is an empty folder; name the folder in read= instead")
    try:
        policy = replace(policy, by=("bubblewrap",), write=(*policy.writable, str(workspace.root)))
        policy.mechanism()
    except SandboxError as error:
        raise ConfigurationError(f"the shell's sandbox: {error}") from None
    return policy


def _home(home: str | Path | None) -> Path | None:
    if home is None:
        return None
    try:
        place = Path(home).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigurationError(f"shell_home: {home!r:.100} cannot be used: {error}") from None
    if not place.is_dir() or place == Path("/"):
        raise ConfigurationError(f"shell_home: {str(home)!r:.100} must be a folder other than /")
    return place
