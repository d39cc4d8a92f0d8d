"""The socket: uvicorn, with slow connections closed."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from glidepath.apps.server.hangups import watch_hangup

HEADER_SECONDS = 10.0  # in which a request's head must have arrived
KEEP_ALIVE = 15  # seconds a connection may be idle between two requests
MAX_HEAD = 32_768  # bytes of a request's head
MAX_CONNECTIONS = 2_000


class PatientProtocol(H11Protocol):
    """HTTP on one connection, closed when the head of a request does not arrive in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody has connected."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._on_deadline)

    def data_received(self, data: bytes) -> None:
        """Something has arrived."""
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._on_deadline)
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """They have gone."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()


class DeckListener(uvicorn.Server):
    """Grounds the runs before it waits for connections to end, so that readers see how their runs ended."""

    ended: Callable[[], None] | None = None
    reload: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin; from now on a hangup means to read the configuration again, where there is one to read."""
        await super().startup(sockets)
        if self.reload is not None and hasattr(signal, "SIGHUP"):
            watch_hangup(self.reload, self.stop)

    def stop(self) -> None:
        """As after SIGTERM: runs land, calls in flight finish."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the runs, then the server."""
        application: Any = self.config.app
        gate = application.state.gate
        if gate is not None:
            for one in self.servers:
                one.close()
            await gate.drain()
        await application.state.hub.stop_all()
        await super().shutdown(sockets)
        if self.ended is not None:  # here, because the signal that stops a server ends the process after this
            self.ended()


def config_for(application: Any, **options: Any) -> uvicorn.Config:
    """How uvicorn serves it."""
    return uvicorn.Config(
        application,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=MAX_HEAD,
        limit_concurrency=MAX_CONNECTIONS,
        proxy_headers=False,
        **options,
    )


def listen(
    application: Any,
    bound: socket.socket,
    *,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    ended: Callable[[], None] | None = None,
    reload: Callable[[], None] | None = None,
    configure: Callable[..., uvicorn.Config] = config_for,
) -> None:
    """Serve on a bound socket until the process is asked to stop; with a certificate, over TLS.

    `reload` is called in the loop when the process gets SIGHUP.
    """
    server = DeckListener(configure(application, ssl_certfile=tls_cert, ssl_keyfile=tls_key))
    server.ended, server.reload = ended, reload
    server.run(sockets=[bound])
