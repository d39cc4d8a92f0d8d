"""The one way in which every run starts and ends, and what its parent is told about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from glidepath._wire import encode, replace
from glidepath.kernel.constraint_checks import collect_last_validations
from glidepath.kernel.endings import end_after_defect
from glidepath.kernel.loop import run_loop
from glidepath.run import Ending, Plan, Refusal, Run, Signal, leave_scope, note_origins, restore_scope
from glidepath.sessions import Session
from glidepath.tools import OutputError
from glidepath.values import (
    AbandonedWork,
    AgentState,
    ChildEnded,
    ChildStarted,
    LoopOutcome,
    RunEnded,
    RunResult,
    StopCause,
    Texts,
    describe_error,
)

if TYPE_CHECKING:
    from glidepath.agent.durable import Opening
    from glidepath.agent.prepare import RunRequest
    from glidepath.agent.tool_sources import Fitted
    from glidepath.kernel.periodic_checks import PeriodicChecks


Begin: TypeAlias = Callable[[], tuple[Run, Session]]
"""Opens a run, in the task that will run it."""


async def finish_run(
    begin: Begin,
    asked: RunRequest,
    *,
    refusal: Refusal | None = None,
    opening: Opening | None = None,
    fitted: Fitted | None = None,
) -> RunResult:
    """Begin, run, conclude, clean up. Afterwards nothing of the run is alive except what its result lists as abandoned.

    After the last event nothing of the run can cancel its caller: the watch is disarmed before anything else happens.
    One coroutine does all this: it is woken at every wait.
    """
    before = leave_scope()
    try:
        run, home = begin()
        del begin  # it holds what the run was opened from, which nobody needs during the run
        watch, cancel = run.watch, asked.cancel
        watch.enter()
        patrol = _start_periodic_checks(run) if run.plan.clocked else None
        try:
            try:
                ending = None if refusal is None else _make_refused_ending(refusal)
                if opening is not None:
                    ending = opening.attach_recorder(run) or ending
                    opening = None
                run.start()
                if fitted is not None:
                    ending = fitted.begin_run(run) or ending
                if cancel is not None:
                    cancel.subscribe(run.on_cancel_token)
                if ending is None:
                    flight = run_loop(run, asked.prompt)
                    del asked  # nor this
                    ending = await flight
            except BaseException as defect:  # its coroutine is being closed, or this is a forked child: await nothing
                if isinstance(defect, GeneratorExit) or watch.is_forked():
                    raise
                ending = await end_after_defect(run, defect)
            # Inside the outer try: whatever goes wrong while concluding, timers and subscriptions are let go of.
            result = await _conclude_run(run, home, ending, patrol)
        finally:
            if fitted is not None:
                fitted.end_run(run)
            if patrol is not None:
                patrol.stop()
            if cancel is not None:
                cancel.unsubscribe(run.on_cancel_token)
            home.flight = None
            # A second time: it only matters if the run's own coroutine was closed from outside.
            run.spend.settle_up(run.meter)
            await watch.close()
            watch.end()
            run.voice.disconnect_consumer()
        cancelled = await _finish_observers(run)
        if cancelled or (watch.interrupt is not None and watch.interrupt.signal is Signal.TASK):
            raise asyncio.CancelledError(*watch.call_words)
        return run.attach_usage(run.result or result)
    finally:
        restore_scope(before)


def _start_periodic_checks(run: Run) -> PeriodicChecks:
    """What asks the constraints that have their own clock."""
    from glidepath.kernel.periodic_checks import PeriodicChecks

    return PeriodicChecks(run)


async def _conclude_run(run: Run, home: Session, ending: Ending, patrol: PeriodicChecks | None) -> RunResult:
    """The result of a run that has landed, and its last event."""
    if run.work.live or run.work.unchecked or (run.work.background and run.work.spawned):
        from glidepath.kernel.tool_calls.background_calls import let_finish, stop_background

        if ending.outcome is LoopOutcome.PAUSED:
            await let_finish(run)
        await stop_background(run)
    if run.watch.sentry is not None:
        await run.watch.sentry.close(run)
    if patrol is not None:
        await patrol.close()
    run.spend.settle_up(run.meter)
    with suppress(Exception):  # what a custom constraint has answered with
        run.audit.conclude(collect_last_validations(run))
    result = run.conclude(ending)
    if run.journal is not None:
        # Before the last event: its readers may open the journal at once.
        result = await run.journal.end(result)
    # Nothing of the run may interrupt its caller after the last event.
    run.emit(RunEnded, run.attach_usage(result))
    run.watch.stop_timer()
    home.close_run(result)
    return result


async def _finish_observers(run: Run) -> bool:
    """Let slow observers finish within what is left; True when the caller was cancelled meanwhile.

    What they did not see, and who did not stop, is in the result that is returned.
    """
    if run.voice.audience is None or run.result is None:
        return False
    from glidepath.plugins import FAREWELL, finish_observers
    from glidepath.plugins.observer import LAST_WORDS  # loaded when the run began

    stopped = run.watch.interrupt is not None and run.watch.interrupt.signal > Signal.WINDOW
    # The result is known and only observers are waited for: not past the deadline, but for their last words.
    left = max(LAST_WORDS, run.watch.deadline_at - run.watch.time())
    patience = LAST_WORDS if stopped else min(FAREWELL, left, run.plan.config.hook_timeout)
    farewell = await finish_observers(run.voice.audience.observers, patience)
    if farewell.missed or farewell.stubborn:
        gone = [
            AbandonedWork(call_id="", tool_name=name, kind="observer", reason="it did not stop after the run's end")
            for name in farewell.stubborn
        ]
        abandoned = (*run.result.abandoned, *gone)
        run.conclude_with(replace(run.result, abandoned=abandoned, missed_events=farewell.missed))
    return farewell.cancelled


def _make_refused_ending(refusal: Refusal) -> Ending:
    cause = StopCause(
        source=f"max_{refusal.resource}",
        action="graceful_exit",
        reason=f"the child was not started: the limit on {refusal.resource} is reached",
        metrics={"limit": refusal.limit, "used": refusal.used},
    )
    text = f"Not started: the limit on {refusal.resource} is reached."
    return Ending(state=AgentState.BUDGET_EXCEEDED, outcome=LoopOutcome.CUT_OFF, cause=cause, text=text, partial=True)


def announce_child(parent: Run, child: Run) -> None:
    """Report that a child has started, unless its parent, on another loop, has ended."""
    if parent.result is None:
        parent.emit(ChildStarted, child.run_id, child.plan.config.agent_name, child.meter.depth)


def report_child(parent: Run, child: Run, key: str) -> None:
    """Put what a child did and cost into its parent, unless that has ended and lists the child as abandoned."""
    if parent.result is not None:
        return
    result: Any = child.result
    note_origins(parent, key, result.origins)
    before = parent.work.find_child_result(result.run_id)
    parent.work.report(result)
    parent.spend.charge_child(child.plan.config.agent_name, child.spend.usage(), child.spend.money, before)
    parent.emit(
        ChildEnded,
        child.run_id,
        child.plan.config.agent_name,
        result.state.name,
        result.outcome.name,
        result.usage,
        result.cost,
    )


def revive_output(plan: Plan, result: RunResult) -> RunResult:
    """The result of a run that was done before: its output is a value of this agent's type again, or it has failed.

    It may come from a store, or from an agent whose type was another one.
    """
    if plan.output is None or not result.ok or plan.output.is_value(result.output):
        return result
    try:
        written = result.text if result.output is None else encode(result.output).decode()
        return replace(result, output=plan.output.read(written))
    except OutputError as error:
        reason = f"the answer does not fit output_type: {error}"
    except Exception as error:  # a value of somebody else's type, which cannot be written
        reason = f"the answer does not fit output_type: {describe_error(error)}"
    cause = StopCause(source="output_type", action="fail", reason=reason)
    return replace(result, state=AgentState.ERROR, outcome=LoopOutcome.FAILED, cause=cause, output=None, partial=True)


def partial_line(result: RunResult, texts: Texts) -> str:
    """What a parent model is told about a child that did not finish by itself."""
    why = f"{result.cause.source}: {result.cause.reason}" if result.cause is not None else "it was paused"
    return texts.fill("partial_child", ended=f"{result.state.name}/{result.outcome.name}", reason=why)
