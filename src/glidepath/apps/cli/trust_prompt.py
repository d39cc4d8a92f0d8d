"""A person's one-time yes for a folder: shows what its configuration wants, and asks."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, TextIO

from glidepath.apps.cli.cli_context import CliContext, screen_size
from glidepath.apps.cli.display_text import escape_invisible, fold_line, quote_value
from glidepath.apps.cli.folder import CONFIGURATION, Folder
from glidepath.apps.cli.trust import is_trusted, record_of, remember
from glidepath.apps.cli.untrusted_config import effect_of, find_exceeding_keys
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.apps.cli.server_grants import ServerRight

_WIDE, _INDENT, _LONG = 80, " " * 6, 1000
_KEPT_FREE, _FEWEST = 2, 5
_NOTHING: Mapping[str, Any] = {}
_YES = ("y", "yes")


def admit(
    folder: Folder,
    values: Mapping[str, Any],
    world: CliContext,
    *,
    ask: bool,
    only: Collection[str],
    own: Mapping[str, Any] = _NOTHING,
) -> tuple[bool, list[str]]:
    """Whether the folder is trusted, and which values of its configuration file are not to be used.

    A person is asked when a value in `only` needs trust, there is a terminal, and `ask` is true. Otherwise one line
    says what is ignored.
    """
    wanted = find_exceeding_keys(values, folder.path, own)
    if not wanted or is_trusted(folder):
        return is_trusted(folder), []
    missed = [key for key in wanted if key in only]
    if not missed:
        return False, wanted
    stream = find_person(world) if ask and not folder.unread else None
    if stream is None:
        world.note(_describe_ignored_settings(folder, missed))
    elif (yes := ask_for_trust(folder, {key: values[key] for key in wanted}, stream, world, own)) is not None:
        if keep(folder, world, yes) or not yes:
            return True, []
    else:
        world.note(f"Not trusted: continuing without {_join_with_and(missed)} from {_name(folder)}.")
    return False, wanted


def find_person(world: CliContext) -> TextIO | None:
    """Where a person can be asked; None when nobody types, or nobody would see the question."""
    if not world.is_terminal(world.stdin):
        return None
    return next((stream for stream in (world.stderr, world.stdout) if world.is_terminal(stream)), None)


def describe_folder(
    folder: Folder, wanted: Mapping[str, Any], width: int = _WIDE, own: Mapping[str, Any] = _NOTHING
) -> str:
    """What is asked about: every value, in full, and every other file that the answer covers."""
    lines = [f"Folder: {escape_invisible(str(folder.path))}"]
    known = record_of(folder.path)
    if known is not None and known.digest != folder.digest:
        lines.append(f"You trusted it on {escape_invisible(known.when)}; its files have changed since.")
    others = [name for name in folder.files if name not in CONFIGURATION or name in folder.links]
    if others:
        lines.append("Trust covers these files:")
        lines += [f"  - {_file(folder, name)}" for name in others]
    if wanted:
        lines.append(f"Its {_name(folder)} sets more than an untrusted file may:")
        wishes = [(key, *effect_of(key, value, folder.path, own)) for key, value in wanted.items()]
        for key, text, shown in sorted(wishes, key=lambda one: len(one[2]) < _LONG):  # what is long comes first
            lines.append(_wrap_text(f"  - {key}: {text}", width))
            lines += _servers(wanted[key], width) if key == "mcp" else [fold_line(shown, width, _INDENT)]
    lines += _describe_shared_servers(folder, width)
    return "\n".join(lines)


def _servers(table: Any, width: int) -> list[str]:
    """The servers of a configuration file; anything else in its table is shown before them."""
    from glidepath.apps.cli.server_grants import server_rows

    if not isinstance(table, Mapping) or not isinstance(table.get("servers"), Mapping):
        return [fold_line(quote_value(table), width, _INDENT)]
    rest = [
        fold_line(f"{escape_invisible(key)}: {quote_value(table[key])}", width, _INDENT)
        for key in table
        if key != "servers"
    ]
    return [*rest, *server_rows(table["servers"], width)]


def _describe_shared_servers(folder: Folder, width: int) -> list[str]:
    """What `.mcp.json` would start or contact, with everything that it grants."""
    from glidepath.apps.cli.server_grants import parse_shared_servers, server_rows

    data = folder.files.get(".mcp.json")
    if data is None:
        return []
    servers = parse_shared_servers(data)
    if servers is None:
        return ["Its .mcp.json cannot be read."]
    text = "Its .mcp.json starts these programs, or contacts these addresses, whenever an agent runs here:"
    return [_wrap_text(text, width), *server_rows(servers, width)]


def ask_for_trust(
    folder: Folder, wanted: Mapping[str, Any], stream: TextIO, world: CliContext, own: Mapping[str, Any] = _NOTHING
) -> tuple[str, ...] | None:
    """Show what the folder wants, page by page, and ask; only a typed yes is a yes. Ctrl-C raises KeyboardInterrupt.

    None is a no. A yes comes with the rights of servers that were refused: each is asked about on its own.
    """
    width, height = screen_size(stream)
    rows = [
        "",
        *describe_folder(folder, wanted, width, own).split("\n"),
        "Answer yes only if you know where these files come from.",
        "You will be asked again when one of them changes.",
    ]
    room = max(height - _KEPT_FREE, _FEWEST)
    shown = 0
    while len(rows) - shown > room:
        page, shown = rows[shown : shown + room], shown + room
        stream.write("\n".join(page) + "\n")
        said = _ask_line(f"{shown} of {len(rows)} rows. Enter shows more, n stops (not trusted):", stream, world)
        if said is None or said in ("n", "no", "q"):
            return None
    stream.write("\n".join(rows[shown:]) + "\n")
    what = f" ({_join_with_and(list(wanted))})" if wanted else ""
    if _ask_line(_wrap_text(f"Trust this folder{what}? [y/N]", width), stream, world, decides=True) not in _YES:
        return None
    return tuple(
        grant.name
        for grant in _grants(folder, wanted)
        if _ask_line(_wrap_text(grant.question, width), stream, world, decides=True) not in _YES
    )


def _grants(folder: Folder, wanted: Mapping[str, Any]) -> list[ServerRight]:
    """The rights of its servers that need another yes each, whichever file asks for them."""
    from glidepath.apps.cli.server_grants import grants_of, parse_shared_servers

    table = wanted.get("mcp")
    own = table.get("servers") if isinstance(table, Mapping) else None
    shared = parse_shared_servers(folder.files.get(".mcp.json", b""))
    found = [grant for servers in (own, shared) if isinstance(servers, Mapping) for grant in grants_of(servers)]
    return list({grant.name: grant for grant in reversed(found)}.values())[::-1]


def _ask_line(prompt: str, stream: TextIO, world: CliContext, *, decides: bool = False) -> str | None:
    """What a person typed after a prompt; None at the end of the input.

    Where the answer `decides`, what is typed before the question can have been read does not count.
    """
    stream.flush()
    world.discard_input()
    stream.write(f"{prompt} ")
    stream.flush()
    try:
        if decides:
            world.wait_for_reader()
        answer = _line(world)
    except KeyboardInterrupt:
        stream.write("\n")
        raise
    if not answer.endswith("\n"):
        stream.write("\n")
    return answer.strip().lower() if answer else None


def keep(folder: Folder, world: CliContext, without: Sequence[str] = ()) -> bool:
    """Record the yes; when that fails it counts for this command only, and says so.

    With rights that were refused it counts for nothing then: nobody would know what they are.
    """
    try:
        remember(folder, without)
    except (OSError, ConfigurationError) as error:
        rest = "so the folder is not trusted" if without else "so you will be asked again"
        world.note(f"Your answer cannot be kept, {rest}: {error}")
        return False
    return True


def _describe_ignored_settings(folder: Folder, missed: Sequence[str]) -> str:
    name = _name(folder)
    text = f"glidepath: this folder is not trusted, so {name} cannot set {_join_with_and(missed)}"
    if folder.unread:
        why = "; ".join(f"{escape_invisible(file)} {reason}" for file, reason in folder.unread.items())
        return f"{text}. It cannot be trusted: {why}. To allow it anyway, pass --config {name}"
    return f"{text}. To allow it, run `glidepath trust` or pass --config {name}"


def _name(folder: Folder) -> str:
    return next((name for name in CONFIGURATION if name in folder.files), CONFIGURATION[0])


def _file(folder: Folder, name: str) -> str:
    lead = f" -> {escape_invisible(folder.links[name])}" if name in folder.links else ""
    return f"{escape_invisible(name)}{lead} ({len(folder.files[name]):,} bytes)"


def _join_with_and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _wrap_text(text: str, width: int) -> str:
    """A text of ours, wrapped to the terminal's width."""
    return fill(text, max(width - 1, 20), subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _line(world: CliContext) -> str:
    """One line from the terminal, past what Python may have buffered; empty at the end of the input."""
    try:
        descriptor = world.stdin.fileno()
    except (OSError, AttributeError):
        return world.stdin.readline()
    return os.read(descriptor, 65_536).decode(errors="replace")
