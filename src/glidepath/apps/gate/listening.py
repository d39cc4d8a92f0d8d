"""The gate's socket: uvicorn with the fast parser, and no patience with slow or endless heads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Generator
from typing import Any

import uvicorn

from glidepath.values import ConfigurationError

HEADER_SECONDS = 10.0  # in which a request's head must have arrived
KEEP_ALIVE = 75  # seconds a connection may be idle between two requests: agents think for long
MAX_HEAD = 65_536  # bytes of a request's head
MAX_CONNECTIONS = 4_000

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # without httptools: slower
    from glidepath.apps.server.listener import PatientProtocol as GateProtocol
else:

    class GateProtocol(HttpToolsProtocol):  # type: ignore[no-redef]
        """HTTP on one connection, closed when the head of a request is too long or does not arrive in time."""

        _deadline: asyncio.TimerHandle | None = None
        _head = 0  # bytes of a head that is not complete; -1 while a body is read

        def connection_made(self, transport: Any) -> None:
            """Somebody has connected."""
            super().connection_made(transport)
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._close_slow)

        def data_received(self, data: bytes) -> None:
            """Something has arrived."""
            if self._head >= 0:
                self._head += len(data)
                if self._deadline is None:
                    self._deadline = self.loop.call_later(HEADER_SECONDS, self._close_slow)
            super().data_received(data)
            if self._head > MAX_HEAD and not self.transport.is_closing():
                if not self._is_answering():  # else these bytes would end up inside an answer
                    self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
                self.transport.close()

        def on_header(self, name: bytes, value: bytes) -> None:
            """A header of a request. Trailers are dropped: nobody has checked them."""
            if self._head >= 0:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            """A head is complete."""
            self._head = -1
            self._forget_deadline()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            """The next head may come, also while this request is still being answered."""
            super().on_message_complete()
            self._head = 0

        def connection_lost(self, exc: Exception | None) -> None:
            """They have gone."""
            self._forget_deadline()
            super().connection_lost(exc)

        def _unsupported_upgrade_warning(self) -> None:
            """The application answers it; the log need not know."""

        def _forget_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _is_answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _close_slow(self) -> None:
            self._deadline = None
            if self._is_answering():
                self._deadline = self.loop.call_later(HEADER_SECONDS, self._close_slow)
            elif self._head >= 0 and not self.transport.is_closing():
                self.transport.close()


def freeze_heap() -> None:
    """For a process that is a gate and nothing else: what was imported lives as long as it does.

    A full collection would walk through all of it, and hold every call back for 10 ms.
    """
    gc.collect()
    gc.freeze()


class GateListener(uvicorn.Server):
    """Serves in a loop that belongs to somebody else: signals are theirs."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone."""
        yield

    async def main_loop(self) -> None:
        """Wait for the end; there is no date to keep up."""
        while not self.should_exit:  # noqa: ASYNC110 - uvicorn has a flag
            await asyncio.sleep(0.02)


def listen_config(application: Any, **options: Any) -> uvicorn.Config:
    """How uvicorn serves a gate. The date is the upstream's, like all headers."""
    options.setdefault("lifespan", "off")
    try:
        return uvicorn.Config(
            application,
            http=GateProtocol,
            ws="none",
            log_level="error",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=MAX_HEAD,
            limit_concurrency=MAX_CONNECTIONS,
            proxy_headers=False,
            backlog=2048,
            **options,
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the gate cannot listen as configured: {error}") from None
