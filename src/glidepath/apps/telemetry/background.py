"""A thread that ends spans: a blocking exporter blocks this thread, never a run.

Ending a span may export it at once (a simple processor does), and an exporter may wait for a collector that never
answers. So whatever an event brings to its end is handed to a thread: one for each plugin. It waits a moment after it
was woken, to do more at a time, and ends after a while without work. What does not fit into its
queue, or is left when the process ends, is dropped and counted.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from time import monotonic

__all__ = ["Background"]

_log = logging.getLogger("glidepath.otel")

ROOM = 16_384  # jobs that may wait
GATHER = 0.02  # seconds between being woken and the first job
IDLE = 2.0  # seconds without a job after which the thread ends
PATIENCE = 0.1  # seconds that the end of a run waits for what it has handed over
LAST_CHANCE = 1.0  # seconds that the end of the process waits

Job = Callable[[], object]


class Background:
    """The queue and the thread that empties it."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._busy_since: float | None = None
        self._process = os.getpid()
        self._registered = False
        self.dropped = 0
        self.failed = 0

    @property
    def inherited(self) -> bool:
        """Whether this process was forked since: the thread is not here, and the queue is the parent's."""
        return self._process != os.getpid()

    @property
    def empty(self) -> bool:
        """Whether everything that was handed over is done."""
        return not self._jobs and self._busy_since is None

    def put(self, job: Job) -> None:
        """Hand something over; never waits."""
        if len(self._jobs) >= ROOM:
            self.dropped += 1
            if self.dropped == 1:
                _log.warning("the exporter does not keep up: spans are dropped from now on")
            return
        self._push(job)

    def _push(self, job: Job) -> None:
        self._jobs.append(job)
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:  # looked at after the job is in: the thread leaves first and looks then
            self._start()

    async def drain(self, patience: float = PATIENCE) -> bool:
        """Wait until what was handed over so far is done; False when that takes too long."""
        if self.empty:
            return True
        if self._is_stuck(patience):
            return False
        loop = asyncio.get_running_loop()
        done = threading.Event()
        self._push(done.set)
        if self._thread is None:
            return False
        self._hurry.set()
        return await loop.run_in_executor(None, done.wait, patience)

    def _is_stuck(self, patience: float) -> bool:
        """Whether one job has taken so long that waiting would be pointless."""
        since = self._busy_since
        return since is not None and monotonic() - since > patience

    def _start(self) -> None:
        with self._lock:
            if not self._registered:  # so late that it comes before the provider says goodbye, which is there by now
                self._registered = True
                atexit.register(_close, weakref.ref(self))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_jobs, name="glidepath-otel", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # no room for one, or the process ends: tried again with the next job
                    self._thread = None

    def _run_jobs(self) -> None:
        while True:
            if not self._wake.wait(IDLE) and self._is_to_end():
                return
            self._hurry.wait(GATHER)
            self._hurry.clear()
            self._wake.clear()
            while self._jobs:
                self._busy_since = monotonic()
                try:
                    self._jobs.popleft()()
                except BaseException as error:
                    self.failed += 1
                    if self.failed == 1:
                        _log.warning("a span was lost: %s: %s", type(error).__name__, error)
            self._busy_since = None

    def _is_to_end(self) -> bool:
        """Whether the thread ends; a job that came in at the last moment keeps it."""
        with self._lock:
            mine, self._thread = self._thread, None
            if self._jobs:
                self._thread = mine
                return False
            return True

    def close(self) -> None:
        """Shut down; what is not done within a second is dropped."""
        if self._thread is None or self.inherited or not (self._jobs or self._busy_since is not None):
            return
        done = threading.Event()
        self._push(done.set)
        self._hurry.set()
        if not done.wait(LAST_CHANCE):
            self.dropped += len(self._jobs)
            _log.warning("%d spans were not exported: the exporter did not answer", self.dropped)
            self._jobs.clear()


def _close(one: weakref.ref[Background]) -> None:
    background = one()
    if background is not None:
        background.close()
