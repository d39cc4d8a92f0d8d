"""The notice: at a soft limit the model is told, once per run, to finish. After its last turn comes the landing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.run import Touchdown, Verdict, report
from glidepath.values import AgentState, StopCause

if TYPE_CHECKING:
    from glidepath.run import Run

_SPENT = {
    "GracefulTurnLimit": "turn budget",
    "TokenBudgetConstraint": "token budget",
    "CostLimitConstraint": "cost budget",
    "TimeoutConstraint": "time",
}
"""What a model is told it has used up; any other source of a wind-down asks it to finish."""


def wind_down(run: Run) -> None:
    """At a soft limit: one notice, once per run. The turn after the last grace turn is the landing."""
    # The last turn is over, and the model has not finished by itself.
    if run.descent.final_turn is not None:
        raise Touchdown(run.descent.final_turn)
    plan = run.plan
    try:
        soft = _find_reached_soft_limit(run)
    except KeyboardInterrupt:  # in the function that gives the grace
        raise run.make_manual_interrupt() from None
    if soft is not None:
        verdict, single = soft
        if plan.config.landing == "force":
            raise Touchdown(verdict)
        if run.descent.notice is None:
            run.descent.give_notice(verdict.cause)
            run.transcript.queue_notice("wind_down", verdict.cause.source, _write_notice(run, verdict.cause.source))
        if single:
            run.descent.mark_last_turn(verdict)
    if run.descent.notice is not None and plan.config.landing == "withdraw":
        turns = run.meter.room_turns()
        run.descent.withdraw_work(run.descent.final_turn is not None or turns == 1)
        if run.work.background and run.descent.work_withdrawn:
            from glidepath.kernel.tool_calls.background_calls import show_uncollected

            show_uncollected(run, last=False)


def _find_reached_soft_limit(run: Run) -> tuple[Verdict, bool] | None:
    """The soft limit that is reached, and whether it leaves a single turn."""
    plan, meter = run.plan, run.meter
    if run.descent.wind_down is not None:
        return Verdict(state=AgentState.CANCELLED, cause=run.descent.wind_down), True
    if run.watch.time() >= run.descent.soft_at:
        return _make_soft_verdict(
            AgentState.TIMED_OUT, "TimeoutConstraint", "time is nearly up", elapsed=round(run.elapsed(), 3)
        ), True
    if meter.near_budget():
        left = run.remaining()
        short = left.tokens if left.tokens is not None else left.cost
        room = meter.room_tokens()
        by_tokens = room is not None and room <= max(node.near_tokens for node in meter.lineage)
        source = "TokenBudgetConstraint" if left.tokens is not None and by_tokens else "CostLimitConstraint"
        elsewhere = meter.tree.source
        name = None if elsewhere is None else elsewhere.nearly_empty()
        what = "the budget" if name is None else name
        return _make_soft_verdict(
            AgentState.BUDGET_EXCEEDED, name or source, f"{what} is nearly used up", left=str(short)
        ), True
    if plan.soft_limit is not None and run.descent.notice is None and meter.turns >= plan.soft_limit.soft_limit():
        return _make_soft_verdict(
            AgentState.MAX_STEPS, "GracefulTurnLimit", "the turn limit is near", turns=meter.turns
        ), False
    return None


def _make_soft_verdict(state: AgentState, source: str, reason: str, **metrics: object) -> Verdict:
    return Verdict(state=state, cause=StopCause(source=source, action="wind_down", reason=reason, metrics=metrics))


def _write_notice(run: Run, source: str) -> str:
    texts = run.plan.config.texts
    limit = "budget" if source.startswith("wallet ") else _SPENT.get(source)
    default = texts.fill("finish_up") if limit is None else texts.fill("wind_down", limit=limit)
    text, error = run.plan.notice(default)
    if isinstance(error, KeyboardInterrupt):
        raise run.make_manual_interrupt()
    if error is not None:
        report(run, "message_provider", "graceful_turn_limit", error, "default text")
    return text
