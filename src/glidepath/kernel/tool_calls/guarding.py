"""Asks the call guards about a batch, and acts on their verdicts; asks the hooks about the result of each call."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.run import HookFault, Opinion, Touchdown, Verdict, ask_until_opinion, log_error, make_context, report
from glidepath.spi import AfterDecision, CallGuard, GuardVerdict, Step, ToolResultContext
from glidepath.tools import clean
from glidepath.values import (
    AgentState,
    GuardTripped,
    HookFailed,
    LoopOutcome,
    StopCause,
    ToolCall,
    ToolResultMessage,
    describe_error,
    short_repr,
)

if TYPE_CHECKING:
    from glidepath.kernel.tool_calls.job import Job
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


# --- the hooks that look at a result ---------------------------------------------------------------------------------


def ask_after_hooks(run: Run, job: Job) -> Awaitable[bool] | None:
    """Every after-hook may change what the model sees of the result, or vote to end the run. None: nobody does.

    False when the run was stopped before all of them were asked.
    """
    turn = run.turn
    voices = iter(run.hooks.after_tool_call)
    arguments = job.bound.read() if job.bound is not None else {}
    context = turn.contexts.get(ToolResultContext)
    if context is None:
        context = make_context(run, ToolResultContext, call=None, arguments=None, tool=None, result=None)
    result = _make_result_message(run, job)
    call = ToolCall(result.call_id, result.tool_name, arguments)
    context = replace(context, iteration=turn.iterations, call=call, arguments=arguments, tool=job.tool, result=result)
    heard = ask_until_opinion(run, "after_tool_call", voices, context)
    return None if heard is None else _apply_after_hooks(run, job, voices, context, heard)


async def _apply_after_hooks(
    run: Run,
    job: Job,
    voices: Iterator[Any],
    context: ToolResultContext,
    heard: Awaitable[Opinion | None] | None,
) -> bool:
    try:
        while heard is not None and (said := await heard) is not None:
            try:
                if said.fault is not None:
                    raise said.fault
                _change(job, said.name, _as_decision(said.answer))
                context = replace(context, result=_make_result_message(run, job))
            except HookFault as fault:
                report(run, "after_tool_call", said.name, fault, "skipped")
            heard = ask_until_opinion(run, "after_tool_call", voices, context)
    except Touchdown:
        return False  # the run is being stopped: leave the tool's answer unchanged
    return True


def _make_result_message(run: Run, job: Job) -> ToolResultMessage:
    call = job.call
    result: Any = job.result
    origins = job.origins(run) if run.work.heard else job.tool.origins if job.tool is not None else ()
    return ToolResultMessage(
        call.id, call.name, result.content, result.is_error, job.kind, origins=origins, raised_at=job.raised_at
    )


def _as_decision(answer: object) -> AfterDecision:
    if type(answer) is not AfterDecision:
        raise HookFault(f"after_tool_call must return an AfterDecision or None, not {short_repr(answer)}")
    for field, kind in (("content", str), ("is_error", bool), ("terminate", bool)):
        value = getattr(answer, field)
        if value is not None and not isinstance(value, kind):
            raise HookFault(f"AfterDecision.{field} must be of type {kind.__name__} or None, not {short_repr(value)}")
    return answer


def _change(job: Job, name: str, decision: AfterDecision) -> None:
    result: Any = job.result
    job.result = replace(
        result,
        content=result.content if decision.content is None else clean(decision.content),
        is_error=result.is_error if decision.is_error is None else decision.is_error,
        terminate=result.terminate if decision.terminate is None else decision.terminate,
    )
    if decision.is_error is not None:
        job.kind = (job.kind or name) if decision.is_error else None
