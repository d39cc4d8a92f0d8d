"""Endings other than landings: a delivery, a rescue, a pause, a failure. Each says how the run ended, and why."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from glidepath.guards.truncation import join_parts
from glidepath.kernel.landing.ladder import explain_not_executed, land, summarize_work
from glidepath.kernel.model_call.attempt import Reply
from glidepath.kernel.model_call.booking import SLICE
from glidepath.kernel.plain_text import NAME as FALLBACK, make_nudge, take_as_call, use_text_as_result
from glidepath.kernel.polling import poll
from glidepath.kernel.tool_calls import answer_open_calls
from glidepath.kernel.typed_answer import ask_again, check_output
from glidepath.run import Ending, Touchdown, Verdict, log_error
from glidepath.spi import Recovery, Stop
from glidepath.tools import OutputError
from glidepath.values import (
    AgentState,
    GuardTripped,
    HookFailed,
    LoopOutcome,
    ModelError,
    RefusedError,
    ResultKind,
    RunPaused,
    StopCause,
    StopReason,
    Unknown,
    describe_error,
    is_visible,
    pluralize,
)

if TYPE_CHECKING:
    from glidepath.run import Run

_log = logging.getLogger("glidepath")
NOT_DECIDED = "The run waits for a decision."


def append_reply(run: Run, reply: Reply) -> None:
    """The reply joins the transcript and ends the model's part of the turn."""
    text, answer = reply.text, run.answer
    run.turn.take(reply.message)
    if answer.parts:
        answer.keep_text(join_parts([*answer.parts, text]))
        if reply.calls:
            answer.start_over()  # it kept working: what it writes from now on is a new text
    elif text[:1].isalnum() or is_visible(text):
        answer.replace_text(text)  # the best so far
    if run.plan.config.plain_text_terminal_fallback_tool is not None:
        _take_plain_text_delivery(run, reply)
    run.spend.mark(run.watch.time(), run.meter)
    run.add(reply.message, reply.size)
    if reply.cut:
        tokens, _ = run.meter.room_for(None, now=True)
        elsewhere = run.meter.tree.source
        cause = elsewhere is not None and elsewhere.refused
        cause = cause or StopCause(
            source="TokenBudgetConstraint" if tokens is not None and tokens < SLICE else "CostLimitConstraint",
            action="graceful_exit",
            reason="the budget ran out while the model was writing",
        )
        raise Touchdown(Verdict(state=AgentState.BUDGET_EXCEEDED, cause=cause))


def _take_plain_text_delivery(run: Run, reply: Reply) -> None:
    """Plain text may count as a call of the fallback tool: then the call is part of the reply."""
    if reply.calls:
        run.answer.keep_plain_text(0, "")
    elif not reply.truncated and not reply.refused and not reply.cut:
        budget = run.plan.config.empty_outcome_retry_budget
        may_nudge = budget is None or run.answer.empty_outcomes < budget
        message = take_as_call(run, reply.message, may_nudge=may_nudge)
        run.turn.change_reply(message)
        if message is not reply.message:
            reply.message, reply.size = message, None


# --- the model stopped by itself --------------------------------------------------------------------------------


async def deliver(run: Run) -> Ending:
    """The run finished by itself: DONE, or WRAPPED_UP when it had been told to."""
    cause = run.descent.notice or run.descent.withdrawal
    text = run.answer.text or (run.turn.results[-1].text if run.turn.results else "")  # a terminal tool's may be it
    if run.turn.stop_reason is StopReason.REFUSAL and (cause is None or run.plan.output is not None):
        cause = StopCause(source="provider", action="refuse", reason="the model refused")
        if run.plan.output is not None:  # the caller asked for a typed value and gets none
            run.close_turn()
            return Ending(state=AgentState.ERROR, outcome=LoopOutcome.FAILED, cause=cause, text=text, partial=True)
        return Ending(state=AgentState.COMPLETED, outcome=LoopOutcome.DONE, cause=cause, text=text)
    outcome = LoopOutcome.DONE if cause is None else LoopOutcome.WRAPPED_UP
    output = None
    if run.plan.output is not None:
        try:
            output = await check_output(run, delivered=True)
        except OutputError as error:
            return make_failure(run, "output_type", f"the answer does not fit output_type: {error}")
    return Ending(state=AgentState.COMPLETED, outcome=outcome, cause=cause, text=text, output=output)


