"""`glidepath runs show --plot`: how each limit of a stored run was used up."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from glidepath.burndown import Burn, text_burndown
from glidepath.cli.world import World
from glidepath.ledger import dollars

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glidepath.spi.sessions import SessionStore


async def plot_session(session: str, store: SessionStore, world: World) -> int:
    """Print what was left of each limit after each turn, for every run of a session."""
    from glidepath.sessions.archive import read_journal
    from glidepath.sim.whatif import session_runs

    journal = await read_journal(store, session)
    limits = {} if journal.folded.config is None else journal.folded.config.limits
    runs = list(session_runs(session, journal.commits))
    if not runs:
        world.note("nothing has been used yet, so there is nothing to plot")
        return 0
    for number, run in enumerate(runs, 1):
        if len(runs) > 1:
            world.write(f"{'' if number == 1 else chr(10)}run {number} of {len(runs)}: {run.outcome}\n")
        moments = run.moments
        burns = [
            Burn("turns", [float(one.turns) for one in moments], _limit(limits, "max_iterations")),
            Burn("tokens", [float(one.tokens) for one in moments], _limit(limits, "max_tokens")),
            Burn("dollars", [float(dollars(one.money)) for one in moments], _limit(limits, "max_cost")),
            Burn("tool calls", [float(one.tool_calls) for one in moments], _limit(limits, "max_tool_calls")),
            Burn("seconds", [one.elapsed for one in moments], _limit(limits, "timeout")),
        ]
        world.write("".join(f"{line}\n" for line in text_burndown(burns)))
    return 0


def _limit(limits: Mapping[str, object], name: str) -> float | None:
    try:
        return float(Decimal(str(limits[name])))
    except (KeyError, InvalidOperation):
        return None
