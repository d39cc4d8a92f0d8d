"""The kill switches of a fleet: stored in its database, so that every worker and every server sees the same ones.

A switch holds the whole fleet or one tenant. While it is thrown nothing is queued, and a run that a worker takes from
a queue ends before its first model call. Only a person releases it; who threw and released it, when and why, stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath._wire import Value
from glidepath.apps.fleet.contain import FLEET, NOW

if TYPE_CHECKING:
    from glidepath.apps.fleet.fleet_ledger import FleetLedger
    from glidepath.sessions import PostgresConnection

_UNFINISHED = f"""
SELECT session FROM glidepath_fleet_runs f WHERE ($1::text IS NULL OR tenant = $1) AND (outcome IS NULL OR EXISTS (
  SELECT 1 FROM glidepath_sessions s WHERE s.id = f.session AND s.owner IS NOT NULL AND s.expires >= {NOW}))
ORDER BY session
"""  # noqa: S608 - constants of ours


class ThrownSwitch(Value, frozen=True, kw_only=True):
    """A kill switch that is thrown: of the fleet (`name` is empty), or of the tenant `name`."""

    scope: str
    name: str
    reason: str
    who: str
    since: float


async def throw(ledger: FleetLedger, tenant: str | None, reason: str, who: str) -> None:
    """Throw the switch of a tenant, or of the fleet; one that is already thrown does not change."""
    query = (
        f"INSERT INTO glidepath_switches(scope, name, reason, who, thrown) VALUES($1, $2, $3, $4, {NOW}) "
        "ON CONFLICT (scope, name) WHERE released IS NULL DO NOTHING"
    )
    await ledger._execute_durably((query, *_of(tenant), reason, who))  # noqa: SLF001 - of the same house, as below


async def record_stop(ledger: FleetLedger, tenant: str | None, sessions: Sequence[str]) -> None:
    """Remember which sessions were asked to stop, so that releasing the switch can undo that."""
    query = (
        "UPDATE glidepath_switches SET stopped = stopped || $3::text[] "
        "WHERE scope = $1 AND name = $2 AND released IS NULL"
    )
    await ledger._execute_durably((query, *_of(tenant), list(sessions)))  # noqa: SLF001


async def release(ledger: FleetLedger, tenant: str | None, reason: str, who: str) -> bool:
    """Release a switch, and withdraw the stops that no run has obeyed yet; False if it was not thrown."""
    taken_back = (
        "UPDATE glidepath_sessions s SET flag = NULL FROM glidepath_switches w WHERE w.scope = $1 "
        "AND w.name = $2 AND w.released IS NULL AND s.id = ANY(w.stopped) AND s.flag = w.reason"
    )
    done = (
        f"UPDATE glidepath_switches SET released = {NOW}, release_reason = $3, released_by = $4 "  # noqa: S608
        "WHERE scope = $1 AND name = $2 AND released IS NULL RETURNING true"
    )

    async def work(connection: PostgresConnection) -> bool:
        await connection.execute(taken_back, *_of(tenant))
        return bool(await connection.fetchval(done, *_of(tenant), reason, who))

    return await ledger._on_disk(work)  # noqa: SLF001


async def list_thrown_switches(ledger: FleetLedger) -> list[ThrownSwitch]:
    """Every switch that is thrown, the fleet's first."""
    rows = await ledger._fetch(  # noqa: SLF001
        "SELECT scope, name, reason, who, thrown FROM glidepath_switches WHERE released IS NULL ORDER BY scope, name"
    )
    return [
        ThrownSwitch(scope=row["scope"], name=row["name"], reason=row["reason"], who=row["who"], since=row["thrown"])
        for row in rows
    ]


async def find_thrown_switch(ledger: FleetLedger, session: str | None) -> str | None:
    """Why a run in this session must not start now, in a sentence; None when it may."""
    query = "SELECT glidepath_held((SELECT tenant FROM glidepath_fleet_runs WHERE session = $1))"
    why: str | None = await ledger._fetchval(query, session)  # noqa: SLF001
    return why


async def list_tenants(ledger: FleetLedger) -> list[str]:
    """The tenants of the fleet."""
    rows = await ledger._fetch("SELECT name FROM glidepath_tenants ORDER BY name")  # noqa: SLF001
    return [row["name"] for row in rows]


async def list_unfinished_sessions(ledger: FleetLedger, tenant: str | None) -> list[str]:
    """The sessions of queued and running runs, in a worker or elsewhere: of a tenant, or all."""
    return [row["session"] for row in await ledger._fetch(_UNFINISHED, tenant)]  # noqa: SLF001


def _of(tenant: str | None) -> tuple[str, str]:
    return (FLEET, "") if tenant is None else ("tenant", tenant)
