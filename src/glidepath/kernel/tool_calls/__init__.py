"""Executing a batch of tool calls: exactly one result for each, in source order, on every path."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._lazy import lazy_attributes
from glidepath._wire import replace
from glidepath.kernel.tool_calls.batch import Batch, log_parallel_hint, width_for
from glidepath.kernel.tool_calls.calls import apply_decisions, bind, clear, keep_to_programs, prepare
from glidepath.kernel.tool_calls.guarding import (
    apply,
    ask_after_guards,
    ask_after_hooks,
    ask_before_guards,
    fatal_verdict,
    make_guard_verdict,
)
from glidepath.kernel.tool_calls.interrupted import (
    append_result,
    conclude_without_tool,
    give_up_child,
    has_asked,
    job_for,
    leave_unfinished,
    mark_inner_unknown,
    mark_unknown,
)
from glidepath.kernel.tool_calls.job import Job
from glidepath.kernel.tool_calls.spawn import Host
from glidepath.run import (
    CallScope,
    PausedChild,
    Stopped,
    Touchdown,
    await_interruptibly_within,
    find_paused_child,
    name_below,
    recall,
)
from glidepath.spi import INSIDE, GuardVerdict, Step
from glidepath.tools import NeedsCalls, NeedsDecisions, NeedsInput, ToolContext
from glidepath.values import (
    ApprovalRequested,
    CallFrame,
    PendingCall,
    Program,
    ResultKind,
    ToolCall,
    Unknown,
)

if TYPE_CHECKING:
    from glidepath.run import Run

_enter, _leave = INSIDE.set, INSIDE.reset
IMPORTED = "this call comes from an imported journal; nobody here has asked for it"


async def execute(run: Run, calls: tuple[ToolCall, ...]) -> bool:
    """Run the calls of a reply and add their results; True when the batch ends the run.

    Raises `Touchdown` when the run must come down; every call has its result by then, or is in `run.pending`.
    """
    plan, turn = run.plan, run.turn
    turn.start_tools()
    if turn.votes is not None:
        turn.count_votes(None)
    step = _step(run, calls)
    # Guards first: what they keep back must not run, be counted or be asked about.
    if (found := ask_before_guards(run, step, run.guards.before)) is not None:
        _keep_back(run, *found)
        turn.end_tools()
        return False
    jobs = prepare(run, calls)
    if plan.hands:
        keep_to_programs(run, jobs)
    if run.hooks.before_tool_call or plan.may_ask or run.meter.is_short_of_calls(len(jobs)):
        await clear(run, jobs)
    if (running := run_jobs(run, jobs)) is not None:
        await running
    done = _conclude(run, jobs, step)
    turn.end_tools()
    return done


async def finish_batch(run: Run) -> bool:
    """Continue the batch a run stopped in, as `execute` does: do what was decided, keep waiting for the rest.

    A call that neither waits nor was decided about had not begun when the process died: it takes the usual way.
    """
    reply: Any = run.turn.reply
    waiting = {pending.call.id: pending for pending in run.turn.pending}
    fresh = _collect_unstarted_calls(run, waiting)
    made = {job.call.id: job for job in fresh}
    mine = [call for call in run.turn.open_calls() if call.id not in run.turn.programs]
    jobs = [made.get(call.id) or waiting_job(run, call, waiting.get(call.id)) for call in mine]
    run.turn.start_tools()
    if fresh:
        await clear(run, fresh)
    await apply_decisions(run, jobs, run.terms.resumed.decisions)  # type: ignore[union-attr]
    if (running := run_jobs(run, jobs)) is not None:
        await running
    programs = run.turn.programs  # which look after their own
    run.turn.set_pending(tuple([pending for pending in run.turn.pending if pending.inside in programs]))
    done = _conclude(run, jobs, _step(run, reply.tool_calls), waiting)
    run.turn.end_tools()
    return done


def close_batch(run: Run) -> bool:
    """The last calls of a batch, which were programs, have their results: the guards see it, the votes are counted."""
    reply: Any = run.turn.reply
    _show_step_to_guards(run, _step(run, reply.tool_calls))
    return batch_ends_run(run)


def _collect_unstarted_calls(run: Run, waiting: Mapping[str, PendingCall]) -> list[Job]:
    """The calls that were neither begun nor shown to a person, ready to be judged."""
    known = run.terms.resumed.decisions  # type: ignore[union-attr]
    strange = {call_id for call_id, decision in known.items() if decision.kind == "ask"}
    begun = {*waiting, *run.turn.programs, *[pending.inside for pending in run.turn.pending]}
    calls = [
        call for call in run.turn.open_calls() if call.id not in begun and (call.id not in known or call.id in strange)
    ]
    jobs = prepare(run, calls) if calls else []
    keep_to_programs(run, jobs)
    for job in jobs:
        if job.result is None and job.call.id in strange:
            job.waits_for = IMPORTED
        job.counted = job.call.id in run.terms.resumed.counted  # type: ignore[union-attr]
    return jobs


def waiting_job(run: Run, call: ToolCall, pending: PendingCall | None) -> Job:
    """A call that waits for a decision, with the arguments that were shown."""
    if pending is not None:
        call = pending.call
    job = job_for(run, call)
    paused = find_paused_child(run.turn.pending, call.id, run.terms.resumed.decisions)  # type: ignore[union-attr]
    if paused is not None:
        return _repeat_paused_call(run, job, paused)
    job.waits_for = "" if pending is None else pending.reason
    if pending is not None and pending.form is not None:
        job.asks, job.counted = pending, True
    if job.tool is None and call.id in run.terms.resumed.decisions:  # type: ignore[union-attr]
        conclude_without_tool(run, job, run.terms.resumed.decisions[call.id])  # type: ignore[union-attr]
    return job  # without a decision it keeps waiting, also for its tool: a server may only be away


def _repeat_paused_call(run: Run, job: Job, paused: PausedChild) -> Job:
    """A call whose child waits for a person: it is made again, and the child continues or says that it still waits."""
    job.paused, job.counted, job.waits_for = paused, True, ""
    if job.tool is None:
        if paused.decisions:
            leave_unfinished(run, job, f"the tool {job.call.name!r} no longer exists")
            job.refuse(ResultKind.UNKNOWN_EFFECT, "")
        return job  # else it keeps waiting, also for its tool
    if paused.decisions or run.journal is not None:  # with a journal, its own inbox may know more
        bind(run, job)
        job.waits_for = None
    return job


def answer_open_calls(run: Run, kind: ResultKind, text: str, why: Unknown | None = None) -> None:
    """Give every call of the current reply that has none yet this error result; one that had begun is unknown.

    `why`: any of them may have begun, and nobody knows which.
    """
    in_order = not run.turn.results
    for call in run.turn.open_calls():
        job = job_for(run, call)
        if why is not None and job.doubt is None:
            mark_unknown(run, job, why)
        job.paused = find_paused_child(run.turn.pending, call.id, {})
        has_child = job.doubt is None and give_up_child(run, job)
        if not has_child and has_asked(run, call):
            leave_unfinished(run, job, "the run ended first")
            mark_inner_unknown(run, call)
        job.refuse(kind, text)
        append_result(run, job, last=in_order)
    run.turn.forget_programs()
    run.turn.set_pending(())


# --- guards -----------------------------------------------------------------------------------------------------


def _step(run: Run, calls: tuple[ToolCall, ...]) -> Step:
    """A batch, as the guards see it."""
    return Step(calls, run.plan.tools, run.descent.withdrawn, run.descent.notice is not None)


def _keep_back(run: Run, name: str, verdict: GuardVerdict) -> None:
    """A guard objects: no call of the batch runs, each has a result that says why. Raises when the run must land."""
    apply(run, name, verdict)
    text = verdict.notice or run.plan.config.texts.fill("not_executed", reason=verdict.reason)
    answer_open_calls(run, ResultKind.WITHDRAWN, text)
    if verdict.action == "land":
        raise Touchdown(make_guard_verdict(name, verdict))
    run.turn.mark_error(True)


def _show_step_to_guards(run: Run, step: Step) -> None:
    """Show the guards the results of the batch."""
    turn = run.turn
    results = turn.results
    if len(results) != len(step.calls):
        return  # some calls wait for a person
    failed = False
    for result in results:
        if result.is_error:
            failed = True
        elif run.answer.rescued:
            run.forget_rescues()
    if turn.last_error is not failed:
        turn.mark_error(failed)
    if (landing := ask_after_guards(run, step, results, run.guards.after)) is not None:
        raise landing


# --- running ----------------------------------------------------------------------------------------------------


def run_jobs(run: Run, jobs: list[Job], *, cleared: bool = False) -> Awaitable[None] | None:
    """Run those of the jobs that may run, to their end: with their children, and the hooks that look at the results.

    None: that is done; else await the rest. `cleared`: the kill switches were looked at.
    """
    if run.watch.sentry is not None and not cleared:
        return _run_when_cleared(run, jobs)
    running = start_jobs(run, [] if run.watch.is_halted() else admit_jobs(run, jobs))
    if running is None and not run.work.spawned and not run.hooks.after_tool_call:
        return None
    return _run_to_end(run, jobs, running)


async def _run_when_cleared(run: Run, jobs: list[Job]) -> None:
    await run.watch.sentry.wait_until_clear(run)
    running = run_jobs(run, jobs, cleared=True)
    if running is not None:
        await running


async def _run_to_end(run: Run, jobs: list[Job], running: Awaitable[None] | None) -> None:
    if running is not None:
        await running
    await follow_up(run, jobs)


def start_jobs(run: Run, ready: list[Job]) -> Awaitable[None] | None:
    """Run these jobs: a lone inline one in the run's own task, others in tasks of their own. None: they have ended."""
    if len(ready) == 1 and ready[0].tool.isolation == "inline":  # type: ignore[union-attr]
        return _run_alone(run, ready[0]) if run.journal is None else _run_after_intent(run, ready[0])
    return _run_batch(run, ready) if ready else None


