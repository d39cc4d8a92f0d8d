"""Calls that had begun when the process died: each becomes its result, or unknown. Nothing else is assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath.execute.job import UNKNOWN, Job
from glidepath.messages import ToolCall
from glidepath.outcome import ResultKind
from glidepath.run.snapshot import place
from glidepath.tools import ArgumentsError

if TYPE_CHECKING:
    from glidepath.run import Decision, Run


def settle(run: Run) -> None:
    """First of all: a call that had begun and cannot be repeated is unknown.

    What is left is idempotent, its tool is there and takes its arguments: it runs again if everything allows it, and
    is unknown otherwise.
    """
    resumed = run.terms.resumed
    if resumed is None:
        return
    for call in run.turn.open_calls():
        decision = resumed.decisions.get(call.id)
        if decision is None or not decision.in_doubt:
            continue
        job = job_for(run, call)
        if decision.kind == "unknown" or not _takes(job, decision.arguments):
            job.refuse(UNKNOWN, "")
            keep(run, job)
            run.turn.forget_program(call.id)
            run.turn.pend(tuple([waiting for waiting in run.turn.pending if waiting.call.id != call.id]))


def _takes(job: Job, arguments: Mapping[str, Any] | None) -> bool:
    """Whether the current tool accepts the arguments the call began with."""
    if job.tool is None:
        return False
    try:
        job.tool.bind(job.call.stored if arguments is None else arguments)
    except ArgumentsError:
        return False
    return True


def job_for(run: Run, call: ToolCall) -> Job:
    """A job for a call of an existing reply; it knows whether it had begun."""
    job = Job(call, run.plan.tools.get(call.name))
    decision = None if run.terms.resumed is None else run.terms.resumed.decisions.get(call.id)
    if decision is not None and decision.in_doubt:
        job.doubt = run.plan.config.texts.fill("unknown_effect")
        job.counted = True
    elif run.terms.resumed is not None:
        job.counted = call.id in run.terms.resumed.counted
    return job


def unfinished(run: Run, reason: str) -> str:
    """What the model reads about a call that had asked in the middle and cannot continue."""
    return run.plan.config.texts.fill("unfinished", reason=reason)


def has_asked(run: Run, call: ToolCall) -> bool:
    """Whether this call had begun and asked a person in the middle."""
    return any(waiting.form is not None and waiting.call.id == call.id for waiting in run.turn.pending)


def hold_to_limit(run: Run, jobs: Sequence[Job]) -> None:
    """Calls that were queued, and so counted, under a higher limit: those past the limit of now do not run."""
    lineage = run.meter.lineage
    over = max((one.tool_calls - one.caps.tool_calls for one in lineage if one.caps.tool_calls is not None), default=0)
    queued = [job for job in jobs if job.result is None and job.counted and job.doubt is None]
    limited = [job for job in queued if job.tool is None or job.tool.counts_toward_limit]
    for job in limited[max(0, len(limited) - over) :] if over > 0 else ():
        job.uncount(run)
        job.refuse(ResultKind.SKIPPED, run.plan.config.texts.fill("calls_spent"))
        job.waits_for = None


def without_tool(run: Run, job: Job, decision: Decision) -> None:
    """A person wants a call to continue whose tool is gone: it is not executed, or unknown if it had begun."""
    if job.asks is not None and decision.kind in ("approve", "answer"):
        job.doubt = unfinished(run, f"the tool {job.call.name!r} no longer exists")
        job.refuse(UNKNOWN, "")
    elif decision.kind == "approve":
        job.refuse(ResultKind.UNKNOWN_TOOL, run.plan.config.texts.fill("tool_gone", tool=job.call.name))


def keep(run: Run, job: Job, count: int = 0) -> None:
    """The result of a call, one of `count`, joins the transcript where it belongs.

    One that nobody knows is listed, and its children.
    """
    if job.doubt is not None and job.kind == UNKNOWN:
        if job.call not in run.work.unknown_effects:
            run.work.doubt((job.call,))
        close_accounts(run, job.call.id)
    elif job.counted and job.doubt is None and job.started_at is None and job.asks is None:
        job.uncount(run)
    place(run, job.message(run, count))


def close_accounts(run: Run, call_id: str) -> None:
    """The children of this call do not continue: charge what they cost, and list what is unknown."""
    told = {child.run_id for child in run.work.children}
    known = {} if run.terms.resumed is None else run.terms.resumed.offspring
    for child in known.get(call_id, ()):
        if child.run_id not in told:
            run.work.doubt(child.unknown)
            run.spend.charge_child(child.agent, child.usage, child.picodollars)
