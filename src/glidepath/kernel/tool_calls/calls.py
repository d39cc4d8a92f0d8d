"""Before anything runs: which calls of a batch may run, with which arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import replace
from glidepath.kernel.tool_calls.interrupted import hold_to_limit, leave_unfinished
from glidepath.kernel.tool_calls.job import Job
from glidepath.run import (
    HookFault,
    Opinion,
    Verdict,
    ask_until_opinion,
    make_context,
    report,
    sources_read_by_programs,
    to_read,
    transcripts_above,
)
from glidepath.spi import Allow, Ask, Block, Replace, ToolCallContext
from glidepath.tools import ArgumentsError, Continuation, ToolResult, clean
from glidepath.tools.advice import explain_malformed_arguments, unknown_tool_message
from glidepath.values import (
    AgentState,
    ResultKind,
    StopCause,
    ToolCall,
    ToolResultMessage,
    describe_error,
    pluralize,
    short_repr,
    stored_arguments,
)

if TYPE_CHECKING:
    from glidepath.run import Decision, Run

_VERDICTS = {Allow: "allow", Ask: "ask", Block: "deny"}
MOST_ARGUMENTS = 10_000  # names in the arguments that a hook replaces a call's with


_DID_NOT_RUN = frozenset(kind.value for kind in ResultKind if not kind.ran)


def prepare(run: Run, calls: Sequence[ToolCall]) -> list[Job]:
    """A job for every call, in order; those that cannot run have their result already."""
    plan, allowed = run.plan, run.turn.allowed
    if not plan.plain_policy:
        repaired = _normalize_calls(run, calls)
        if repaired is None:
            return _fail_all_calls(run, calls)
        calls = repaired
    cap, tools, jobs = plan.config.max_tool_calls_per_turn, plan.tools, []
    for call in calls:
        name = call.name
        tool = tools.get(name)
        job = Job(call, tool)
        jobs.append(job)
        if tool is None or call.malformed is not None or (allowed is not None and name not in allowed):
            _turn_away(run, job)
        elif cap is None:
            try:
                job.bound = tool.bind(stored_arguments(call))
            except ArgumentsError as error:
                reject_arguments(run, job, error)
    if cap is not None:
        _cap_turn(run, jobs, cap)
        for job in jobs:
            if job.result is None:
                bind(run, job)
    return jobs


async def clear(run: Run, jobs: list[Job]) -> None:
    """Ask the before-hooks and the approvals about every call that could run, then hold the limit on tool calls."""
    hold_tools_to_their_limits(run, jobs)
    for job in jobs:
        if job.result is None:
            if run.hooks.before_tool_call:
                later = judge_call(run, job)
                if later is not None:
                    await later
            if job.result is None and job.waits_for is None and job.tool.requires_approval:  # type: ignore[union-attr]
                from glidepath.kernel.tool_calls.reviewing import ask_approval  # only where a tool asks

                await ask_approval(run, job, jobs)
    cap_calls(run, jobs)


async def apply_decisions(run: Run, jobs: list[Job], decisions: Mapping[str, Decision]) -> None:
    """What a person, or the journal of a crashed run, says about calls that have waited.

    An approved call is shown to the before-hooks once more: a guard has the last word at the moment of the effect. They
    may block it; they can neither change it nor ask again.
    """
    for job in jobs:
        decision = decisions.get(job.call.id)
        if decision is None or decision.kind == "ask" or job.result is not None:
            continue
        if decision.kind in ("approve", "repeat") or (decision.kind == "answer" and job.asks is not None):
            job.waits_for = None
            if job.asks is None:
                bind(run, job, decision.arguments)
            else:
                bind(run, job)
                job.continuation = Continuation(job.asks.state, decision.arguments or {})
                leave_unfinished(run, job, "it was not allowed to")
            if job.result is None and run.hooks.before_tool_call:
                await _ask_all(run, job, approved=True)
        elif decision.kind == "deny":
            text = run.plan.config.texts.fill("denied", reason=decision.text)
            job.refuse(ResultKind.DENIED, text if decision.text else f"{text.rstrip(' :')}.")
        else:
            job.kind, job.result = ResultKind.ANSWERED.value, ToolResult(decision.text)
    cap_calls(run, [job for job in jobs if job.waits_for is None])


def keep_to_programs(run: Run, jobs: Sequence[Job]) -> None:
    """The model has called tools that it was not shown: only programs may."""
    for job in jobs:
        if job.call.name in run.plan.hands:
            shown = sorted(run.plan.tool_names - run.plan.hands)
            text = unknown_tool_message(job.call.name, shown)
            job.result = None
            job.refuse(ResultKind.UNKNOWN_TOOL, run.plan.config.texts.fill("unknown_tool", advice=text))


def _normalize_calls(run: Run, calls: Sequence[ToolCall]) -> Sequence[ToolCall] | None:
    """The policy's repair of aliased names, one for one, made on a copy; None when it cannot be trusted."""
    copies = tuple([replace(call, arguments=_wire.loads(_wire.encode(call.arguments))) for call in calls])
    try:
        answer = run.plan.policy.normalize_tool_calls(copies, frozenset(run.plan.tools))
        repaired = tuple(islice(answer, len(calls) + 1))  # it may have no end
        if len(repaired) != len(calls) or not all(isinstance(call, ToolCall) for call in repaired):
            raise TypeError("normalize_tool_calls must return one call for each call")
        if not all(isinstance(new.name, str) and isinstance(new.arguments, dict) for new in repaired):
            raise TypeError("normalize_tool_calls must return str names and dict arguments")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        report(run, "normalize_tool_calls", "protocol_policy", error, "the calls will not run")
        return None
    return [
        replace(call, name=clean(new.name), arguments=new.stored) for call, new in zip(calls, repaired, strict=True)
    ]


