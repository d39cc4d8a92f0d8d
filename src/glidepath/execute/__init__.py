"""Executing a batch of tool calls: exactly one result for each, in source order, on every path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.errors import shown
from glidepath.events import ApprovalRequested, MessageAdded, ToolEnded, ToolStarted
from glidepath.execute import breaker
from glidepath.execute.batch import run_together
from glidepath.execute.calls import clear, decided, keep_to_programs, misfits, prepare
from glidepath.execute.doubt import job_for, keep, settle
from glidepath.execute.guarding import apply, crashed, fatal_verdict, heeded, heeded_by, objection, stuck
from glidepath.execute.job import ALWAYS_KEPT, Job
from glidepath.execute.order import hint, width_for
from glidepath.execute.spawn import Host
from glidepath.messages import ToolCall, ToolResultMessage, stored_arguments
from glidepath.outcome import AgentState, PendingCall, Program
from glidepath.run import HookFault, Place, Stopped, Touchdown, about, cleared, opinion, report, tethered
from glidepath.run.inside import recall
from glidepath.spi import AfterDecision, GuardVerdict, Step, ToolResultContext
from glidepath.spi.inside_variable import INSIDE
from glidepath.tools import ArgumentsError, NeedsCalls, NeedsInput, Tool, ToolContext, ToolResult
from glidepath.tools.text import clean

if TYPE_CHECKING:
    from glidepath.run import Run

__all__ = [
    "admitted",
    "alone",
    "answer_open_calls",
    "close_batch",
    "execute",
    "fatal_verdict",
    "finish_batch",
    "fly_jobs",
    "follow_up",
    "heeded",
    "objection",
    "pend",
    "put_off",
    "settle",
    "stuck",
    "waiting_job",
]

IMPORTED = "this call comes from an imported journal; nobody here has asked for it"


async def execute(run: Run, calls: tuple[ToolCall, ...]) -> bool:
    """Run the calls of a reply and add their results; True when the batch ends the run.

    Raises `Touchdown` when the run must come down; every call has its result by then, or is in `run.pending`.
    """
    plan, watch = run.plan, run.watch
    run.state = AgentState.WAITING_FOR_TOOL  # from RUNNING and back: no need to look it up
    step = Step(calls, plan.tools, run.withdrawn, run.notice is not None)
    if _kept_back(run, step):
        run.state = AgentState.RUNNING
        return False
    jobs = prepare(run, calls)
    if plan.hands:
        keep_to_programs(run, jobs)
    if run.hooks.before_tool_call or plan.approvals or run.meter.short_of_calls(len(jobs)):
        await clear(run, jobs)
    if watch.sentry is not None:
        await cleared(run)
    stopped = watch.interrupt is not None or watch.above is not None or watch.called_off is not None
    ready = [] if stopped and watch.halted() else admitted(run, jobs)
    if len(ready) == 1 and ready[0].tool.isolation == "inline":  # type: ignore[union-attr]
        if run.journal is not None:
            await _written_down(run, ready[0])
        begun = _begin_alone(run, ready[0])
        if begun is not None:
            await _end_alone(run, ready[0], *begun)
    elif ready:
        await _together(run, ready)
    if run.spawned or run.hooks.after_tool_call:
        await follow_up(run, jobs)
    done = _finish(run, jobs)
    _learn(run, step)
    if watch.interrupt is not None:
        raise run.interrupted()
    run.state = AgentState.RUNNING
    if run.pending or run.programs:
        return put_off(run, jobs)
    return done and _count_votes(jobs, plan.terminal_tools)


async def alone(run: Run, calls: tuple[ToolCall, ...], tool: Tool) -> bool:
    """`execute` for one call of an inline tool that is not terminal, where no hook or person has a say: `cruise`."""
    watch, call = run.watch, calls[0]
    step = Step(calls, run.plan.tools)
    for guard in run.before_guards:
        try:
            verdict = guard.before(step)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            verdict = crashed(run, guard.name, error)
        if verdict is not None:
            _keep_back(run, guard.name, verdict)
            return False
    job = Job(call, tool)
    try:
        job.bound = tool.bind(stored_arguments(call))
    except ArgumentsError as error:
        misfits(run, job, error)
    meter = run.meter
    if meter.tool_calls >= meter.calls_wire or (meter.parent is not None and meter.short_of_calls(1)):
        await clear(run, [job])
    if (watch.interrupt is not None or watch.above is not None or watch.called_off is not None) and watch.halted():
        pass  # it does not begin: `_finish` says why
    elif job.result is None:
        run.tool_calls += 1
        if tool.counts_toward_limit:
            meter.charge_tool_call()
        if tool.wants_context or not tool.plain:
            job.context = ToolContext(Host(run), call.id, call.name, f"{run.run_id}:{call.id}")
        if run.journal is not None:
            await _written_down(run, job)
        begun = _begin_alone(run, job)
        if begun is not None:
            await _end_alone(run, job, *begun)
    if run.spawned:
        await follow_up(run, [job])
    result = job.result
    if (
        result is None
        or result.content.__class__ is not str
        or len(result.content) > ALWAYS_KEPT
        or result.terminate
        or job.fatal is not None
        or job.trial is not None
    ):
        votes = _finish(run, [job])
        _learn(run, step)
    else:
        votes = _end_plainly(run, job, result, step)
    if watch.interrupt is not None:
        raise run.interrupted()
    if run.pending:  # it asks back
        return put_off(run, [job])
    return votes and _count_votes([job], run.plan.terminal_tools)


def _end_plainly(run: Run, job: Job, result: ToolResult, step: Step) -> bool:
    """`_finish` and `_learn` for one short text: it joins the transcript, the guards see it. Nobody votes: False."""
    call_id, name, bad = job.call.id, job.call.name, result.is_error
    message = ToolResultMessage(call_id, name, result.content, bad, job.kind, result.details, result.narration)
    size = run.plan.size_of(message)
    tell: Any = run.tell_all
    if tell is not None:
        run_id, parent_id, number, at, began = run.run_id, run.parent_id, run.next_number, run.now(), job.started_at
        seconds = 0.0 if began is None else run.time() - began
        tell(ToolEnded(run_id, parent_id, number(), at, call_id, name, message, seconds, job.traceback))
    run.messages.append(message)
    run.results = results = (message,)
    run.sizes.append(size)
    if run.view is not run.messages:
        run.view.append(message)
    run.view_tokens += size
    if tell is not None:
        tell(MessageAdded(run_id, parent_id, number(), at, message))
    run.last_error = bad
    if run.rescued and not bad:
        run.forget_rescues()
    landing = None
    for guard in run.after_guards:
        try:
            verdict = guard.after(step, results)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            verdict = crashed(run, guard.name, error)
        if verdict is not None:
            touchdown = heeded_by(run, guard.name, verdict)
            landing = landing or touchdown
    if landing is not None:
        raise landing
    return False


async def finish_batch(run: Run) -> bool:
    """Go on with the batch a run stopped in: what was decided is done, what was not waits on. As `execute` otherwise.

    A call that neither waits nor was decided about had not begun when the process died: it takes the usual way.
    """
    reply: Any = run.reply
    waiting = {pending.call.id: pending for pending in run.pending}
    fresh = _not_begun(run, waiting)
    made = {job.call.id: job for job in fresh}
    mine = [call for call in run.open_calls() if call.id not in run.programs]
    jobs = [made.get(call.id) or waiting_job(run, call, waiting.get(call.id)) for call in mine]
    run.state = AgentState.WAITING_FOR_TOOL
    if fresh:
        await clear(run, fresh)
    await decided(run, jobs, run.resumed.decisions)  # type: ignore[union-attr]
    if run.watch.sentry is not None:
        await cleared(run)
    await fly_jobs(run, [] if run.watch.halted() else admitted(run, jobs))
    if run.spawned or run.hooks.after_tool_call:
        await follow_up(run, jobs)
    fatal = None
    for job in jobs:
        if job.result is not None:
            keep(run, job, len(jobs))
            fatal = fatal or job.fatal
        elif type(job.asks) is NeedsCalls:
            _begin_program(run, job)
    if run.watch.interrupt is None:  # else nobody is asked any more
        left = [job for job in jobs if job.result is None and job.call.id not in run.programs]
        still = [pending for pending in run.pending if pending.inside]  # programs look after them
        run.pending = (*still, *[_still(waiting, job) or pend(run, job) for job in left])
    if fatal is not None:
        raise Touchdown(fatal_verdict(fatal))
    _learn(run, Step(reply.tool_calls, run.plan.tools, run.withdrawn, run.notice is not None))
    if run.watch.interrupt is not None:
        raise run.interrupted()
    done = not put_off(run, jobs) and not run.pending and not run.programs and _carried(run)
    run.state = AgentState.RUNNING
    return done


def close_batch(run: Run) -> bool:
    """The last calls of a batch, which were programs, have their results: the guards see it, the votes are counted."""
    reply: Any = run.reply
    _learn(run, Step(reply.tool_calls, run.plan.tools, run.withdrawn, run.notice is not None))
    return _carried(run)


def _not_begun(run: Run, waiting: Mapping[str, PendingCall]) -> list[Job]:
    """The calls that were neither begun nor shown to a person, ready to be judged."""
    known = run.resumed.decisions  # type: ignore[union-attr]
    strange = {call_id for call_id, decision in known.items() if decision.kind == "ask"}
    calls = [
        call
        for call in run.open_calls()
        if call.id not in waiting and call.id not in run.programs and (call.id not in known or call.id in strange)
    ]
    jobs = prepare(run, calls) if calls else []
    keep_to_programs(run, jobs)
    for job in jobs:
        if job.result is None and job.call.id in strange:
            job.waits_for = IMPORTED
        job.counted = job.call.id in run.resumed.counted  # type: ignore[union-attr]
    return jobs


def waiting_job(run: Run, call: ToolCall, pending: PendingCall | None) -> Job:
    """A call that waits for a decision, with the arguments that were shown."""
    if pending is not None:
        call = pending.call
    job = job_for(run, call)
    job.waits_for = "" if pending is None else pending.reason
    if pending is not None and pending.form is not None:
        job.asks = pending
    decision = run.resumed.decisions.get(call.id)  # type: ignore[union-attr]
    if job.tool is None and (decision is None or decision.kind == "approve"):  # what else was said needs no tool
        job.refuse("unknown_tool", run.plan.texts.fill("tool_gone", tool=call.name))
    return job


def answer_open_calls(run: Run, kind: str, text: str) -> None:
    """Give every call of the current reply that has none yet this error result; one that had begun is unknown."""
    gaps = (
        run.pending or run.programs or run.resumed is not None
    )  # results that have come may belong behind those made here
    results = list(run.results)
    for call in run.open_calls():
        job = job_for(run, call)
        job.refuse(kind, text)
        if gaps:
            keep(run, job)
        else:
            message = job.message(run)
            run.add(message)
            results.append(message)
    run.programs, run.program_states = {}, {}
    if gaps:
        run.pending = ()
    else:
        run.results = tuple(results)


# --- guards -----------------------------------------------------------------------------------------------------


def _kept_back(run: Run, step: Step) -> bool:
    """Ask the guards before anything runs; True when they keep the batch from running."""
    found = objection(run, step, run.before_guards)
    return found is not None and _keep_back(run, *found)


def _keep_back(run: Run, name: str, verdict: GuardVerdict) -> bool:
    """The batch does not run: its tools are withdrawn, or the run lands."""
    apply(run, name, verdict)
    answer_open_calls(run, "withdrawn", verdict.notice or run.plan.texts.fill("not_executed", reason=verdict.reason))
    if verdict.action == "land":
        raise Touchdown(stuck(name, verdict))
    run.last_error = True
    return True


def _learn(run: Run, step: Step) -> None:
    """Show the guards what came of the batch."""
    results = run.results
    if len(results) != len(step.calls):
        return  # some calls wait for a person
    if run.last_error:
        run.last_error = False
    for result in results:
        if result.is_error:
            run.last_error = True
        elif run.rescued:
            run.forget_rescues()
    landing = heeded(run, step, results, run.after_guards)
    if landing is not None:
        raise landing


# --- running ----------------------------------------------------------------------------------------------------


async def fly_jobs(run: Run, ready: list[Job]) -> None:
    """Run these jobs, of a batch that was begun before."""
    if len(ready) == 1 and ready[0].tool.isolation == "inline":  # type: ignore[union-attr]
        if run.journal is not None:
            await _written_down(run, ready[0])
        begun = _begin_alone(run, ready[0])
        if begun is not None:
            await _end_alone(run, ready[0], *begun)
    elif ready:
        await _together(run, ready)


async def _together(run: Run, ready: list[Job]) -> None:
    """Run these jobs in tasks of their own."""
    await run_together(run, ready, width_for(run.plan, ready))
    if run.plan.order == "auto":
        hint(run, ready)


def admitted(run: Run, jobs: list[Job]) -> list[Job]:
    """The jobs that may run, counted: `Job.not_started` takes back what does not begin."""
    ready = []
    for job in jobs:
        if job.result is None and job.waits_for is None:
            tool: Any = job.tool
            if tool.breaker is not None:
                breaker.admit(run, job)
                if job.result is not None:
                    continue
            ready.append(job)
            if not job.counted:
                run.tool_calls += 1
                if tool.counts_toward_limit:
                    run.meter.charge_tool_call()
            if tool.wants_context or not tool.plain:
                job.context = ToolContext(Host(run), job.call.id, job.call.name, f"{run.run_id}:{job.call.id}")
                if job.continuation is not None:
                    job.context.continuation = job.continuation
                job.context.calls_made = job.made
    return ready


async def _written_down(run: Run, job: Job) -> None:
    """With a journal: that a call is about to start is on disk first. When it cannot be, the call does not count."""
    try:
        await run.journal.starting([job])
    except Touchdown:
        job.not_started(run)
        raise


def _begin_alone(run: Run, job: Job) -> tuple[Any, Any, Place, Any] | None:
    """Start a single inline call inside the run's own task; None when it did not have to wait for anything."""
    tool: Any = job.tool
    bound: Any = job.bound
    call, watch, tell = job.call, run.watch, run.tell_all
    job.started_at = run.time()
    if tell is not None:
        number, at = run.next_number(), run.now()
        tell(ToolStarted(run.run_id, run.parent_id, number, at, call.id, call.name, bound.arguments))
    if (watch.interrupt is not None or watch.above is not None or watch.called_off is not None) and watch.halted():
        job.not_started(run)  # whoever heard of it has stopped the run
        return None
    inside = Place(run, call.id, job)
    before = INSIDE.set(inside)
    try:
        work = tool.invoke(bound.values, job.context) if job.context is not None else tool.fn(**bound.values)
        try:
            return work, work.send(None), inside, before
        except StopIteration as done:
            value = done.value
        if value.__class__ is str and value and value.isascii():
            job.result = ToolResult(value)  # a text that can be shown as it is
        else:
            job.returned(value)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a tool stay in here
        job.raised(error)
    inside.run = inside.work = None
    INSIDE.reset(before)
    return None


