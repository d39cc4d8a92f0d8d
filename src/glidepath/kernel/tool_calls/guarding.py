"""Asks the call guards about a batch, and acts on their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath.run import Touchdown, Verdict, log_error
from glidepath.spi import CallGuard, GuardVerdict, Step
from glidepath.values import (
    AgentState,
    GuardTripped,
    HookFailed,
    LoopOutcome,
    StopCause,
    ToolResultMessage,
    describe_error,
)

if TYPE_CHECKING:
    from glidepath.run import Run


def ask_before_guards(run: Run, step: Step, guards: Sequence[CallGuard]) -> tuple[str, GuardVerdict] | None:
    """What the first of these guards has against a batch that is about to run, and its name; None when it may run."""
    if step.withdrawn and all(call.name in step.withdrawn for call in step.calls):
        tools = frozenset(call.name for call in step.calls)
        verdict = GuardVerdict(action="land", reason="it keeps calling tools that were withdrawn", tools=tools)
        return "withdrawn" if run.descent.withdrawal is None else run.descent.withdrawal.source, verdict
    for guard in guards:
        try:
            found = guard.before(step)  # type: ignore[misc] # those that have none are not among them
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            found = make_crash_verdict(run, guard.name, error)
        if found is not None:
            return guard.name, found
    return None


def ask_after_guards(
    run: Run, step: Step, results: tuple[ToolResultMessage, ...], guards: Sequence[CallGuard]
) -> Touchdown | None:
    """Show these guards the results of a batch, and do what they say; returns the verdict if the run must land."""
    landing = None
    for guard in guards:
        try:
            verdict = guard.after(step, results)  # type: ignore[misc]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            verdict = make_crash_verdict(run, guard.name, error)
        if verdict is not None:
            apply(run, guard.name, verdict)
            if verdict.action == "land":
                landing = landing or Touchdown(make_guard_verdict(guard.name, verdict))
            elif verdict.notice:
                run.transcript.queue_notice(verdict.notice_reason or guard.name, guard.name, verdict.notice)
    return landing


def make_crash_verdict(run: Run, name: str, error: BaseException) -> GuardVerdict:
    """A guard that fails lands the run."""
    reason = f"the guard failed: {describe_error(error)}"
    log_error(run, f"guard {name!r}", error, "the run lands")
    run.emit(HookFailed, name, "guard", reason, "the run lands")
    return GuardVerdict(action="land", reason=reason)


def apply(run: Run, name: str, verdict: GuardVerdict) -> None:
    """Report what a guard found, and withdraw the tools it names."""
    run.emit(GuardTripped, name, verdict.action, verdict.reason, tuple(sorted(verdict.tools)), verdict.period)
    if verdict.action == "withdraw":
        cause = StopCause(source=name, action="withdraw", reason=verdict.reason)
        run.descent.withdraw(verdict.tools, cause)


def make_guard_verdict(name: str, verdict: GuardVerdict) -> Verdict:
    """How a run ends that a guard brings down."""
    cause = StopCause(source=name, action="land", reason=verdict.reason, metrics={"tools": sorted(verdict.tools)})
    return Verdict(state=AgentState.ERROR, cause=cause)


def fatal_verdict(reason: str) -> Verdict:
    """How a run ends whose tool said that it cannot continue."""
    cause = StopCause(source="tool", action="fail", reason=reason)
    return Verdict(state=AgentState.ERROR, cause=cause, gentle=False, cut=LoopOutcome.FAILED)
