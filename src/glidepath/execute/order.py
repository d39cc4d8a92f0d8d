"""In which order the calls of one reply run: together, or one after the other as the model wrote them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidepath.execute.job import Job
    from glidepath.run import Plan, Run

_log = logging.getLogger("glidepath")

WORTH_IT = 0.02  # seconds that every call of a reply must have taken before a hint is given


def width_for(plan: Plan, jobs: Sequence[Job]) -> int:
    """How many of these calls may run at a time. Only calls that really run count, not refused ones."""
    order = plan.config.default_execution_mode
    for job in jobs:
        tool: Any = job.tool
        if tool.exclusive or (order == "auto" and not tool.overlaps):
            return 1
    return 1 if order == "sequential" else plan.config.max_parallel_tools


def hint(run: Run, jobs: Sequence[Job]) -> None:
    """Log once per agent which mark would let these calls run together, if running in order cost time."""
    told = run.plan.told
    if "order" in told or len(jobs) == 1:
        return
    took = [job.took or 0.0 for job in jobs]
    if min(took) < WORTH_IT:
        return
    tools: list[Any] = [job.tool for job in jobs]
    if any(tool.exclusive or (tool.consequential and not tool.overlaps) for tool in tools):
        return  # these must wait for each other, whatever else is marked
    names = sorted({tool.name for tool in tools if not tool.overlaps})
    if not names:
        return
    told.add("order")
    _log.info(
        "%s: %d calls of one reply ran one after the other and took %.2f s; together they would have taken about "
        "%.2f s. If %s only %s, mark %s read_only=True; if %s calls may overlap, parallel_safe=True. "
        "ExecutionMode.PARALLEL runs all calls together.",
        run.plan.config.agent_name,
        len(jobs),
        sum(took),
        max(took),
        ", ".join(names),
        "looks" if len(names) == 1 else "look",
        "it" if len(names) == 1 else "them",
        "its" if len(names) == 1 else "their",
    )
