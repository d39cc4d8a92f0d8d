"""Budgets, workers, queues and kill switches: of this server, of its store's wallets, and of a fleet on PostgreSQL."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from glidepath.errors import StoreError
from glidepath.serve.hub import Hub
from glidepath.serve.shapes import BudgetNode, Gauge
from glidepath.serve.store_reader import StoreReader
from glidepath.serve.stored_card import budget_node
from glidepath.spi.sessions import Wallet, WalletStore

__all__ = ["FleetView"]

_RATES = "SELECT model, requests, tokens, per FROM glidepath_rates ORDER BY model"
_WORKERS = "SELECT id, expires, started, agents FROM glidepath_workers ORDER BY id"
_HERE = "SELECT to_regclass('glidepath_workers') IS NOT NULL"


class FleetView:
    """What the deck shows beside runs."""

    def __init__(self, hub: Hub, reader: StoreReader) -> None:
        self.hub = hub
        self.reader = reader
        self._ledger: Any = None
        self._looked = False

    async def ledger(self) -> Any:
        """The ledger of the fleet that lives in the store's database; None when there is none. Nothing is created."""
        if not self._looked:
            from glidepath.sessions import PostgresStore

            self._looked = True
            if isinstance(self.hub.store, PostgresStore):
                from glidepath.engines.dbos.fleet_ledger import FleetLedger

                if await self.hub.store.asked(_HERE):
                    self._ledger = FleetLedger(self.hub.store.dsn, connections=2)
        return self._ledger

    # --- budgets ----------------------------------------------------------------------------------------------

    async def budgets(self) -> list[BudgetNode]:
        """Every tree of budgets: the fleet's and its tenants', wallets, and the runs in flight here."""
        roots = await self._fleet_budgets()
        store = self.hub.store
        if isinstance(store, WalletStore):
            try:
                roots += _wallet_trees(await store.wallets())
            except StoreError as error:
                if error.kind != "missing":
                    raise
        return [*roots, self._here()]

    def _here(self) -> BudgetNode:
        children = []
        for flight in list(self.hub.flights.values()):
            if flight.feed is not None:
                below = [self.reader.card(one, None) for one in self.hub.below(flight.feed.run_id)]
                children.append(budget_node(self.reader.card(flight.feed, None), below))
        runs = Gauge(kind="runs", used=len(self.hub.flights), limit=self.hub.max_runs)
        return BudgetNode(name="this server", kind="fleet", gauges=(runs,), children=tuple(children))

    async def _fleet_budgets(self) -> list[BudgetNode]:
        ledger = await self.ledger()
        if ledger is None:
            return []
        fleet: list[BudgetNode] = []
        tenants: list[BudgetNode] = []
        for one in await ledger.accounts():
            kind = "tenant" if one.name.startswith("tenant ") else "fleet"
            gauges = (
                Gauge(kind="tokens", unit="tokens", used=one.tokens, limit=one.max_tokens),
                Gauge(kind="cost", unit="USD", used=float(one.cost), limit=_float(one.max_cost)),
                Gauge(kind="runs", used=one.runs, limit=one.max_runs),
            )
            node = BudgetNode(name=one.name, kind=kind, gauges=gauges)
            (tenants if kind == "tenant" else fleet).append(node)
        top = fleet[0] if fleet else BudgetNode(name="fleet", kind="fleet")
        return [BudgetNode(name=top.name, kind="fleet", gauges=top.gauges, children=tuple(tenants))]

    # --- the fleet --------------------------------------------------------------------------------------------

    async def fleet(self) -> dict[str, Any]:
        """Workers, queues, breakers, rates and the kill switch."""
        here = f"{socket.gethostname()}:{os.getpid()} (this server)"
        workers = [{"name": here, "runs": len(self.hub.flights), "lease_until": None, "seen": time.time()}]
        queue = {"waiting": 0, "running": len(self.hub.flights)}
        rates: list[dict[str, Any]] = []
        ledger = await self.ledger()
        if ledger is not None:
            from glidepath.engines.dbos.standing import status_of

            status = await status_of(ledger)
            flown: dict[str | None, int] = {}
            for run in status.runs:
                flown[run.worker] = flown.get(run.worker, 0) + 1
            workers += [
                {
                    "name": row["id"],
                    "runs": flown.get(row["id"], 0),
                    "lease_until": row["expires"],
                    "seen": row["started"],
                    "agents": list(row["agents"]),
                }
                for row in await ledger._fetch(_WORKERS)  # noqa: SLF001 - of the same house
            ]
            queue = {"waiting": status.queued, "running": status.running + len(self.hub.flights)}
            rates = [
                {"name": f"{row['model']} {what}", "used": None, "limit": row[what], "per": row["per"]}
                for row in await ledger._fetch(_RATES)  # noqa: SLF001
                for what in ("requests", "tokens")
                if row[what] is not None
            ]
        return {
            "workers": workers,
            "queue": queue,
            "breakers": [
                {"name": name, "kind": kind, "state": state, "since": since}
                for (name, kind), (state, since) in self.hub.breakers.items()
            ],
            "rates": rates,
            "kill": {"active": self.hub.kill is not None, "reason": self.hub.kill or ""},
        }

    async def unfinished(self, tenant: str | None) -> list[str]:
        """The sessions of the fleet's runs that are queued or running: of a tenant, or all."""
        ledger = await self.ledger()
        if ledger is None:
            return []
        query = "SELECT session FROM glidepath_fleet_runs WHERE outcome IS NULL AND ($1::text IS NULL OR tenant = $1)"
        return [row["session"] for row in await ledger._fetch(query, tenant)]  # noqa: SLF001 - of the same house

    async def close(self) -> None:
        """Let go of the connections."""
        if self._ledger is not None:
            await self._ledger.close()


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _wallet_trees(wallets: Sequence[Wallet]) -> list[BudgetNode]:
    """The wallets as trees, each below its parent."""
    known = {one.name for one in wallets}

    def node(wallet: Wallet) -> BudgetNode:
        gauges = (
            Gauge(
                kind="tokens",
                unit="tokens",
                used=wallet.tokens,
                reserved=wallet.held_tokens,
                limit=wallet.max_tokens,
            ),
            Gauge(
                kind="cost",
                unit="USD",
                used=wallet.money / 1e12,
                reserved=wallet.held_money / 1e12,
                limit=None if wallet.max_money is None else wallet.max_money / 1e12,
            ),
        )
        below = tuple(node(one) for one in wallets if one.parent == wallet.name)
        return BudgetNode(name=wallet.name, kind="wallet", gauges=gauges, children=below)

    return [node(one) for one in wallets if one.parent is None or one.parent not in known]
