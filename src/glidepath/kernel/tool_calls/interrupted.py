"""Calls that had begun when the process died: each becomes its result, or unknown. Nothing else is assumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath.kernel.tool_calls.job import UNKNOWN, Job
from glidepath.run import place
from glidepath.tools import ArgumentsError, NeedsDecisions, ToolResult
from glidepath.values import PendingCall, ResultKind, Texts, ToolCall, Unknown

if TYPE_CHECKING:
    from glidepath.run import Decision, Run


def resolve_interrupted_calls(run: Run) -> None:
    """First of all: a call that had begun and cannot be repeated is unknown.

    What is left is idempotent, its tool is there and takes its arguments: it runs again if everything allows it, and
    is unknown otherwise.
    """
    resumed = run.terms.resumed
    if resumed is None:
        return
    if run.work.background:
        from glidepath.kernel.tool_calls.background_calls import restore_background  # few runs have any

        restore_background(run)
    for call in run.turn.open_calls():
        decision = resumed.decisions.get(call.id)
        if decision is None or not (decision.in_doubt or decision.kind == "void"):
            continue
        job = job_for(run, call)
        if decision.kind == "void":
            job.refuse(ResultKind.INTERRUPTED, run.plan.config.texts.fill("redacted_call"))
        elif decision.kind == "unknown":
            job.refuse(UNKNOWN, "")
        elif (why := _explain_not_repeatable(job, decision.arguments)) is not None:
            mark_unknown(run, job, why)
            job.refuse(UNKNOWN, "")
        else:
            continue
        append_result(run, job)
        run.turn.forget_program(call.id)
        run.turn.set_pending(tuple([waiting for waiting in run.turn.pending if waiting.call.id != call.id]))


def _explain_not_repeatable(job: Job, arguments: Mapping[str, Any] | None) -> Unknown | None:
    """Why a call cannot be repeated: the current tool does not accept the arguments it began with."""
    if job.tool is None:
        return Unknown.TOOL_GONE
    try:
        job.tool.bind(job.call.stored if arguments is None else arguments)
    except ArgumentsError:
        return Unknown.ARGUMENTS
    return None


def mark_unknown(run: Run, job: Job, why: Unknown) -> None:
    """A call had begun, and unless it gets its result now its outcome is unknown: the model is told why."""
    job.why, job.doubt = why, run.plan.config.texts.fill("unknown_effect", reason=why.reason)


def job_for(run: Run, call: ToolCall) -> Job:
    """A job for a call of an existing reply; it knows whether it had begun."""
    job = Job(call, run.plan.tools.get(call.name))
    decision = None if run.terms.resumed is None else run.terms.resumed.decisions.get(call.id)
    if decision is not None and decision.in_doubt:
        mark_unknown(run, job, Unknown.from_value(decision.text))
        job.counted = True
    elif run.terms.resumed is not None:
        job.counted = call.id in run.terms.resumed.counted
    return job


def leave_unfinished(run: Run, job: Job, reason: str) -> None:
    """A call had asked in the middle, and cannot continue."""
    job.why, job.doubt = Unknown.NOT_CONTINUED, run.plan.config.texts.fill("unfinished", reason=reason)


def has_asked(run: Run, call: ToolCall) -> bool:
    """Whether this call had begun and asked in the middle: a person, or for calls that a program makes."""
    asked = any(waiting.form is not None and waiting.call.id == call.id for waiting in run.turn.pending)
    return asked or call.id in run.turn.programs


def give_up_child(run: Run, job: Job) -> bool:
    """The run does not wait any more: the model is told what the child of this call waits for. False if it has none."""
    if isinstance(job.asks, NeedsDecisions):
        text = job.asks.reason
    elif job.paused is not None:
        text = write_pause(job.paused.pending, run.plan.config.texts)
    else:
        return False
    job.kind, job.result = "paused", ToolResult(text, is_error=True)
    return True


def write_pause(pending: Iterable[PendingCall], texts: Texts) -> str:
    """What a model is told about a child that waits for a person who does not decide."""
    return texts.fill("paused_child", waiting=", ".join(f"{one.call.name} ({one.reason})" for one in pending))


def mark_inner_unknown(run: Run, call: ToolCall) -> None:
    """A program does not continue: of the calls it had begun, list those whose outcome nobody knows."""
    program, resumed = run.turn.programs.get(call.id), run.terms.resumed
    if program is None or resumed is None:
        return
    known = {result.call_id for result in program.results}
    for inner in program.calls:
        decision = resumed.decisions.get(inner.id)
        if decision is not None and decision.in_doubt and inner.id not in known:
            run.work.mark_unknown((inner,))
            close_accounts(run, inner.id)


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


def conclude_without_tool(run: Run, job: Job, decision: Decision) -> None:
    """A person wants a call to continue whose tool is gone: it is not executed, or unknown if it had begun."""
    if job.asks is not None and decision.kind in ("approve", "answer"):
        leave_unfinished(run, job, f"the tool {job.call.name!r} no longer exists")
        job.why = Unknown.TOOL_GONE
        job.refuse(UNKNOWN, "")
    elif decision.kind == "approve":
        job.refuse(ResultKind.UNKNOWN_TOOL, run.plan.config.texts.fill("tool_gone", tool=job.call.name))


def append_result(run: Run, job: Job, count: int = 0, *, last: bool = False) -> None:
    """The result of a call, one of `count`, joins the transcript where it belongs; `last`: behind all that have come.

    One that nobody knows is listed, and its children.
    """
    if job.doubt is not None and job.kind == UNKNOWN:
        if job.call not in run.work.unknown_effects:
            run.work.mark_unknown((job.call,))
        close_accounts(run, job.call.id)
    elif job.counted and job.doubt is None and job.started_at is None and job.asks is None and job.paused is None:
        job.uncount(run)
    place(run, job.message(run, count), last=last)


def close_accounts(run: Run, call_id: str) -> None:
    """The children of this call do not continue: charge what they cost, and list what is unknown."""
    told = {child.run_id for child in run.work.children}
    known = {} if run.terms.resumed is None else run.terms.resumed.offspring
    for child in known.get(call_id, ()):
        if child.run_id not in told:
            run.work.mark_unknown(child.unknown)
            run.spend.charge_child(child.agent, child.usage, child.picodollars)
