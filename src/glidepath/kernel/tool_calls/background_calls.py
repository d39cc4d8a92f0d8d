"""Calls in the background: the model has a handle at once, and collects the result later.

A call of a tool with `background=True` is an ordinary call up to its start: judged, counted, on disk. It returns
a handle, and the tool runs on in a task of the run. The tool `collect` waits for it and gives its result. The journal
keeps every such call, and its result from the first commit after its end on; where hooks look at results, after they
have: something may have to be taken out. When the process dies before that, the process that resumes starts an
idempotent tool again; of any other the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, replace
from glidepath.kernel.tool_calls.batch import record_end, run_contained
from glidepath.kernel.tool_calls.guarding import ask_after_hooks, fatal_verdict
from glidepath.kernel.tool_calls.job import Job
from glidepath.kernel.tool_calls.spawn import Host
from glidepath.run import Stopped, Why, name_below, note_origins, recall, tool_breaker
from glidepath.spi import INSIDE
from glidepath.tools import ArgumentsError, Tool, ToolContext, ToolResult, find_closest, tool, trim_result
from glidepath.values import (
    BackgroundCall,
    BackgroundEnded,
    BackgroundStarted,
    NoticeSent,
    ResultKind,
    ToolError,
    ToolResultMessage,
    Unknown,
    UserMessage,
    pluralize,
)

if TYPE_CHECKING:
    from glidepath.run import Run

COLLECT = "collect"
KEY = "background"
WAIT = 60.0  # seconds that `collect` waits unless the model says otherwise
LONGEST_WAIT = 3600.0
PATIENCE = 1.0  # seconds for a call to end that was asked to
NOT_CHECKED = "The call is done. Its result is not kept: the run ended before plugins had looked at it."
MOST_SHOWN = 4_000  # characters of a result that a landing shows, of those that nobody has collected


class LiveCall(Record, eq=False):
    """A call that runs in the background now."""

    id: str
    job: Job
    task: asyncio.Task[BaseException | None]
    ended: asyncio.Future[None]
    timer: Any = None


# --- the tools, as the model sees them ----------------------------------------------------------------------------


def make_background_tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """The same tools, those for the background replaced by what starts them, and `collect` if there is any."""
    made = tuple([_make_starter(one) if one.background else one for one in tools])
    collector = tool(
        collect,
        name=COLLECT,
        polling=True,
        counts_toward_limit=False,
        votes_on_termination=False,
        idempotent=True,
        read_only=True,
        timeout=LONGEST_WAIT + WAIT,  # it has its own limit; one for all tools would make a long wait an error
    )
    return (*made, collector)


def _make_starter(one: Tool) -> Tool:
    tool_breaker(one)  # both have it, from the start: the call that runs tells it how it ended

    async def start(values: dict[str, Any], context: ToolContext | None) -> ToolResult:  # noqa: ARG001 - of a runner
        place: Any = INSIDE.get()
        return _begin(place.run, one, place.work)

    return one.starting(start)


async def collect(id: str, wait_seconds: float = WAIT) -> ToolResult:  # noqa: A002 - what the model is shown
    """The result of a call that runs in the background. Waits for it for at most `wait_seconds`.

    Args:
        id: What the call returned when it was started, such as bg-1.
        wait_seconds: How long to wait for it; 0 only looks.
    """
    place: Any = INSIDE.get()
    run, call_id = place.run, place.key
    found = _find(run, id)
    live = run.work.live.get(found.id)
    if live is not None and wait_seconds > 0:
        await asyncio.wait({live.ended}, timeout=min(wait_seconds, LONGEST_WAIT))
        found = _find(run, id)
    if found.result is None and found.id in run.work.unchecked:
        place.work.collects = (
            found.id
        )  # the hooks are asked in the run's own task: `hand_over` gives it what they leave
        return ToolResult(f"{found.id} ({found.call.name}) has ended.")
    if found.result is None:
        return ToolResult(f"{found.id} ({found.call.name}) is still running. Do something else, or collect it later.")
    place.work.checked = True
    return _collect_result(run, found, found.result, call_id)


def _collect_result(run: Run, found: BackgroundCall, result: ToolResultMessage, call_id: str) -> ToolResult:
    _keep(run, replace(found, collected=True))
    run.transcript.drop_notice(KEY, found.id)
    note_origins(run, call_id, result.origins)
    return ToolResult(
        result.content, result.is_error, {KEY: {"id": found.id, "collected": True}}, result.narration, kind=result.kind
    )


def _find(run: Run, wanted: str) -> BackgroundCall:
    known = {one.id: one for one in run.work.background}
    if wanted not in known:
        close = find_closest(wanted, known)
        hint = f"; did you mean {close}?" if close else f"; there are {', '.join(known)}" if known else ""
        raise ToolError(f"no call {wanted!r} was started in the background{hint}")
    return known[wanted]


# --- running ------------------------------------------------------------------------------------------------------


def _begin(run: Run, one: Tool, outer: Job) -> ToolResult:
    """Start a call in the background; raises `ToolError` where that cannot be."""
    if run.descent.notice is not None or run.descent.verdict is not None or run.descent.landing_calls:
        raise ToolError("the run is about to end: nothing more is started in the background")
    most = run.plan.config.max_parallel_tools
    if len(run.work.live) >= most:
        raise ToolError(f"{pluralize(most, 'call')} run in the background already: collect one first")
    bound: Any = outer.bound
    call = replace(outer.call, arguments=bound.as_json())
    kept = BackgroundCall(id=f"bg-{_find_last_number(run) + 1}", call=call)
    _start(run, one, kept, bound, outer.trial)
    outer.trial, outer.checked = None, True  # the hooks look at its result, not at its handle
    text = f"Started in the background as {kept.id}. Continue with something else; "
    text += f"{COLLECT}(id={kept.id!r}) gives its result."
    return ToolResult(text, details={KEY: {"id": kept.id}})


def _find_last_number(run: Run) -> int:
    """The number of the last call in the background: earlier runs of the session may have had some, too."""
    if run.work.background:
        return int(run.work.background[-1].id.removeprefix("bg-"))
    handles = [
        message.details[KEY]
        for message in run.transcript.messages
        if isinstance(message, ToolResultMessage) and isinstance(message.details, Mapping) and KEY in message.details
    ]
    return sum("collected" not in one for one in handles if isinstance(one, Mapping))


def _start(run: Run, one: Tool, kept: BackgroundCall, bound: Any, trial: str | None = None) -> None:
    """Its task. It has its own place in the run: agents that it starts spend from the run's budget."""
    _keep(run, kept)
    key = name_below(kept.call.id, kept.id)
    job = Job(replace(kept.call, id=key), one, bound, trial=trial)
    if not one.plain:
        job.context = ToolContext(Host(run), key, one.name, f"{run.run_id}:{kept.call.id}")
    loop = run.watch.loop
    job.started_at = run.watch.time()
    task = loop.create_task(run_contained(run, job), name=f"glidepath-background-{one.name}")
    live = LiveCall(kept.id, job, task, loop.create_future())
    timeout = job.timeout(run)
    if timeout is not None:
        live.timer = loop.call_later(timeout, _time_out, run, live, timeout)
    run.work.add_live(kept.id, live)
    task.add_done_callback(lambda _: _end(run, live))
    run.emit(BackgroundStarted, kept.id, kept.call.id, one.name)


