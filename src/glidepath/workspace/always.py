"""What *always* covers: a simple command with the flags shown, or the files of one folder; never a whole tool.

A command is matched by its words and never as a string. Operators, substitution, redirection, globs, interpreters and
wrappers (sh, python, env, sudo, npx ...) are never covered.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from glidepath._wire import Value
from glidepath.run import call_line, escape_invisible
from glidepath.values import PendingCall
from glidepath.workspace.toolset import runs_commands, touches_one_file

_OPERATORS = frozenset(";&|<>()$`\\{}[]*?~!#\n\r")
_RUNNERS = frozenset(
    str.split(
        "sh bash dash zsh ksh fish csh tcsh ash busybox toybox perl ruby node nodejs deno bun php lua luajit tclsh "
        "wish java jshell osascript pwsh powershell cmd wsl env sudo doas su runuser pkexec nohup nice ionice chrt "
        "taskset timeout time xargs parallel find fd ssh mosh docker podman nerdctl kubectl npx pnpx bunx uvx pipx "
        "corepack eval exec command builtin source . watch setsid stdbuf strace ltrace gdb lldb script expect chroot "
        "unshare nsenter flock systemd-run at batch crontab awk gawk mawk nawk sed ed ex vi vim nvim emacs nano "
        "less more man tmux screen xterm rscript r octave julia ghci irb groovy scala kotlin tsx ts-node"
    )
)
_VERSIONED = ("python", "pypy", "ruby", "perl", "php", "lua", "node", "guile", "tclsh")
_WITH_SUBCOMMANDS = frozenset(
    str.split(
        "git hg svn npm pnpm yarn cargo go pip pip3 uv poetry hatch make just rake bundle gem composer mvn gradle "
        "dotnet gh glab terraform brew apt apt-get dnf systemctl"
    )
)
_EXACT = frozenset(  # subcommands whose words name code to fetch or to run, or a place to send things to
    str.split(
        "install i add ci exec x dlx run run-script rx tool push pull fetch clone remote config submodule publish "
        "bisect rebase filter-branch difftool mergetool daemon send-email api apply destroy get"
    )
)
_FREE_ADD = frozenset({"git", "hg", "svn"})  # whose `add` names files


class Scope(Value, frozen=True, kw_only=True):
    """What one *always* covers."""

    tool: str
    kind: str
    words: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
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
        if not self._scopes:
            return False
        found = scope_of(pending, tools)
        return found is not None and any(_is_covered(scope, found) for scope in self._scopes)


def scope_of(pending: PendingCall, tools: Iterable[Any]) -> Scope | None:
    """What *always* would cover after this call; None where there is no such answer."""
    if pending.form is not None or pending.origins or pending.inside:
        return None
    call = pending.call
    tool = next((one for one in tools if getattr(one, "name", None) == call.name), None)
    if tool is not None and runs_commands(tool):
        words = simple_words(call.arguments.get("command"))
        return None if words is None else _command(call.name, words)
    if tool is not None and touches_one_file(tool):
        return _file(call.name, call.arguments.get("path"))
    line = call_line(call.name, call.arguments)
    return Scope(tool=call.name, kind="exact", words=(pending.digest,), told=f"exactly {line}")


def simple_words(command: object) -> tuple[str, ...] | None:
    """The words of a command that does one thing; None for one that can do another thing than it seems to."""
    if not isinstance(command, str) or _OPERATORS & set(command) or escape_invisible(command) != command:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or "=" in words[0]:
        return None
    program = PurePosixPath(words[0]).name.lower().removesuffix(".exe")
    runs_others = program in _RUNNERS or program.rstrip("0123456789.") in _VERSIONED
    return None if runs_others or "/" in words[0] else tuple(words)


def _command(tool: str, words: tuple[str, ...]) -> Scope:
    program, *rest = words
    flags = tuple(sorted({word for word in rest if word.startswith("-")}))
    plain = [word for word in rest if not word.startswith("-")]
    open_ended = program in _WITH_SUBCOMMANDS and bool(rest) and not rest[0].startswith("-") and _is_open(program, rest)
    if not open_ended:
        return Scope(tool=tool, kind="exact", words=words, told=f"exactly {tool}: {shlex.join(words)}")
    # A word behind a flag may be the flag's value, so that it is as much a part of it as the flag.
    values = tuple(f"{one} {two}" for one, two in pairwise(rest) if one.startswith("-") and two in plain)
    said = f"with no flags but {', '.join(flags)}" if flags else "without flags"
    told = f"{tool}: {program} {rest[0]} and any words after it, {said}"
    return Scope(tool=tool, kind="command", words=(program, rest[0]), flags=(*flags, *values), told=told)


def _is_open(program: str, rest: list[str]) -> bool:
    return rest[0] not in _EXACT or (rest[0] == "add" and program in _FREE_ADD)


def _file(tool: str, path: object) -> Scope | None:
    if not isinstance(path, str) or escape_invisible(path) != path:
        return None
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts or not place.name:
        return None
    folder = "the workspace itself" if str(place.parent) == "." else f"the folder {place.parent}"
    told = f"{tool}: files directly in {folder}"
    return Scope(tool=tool, kind="file", words=(str(place.parent),), told=told)


def _is_covered(scope: Scope, asked: Scope) -> bool:
    if (scope.tool, scope.kind, scope.words) != (asked.tool, asked.kind, asked.words):
        return False
    return set(asked.flags) <= set(scope.flags)
