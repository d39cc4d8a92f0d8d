"""`glidepath serve` and `glidepath deck`: agents by name, a token, a socket, and the browser."""

from __future__ import annotations

import argparse
import re
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.agent_maker import find_object
from glidepath.apps.cli.entry import WayIn
from glidepath.apps.cli.secrets_given import check_secrets
from glidepath.apps.cli.stores import DEFAULT_STORE, SERVE_STORE, check_store, make_store, open_redacted_store
from glidepath.tools import find_closest
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.apps.server import Webhook
    from glidepath.spi import SessionStore

DEFAULT_NAME = "agent"  # what an agent is called whose maker did not name it
STOPPED = 130
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - all interfaces, and where a browser here finds them


def load_agents(said: list[str], world: CliContext) -> dict[str, Any]:
    """The agents that flags name, each under its name on the server; raises `ConfigurationError`."""
    agents: dict[str, Any] = {}
    for one in said:
        name, sign, path = one.partition("=")
        name, path = (name, path) if sign else ("", one)
        found = _make_agent_of_file(path, world) if path.endswith(".md") else find_agent(path, world, one)
        if not hasattr(found, "config"):
            raise ConfigurationError(f"--agent {one}: expected an Agent, got {type(found).__name__}")
        own = getattr(getattr(found, "config", None), "agent_name", DEFAULT_NAME)
        label = name or (path.rpartition(":")[2] if own == DEFAULT_NAME else own)
        if label in agents:
            raise ConfigurationError(f"--agent {one}: there is another agent named {label!r}; write NAME={path}")
        agents[label] = found
    return agents


def _make_agent_of_file(path: str, world: CliContext) -> Any:
    """The agent in a file, with the model, the tools and the limits of the settings in this folder."""
    from glidepath.apps.cli.agent_maker import make_agent
    from glidepath.apps.cli.layers import gather

    return make_agent(gather(argparse.Namespace(agent_file=path), world), world)


def find_agent(path: str, world: CliContext, said: str = "") -> Any:
    """What the MODULE:NAME of an --agent flag names; raises `ConfigurationError` in the words of that flag."""
    flag, path = f"--agent {said or path}", path.removeprefix("python:")
    module, _, name = path.partition(":")
    if not module or not name or module.endswith(".py") or "/" in module:
        guess = _guess_agent(module, name, world)
        raise ConfigurationError(f"{flag}: expected MODULE:NAME, such as {guess or 'my_package.agents:helper'}")
    try:
        return find_object(f"python:{path}", world)
    except ConfigurationError as error:
        why, cause = str(error).removeprefix(f"python:{path}: "), error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{module}.".startswith(f"{cause.name}."):
            why = f"there is no module {cause.name!r} in this folder or among the installed packages"
        elif isinstance(cause, AttributeError) and cause.obj is sys.modules.get(module):
            there = vars(cause.obj).items()
            meant = find_closest(
                name, [one for one, value in there if hasattr(value, "config") and not isinstance(value, type)]
            )
            why = f"module {module!r} has no {name!r}" + (f"; did you mean {module}:{meant}?" if meant else "")
        raise ConfigurationError(f"{flag}: {why}") from error


def _guess_agent(path: str, name: str, world: CliContext) -> str:
    """What was meant by the path of a file, or by a module alone, where there is such a file; else nothing."""
    module = path.removeprefix("./").removesuffix(".py").replace("/", ".")
    try:
        text = (world.folder / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    made = re.search(r"^(\w+)\s*(?::[^=\n]+)?=\s*Agent\(", text, re.MULTILINE)
    return f"{module}:{name or (made[1] if made else 'agent')}"


def serve(
    agents: dict[str, Any],
    options: argparse.Namespace,
    world: CliContext,
    store: SessionStore | None = None,
    *,
    demo: bool = False,
    default_store: str = SERVE_STORE,
    path: str = "",
) -> int:
    """Serve these agents until the process is stopped; `path` is the door that the operator asked for."""
    from glidepath.apps.cli.extras import require_extra

    require_extra("starlette", "serve")
    require_extra("uvicorn", "serve")
    from glidepath.apps.cli.gate_server import gate_maker, make_reload
    from glidepath.apps.server import app
    from glidepath.apps.server.listener import listen

    secrets = check_secrets(options, world)
    if store is None:
        store = _choose_store(agents, options.store, world, options.redact, default_store)
    application = app(
        agents,
        store=store,
        token=secrets.tokens(),
        max_runs=options.max_runs,
        on_disconnect=options.on_disconnect,
        allowed_hosts=[*options.allowed_host, *([] if options.host in EVERYWHERE else [_format_host(options.host)])],
        allow_origins=options.allow_origin,
        mcp_name=getattr(options, "name", "glidepath"),
        prefix=options.prefix,
        trace_url=options.trace_url,
        resume_lost=options.resume_lost,
        webhooks=_read_webhooks(options, world),
        demo=demo,
        gate=gate_maker(options, store, world) if getattr(options, "gate", None) else None,
    )
    try:
        bound = _bind_socket(options.host, options.port)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror or error}; pass another --port"
        ) from None
    port = bound.getsockname()[1]
    address = f"{address_of(options.host, port, tls=options.tls_cert is not None)}{options.prefix}/"
    world.note(f"Serving at {address}{path}; Ctrl-C stops.")
    page = make_entry_file(application, address, port, world)
    if getattr(options, "gate", None):
        world.note(f"A gate for other agents: {address.rstrip('/')}/gate, with the keys of `glidepath keys`")
    try:
        if page is not None and not options.no_browser:
            _open_browser(page.path.as_uri())
        ended, reload = None if page is None else page.remove, make_reload(application, options, world)
        listen(application, bound, tls_cert=options.tls_cert, tls_key=options.tls_key, ended=ended, reload=reload)
    except KeyboardInterrupt:
        return STOPPED
    return 0


