"""How a batch votes on the end of the run: a terminal tool that succeeded, or all tools that vote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath.execute.job import Job

if TYPE_CHECKING:
    from glidepath.run import Run

__all__ = ["carried", "count_votes", "put_off"]


def put_off(run: Run, jobs: Sequence[Job]) -> bool:
    """A person must decide first: keep the votes of the calls that have their results. Always False."""
    terminal, voted, unanimous = run.turn.votes or (False, False, True)
    for job in jobs:
        tool, result = job.tool, job.result
        if result is None:
            continue
        if tool is None:
            unanimous = False
        elif job.call.name in run.plan.terminal_tools and not result.is_error:
            terminal = True
        elif tool.votes_on_termination:
            voted = voted or result.terminate
            unanimous = unanimous and result.terminate
    run.turn.count_votes((terminal, voted, unanimous))
    return False


def carried(run: Run) -> bool:
    """What the votes of a whole batch come to, now that every call has its result."""
    terminal, voted, unanimous = run.turn.votes or (False, False, False)
    run.turn.count_votes(None)
    return terminal or (voted and unanimous)


def count_votes(jobs: Sequence[Job], terminal: frozenset[str]) -> bool:
    """A terminal tool succeeded, or all tools that vote have voted to end the run."""
    voted = False
    unanimous = True
    for job in jobs:
        tool, result = job.tool, job.result
        if tool is None or result is None:
            unanimous = False
            continue
        if job.call.name in terminal and not result.is_error:
            return True
        if tool.votes_on_termination:
            voted = voted or result.terminate
            unanimous = unanimous and result.terminate
    return voted and unanimous
