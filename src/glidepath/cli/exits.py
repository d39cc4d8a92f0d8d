"""The exit code of a run: the first that applies."""

from __future__ import annotations

from glidepath.messages import StopReason
from glidepath.outcome import AgentState, LoopOutcome, RunResult

__all__ = ["EXITS", "exit_code"]

EXITS = {
    0: "done",
    1: "failed, or a constraint crashed",
    2: "wrong usage or configuration",
    3: "ended by a limit, or cut off",
    4: "stuck: a guard ended the run",
    5: "refused by the model or by the provider's policy",
    6: "waiting for a person's decision",
    130: "Ctrl-C",
    143: "SIGTERM",
}
_LANDED = (AgentState.MAX_STEPS, AgentState.BUDGET_EXCEEDED, AgentState.TIMED_OUT, AgentState.CANCELLED)


def exit_code(result: RunResult, signal: int | None = None) -> int:
    """The exit code for this result; `signal` is the number of the first signal that asked it to stop."""
    if signal is not None:
        return 128 + signal
    if result.stop_reason is StopReason.REFUSAL:
        return 5
    if result.outcome is LoopOutcome.PAUSED:
        return 6
    if result.state is AgentState.ERROR:
        stuck = result.outcome is not LoopOutcome.FAILED and result.cause is not None and result.cause.action == "land"
        return 4 if stuck else 1
    if result.outcome in (LoopOutcome.CUT_OFF, LoopOutcome.CANCELLED) or result.state in _LANDED:
        return 3
    return 0