def _fail_all_calls(run: Run, calls: Sequence[ToolCall]) -> list[Job]:
    """The policy failed: which tools were meant is unknown, so none runs."""
    jobs = [Job(call, run.plan.tools.get(call.name)) for call in calls]
    for job in jobs:
        job.refuse(ResultKind.POLICY_FAILED, run.plan.config.texts.fill("policy_failed"))
    return jobs


def _turn_away(run: Run, job: Job) -> None:
    """Unknown and hidden tools, and arguments that are not a JSON object."""
    call, allowed = job.call, run.turn.allowed
    if job.tool is None:
        shown = sorted(run.plan.tools if allowed is None else allowed)
        job.refuse(
            ResultKind.UNKNOWN_TOOL,
            run.plan.config.texts.fill("unknown_tool", advice=unknown_tool_message(call.name, shown)),
        )
    elif allowed is not None and call.name not in allowed:
        withdrawn = call.name in run.descent.withdrawn or run.descent.work_withdrawn
        kind = ResultKind.WITHDRAWN if withdrawn else ResultKind.HIDDEN_TOOL
        job.refuse(kind, _explain_hidden_tool(run, call.name, sorted(allowed)))
    else:
        problem = explain_malformed_arguments(call.malformed or "")
        job.refuse(ResultKind.INVALID_ARGUMENTS, run.plan.config.texts.fill("bad_arguments", problem=problem))


def _explain_hidden_tool(run: Run, name: str, shown: list[str]) -> str:
    try:
        text = run.plan.policy.hidden_tool_error(name, shown)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        report(run, "hidden_tool_error", "protocol_policy", error, "default text")
        text = None
    if isinstance(text, str) and text:
        return clean(text)
    reason = run.turn.denials.get(name)
    message = unknown_tool_message(name, shown, hidden=True)
    return run.plan.config.texts.fill("hidden_tool", advice=f"{message} Reason: {reason}." if reason else message)


def _cap_turn(run: Run, jobs: list[Job], cap: int) -> None:
    """Skip counted calls past the cap; calls that do not count and parallel-safe ones use no slot."""
    used = 0
    for job in jobs:
        tool = job.tool
        if tool is None or job.result is not None or tool.parallel_safe or not tool.counts_toward_limit:
            continue
        used += 1
        if used > cap:
            job.refuse(ResultKind.SKIPPED, run.plan.config.texts.fill("calls_per_turn", limit=cap))


def hold_tools_to_their_limits(run: Run, jobs: Sequence[Job]) -> None:
    """Refuse the calls beyond a tool's own `max_calls`: those of the run that ran are counted, and those before it."""
    counted: dict[str, int] = {}
    for job in jobs:
        most = None if job.tool is None else job.tool.max_calls
        if most is None or job.result is not None or job.counted:
            continue
        name = job.call.name
        if name not in counted:
            mine = run.transcript.messages[run.transcript.first_new :]
            results: Any = [one for one in mine if type(one) is ToolResultMessage and one.tool_name == name]
            counted[name] = sum(one.kind not in _DID_NOT_RUN for one in results)
        if counted[name] >= most:
            said = f"{name} may run {pluralize(most, 'time')} in this run, and it has"
            job.refuse(ResultKind.SKIPPED, run.plan.config.texts.fill("not_executed", reason=said))
        else:
            counted[name] += 1