def _stop(live: LiveCall, why: Why, reason: str) -> None:
    live.job.stop_why, live.job.stop_asked = why, reason
    live.task.cancel()


def _time_out(run: Run, live: LiveCall, timeout: float) -> None:
    """Its time is up: it is asked to stop, and let go if it does not."""
    _stop(live, Why.TIMEOUT, f"no result within {timeout:g} s")
    live.timer = run.watch.loop.call_later(run.watch.abandon_time() - run.watch.time(), _end, run, live)


def _end(run: Run, live: LiveCall) -> None:
    """A call has ended, or ignores that it was asked to stop: keep its result, and tell the model that it is there."""
    job = live.job
    if live.timer is not None:
        live.timer.cancel()
    if run.work.live.get(live.id) is not live:
        return  # the run has let go of it
    if live.task.done():
        record_end(run, job, live.task)
    else:  # nobody waits for it any more, and the result lists it
        job.record_stop(run, Stopped(job.stop_why, let_go=True))
    if job.result is None:  # it asks for calls or for a person, which nobody can answer in the background
        job.refuse(ResultKind.CANCELLED_INSIDE, "a call in the background cannot ask a person, or for other calls")
    run.work.drop_live(live.id)
    kept = _find(run, live.id)
    seconds = run.watch.time() - job.started_at  # type: ignore[operator]
    below, job.call = job.call.id, kept.call  # from here on it is the call that the model has made
    if run.hooks.after_tool_call:
        run.work.add_unchecked(live.id, job)
    else:
        _keep(run, replace(kept, result=job.bare_message(run)))
    if job.kind == ResultKind.UNKNOWN_EFFECT:
        run.work.mark_unknown((kept.call,))
    for token, child in run.work.spawned.get(below, ()):  # what it has left behind, as `recall` does
        if not child.done():
            token.cancel("the tool call that started it has ended")
    if job.fatal is not None and job.stop_why is not Why.INTERRUPT:
        run.descent.land_unless_landing(fatal_verdict(job.fatal))
    if job.trial is not None:
        job.update_breaker(run)
    run.emit(BackgroundEnded, live.id, kept.call.id, kept.call.name, job.kind, seconds, job.traceback)
    run.transcript.queue_notice(KEY, live.id, f"{live.id} ({kept.call.name}) has ended: {COLLECT} it.")
    live.ended.set_result(None)
    if run.watch.consumer is not None:
        run.watch.consumer.wake_consumer()