async def _end_alone(run: Run, job: Job, work: Any, waiting: Any, inside: Place, before: Any) -> None:
    """Wait for a single inline call; no task is made for it."""
    try:
        job.returned(await tethered(work, run.watch, job.timeout(run), waiting))
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
        except ValueError:  # the run goes on in another task: its caller has let go of it
            INSIDE.set(None)


async def follow_up(run: Run, jobs: list[Job]) -> None:
    """Stop the children a call left behind, and ask the after-hooks: in source order, whatever the completion order."""
    for job in jobs:
        if job.started_at is not None:
            if run.spawned:
                await recall(run, job.call.id)
            if job.result is not None and run.hooks.after_tool_call:
                await _after(run, job)


def _finish(run: Run, jobs: list[Job]) -> bool:
    """Results become messages, in source order; what waits for a person is listed. True when there are votes to count.

    That is when a terminal tool, one that votes to end the run, or one that nobody knows is among them.
    """
    results: list[ToolResultMessage] = []
    fatal, terminal, votes = None, run.plan.terminal_tools, False
    try:
        for job in jobs:
            if job.result is None:
                if _may_wait(run, jobs):
                    if type(job.asks) is NeedsCalls:
                        _begin_program(run, job)
                    else:
                        run.pending = (*run.pending, pend(run, job))
                    continue
                job.refuse("cancelled", run.plan.texts.fill("not_executed", reason="the run is being stopped"))
            if job.trial is not None:
                breaker.tell(run, job)
            message = job.message(run, len(jobs))
            run.add(message)
            results.append(message)
            if job.fatal is not None:
                fatal = fatal or job.fatal
            if job.result.terminate or job.tool is None or message.tool_name in terminal:  # type: ignore[union-attr]
                votes = True
    finally:  # Ctrl-C in between: what has its result is not answered twice
        run.results = tuple(results)
    if fatal is not None:
        raise Touchdown(fatal_verdict(fatal))
    return votes


