"""A gate in this process: `async with Gate(limits=..., upstream=...) as gate` and agents point at `gate.url`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from glidepath.apps.gate.bodies import BODY_SECONDS, MAX_BODY, PATIENCE
from glidepath.apps.gate.upstreams import Upstream, read_upstreams
from glidepath.apps.server.locks import Doorkeeper, KeyRing, Visitor, parse_hosts
from glidepath.values import ConfigurationError, require_extra

if TYPE_CHECKING:
    from glidepath.agent import Limits
    from glidepath.apps.gate.gate_application import GateApplication
    from glidepath.apps.gate.governing import Governor
    from glidepath.apps.gate.recordings import RecordingTerms
    from glidepath.apps.gate.recordings.taps import Tap
    from glidepath.apps.gate.upstream_client import UpstreamClient
    from glidepath.apps.gate.wind_tunnel import WindTunnel
    from glidepath.apps.telemetry import OpenTelemetry
    from glidepath.spi import SessionStore

DRAIN = 5.0  # seconds that calls in flight get when a gate is closed
_MARK = "gate-"


class Gate:
    """A gate on loopback, for as long as the `async with` lasts.

    `upstream` is a URL, a mapping of dialects to URLs, or `Upstream`s. `url` is what agents take as base URL, without
    `/v1`; `key` is their API key there. `report` tells what was used. `program` names the agent, such as
    `mini-swe-agent`, which ends only by its own command. With a `store` every run is a session in it. `governor`
    replaces the rules that are made of `limits`, and has its own store. A body has at most `max_body` bytes and
    `body_seconds` to arrive; a call that waits for budget longer than `patience` seconds gets signs of life. With
    `inject`, such as "cut-stream" or "cut-stream,7" with a seed, the calls have that bad day on their way. With
    `record` what clients send and get is kept beside the runs, to be replayed; a `tap` sees every call instead. With
    `telemetry` every run is spans and metrics as well.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        upstream: str | Mapping[str, str] | Upstream | Sequence[Upstream] = (),
        *,
        observe: bool = False,
        governor: Governor | None = None,
        key: str | None = None,
        port: int = 0,
        line: str = "",
        program: str = "",
        environ: Mapping[str, str] | None = None,
        store: SessionStore | None = None,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
        patience: float = PATIENCE,
        inject: str = "",
        record: bool | RecordingTerms = False,
        tap: Tap | None = None,
        telemetry: OpenTelemetry | None = None,
    ) -> None:
        for package in ("aiohttp", "uvicorn"):
            require_extra(package, f"the gate needs {package}", "gate")
        self.upstreams = read_upstreams(upstream)
        self._client, self.tunnel = _make_client(self.upstreams, os.environ if environ is None else environ, inject)
        self._limits = limits
        self._observe = observe
        self._program = program
        self._line = line.strip("/")
        self.governor = governor or self._make_governor(store, telemetry)
        self.key = key or _MARK + secrets.token_urlsafe(32)
        """The key that opens this gate."""
        if record and tap is not None:
            raise ConfigurationError("a gate records its calls or has a tap, not both: leave out record or tap")
        self.tap = self._make_recorder(store, record, environ) if record else tap
        """What sees every call: the recorder, where there is one."""
        self._options: dict[str, Any] = {"max_body": max_body, "body_seconds": body_seconds, "patience": patience}
        self.socket = _bind(port)
        """Bound and listening: connections made before the gate has started wait."""
        self.application: GateApplication | None = None
        self._listener: Any = None
        self._serving: asyncio.Task[None] | None = None

    def _make_governor(self, store: SessionStore | None, telemetry: OpenTelemetry | None) -> Governor:
        from glidepath.apps.gate.governor import make_governor
        from glidepath.apps.gate.session_keeper import SessionKeeper, observe_by

        witness = None
        if store is not None or telemetry is not None:
            # Where the path names the run, nothing that others have left in the store can belong to it.
            witness = SessionKeeper(store, adopts=not self._line, observe=observe_by(telemetry))
        return make_governor(
            limits=self._limits,
            upstreams=self.upstreams,
            observe=self._observe,
            program=self._program,
            witness=witness,
            injected="" if self.tunnel is None else self.tunnel.name,
        )

    def _make_recorder(
        self, store: SessionStore | None, record: bool | RecordingTerms, environ: Mapping[str, str] | None
    ) -> Tap:
        from glidepath.apps.gate.recordings import Recorder

        return Recorder(
            store,
            None if isinstance(record, bool) else record,
            folder=_find_folder(),
            home=(os.environ if environ is None else environ).get("HOME", ""),
            secrets=lambda: [self.key.encode(), *self._client.list_secrets()],
        )

    @property
    def address(self) -> str:
        """Where it listens: scheme, host and port."""
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    @property
    def url(self) -> str:
        """The base URL for agents, without /v1. The key is sent as API key."""
        return f"{self.address}/{self._line}".rstrip("/")

    @property
    def secret_url(self) -> str:
        """The base URL for agents that keep their own credentials: the key is a segment of the path."""
        return f"{self.address}/{self.key}/{self._line}".rstrip("/")

    def report(self) -> dict[str, Any]:
        """What was used so far, by whom, and how it ended."""
        report: Callable[[], dict[str, Any]] | None = getattr(self.governor, "report", None)
        told = {} if report is None else report()
        return told if self.tunnel is None else {**told, "injected": self.tunnel.report()}

    async def __aenter__(self) -> Self:
        from glidepath.apps.gate.gate_application import GateApplication
        from glidepath.apps.gate.listening import GateListener, listen_config

        keeper = make_doorkeeper({self.key: "run:gate"})
        self.application = GateApplication(self.governor, self._client, keeper, tap=self.tap, **self._options)
        self._listener = GateListener(listen_config(self.application))
        self._serving = asyncio.ensure_future(self._listener.serve([self.socket]))
        while not self._listener.started:
            if self._serving.done():
                self._serving.result()
                raise ConfigurationError("the gate could not be started; its log says why")
            await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def stop(self, reason: str) -> None:
        """No further call; those in flight are cut at once, each in its dialect."""
        if self.application is not None:
            await self.application.stop(reason)

    async def close(self, drain: float = DRAIN) -> None:
        """Wait for calls in flight, settle them, and stop listening."""
        if self.application is None or self._serving is None:
            self.socket.close()
            return
        await self.application.drain(drain)
        self._listener.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving
        await self.application.close()
        witness = getattr(self.governor, "witness", None)
        if witness is not None:
            await witness.close()
        self.application = None