async def _run_batch(run: Run, ready: list[Job]) -> None:
    await Batch(run, ready, width_for(run.plan, ready)).run_all()
    if run.plan.config.default_execution_mode == "auto":
        log_parallel_hint(run, ready)


def admit_jobs(run: Run, jobs: list[Job]) -> list[Job]:
    """The jobs that may run, counted: `Job.cancel_start` takes back what does not begin."""
    ready = []
    for job in jobs:
        if job.result is None and job.waits_for is None:
            tool: Any = job.tool
            if tool.breaker is not None:
                job.ask_breaker(run)
                if job.result is not None:
                    continue
            ready.append(job)
            if not job.counted:
                run.turn.count_call()
                if tool.counts_toward_limit:
                    run.meter.charge_tool_call()
            if not tool.plain:
                job.context = ToolContext(
                    Host(run, job.paused), job.call.id, job.call.name, f"{run.run_id}:{job.call.id}"
                )
                if job.continuation is not None:
                    job.context.continuation = job.continuation
                job.context.calls_made = job.made
    return ready


def journal_intent(run: Run, job: Job) -> Awaitable[None] | None:
    """With a journal: that a call is about to start is on disk first. When it cannot be, the call does not count.

    None when it is on disk already.
    """
    try:
        later = run.journal.record_starts([job])  # type: ignore[union-attr] # the caller has checked
    except Touchdown:
        job.cancel_start(run)
        raise
    return None if later is None else _await_intent(run, job, later)


