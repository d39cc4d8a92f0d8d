"""How the run of a foreign agent ended, in the words that our own runs use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glidepath.apps.gate.foreign_run import add_charges
from glidepath.sessions.state_changes import strip_result
from glidepath.values import AgentState, LoopOutcome, RunResult, StopCause, TextOrigin

if TYPE_CHECKING:
    from glidepath.apps.gate.foreign_run import ForeignRun

LEFT = "the program made no further call"
_BY_WORDS = (
    (re.compile(r"the limit of [\d,]+ tokens? is reached"), "TokenBudgetConstraint", AgentState.BUDGET_EXCEEDED),
    (re.compile(r"the limit of \$"), "CostLimitConstraint", AgentState.BUDGET_EXCEEDED),
    (re.compile(r"the limit of [\d,]+ calls? is reached"), "MaxIterationConstraint", AgentState.MAX_STEPS),
    (re.compile(r"the time limit of "), "TimeoutConstraint", AgentState.TIMED_OUT),
    (re.compile(r"the budget is used up"), "budget", AgentState.BUDGET_EXCEEDED),
    (re.compile(r"this run may have "), "max_descendants", AgentState.MAX_STEPS),
)
"""How the reasons begin that the gate gives (`gate_words.describe_limit`), with who they come from and how such a run
ends. A report and a journal have nothing but the words."""


def cause_of(run: ForeignRun, reason: str) -> tuple[AgentState, StopCause]:
    """Why a run came down: a limit, a person, or a guard that saw it go in circles."""
    if reason in (run.session.order, run.agent.order):
        return AgentState.CANCELLED, StopCause(source="person", action="wind_down", reason=reason)
    state, source = name_limit(reason)
    action = "land" if state is AgentState.ERROR else "graceful_exit"
    return state, StopCause(source=source, action=action, reason=reason)


def name_limit(reason: str) -> tuple[AgentState, str]:
    """The state in which a run ends that the gate landed for this reason, and which limit or guard did it."""
    for words, source, state in _BY_WORDS:
        if words.match(reason):
            return state, source
    return AgentState.ERROR, "repetition"


def how_it_ended(run: ForeignRun, left: str) -> tuple[AgentState, LoopOutcome, StopCause | None]:
    """State, outcome and cause of a run that makes no further call; `left` says why nobody waits for one."""
    stopped = run.session.stopped or run.stopped
    if stopped is not None:
        cause = StopCause(source="KillSwitchConstraint", action="cancel", reason=stopped)
        return AgentState.CANCELLED, LoopOutcome.CANCELLED, cause
    if run.landing is not None and run.has_answered:
        state, cause = cause_of(run, run.landing)
        whole = run.text_origin is TextOrigin.MODEL
        return state, LoopOutcome.WRAPPED_UP if whole else LoopOutcome.CUT_OFF, cause
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
