"""Kill switches: stop a run, a tenant's runs or everything, and hold new runs back until a person releases them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from glidepath.apps.server.locks import OPERATOR, Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.run_actions import add_author, control_of, describe_flight, elapsed_ms
from glidepath.apps.server.run_query import RunQuery
from glidepath.apps.server.shapes import DoneAnswer, KillBody, ReasonBody
from glidepath.sessions import note_control
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.apps.server.run_actions import RunActions

__all__ = ["KillActions"]

_UNTIL = "none can start until the switch is released"


class KillActions:
    """Throws kill switches and releases them."""

    def __init__(self, actions: RunActions) -> None:
        self.actions = actions
        self.hub = actions.hub
        self.reader = actions.reader
        self.switches = actions.hub.switches

    async def kill(self, body: KillBody, who: Visitor) -> DoneAnswer:
        """Throw a kill switch, or release it."""
        began = time.perf_counter()
        if body.scope == "run":
            return await self._stop_one_run(body, who, began)
        tenant = await self._require_tenant(body.id) if body.scope == "tenant" else None
        if body.active:
            message = await self._throw(tenant, body.reason, who)
        else:
            message = await self._release(tenant, body.reason, who)
        state = "killed" if body.active else "open"
        return DoneAnswer(run_id="", state=state, sequence=0, took_ms=elapsed_ms(began), message=message)

    async def _stop_one_run(self, body: KillBody, who: Visitor, began: float) -> DoneAnswer:
        if not body.id:
            raise HttpError(400, "no_id", "name the run to stop: pass its id")
        if body.active:
            return await self.actions.stop(body.id, ReasonBody(reason=body.reason), who)
        found = await self.reader.find(body.id, who)
        if self.hub.foreign is not None:
            await self.hub.foreign.release(found.session_id)
        if self.hub.store is not None:
            await self.actions.ask_store(self.hub.store.flag(found.session_id, None))
        return self.actions.make_done_answer(found, began, "the stop is withdrawn: the run can be resumed")

    async def _require_tenant(self, name: str | None) -> str:
        """The tenant of this name; raises `HttpError`."""
        ledger = await self.switches.ledger()
        if not name or ledger is None:
            raise HttpError(409, "no_tenant", "only a fleet has tenants: use its PostgreSQL as the store, and name one")
        from glidepath.apps.fleet.kill_switches import list_tenants

        there = await list_tenants(ledger)
        if name not in there:
            known = ", ".join(there[:20]) or "none"
            raise HttpError(404, "unknown_tenant", f"this fleet has no tenant {name!r:.80}; there are: {known}")
        return name

    async def _throw(self, tenant: str | None, reason: str, who: Visitor) -> str:
        """First block new starts, then stop running and queued runs: nothing slips through in between."""
        why = add_author(reason, who, "kill switch")
        await self.switches.throw(tenant, why, who.name)
        stopped = 0
        for flight in [*self.hub.flights.values()] if tenant is None else []:
            await self.actions.journal_action(describe_flight(flight), flight, "kill", reason, who)
            flight.token.cancel(why)
            stopped += 1
        if tenant is None and self.hub.foreign is not None:
            stopped += self.hub.foreign.stop_all(why, control_of("kill", reason, who))
        for flight in self.hub.taking_off if tenant is None else ():
            flight.token.cancel(why)
            stopped += 1
        sessions = sorted(await self._find_sessions_elsewhere(tenant))
        if sessions:
            await self.switches.record_stop(tenant, sessions)
        for session in sessions:
            stopped += await self._flag_session(session, why, control_of("kill", reason, who))
        return f"{stopped} {'run is' if stopped == 1 else 'runs are'} stopped, and {_UNTIL}"

    async def _flag_session(self, session: str, why: str, control: dict[str, object]) -> int:
        """Ask a run in another process to stop; 0 when its session is gone."""
        try:
            await self.hub.store.flag(session, why)
            await note_control(self.hub.store, session, control)
        except StoreError as error:
            if error.kind != "missing":
                raise
            return 0
        return 1

    async def _release(self, tenant: str | None, reason: str, who: Visitor) -> str:
        if not await self.switches.release(tenant, reason, who.name):
            whose = "the fleet" if tenant is None else f"tenant {tenant}"
            raise HttpError(409, "not_thrown", f"the kill switch of {whose} is not thrown: nothing was changed")
        if tenant is None and self.hub.foreign is not None:
            await self.hub.foreign.release_all()
        return "runs can start again"

    async def _find_sessions_elsewhere(self, tenant: str | None) -> set[str]:
        """The sessions of runs queued in the fleet or running in other processes: a tenant's, or all on this store."""
        found: set[str] = set()
        ledger = await self.switches.ledger()
        if ledger is not None:
            from glidepath.apps.fleet.kill_switches import list_unfinished_sessions

            found = set(await list_unfinished_sessions(ledger, tenant))
        if tenant is None and self.hub.store is not None:
            query = RunQuery(states=frozenset({"running"}))
            found |= {card.session_id for card in await self.reader.list.list_all(OPERATOR, query)}
        if tenant is None:  # those of this process are stopped already
            found -= {describe_flight(flight).session_id for flight in self.hub.flights.values()}
            found -= set() if self.hub.foreign is None else {one.head.session_id for one in self.hub.foreign.roots()}
        return found
