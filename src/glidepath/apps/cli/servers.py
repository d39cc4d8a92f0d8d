"""The MCP servers of a command: from the configuration file, from --mcp-config, and from a trusted .mcp.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.layers import LoadedSettings
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glidepath.mcp import McpServer
    from glidepath.mcp.resource_tools import OfferedPrompt

SHARED = ".mcp.json"
"""The file that many programs share; it starts programs, so it counts only in a trusted folder."""
_SERVERS_KEYS = ("servers", "pins", "lock")


def load_servers(
    settings: LoadedSettings, world: CliContext, *, ask: bool = True, artifacts: Path | None = None
) -> list[tuple[McpServer, str]]:
    """Every server with where it was configured; a name counts once, and the more deliberate place wins."""
    found: dict[str, tuple[McpServer, str]] = {}
    for servers, where in _list_server_files(settings, world, ask=ask):
        for server in servers:
            found.setdefault(server.name, (server, where))
    changes: dict[str, Any] = {} if artifacts is None else {"artifacts": str(artifacts)}
    table = settings.get("mcp") or {}
    if "pins" in table:
        changes["pins"] = table["pins"]
    changes["lock"] = str(world.folder / table.get("lock", "glidepath.mcp.lock"))
    return [(_configure_server(server, changes), where) for server, where in found.values()]


def _configure_server(server: McpServer, changes: dict[str, Any]) -> McpServer:
    own = {key: value for key, value in changes.items() if key != "pins" or server.link.pins == "auto"}
    return server.configured(**own)


def _list_server_files(settings: LoadedSettings, world: CliContext, *, ask: bool) -> list[tuple[Any, str]]:
    named, table = settings.get("mcp_config"), settings.get("mcp")
    shared = _read_shared_servers(settings, world, ask=ask)
    if not named and not table and shared is None:
        return []
    from glidepath.mcp.config_file import read_server_file, read_servers

    places: list[tuple[Any, str]] = []
    if named:
        path = world.folder / Path(named).expanduser()
        places.append((read_server_file(path, world.environ), str(named)))
    if table:
        origin = settings.origin_of("mcp")
        folder = world.folder if settings.file is None else settings.file.parent
        _check(table, origin)
        own = read_servers(table.get("servers", {}), world.environ, where=origin, folder=folder)
        found = settings.found and settings.file is not None and origin.startswith(settings.file.name)
        places.append((_remove_refused_grants(own, _read_refused_rights(world)) if found else own, origin))
    if shared is not None:
        said = read_server_file(world.folder / SHARED, world.environ, shared)
        places.append((_remove_refused_grants(said, _read_refused_rights(world)), SHARED))
    return places


def _check(table: Mapping[str, Any], origin: str) -> None:
    for key in table:
        if key not in _SERVERS_KEYS:
            raise ConfigurationError(
                f"{origin}: mcp has no key {key!r:.80}; it has servers ([mcp.servers.NAME]), pins and lock"
            )
    from glidepath.mcp.mcp_server import PIN_POLICIES

    if "pins" in table and table["pins"] not in PIN_POLICIES:
        raise ConfigurationError(f"{origin}: mcp.pins must be one of {', '.join(PIN_POLICIES)}")
    if "lock" in table and not isinstance(table["lock"], str):
        raise ConfigurationError(f"{origin}: mcp.lock must be the path of a file")


def _read_shared_servers(settings: LoadedSettings, world: CliContext, *, ask: bool) -> bytes | None:
    """The bytes of `.mcp.json`, when a person trusts this folder as it is."""
    if settings.get("mcp_config") or not (world.folder / SHARED).is_file():
        return None
    from glidepath.apps.cli.folder import read_folder
    from glidepath.apps.cli.trust import is_trusted
    from glidepath.apps.cli.trust_prompt import ask_for_trust, find_person, keep

    folder = read_folder(world.folder)
    if SHARED not in folder.files:
        return None
    if not is_trusted(folder):
        stream = (
            find_person(world)
            if ask and not folder.unread and settings.get("output_format") in (None, "text")
            else None
        )
        if stream is None:
            world.note_once(
                f"glidepath: this folder is not trusted, so {SHARED} is ignored. To allow it, run `glidepath trust` or "
                f"pass --mcp-config {SHARED}"
            )
            return None
        missed = {key: known.value for key, known in settings.ignored.items()}  # a yes would cover these, too
        refused = ask_for_trust(folder, missed, stream, world)
        if refused is None or (not keep(folder, world, refused) and refused):
            world.note_once(f"Not trusted: continuing without the servers of {SHARED}.")
            return None
    return folder.files[SHARED]


def _read_refused_rights(world: CliContext) -> frozenset[str]:
    """The rights of servers that the person refused when they trusted this folder."""
    from glidepath.apps.cli.trust import record_of

    known = record_of(world.folder.resolve())
    return frozenset() if known is None else frozenset(known.without)


def _remove_refused_grants(servers: Sequence[McpServer], refused: frozenset[str]) -> list[McpServer]:
    """The servers without what the person refused them."""
    from glidepath.apps.cli.server_grants import WITHOUT

    return [
        server.configured(**{key: off for key, off in WITHOUT.items() if f"{server.name}.{key}" in refused})
        for server in servers
    ]


async def prompt_of(line: str, sources: Sequence[Any]) -> tuple[str | None, str]:
    """What `/SERVER:PROMPT words` says, or the list that `/prompts` asks for; None when there is no such prompt.

    With it comes the origin of what a server says; empty for one that is trusted.
    Words are the prompt's arguments in their order, or `name=value`; the last one takes what is left.
    """
    from glidepath.mcp.resource_tools import list_prompts, prompt_text
    from glidepath.tools import SourceError

    head, _, rest = line.strip().removeprefix("/").partition(" ")
    wanted, _, name = head.partition(":")
    said = []
    for server in {source.origin: source for source in sources if hasattr(source, "link")}.values():
        if wanted not in ("prompts", server.name):
            continue
        supply = server.open()
        try:
            for prompt in await list_prompts(supply):
                if wanted == "prompts":
                    words = " ".join(part if part in prompt.required else f"[{part}]" for part in prompt.arguments)
                    said.append(f"/{server.name}:{prompt.name} {words}  {prompt.description}".rstrip())
                elif prompt.name == name:
                    text = await prompt_text(supply, name, _parse_prompt_arguments(prompt, rest))
                    return text, "" if server.link.trusted else f"{server.name}:{name}"
        except SourceError as error:
            said.append(str(error))
        finally:
            await supply.close()
    if wanted == "prompts":
        return "\n".join(said) or "No server offers a prompt.", ""
    return "\n".join(said) or None, wanted if said else ""


def _parse_prompt_arguments(prompt: OfferedPrompt, words: str) -> dict[str, str]:
    given: dict[str, str] = {}
    left = words.strip()
    free = list(prompt.arguments)
    while left and free:
        name, sign, _ = left.partition("=")
        if sign and name in free:
            left = left.partition("=")[2]
            free.remove(name)
        else:
            name = free.pop(0)
        word, _, more = left.partition(" ") if free else (left, "", "")
        given[name], left = word, more.strip()
    return given


def make_servers(settings: LoadedSettings, world: CliContext) -> tuple[Any, ...]:
    """The MCP servers whose tools the model may call; results too long for it go into the workspace."""
    from glidepath.apps.cli.agent_maker import workspace_folder

    found = load_servers(settings, world)
    if not found:
        return ()
    folder = workspace_folder(settings, world) / ".glidepath" / "artifacts"
    return tuple(server.configured(artifacts=str(folder)) for server, _ in found)
