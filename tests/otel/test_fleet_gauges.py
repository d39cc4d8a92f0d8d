"""A fleet as gauges: how many runs wait, fly, have paused and failed, and how many workers live."""

import asyncio
from types import SimpleNamespace

import pytest

from glidepath.errors import ConfigurationError
from glidepath.otel import watch_fleet
from glidepath.testing import virtual

from .kit import Recorded


class Fleet:
    """One that answers what it is given; with nothing left it is out of reach."""

    def __init__(self, *looks):
        self.looks = list(looks)

    async def status(self):
        if not self.looks:
            raise ConnectionError("the database is away")
        return self.looks.pop(0)

    async def workers(self):
        return [("one", ("small",)), ("two", ("small",))]


def standing(**numbers):
    return SimpleNamespace(**{"queued": 0, "running": 0, "waiting": 0, "failed": 0, "oldest": None, **numbers})


@virtual
async def test_the_gauges_show_the_last_look_and_nothing_when_it_failed():
    recorded = Recorded(measured=True)
    fleet = Fleet(standing(queued=7, running=3, oldest=42.0), standing(queued=1, failed=2))
    meters = recorded.plugin._providers[1]
    task = asyncio.create_task(watch_fleet(fleet, every=10, meter_provider=meters))
    await asyncio.sleep(1)
    shown = recorded.metrics()
    depth = {dict(labels)["state"]: point.value for labels, point in shown["glidepath.queue.depth"].items()}
    assert depth == {"queued": 7, "running": 3, "waiting": 0, "failed": 0}
    assert [point.value for point in shown["glidepath.queue.oldest"].values()] == [42.0]
    assert [point.value for point in shown["glidepath.worker.leases"].values()] == [2]
    await asyncio.sleep(10)
    depth = recorded.metrics()["glidepath.queue.depth"]
    assert {dict(labels)["state"]: point.value for labels, point in depth.items()}["failed"] == 2
    await asyncio.sleep(10)
    assert "glidepath.queue.depth" not in recorded.metrics()
    task.cancel()


def test_a_wrong_interval_is_named():
    with pytest.raises(ConfigurationError, match="every"):
        asyncio.run(watch_fleet(Fleet(), every=0))