async def _await_intent(run: Run, job: Job, later: Awaitable[None]) -> None:
    try:
        await later
    except Touchdown:
        job.cancel_start(run)
        raise


async def _run_after_intent(run: Run, job: Job) -> None:
    """The same, once the journal has it."""
    later = journal_intent(run, job)
    if later is not None:
        await later
    running = _run_alone(run, job)
    if running is not None:
        await running


def _run_alone(run: Run, job: Job) -> Awaitable[None] | None:
    """Run a single inline call inside the run's own task. None: it had its result by its first step; else await it."""
    job.announce(run)
    if run.watch.is_halted():
        job.cancel_start(run)  # an observer has stopped the run
        return None
    tool: Any = job.tool
    values = job.bound.values  # type: ignore[union-attr]
    inside = CallScope(run, job.call.id, job)
    before = _enter(inside)
    try:
        work = tool.fn(**values) if job.context is None else tool.invoke(values, job.context)
        try:
            waiting = work.send(None)
        except StopIteration as done:
            value = done.value
        else:
            return _end_alone(run, job, work, waiting, inside, before)
        job.record_return(value)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a tool stay in here
        if run.watch.is_forked():
            raise
        job.record_error(error)
    inside.run = inside.work = None
    _leave(before)
    return None


async def _end_alone(run: Run, job: Job, work: Any, waiting: object, inside: CallScope, before: Any) -> None:
    """Wait for a single inline call, which waits for something itself; no task is made for it."""
    try:
        job.record_return(await await_interruptibly_within(work, run.watch, job.timeout(run), waiting))
    except Stopped as stopped:
        job.record_stop(run, stopped)
    except BaseException as error:
        if run.watch.gone or run.watch.is_forked():
            raise
        job.record_error(error)
    finally:
        inside.run = inside.work = None
        try:
            INSIDE.reset(before)
        except ValueError:  # the run continues in another task: its caller has let go of it
            INSIDE.set(None)
    if run.watch.interrupt is not None:  # a hundred tools that are stopped together hear of it one right after another
        await run.watch.yield_to_others()


