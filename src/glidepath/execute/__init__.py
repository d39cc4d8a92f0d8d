"""Executing a batch of tool calls: exactly one result for each, in source order, on every path."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.errors import shown
from glidepath.events import ApprovalRequested
from glidepath.execute.batch import Batch, hint, width_for
from glidepath.execute.calls import clear, decided, keep_to_programs, prepare
from glidepath.execute.doubt import has_asked, job_for, keep, unfinished, without_tool
from glidepath.execute.guarding import apply, fatal_verdict, heeded, objection, stuck
from glidepath.execute.job import ALWAYS_KEPT, Job
from glidepath.execute.spawn import Host
from glidepath.messages import ToolCall, ToolResultMessage
from glidepath.outcome import PendingCall, Program, ResultKind
from glidepath.run import HookFault, Opinion, Place, Stopped, Touchdown, about, interruptible_within, opinion, report
from glidepath.run.inside import recall
from glidepath.spi import AfterDecision, Step, ToolResultContext
from glidepath.spi.inside_variable import INSIDE
from glidepath.tools import NeedsCalls, NeedsInput, ToolContext, ToolResult
from glidepath.tools.text import clean

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
    turn.count_votes(None)
    step = _step(run, calls)
    # Guards first: what they keep back must not run, be counted or be asked about.
    if kept_back(run, step):
        turn.end_tools(turn.checkpoint)
        return False
    jobs = prepare(run, calls)
    if plan.hands:
        keep_to_programs(run, jobs)
    if run.hooks.before_tool_call or plan.approvals or run.meter.short_of_calls(len(jobs)):
        await clear(run, jobs)
    await fly(run, jobs)
    done = _conclude(run, jobs, step)
    turn.end_tools(turn.checkpoint)
    return done


async def text_of(run: Run, job: Job) -> str | None:
    """Wait for the only call of an ordinary turn, where it waits; its result, when that is a short text and no more."""
    if job.waits is not None:
        await _end_alone(run, job)
    if run.hooks.after_tool_call:
        if run.work.spawned:
            await recall(run, job.call.id)
        later = job.heard or (_after(run, job) if job.result is not None else None)
        if later is not None:
            await later
    result = job.result
    if result is None or (content := result.content).__class__ is not str or len(content) > ALWAYS_KEPT:
        return None
    return content if not result.terminate and job.fatal is None and job.trial is None else None


async def end_specially(run: Run, job: Job, step: Step) -> bool:
    """The only call of an ordinary turn did not end with a short text: as `execute` ends a batch."""
    if run.work.spawned and not run.hooks.after_tool_call:  # else that has been done
        await follow_up(run, [job])
    run.turn.count_votes(None)
    return _conclude(run, [job], step)


async def finish_batch(run: Run) -> bool:
    """Continue the batch a run stopped in, as `execute` does: do what was decided, keep waiting for the rest.

    A call that neither waits nor was decided about had not begun when the process died: it takes the usual way.
    """
    reply: Any = run.turn.reply
    waiting = {pending.call.id: pending for pending in run.turn.pending}
    fresh = _not_begun(run, waiting)
    made = {job.call.id: job for job in fresh}
    mine = [call for call in run.turn.open_calls() if call.id not in run.turn.programs]
    jobs = [made.get(call.id) or waiting_job(run, call, waiting.get(call.id)) for call in mine]
    run.turn.start_tools()
    if fresh:
        await clear(run, fresh)
    await decided(run, jobs, run.terms.resumed.decisions)  # type: ignore[union-attr]
    await fly(run, jobs)
    run.turn.pend(tuple([pending for pending in run.turn.pending if pending.inside]))  # programs look after these
    done = _conclude(run, jobs, _step(run, reply.tool_calls), waiting)
    run.turn.end_tools(run.turn.checkpoint)
    return done


def close_batch(run: Run) -> bool:
    """The last calls of a batch, which were programs, have their results: the guards see it, the votes are counted."""
    reply: Any = run.turn.reply
    _learn(run, _step(run, reply.tool_calls))
    return carried(run)


def _not_begun(run: Run, waiting: Mapping[str, PendingCall]) -> list[Job]:
    """The calls that were neither begun nor shown to a person, ready to be judged."""
    known = run.terms.resumed.decisions  # type: ignore[union-attr]
    strange = {call_id for call_id, decision in known.items() if decision.kind == "ask"}
    calls = [
        call
        for call in run.turn.open_calls()
        if call.id not in waiting and call.id not in run.turn.programs and (call.id not in known or call.id in strange)
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
    job.waits_for = "" if pending is None else pending.reason
    if pending is not None and pending.form is not None:
        job.asks, job.counted = pending, True
    if job.tool is None and call.id in run.terms.resumed.decisions:  # type: ignore[union-attr]
        without_tool(run, job, run.terms.resumed.decisions[call.id])  # type: ignore[union-attr]
    return job  # without a decision it keeps waiting, also for its tool: a server may only be away


def answer_open_calls(run: Run, kind: ResultKind, text: str) -> None:
    """Give every call of the current reply that has none yet this error result; one that had begun is unknown."""
    for call in run.turn.open_calls():
        job = job_for(run, call)
        if has_asked(run, call):
            job.doubt = unfinished(run, "the run ended first")
        job.refuse(kind, text)
        keep(run, job)
    run.turn.forget_programs()
    run.turn.pend(())


# --- guards -----------------------------------------------------------------------------------------------------


def _step(run: Run, calls: tuple[ToolCall, ...]) -> Step:
    """A batch, as the guards see it."""
    return Step(calls, run.plan.tools, run.descent.withdrawn, run.descent.notice is not None)


def kept_back(run: Run, step: Step) -> bool:
    """Ask the guards before anything runs; True when they keep the batch from running."""
    found = objection(run, step, run.guards.calls)
    if found is None:
        return False
    name, verdict = found
    apply(run, name, verdict)
    text = verdict.notice or run.plan.config.texts.fill("not_executed", reason=verdict.reason)
    answer_open_calls(run, ResultKind.WITHDRAWN, text)
    if verdict.action == "land":
        raise Touchdown(stuck(name, verdict))
    run.turn.mark_error(True)
    return True


def _learn(run: Run, step: Step) -> None:
    """Show the guards the results of the batch."""
    results = run.turn.results
    if len(results) != len(step.calls):
        return  # some calls wait for a person
    if run.turn.last_error:
        run.turn.mark_error(False)
    for result in results:
        if result.is_error:
            run.turn.mark_error(True)
        elif run.answer.rescued:
            run.forget_rescues()
    landing = heeded(run, step, results, run.guards.calls)
    if landing is not None:
        raise landing


# --- running ----------------------------------------------------------------------------------------------------


async def fly(run: Run, jobs: list[Job]) -> None:
    """Run those of the jobs that may run, to their end: with their children, and the hooks that look at the results."""
    if run.watch.sentry is not None:
        await run.watch.sentry.cleared(run)
    await fly_jobs(run, [] if run.watch.halted() else admitted(run, jobs))
    await follow_up(run, jobs)


async def fly_jobs(run: Run, ready: list[Job]) -> None:
    """Run these jobs: a lone inline one in the run's own task, others in tasks of their own."""
    if len(ready) == 1 and ready[0].tool.isolation == "inline":  # type: ignore[union-attr]
        await _run_alone(run, ready[0])
    elif ready:
        await Batch(run, ready, width_for(run.plan, ready)).fly()
        if run.plan.config.default_execution_mode == "auto":
            hint(run, ready)


