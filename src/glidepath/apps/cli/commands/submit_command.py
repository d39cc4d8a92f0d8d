"""Submit a run to a fleet.

The run's session is printed at once; `glidepath runs show` and `runs stop` take it. With --wait the answer is printed,
too, and the exit code says how the run ended.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.fleet_client import add_store_flag, fleet_address
from glidepath.values import QuotaError, StoreError

if TYPE_CHECKING:
    from glidepath.values import RunResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", help="the agent's name, as a worker offers it")
    parser.add_argument("task", nargs="*", help="what to do; - reads standard input")
    add_store_flag(parser)
    parser.add_argument("--tenant", help="who pays: the run counts against this tenant's day and month")
    parser.add_argument("--session", metavar="ID", help="the run's id: submitting it twice starts one run")
    parser.add_argument("--wallet", metavar="NAME", help="also spend from this wallet in the fleet's store")
    parser.add_argument("--wait", action="store_true", help="wait for the answer")
    parser.add_argument("--landed-ok", action="store_true", help="exit with 0, not 3, when a limit hurried the answer")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Submit, and wait if asked to."""
    from glidepath.apps.cli.commands.run_command import read_task

    task = read_task(options.task, world)
    try:
        return asyncio.run(_submit(options, task, world))
    except (QuotaError, StoreError) as error:
        world.complain(str(error))
        return 3 if isinstance(error, QuotaError) else 1


async def _submit(options: argparse.Namespace, task: str, world: CliContext) -> int:
    from glidepath.apps.cli.stores import load_redaction_hook
    from glidepath.apps.fleet import Fleet

    async with Fleet(fleet_address(options, world), redact=load_redaction_hook(options.redact, world)) as fleet:
        given = {"tenant": options.tenant, "session": options.session, "wallet": options.wallet}
        session = await fleet.submit(options.agent, task, **given)
        if not options.wait:
            world.write_id(session)
            return 0
        world.note(session)
        await fleet.wait(session)
        return _show(await fleet.result(session), world, landed_ok=options.landed_ok)


def _show(result: RunResult | None, world: CliContext, *, landed_ok: bool) -> int:
    from glidepath.apps.cli.exits import exit_code

    if result is None:
        world.note("the run has not ended: it is waiting for a person, or still running")
        return 1

    world.stdout.write(f"{result.text}\n")
    if result.cause is not None:
        world.note(f"{result.state.name}/{result.outcome.name}: {result.cause.reason}")
    return exit_code(result, landed_ok=landed_ok)
