"""Ordinary turns, flown in a straight line: one model call, one tool call, no limit near, and nobody else with a say.

Nearly all turns of nearly all runs are like that, and what a turn costs is the number of steps it takes. So this is a
second form of what `judge.nothing_to_judge`, `ask`, `land.take` and `execute` do in general, without a detour. Whatever
is not ordinary is theirs: `cruise` returns before a turn that may not be ordinary, with a reply that is not, and calls
them itself where something unusual comes up in between. The architecture page lists the pairs; random flights with
`Run.cruises` on and off must have the same events, results and journals (`tests/properties/test_straight_line.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from glidepath.ask import answered_well, ask, gave_up, noted, request_for, spoiled, unsent
from glidepath.ask.attempt import Attempt, pump
from glidepath.ask.booking import BYTES_PER_TOKEN, PIECE, UNBOUNDED, Booking, overfull
from glidepath.ask.usage import fees, settled
from glidepath.errors import ModelError
from glidepath.events import (
    BudgetReserved,
    BudgetSettled,
    MessageAdded,
    StreamChunk,
    StreamStarted,
    TurnEnded,
    TurnStarted,
)
from glidepath.execute import alone
from glidepath.judge import AFTER_MODEL, AFTER_TOOLS, judge
from glidepath.ledger import Reservation
from glidepath.messages import visible
from glidepath.resilience import MARK_EVERY
from glidepath.run import HIGH_WATER, interruptible

if TYPE_CHECKING:
    from glidepath.run import Run

__all__ = ["DELIVERED", "cruise"]

DELIVERED: Final[Any] = object()
"""What `cruise` returns when the tools of a turn have ended the run."""


async def cruise(run: Run) -> Any:  # noqa: C901, PLR0911, PLR0912, PLR0915 - a straight line: read it from top to bottom
    """Fly turn after turn while they are ordinary.

    Returns None before a turn that may not be, a `Reply` that is not, or `DELIVERED` when a tool has ended the run.
    """
    plan, watch, meter = run.plan, run.watch, run.meter
    health, specs, tools, window = plan.health, plan.specs, plan.ordinary_tools, plan.context_window
    cap, fixed, price = plan.max_output_tokens, plan.fixed_tokens, plan.price
    want = plan.first_output_tokens if cap is None else cap
    size = max(1, want * BYTES_PER_TOKEN - PIECE) if meter.limited else UNBOUNDED
    transcript, turn, answer, spend = run.transcript, run.turn, run.answer, run.spend
    descent, voice = run.descent, run.voice
    run_id, parent_id, now, time = run.run_id, voice.parent_id, voice.now, watch.time
    tell: Any = voice.tell_all
    outbox, chunks, turns = voice.outbox, voice.chunks, voice.turns
    number = voice.next_number
    burnt, journal = spend.burnt.extend, run.journal
    near = None if meter.parent is None else meter.near_budget
    failed, paid = None, 0
    request: Any = None
    sent: Any = None  # the view that the request shows
    while run.cruises:
        # --- may it be ordinary? (judge.nothing_to_judge; what ask looks at first)
        if (
            meter.attention
            or watch.interrupt is not None
            or descent.begun
            or meter.turns >= descent.soft_turns
            or time() >= descent.soft_at
            or transcript.waiting
            or transcript.later
            or turn.allowed is not None
            or spend.first_call is not None
            or transcript.picture_bytes
            or health.alert
            or (outbox is not None and len(outbox) >= HIGH_WATER)
            or (window is not None and overfull(run, window) is not None)
            or (near is not None and near())
        ):
            return None
        # --- reserve: `book` in ask.booking
        view = transcript.view
        shown = transcript.view_tokens
        count = transcript.anchor + shown
        held = meter.reserve(count + want, 0 if price is None else count * price.worst_input + want * price.output)
        if held.__class__ is not Reservation:
            return None
        booking = Booking(held, count, want, cap, price, fixed + shown, size)
        # --- the turn and its one attempt begin (Run.open_turn, _Call.begin)
        turn.begin()
        if tell is not None:
            at = now()
            if turns:
                tell(TurnStarted(run_id, parent_id, number(), at, turn.iterations + 1))
            else:
                number()  # nobody wants it, and the others have the numbers they always have
        if journal is not None:
            await noted(run, booking)
            at = now()
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
            money = held.money if price is not None else None
            tell(BudgetReserved(run_id, parent_id, number(), at, held.tokens, money, cap))
            tell(StreamStarted(run_id, parent_id, number(), at, plan.model_name, 1, False))
        attempt = Attempt()
        if (watch.interrupt is not None or watch.above is not None or watch.called_off is not None) and watch.halted():
            unsent(run, attempt, booking, view)
        watch.showing = attempt.parts
        watch.scope_hit = False
        try:
            await interruptible(pump(run, plan.model, request, attempt, booking), watch)
        except BaseException as error:
            failed = gave_up(run, attempt, booking, view, error)
            # a stream that was let go has the old ones
            tell, outbox, number = voice.tell_all, voice.outbox, voice.next_number
        if failed is not None:
            return await ask(run, begun=failed)
        # --- settle: `_Call.settle` in ask
        watch.calm()
        end = attempt.end
        arrived = time()
        if attempt.calls and arrived >= watch.window_at:
            watch.open_window()
        usage = settled(run, None if end is None else end.usage, booking, view, attempt)
        given = usage.input
        spent = given + usage.output
        if given > health.sent:  # noqa: PLR1730 - quicker
            health.sent = given
        if price is not None:
            paid = price.cost(usage)
            if price.web_search:
                paid += fees(price, attempt)
        held.settle(spent, paid)
        spend.pay(usage, paid)
        if not usage.estimated:
            transcript.learn(given - shown)  # as the general form: the estimate was `fixed + shown`
        if tell is not None:
            at = now()
            if chunks:
                tell(StreamChunk(run_id, parent_id, number(), at, "", True))
            refunded = held.tokens - spent
            if refunded < 0:  # noqa: PLR1730 - quicker
                refunded = 0
            tell(BudgetSettled(run_id, parent_id, number(), at, usage, paid if price is not None else None, refunded))
        # --- the reply, and its tool (Attempt.reply, execute.calls.prepare)
        if health.alert:
            answered_well(run)
        try:
            reply = attempt.reply(run, usage)
        except ModelError as error:
            failed = spoiled(run, usage, error)
        if failed is not None:
            return await ask(run, begun=failed)
        calls = reply.calls
        if len(calls) != 1 or reply.truncated or reply.refused or reply.cut or answer.parts:
            return reply
        call = calls[0]
        tool = tools.get(call.name)
        if tool is None or call.malformed is not None or tool.breaker is not None:
            return reply
        # --- it joins the transcript (land.take, Run.add)
        text = reply.text
        message = reply.message
        burnt((arrived, meter.tokens, meter.money, meter.turns, meter.tool_calls))
        turn.take_call(message)
        if text[:1].isalnum() or visible(text):
            answer.replace_text(text)
        transcript.join(message, reply.size)  # type: ignore[arg-type] # known: our own estimate measures
        if tell is not None:
            tell(MessageAdded(run_id, parent_id, number(), at, message))
        # --- the tool runs, and the turn ends (judge.nothing_to_judge, execute, Run.close_turn)
        if meter.attention or watch.interrupt is not None:
            # Constraints see the run as it is: after the reply, before its tools.
            turn.end_tools(AFTER_MODEL)  # they have not begun
            await judge(run, AFTER_MODEL)
            turn.start_tools()
        if await alone(run, calls, tool):
            turn.end_tools(AFTER_MODEL)
            run.close_turn()
            return DELIVERED
        if meter.attention or watch.interrupt is not None or descent.verdict is not None:
            turn.end_tools(AFTER_TOOLS)
            await judge(run, AFTER_TOOLS)
        turn.close(AFTER_TOOLS)
        if tell is not None:
            if turns:
                tell(TurnEnded(run_id, parent_id, number(), now(), turn.iterations, message, turn.results))
            else:
                number()
    return None
