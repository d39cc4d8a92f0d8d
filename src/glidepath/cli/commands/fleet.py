"""Look at a fleet, and say what it may spend and how fast.

Without an action: its workers and its budgets. Quotas are for a day and a month in UTC; a quota that is left out is no
limit. A model's rate is for the whole fleet, evenly spaced.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from glidepath.cli.fleet import add_store_flag, fleet_address, seconds

if TYPE_CHECKING:
    from glidepath.cli.world import World

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `glidepath fleet` takes."""
    add_store_flag(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("status", help="its workers and its budgets")
    budget = actions.add_parser("budget", help="what the whole fleet may use; nothing said takes the limit away")
    _quota(budget, "", "in all")
    tenant = actions.add_parser("tenant", help="a tenant and its quotas")
    tenant.add_argument("name")
    _quota(tenant, "day-", "in a day")
    _quota(tenant, "month-", "in a month")
    rate = actions.add_parser("rate", help="how often a model may be called; nothing said takes the limit away")
    rate.add_argument("model")
    rate.add_argument("--requests", type=int, help="calls in a period")
    rate.add_argument("--tokens", type=int, help="tokens in a period")
    rate.add_argument("--per", type=seconds, default=60.0, help="the period (default: 60s)")
    rate.add_argument("--burst", type=int, default=1, help="calls that may follow each other at once (default: 1)")


def _quota(parser: argparse.ArgumentParser, prefix: str, when: str) -> None:
    parser.add_argument(f"--{prefix}tokens", type=int, help=f"tokens {when}")
    parser.add_argument(f"--{prefix}cost", metavar="DOLLARS", help=f"dollars {when}")
    parser.add_argument(f"--{prefix}runs", type=int, help=f"runs {when}")


def execute(options: argparse.Namespace, world: World) -> int:
    """Do it, then show the fleet."""
    import asyncio

    from glidepath.errors import StoreError

    try:
        return asyncio.run(_act(options, world))
    except StoreError as error:
        world.complain(str(error))
        return 1


async def _act(options: argparse.Namespace, world: World) -> int:
    from glidepath.engines.dbos import Fleet, Quota

    async with Fleet(fleet_address(options, world)) as fleet:
        if options.action == "budget":
            await fleet.set_budget(tokens=options.tokens, cost=options.cost, runs=options.runs)
        elif options.action == "tenant":
            day = Quota(tokens=options.day_tokens, cost=options.day_cost, runs=options.day_runs)
            month = Quota(tokens=options.month_tokens, cost=options.month_cost, runs=options.month_runs)
            await fleet.set_tenant(options.name, day=day, month=month)
        elif options.action == "rate":
            await fleet.set_rate(
                options.model,
                requests=options.requests,
                tokens=options.tokens,
                per=options.per,
                burst=options.burst,
            )
        for line in _lines(await fleet.workers(), await fleet.accounts()):
            world.stdout.write(f"{line}\n")
    return 0


def _lines(workers: list[Any], accounts: list[Any]) -> list[str]:
    lines = [f"worker {_short(name)}: {', '.join(agents)}" for name, agents in workers] or ["no worker is at work"]
    for account in accounts:
        used = (
            f"{account.tokens} of {_most(account.max_tokens)} tokens, ${account.cost} of {_most(account.max_cost, '$')}"
        )
        lines.append(f"{account.name}: {used}, {account.runs} of {_most(account.max_runs)} runs")
    return lines


def _short(worker: str) -> str:
    host, pid, *_ = (*worker.split("|"), "")
    return f"{host.partition('/')[0]} {pid}".strip()


def _most(value: Any, sign: str = "") -> str:
    return "any" if value is None else f"{sign}{value}"
