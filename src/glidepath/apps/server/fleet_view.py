"""Budgets, workers, queues and kill switches: of this server, of its store's wallets, and of a fleet on PostgreSQL."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from glidepath.apps.server.hub import Hub
from glidepath.apps.server.shapes import BudgetNode, Gauge
from glidepath.apps.server.store_reader import StoreReader
from glidepath.apps.server.stored_run_summary import budget_node
from glidepath.spi import Wallet, WalletStore, is_implementing
from glidepath.values import StoreError

_NOW = "extract(epoch FROM clock_timestamp())::float8"
_RATES = f"""
SELECT r.model, r.requests, r.tokens, r.per, u.requests AS used_requests, u.tokens AS used_tokens FROM glidepath_rates r
CROSS JOIN LATERAL (SELECT coalesce(sum(requests), 0)::bigint AS requests, coalesce(sum(tokens), 0)::bigint AS tokens
  FROM glidepath_rate_uses WHERE model = r.model AND at > {_NOW} - r.per AND at <= {_NOW}) u ORDER BY r.model
"""  # noqa: S608 - constants of ours
_FLEET = "fleet"
_MOST = 200  # runs of a fleet that are shown in the tree
_BUDGETS = "SELECT * FROM glidepath_budgets ORDER BY name = 'fleet', name"  # a day before its month, the fleet last
_HOLDERS = (
    "SELECT session, agent, tenant, line, tokens, money, firm_tokens, firm_money FROM glidepath_fleet_runs "
    "WHERE outcome IS NULL ORDER BY tokens DESC, money DESC, submitted LIMIT $1"
)
_WORKERS = "SELECT id, expires, started, agents FROM glidepath_workers ORDER BY id"


class FleetView:
    """What the deck shows beside runs."""

    def __init__(self, hub: Hub, reader: StoreReader) -> None:
        self.hub = hub
        self.reader = reader
        self._began = time.time()

    # --- budgets ----------------------------------------------------------------------------------------------

    async def budgets(self) -> list[BudgetNode]:
        """Every tree of budgets: the fleet's and its tenants', wallets, and the runs in flight here."""
        roots = await self._fleet_budgets()
        store = self.hub.store
        if is_implementing(store, WalletStore):
            try:
                roots += _wallet_trees(await store.wallets())
            except StoreError as error:
                if error.kind != "missing":
                    raise
        return [*roots, self._budgets_of_this_process()]

    def _budgets_of_this_process(self) -> BudgetNode:
        children = []
        for flight in list(self.hub.flights.values()):
            if flight.feed is not None:
                below = [self.reader.card(one, None) for one in self.hub.list_child_feeds(flight.feed.run_id)]
                children.append(budget_node(self.reader.card(flight.feed, None), below))
        for feed in [] if self.hub.foreign is None else self.hub.foreign.roots():
            below = [self.reader.card(one, None) for one in self.hub.list_child_feeds(feed.run_id)]
            children.append(budget_node(self.reader.card(feed, None), below))
        runs = Gauge(kind="runs", used=len(self.hub.flights), limit=self.hub.max_runs)
        return BudgetNode(name="this server", kind="fleet", gauges=(runs,), children=tuple(children))

    async def _fleet_budgets(self) -> list[BudgetNode]:
        """The fleet, its tenants' months and days below it, and below those the runs that hold some of them."""
        ledger = await self.hub.switches.ledger()
        if ledger is None:
            return []
        rows = await ledger._fetch(_BUDGETS)  # noqa: SLF001 - of the same house
        runs = await ledger._fetch(_HOLDERS, _MOST)  # noqa: SLF001
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        below: dict[str, list[BudgetNode]] = {}
        for run in runs:
            node = BudgetNode(name=run["agent"], kind="run", run_id=run["session"], gauges=_make_gauges(run))
            due = _FLEET if run["tenant"] is None else f"tenant {run['tenant']}, day {today}"
            below.setdefault(run["line"][-1] if run["line"] else due, []).append(node)
        top: tuple[Gauge, ...] = ()
        for row in rows:
            name, children = row["name"], tuple(below.get(row["name"], ()))
            gauges = (*_make_gauges(row), Gauge(kind="runs", used=row["runs"], limit=row["max_runs"]))
            if name == _FLEET:
                top = gauges
            elif children or today.startswith(name.rpartition(" ")[2]):  # what is over and empty is not shown
                above = name.replace(", day ", ", month ")[:-3] if ", day " in name else _FLEET
                node = BudgetNode(name=name, kind="tenant", gauges=gauges, children=children)
                below.setdefault(above, []).append(node)
        return [BudgetNode(name=_FLEET, kind="fleet", gauges=top, children=tuple(below.get(_FLEET, ())))]

    # --- the fleet --------------------------------------------------------------------------------------------

    async def fleet(self) -> dict[str, Any]:
        """Workers, queues, breakers, rates and the kill switch."""
        here = f"{socket.gethostname()}:{os.getpid()} (this server)"
        workers = [{"name": here, "runs": len(self.hub.flights), "lease_until": None, "started": self._began}]
        queue = {"waiting": 0, "running": len(self.hub.flights)}
        rates: list[dict[str, Any]] = []
        ledger = await self.hub.switches.ledger()
        if ledger is not None:
            from glidepath.apps.fleet.standing import status_of

            status = await status_of(ledger)
            flown: dict[str | None, int] = {}
            for run in status.runs:
                flown[run.worker] = flown.get(run.worker, 0) + 1
            workers += [
                {
                    "name": row["id"],
                    "runs": flown.get(row["id"], 0),
                    "lease_until": row["expires"],
                    "started": row["started"],
                    "agents": list(row["agents"]),
                }
                for row in await ledger._fetch(_WORKERS)  # noqa: SLF001 - of the same house
            ]
            queue = {"waiting": status.queued, "running": status.running + len(self.hub.flights)}
            rates = [
                {"name": f"{row['model']} {what}", "used": row[f"used_{what}"], "limit": row[what], "per": row["per"]}
                for row in await ledger._fetch(_RATES)  # noqa: SLF001
                for what in ("requests", "tokens")
                if row[what] is not None
            ]
        switches = await self.hub.switches.list_thrown_switches()
        fleet_wide = next((one for one in switches if one.scope == "fleet"), None)
        return {
            "workers": workers,
            "queue": queue,
            "breakers": [
                {"name": name, "kind": kind, "state": state, "since": since}
                for (name, kind), (state, since) in self.hub.breakers.items()
            ],
            "rates": rates,
            "kill": {
                "active": fleet_wide is not None,
                "reason": "" if fleet_wide is None else fleet_wide.reason,
                "switches": switches,
            },
        }


