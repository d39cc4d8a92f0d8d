"""Servers from a file: `[mcp.servers.NAME]` of our own, or the `mcpServers` JSON that many programs share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from glidepath import _wire
from glidepath.mcp.mcp_server import LONGEST_NAME, McpServer, Sampling
from glidepath.tools import find_closest
from glidepath.values import ConfigurationError, short_repr

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_TEXTS = ("command", "url", "cwd", "mode", "pins", "auth")
_PLAIN = (
    "required",
    "trusted",
    "elicitation",
    "connect_timeout",
    "idle_timeout",
    "call_timeout",
    "max_message_bytes",
    "resources",
)
_KEYS = (*_TEXTS, *_PLAIN, "args", "env", "headers", "roots", "sampling", "only", "prefix", "disabled", "type")
_KINDS = ("stdio", "http", "streamable-http", "streamableHttp")
MOST_SERVERS = 100


def read_server_file(path: Path, environ: Mapping[str, str], data: bytes | None = None) -> tuple[McpServer, ...]:
    """The servers of a JSON file with `mcpServers` (or `servers`); raises `ConfigurationError` naming file and server.

    Keys that other programs have and we do not are ignored.
    """
    try:
        said = _wire.loads(path.read_bytes() if data is None else data)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:
        raise ConfigurationError(f"{path}: not valid JSON: {str(error)[:200]}") from None
    servers = said.get("mcpServers", said.get("servers")) if isinstance(said, dict) else None
    if not isinstance(servers, dict):
        raise ConfigurationError(f'{path}: expected {{"mcpServers": {{NAME: {{"command": ...}}}}}}')
    return read_servers(servers, environ, where=path.name, folder=path.parent, strict=False)


def read_servers(
    servers: object, environ: Mapping[str, str], *, where: str, folder: Path, strict: bool = True
) -> tuple[McpServer, ...]:
    """The servers of a table by name; `${VAR}` and `${VAR:-default}` are replaced from `environ`.

    `strict`: an unknown key is an error, with the one that was meant. Relative folders are relative to `folder`.
    """
    if not isinstance(servers, Mapping):
        raise ConfigurationError(f"{where}: servers must be a table of servers by name, not {short_repr(servers, 80)}")
    if len(servers) > MOST_SERVERS:
        raise ConfigurationError(f"{where}: more than {MOST_SERVERS} servers")
    made = [
        _server(str(name), said, environ, where=f"{where}: server {name!r:.80}", folder=folder, strict=strict)
        for name, said in servers.items()
    ]
    return tuple(server for server in made if server is not None)


def _server(
    name: str, said: object, environ: Mapping[str, str], *, where: str, folder: Path, strict: bool
) -> McpServer | None:
    if not isinstance(said, Mapping):
        raise ConfigurationError(f"{where}: expected a table with command or url, not {short_repr(said, 80)}")
    given = {str(key): _expand_variables(value, environ, where) for key, value in said.items()}
    for key in list(given):
        if key not in _KEYS:
            if strict:
                meant = find_closest(key, _KEYS)
                hint = f"; did you mean {meant!r}?" if meant else f"; there are {', '.join(_KEYS)}"
                raise ConfigurationError(f"{where}: there is no key {key!r:.80}{hint}")
            del given[key]
    if given.pop("disabled", False) is True:
        return None
    kind = given.pop("type", "stdio")
    if kind not in _KINDS:
        raise ConfigurationError(f"{where}: type {kind!r:.40} is not supported; use stdio or http")
    only, prefix = given.pop("only", None), given.pop("prefix", "")
    fields: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if "sampling" in fields:
        fields["sampling"] = _sampling(fields["sampling"], where)
    if isinstance(fields.get("cwd"), str):
        fields["cwd"] = str(folder / Path(fields["cwd"]).expanduser())
    try:
        server = McpServer(name if strict else valid_name(name), **fields)
        if only is not None:
            server = server.only(*(only if isinstance(only, list | tuple) else [only]))
        return server.prefixed(prefix) if prefix else server
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {str(error).removeprefix(f'MCP server {name!r}: ')}") from None


def valid_name(name: str) -> str:
    """A server name from a foreign file, made valid."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:LONGEST_NAME] or "_"


def variables_in(value: object) -> list[str]:
    """The names of the environment variables whose values would replace `${VAR}` in this value, each once."""
    if isinstance(value, str):
        return list(dict.fromkeys(found.group(1) for found in _VARIABLE.finditer(value)))
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return list(dict.fromkeys(name for item in inner for name in variables_in(item)))


def _sampling(said: object, where: str) -> Sampling | None:
    if said is True:
        return Sampling()
    if said is False:
        return None
    if not isinstance(said, Mapping):
        raise ConfigurationError(f"{where}: sampling must be true, false or a table, not {short_repr(said, 80)}")
    fields = Sampling.__struct_fields__
    for key in said:
        if key not in fields:
            raise ConfigurationError(f"{where}: sampling has no key {key!r:.80}; there are {', '.join(fields)}")
    given = dict(said)
    if given.get("max_cost") is not None:
        given["max_cost"] = str(given["max_cost"])
    return Sampling(**given)


def _expand_variables(value: object, environ: Mapping[str, str], where: str) -> Any:
    if isinstance(value, str):

        def put(found: re.Match[str]) -> str:
            name, default = found.group(1), found.group(2)
            if name in environ:
                return environ[name]
            if default is not None:
                return default
            raise ConfigurationError(
                f"{where}: the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )

        return _VARIABLE.sub(put, value)
    if isinstance(value, Mapping):
        return {str(key): _expand_variables(item, environ, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_expand_variables(item, environ, where) for item in value]
    return float(value) if isinstance(value, Decimal) else value  # of a TOML file
