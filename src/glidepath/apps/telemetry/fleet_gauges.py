"""The gauges of a fleet: runs queued, running, paused and failed, the oldest in a queue, and living workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from glidepath.values import ConfigurationError

__all__ = ["WatchedFleet", "watch_fleet"]

_log = logging.getLogger("glidepath.otel")


class _Standing(Protocol):
    queued: int
    running: int
    waiting: int
    failed: int
    oldest: float | None


class WatchedFleet(Protocol):
    """What is asked of a fleet: the state of its runs, and which workers are alive."""

    async def status(self) -> _Standing:
        """How many runs are queued, running, paused and failed."""
        ...

    async def workers(self) -> Sequence[object]:
        """The workers that hold a lease."""
        ...


async def watch_fleet(fleet: WatchedFleet, *, every: float = 10.0, meter_provider: MeterProvider | None = None) -> None:
    """Look at a fleet at this interval and show it as gauges, until this task is cancelled.

    Run it as a task beside a worker, or anywhere that reaches the fleet's database. A look that fails is logged, and
    the gauges show nothing until the next one.
    """
    if not every > 0:
        raise ConfigurationError(f"watch_fleet: every must be a number of seconds above 0, not {every!r:.80}")
    meter = (meter_provider or metrics.get_meter_provider()).get_meter("glidepath")
    seen: dict[str, float] = {}
    gauge = meter.create_observable_gauge
    gauge("glidepath.queue.depth", [partial(_observe_depths, seen)], "{run}", "Runs of the fleet, by state")
    gauge("glidepath.queue.oldest", [partial(_observe_one, seen, "oldest")], "s", "Age of the oldest run that waits")
    gauge("glidepath.worker.leases", [partial(_observe_one, seen, "workers")], "{worker}", "Workers that are alive")
    while True:
        try:
            status, workers = await fleet.status(), await fleet.workers()
        except Exception as error:
            _log.warning("the fleet could not be read: %s: %s", type(error).__name__, error)
            seen.clear()
        else:
            for state in _STATES:
                seen[state] = getattr(status, state)
            seen["oldest"] = status.oldest or 0.0
            seen["workers"] = len(workers)
        await asyncio.sleep(every)


_STATES = ("queued", "running", "waiting", "failed")


def _observe_depths(seen: dict[str, float], _: CallbackOptions) -> Iterable[Observation]:
    return [Observation(seen[state], {"state": state}) for state in _STATES if state in seen]


def _observe_one(seen: dict[str, float], name: str, _: CallbackOptions) -> Iterable[Observation]:
    return [Observation(seen[name])] if name in seen else []