async def follow_up(run: Run, jobs: list[Job]) -> None:
    """Stop the children a call left behind, and ask the after-hooks: in source order, whatever the completion order."""
    if run.work.unchecked:
        from glidepath.kernel.tool_calls.background_calls import check_results, hand_over  # few runs have any

        await check_results(run)
        for job in jobs:
            if job.collects is not None:
                hand_over(run, job)
    for job in jobs:
        if job.started_at is not None:
            if run.work.spawned:
                await recall(run, job.call.id)
            if job.result is not None and not job.checked and run.hooks.after_tool_call:
                later = ask_after_hooks(run, job)
                if later is not None:
                    await later


def _conclude(run: Run, jobs: list[Job], step: Step, waiting: Mapping[str, PendingCall] = {}) -> bool:
    """The calls of a batch have run: their results join the transcript, the guards see them, the votes are counted.

    True when the batch ends the run. `waiting`: what calls of an earlier process have waited for.
    """
    counts = _finish(run, jobs, waiting)
    _show_step_to_guards(run, step)
    if run.watch.interrupt is not None:
        raise run.make_interrupt()
    turn = run.turn
    if not counts and turn.votes is None:
        return False
    count_votes(run, jobs)
    return not turn.pending and not turn.programs and batch_ends_run(run)


def count_votes(run: Run, jobs: Sequence[Job]) -> None:
    """Add the votes of the calls that have their results; others of the batch may have to wait for a person first."""
    ended, voted, unanimous = run.turn.votes or (False, False, True)
    for job in jobs:
        tool, result = job.tool, job.result
        if result is None:
            continue
        if tool is None:
            unanimous = False
        elif job.call.name in run.plan.terminal_tools and not result.is_error:
            ended = True
        elif tool.votes_on_termination:
            voted = voted or result.terminate
            unanimous = unanimous and result.terminate
    run.turn.count_votes((ended, voted, unanimous))


def batch_ends_run(run: Run) -> bool:
    """What the votes of a whole batch come to: a terminal tool succeeded, or all tools that vote want to end."""
    terminal, voted, unanimous = run.turn.votes or (False, False, False)
    run.turn.count_votes(None)
    return terminal or (voted and unanimous)