def _read_webhooks(options: argparse.Namespace, world: CliContext) -> Sequence[Webhook]:
    """The webhooks of the file that the command line names; no other file can add one."""
    if getattr(options, "webhooks", None) is None:
        return ()
    from glidepath.apps.cli.secrets_given import read_secret
    from glidepath.apps.server import read_webhooks

    path = world.folder / Path(options.webhooks).expanduser()
    return read_webhooks(path, world.environ, lambda file: read_secret("--webhooks", file))


def make_entry_file(application: Any, address: str, port: int, world: CliContext) -> WayIn | None:
    """A file that opens the deck, which only its owner can read. None when the page is not there."""
    from glidepath.apps.server.static_files import MISSING, STATIC

    if not (STATIC / "index.html").is_file():
        world.note(MISSING)
        return None
    codes = application.state.codes
    try:
        page = WayIn.make(address, port)
        page.write(codes.code)
    except OSError as error:
        world.note(f"no file can be written that opens the deck ({error.strerror}): paste the token there")
        return None
    codes.on_change = page.write
    world.note(f"To open the flight deck in a browser: {page.path.as_uri()}")
    if world.is_terminal(world.stderr):  # and not a log, which others may read
        world.note(f"From another machine, once: {address}#code={codes.code}")
    return page


def _bind_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle off only where the socket says that it is TCP; otherwise a small answer takes 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


def address_of(host: str, port: int, *, tls: bool = False) -> str:
    """Where a client on this machine finds what listens here."""
    return f"http{'s' if tls else ''}://{_format_host(EVERYWHERE.get(host, host))}:{port}"


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _open_browser(address: str) -> None:
    import webbrowser

    try:
        webbrowser.open(address)
    except webbrowser.Error:
        return  # the address was printed


def serve_deck(options: argparse.Namespace, world: CliContext) -> int:
    """The deck over a store."""
    if options.demo:
        from glidepath.apps.server.demo import demo_agents
        from glidepath.sessions import MemoryStore

        return serve({**demo_agents(), **load_agents(options.agent, world)}, options, world, MemoryStore(), demo=True)
    secrets = check_secrets(options, world)
    if secrets.view is not None and not (options.store or world.environ.get("GLIDEPATH_STORE")):
        raise ConfigurationError(
            "the default store has your own chats, which a view token must not show: name another store with --store"
        )
    return serve(load_agents(options.agent, world), options, world, default_store=DEFAULT_STORE)


def _choose_store(
    agents: dict[str, Any], said: str | None, world: CliContext, hook: str | None = None, default: str = SERVE_STORE
) -> Any:
    """The store named by a flag or GLIDEPATH_STORE, else the agents' own, else `default`; `none` means no store."""
    said = said or world.environ.get("GLIDEPATH_STORE")
    if said == "none":
        return None
    own = next((agent.config.store for agent in agents.values() if agent.config.store is not None), None)
    if own is not None and not said:
        return own
    check_store(said or default, world, new=bool(agents))
    return open_redacted_store(said or default, hook, world)


def export(options: argparse.Namespace, world: CliContext) -> int:
    """Write one run into a file."""
    import asyncio
    from pathlib import Path

    from glidepath.apps.cli.extras import require_extra
    from glidepath.apps.cli.session_names import find_session

    require_extra("starlette", "serve")
    from glidepath.apps.server.deck_export import export_page, export_run
    from glidepath.apps.server.event_log import log_for
    from glidepath.apps.server.hub import Hub
    from glidepath.apps.server.refusals import HttpError
    from glidepath.apps.server.store_reader import StoreReader

    if not options.run or not options.file:
        raise ConfigurationError("name a run and a file: glidepath deck export RUN out.html")
    store = make_store(options.store or world.environ.get("GLIDEPATH_STORE") or DEFAULT_STORE, world)

    async def read() -> dict[str, Any]:
        log = log_for(store)
        run = options.run
        try:
            with suppress(ConfigurationError):  # the id of a run, perhaps
                run = await find_session(store, run)
            return await export_run(StoreReader(Hub({}, store, log, measured=False)), run)
        except HttpError as refused:
            raise ConfigurationError(str(refused).replace("GET /api/runs", "`glidepath runs list`")) from None
        finally:
            await log.close()
            await store.close()

    from glidepath.apps.cli.private_files import write_private

    page = export_page(asyncio.run(read()))
    path = world.folder / Path(options.file).expanduser()
    try:
        write_private(path, page.encode())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    world.note(f"Written: {path} ({len(page) // 1000} kB). It holds the whole transcript: share it with care.")
    return 0
