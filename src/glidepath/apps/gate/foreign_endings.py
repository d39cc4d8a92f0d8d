"""How the run of a foreign agent ended, in the words that our own runs use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.apps.gate.foreign_run import add_charges
from glidepath.apps.gate.gate_verdicts import judge_stop
from glidepath.sessions.state_changes import strip_result
from glidepath.values import AgentState, LoopOutcome, RunResult, StopCause, TextOrigin

if TYPE_CHECKING:
    from glidepath.apps.gate.foreign_run import ForeignRun

LEFT = "the program made no further call"


def how_it_ended(run: ForeignRun, left: str) -> tuple[AgentState, LoopOutcome, StopCause | None]:
    """State, outcome and cause of a run that makes no further call; `left` says why nobody waits for one."""
    stopped = run.session.stopped or run.stopped
    if stopped is not None:
        verdict = judge_stop(stopped)
        return verdict.state, LoopOutcome.CANCELLED, verdict.cause
    if run.landing is not None and run.has_answered:
        whole = run.text_origin is TextOrigin.MODEL
        return run.landing.state, LoopOutcome.WRAPPED_UP if whole else LoopOutcome.CUT_OFF, run.landing.cause
    if run.has_answered:
        return AgentState.COMPLETED, LoopOutcome.DONE, None
    if run.failure is not None:
        cause = StopCause(source="model", action="fail", reason=run.failure)
        return AgentState.ERROR, LoopOutcome.FAILED, cause
    return AgentState.CANCELLED, LoopOutcome.CANCELLED, StopCause(source="client", action="cancel", reason=left)


def conclude(run: ForeignRun, now: float, left: str = LEFT) -> RunResult:
    """The result of a run, its children's spend included."""
    state, outcome, cause = how_it_ended(run, left)
    spent = add_charges([run.sum_spending(), *[one.sum_spending() for one in run.descendants()]])
    text, origin = run.text, run.text_origin
    if not text and cause is not None:
        text, origin = cause.reason, TextOrigin.RUNTIME
    return RunResult(
        run_id=run.run_id,
        session_id=run.name,
        state=state,
        outcome=outcome,
        cause=cause,
        stop_reason=run.stop_reason,
        text=text,
        text_origin=origin,
        partial=outcome not in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP),
        usage=spent.usage,
        cost=run.cost(spent),
        breakdown=run.breakdown(),
        iterations=run.iterations,
        tool_calls=run.tool_calls,
        landing_calls=run.landing_calls,
        elapsed=round(max(0.0, now - run.started), 6),
        children=tuple([strip_result(one.ended) for one in run.children if one.ended is not None]),
    )
