"""What *always* covers: a simple command with the flags shown, or the files of one folder; never a whole tool.

It makes a pattern of the call and matches it as a rule is matched: see `patterns`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from glob import escape
from pathlib import PurePosixPath
from typing import Any

from glidepath._wire import Value
from glidepath.guards.approvals.commands import fetches_code, has_subcommands, list_pairs, simple_words
from glidepath.guards.approvals.patterns import CommandPattern, PathPattern, list_paths
from glidepath.run import call_line, escape_invisible
from glidepath.tools.workspace_marks import root_of, runs_commands, touches_one_file
from glidepath.values import PendingCall


class Scope(Value, frozen=True, kw_only=True):
    """What one *always* covers."""

    tool: str
    pattern: CommandPattern | PathPattern | None = None
    digest: str = ""
    """Of the whole call, where only this one is covered."""
    told: str = ""
    """What a person is shown before they confirm it."""


class AlwaysAllowed:
    """The scopes a person has allowed in one run or conversation."""

    def __init__(self) -> None:
        self._scopes: list[Scope] = []

    def add(self, scope: Scope) -> None:
        """Allow this from now on."""
        self._scopes.append(scope)

    def is_covered(self, pending: PendingCall, tools: Iterable[Any]) -> bool:
        """True for a call that a person has allowed before. What a gate asks about because of its origin never is."""
        if not self._scopes or not _may_be_remembered(pending):
            return False
        tool = _find_tool(pending, tools)
        return any(_is_covered(scope, pending, tool) for scope in self._scopes)


def scope_of(pending: PendingCall, tools: Iterable[Any]) -> Scope | None:
    """What *always* would cover after this call; None where there is no such answer."""
    if not _may_be_remembered(pending):
        return None
    call, tool = pending.call, _find_tool(pending, tools)
    if runs_commands(tool):
        words = simple_words(call.arguments.get("command"))
        return None if words is None else _scope_of_command(call.name, words)
    if touches_one_file(tool):
        return _scope_of_file(call.name, call.arguments.get("path"))
    line = call_line(call.name, call.arguments)
    return Scope(tool=call.name, digest=pending.digest, told=f"exactly {line}")


def _may_be_remembered(pending: PendingCall) -> bool:
    return pending.form is None and not pending.origins and not pending.inside


def _find_tool(pending: PendingCall, tools: Iterable[Any]) -> Any:
    return next((one for one in tools if getattr(one, "name", None) == pending.call.name), None)


def _scope_of_command(tool: str, words: tuple[str, ...]) -> Scope:
    program, *rest = words
    if not has_subcommands(words) or fetches_code(words):
        return Scope(tool=tool, pattern=CommandPattern(words), told=f"exactly {tool}: {shlex.join(words)}")
    pairs = list_pairs(words)
    flags = tuple(sorted({word for word in rest if word.startswith("-")}))
    bare = [flag for flag in flags if flag not in dict(pairs)]
    shown = (*[word for pair in pairs for word in pair], *bare)
    said = f"with {' '.join(shown)} and no other flags" if flags else "without flags"
    told = f"{tool}: {program} {rest[0]} and any words after it, {said}"
    return Scope(tool=tool, pattern=CommandPattern((program, rest[0], "*", *shown)), told=told)


def _scope_of_file(tool: str, path: object) -> Scope | None:
    if not isinstance(path, str) or escape_invisible(path) != path:
        return None
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts or not place.name:
        return None
    folder = "the workspace itself" if str(place.parent) == "." else f"the folder {place.parent}"
    told = f"{tool}: files directly in {folder}"
    return Scope(tool=tool, pattern=PathPattern((*map(escape, place.parent.parts), "*")), told=told)


def _is_covered(scope: Scope, pending: PendingCall, tool: object) -> bool:
    call = pending.call
    if scope.tool != call.name:
        return False
    if isinstance(scope.pattern, CommandPattern):
        words = simple_words(call.arguments.get("command")) if runs_commands(tool) else None
        return words is not None and scope.pattern.covers(words)
    if isinstance(scope.pattern, PathPattern):
        paths = list_paths(call.arguments.get("path"), root_of(tool)) if touches_one_file(tool) else None
        return scope.pattern.covers(paths)
    return scope.digest == pending.digest
