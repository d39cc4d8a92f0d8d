"""List, test and pin MCP servers, or offer agents as one.

Servers come from [mcp.servers.NAME] in glidepath.toml, from --mcp-config FILE, and from .mcp.json in a trusted folder.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import add_config_flags
from glidepath.apps.cli.commands.serve_command import add_server_flags
from glidepath.values import pluralize

if TYPE_CHECKING:
    from pathlib import Path

    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.mcp import McpServer
    from glidepath.mcp.mcp_tool_source import McpToolSource
    from glidepath.mcp.pins import Lock

_EXAMPLES = """\
examples:
  glidepath mcp list                         the servers that are configured, without starting them
  glidepath mcp test time                    start one and list its tools
  glidepath mcp test time --call get_current_time '{"timezone": "UTC"}'
  glidepath mcp pin                          remember the tools of all servers in glidepath.mcp.lock
  glidepath mcp diff                         what has changed since (exit code 1 when something has)
  glidepath mcp approve time                 look at the changes and accept them
  glidepath mcp login tickets                log in to a server with auth = "oauth"
  glidepath mcp serve --agent my_package.agents:helper
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    listed = actions.add_parser("list", help="the configured servers, without starting them")
    listed.add_argument("--json", action="store_true", help="print one JSON object per server")
    tested = actions.add_parser("test", help="start servers and show their tools")
    tested.add_argument("--json", action="store_true", help="print one JSON object per tool")
    tested.add_argument("--call", nargs=2, metavar=("TOOL", "JSON"), help="call one tool with these arguments")
    pinned = actions.add_parser("pin", help="remember what servers offer now, in glidepath.mcp.lock")
    differs = actions.add_parser("diff", help="show what differs from the pins")
    approved = actions.add_parser("approve", help="review the changes and pin them")
    approved.add_argument("--tool", action="append", default=[], help="only this tool; may be repeated")
    approved.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    login = actions.add_parser("login", help='log in to servers with auth = "oauth", in the browser')
    login.add_argument("--forget", action="store_true", help="delete the tokens instead")
    for sub in (listed, tested, pinned, differs, approved, login):
        sub.add_argument("names", nargs="*", metavar="NAME", help="which servers (default: all)")
        sub.add_argument("--mcp-config", metavar="FILE", help="a JSON file with mcpServers")
        add_config_flags(sub)
    serve = actions.add_parser("serve", help="offer agents as tools of an MCP server")
    serve.add_argument(
        "--agent", action="append", required=True, metavar="[NAME=]MODULE:ATTR", help="an Agent; may be repeated"
    )
    serve.add_argument(
        "--http",
        action="store_true",
        help="serve /mcp over HTTP instead of stdio, with the server, locks and flags of `glidepath serve`",
    )
    add_server_flags(serve, port=8000)
    serve.add_argument("--name", default="glidepath", help="the server's name (default: glidepath)")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    if options.action == "serve":
        return _serve(options, world)
    import asyncio

    from glidepath.apps.cli.layers import gather
    from glidepath.apps.cli.servers import load_servers

    settings = gather(options, world, only=("mcp",))
    found = load_servers(settings, world)
    chosen = _choose_servers(found, options.names)
    if options.action == "list":
        return _list(chosen, world, as_json=options.json)
    if not chosen:
        world.complain(
            "no MCP server is configured: write [mcp.servers.NAME] into glidepath.toml, or pass --mcp-config"
        )
        return 2
    servers = [server for server, _ in chosen]
    work = {"test": _test, "pin": _pin, "diff": _diff, "approve": _approve, "login": _login}[options.action]
    return asyncio.run(work(servers, options, world))


def _serve(options: argparse.Namespace, world: CliContext) -> int:
    """Serve until the client goes away or the process is stopped."""
    from glidepath.apps.cli.deck_server import load_agents, serve
    from glidepath.apps.cli.secrets_given import check_secrets
    from glidepath.mcp import agent_server

    if options.http:
        check_secrets(options, world)  # before any module of the user's is imported
    agents = load_agents(options.agent, world)
    server = agent_server(agents, name=options.name)  # which refuses agents without limits
    if options.http:
        options.no_browser = True
        return serve(agents, options, world, path="mcp")
    world.note(f"Serving {', '.join(agents)} on standard input and output.")
    try:
        server.run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


