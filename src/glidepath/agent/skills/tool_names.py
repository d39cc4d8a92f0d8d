"""What other agents call the tools of a workspace, in the `allowed-tools` and `tools` of their files."""

from __future__ import annotations

from typing import NamedTuple

_SAME = {
    "Read": "read",
    "NotebookRead": "read",
    "Grep": "grep",
    "Glob": "list",
    "LS": "list",
    "Write": "write",
    "Edit": "edit",
    "MultiEdit": "edit",
    "Bash": "shell",
}


class NamedTools(NamedTuple):
    """A list of tools from a file, as names of ours."""

    names: tuple[str, ...]
    remarks: tuple[str, ...]
    """What in the list has no effect, and why."""


def translate_tools(given: tuple[str, ...], field: str) -> NamedTools:
    """The tools that a file names.

    A name with a pattern, such as `Bash(git:*)`, names none: nobody here can tell which commands fit, so those calls
    are asked about like any other.
    """
    names: list[str] = []
    remarks = []
    for one in given:
        name, sign, _ = one.partition("(")
        if sign:
            remarks.append(f"{field}: {one[:80]!r} has no effect here, because patterns are not understood")
        elif name == "*":
            remarks.append(f"{field}: '*' has no effect here; leave the field out to name every tool")
        else:
            names.append(_SAME.get(name, name))
    return NamedTools(tuple(dict.fromkeys(names)), tuple(remarks))