def cap_calls(run: Run, jobs: list[Job]) -> None:
    """Run what fits the limit on tool calls, in source order; the rest get a typed result."""
    left = room = run.meter.room_tool_calls()
    if left is None or room is None:
        return
    hold_to_limit(run, jobs)
    for job in jobs:
        if job.result is None and not job.counted and job.tool.counts_toward_limit:  # type: ignore[union-attr]
            if left <= 0:
                job.refuse(ResultKind.SKIPPED, run.plan.config.texts.fill("calls_spent"))
                job.waits_for = None
                verdict = None if run.descent.verdict is not None else _verdict_if_calls_spent(run, room)
                if verdict is not None:
                    run.descent.land_at_next_checkpoint(verdict)
            left -= 1


def _verdict_if_calls_spent(run: Run, room: int) -> Verdict | None:
    """The run lands when an ancestor's tool calls are used up; its own limit is a separate constraint."""
    own, *above = run.meter.lineage
    if own.calls_wire - own.tool_calls <= room:
        return None
    limit = next(node.caps.tool_calls for node in above if node.calls_wire - node.tool_calls <= room)
    metrics = {"max_tool_calls": limit}
    reason = f"the limit of {pluralize(limit or 0, 'tool call')} of a parent budget is reached"
    cause = StopCause(source="ToolCallLimitConstraint", action="graceful_exit", reason=reason, metrics=metrics)
    return Verdict(state=AgentState.MAX_STEPS, cause=cause)


def bind(run: Run, job: Job, arguments: Mapping[str, Any] | None = None) -> None:
    """The arguments as its tool takes them, its own or these; it has its result when they do not fit."""
    try:
        job.bound = job.tool.bind(job.call.stored if arguments is None else arguments)  # type: ignore[union-attr]
    except ArgumentsError as error:
        reject_arguments(run, job, error)


def reject_arguments(run: Run, job: Job, error: ArgumentsError) -> None:
    """The arguments do not fit the tool: the model is told what is wrong."""
    job.refuse(ResultKind.INVALID_ARGUMENTS, run.plan.config.texts.fill("bad_arguments", problem=error))


def judge_call(run: Run, job: Job) -> Awaitable[None] | None:
    """Ask every before-hook. None: it is done; else await the rest.

    After a replacement they are asked once more, about the arguments that will really be used.
    """
    voices, context = iter(run.hooks.before_tool_call), _make_context(run, job)
    heard = ask_until_opinion(run, "before_tool_call", voices, context)
    if heard is not None:
        return _await_before_hooks(run, job, _ask_before_hooks(run, job, voices, context, heard))
    if not job.bound.is_intact():  # type: ignore[union-attr]
        _block_if_changed_in_place(run, job)
    return None


async def _await_before_hooks(run: Run, job: Job, asked: Awaitable[Any]) -> None:
    replaced = await asked
    if replaced is not None and job.result is None:
        job.rule, job.allowed = None, False  # it was about other arguments
        bind(run, job, dict(replaced))
        if job.result is None:
            await _ask_all(run, job, approved=False)


def _make_context(run: Run, job: Job, *, replaceable: bool = True, approved: bool = False) -> ToolCallContext:
    arguments, call, turn, work = job.bound.arguments, job.call, run.turn, run.work  # type: ignore[union-attr]
    context = turn.contexts.get(ToolCallContext)
    if context is None:
        messages = to_read(run, run.transcript.messages)
        context = make_context(run, ToolCallContext, call=None, arguments=None, tool=None, messages=messages)
    call = ToolCall(call.id, call.name, arguments)
    context = replace(context, iteration=turn.iterations, call=call, arguments=arguments, tool=job.tool)
    if not replaceable:
        context = replace(context, replaceable=False, approved=approved)
    if work.above is not None or work.heard:
        context = replace(context, above=transcripts_above(run), origins=sources_read_by_programs(run))
    return context  # type: ignore[no-any-return]


