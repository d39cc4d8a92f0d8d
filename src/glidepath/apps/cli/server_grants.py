"""What a table of MCP servers grants, in full, for the person who is asked to trust it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from glidepath.apps.cli.display_text import escape_invisible, fold_line, quote_value

_INDENT = " " * 6
_FIRST = ("type", "command", "args", "url")
_TABLES = ("env", "headers", "sampling")
_ASKED = {
    "trusted": "its hints are believed, and its results count as trusted",
    "sampling": "it may ask your model, with your key and your money",
}
WITHOUT = {"trusted": False, "sampling": None}
"""What a server has instead of a right that was refused."""


class ServerRight(NamedTuple):
    """A right of one server that a person is asked about on its own."""

    server: str
    key: str
    value: Any

    @property
    def name(self) -> str:
        """What a refusal is recorded under."""
        return f"{self.server}.{self.key}"

    @property
    def question(self) -> str:
        """The question about it."""
        more = f" ({quote_value(self.value)})" if isinstance(self.value, Mapping) else ""
        return (
            f"Server {escape_invisible(self.server)} asks for {self.key}: {_ASKED[self.key]}{more}. Allow that? [y/N]"
        )


def server_rows(servers: Mapping[str, Any], width: int) -> Iterator[str]:
    """Every server with every key and its whole value, and the variables of the environment that it gets, by name."""
    from glidepath.mcp.config_file import variables_in

    for name, table in servers.items():
        yield f"  - {escape_invisible(str(name))}:"
        if not isinstance(table, Mapping):
            yield fold_line(quote_value(table), width, _INDENT)
            continue
        for key in sorted(table, key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST)):
            yield from _rows_of(str(key), table[key], width)
        sent = variables_in(table)
        if sent:
            where = "that address" if "url" in table else "that program"
            yield fold_line(f"Your environment: {', '.join(sent)} go to {where}.", width, _INDENT)


def _rows_of(key: str, value: Any, width: int) -> Iterator[str]:
    if key in _TABLES and isinstance(value, Mapping):
        for inner, item in value.items():
            yield fold_line(
                f"{escape_invisible(key)}.{escape_invisible(str(inner))}: {quote_value(item)}", width, _INDENT
            )
    else:
        yield fold_line(f"{escape_invisible(key)}: {quote_value(value)}", width, _INDENT)


def grants_of(servers: Mapping[str, Any]) -> list[ServerRight]:
    """The rights that need another yes each."""
    from glidepath.mcp.config_file import valid_name

    return [
        ServerRight(valid_name(str(name)), key, table[key])
        for name, table in servers.items()
        if isinstance(table, Mapping) and table.get("disabled") is not True
        for key in _ASKED
        if table.get(key) not in (None, False)
    ]


def parse_shared_servers(data: bytes) -> Mapping[str, Any] | None:
    """The servers of a `.mcp.json`, as they will be read; None if it cannot be read."""
    from glidepath import _wire

    try:
        said = _wire.loads(data)
    except Exception:  # whatever the decoder raises, the file is refused later with its own error
        return None
    servers = said.get("mcpServers", said.get("servers")) if isinstance(said, dict) else None
    return servers if isinstance(servers, dict) else None
