"""How the tools of a workspace are told from others: by a mark on their function."""

from __future__ import annotations

from typing import Any

ROOT_MARK = "_glidepath_root"
"""On the function of a file tool: the folder in which its paths begin."""
SANDBOX_MARK = "_glidepath_sandboxed"
"""On the function of a shell: whether its commands run in a sandbox."""


def root_of(tool: object) -> Any:
    """The folder in which the paths of a workspace's file tool begin; None for any other tool."""
    return getattr(getattr(tool, "fn", None), ROOT_MARK, None)


def runs_commands(tool: object) -> bool:
    """True for a shell of a workspace."""
    return hasattr(getattr(tool, "fn", None), SANDBOX_MARK)


def touches_one_file(tool: object) -> bool:
    """True for the `read`, `write` and `edit` of a workspace."""
    return root_of(tool) is not None and getattr(tool, "name", "") in ("read", "write", "edit")
