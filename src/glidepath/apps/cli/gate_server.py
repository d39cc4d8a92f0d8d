"""`glidepath gate serve` and `glidepath gate env`: a long-lived gate, and how a shell of the same user finds it."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.apps.gate.gate_toml import GateConfig

STOPPED = 130


def serve(options: argparse.Namespace, world: CliContext) -> int:
    """Serve until the process is stopped: the server with its deck, and nothing in it but the gate."""
    from glidepath.apps.cli.deck_server import address_of, make_entry_file
    from glidepath.apps.cli.extras import require_extra
    from glidepath.apps.cli.secrets_given import check_secrets
    from glidepath.apps.gate import freeze_heap, listen_config
    from glidepath.apps.gate.gate_toml import load_config

    require_extra("starlette", "serve")
    from glidepath.apps.server import app
    from glidepath.apps.server.listener import listen

    given = check_secrets(options, world, has_keys=True)
    config = load_config(world.folder / Path(options.config).expanduser(), world.environ)
    store = _choose_store(options.store, world)
    key = f"gate-{secrets.token_urlsafe(32)}"
    gate = _make_gate(config, options, world, store, {key: "run:shell"})
    application = app((), store=store, token=given.tokens(), gate=gate, allowed_hosts=_hosts(options))
    bound = _bind(options.host, options.port)
    port = bound.getsockname()[1]
    address = address_of(options.host, port, tls=options.tls_cert is not None)
    note = _RunningNote(port)
    note.write(address, key, config)
    world.note(f'The gate is at {address}; Ctrl-C stops. In a shell of yours: eval "$(glidepath gate env)"')
    page = make_entry_file(application, f"{address}/", port, world)

    def end() -> None:
        note.remove()
        if page is not None:
            page.remove()

    freeze_heap()
    try:
        listen(
            application,
            bound,
            tls_cert=options.tls_cert,
            tls_key=options.tls_key,
            ended=end,
            reload=partial(reload_gate, gate, options.config, world, lambda new: note.write(address, key, new)),
            configure=partial(listen_config, lifespan="on"),
        )
    except KeyboardInterrupt:
        return STOPPED
    finally:
        end()
    return 0


def gate_maker(options: argparse.Namespace, store: Any, world: CliContext) -> Callable[[str], Any]:
    """What makes the gate of `glidepath serve` under /gate/, with the same token, keys and store."""
    from glidepath.apps.cli.extras import require_extra

    require_extra("aiohttp", "gate")
    from glidepath.apps.gate.gate_toml import load_config

    config = load_config(world.folder / Path(options.gate).expanduser(), world.environ)
    return lambda token: _make_gate(config, options, world, store, {token: "control:operator"})


def make_reload(application: Any, options: argparse.Namespace, world: CliContext) -> Callable[[], None] | None:
    """What `glidepath serve` does when its gate, if it has one, is to read its configuration again."""
    path = getattr(options, "gate", None)
    return partial(reload_gate, application.state.gate, path, world) if path else None


def reload_gate(gate: Any, path: str, world: CliContext, then: Callable[[GateConfig], None] | None = None) -> None:
    """Read the configuration of a gate that runs again, and report the result on standard error. Never raises.

    With a mistake in it, the gate continues as it was.
    """
    from glidepath.apps.gate.gate_toml import load_config

    try:
        config = load_config(world.folder / Path(path).expanduser(), world.environ)
        later = gate.reload(config)
    except ConfigurationError as error:
        world.complain(f"{error}; the gate continues as it was")
        return
    except Exception as error:  # a guard that crashes stops what it guards
        world.complain(f"{path} could not be read again ({type(error).__name__}: {error}): restart the gate")
        return
    world.note(f"{path} was read again" + (f"; for {' and '.join(later)}, restart the gate" if later else ""))
    if then is not None:
        with suppress(ConfigurationError):
            then(config)


def _make_gate(
    config: GateConfig, options: argparse.Namespace, world: CliContext, store: Any, tokens: dict[str, str]
) -> Any:
    """A gate for the application of a server, which closes the store itself."""
    from glidepath.apps.cli.agent_maker import make_telemetry
    from glidepath.apps.gate.served_gate import ServedGate
    from glidepath.apps.server.locks import keys_for

    return ServedGate(
        config,
        environ=world.environ,
        tokens=tokens,
        store=store,
        owns_store=False,
        keys=None if store is None else keys_for(store),
        hosts=_hosts(options),
        telemetry=make_telemetry() if getattr(options, "otel", False) else None,
    )


def _hosts(options: argparse.Namespace) -> list[str]:
    from glidepath.apps.cli.deck_server import EVERYWHERE

    return [*options.allowed_host, *([] if options.host in EVERYWHERE else [options.host])]


def print_env(options: argparse.Namespace, world: CliContext) -> int:
    """Print what points a shell at a gate of the same user that runs now; an error when there is none."""
    from glidepath.apps.gate.launchers import KEY_VARIABLE, URL_VARIABLE, VENDORS

    found = _find_running(options.port)
    line = f"/{options.line.strip('/')}" if options.line.strip("/") else ""
    own, secret = f"{found['url']}{line}", f"{found['url']}/{found['key']}{line}"
    modes: dict[str, str] = found["modes"]
    lines: list[str] = []
    for name, vendor in VENDORS.items():
        mode = modes.get(name)
        if mode is None:
            continue
        base = own if mode == "swap" else secret
        lines += [f"export {variable}={shlex.quote(base + tail)}" for variable, tail in vendor.urls]
        if mode == "swap":
            lines.append(f"export {vendor.keys[0]}={shlex.quote(found['key'])}")
            lines += [f"unset {one}" for one in (*vendor.bearers, *vendor.detours) if world.environ.get(one)]
    is_swap = "swap" in modes.values()
    lines.append(f"export {URL_VARIABLE}={shlex.quote(own if is_swap else secret)}")
    if is_swap:
        lines.append(f"export {KEY_VARIABLE}={shlex.quote(found['key'])}")
    world.write("\n".join(lines) + "\n")
    if world.is_terminal(world.stdout):
        world.note('To use them: eval "$(glidepath gate env)"')
    return 0


class _RunningNote:
    """A file that only its owner can read: where a gate of theirs runs, and a key for their shells."""

    def __init__(self, port: int) -> None:
        self.path = _folder() / f"gate-{port}.json"

    def write(self, url: str, key: str, config: GateConfig) -> None:
        from glidepath.apps.cli.private_files import write_private
        from glidepath.apps.gate.launchers import VENDORS

        modes = {}
        for vendor in VENDORS:
            first = next((one for one in config.upstreams if one.dialect.partition("-")[0] == vendor), None)
            if first is not None:
                modes[vendor] = first.mode
        text = json.dumps({"url": url, "key": key, "pid": os.getpid(), "modes": modes})
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self.path, text.encode())
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be written: {error.strerror}") from None

    def remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()


def _folder() -> Path:
    from glidepath.sessions import default_file

    return default_file().parent


def _find_running(port: int | None) -> dict[str, Any]:
    """The note of a gate that runs; raises `ConfigurationError` when there is none, or more than one."""
    running = []
    for path in sorted(_folder().glob("gate-*.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            os.kill(found["pid"], 0)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        number = int(path.stem.partition("-")[2] or 0)
        if port is None or number == port:
            running.append((number, found))
    if not running:
        where = "" if port is None else f" on port {port}"
        raise ConfigurationError(
            f"no gate of yours runs{where}: start one with `glidepath gate serve --config gate.toml`, or put a single "
            "command behind its own gate with `glidepath gate run -- COMMAND`"
        )
    if len(running) > 1:
        ports = ", ".join(str(number) for number, _ in running)
        raise ConfigurationError(f"gates of yours run on the ports {ports}: choose one with --port")
    return running[0][1]  # type: ignore[no-any-return]


def _choose_store(said: str | None, world: CliContext) -> Any:
    from glidepath.apps.cli.stores import NO_STORE, SERVE_STORE, check_store, open_redacted_store

    name = said or world.environ.get("GLIDEPATH_STORE") or SERVE_STORE
    if name == NO_STORE:
        return None
    check_store(name, world, new=True)
    return open_redacted_store(name, None, world)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named: asyncio turns Nagle off then
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(2048)  # clients may connect as soon as the address is printed
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}; pass another --port") from None
    return bound
