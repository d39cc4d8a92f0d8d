"""How a batch votes on the end of the run: a terminal tool that succeeded, or all tools that vote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath.execute.job import Job

if TYPE_CHECKING:
    from glidepath.run import Run

_NO_VOTES = (False, False, True)


def put_off(run: Run, jobs: Sequence[Job]) -> bool:
    """A person must decide first: keep the votes of the calls that have their results. Always False."""
    known = [job for job in jobs if job.result is not None]
    run.turn.count_votes(_tally(known, run.plan.terminal_tools, run.turn.votes or _NO_VOTES))
    return False


def carried(run: Run) -> bool:
    """Tally the votes of a whole batch, once every call has its result."""
    terminal, voted, unanimous = run.turn.votes or (False, False, False)
    run.turn.count_votes(None)
    return terminal or (voted and unanimous)


def count_votes(jobs: Sequence[Job], terminal: frozenset[str]) -> bool:
    """A terminal tool succeeded, or all tools that vote have voted to end the run."""
    ended, voted, unanimous = _tally(jobs, terminal, _NO_VOTES)
    return ended or (voted and unanimous)


def _tally(jobs: Sequence[Job], terminal: frozenset[str], votes: tuple[bool, bool, bool]) -> tuple[bool, bool, bool]:
    """With these calls: whether a terminal tool succeeded, whether anybody voted to end, and whether all did."""
    ended, voted, unanimous = votes
    for job in jobs:
        tool, result = job.tool, job.result
        if tool is None or result is None:
            unanimous = False
        elif job.call.name in terminal and not result.is_error:
            ended = True
        elif tool.votes_on_termination:
            voted = voted or result.terminate
            unanimous = unanimous and result.terminate
    return ended, voted, unanimous