def admitted(run: Run, jobs: list[Job]) -> list[Job]:
    """The jobs that may run, counted: `Job.not_started` takes back what does not begin."""
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
                job.context = ToolContext(Host(run), job.call.id, job.call.name, f"{run.run_id}:{job.call.id}")
                if job.continuation is not None:
                    job.context.continuation = job.continuation
                job.context.calls_made = job.made
    return ready


def written_down(run: Run, job: Job) -> Awaitable[None] | None:
    """With a journal: that a call is about to start is on disk first. When it cannot be, the call does not count.

    None when it is on disk already.
    """
    try:
        later = run.journal.starting([job])  # type: ignore[union-attr] # the caller has checked
    except Touchdown:
        job.not_started(run)
        raise
    return None if later is None else _written_down(run, job, later)


async def _written_down(run: Run, job: Job, later: Awaitable[None]) -> None:
    try:
        await later
    except Touchdown:
        job.not_started(run)
        raise


async def _run_alone(run: Run, job: Job) -> None:
    """Run a single inline call inside the run's own task."""
    if run.journal is not None:
        later = written_down(run, job)
        if later is not None:
            await later
    job.announce(run)
    if run.watch.halted():
        job.not_started(run)  # an observer has stopped the run
        return
    text = first_step(run, job, job.call.id, job.tool, job.bound)
    if text is not None:
        job.result = ToolResult(text)
    elif job.waits is not None:
        await _end_alone(run, job)