async def check_results(run: Run) -> None:
    """Ask the hooks about the calls that have ended, in the run's own task; then their results are kept.

    What no hook could be asked about, because the run is being stopped, is not kept: something may have to be taken out
    of it.
    """
    while run.work.unchecked:  # one may end while a hook looks at another
        name, job = next(iter(run.work.unchecked.items()))
        later = ask_after_hooks(run, job)
        if later is not None and not await later:
            job.result = ToolResult(NOT_CHECKED)
        _keep(run, replace(_find(run, name), result=job.bare_message(run)))
        run.work.drop_unchecked(name)


def hand_over(run: Run, job: Job) -> None:
    """Give a call of `collect` the result that the hooks have looked at."""
    found = _find(run, job.collects or "")
    result: Any = found.result  # `check_results` has kept it
    job.checked, job.kind = True, result.kind
    job.result = _collect_result(run, found, result, job.call.id)


def _keep(run: Run, kept: BackgroundCall) -> None:
    run.work.keep_background(kept)


# --- the end of the run, and after a crash ------------------------------------------------------------------------


def list_uncollected(run: Run) -> list[BackgroundCall]:
    """What the model has started and not collected."""
    return [one for one in run.work.background if not one.collected]


def remind(run: Run) -> bool:
    """The model is done, and calls are not collected: say so, once for each of them. False when the model knows."""
    told = run.work.reminded
    left = [one for one in list_uncollected(run) if one.id not in told]
    if not left or run.descent.notice is not None:
        return False
    run.work.remind(one.id for one in left)
    if COLLECT not in run.plan.tools:  # another agent has the conversation, and has no such tool
        show_uncollected(run, last=True)
        return True
    names = ", ".join(f"{one.id} ({one.call.name})" for one in left)
    text = (
        f"You have not collected {names}, which you started in the background. {COLLECT} what your answer needs, or "
        "answer again: then what still runs is stopped."
    )
    run.transcript.queue_notice(KEY, KEY, text)
    return True