async def _ask_all(run: Run, job: Job, *, approved: bool) -> None:
    """Ask every before-hook about arguments that cannot be replaced any more."""
    voices, context = iter(run.hooks.before_tool_call), _make_context(run, job, replaceable=False, approved=approved)
    heard = ask_until_opinion(run, "before_tool_call", voices, context)
    await _ask_before_hooks(run, job, voices, context, heard)


async def _ask_before_hooks(
    run: Run,
    job: Job,
    voices: Iterator[Any],
    context: ToolCallContext,
    heard: Awaitable[Opinion | None] | None,
) -> Any:
    """What all before-hooks say, the first of which was `heard`: the arguments that replace the call's, or None."""
    replaceable, approved = context.replaceable, context.approved
    replaced: Any = None
    while heard is not None and (said := await heard) is not None:
        try:
            decision = _as_decision(said)
        except HookFault as fault:
            _block_for(run, job, said.name, fault)
            return None
        if not isinstance(decision, Replace) and decision.rule:
            from glidepath.kernel.tool_calls.reviewing import record_ruling

            record_ruling(run, job, _VERDICTS[type(decision)], decision.rule)
        if isinstance(decision, Block):
            job.refuse(ResultKind.BLOCKED, run.plan.config.texts.fill("blocked", reason=clean(decision.reason)))
            return None
        if isinstance(decision, Ask):
            if not approved:
                job.waits_for = clean(decision.reason) or f"plugin {said.name!r} asks for a decision"
                job.suspects = tuple(dict.fromkeys((*job.suspects, *decision.origins)))
        elif isinstance(decision, Replace) and replaceable:
            replaced = decision.arguments
            context = replace(context, arguments=replaced, call=ToolCall(job.call.id, job.call.name, replaced))
        elif isinstance(decision, Replace):
            report(run, "before_tool_call", said.name, HookFault("replacing arguments a second time"), "ignored")
        heard = ask_until_opinion(run, "before_tool_call", voices, context)
    if job.bound.is_intact():  # type: ignore[union-attr]
        return replaced
    _block_if_changed_in_place(run, job)
    return None


def _block_if_changed_in_place(run: Run, job: Job) -> None:
    """A hook has changed the arguments in place: what runs has not changed, but somebody has seen something else."""
    changed = HookFault("a hook changed the arguments in place; return Replace(...) instead")
    _block_for(run, job, ", ".join(name for name, _ in run.hooks.before_tool_call), changed)


def _block_for(run: Run, job: Job, name: str, fault: HookFault) -> None:
    report(run, "before_tool_call", name, fault, "the call is blocked")
    job.refuse(ResultKind.BLOCKED, run.plan.config.texts.fill("guard_failed"))


def _read(arguments: Mapping[Any, Any]) -> dict[Any, Any]:
    """A copy of what a hook wants to run the call with; its own mapping may be anything."""
    try:
        if type(arguments) is dict:
            return dict(arguments)
        names = tuple(islice(arguments, MOST_ARGUMENTS + 1))
        if len(names) > MOST_ARGUMENTS:
            raise ValueError(f"it has more than {MOST_ARGUMENTS} names")
        return {name: arguments[name] for name in names}
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise HookFault(f"Replace takes readable arguments: {describe_error(error)}") from error


def _as_decision(said: Opinion) -> Allow | Replace | Block | Ask:
    """The decision, every part of which can be trusted."""
    if said.fault is not None:
        raise said.fault
    decision = said.answer
    if not isinstance(decision, Allow | Replace | Block | Ask):
        raise HookFault(f"before_tool_call must return Allow, Replace, Block, Ask or None, not {short_repr(decision)}")
    if isinstance(decision, Replace) and not isinstance(decision.arguments, Mapping):
        raise HookFault(f"Replace takes the arguments as a mapping, not {short_repr(decision.arguments)}")
    if isinstance(decision, Replace):
        return Replace(_read(decision.arguments))
    if not isinstance(decision.rule, str):
        raise HookFault(f"{type(decision).__name__} takes its rule as a str, not {short_repr(decision.rule)}")
    if isinstance(decision, Block | Ask) and not isinstance(decision.reason, str):
        raise HookFault(f"{type(decision).__name__} takes its reason as a str, not {short_repr(decision.reason)}")
    if isinstance(decision, Ask):
        origins: object = decision.origins
        if type(origins) is not tuple or any(type(name) is not str for name in origins):
            raise HookFault(f"Ask takes its origins as a tuple of str, not {short_repr(origins)}")
    return decision