def first_step(run: Run, job: Job, call_id: str, tool: Any, bound: Any) -> str | None:
    """Call the tool, inside the run's own task: its result, when that is a short text that can be shown as it is.

    None when the call waits, or has ended in any other way: `job` knows.
    """
    inside = Place(run, call_id, job)
    before = _enter(inside)
    try:
        work = tool.invoke(bound.values, job.context) if job.context is not None else tool.fn(**bound.values)
        try:
            job.waits = (work, work.send(None), inside, before)
            return None
        except StopIteration as done:
            value = done.value
        if value.__class__ is not str or not value or len(value) > 200 or not value.isascii():  # noqa: PLR2004 - ALWAYS_KEPT
            job.returned(value)
            value = None
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a tool stay in here
        job.raised(error)
        value = None
    inside.run = inside.work = None
    _leave(before)
    return value  # type: ignore[no-any-return]


def step_looked_at(run: Run, job: Job, call_id: str, tool: Any, bound: Any) -> str | None:
    """`first_step` where hooks look at the result, which is in `job`; None, too, when they have something to say."""
    text = first_step(run, job, call_id, tool, bound)
    if text is None:
        return None
    job.result = ToolResult(text)
    if run.work.spawned:
        return None  # they are asked when its children have ended
    job.heard = heard = _after(run, job)
    return text if heard is None else None


async def _end_alone(run: Run, job: Job) -> None:
    """Wait for a single inline call; no task is made for it."""
    (work, waiting, inside, before), job.waits = job.waits, None
    try:
        job.returned(await interruptible_within(work, run.watch, job.timeout(run), waiting))
    except Stopped as stopped:
        job.stopped(run, stopped)
    except BaseException as error:
        if run.watch.gone:
            raise
        job.raised(error)
    finally:
        inside.run = inside.work = None
        try:
            INSIDE.reset(before)
        except ValueError:  # the run continues in another task: its caller has let go of it
            INSIDE.set(None)
    if run.watch.interrupt is not None:  # a hundred tools that are stopped together hear of it one right after another
        await run.watch.let_others_hear()


async def follow_up(run: Run, jobs: list[Job]) -> None:
    """Stop the children a call left behind, and ask the after-hooks: in source order, whatever the completion order."""
    for job in jobs:
        if job.started_at is not None:
            if run.work.spawned:
                await recall(run, job.call.id)
            if job.result is not None and run.hooks.after_tool_call:
                later = _after(run, job)
                if later is not None:
                    await later


def _conclude(run: Run, jobs: list[Job], step: Step, waiting: Mapping[str, PendingCall] = {}) -> bool:
    """The calls of a batch have run: their results join the transcript, the guards see them, the votes are counted.

    True when the batch ends the run. `waiting`: what calls of an earlier process have waited for.
    """
    _finish(run, jobs, waiting)
    _learn(run, step)
    if run.watch.interrupt is not None:
        raise run.interrupted()
    count_votes(run, jobs)
    return not run.turn.pending and not run.turn.programs and carried(run)


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


def carried(run: Run) -> bool:
    """What the votes of a whole batch come to: a terminal tool succeeded, or all tools that vote want to end."""
    terminal, voted, unanimous = run.turn.votes or (False, False, False)
    run.turn.count_votes(None)
    return terminal or (voted and unanimous)


