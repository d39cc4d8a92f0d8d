"""Pins: the definitions of a server's tools that a person approved, and what has changed.

A server can change a tool's description at any time, and the description is an instruction to the model. The lock file
holds the definition of every tool somebody has approved. A changed one, a new name, a server that is not in the file:
each counts as a change. A file that cannot be read approves nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

from glidepath import _wire
from glidepath._wire import Value
from glidepath.mcp.definitions import clean_text, digest_of
from glidepath.mcp.mcp_server import LOCK, ServerLink
from glidepath.tools import SourceError
from glidepath.values import ConfigurationError, pluralize

__all__ = ["Lock", "Verdicts", "describe_differences", "judge_pins", "lock_path", "read_lock", "write_lock"]

VERSION = 1
LARGEST = 32 << 20  # bytes
MOST_LINES = 200  # of a difference, where it is part of a message


class Verdicts(Value, frozen=True, kw_only=True):
    """What is different from what was pinned, and the effect: nothing, `blocked`, `ask` or `warned`."""

    effect: str = ""
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    reasons: Mapping[str, str] = {}
    """For each changed tool, the difference in words."""

    @property
    def differs(self) -> bool:
        """True when something has changed."""
        return bool(self.added or self.changed or self.removed)


class Lock:
    """The pinned definitions of all servers, by server and tool."""

    def __init__(self, servers: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.servers: dict[str, dict[str, Any]] = {name: dict(tools) for name, tools in (servers or {}).items()}

    def of(self, server: str) -> dict[str, Any] | None:
        """The pinned tools of one server; None when it was never pinned."""
        return self.servers.get(server)

    def pin(self, server: str, definitions: Mapping[str, Any], names: tuple[str, ...] = ()) -> None:
        """Record these definitions as approved: all of them, or those named; missing ones are removed."""
        pinned = {} if not names else dict(self.servers.get(server, {}))
        for name in names or definitions:
            if name in definitions:
                pinned[name] = definitions[name]
            else:
                pinned.pop(name, None)
        self.servers[server] = pinned


def lock_path(link: ServerLink) -> Path:
    """Where the pins of a server are: what it was given, or `glidepath.mcp.lock` in the working folder."""
    return Path(link.lock) if link.lock is not None else Path(LOCK)


def read_lock(path: Path) -> Lock | None:
    """The lock file; None when there is none. Raises `ConfigurationError` when it cannot be trusted."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST} bytes")
        data = _wire.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except Exception as error:
        raise _make_damage_error(path, str(error)) from None
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("servers"), dict):
        raise _make_damage_error(path, f"it is not a lock file of version {VERSION}")
    for name, tools in data["servers"].items():
        if not isinstance(tools, dict):
            raise _make_damage_error(path, f"the tools of server {name!r} cannot be read")
        for tool, entry in tools.items():
            shape = isinstance(entry, dict) and isinstance(entry.get("definition"), dict)
            if not shape or entry.get("digest") != digest_of(entry["definition"]):
                raise _make_damage_error(path, f"the digest of {name}/{tool} is not that of its definition")
    return Lock(
        {name: {tool: entry["definition"] for tool, entry in tools.items()} for name, tools in data["servers"].items()}
    )


def _make_damage_error(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the lock file {path} is damaged ({why}), so no tool of an MCP server is offered; restore it from version "
        "control, or delete it and pin again with `glidepath mcp pin`"
    )


def write_lock(path: Path, lock: Lock) -> None:
    """Write the lock file: as a whole or not at all."""
    servers = {
        name: {
            tool: {"digest": digest_of(definition), "definition": definition}
            for tool, definition in sorted(tools.items())
        }
        for name, tools in sorted(lock.servers.items())
    }
    data = _wire.format_json({"version": VERSION, "servers": servers})
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data + b"\n")
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def judge_pins(link: ServerLink, definitions: Mapping[str, Any]) -> Verdicts:
    """What the lock says about these definitions; raises `SourceError` when the lock cannot be trusted."""
    if link.pins == "off":
        return Verdicts()
    path = lock_path(link)
    try:
        lock = read_lock(path)
    except ConfigurationError as error:
        raise SourceError(f"MCP server {link.name!r}: {error}") from None
    if lock is None:
        if link.pins == "auto":
            return Verdicts()
        lock = Lock()
    policy = {"auto": "blocked", "block": "blocked", "ask": "ask", "warn": "warned"}[link.pins]
    pinned = lock.of(link.name) or {}
    added = tuple(name for name in definitions if name not in pinned)
    changed = tuple(
        name for name in definitions if name in pinned and digest_of(definitions[name]) != digest_of(pinned[name])
    )
    removed = tuple(name for name in pinned if name not in definitions)
    reasons = {
        **dict.fromkeys(added, f"it is not pinned in {path}; look at it with `glidepath mcp diff {link.name}`"),
        **{
            name: f"it is not what was pinned in {path}:\n{describe_differences(pinned[name], definitions[name])}"
            for name in changed
        },
    }
    effect = policy if added or changed or removed else ""
    return Verdicts(effect=effect, added=added, changed=changed, removed=removed, reasons=reasons)


def describe_differences(
    old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, *, most: int | None = MOST_LINES
) -> str:
    """What changed in a definition, as lines for a person; texts are cleaned, and hidden characters are reported.

    Beyond `most` lines it says how many more there are; None: all of them, for the person who approves them.
    """
    return "\n".join(_lines(old, new, most))


def _lines(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, most: int | None) -> Iterator[str]:
    before, after = _format_definition(old), _format_definition(new)
    lines = list(unified_diff(before, after, "pinned", "now", lineterm="", n=1))[2:]
    yield from lines[:most]
    if most is not None and len(lines) > most:
        yield f"[{pluralize(len(lines) - most, 'more line')}; `glidepath mcp diff` shows all]"
    if before == after:
        yield "only invisible characters differ (control, zero-width or bidirectional marks, HTML comments)"


def _format_definition(definition: Mapping[str, Any] | None) -> list[str]:
    if definition is None:
        return []
    return _wire.format_json(_clean_data(definition)).decode().splitlines()


def _clean_data(data: object) -> Any:
    if isinstance(data, str):
        return clean_text(data, 4_000)
    if isinstance(data, Mapping):
        return {clean_text(str(key), 200): _clean_data(value) for key, value in data.items()}
    return [_clean_data(item) for item in data] if isinstance(data, (list, tuple)) else data