def _make_gauges(row: Any) -> tuple[Gauge, Gauge]:
    """Tokens and money of a row of the ledger: `firm` is spent or kept for a landing, the rest of it is reserved."""
    most_tokens, most_money = row.get("max_tokens"), row.get("max_money")
    return (
        Gauge(
            kind="tokens",
            unit="tokens",
            used=row["firm_tokens"],
            reserved=row["tokens"] - row["firm_tokens"],
            limit=most_tokens,
        ),
        Gauge(
            kind="cost",
            unit="USD",
            used=row["firm_money"] / 1e12,
            reserved=(row["money"] - row["firm_money"]) / 1e12,
            limit=None if most_money is None else most_money / 1e12,
        ),
    )


def _wallet_trees(wallets: Sequence[Wallet]) -> list[BudgetNode]:
    """The wallets as trees, each below its parent."""
    known = {one.name for one in wallets}

    def node(wallet: Wallet) -> BudgetNode:
        gauges = (
            Gauge(
                kind="tokens",
                unit="tokens",
                used=wallet.tokens,
                reserved=wallet.held_tokens + wallet.disputed_tokens,
                limit=wallet.max_tokens,
            ),
            Gauge(
                kind="cost",
                unit="USD",
                used=wallet.money / 1e12,
                reserved=(wallet.held_money + wallet.disputed_money) / 1e12,
                limit=None if wallet.max_money is None else wallet.max_money / 1e12,
            ),
        )
        below = tuple(node(one) for one in wallets if one.parent == wallet.name)
        return BudgetNode(name=wallet.name, kind="wallet", gauges=gauges, children=below)

    return [node(one) for one in wallets if one.parent is None or one.parent not in known]