def _finish(run: Run, jobs: list[Job], waiting: Mapping[str, PendingCall]) -> bool:
    """Results become messages, in source order; calls waiting for a person are listed.

    False when nothing about the batch can end the run, as nearly always: then no votes need to be counted.
    """
    fatal, in_order = None, not run.turn.results
    counts: object = run.plan.terminal_tools
    for job in jobs:
        if job.result is None:
            counts = True  # it may wait, and those that have voted are remembered until then
            if run.watch.interrupt is None and not any(one.fatal for one in jobs):  # a landing run does not pause
                if type(job.asks) is NeedsCalls:
                    _begin_program(run, job)
                else:
                    run.turn.set_pending((*run.turn.pending, *list_pending(run, job, waiting)))
                continue
            if not give_up_child(run, job) and job.asks is not None:
                leave_unfinished(run, job, "the run ended first")
            job.refuse(
                ResultKind.CANCELLED, run.plan.config.texts.fill("not_executed", reason="the run is being stopped")
            )
        if job.trial is not None:
            job.update_breaker(run)
        if job.result.terminate:  # type: ignore[union-attr]
            counts = True
        if in_order and job.doubt is None and job.started_at is not None:
            run.append_result(job.message(run, len(jobs)))  # it ran, here and now: nothing to take back
        else:
            append_result(run, job, len(jobs), last=in_order)
        fatal = fatal or job.fatal
    if fatal is not None:
        raise Touchdown(fatal_verdict(fatal))
    return bool(counts)


def _begin_program(run: Run, job: Job) -> None:
    """Its tool asks for calls: `run_programs` makes them, once the rest of its batch is done."""
    bound: Any = job.bound
    call = ToolCall(job.call.id, job.call.name, bound.as_json())
    clock = run.voice.now() if run.journal is None else run.journal.time  # known when a journal is replayed
    run.turn.keep_program(Program(call=call, clock=clock), job.asks.state)


def list_pending(run: Run, job: Job, waiting: Mapping[str, PendingCall], inside: str = "") -> tuple[PendingCall, ...]:
    """What a call waits for, as a person is shown it; `waiting`: what was shown before."""
    if isinstance(job.asks, NeedsDecisions):
        return _list_pending_in_child(run, job, waiting, inside)
    if job.paused is not None:
        return job.paused.pending
    still = None if isinstance(job.asks, NeedsInput) else waiting.get(job.call.id)
    return (still or _make_pending_call(run, job, inside),)


def _make_path(run: Run, inside: str) -> tuple[CallFrame, ...]:
    return (CallFrame(call_id=inside, tool=run.turn.programs[inside].call.name),) if inside else ()


def _list_pending_in_child(
    run: Run, job: Job, waiting: Mapping[str, PendingCall], inside: str
) -> tuple[PendingCall, ...]:
    """The calls that wait in the child of a call. They are listed here, where a person decides about this run."""
    call_id, agent, child = job.call.id, job.asks.agent, job.asks.child
    path = (*_make_path(run, inside), CallFrame(call_id=call_id, tool=job.call.name, agent=agent, run_id=child.run_id))
    found = []
    for one in child.pending:
        call = replace(one.call, id=name_below(call_id, one.call.id))
        reason = f"{agent}: {one.reason}"
        if call.id not in waiting:
            run.emit(ApprovalRequested, call.id, call.name, call.arguments, reason, one.form, one.origins)
        # Its state stays where it is used.
        found.append(
            replace(one, call=call, reason=reason, state="", inside=inside or call_id, path=(*path, *one.path))
        )
    return tuple(found)


def _make_pending_call(run: Run, job: Job, inside: str) -> PendingCall:
    bound: Any = job.bound  # what an observer does to its event does not change what a person decides about
    asks = job.asks
    form = None if asks is None else asks.form
    reason, state, origins = job.waits_for or "", "" if asks is None else asks.state, job.suspects
    run.emit(ApprovalRequested, job.call.id, job.call.name, bound.read(), reason, form, origins)
    call = ToolCall(job.call.id, job.call.name, bound.as_json())
    path = _make_path(run, inside)
    return PendingCall(call=call, reason=reason, form=form, state=state, inside=inside, origins=origins, path=path)


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.kernel.tool_calls.spawn import MOST_REPORTED as MOST_REPORTED

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, spawn=("MOST_REPORTED",))