def _begin_program(run: Run, job: Job) -> None:
    """Its tool asks for calls: `run_programs` makes them, once the rest of its batch is done."""
    bound: Any = job.bound
    call = ToolCall(job.call.id, job.call.name, bound.written())
    clock = run.now() if run.journal is None else run.journal.time  # what a journal that is flown again knows
    run.programs = {**run.programs, call.id: Program(call=call, clock=clock)}
    run.program_states = {**run.program_states, call.id: job.asks.state}


def _may_wait(run: Run, jobs: Sequence[Job]) -> bool:
    """A run that is coming down pauses for nobody."""
    return run.watch.interrupt is None and not any(job.fatal for job in jobs)


def _still(waiting: Mapping[str, PendingCall], job: Job) -> PendingCall | None:
    """What a call has waited for all the time; None when it waits for something new."""
    return None if isinstance(job.asks, NeedsInput) else waiting.get(job.call.id)


def pend(run: Run, job: Job, inside: str = "") -> PendingCall:
    """A call that waits for a person, as that person is shown it."""
    bound: Any = job.bound  # what an observer does to its event does not change what a person decides about
    asks = job.asks
    form = None if asks is None else asks.form
    run.emit(ApprovalRequested, job.call.id, job.call.name, bound.read(), job.waits_for or "", form)
    call = ToolCall(job.call.id, job.call.name, bound.written())
    state = "" if asks is None else asks.state
    return PendingCall(call=call, reason=job.waits_for or "", form=form, state=state, inside=inside)


