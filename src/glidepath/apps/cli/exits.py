"""The exit code of a run: the first that applies. `glidepath --help` lists them."""

from __future__ import annotations

from glidepath.values import AgentState, LoopOutcome, RunResult, StopReason

_LANDED = (AgentState.MAX_STEPS, AgentState.BUDGET_EXCEEDED, AgentState.TIMED_OUT, AgentState.CANCELLED)
_CLOSED = ("unavailable", "read_only", "damaged", "newer", "schema")  # kinds of a store that cannot be used at all
STUCK = 4


def exit_code(result: RunResult, signal: int | None = None, *, landed_ok: bool = False) -> int:
    """The exit code for this result; `signal` is the number of the first signal that asked it to stop.

    `landed_ok`: an answer that a limit has hurried is good enough.
    """
    if signal is not None:
        return 128 + signal
    if result.stop_reason is StopReason.REFUSAL:
        return 5
    if result.outcome is LoopOutcome.PAUSED:
        return 6
    if result.state is AgentState.ERROR:
        stuck = result.outcome is not LoopOutcome.FAILED and result.cause is not None and result.cause.action == "land"
        return 2 if _has_never_begun(result) else STUCK if stuck else 1
    wrapped_up = result.outcome is LoopOutcome.WRAPPED_UP and not _is_withdrawn_finish(result)
    if wrapped_up or result.outcome in (LoopOutcome.CUT_OFF, LoopOutcome.CANCELLED) or result.state in _LANDED:
        return 0 if landed_ok and result.ok else 3
    return 0


def _is_withdrawn_finish(result: RunResult) -> bool:
    """True when no limit was near: a guard has taken a tool away, and the agent has finished by itself."""
    return result.state is AgentState.COMPLETED and result.cause is not None and result.cause.action == "withdraw"


def _has_never_begun(result: RunResult) -> bool:
    """True when the store could not be opened: nothing was run, and another --store is the remedy."""
    cause = result.cause
    unusable = cause is not None and cause.source == "store" and cause.metrics.get("kind") in _CLOSED
    return unusable and not result.new_messages
