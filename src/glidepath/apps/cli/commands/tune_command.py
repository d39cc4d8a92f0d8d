"""Replay the runs of a store and propose guard thresholds. Nothing is run and no model is called.

Example: glidepath sim tune sessions.db --agent app:agent
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from glidepath.values import ConfigurationError, pluralize

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.testing.simulator.tune import Tuning


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from glidepath.apps.cli.session_flags import add_store_flags

    parser.add_argument(
        "place", nargs="?", metavar="STORE", help="the store: a path or an address (default: the one in the settings)"
    )
    parser.add_argument(
        "--agent",
        metavar="MODULE:NAME",
        help="take from this Agent, not a configuration file, which tools poll or only read",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Replay, print what each threshold would have done, and propose thresholds."""
    from glidepath.apps.cli.commands.sim_command import choose_subject
    from glidepath.apps.cli.session_flags import choose_store
    from glidepath.apps.cli.stores import make_store, on_store
    from glidepath.testing.simulator.tune import read_runs, tune

    place = choose_store(options, world, "tune")
    subject = choose_subject(options, world)
    config = getattr(subject, "config", subject)
    tools = {} if config is None else {one.name: one for one in config.tools}
    runs, unreadable = on_store(make_store(place, world), read_runs)
    if not runs:
        raise ConfigurationError("no run in this store has called a tool: nothing to replay")
    tuning = tune(runs, tools, unreadable)
    for line in tuning.unreadable:
        world.note(f"not read: {line}")
    if options.json:
        world.write_json(tuning)
    else:
        _print_tuning(tuning, world)
    return 0


def _print_tuning(tuning: Tuning, world: CliContext) -> None:
    out, others = world.stdout, tuning.runs - tuning.done
    out.write(
        f"{pluralize(tuning.runs, 'run')} with {pluralize(tuning.steps, 'step')}: "
        f"{tuning.done} ended DONE, {others} otherwise\n"
    )
    out.write(f"\n{'':<32} {'ended DONE':^16}   {'ended otherwise':^16}\n")
    out.write(f"{'limit':<25} {'value':>6} {'nudged':>7} {'stopped':>8}   {'nudged':>7} {'stopped':>8}\n")
    for one in tuning.settings:
        mark = " <" if tuning.proposed[one.limit] == one.value else ""
        out.write(
            f"{one.limit:<25} {one.value:>6} {one.done_nudged:>7} {one.done_stopped:>8}   "
            f"{one.others_nudged:>7} {one.others_stopped:>8}{mark}\n"
        )
    out.write(f"\n{tuning.snippet()}\n")