async def _after(run: Run, job: Job) -> None:
    """Every after-hook may change what the model sees of the result, or vote to end the run."""
    voices = iter(run.hooks.after_tool_call)
    arguments = job.bound.read() if job.bound is not None else {}
    context = ToolResultContext(
        **about(run),
        call=ToolCall(job.call.id, job.call.name, arguments),
        arguments=arguments,
        tool=job.tool,
        result=_shown(job),
    )
    try:
        said = await opinion(run, "after_tool_call", voices, context)
        while said is not None:
            try:
                if said.fault is not None:
                    raise said.fault
                _change(job, said.name, _as_decision(said.answer))
                context = replace(context, result=_shown(job))
            except HookFault as fault:
                report(run, "after_tool_call", said.name, fault, "skipped")
            said = await opinion(run, "after_tool_call", voices, context)
    except Touchdown:
        return  # the run is being stopped: what the tool answered stays as it is


def _shown(job: Job) -> ToolResultMessage:
    result: Any = job.result
    return ToolResultMessage(job.call.id, job.call.name, result.content, result.is_error, job.kind)


def _as_decision(answer: Any) -> AfterDecision:
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


def put_off(run: Run, jobs: Sequence[Job]) -> bool:
    """A person must decide first: keep the votes of the calls that have their results. Always False."""
    terminal, voted, unanimous = run.votes or (False, False, True)
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
    run.votes = (terminal, voted, unanimous)
    return False


def _carried(run: Run) -> bool:
    """What the votes of a whole batch come to, now that every call has its result."""
    (terminal, voted, unanimous), run.votes = run.votes or (False, False, False), None
    return terminal or (voted and unanimous)


def _count_votes(jobs: Sequence[Job], terminal: frozenset[str]) -> bool:
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
