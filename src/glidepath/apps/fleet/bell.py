"""The bell of a fleet: one connection that receives notifications, so that nothing has to poll."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import Any

from glidepath.apps.fleet.contain import FREED, QUEUED, require_extra
from glidepath.sessions import translate_errors

Turn = tuple[float, "asyncio.Future[None]"]
Whose = tuple[str | None, bool]
"""A tenant, and whether its runs have yet to start: those have their own queue."""


class Bell:
    """Hears when a budget has room again and when runs are queued; `hears` says whether it is connected."""

    def __init__(self, dsn: str, timeout: float) -> None:
        self._dsn = dsn
        self._timeout = timeout
        self._line: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._queues: dict[Whose, list[Turn]] = {}
        self.on_queued: Callable[[], None] | None = None

    @property
    def hears(self) -> bool:
        """True while somebody listens."""
        return self._line is not None and not self._line.is_closed()

    async def listen(self) -> None:
        """Connect; raises `StoreError` when that fails."""
        if self._loop is not asyncio.get_running_loop():  # the first time, or on another loop
            self._loop, self._lock, self._line = asyncio.get_running_loop(), asyncio.Lock(), None
        async with self._lock:
            if self.hears:
                return
            with translate_errors("the fleet's database", self._timeout):
                line = await require_extra("asyncpg").connect(
                    self._dsn, timeout=self._timeout, command_timeout=self._timeout
                )
                try:
                    await line.add_listener(FREED, self._on_freed)
                    await line.add_listener(QUEUED, self._on_queued)
                    line.add_termination_listener(self._on_queued)  # those who relied on it poll again
                except BaseException:
                    line.terminate()
                    raise
            self._line = line

    def _on_freed(self, *_: object) -> None:
        for whose in list(self._queues):
            self.wake_first_waiter(whose)

    def _on_queued(self, *_: object) -> None:
        if self.on_queued is not None:
            self.on_queued()

    def wake_first_waiter(self, whose: Whose) -> None:
        """Let the first waiter for a budget of this tenant ask again."""
        queue = self._queues.get(whose)
        while queue:
            _, turn = queue.pop(0)
            if not turn.done():
                turn.set_result(None)
                break

    @contextmanager
    def queue_turn(self, whose: Whose, since: float) -> Iterator[asyncio.Future[None]]:
        """A place in a tenant's queue, done once something was given back. Take it, ask, and only then wait.

        It is behind all who have waited since before `since`.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue, place = self._queues.setdefault(whose, []), (since, turn)
        insort(queue, place, key=itemgetter(0))
        try:
            yield turn
        finally:
            turn.cancel()
            with suppress(ValueError):
                queue.remove(place)
            if not queue and self._queues.get(whose) is queue:
                del self._queues[whose]

    async def close(self) -> None:
        """Hang up."""
        line, self._line = self._line, None
        if line is not None:
            with suppress(Exception):
                await line.close(timeout=self._timeout)
            if not line.is_closed():
                line.terminate()
