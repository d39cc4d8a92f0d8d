"""How often DBOS polls its tables: frequently when there is work, rarely otherwise.

Its threads sleep in the `wait` of the events that stop them, which we replace: ours returns when the bell rings, never
more often than DBOS itself would poll, and now and then in any case. While the fleet's bell is not connected, it waits
as long as DBOS asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from glidepath.apps.fleet.contain import QUEUE

IDLE = 10.0  # seconds between two polls of a queue without news
SELDOM = 60.0  # the same for what a fleet does not use: schedules, delays, timeouts, DBOS's own queue
OURS = f"queue-worker-{QUEUE}"


class Pace:
    """The pace of the threads of one DBOS instance."""

    def __init__(self, hears: Callable[[], bool]) -> None:
        self._hears = hears
        self._bell = threading.Condition()
        self._rings = 0
        self._seen: dict[int, int] = {}  # how many rings each thread knew of when it last polled

    def take(self, event: threading.Event) -> None:
        """Make the threads that wait for this event follow our pace."""
        stop, wait = event.set, event.wait
        there: Any = event
        there.wait = partial(self._wait, event, wait)
        there.set = partial(self._set, stop)

    def wake_threads(self) -> None:
        """Wake the threads; safe from any thread."""
        with self._bell:
            self._rings += 1
            self._bell.notify_all()

    def _set(self, stop: Callable[[], None]) -> None:
        stop()
        with self._bell:
            self._bell.notify_all()

    def _wait(self, event: threading.Event, wait: Callable[[float | None], bool], timeout: float | None = None) -> bool:
        if timeout is None or not self._hears():
            return wait(timeout)
        thread = threading.current_thread()
        longest = max(timeout, IDLE if thread.name.startswith(OURS) else SELDOM)
        with self._bell:
            known = self._seen.get(thread.ident or 0)
            began = time.monotonic()
            while not event.is_set():
                waited = time.monotonic() - began
                rung = self._rings != known
                if waited >= longest or (rung and waited >= timeout) or not self._hears():
                    break
                self._bell.wait((timeout if rung else longest) - waited)
            self._seen[thread.ident or 0] = self._rings
        return event.is_set()