def _choose_servers(found: list[tuple[McpServer, str]], names: list[str]) -> list[tuple[McpServer, str]]:
    from glidepath.tools import find_closest
    from glidepath.values import ConfigurationError

    known = {server.name: (server, where) for server, where in found}
    for name in names:
        if name not in known:
            meant = find_closest(name, known)
            others = f"there are {', '.join(known)}" if known else "none is configured"
            hint = f"; did you mean {meant}?" if meant else f"; {others}"
            raise ConfigurationError(f"there is no MCP server {name}{hint}")
    return [known[name] for name in names] if names else found


def _list(found: list[tuple[McpServer, str]], world: CliContext, *, as_json: bool) -> int:
    import json

    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.mcp.pins import lock_path

    if not found:
        world.note("No MCP server is configured: write [mcp.servers.NAME] into glidepath.toml, or pass --mcp-config.")
        return 0
    lock = _lock(lock_path(found[0][0].link), world)
    wide = max(len(server.name) for server, _ in found)
    for server, where in found:
        pinned = None if lock is None else lock.of(server.name)
        if as_json:
            row = {"name": server.name, "where": server.link.where, "from": where}
            world.write(json.dumps(row | {"pinned": None if pinned is None else len(pinned)}) + "\n")
            continue
        state = "not pinned" if pinned is None else f"{pluralize(len(pinned), 'tool')} pinned"
        world.write(
            f"{server.name:<{wide}}  {escape_invisible(server.link.where)}\n{'':<{wide}}  from {where}; {state}\n"
        )
    return 0


def _lock(path: Path, world: CliContext) -> Lock | None:
    """The lock; a damaged one is reported and treated as missing."""
    from glidepath.mcp.pins import read_lock
    from glidepath.values import ConfigurationError

    try:
        return read_lock(path)
    except ConfigurationError as error:
        world.complain(str(error))
        return None


async def _login(servers: list[McpServer], options: argparse.Namespace, world: CliContext) -> int:
    import webbrowser

    from glidepath.mcp.oauth_login import Login, forget_login

    async def visit(address: str) -> None:
        world.note(f"Log in here: {address}")
        webbrowser.open(address)

    code = 0
    for server in [one for one in servers if one.link.auth == "oauth"]:
        if options.forget:
            world.write(f"{server.name}: {'forgotten' if forget_login(server.link) else 'not logged in'}\n")
            continue
        async with Login(visit) as login:
            supply = await _open_server(server.configured(auth=login, connect_timeout=300.0), world)
        if supply is None:
            code = 1
            continue
        await supply.close()
        world.write(f"{server.name}: logged in\n")
    if not any(server.link.auth == "oauth" for server in servers):
        world.note('No such server has auth = "oauth".')
    return code


async def _open_server(server: McpServer, world: CliContext) -> McpToolSource | None:
    """A connection to the server, whatever is pinned; None, and why, when it cannot be made."""
    from glidepath.tools import SourceError

    supply = server.configured(pins="off").open()
    try:
        await supply.tools()
    except SourceError as error:
        world.complain(str(error))
        await supply.close()
        return None
    return supply