async def finish_without_calls(run: Run, reply: Reply) -> Ending | None:
    """A reply without tool calls: rescue it, follow it up, or be done. None: the run continues."""
    ending = await _end_without_rescue(run, reply)
    if ending is not None or _is_continued(run, reply):
        return ending
    recovery = _find_recovery(run, reply) or _ask_for_call(run, reply)
    if recovery is not None and recovery.fail is not None:
        return make_failure(run, recovery.reason, recovery.fail)
    if recovery is not None:
        run.transcript.queue_notice(recovery.reason, recovery.reason, recovery.message)
        if reply.truncated:
            run.answer.continue_with(reply.text)
    elif reply.truncated:
        return _cut_off(run, "the answer was still truncated after every recovery")
    elif (run.work.background and _remind(run)) or (run.plan.output is not None and await ask_again(run)):
        run.answer.start_over()
        return None
    elif not await _has_follow_up(run) and not run.transcript.waiting:
        return await deliver(run)
    run.answer.count_rescue()
    if not reply.truncated:
        run.answer.start_over()
    return None


def _remind(run: Run) -> bool:
    from glidepath.kernel.tool_calls.background_calls import remind  # few runs have calls in the background

    return remind(run)


async def _has_follow_up(run: Run) -> bool:
    """Whether a plugin has something to say where the run would be done."""
    messages = poll(run, "follow_up")
    return messages is not None and await messages


def _is_continued(run: Run, reply: Reply) -> bool:
    """True for a reply that the provider has only paused: the next turn sends it back, and it is continued."""
    if reply.message.stop_reason is not StopReason.PAUSE_TURN:
        return False
    run.answer.continue_with(reply.text)
    return True


async def _end_without_rescue(run: Run, reply: Reply) -> Ending | None:
    """A refusal, a text that counts as a delivery, or one silent stop too many."""
    budget = run.plan.config.empty_outcome_retry_budget
    if reply.refused:
        answer_open_calls(run, ResultKind.SKIPPED, explain_not_executed(run, "the reply was a refusal"))
        return await deliver(run)
    if run.plan.config.plain_text_terminal_fallback_tool is not None and (spoken := run.turn.open_calls()):
        use_text_as_result(run, spoken[0])
        return await deliver(run)
    if budget is not None and run.answer.empty_outcomes >= budget:
        return make_failure(
            run, "empty_outcome", f"no tool was called {pluralize(run.answer.empty_outcomes + 1, 'time')} in a row"
        )
    return None


def _ask_for_call(run: Run, reply: Reply) -> Recovery | None:
    """Ask for the call of the fallback tool, where that is wanted and has not failed before."""
    if run.plan.config.plain_text_terminal_fallback_tool is None or reply.truncated or run.descent.verdict is not None:
        return None
    message = make_nudge(run)
    return None if message is None else Recovery(reason=FALLBACK, message=message)


def _find_recovery(run: Run, reply: Reply) -> Recovery | None:
    """The first stop guard that can rescue this ending."""
    stops = run.guards.stops
    if stops is None:
        if not reply.truncated and is_visible(reply.text):
            return None  # none of them has anything to say, and none has counted anything
        stops = run.guards.watch_stops(run.plan.make_stop_guards(run.guards.home))
    stop = Stop(
        reply=reply.message,
        text=reply.text,
        truncated=reply.truncated,
        recent_error=run.turn.last_error,
        can_continue=run.descent.verdict is None,
    )
    for guard in stops:
        try:
            recovery = guard.recover(stop)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = f"the guard failed: {describe_error(error)}"
            log_error(run, f"guard {guard.name!r}", error, "the run fails")
            run.emit(HookFailed, guard.name, "guard", reason, "the run fails")
            return Recovery(reason=guard.name, fail=reason)
        if recovery is not None:
            run.emit(GuardTripped, guard.name, "fail" if recovery.fail else "recover", recovery.reason)
            return recovery
    return None


