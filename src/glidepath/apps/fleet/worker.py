"""A worker: runs what is in the queues of its agents, and continues the runs of workers that died.

DBOS gives each run to one worker at a time. The journal of a run is the only record of what it did: the workflow is one
call of `Agent.run` or `Agent.resume`, without DBOS steps (docs/adr/0007-one-truth.md).
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath._sdk_privates import dbos_instance, is_launched, stop_events
from glidepath.apps.fleet.agents import find_agents
from glidepath.apps.fleet.contain import APPLICATION, QUEUE, VERSION, WORKFLOW, claim_process, require_extra
from glidepath.apps.fleet.fleet_ledger import FleetLedger
from glidepath.apps.fleet.fleet_redaction import FleetRedaction
from glidepath.apps.fleet.pace import Pace
from glidepath.apps.fleet.worker_flight import FleetStore, WorkerFlight
from glidepath.sessions import LEASE, is_alive, this_owner
from glidepath.values import ConfigurationError, StoreError, check_int, check_seconds, describe_error

if TYPE_CHECKING:
    from types import ModuleType

    from glidepath.sessions import Hook

_log = logging.getLogger("glidepath")
BEATS = 4  # heartbeats in a lease
JOIN = 2.0  # seconds to wait for a poll of the queues that has started
DESTROY = 5.0  # seconds for DBOS to end when its database is unreachable
LAUNCH = 30.0  # seconds for DBOS to create its tables and start, during which a worker sends no heartbeat


class Worker:
    """Executes the runs that are submitted for its agents: `await Worker(dsn, agents={...}).serve()`.

    `agents` maps names to an `Agent`, a `LoopConfig`, a function that makes one, or "module:attribute". `concurrency`
    is how many runs of each agent it runs at a time; `lease` how many seconds it may be silent before others take
    its runs; `poll` how often it looks for work; `redact` is the hook of a `RedactingStore` for what it writes. One
    worker for a process. Needs the extra `glidepath[dbos]`.
    """

    def __init__(
        self,
        dsn: str,
        *,
        agents: Mapping[str, Any],
        concurrency: int = 8,
        lease: float = LEASE,
        poll: float = 0.5,
        drain: float = 20.0,
        connections: int = 8,
        ledger: FleetLedger | None = None,
        redact: Hook | None = None,
    ) -> None:
        for field, number in (("concurrency", concurrency), ("connections", connections)):
            check_int(field, number, required=True)
        for field, seconds in (("lease", lease), ("poll", poll)):
            check_seconds(field, seconds, required=True)
        if isinstance(drain, bool) or not isinstance(drain, int | float) or not 0 <= drain < math.inf:
            raise ConfigurationError(f"drain must be a number of seconds of at least 0; got {drain!r}")
        self.ledger = ledger or FleetLedger(dsn, connections=max(2, connections // 2))
        self.redaction = FleetRedaction(redact)
        self.store = self.redaction.store(FleetStore(dsn, lease=lease, max_connections=connections))
        self.agents = find_agents(agents, self.store)
        self.rated: frozenset[str] = frozenset()
        self.id = ""
        self.flights: set[WorkerFlight] = set()
        self.cut_off = False  # the database did not answer the last time it was asked
        self._concurrency = concurrency
        self._lease = lease
        self._poll = poll
        self._drain = drain
        self._connections = connections
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._started = asyncio.Event()
        self._pace = Pace(lambda: self.ledger.bell.hears)
        self._stray: set[str] = set()  # our runs that had no flight at the last check

    # --- public methods ---------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Work until `stop` is called. Raises `ConfigurationError`, or `StoreError` if the database is unreachable."""
        dbos = require_extra("dbos")
        with claim_process():
            try:
                await self._prepare()
                while not self._stop.is_set():
                    await self._keep_running(dbos)
            finally:
                await asyncio.gather(self.ledger.close(), self.store.close())

    def stop(self, *, now: bool = False) -> None:
        """Take no more runs and end. Running ones get `drain` seconds, or none with `now`; then others take over."""
        self._stop.set()
        if now:
            self._hurry.set()

    async def started(self) -> None:
        """Return when the worker takes runs."""
        await self._started.wait()

    async def _prepare(self) -> None:
        with suppress(StoreError):  # makes the tables of the store
            await self.store.load("")
        await self.ledger.check()

    # --- one life: from the first heartbeat until it is stopped or presumed dead ----------------------------------

    async def _keep_running(self, dbos: ModuleType) -> None:
        self.id = this_owner()
        await self.ledger.register_worker(self.id, self._lease + LAUNCH, sorted(self.agents))
        lost = False
        try:
            await self._launch(dbos)
            self._started.set()
            lost = await self._beat_until_stopped()
            if not lost:
                await self._shut_down_gracefully()
        finally:
            await self._hand_over_and_stop(dbos)

    async def _launch(self, dbos: ModuleType) -> None:
        config = {
            "name": APPLICATION,
            "system_database_url": self.ledger.dsn,
            "application_version": VERSION,
            "executor_id": self.id,
            "sys_db_pool_size": 3,
            "use_listen_notify": False,
            "log_level": "INFO",
        }
        try:
            await self._launch_dbos(dbos, config)
        except Exception as error:
            raise StoreError(f"DBOS could not start on the fleet's database: {describe_error(error)}") from error

    async def _launch_dbos(self, dbos: ModuleType, config: dict[str, Any]) -> None:
        dbos.DBOS(config=config)
        dbos.DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(self._workflow())
        queues = [f"{QUEUE}{name}" for name in self.agents]
        dbos.DBOS.listen_queues(queues)
        dbos.DBOS.launch()  # not in a thread: DBOS runs workflows on the loop that launches it
        for event in stop_events(dbos_instance()):
            self._pace.take(event)
        register = partial(
            dbos.DBOS.register_queue,
            worker_concurrency=self._concurrency,
            polling_interval_sec=self._poll,
            on_conflict="always_update",
        )
        for queue in queues:
            await asyncio.to_thread(register, queue)
        self.ledger.bell.on_queued = self._pace.wake_threads
        self._pace.wake_threads()

    def _workflow(self) -> Any:
        async def fly(session: str, agent: str, task: str, about: Mapping[str, Any] | None = None) -> str:
            flight = WorkerFlight(self, session, agent, task, about)
            self.flights.add(flight)
            self._pace.wake_threads()  # there may be more in the queue
            try:
                return await flight.run_to_end()
            finally:
                self.flights.discard(flight)
                self._pace.wake_threads()  # there is room for another one

        return fly

    async def _beat_until_stopped(self) -> bool:
        """Renew the lease, and take over from workers that did not. True if others have given up on this worker."""
        loop = asyncio.get_running_loop()
        heard, patience, next_search = loop.time(), 0.0, 0.0
        while not self._stop.is_set():
            try:
                known, late, others, self.rated = await self.ledger.renew_worker_lease(self.id, self._lease)
                now = loop.time()
                if now - heard > self._lease:  # all workers were cut off: wait until all could have answered
                    patience = now + 2 * self._lease
                heard = now
                if not known:
                    _log.warning("worker %s was silent for too long: other workers have its runs", self.id)
                    return True
                dead = [one for one in others if not is_alive(one)]
                if now >= next_search:
                    next_search = now + self._lease
                    dead += await self._search()
                if dead or (late and now >= patience):
                    await self._take_over(late if now >= patience else [], dead)
                self.cut_off = False
            except StoreError as error:
                self.cut_off = True
                _log.warning("worker %s: %s", self.id, error)
            with suppress(StoreError, TimeoutError):  # without it, DBOS polls
                await asyncio.wait_for(self.ledger.bell.listen(), self._lease / BEATS)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self._lease / BEATS)
        return False

    async def _search(self) -> list[str]:
        """Owners of runs that are not registered: presumed dead, they woke up, took runs, and died.

        A run that DBOS gave to this worker but that is not running here is put back when it is seen a second time.
        """
        flown = [flight.session for flight in self.flights]
        strays = await self.ledger.find_orphaned_runs(self.id, flown)
        mine = {session for session, owner in strays if owner == self.id}
        again, self._stray = mine & self._stray, mine
        if again:
            _log.warning("worker %s puts back runs that it never started: %s", self.id, ", ".join(sorted(again)))
            await self.ledger.put_back([self.id], sorted(again))
            await self.ledger.announce()
        return sorted({owner for _, owner in strays if owner != self.id})

    async def _take_over(self, late: list[str], dead: list[str]) -> None:
        """Put the runs of these workers back into their queues; forget the workers only after that."""
        await self.ledger.put_back([*late, *dead])
        await self.ledger.forget_workers(late, late=True)
        await self.ledger.forget_workers(dead, late=False)
        await self.ledger.announce()

    # --- the end ----------------------------------------------------------------------------------------------

    async def _shut_down_gracefully(self) -> None:
        """Take no more runs, and give the running ones time to end."""
        _close_queues()
        deadline = asyncio.get_running_loop().time() + self._drain
        while self.flights and not self._hurry.is_set():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), min(left, 0.1))
            await self._on_heartbeat()

    async def _on_heartbeat(self) -> None:
        """Renew the lease; `cut_off` says whether the database answered."""
        try:
            await self.ledger.renew_worker_lease(self.id, self._lease)
            self.cut_off = False
        except StoreError:
            self.cut_off = True

    async def _hand_over_and_stop(self, dbos: ModuleType) -> None:
        """Hand over running runs and shut DBOS down. What was put back is not taken again."""
        await asyncio.to_thread(_wait_for, _close_queues())
        flights = list(self.flights)
        for flight in flights:
            flight.hand_over()
        if flights:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*[flight.done.wait() for flight in flights]), 10)
        instance = dbos_instance()
        try:
            if is_launched(instance) and not self.cut_off:
                await self._on_heartbeat()  # DBOS would wait for its database forever
            if is_launched(instance) and not self.cut_off:
                with suppress(StoreError):  # then the worker that finds our lease expired does it
                    await self._take_over([], [self.id])
        finally:
            destroying = asyncio.to_thread(dbos.DBOS.destroy, destroy_registry=True)
            with suppress(TimeoutError):  # its threads may wait for the database, which may be silent forever
                await asyncio.wait_for(destroying, DESTROY if self.cut_off else None)


def _close_queues() -> list[threading.Thread]:
    """Make DBOS take nothing more from its queues; returns the threads that may still be running."""
    for event in stop_events(dbos_instance()):
        event.set()
    return [thread for thread in threading.enumerate() if thread.name.startswith("queue-worker-")]


def _wait_for(threads: list[threading.Thread]) -> None:
    limit = time.monotonic() + JOIN
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