def _find_folder() -> str:
    """Where the command runs; empty when that folder is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 - as the command sees it
    except OSError:
        return ""


def make_doorkeeper(
    tokens: Mapping[str, str],
    *,
    keys: KeyRing | None = None,
    hosts: Sequence[str] = (),
    origins: frozenset[str] = frozenset(),
) -> Doorkeeper:
    """The lock of a gate: every path needs a key. Tokens are given with their role and name, as `run:webchat@acme`."""
    known: dict[str, Visitor] = {}
    for secret, role in tokens.items():
        word, _, name = role.partition(":")
        name, _, tenant = name.partition("@")
        known[secret] = Visitor(name or word, word, tenant or None)
    return Doorkeeper(
        tokens=known, hosts=parse_hosts(hosts), is_private=lambda _: True, keys=keys, origins=origins, mark=""
    )


def _make_client(
    upstreams: Sequence[Upstream], environ: Mapping[str, str], inject: str
) -> tuple[UpstreamClient, WindTunnel | None]:
    """What sends calls on, and the wind tunnel where that is one."""
    if inject:
        from glidepath.apps.gate.wind_tunnel import WindTunnel, read_injection

        tunnel = WindTunnel(*read_injection(inject), upstreams, environ)
        return tunnel, tunnel
    from glidepath.apps.gate.upstream_client import UpstreamClient

    return UpstreamClient(upstreams, environ), None


def _bind(port: int) -> socket.socket:
    # asyncio turns Nagle off only where the socket says that it is TCP; otherwise each reply takes 40 ms.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        bound.listen(2048)
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"the gate cannot listen on 127.0.0.1:{port}: {error.strerror}") from None
    return bound


@contextlib.contextmanager
def closing_socket(gate: Gate) -> Iterator[Gate]:
    """For a gate that may never be started."""
    try:
        yield gate
    finally:
        gate.socket.close()
