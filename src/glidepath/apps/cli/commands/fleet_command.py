"""Show a fleet, and set what it may spend and how fast.

Without an action: its workers, its runs and its budgets. Quotas are for a day and a month in UTC; a quota that is left
out is unlimited. A model's rate is for the whole fleet, evenly spaced.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import parse_whole_number
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.display_text import escape_invisible
from glidepath.apps.cli.fleet_client import add_store_flag, fleet_address, parse_duration
from glidepath.apps.cli.notes import add_decision, read_decision
from glidepath.values import StoreError, pluralize

if TYPE_CHECKING:
    from glidepath.apps.fleet import Fleet, FleetStatus

_DAY = 86_400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store_flag(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.add_argument("--json", action="store_true", help="print the fleet as one JSON object")
    status = actions.add_parser("status", help="its workers, queued and running runs, budgets")
    status.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    resumed = actions.add_parser(
        "resume", help="let a paused run continue, inside its budgets; decide about a call first"
    )
    resumed.add_argument("session", help="the run's session")
    add_decision(resumed, required=False)
    told = actions.add_parser("send", help="send a message to a run, on any worker")
    told.add_argument("session", help="the run's session")
    told.add_argument("message", nargs="+", help="what to say")
    stopped = actions.add_parser("stop", help="stop a run: in flight, in a queue, or paused")
    stopped.add_argument("session", help="the run's session")
    stopped.add_argument("--reason", default="", help="the reason its result will give")
    pruned = actions.add_parser("prune", help="delete runs that ended long ago; their ids can be used again")
    pruned.add_argument("--days", type=float, default=30, help="older than this many days (default: 30)")
    budget = actions.add_parser("budget", help="what the whole fleet may use; without flags, remove the limit")
    _add_quota_flags(budget, "", "in all")
    tenant = actions.add_parser("tenant", help="a tenant and its quotas")
    tenant.add_argument("name")
    _add_quota_flags(tenant, "day-", "in a day")
    _add_quota_flags(tenant, "month-", "in a month")
    rate = actions.add_parser("rate", help="how often a model may be called; without flags, remove the limit")
    rate.add_argument("model")
    rate.add_argument("--requests", type=int, help="calls in a period")
    rate.add_argument("--tokens", type=parse_whole_number, help="tokens in a period")
    rate.add_argument("--per", type=parse_duration, default=60.0, help="the period (default: 60s)")
    rate.add_argument("--burst", type=int, default=1, help="calls that may come in one burst (default: 1)")
    for action in actions.choices.values():
        add_store_flag(action, again=True)


def _add_quota_flags(parser: argparse.ArgumentParser, prefix: str, when: str) -> None:
    parser.add_argument(f"--{prefix}tokens", type=parse_whole_number, help=f"tokens {when}")
    parser.add_argument(f"--{prefix}cost", metavar="DOLLARS", help=f"dollars {when}")
    parser.add_argument(f"--{prefix}runs", type=int, help=f"runs {when}")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do it, then show the fleet."""
    try:
        return asyncio.run(_run_action(options, world))
    except StoreError as error:
        world.complain(str(error))
        return 1


async def _run_action(options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.cli.stores import load_redaction_hook
    from glidepath.apps.fleet import Fleet, Quota

    async with Fleet(fleet_address(options, world), redact=load_redaction_hook(options.redact, world)) as fleet:
        if options.action == "budget":
            await fleet.set_budget(tokens=options.tokens, cost=options.cost, runs=options.runs)
        elif options.action == "tenant":
            day = Quota(tokens=options.day_tokens, cost=options.day_cost, runs=options.day_runs)
            month = Quota(tokens=options.month_tokens, cost=options.month_cost, runs=options.month_runs)
            await fleet.set_tenant(options.name, day=day, month=month)
        elif options.action == "rate":
            await fleet.set_rate(
                options.model, requests=options.requests, tokens=options.tokens, per=options.per, burst=options.burst
            )
        elif options.action is not None and options.action != "status":
            world.note(await _act_on_runs(options, fleet))
            return 0
        from glidepath.apps.fleet.kill_switches import list_thrown_switches

        switches = await list_thrown_switches(fleet.ledger)
        workers, accounts, status = await fleet.workers(), await fleet.accounts(), await fleet.status()
        if options.json:
            live = [{"name": name, "agents": agents} for name, agents in workers]
            world.write_json({"kill_switches": switches, "workers": live, "accounts": accounts, "status": status})
            return 0
        for switch in switches:
            whose = f"tenant {switch.name}" if switch.name else "the fleet"
            world.stdout.write(f"kill switch of {whose}: {escape_invisible(switch.reason)}\n")
        for line in _format_status(workers, accounts, status):
            world.stdout.write(f"{line}\n")
    return 0


async def _act_on_runs(options: argparse.Namespace, fleet: Fleet) -> str:
    """Do something with a run, or prune; returns what was done."""
    if options.action == "resume":
        await fleet.resume(options.session, read_decision(options))
        return f"{options.session} continues"
    if options.action == "send":
        await fleet.send(options.session, " ".join(options.message))
        return f"sent to {options.session}"
    if options.action == "stop":
        await fleet.stop(options.session, options.reason)
        return f"asked {options.session} to stop"
    gone = await fleet.prune(older_than=options.days * _DAY)
    return f"deleted {pluralize(len(gone), 'session')}"


def _format_status(workers: list[Any], accounts: list[Any], status: FleetStatus) -> list[str]:
    lines = [f"worker {_shorten_worker(name)}: {', '.join(agents)}" for name, agents in workers] or [
        "no worker is running"
    ]
    short = f", {status.short} of them short of budget" if status.short else ""
    lines.append(
        f"runs: {status.queued} queued, {status.running} running{short}, {status.waiting} waiting for a person, "
        f"{status.failed} failed"
    )
    if status.oldest is not None:
        lines.append(f"the oldest in a queue has waited {status.oldest:.0f} s")
    for run in status.runs:
        where = f" on {_shorten_worker(run.worker)}" if run.worker else ""
        whose = f" for {run.tenant}" if run.tenant else ""
        lines.append(f"{run.state} {escape_invisible(run.session)}: {run.agent}{whose}{where}, {run.age:.0f} s")
    for account in accounts:
        tokens = f"{account.tokens} of {_format_limit(account.max_tokens)} tokens"
        cost = f"${account.cost} of {_format_limit(account.max_cost, '$')}"
        runs = f"{account.runs} of {_format_limit(account.max_runs)} runs"
        lines.append(f"{account.name}: {tokens}, {cost}, {runs}")
    return lines


def _shorten_worker(worker: str) -> str:
    host, pid, *_ = (*worker.split("|"), "")
    return f"{host.partition('/')[0]} {pid}".strip()


def _format_limit(value: object, sign: str = "") -> str:
    return "any" if value is None else f"{sign}{value}"
