"""The ladder down: answer what is open, make the landing call if one may be made, else say what there is to say."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.kernel.constraint_checks import record_verdict
from glidepath.kernel.landing.reserve import book_landing, is_within_limits
from glidepath.kernel.model_call import ask
from glidepath.kernel.tool_calls import answer_open_calls
from glidepath.kernel.typed_answer import check_output
from glidepath.run import Ending, Signal, Touchdown, Verdict
from glidepath.tools import OutputError
from glidepath.values import (
    AgentState,
    LandingStarted,
    LoopOutcome,
    ModelError,
    ResultKind,
    ToolResultMessage,
    is_visible,
    pluralize,
)

if TYPE_CHECKING:
    from glidepath.run import Run

NO_ANSWER = "No answer was written."
_SHOWN = 300


async def land(run: Run, verdict: Verdict) -> Ending:
    """Bring the run down: answer what is open, make the landing call if one may be made, else keep the best text."""
    if run.watch.interrupt is not None:
        verdict = await _give_way(run, verdict)
    # Every call gets its result before the landing call: a transcript with open calls is refused by providers.
    record_verdict(run, verdict)
    answer_open_calls(run, ResultKind.CANCELLED, explain_not_executed(run, verdict.cause.reason))
    run.close_turn()
    if run.work.background:
        from glidepath.kernel.tool_calls.background_calls import show_uncollected, stop_background

        await stop_background(run)
        show_uncollected(run, last=True)
    before: Any = None if run.terms.resumed is None else run.terms.resumed.snapshot
    still = before is not None and before.state in (verdict.state, AgentState.COMPLETED)
    if still and run.turn.iterations == before.iterations:
        # The limit that ended it still holds: a second landing call would pay for the same answer again.
        return _as_before(run, before)
    if verdict.gentle and run.plan.config.landing != "off" and _may_call(run):
        # A landing call is a model call: constraints and observers must not see a run that waits for a tool.
        run.turn.enter(AgentState.RUNNING)  # the batch it may have been in is over
        run.emit(LandingStarted, verdict.cause.source, verdict.cause.reason)
        try:
            answered = await _landing_call(run, verdict)
        except Touchdown as touchdown:  # cancelled, or out of time, while landing
            answered = False
            if _is_overruling(run, touchdown.verdict):
                verdict = touchdown.verdict
            if verdict is touchdown.verdict or run.is_past_deadline():  # not only out of the time for the landing
                record_verdict(run, touchdown.verdict)
        if answered:
            with suppress(OutputError):  # an answer in another format does not count; its text is kept
                output = None if run.plan.output is None else await check_output(run)
                wrapped = LoopOutcome.WRAPPED_UP
                return Ending(
                    state=verdict.state, outcome=wrapped, cause=verdict.cause, text=run.answer.text, output=output
                )
    # No answer was written: the best text so far is worth more than none, and `partial` says what it is.
    text = run.answer.text or summarize_work(run)
    return Ending(state=verdict.state, outcome=verdict.cut, cause=verdict.cause, text=text, partial=True)


def _as_before(run: Run, before: Any) -> Ending:
    """The run ends as it had ended; with a value of its type, if it had wrapped up with one that can still be read."""
    outcome, partial, output = before.outcome, before.partial, None
    if run.plan.output is not None and outcome is LoopOutcome.WRAPPED_UP:
        try:
            output = run.plan.output.read(run.answer.text)
        except OutputError:
            outcome, partial = LoopOutcome.CUT_OFF, True
    text = run.answer.text or summarize_work(run)
    return Ending(state=before.state, outcome=outcome, cause=before.cause, text=text, partial=partial, output=output)


async def _give_way(run: Run, verdict: Verdict) -> Verdict:
    """Yield once. If a cancel or the deadline arrives meanwhile, there is no landing call."""
    await run.watch.yield_to_others()
    interrupt: Any = run.watch.interrupt
    if not verdict.gentle or interrupt.signal is Signal.WINDOW:
        return verdict
    now = run.make_interrupt().verdict
    return now if _is_overruling(run, now) else replace(verdict, gentle=False)


def _is_overruling(run: Run, verdict: Verdict) -> bool:
    """Whether what stops the landing is what ends the run: a cancel or an emergency, but not the end of its time."""
    interrupt = run.watch.interrupt
    emergency = interrupt is not None and interrupt.signal is Signal.EMERGENCY
    return emergency or verdict.cut is LoopOutcome.CANCELLED


async def _landing_call(run: Run, verdict: Verdict) -> bool:
    """One call without tools, from the reserve, within the landing time. True when it answered."""
    # The landing has its own deadline; the window that may have brought us here must not end it again.
    run.watch.land_by(run.watch.time() + run.plan.landing_time)
    if run.descent.notice is None:
        run.descent.give_notice(verdict.cause)
    run.admit()
    run.tell_model("wind_down", verdict.cause.source, run.plan.landing_notice)
    run.descent.call_landing()
    try:
        reply = await ask(run, landing=book_landing)
    except ModelError:
        return False
    # Not a turn: the limit on turns may be what brought us here.
    run.turn.take_landing(reply.message)
    run.spend.mark(run.watch.time(), run.meter)
    run.add(reply.message)
    answer_open_calls(run, ResultKind.WITHDRAWN, explain_not_executed(run, "no more tools can be called"))
    answered = is_visible(reply.text) and not reply.truncated and not reply.calls  # a tool call is not an answer
    if not reply.truncated or len(reply.text) > len(run.answer.text):
        run.answer.keep_text(reply.text)
    return answered


def _may_call(run: Run) -> bool:
    """Whether there is time for the landing call, and it is paid for.

    On a budget above it is from the first turn on; resumed, if enough is left.
    """
    if run.watch.time() >= run.watch.deadline_at:
        return False
    unexplained = run.spend.unexplained
    if (run.meter.attention or unexplained is not None) and not is_within_limits(run.plan, run.meter, unexplained):
        return False
    return run.spend.landing_paid and (run.meter.parent is None or (run.turn.iterations > 0 and run.spend.admitted))


# --- what to tell without another call ---------------------------------------------------------------------------


def explain_not_executed(run: Run, reason: str) -> str:
    """What a call is answered that does not run."""
    return run.plan.config.texts.fill("not_executed", reason=reason)


def summarize_work(run: Run) -> str:
    """What ran and what it last returned, told without a model."""
    turns = pluralize(run.turn.iterations, "model turn")
    calls = pluralize(run.turn.tool_calls, "tool call")
    lines = [f"{NO_ANSWER} The run made {turns} and {calls}."]
    last = [message for message in run.transcript.messages[-8:] if type(message) is ToolResultMessage][-3:]
    for message in last:
        text = " ".join(message.text.split())
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
        lines.append(f"- {message.tool_name} {'failed' if message.is_error else 'returned'}: {shown}")
    return "\n".join(lines)
