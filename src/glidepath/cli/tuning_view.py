"""Prints what each threshold of the guards would have done to stored runs, and proposes thresholds."""

from __future__ import annotations

from typing import Any

from glidepath.cli.stores import make_store, on_store, store_path
from glidepath.cli.world import World
from glidepath.errors import ConfigurationError, StoreError
from glidepath.plurals import how_many
from glidepath.sim.tune import Tuning, stored_runs, tune


def show_tuning(named: str, subject: Any, world: World) -> int:
    """Replay the runs of a store, print what each threshold would have done, and propose thresholds."""
    path = store_path(named, world)
    if path is not None and not path.exists():
        raise ConfigurationError(f"--tune {named}: there is no such store; name a file, a folder, or default")
    store = make_store(named, world)
    config = getattr(subject, "config", subject)
    tools = {} if config is None else {one.name: one for one in config.tools}
    try:
        runs, unreadable = on_store(store, stored_runs)
    except StoreError as error:
        raise ConfigurationError(f"--tune {named}: {error}") from None
    if not runs:
        raise ConfigurationError(f"--tune {named}: no run in this store has called a tool: nothing to replay")
    _print(tune(runs, tools, unreadable), world)
    return 0


def _print(tuning: Tuning, world: World) -> None:
    out, others = world.stdout, tuning.runs - tuning.done
    out.write(
        f"{how_many(tuning.runs, 'run')} with {how_many(tuning.steps, 'step')}: "
        f"{tuning.done} ended DONE, {others} otherwise\n"
    )
    for line in tuning.unreadable:
        world.note(f"not read: {line}")
    out.write(f"\n{'':<32} {'ended DONE':^16}   {'ended otherwise':^16}\n")
    out.write(f"{'limit':<25} {'value':>6} {'nudged':>7} {'stopped':>8}   {'nudged':>7} {'stopped':>8}\n")
    for one in tuning.settings:
        mark = " <" if tuning.proposed[one.limit] == one.value else ""
        out.write(
            f"{one.limit:<25} {one.value:>6} {one.done_nudged:>7} {one.done_stopped:>8}   "
            f"{one.others_nudged:>7} {one.others_stopped:>8}{mark}\n"
        )
    out.write(f"\n{tuning.snippet()}\n")
