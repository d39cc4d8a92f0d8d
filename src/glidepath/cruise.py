"""Ordinary turns, run in a straight line: one model call, one tool call, no limit near, and no objections.

Nearly all turns of nearly all runs are like that, and what a turn costs is the number of steps it takes. So this is a
second form of what `judge.nothing_to_judge`, `ask`, `endings.take` and `execute` do in general, without a detour.
Whatever is not ordinary is theirs: `cruise` returns before a turn that may not be ordinary, with a reply that is not,
and calls them itself where something unusual comes up in between. Constraints and hooks that take part in a turn are
such calls, too: while they have nothing to say, the turn stays on the line. The architecture page lists the pairs;
random flights with `Run.cruises` on and off must have the same events, results and journals:
`tests/properties/test_straight_line.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from glidepath._wire import loads
from glidepath.admit import polled
from glidepath.ask import ask, first_call, gave_up, handed_over, noted, shaped
from glidepath.ask.attempt import Attempt, Reply, ordinary_reply, pump
from glidepath.ask.booking import BYTES_PER_TOKEN, PIECE, UNBOUNDED, Booking, overfull
from glidepath.ask.fallback import answered
from glidepath.ask.gates import request_for
from glidepath.ask.settlement import settle_ordinary
from glidepath.errors import ModelError
from glidepath.events import (
    BudgetReserved,
    MessageAdded,
    StreamChunk,
    StreamStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from glidepath.execute import end_specially, first_step, follow_up, kept_back, step_looked_at, text_of, written_down
from glidepath.execute.calls import cap_calls, judge_call, misfits
from glidepath.execute.guarding import heeded
from glidepath.execute.job import Job
from glidepath.execute.spawn import Host
from glidepath.judge import judge, nothing_to_judge
from glidepath.landing.notice import wind_down
from glidepath.ledger import Reservation
from glidepath.messages import ToolResultMessage, stored_arguments, visible
from glidepath.resilience import MARK_EVERY
from glidepath.run import HIGH_WATER, interruptible
from glidepath.run.run_transcript import AFTER_MODEL, AFTER_TOOLS, PRE_FLIGHT
from glidepath.spi import Step
from glidepath.tools import ArgumentsError, ToolContext, ToolResult
from glidepath.tools.density import result_tokens

if TYPE_CHECKING:
    from glidepath.messages import Usage
    from glidepath.run import Run

DELIVERED: Final[Any] = object()
"""What `cruise` returns when the tools of a turn have ended the run, or wait for a person."""


async def cruise(run: Run) -> Any:  # noqa: C901, PLR0911, PLR0912, PLR0915 - a straight line: read it from top to bottom
    """Run turn after turn while they are ordinary.

    Returns None before a turn that may not be, a `Reply` that is not, or `DELIVERED` when a tool has ended the run.
    """
    plan, watch, meter, journal, work = run.plan, run.watch, run.meter, run.journal, run.work
    transcript, turn, answer, spend, descent = run.transcript, run.turn, run.answer, run.spend, run.descent
    # What does not change from turn to turn: this is left when another plan takes over.
    health, model, model_name, price = plan.health, plan.model, plan.model_name, plan.price
    specs, tools, ordinary_tools = plan.specs, plan.tools, plan.ordinary_tools
    window, cap, fixed = plan.context_window, plan.max_output_tokens, plan.fixed_tokens
    # What goes into every event, and who hears it.
    voice, hooks = run.voice, run.hooks
    run_id, parent_id, now, time, number = run.run_id, voice.parent_id, voice.now, watch.time, voice.next_number
    tell: Any = voice.tell_all  # there is one where anybody wants `turns`
    outbox, chunks, turns = voice.outbox, voice.chunks, voice.turns
    # Who is asked in every turn.
    custom, steers, befores = plan.custom, hooks.steering, hooks.before_tool_call
    shapes, above = bool(hooks.tool_gate or hooks.context_transform), meter.parent
    asks_first = above is not None or bool(custom or steers)
    asks_about = above is not None or bool(befores)
    step = step_looked_at if hooks.after_tool_call else first_step
    settled = _settle_no_less if hooks.context_transform else settle_ordinary
    guards, circles, errors = run.guards.calls, run.guards.circles, run.guards.errors
    # Something may stop a call that is about to start: a listener, a hook, a constraint, anything while it is written.
    heeds = (voice.audience is not None and not voice.audience.harmless) or journal is not None
    heeds = heeds or plan.lineup.shapes_turns or bool(custom)
    seen, burnt, nested = transcript.call_ids, spend.burnt.extend, watch.above is not None
    opens = journal is None and not shapes  # else its start is told before the call is written down, or shaped
    starts, passes, wary, again = turns and opens, opens and not turns, heeds or nested, False
    want = plan.first_output_tokens if cap is None else cap
    size = max(1, want * BYTES_PER_TOKEN - PIECE) if meter.limited else UNBOUNDED
    failed, at, rescued = None, 0.0, answer.rescued
    began: Any
    job: Any
    bound: Any
    later: Any
    reply: Any
    request: Any = None
    sent: Any = None  # the view that the request shows
    # A reply that continues an answer is not ordinary; none begins in here, where every reply has a call.
    if (turn.allowed is not None and not run.hooks.tool_gate) or spend.first_call is not None or answer.parts:
        return None  # `ask` does that
    while True:
        # --- may it be ordinary? (judge.nothing_to_judge; what ask looks at first)
        if asks_first:
            if again and steers:
                later = polled(run, "steering")
                if later is not None:
                    await later
            again = True
            if custom:
                turn.reach(PRE_FLIGHT)
                await judge(run, PRE_FLIGHT)
            if above is not None and meter.near_budget():
                break
        if (
            meter.attention
            or watch.interrupt is not None
            or descent.begun
            or meter.turns >= descent.soft_turns
            or time() >= descent.soft_at
            or transcript.waiting
            or transcript.later
            or transcript.picture_bytes
            or health.alert
            or (outbox is not None and len(outbox) >= HIGH_WATER)
            or (window is not None and overfull(run, window) is not None)
        ):
            break
        # --- reserve: `book` in ask.booking
        if shapes:  # plugins may change the call, and the turn has begun before they are asked
            turn.begin()
            if turns:
                tell(TurnStarted(run_id, parent_id, number(), now(), turn.iterations + 1))
            elif tell is not None:
                number()
            later = shaped(run)
            if later is not None and (begun := await later) is not None:
                return await ask(run, begun=begun)
        view, weight = transcript.view, transcript.view_tokens
        count = transcript.anchor + weight
        held = meter.reserve(count + want, 0 if price is None else count * price.worst_input + want * price.output)
        if held.__class__ is not Reservation:
            if shapes:
                return await ask(run, begun=handed_over(run, specs, (view, weight)))
            break
        estimate = fixed + weight
        booking = Booking(held, count, want, cap, price, estimate, size)
        # --- the turn and its one attempt begin (Run.open_turn, _Call.begin)
        turn.begin()
        if journal is not None:
            if turns and not shapes:
                tell(TurnStarted(run_id, parent_id, number(), now(), turn.iterations + 1))
            elif tell is not None and not shapes:
                number()  # nobody wants it, and the others have the numbers they always have
            later = noted(run, booking)
            if later is not None:
                await later
        health.calls = count = health.calls + 1
        if not count % MARK_EVERY:
            health.mark(time())
        # Nothing else about the request can change in here: the plan, the tools and the cap are those of the plan.
        if view is not sent:
            request, sent = turn.request, view
            if (
                request is None
                or request.messages is not view
                or request.tools is not specs
                or request.max_output_tokens != cap
            ):
                request = turn.send(request_for(run, specs, view, cap))
        if tell is not None:
            at = now()
            if starts:
                tell(TurnStarted(run_id, parent_id, number(), at, turn.iterations + 1))
            elif passes:
                number()
            tell(
                BudgetReserved(run_id, parent_id, number(), at, held.tokens, None if price is None else held.money, cap)
            )
            tell(StreamStarted(run_id, parent_id, number(), at, model_name, 1))
        attempt = Attempt()
        # A listener that heard of the coming call may have stopped the run: then it is not made, and costs nothing.
        if (wary or watch.called_off is not None) and watch.halted():
            first_call(run).unsent(attempt, booking, view)
        try:
            await interruptible(pump(run, model, request, attempt, booking), watch)
        except BaseException as error:
            failed = gave_up(run, attempt, booking, view, error)
        if failed is not None:
            return await ask(run, begun=failed)
        # --- settle: `settle` beside `settle_ordinary`, in ask.settlement
        watch.calm()
        arrived = time()
        # It was left alone while it wrote: the text might have been the answer. With a call in it, it was not.
        if arrived >= watch.window_at and attempt.calls:
            watch.open_window()
        if tell is not None:
            at = now()
            if chunks is not None:
                chunks(StreamChunk(run_id, parent_id, number(), at, "", True))
        usage = settled(
            run, attempt, booking, held, estimate, weight, price, health, run_id, parent_id, number, tell, at
        )
        # --- the reply, and its tool (Attempt.reply, execute.calls.prepare)
        if health.alert:
            answered(run)
        reply = ordinary_reply(attempt, usage, ordinary_tools, seen, model_name)
        if reply is None:
            try:
                return attempt.reply(run, usage)
            except ModelError as error:
                failed = first_call(run, usage, error)
            return await ask(run, begun=failed)
        # --- it joins the transcript (endings.take, Run.add)
        reply, text, call, call_id, name, tool, tokens = reply
        burnt((arrived, meter.tokens, meter.money, meter.turns, meter.tool_calls))
        turn.take_call(reply)
        if text[:1].isalnum() or visible(text):
            answer.replace_text(text)
        transcript.join(reply, tokens)
        if tell is not None:
            tell(MessageAdded(run_id, parent_id, number(), at, reply))
        if custom or meter.attention or watch.interrupt is not None:
            # Constraints see the run as it is: after the reply, before its tools.
            turn.end_tools(AFTER_MODEL)  # they have not begun
            await judge(run, AFTER_MODEL)
            turn.start_tools()
            at = now()
        # --- the guards first: what they keep back does not run (execute)
        new = circles is not None and not tool.polling and circles.is_new(call)
        if not new and guards and kept_back(run, Step((call,), tools)):
            await _close(run)
            continue
        # --- its arguments, and whether it may begin (execute.calls.prepare, clear, admitted)
        job = Job(call, tool)
        try:
            job.bound = bound = tool.bind(stored_arguments(call))
        except ArgumentsError as error:
            misfits(run, job, error)
        if asks_about or meter.attention:
            if befores and job.result is None:
                later = judge_call(run, job)
                if later is not None:
                    await later
            if (above is not None or meter.attention) and meter.short_of_calls(1):
                cap_calls(run, [job])
            if job.waits_for is not None and job.result is None:
                await end_specially(run, job, Step((call,), tools))  # raises when it may not wait
                turn.end_tools(AFTER_MODEL)
                return DELIVERED
            at, bound = now(), job.bound
        if (nested or watch.interrupt is not None or watch.called_off is not None) and watch.halted():
            content = began = None  # it does not begin: `end_specially` says why
        elif job.result is not None:
            content = began = None
        else:
            # --- the tool runs (execute._run_alone)
            turn.count_call()
            if tool.counts_toward_limit:
                meter.charge_tool_call()
            if not tool.plain:
                job.context = ToolContext(Host(run), call_id, name, f"{run_id}:{call_id}")
            if journal is not None:
                later = written_down(run, job)
                if later is not None:
                    await later
                at = now()
            began = time()
            if tell is not None:
                tell(ToolStarted(run_id, parent_id, number(), at, call_id, name, loads(bound.data)))
            if heeds and watch.halted():
                content, job.started_at = None, began
                job.not_started(run)
                if run.hooks.after_tool_call:
                    await follow_up(run, [job])
            else:
                content = step(run, job, call_id, tool, bound)
                if content is None:
                    content = await text_of(run, job)
        if content is None or work.spawned or work.heard:
            job.started_at = began
            if content is not None and job.result is None:
                job.result = ToolResult(content)
            if await end_specially(run, job, Step((call,), tools)):
                turn.end_tools(AFTER_MODEL)
                run.close_turn()
                return DELIVERED
            await _close(run)
            continue
        # --- a short text is its result: it joins the transcript (execute._finish)
        bad = False
        if job.result is None:  # it came at once
            message = ToolResultMessage(call_id, name, content, False, None, None, None, tool.origins)
        else:
            result, bad = job.result, job.result.is_error
            details, narration = result.details, result.narration
            new = new and not bad and content.isascii()
            message = ToolResultMessage(call_id, name, content, bad, job.kind, details, narration, tool.origins)
        tokens = result_tokens(name, content) if len(call_id) <= 48 else plan.size_of(message)  # noqa: PLR2004 - ORDINARY_ID
        results = (message,)
        transcript.join(message, tokens)
        turn.answer_alone(results, bad)
        if tell is not None:
            at = now()
            tell(ToolEnded(run_id, parent_id, number(), at, call_id, name, message, time() - began, job.traceback))
            tell(MessageAdded(run_id, parent_id, number(), at, message))
        if rescued and not bad:
            run.forget_rescues()
            rescued = False
        # --- the guards see it, and the turn ends (execute._learn, judge.nothing_to_judge, Run.close_turn)
        if new and circles.keep_new(name, content):
            if errors is not None and errors.streaks:
                errors.new_run()
        elif guards:
            landing = heeded(run, Step((call,), tools), results, guards)
            if landing is not None:
                raise landing
        if watch.interrupt is not None:
            raise run.interrupted()
        if custom or meter.attention or descent.verdict is not None:
            turn.end_tools(AFTER_TOOLS)
            await judge(run, AFTER_TOOLS)
            at = now()
        turn.close()
        if tell is not None:
            if turns:
                tell(TurnEnded(run_id, parent_id, number(), at, turn.iterations, reply, results))
            else:
                number()
        job = bound = None  # not kept while the model is waited for, in each of a thousand runs
    return await _judged(run) if custom else None


def _settle_no_less(run: Run, *call: Any) -> Usage:
    """Settle a call that a transform may have made smaller: the next one may be larger again (`learn`)."""
    usage = settle_ordinary(run, *call)
    if run.transcript.anchor < run.plan.fixed_tokens:
        run.transcript.learn(run.plan.fixed_tokens)
    return usage


async def asked(run: Run) -> Reply:
    """The reply of a turn that may not be ordinary."""
    if not nothing_to_judge(run, PRE_FLIGHT):
        await judge(run, PRE_FLIGHT)
        return await _judged(run)
    run.open_turn()
    return await ask(run)


async def _judged(run: Run) -> Reply:
    """The same, once the constraints were asked."""
    wind_down(run)
    run.open_turn()
    return await ask(run)


async def _close(run: Run) -> None:
    """A turn whose only call did not run, or ended in a special way, is over."""
    turn = run.turn
    turn.end_tools(AFTER_TOOLS)
    if not nothing_to_judge(run, AFTER_TOOLS):
        await judge(run, AFTER_TOOLS)
    run.close_turn()