def show_uncollected(run: Run, *, last: bool) -> None:
    """No tool can be called any more: the model is shown what is there and, at the `last` moment, told what is not."""
    for one in list_uncollected(run):
        result, name = one.result, f"{one.id} ({one.call.name})"
        if result is None:
            if last:  # only what runs has none by then
                _tell(run, f"{name} still runs in the background, and is stopped with this run.")
            continue
        _keep(run, replace(one, collected=True))
        text = trim_result(ToolResult(result.content), MOST_SHOWN).content
        shown = text if isinstance(text, str) else "a result that is not text"
        _tell(run, f"{name} has ended. Its result:\n{shown}", result.origins)


def _tell(run: Run, text: str, origins: tuple[str, ...] = ()) -> None:
    run.add(UserMessage(text, internal=True, reason=KEY, origins=origins))
    run.emit(NoticeSent, KEY, KEY, text)


async def let_finish(run: Run) -> None:
    """The run waits for a person: what runs in the background comes to its end first, unless the run is stopped."""
    for one in list(run.work.live.values()):
        try:
            await run.watch.wait(one.ended)
        except asyncio.CancelledError:
            return
        finally:
            run.watch.end_wait()


async def stop_background(run: Run) -> None:
    """The run is over: stop what still runs, and wait for it; what does not stop is listed as abandoned."""
    live = list(run.work.live.values())
    for one in live:
        _stop(one, Why.INTERRUPT, "the run has ended")
    if live:
        await run.watch.wait_for_all(PATIENCE, [one.task for one in live])
    for kept in run.work.background if run.work.spawned else ():
        await recall(run, name_below(kept.call.id, kept.id))
    for one in live:
        _end(run, one)  # what has not stopped is let go of
        kept = _find(run, one.id)
        if not one.job.begun or one.job.kind not in _CUT:
            continue
        run.work.drop_unchecked(one.id)
        tool: Any = one.job.tool  # every call in the background has one
        if tool.idempotent:
            _keep(run, replace(kept, result=None))  # a run that continues starts it again
        else:
            _mark_unknown(run, kept, Unknown.STOPPED)
    if run.work.unchecked:
        await check_results(run)


_CUT = frozenset({ResultKind.CANCELLED.value, ResultKind.NOT_STOPPED.value})


def restore_background(run: Run) -> None:
    """A run continues: what ran in the background when its process died runs again, or its outcome is unknown."""
    open_calls = {call.id for call in run.turn.open_calls()}
    for one in run.work.background:
        if one.result is not None:
            continue
        if one.call.id in open_calls:  # it starts again, or is unknown itself; the model was never told this handle
            run.work.drop_background(one.id)
            continue
        original = _find_original(run, one.call.name)
        bound = None
        with suppress(ArgumentsError):
            bound = None if original is None else original.bind(one.call.stored)
        if original is None:
            _mark_unknown(run, one, Unknown.TOOL_GONE)
        elif bound is None:
            _mark_unknown(run, one, Unknown.ARGUMENTS)
        elif not original.idempotent:
            _mark_unknown(run, one, Unknown.DIED)
        else:
            _start(run, original, one, bound)


def _find_original(run: Run, name: str) -> Tool | None:
    """The tool that a call in the background was made of; another agent may have the conversation by now."""
    starter = run.plan.tools.get(name)
    if starter is not None:
        return starter.original
    roster = (run.plan.roster or {}).values()
    return next((one for config in roster for one in config.tools if one.background and one.name == name), None)


def _mark_unknown(run: Run, kept: BackgroundCall, why: Unknown) -> None:
    """Nobody knows what it has done: its result says so, and the run's result lists it."""
    kind, name = ResultKind.UNKNOWN_EFFECT.value, kept.call.name
    text = run.plan.config.texts.fill("unknown_effect", reason=why.reason)
    result = ToolResultMessage(kept.call.id, name, text, is_error=True, kind=kind, details=why.details())
    _keep(run, replace(kept, result=result))
    run.work.mark_unknown((kept.call,))
    run.transcript.queue_notice(KEY, kept.id, f"{kept.id} ({name}): {text}")
