"""Work through the runs that are submitted to a fleet.

Every worker of a fleet has the same store, in PostgreSQL. Start as many as you like, on as many machines: a run goes to
one of them, and when that one dies, to another. The first Ctrl-C or SIGTERM lets the runs in flight end for a while,
the second does not wait; what is not done by then is finished by others.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.fleet_client import add_store_flag, fleet_address, parse_duration
from glidepath.values import ConfigurationError, StoreError

if TYPE_CHECKING:
    from glidepath.apps.fleet import Worker

LAST = 30.0  # seconds to hand over; after that the process exits, even if the database does not answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store_flag(parser)
    parser.add_argument(
        "--agent",
        metavar="NAME=MODULE:ATTRIBUTE",
        action="append",
        help="an agent and where to find it: an Agent, a LoopConfig, or a function that makes one; may be repeated",
    )
    parser.add_argument(
        "--concurrency", metavar="N", type=int, default=8, help="runs of each agent at a time (default: 8)"
    )
    parser.add_argument(
        "--lease",
        metavar="TIME",
        type=parse_duration,
        default=10.0,
        help="a worker silent for this long is presumed dead (default: 10s)",
    )
    parser.add_argument(
        "--poll", metavar="TIME", type=parse_duration, default=0.5, help="how often to look for work (default: 0.5s)"
    )
    parser.add_argument(
        "--drain",
        metavar="TIME",
        type=parse_duration,
        default=20.0,
        help="how long runs may continue after a stop (default: 20s)",
    )


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Work until a signal says to stop."""
    from glidepath.apps.cli.stores import load_redaction_hook
    from glidepath.apps.fleet import Worker

    here = str(world.folder)
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    agents: dict[str, str] = {}
    for given in options.agent or ():
        name, sign, path = given.partition("=")
        if not sign or name in agents:
            raise ConfigurationError(f"--agent {given}: expected NAME=MODULE:ATTRIBUTE, each name once")
        agents[name] = path
    if not agents:
        raise ConfigurationError("a worker needs agents: pass --agent NAME=MODULE:ATTRIBUTE, once for each")
    worker = Worker(
        fleet_address(options, world),
        agents=agents,
        concurrency=options.concurrency,
        lease=options.lease,
        poll=options.poll,
        drain=options.drain,
        redact=load_redaction_hook(options.redact, world),
    )
    try:
        return asyncio.run(_serve(worker, world, options.drain))
    except StoreError as error:
        world.complain(str(error))
        return 1


async def _serve(worker: Worker, world: CliContext, drain: float) -> int:
    loop = asyncio.get_running_loop()
    caught: list[int] = []
    last: list[threading.Timer] = []

    def stop(number: int) -> None:
        caught.append(number)
        timer = threading.Timer(LAST if len(caught) > 1 else drain + LAST, os._exit, [128 + caught[0]])
        timer.daemon = True
        timer.start()
        last.append(timer)
        worker.stop(now=len(caught) > 1)
        if len(caught) == 1:
            world.note("taking no more runs; finishing the current ones. Press again to hand them over now")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    started = asyncio.create_task(_announce_start(worker, world))
    try:
        await worker.serve()
    finally:
        started.cancel()
        for timer in last:
            timer.cancel()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    code = 128 + caught[0] if caught else 0
    if worker.cut_off:  # DBOS threads wait for the database forever, and Python waits for them; nothing would be lost
        os._exit(code)
    return code


async def _announce_start(worker: Worker, world: CliContext) -> None:
    await worker.started()
    world.note(f"worker {worker.id.split('|')[1]} is running: {', '.join(sorted(worker.agents))}")