def _finish(run: Run, jobs: list[Job], waiting: Mapping[str, PendingCall]) -> None:
    """Results become messages, in source order; calls waiting for a person are listed."""
    fatal = None
    for job in jobs:
        if job.result is None:
            if run.watch.interrupt is None and not any(one.fatal for one in jobs):  # a landing run does not pause
                if type(job.asks) is NeedsCalls:
                    _begin_program(run, job)
                else:
                    still = None if isinstance(job.asks, NeedsInput) else waiting.get(job.call.id)
                    run.turn.pend((*run.turn.pending, still or pend(run, job)))
                continue
            if job.asks is not None:
                job.doubt = unfinished(run, "the run ended first")
            job.refuse(
                ResultKind.CANCELLED, run.plan.config.texts.fill("not_executed", reason="the run is being stopped")
            )
        if job.trial is not None:
            job.tell_breaker(run)
        keep(run, job, len(jobs))
        fatal = fatal or job.fatal
    if fatal is not None:
        raise Touchdown(fatal_verdict(fatal))


def _begin_program(run: Run, job: Job) -> None:
    """Its tool asks for calls: `run_programs` makes them, once the rest of its batch is done."""
    bound: Any = job.bound
    call = ToolCall(job.call.id, job.call.name, bound.written())
    clock = run.voice.now() if run.journal is None else run.journal.time  # known when a journal is replayed
    run.turn.keep_program(Program(call=call, clock=clock), job.asks.state)


def pend(run: Run, job: Job, inside: str = "") -> PendingCall:
    """A call that waits for a person, as that person is shown it."""
    bound: Any = job.bound  # what an observer does to its event does not change what a person decides about
    asks = job.asks
    form = None if asks is None else asks.form
    reason, state, origins = job.waits_for or "", "" if asks is None else asks.state, job.suspects
    run.emit(ApprovalRequested, job.call.id, job.call.name, bound.read(), reason, form, origins)
    call = ToolCall(job.call.id, job.call.name, bound.written())
    return PendingCall(call=call, reason=reason, form=form, state=state, inside=inside, origins=origins)


def _after(run: Run, job: Job) -> Awaitable[None] | None:
    """Every after-hook may change what the model sees of the result, or vote to end the run. None: nobody does."""
    turn, call, voices = run.turn, job.call, iter(run.hooks.after_tool_call)
    arguments = job.bound.read() if job.bound is not None else {}
    context = turn.contexts.get(ToolResultContext)
    if context is None:
        context = about(run, ToolResultContext, call=None, arguments=None, tool=None, result=None)
    result, call = _shown(run, job), ToolCall(call.id, call.name, arguments)
    context = replace(context, iteration=turn.iterations, call=call, arguments=arguments, tool=job.tool, result=result)
    heard = opinion(run, "after_tool_call", voices, context)
    return None if heard is None else _changed(run, job, voices, context, heard)


async def _changed(
    run: Run,
    job: Job,
    voices: Iterator[Any],
    context: ToolResultContext,
    heard: Awaitable[Opinion | None] | None,
) -> None:
    try:
        while heard is not None and (said := await heard) is not None:
            try:
                if said.fault is not None:
                    raise said.fault
                _change(job, said.name, _as_decision(said.answer))
                context = replace(context, result=_shown(run, job))
            except HookFault as fault:
                report(run, "after_tool_call", said.name, fault, "skipped")
            heard = opinion(run, "after_tool_call", voices, context)
    except Touchdown:
        return  # the run is being stopped: leave the tool's answer unchanged


def _shown(run: Run, job: Job) -> ToolResultMessage:
    call, result = job.call, job.result
    origins = job.origins(run) if run.work.heard else job.tool.origins if job.tool is not None else ()
    return ToolResultMessage(call.id, call.name, result.content, result.is_error, job.kind, origins=origins)  # type: ignore[union-attr]


def _as_decision(answer: object) -> AfterDecision:
    if type(answer) is not AfterDecision:
        raise HookFault(f"after_tool_call must return an AfterDecision or None, not {shown(answer)}")
    for field, kind in (("content", str), ("is_error", bool), ("terminate", bool)):
        value = getattr(answer, field)
        if value is not None and not isinstance(value, kind):
            raise HookFault(f"AfterDecision.{field} must be of type {kind.__name__} or None, not {shown(value)}")
    return answer


def _change(job: Job, name: str, decision: AfterDecision) -> None:
    result: Any = job.result
    job.result = replace(
        result,
        content=result.content if decision.content is None else clean(decision.content),
        is_error=result.is_error if decision.is_error is None else decision.is_error,
        terminate=result.terminate if decision.terminate is None else decision.terminate,
    )
    if decision.is_error is not None:
        job.kind = (job.kind or name) if decision.is_error else None
