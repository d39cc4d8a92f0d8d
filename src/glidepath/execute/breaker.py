"""The breaker of a tool: asked before a call, told how it ended. A tool that never failed has none."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from glidepath.errors import ToolError
from glidepath.events import BreakerChanged
from glidepath.outcome import ResultKind
from glidepath.resilience import Admission, tool_breaker

if TYPE_CHECKING:
    from glidepath.execute.job import Job
    from glidepath.run import Run

_log = logging.getLogger("glidepath")

ABOUT_ARGUMENTS = (
    ToolError,  # how a tool tells the model what is wrong
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
"""What a tool raises when the arguments are wrong: its breaker does not count these, the guards against loops do."""


def admit(run: Run, job: Job) -> None:
    """Ask the breaker about a call; when it refuses, the model is told so instead of a result."""
    breaker, now = tool_breaker(job.tool), run.watch.time()
    admission = breaker.admit(now)
    job.trial = "probe" if admission is Admission.PROBE else "call"
    if admission is Admission.PROBE:
        _changed(run, job)
    elif admission is Admission.REFUSED:
        job.trial = None
        job.refuse(
            ResultKind.BREAKER_OPEN,
            run.plan.config.texts.fill(
                "breaker_open",
                tool=job.call.name,
                failures=breaker.failures,
                seconds=f"{breaker.wait(now):.0f}",
            ),
        )


def tell(run: Run, job: Job) -> None:
    """How a call ended that the breaker must know about."""
    breaker, probe = tool_breaker(job.tool), job.trial == "probe"
    if job.blamed:
        changed = breaker.failed(run.watch.time(), probe=probe)
    elif job.kind in (ResultKind.CANCELLED, ResultKind.ABORTED) or job.stop_asked is not None:  # not its own end
        changed = probe and breaker.unanswered(run.watch.time())
    else:
        changed = breaker.succeeded()
    if changed:
        _changed(run, job)


def _changed(run: Run, job: Job) -> None:
    state = tool_breaker(job.tool).state.value
    _log.warning("%s: the breaker of tool %s is %s", run.run_id, job.call.name, state)
    run.emit(BreakerChanged, job.call.name, state, "tool")
