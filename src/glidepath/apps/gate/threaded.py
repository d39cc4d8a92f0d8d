"""A gate in its own thread, for a program whose main thread waits for something else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from glidepath.apps.gate.listening import freeze_heap
from glidepath.apps.gate.local_gate import DRAIN, Gate
from glidepath.values import GlidepathError

_PATIENCE = 30.0  # seconds for the start


class GateThread:
    """Serves a gate until `close`. `closing` is awaited after that, in the same loop."""

    def __init__(self, gate: Gate, *, closing: Callable[[], Awaitable[None]] | None = None) -> None:
        self.gate = gate
        self._closing = closing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._drain = DRAIN
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="glidepath-gate", daemon=True)

    def start(self) -> None:
        """Start it and wait until it answers; raises what kept it from starting."""
        self._thread.start()
        self._ready.wait(_PATIENCE)
        if self._error is not None:
            raise self._error
        if not self._ready.is_set():
            raise GlidepathError("the gate did not start in time")

    def close(self, drain: float = DRAIN) -> None:
        """Let calls in flight end, settle them, and stop."""
        loop, leave = self._loop, self._leave
        if loop is not None and leave is not None and self._thread.is_alive():
            self._drain = drain
            loop.call_soon_threadsafe(leave.set)
        self._thread.join(drain + _PATIENCE)

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._live())
        except BaseException as error:  # its thread ends; `start` raises it
            self._error = error
        finally:
            self._ready.set()

    async def _live(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        await self.gate.__aenter__()
        self._ready.set()
        freeze_heap()
        try:
            await self._leave.wait()
        finally:
            await self.gate.close(self._drain)
            if self._closing is not None:
                await self._closing()


def _loop_factory() -> Any:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