def refuse_cut_calls(run: Run) -> Ending | None:
    """Calls in a truncated reply never run. The model may send them again once; then the run is cut off."""
    answer_open_calls(run, ResultKind.CUT, run.plan.config.texts.fill("resend_smaller"))
    run.emit(GuardTripped, "truncated_call", "refuse", "a tool call was cut off")
    if run.answer.cut_calls_refused:
        return _cut_off(run, "tool calls were truncated again")
    run.answer.refuse_cut_calls()
    run.turn.mark_error(True)
    return None


def _cut_off(run: Run, reason: str) -> Ending:
    cause = StopCause(source="truncation", action="cut_off", reason=reason)
    text = run.answer.text or summarize_work(run)
    return Ending(state=AgentState.COMPLETED, outcome=LoopOutcome.CUT_OFF, cause=cause, text=text, partial=True)


def pause_run(run: Run) -> Ending:
    """A person must decide; everything else of the batch is done. The turn ends when the run continues."""
    run.turn.end()
    run.emit(RunPaused, tuple(pending.call.id for pending in run.turn.pending))
    text = run.answer.text or "\n".join(
        [NOT_DECIDED, *[f"- {one.call.name}: {one.reason}" for one in run.turn.pending]]
    )
    return Ending(state=AgentState.WAITING_FOR_INPUT, outcome=LoopOutcome.PAUSED, text=text)


# --- failures ---------------------------------------------------------------------------------------------------


def fail_run(run: Run, error: ModelError) -> Ending:
    """The provider gave no usable reply."""
    if isinstance(error, RefusedError):
        run.turn.stop(StopReason.REFUSAL)
    elif run.turn.stop_reason is None or run.turn.is_open:
        run.turn.stop(StopReason.ERROR)
    return make_failure(run, "provider", describe_error(error), error=type(error).__name__)


def make_failure(run: Run, source: str, reason: str, **metrics: object) -> Ending:
    """ERROR/FAILED, with the best text so far."""
    run.close_turn()
    cause = StopCause(source=source, action="fail", reason=reason, metrics=metrics)
    text = run.answer.text or summarize_work(run)
    return Ending(state=AgentState.ERROR, outcome=LoopOutcome.FAILED, cause=cause, text=text, partial=True)


async def end_after_defect(run: Run, defect: BaseException) -> Ending:
    """How a run ends whose loop raised: Ctrl-C and the caller's cancellation land it, anything else is a defect.

    Every call has its result, and the best text is kept, in either case.
    """
    if run.turn.reply is not None and not any(message is run.turn.reply for message in run.transcript.messages):
        run.turn.change_reply(None)  # it was not added any more: its text is kept, its calls are dropped
    try:
        run.complete_transcript()
        if not (run.work.spawned or run.work.abandoned):  # whose calls are in it, too
            run.spend.drop_calls(run.meter)
        if run.turn.state is AgentState.WAITING_FOR_TOOL:  # in the middle of a batch
            answer_open_calls(run, ResultKind.CANCELLED, "", Unknown.RUN_FAILED)
        if isinstance(defect, KeyboardInterrupt):
            return await land(run, run.make_manual_interrupt().verdict)
        if isinstance(defect, asyncio.CancelledError):
            run.watch.note_delivery(defect)
            if run.watch.interrupt is not None:
                return await land(run, run.make_interrupt().verdict)
        answer_open_calls(run, ResultKind.CANCELLED, "Not executed: the run has failed.")
    except GeneratorExit:
        raise
    except BaseException as another:  # then at least there is a result
        _log.error(
            "%s: %s, while it was shut down after %s", run.run_id, describe_error(another), describe_error(defect)
        )
    return make_failure(run, "internal", describe_error(defect))