async def _test(servers: list[McpServer], options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.values import ConfigurationError

    if options.json and options.call:
        raise ConfigurationError("--json is for the list of tools: leave out --call or --json")
    code = 0
    for server in servers:
        supply = await _open_server(server, world)
        if supply is None:
            code = 1
            continue
        try:
            listing = await supply.owner.await_listing()
            tools = await supply.tools()
            if not options.json:
                world.write(f"{server.name}: protocol {listing.version}, {pluralize(len(tools), 'tool')}\n")
            for tool in tools:
                if options.json:
                    world.write_json({"server": server.name, "tool": tool.name, "description": tool.description})
                    continue
                first = tool.description.splitlines()[0] if tool.description else ""
                world.write(f"  {tool.name}  {first[:100]}\n")
            if options.call:
                code = await _call_tool(supply, options.call, world) or code
        finally:
            await supply.close()
    return code


async def _call_tool(supply: McpToolSource, call: list[str], world: CliContext) -> int:
    from glidepath import _wire
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.tools import as_result
    from glidepath.values import GlidepathError

    name, text = call
    tool = {one.name: one for one in await supply.tools()}.get(name)
    if tool is None:
        world.complain(f"{supply.link.name} has no tool {name}")
        return 1
    try:
        bound = tool.bind(_wire.loads(text.encode()))
        result = as_result(await tool.invoke(bound.values))
    except (GlidepathError, _wire.WireError) as error:
        world.complain(str(error))
        return 1
    content = result.content
    said = content if isinstance(content, str) else "\n".join(getattr(one, "text", f"[{one}]") for one in content)
    if world.is_terminal(world.stdout):
        said = escape_invisible(said, keep="\n\t")
    world.write(f"{said}\n")
    return int(result.is_error)


async def _pin(servers: list[McpServer], _options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.mcp.pins import Lock, lock_path, read_lock, write_lock

    path = lock_path(servers[0].link)
    lock = read_lock(path) or Lock()
    code, done = 0, False
    for server in servers:
        supply = await _open_server(server, world)
        if supply is None:
            code = 1
            continue
        lock.pin(server.name, supply.definitions())
        await supply.close()
        world.write(f"{server.name}: {pluralize(len(lock.servers[server.name]), 'tool')} pinned\n")
        done = True
    if done:  # a lock file without pins would keep back the tools of all servers
        write_lock(path, lock)
        world.write(f"Written: {path}. Keep it under version control.\n")
    return code


async def _differences(server: McpServer, lock: Lock | None, world: CliContext) -> tuple[str, dict[str, Any]] | None:
    """What is different from what was pinned, for a person, and what the server offers now."""
    from glidepath.mcp.pins import describe_differences

    supply = await _open_server(server, world)
    if supply is None:
        return None
    now = supply.definitions()
    await supply.close()
    pinned = (lock.of(server.name) if lock is not None else None) or {}
    parts = []
    for name in [*now, *[name for name in pinned if name not in now]]:
        if pinned.get(name) != now.get(name):
            what = "new" if name not in pinned else "gone" if name not in now else "changed"
            said = describe_differences(pinned.get(name), now.get(name), most=None)
            parts.append(f"{server.name}/{name}: {what}\n{said}\n")
    return "\n".join(parts), now


async def _diff(servers: list[McpServer], _options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.mcp.pins import lock_path

    lock = _lock(lock_path(servers[0].link), world)
    code = 0
    for server in servers:
        found = await _differences(server, lock, world)
        if found is None:
            code = 1
        elif found[0]:
            world.write(found[0])
            code = 1
        else:
            world.write(f"{server.name}: unchanged\n")
    return code


async def _approve(servers: list[McpServer], options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.cli.trust_prompt import find_person
    from glidepath.mcp.pins import Lock, lock_path, read_lock, write_lock
    from glidepath.values import ConfigurationError

    path = lock_path(servers[0].link)
    lock = read_lock(path) or Lock()
    for server in servers:
        found = await _differences(server, lock, world)
        if found is None:
            return 1
        said, now = found
        pinned = lock.of(server.name) or {}
        if unknown := [name for name in options.tool if name not in now and name not in pinned]:
            raise ConfigurationError(
                f"{server.name} has no tool {', '.join(unknown)}; there are {', '.join({**pinned, **now}) or 'none'}"
            )
        if not said:
            world.write(f"{server.name}: unchanged\n")
            continue
        world.write(said)
        if not options.yes:
            if find_person(world) is None:
                raise ConfigurationError("approve needs a terminal to ask on; in a script, pass --yes")
            world.discard_input()
            world.stderr.write(f"Accept these tools of {server.name}? [y/N] ")
            world.stderr.flush()
            if world.stdin.readline().strip().lower() not in ("y", "yes"):
                world.write("Not accepted.\n")
                return 1
        lock.pin(server.name, now, tuple(options.tool))
        write_lock(path, lock)
        world.write(f"{server.name}: pinned in {path}\n")
    return 0
