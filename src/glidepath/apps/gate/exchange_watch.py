"""Looks after the calls of a gate that are on their way: one timer for what has to end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from glidepath.apps.gate.exchanges import HEAD, READ, SEND, SILENT

if TYPE_CHECKING:
    from glidepath.apps.gate.exchanges import Exchange

CLIENT_STALL = 300.0  # seconds in which a client reads nothing


class ExchangeWatch:
    """Looks after all exchanges with one timer: calls that were cut, upstreams and clients that went silent."""

    STEP = 0.04

    def __init__(self) -> None:
        self.exchanges: set[Exchange] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self, seconds: float) -> None:
        """Wait until there is no exchange, at most this long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)

    def discard(self, exchange: Exchange) -> None:
        """This one is over."""
        self.exchanges.discard(exchange)
        if not self.exchanges:
            self._idle.set()

    def add(self, exchange: Exchange) -> None:
        """Look after this one."""
        self.exchanges.add(exchange)
        self._idle.clear()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.STEP, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.STEP, self._look) if self.exchanges else None
        self.check(loop.time())

    def check(self, now: float) -> None:
        """Interrupt what has to end."""
        for one in tuple(self.exchanges):
            passage = one.passage
            if passage is None:
                continue
            upstream, silent = passage.upstream, now - one.since
            if (passage.is_cut or passage.stop_reason is not None) and one.phase in (HEAD, READ):
                one.interrupt("cut")
            elif one.phase == HEAD and silent > upstream.first_byte_timeout:
                one.interrupt(f"upstream {upstream.name} sent no reply in {upstream.first_byte_timeout:g} s")
            elif one.phase == READ and silent > upstream.idle_timeout:
                one.interrupt(f"upstream {upstream.name} was silent for {upstream.idle_timeout:g} s in its reply")
            elif one.phase in (HEAD, READ) and silent > passage.patience:
                one.interrupt(SILENT)
            elif one.phase == SEND and silent > CLIENT_STALL:
                one.interrupt("gone")
