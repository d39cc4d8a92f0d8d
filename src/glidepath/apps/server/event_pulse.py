"""When events are recorded and shown: at once, but for the pieces of a reply, which are gathered for a moment.

A reply comes in many small pieces, and each would be a write to the log and one to every reader. They are gathered for
a few hundredths of a second, longer with many readers and longer still while the process cannot keep up. All runs have
one pulse, so that a hundred of them need one timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidepath.apps.server.run_feed import RunFeed

__all__ = ["Pulse"]

QUICK, SLOW = 0.02, 1.5  # seconds between two beats, when there are few readers and at most
PER_READER = 0.0012
_MOST_PRESSURE = 16.0
_LATE = 0.5  # of a beat: when a beat is so late the process has too much to do


class Pulse:
    """Decides when the events that a feed has in `incoming` are recorded."""

    def __init__(
        self, count_readers: Callable[[], int], record: Callable[[RunFeed], Awaitable[None]], *, at_once: bool = False
    ) -> None:
        self._count_readers = count_readers
        self._record = record
        self._at_once = at_once  # writing means waiting for another machine: for all feeds together
        self._held: dict[str, RunFeed] = {}
        self._ready: dict[str, RunFeed] = {}
        self._bell = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._pressure = 1.0

    @property
    def gap(self) -> float:
        """Seconds between two beats."""
        return min(SLOW, max(QUICK, PER_READER * self._count_readers()) * self._pressure)

    def hold(self, feed: RunFeed) -> None:
        """Record what this feed has with the next beat."""
        self._held[feed.run_id] = feed
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._due = loop.time() + self.gap
            self._timer = loop.call_at(self._due, self._beat)

    def release(self, feed: RunFeed) -> None:
        """Record what this feed has as soon as the loop is free."""
        self._ready[feed.run_id] = feed
        self._bell.set()

    def _beat(self) -> None:
        gap = self.gap
        late = asyncio.get_running_loop().time() - self._due
        self._pressure = (
            min(_MOST_PRESSURE, self._pressure * 1.5) if late > gap * _LATE else 1 + (self._pressure - 1) * 0.8
        )
        self._timer = None
        self._ready |= self._held
        self._held = {}
        self._bell.set()

    async def run(self) -> None:
        """Record what is due, until the server ends."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            ready, self._ready = self._ready, {}
            if self._at_once and len(ready) > 1:
                await asyncio.gather(*map(self._record, ready.values()))
                continue
            for feed in ready.values():
                await self._record(feed)

    def close(self) -> None:
        """No further beat."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
