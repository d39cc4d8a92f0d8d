"""The state of a fleet: what is queued, what runs where, what has failed; and which of it is old enough to delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath._wire import Value
from glidepath.apps.fleet.contain import NOW

if TYPE_CHECKING:
    from glidepath.apps.fleet.fleet_ledger import FleetLedger

_SHOWN = 200
_COUNTS = f"""
SELECT count(*) FILTER (WHERE s.owner IS NULL OR s.expires < {NOW}) AS queued,
  count(*) FILTER (WHERE s.owner IS NOT NULL AND s.expires >= {NOW}) AS running,
  {NOW} - min(f.submitted) FILTER (WHERE s.owner IS NULL OR s.expires < {NOW}) AS oldest,
  (SELECT count(*) FROM glidepath_fleet_runs WHERE outcome = 'paused') AS waiting,
  (SELECT count(*) FROM glidepath_fleet_runs WHERE outcome = 'failed') AS failed,
  count(w.session) FILTER (WHERE s.owner IS NOT NULL AND s.expires >= {NOW}) AS short
FROM glidepath_fleet_runs f LEFT JOIN glidepath_sessions s ON s.id = f.session
  LEFT JOIN glidepath_waiting w ON w.session = f.session WHERE f.outcome IS NULL
"""  # noqa: S608 - constants of ours
_RUNS = f"""
SELECT f.session, f.agent, f.tenant, f.outcome, s.owner, {NOW} - f.submitted AS age,
  s.owner IS NOT NULL AND s.expires >= {NOW} AS running
FROM glidepath_fleet_runs f LEFT JOIN glidepath_sessions s ON s.id = f.session
WHERE f.outcome IS NULL OR f.outcome = 'paused' ORDER BY running DESC, f.submitted LIMIT $1
"""  # noqa: S608 - constants of ours


class FleetRun(Value, frozen=True, kw_only=True):
    """One run that has not ended: `state` is "queued", "running" or "paused", `worker` is the worker that runs it."""

    session: str
    agent: str
    tenant: str | None
    state: str
    worker: str | None
    age: float
    """Seconds since it was submitted."""


class FleetStatus(Value, frozen=True, kw_only=True):
    """How many runs are queued, running, waiting for a person, and failed, with a list of the first ones."""

    queued: int
    running: int
    waiting: int
    """Paused: a person has to decide."""
    failed: int
    short: int
    """Of the running ones: how many wait for room in a budget."""
    oldest: float | None
    """Seconds since the oldest run that waits in a queue was submitted; None when none does."""
    runs: tuple[FleetRun, ...]


async def status_of(ledger: FleetLedger, most: int = _SHOWN) -> FleetStatus:
    """The state of the fleet, with at most this many runs listed: those in flight first, then the oldest."""
    counts = await ledger._fetchrow(_COUNTS)  # noqa: SLF001 - of the same house
    rows = await ledger._fetch(_RUNS, most)  # noqa: SLF001
    workers = {_process(worker): worker for worker, _ in await ledger.list_live_workers()}
    runs = [
        FleetRun(
            session=row["session"],
            agent=row["agent"],
            tenant=row["tenant"],
            state="paused" if row["outcome"] else "running" if row["running"] else "queued",
            worker=workers.get(_process(row["owner"]), row["owner"]) if row["running"] else None,
            age=row["age"],
        )
        for row in rows
    ]
    return FleetStatus(**dict(counts), runs=tuple(runs))


def _process(owner: str | None) -> str:
    """The process of an owner: a worker has one name, and its runs have one each."""
    return (owner or "").rpartition("|")[0]


async def forget_old(ledger: FleetLedger, seconds: float) -> None:
    """Forget runs whose session is gone, and what tenants used in days and months that ended this long ago.

    A run whose session is removed goes with it; these are those of before. A budget that a run in flight or in a queue
    still counts on stays.
    """
    await ledger._execute(  # noqa: SLF001 - of the same house
        f"WITH gone AS (DELETE FROM glidepath_fleet_runs f WHERE f.outcome IS NOT NULL AND f.ended < {NOW} - $1 "  # noqa: S608
        "AND NOT EXISTS (SELECT 1 FROM glidepath_sessions s WHERE s.id = f.session) RETURNING f.session) "
        "SELECT glidepath_forget(session) FROM gone",
        seconds,
    )
    await ledger._execute(  # noqa: SLF001
        "DELETE FROM glidepath_budgets b WHERE b.name ~ ', (day|month) [0-9-]+$' "
        "AND to_date(rpad(substring(b.name FROM '[0-9-]+$'), 10, '-28'), 'YYYY-MM-DD') "
        "< (now() AT TIME ZONE 'UTC' - make_interval(secs => $1))::date - 3 "
        "AND NOT EXISTS (SELECT 1 FROM glidepath_fleet_runs f WHERE f.outcome IS NULL AND b.name = ANY(f.line))",
        seconds,
    )
