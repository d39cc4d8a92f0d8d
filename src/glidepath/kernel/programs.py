"""Programs: tool calls that have calls of other tools made for them, one ordinary call each.

A program is a call whose tool raised `NeedsCalls`. It does not wait inside its tool: the tool has returned, and its
state is part of the run's. Here its calls go the way of every call (arguments checked, hooks, approvals, limits,
guards, journal, events), and then the tool is invoked again with their results, until it ends. So a pause or a death in
the middle is nothing special: the run continues from its state, behind the last call that has a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.kernel.constraint_checks import judge
from glidepath.kernel.tool_calls import (
    admit_jobs,
    close_batch,
    count_votes,
    follow_up,
    list_pending,
    run_jobs,
    start_jobs,
    waiting_job,
)
from glidepath.kernel.tool_calls.calls import apply_decisions, clear, prepare
from glidepath.kernel.tool_calls.guarding import (
    apply,
    ask_after_guards,
    ask_before_guards,
    fatal_verdict,
    make_guard_verdict,
)
from glidepath.kernel.tool_calls.interrupted import append_result, close_accounts, give_up_child, job_for, mark_unknown
from glidepath.kernel.tool_calls.job import UNKNOWN, Job
from glidepath.run import (
    AFTER_TOOLS,
    Touchdown,
    find_after_guards,
    find_before_guards,
    find_call_of_child,
    note_origins,
)
from glidepath.spi import CallGuard, Step
from glidepath.tools import CallsMade, NeedsCalls, Tool, trim_result
from glidepath.values import PendingCall, Program, ResultKind, ToolCall, ToolResultMessage, Unknown, origins_of

if TYPE_CHECKING:
    from glidepath.run import Decision, Run

MOST_KEPT = 256_000  # characters of one result that a program gets
MOST_REFUSED = 3  # times a program may ask for calls after it was told that none are made any more
LANDING = ResultKind.LANDING


async def run_programs(run: Run) -> bool:
    """Run the programs of a batch to their ends, one after the other; True when the batch ends the run.

    One that waits for a person stays where it is, and the run pauses. Raises `Touchdown` when the run must come down.
    """
    run.turn.start_tools()
    if run.journal is not None:
        run.journal.expect_earlier()  # their results join the transcript before those of calls that came later
    for call_id in tuple(run.turn.programs):
        fatal = await _continue_program(run, call_id)
        if fatal is not None:
            raise Touchdown(fatal_verdict(fatal))
        if run.watch.interrupt is not None:
            raise run.make_interrupt()
    done = not run.turn.pending and close_batch(run)
    run.turn.end_tools()
    return done


async def _continue_program(run: Run, call_id: str) -> str | None:
    """Make the calls of one program until it has its result or waits; returns why the run fails, if so."""
    one = _Program(run, call_id)
    try:
        while one.job.result is None:
            if not await one.make_calls():
                return None
            if one.job.result is None:
                await one.step()
    finally:
        await one.close()
    await follow_up(run, [one.job])
    one.finish()
    return one.fatal or one.job.fatal


class _Program:
    """One program during a run."""

    def __init__(self, run: Run, call_id: str) -> None:
        self.run = run
        program = run.turn.programs[call_id]
        self.job = job = job_for(run, program.call)
        job.doubt = None  # what it has done is known: it continues behind that
        job.counted = True
        note_origins(run, call_id, program.origins)
        self.guards = _guards(run)
        self.landing = ""
        self.refused = 0
        self.notes = ""
        self.fatal: str | None = None
        self.terminate = False
        self.made = CallsMade("", (), {})
        self.still: Mapping[str, PendingCall] = {}
        if call_id not in run.turn.program_states:  # it may not be kept, or a stranger wrote it
            mark_unknown(run, job, Unknown.STATE_LOST)
            job.refuse(UNKNOWN, "")
        elif job.tool is None or not job.tool.makes_calls:
            mark_unknown(run, job, Unknown.TOOL_GONE)
            job.refuse(UNKNOWN, "")
        else:
            job.bound = job.tool.bind(program.call.stored)

    @property
    def program(self) -> Program:
        """How far it is."""
        return self.run.turn.programs[self.job.call.id]

    # --- its calls --------------------------------------------------------------------------------------------

    async def make_calls(self) -> bool:
        """Make the calls it waits for; False when one of them waits for a person."""
        run, program = self.run, self.program
        known = {result.call_id: result for result in program.results}
        open_calls = [call for call in program.calls if call.id not in known]
        if open_calls:
            if not self.landing:
                self.landing = await self._explain_no_more_calls()
            made = self._refuse_calls(open_calls) if self.landing else await self._make_calls(open_calls)
            known.update({message.call_id: message for message in made})
            results = tuple(known[call.id] for call in program.calls if call.id in known)
            origins = tuple(dict.fromkeys((*program.origins, *origins_of(made))))
            self._note(replace(program, results=results, origins=origins))
            note_origins(run, self.job.call.id, origins)
            if self.fatal is not None:
                self.job.refuse(ResultKind.ABORTED, run.plan.config.texts.fill("stopped", reason=self.fatal))
            elif run.watch.interrupt is not None:
                self.stop("the run is being stopped", ResultKind.CANCELLED)
            elif len(known) < len(program.calls):
                return False
        return True

    async def _explain_no_more_calls(self) -> str:
        """Ask the constraints, as before every turn; why no more calls are made, if so.

        A run that must land does so as soon as the program has ended: it is told first, and keeps what it has.
        """
        run = self.run
        try:
            if run.watch.sentry is not None:
                await run.watch.sentry.wait_until_clear(run)
            if not run.is_clear(AFTER_TOOLS):
                await judge(run, AFTER_TOOLS)
        except Touchdown as touchdown:
            run.descent.land_unless_landing(touchdown.verdict)
            reason = touchdown.verdict.cause.reason or "a limit of the run is reached"
            if not touchdown.verdict.gentle:
                self.stop(reason, ResultKind.CANCELLED)
            return reason
        if run.descent.wind_down is not None:
            return run.descent.wind_down.reason
        return "the time of the run is nearly up" if run.watch.time() >= run.descent.soft_at else ""

    def _refuse_calls(self, calls: Sequence[ToolCall]) -> list[ToolResultMessage]:
        """The run is landing: nothing is called. The program may report what it has, but not keep asking."""
        self.refused += 1
        if self.refused > MOST_REFUSED:
            self.stop(f"it kept calling tools after it was told that the run is landing ({self.landing})", LANDING)
        text = self.run.plan.config.texts.fill("not_executed", reason=f"the run is landing: {self.landing}")
        return [ToolResultMessage(call.id, call.name, text, is_error=True, kind=LANDING.value) for call in calls]

    async def _make_calls(self, calls: Sequence[ToolCall]) -> list[ToolResultMessage]:
        """The results of these calls, but for those that wait for a person."""
        run = self.run
        waiting = {pending.call.id: pending for pending in run.turn.pending}
        resumed = run.terms.resumed
        known: Mapping[str, Decision] = {} if resumed is None else resumed.decisions
        asked = {*waiting, *known, *map(find_call_of_child, run.turn.pending)}
        again = [call for call in calls if call.id in asked]
        fresh = [call for call in calls if call.id not in asked]
        mine = {call.id for call in calls}
        jobs = [self._repeat_call(call, waiting.get(call.id), known) for call in again]
        left = [one for one in run.turn.pending if one.call.id not in mine and find_call_of_child(one) not in mine]
        run.turn.set_pending(tuple(left))
        self.still = waiting
        if jobs:
            await apply_decisions(run, jobs, known)
        step = Step(tuple(fresh), run.plan.tools, run.descent.withdrawn, run.descent.notice is not None)
        fresh_jobs = self._judge_calls(step) if fresh else []
        for job in fresh_jobs:
            if (
                job.result is None and job.tool is not None and job.tool.max_calls is not None
            ):  # only results are counted
                said = f"{job.call.name} has max_calls, so it is called by itself and not from a program"
                job.refuse(ResultKind.SKIPPED, run.plan.config.texts.fill("not_executed", reason=said))
        if fresh_jobs:
            await clear(run, fresh_jobs)
        jobs = sorted([*jobs, *fresh_jobs], key=lambda job: [call.id for call in calls].index(job.call.id))
        running = run_jobs(run, jobs)
        if running is not None:
            await running
        return self._results(jobs, step)

    def _repeat_call(self, call: ToolCall, pending: PendingCall | None, known: Mapping[str, Decision]) -> Job:
        """A call that waited for a person, or had begun when the process died."""
        job = waiting_job(self.run, call, pending)
        decision = known.get(call.id)
        if job.result is None and decision is not None:
            if decision.kind == "unknown":
                job.refuse(UNKNOWN, "")
            elif decision.kind == "void":
                job.refuse(ResultKind.INTERRUPTED, self.run.plan.config.texts.fill("redacted_call"))
        return job

    def _judge_calls(self, step: Step) -> list[Job]:
        """Jobs for new calls; those that may not run have their results."""
        run = self.run
        found = ask_before_guards(run, step, find_before_guards(self.guards))
        if found is None:
            jobs = prepare(run, step.calls)
            for job in jobs:
                self._refuse_forbidden_tools(job)
                job.counted = run.terms.resumed is not None and job.call.id in run.terms.resumed.counted
            return jobs
        name, verdict = found
        apply(run, name, verdict)
        if verdict.action == "land":
            run.descent.land_unless_landing(make_guard_verdict(name, verdict))
            self.stop(verdict.reason, ResultKind.WITHDRAWN)
        jobs = [Job(call, run.plan.tools.get(call.name)) for call in step.calls]
        text = verdict.notice or run.plan.config.texts.fill("not_executed", reason=verdict.reason)
        for job in jobs:
            job.refuse(ResultKind.WITHDRAWN, text)
        return jobs

    def _refuse_forbidden_tools(self, job: Job) -> None:
        """Tools a program may not call: another program, and tools that would end the run."""
        tool = job.tool
        if tool is not None and (tool.makes_calls or tool.name in self.run.plan.terminal_tools):
            what = "ends the run" if not tool.makes_calls else "makes calls itself"
            job.result = None
            job.refuse(
                ResultKind.UNKNOWN_TOOL, f"{tool.name} cannot be called by a program: it {what}. Call it directly."
            )

    def _results(self, jobs: Sequence[Job], step: Step) -> list[ToolResultMessage]:
        """The results of those that have one, told and counted; the others wait for a person."""
        run = self.run
        found = []
        for job in jobs:
            if job.result is None:
                if run.watch.interrupt is None:
                    run.turn.set_pending((*run.turn.pending, *list_pending(run, job, self.still, self.job.call.id)))
                    continue
                give_up_child(run, job)
                job.refuse(
                    ResultKind.CANCELLED, run.plan.config.texts.fill("not_executed", reason="the run is being stopped")
                )
            found.append(self._report_result(job))
        if found and len(found) == len(step.calls):
            touchdown = ask_after_guards(run, step, tuple(found), find_after_guards(self.guards))
            if touchdown is not None:
                run.descent.land_unless_landing(touchdown.verdict)
                self.stop(touchdown.verdict.cause.reason, ResultKind.WITHDRAWN)
        return found

    def _report_result(self, job: Job) -> ToolResultMessage:
        run, tool = self.run, job.tool
        if job.trial is not None:
            job.update_breaker(run)
        if job.doubt is not None and job.kind == UNKNOWN and job.call not in run.work.unknown_effects:
            run.work.mark_unknown((job.call,))
            close_accounts(run, job.call.id)
        result: Any = job.result
        limit = None if tool is None else tool.max_result_chars
        job.result = result = trim_result(result, min(limit or MOST_KEPT, MOST_KEPT))
        self.terminate = self.terminate or (result.terminate and tool is not None and tool.votes_on_termination)
        self.fatal = self.fatal or job.fatal
        if run.journal is not None:
            run.journal.drop_result(job.call.id)
        return job.message(run)

    # --- itself -----------------------------------------------------------------------------------------------

    async def step(self) -> None:
        """Invoke its tool with the results: it ends, or asks for more."""
        run, job, program = self.run, self.job, self.program
        by_id = {result.call_id: result for result in program.results}
        self.made = CallsMade(
            state=run.turn.program_states[job.call.id],
            results=tuple(by_id[call.id] for call in program.calls),
            tools=_list_callable_tools(run),
            landing=self.landing,
            clock=program.clock,
            seed=f"{run.run_id}:{job.call.id}",
            session=self.made.session,
        )
        job.made, job.asks = self.made, None
        running = start_jobs(run, admit_jobs(run, [job]))
        if running is not None:
            await running
        asks = job.asks
        if job.result is not None or not isinstance(asks, NeedsCalls):
            return
        self.notes = asks.notes
        number = program.made
        own = job.call.id
        calls = [
            ToolCall(f"{own}.{place}", name, arguments)
            for place, (name, arguments) in enumerate(asks.calls, number + 1)
        ]
        going_on = replace(program, calls=tuple(calls), results=(), made=number + len(calls))
        run.turn.keep_program(going_on, asks.state)

    def stop(self, reason: str, kind: ResultKind) -> None:
        """Stop it; what it has printed so far is kept."""
        text = self.run.plan.config.texts.fill("stopped", reason=reason)
        self.job.refuse(kind, f"{self.notes}\n{text}".strip())

    def _note(self, program: Program) -> None:
        self.run.turn.keep_program(program)

    async def close(self) -> None:
        """Close what its tool left open: nothing of it outlives the run."""
        session, self.made.session = self.made.session, None
        if session is not None:
            with suppress(Exception):
                await session.close()

    def finish(self) -> None:
        """Its result joins the transcript, and what was kept of it is forgotten."""
        run, job = self.run, self.job
        job.took = max(0.0, run.voice.now() - self.program.clock)
        if self.terminate and job.result is not None:
            job.result = replace(job.result, terminate=True)
        run.turn.forget_program(job.call.id)
        if job.started_at is None and job.doubt is None:
            job.started_at = (
                run.watch.time()
            )  # it did start: `append_result` must not treat it as a call that never began
        append_result(run, job, len(run.turn.reply.tool_calls))  # type: ignore[union-attr]
        count_votes(run, [job])


def _guards(run: Run) -> tuple[CallGuard, ...]:
    """Guards of the steps of this run's programs: the run's own see the program as one call.

    Both kinds of steps in one row would hide each other's circles.
    """
    home: Any = run.guards.home.get("guardrails")
    if type(home) is not dict:
        return ()
    kept = home.get("programs")
    if type(kept) is not dict or kept.get("run") != run.run_id:
        kept = home["programs"] = {"run": run.run_id}
    return run.plan.make_guards({"guardrails": kept}, resumed=True)


def _list_callable_tools(run: Run) -> dict[str, Tool]:
    """The tools that a program may call now."""
    plan, allowed = run.plan, run.turn.allowed
    return {
        name: tool
        for name, tool in plan.tools.items()
        if not tool.makes_calls and name not in plan.terminal_tools and (allowed is None or name in allowed)
    }
