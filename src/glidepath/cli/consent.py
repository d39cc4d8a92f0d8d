"""A person's one-time yes for a folder: shows what its configuration wants, and asks."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from textwrap import fill
from typing import Any, TextIO

from glidepath.cli.folder import CONFIGURATION, Folder
from glidepath.cli.narrow import beyond, wish
from glidepath.cli.shown import folded, quoted, revealed
from glidepath.cli.trust import is_trusted, record_of, remember
from glidepath.cli.world import World, screen_size
from glidepath.errors import ConfigurationError

_WIDE, _INDENT, _LONG = 80, " " * 6, 1000


def admit(
    folder: Folder, values: Mapping[str, Any], world: World, *, ask: bool, only: Collection[str]
) -> tuple[bool, list[str]]:
    """Whether the folder is trusted, and which values of its configuration file are not to be used.

    A person is asked when a value in `only` needs trust, there is a terminal, and `ask` is true. Otherwise one line
    says what is ignored.
    """
    wanted = beyond(values, folder.path)
    if not wanted or is_trusted(folder):
        return is_trusted(folder), []
    missed = [key for key in wanted if key in only]
    if not missed:
        return False, wanted
    stream = somebody(world) if ask and not folder.unread else None
    if stream is None:
        world.note(_ignored(folder, missed))
    elif agrees(folder, {key: values[key] for key in wanted}, stream, world):
        keep(folder, world)
        return True, []
    else:
        world.note(f"Not trusted: continuing without {_and(missed)} from {_name(folder)}.")
    return False, wanted


def somebody(world: World) -> TextIO | None:
    """Where a person can be asked; None when nobody types, or nobody would see the question."""
    if not world.is_terminal(world.stdin):
        return None
    return next((stream for stream in (world.stderr, world.stdout) if world.is_terminal(stream)), None)


def listing(folder: Folder, wanted: Mapping[str, Any], width: int = _WIDE) -> str:
    """What is asked about: every value, in full, and every other file that the answer covers."""
    lines = [f"Folder: {revealed(str(folder.path))}"]
    known = record_of(folder.path)
    if known is not None and known.digest != folder.digest:
        lines.append(f"You trusted it on {revealed(known.when)}; its files have changed since.")
    if wanted:
        lines.append(f"Its {_name(folder)} sets more than an untrusted file may:")
        wishes = [(key, *wish(key, value, folder.path)) for key, value in wanted.items()]
        for key, text, shown in sorted(wishes, key=lambda one: len(one[2]) < _LONG):  # what is long scrolls away
            lines += [_wrapped(f"  - {key}: {text}", width), folded(shown, width, _INDENT)]
    lines += _servers_of(folder, width)
    others = [name for name in folder.files if name not in CONFIGURATION or name in folder.links]
    if others:
        lines.append("Trust also covers these files:")
        lines += [f"  - {_file(folder, name)}" for name in others]
    return "\n".join(lines)


def _servers_of(folder: Folder, width: int) -> list[str]:
    """What `.mcp.json` would start or contact, in full."""
    data = folder.files.get(".mcp.json")
    if data is None:
        return []
    import json

    try:
        said = json.loads(data)
        servers = said.get("mcpServers", said.get("servers", {}))
        pairs = [(name, one) for name, one in servers.items() if isinstance(one, dict)]
    except (ValueError, AttributeError, RecursionError):
        return ["Its .mcp.json cannot be read."]
    lines = ["Its .mcp.json starts these programs, or contacts these addresses, whenever an agent runs here:"]
    for name, one in pairs:
        what = one.get("url") or [one.get("command"), *(one.get("args") or [])]
        lines += [f"  - {revealed(str(name))}:", folded(quoted(what), width, _INDENT)]
    return lines


def agrees(folder: Folder, wanted: Mapping[str, Any], stream: TextIO, world: World) -> bool:
    """Show what the folder wants and ask; only a typed yes is a yes. Ctrl-C raises KeyboardInterrupt."""
    width = screen_size(stream)[0]
    stream.write(
        f"\n{listing(folder, wanted, width)}\n"
        "Answer yes only if you know where these files come from.\n"
        "You will be asked again when one of them changes.\n"
    )
    stream.flush()
    world.forget_typed()
    what = f" ({_and(list(wanted))})" if wanted else ""
    stream.write(_wrapped(f"Trust this folder{what}? [y/N]", width) + " ")
    stream.flush()
    try:
        answer = _line(world)
    except KeyboardInterrupt:
        stream.write("\n")
        raise
    if not answer.endswith("\n"):
        stream.write("\n")
    return answer.strip().lower() in ("y", "yes")


def keep(folder: Folder, world: World) -> bool:
    """Record the yes; when that fails it counts for this command only, and says so."""
    try:
        remember(folder)
    except (OSError, ConfigurationError) as error:
        world.note(f"Your answer cannot be kept, so you will be asked again: {error}")
        return False
    return True


def _ignored(folder: Folder, missed: Sequence[str]) -> str:
    name = _name(folder)
    text = f"glidepath: this folder is not trusted, so {name} cannot set {_and(missed)}"
    if folder.unread:
        why = "; ".join(f"{revealed(file)} {reason}" for file, reason in folder.unread.items())
        return f"{text}. It cannot be trusted: {why}. To allow it anyway, pass --config {name}"
    return f"{text}. To allow it, run `glidepath trust` or pass --config {name}"


def _name(folder: Folder) -> str:
    return next((name for name in CONFIGURATION if name in folder.files), CONFIGURATION[0])


def _file(folder: Folder, name: str) -> str:
    lead = f" -> {revealed(folder.links[name])}" if name in folder.links else ""
    return f"{revealed(name)}{lead} ({len(folder.files[name]):,} bytes)"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _wrapped(text: str, width: int) -> str:
    """A text of ours, wrapped to the terminal's width."""
    return fill(text, max(width - 1, 20), subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _line(world: World) -> str:
    """One line from the terminal, past what Python may have buffered; empty at the end of the input."""
    try:
        descriptor = world.stdin.fileno()
    except (OSError, AttributeError):
        return world.stdin.readline()
    return os.read(descriptor, 65_536).decode(errors="replace")
