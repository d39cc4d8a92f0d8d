"""Ordinary turns, flown in a straight line: one model call, one tool call, no limit near, and nobody else with a say.

Nearly all turns of nearly all runs are like that, and what a turn costs is the number of steps it takes. So this is a
second form of what `judge.smooth`, `ask`, `land.take` and `execute` do in general, written without a detour. Whatever
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
from glidepath.judge import AFTER_MODEL, AFTER_TOOLS, PRE_FLIGHT, judge
from glidepath.ledger import Reservation
from glidepath.messages import visible
from glidepath.outcome import AgentState
from glidepath.resilience import MARK_EVERY
from glidepath.run import HIGH_WATER, tether

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
    health, specs, tools, terminal = plan.health, plan.specs, plan.tools, plan.terminal_tools | plan.hands
    cap, fixed, price = plan.max_output_tokens, plan.fixed_tokens, plan.price
    want = plan.first_output_tokens if cap is None else cap
    size = max(1, want * BYTES_PER_TOKEN - PIECE) if meter.limited else UNBOUNDED
    run_id, parent_id, now, time = run.run_id, run.parent_id, run.now, run.time
    tell: Any = run.tell_all
    outbox = run.outbox
    while run.cruises:
        # --- may it be ordinary? (judge.smooth; what ask looks at first)
        run.checkpoint = PRE_FLIGHT
        if (
            meter.attention
            or watch.interrupt is not None
            or run.verdict is not None
            or run.notice is not None
            or run.wind_down is not None
            or meter.turns >= run.soft_turns
            or time() >= run.soft_at
            or run.waiting
            or run.later
            or run.withdrawn
            or run.allowed is not None
            or run.first_call is not None
            or run.picture_bytes
            or health.alert
            or (outbox is not None and len(outbox) >= HIGH_WATER)
            or (plan.context_window is not None and overfull(run, plan.context_window) is not None)
            or (meter.parent is not None and meter.near_budget())
        ):
            return None
        # --- reserve: `book` in ask.booking
        view, count = run.view, run.anchor + run.view_tokens
        held = meter.reserve(count + want, 0 if price is None else count * price.worst_input + want * price.output)
        if held.__class__ is not Reservation:
            return None
        booking = Booking(held, count, want, cap, price, fixed + run.view_tokens, size)
        # --- the turn and its one attempt begin (Run.open_turn, _Call.begin)
        run.reply = None
        run.results = ()
        run.turn_open = True
        number = run.next_number
        if tell is not None:
            at = now()
            tell(TurnStarted(run_id, parent_id, number(), at, run.iterations + 1))
        if run.journal is not None:
            await noted(run, booking)
            at = now()
        health.calls = count = health.calls + 1
        if not count % MARK_EVERY:
            health.mark(time())
        request = run.request
        if (
            request is None
            or request.messages is not view
            or request.tools is not specs
            or request.max_output_tokens != cap
        ):
            run.request = request = request_for(run, specs, view, cap)
        if tell is not None:
            money = held.money if price is not None else None
            tell(BudgetReserved(run_id, parent_id, number(), at, held.tokens, money, cap))
            tell(StreamStarted(run_id, parent_id, number(), at, plan.model_name, 1, False))
        attempt = Attempt()
        if (watch.interrupt is not None or watch.above is not None or watch.called_off is not None) and watch.halted():
            unsent(run, attempt, booking, view)
        watch.showing = attempt.parts
        watch.scope_hit = False
        failed = None
        try:
            await tether(pump(run, plan.model, request, attempt, booking), watch)
        except BaseException as error:
            failed = gave_up(run, attempt, booking, view, error)
            tell, outbox, number = (
                run.tell_all,
                run.outbox,
                run.next_number,
            )  # a stream that was let go has the old ones
        if failed is not None:
            return await ask(run, begun=failed)
        # --- settle: `_Call.settle` in ask
        watch.calm()
        end = attempt.end
        if attempt.calls and time() >= watch.window_at:
            watch.open_window()
        usage = settled(run, None if end is None else end.usage, booking, view, attempt)
        given = usage.input
        spent = given + usage.output
        if given > health.sent:  # noqa: PLR1730 - quicker
            health.sent = given
        paid = 0
        if price is not None:
            paid = price.cost(usage)
            if price.web_search:
                paid += fees(price, attempt)
            run.money += paid
        held.settle(spent, paid)
        run.account.add(usage, paid)
        if not usage.estimated:
            run.anchor = given - booking.estimate + fixed
        if tell is not None:
            at = now()
            if run.chunks:
                tell(StreamChunk(run_id, parent_id, number(), at, "", True))
            refunded = held.tokens - spent if held.tokens > spent else 0
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
        if len(calls) != 1 or reply.truncated or reply.refused or reply.cut or run.parts:
            return reply
        call = calls[0]
        tool = tools.get(call.name)
        if tool is None or tool.isolation != "inline" or call.malformed is not None or tool.breaker is not None:
            return reply
        if tool.name in terminal:
            return reply
        # --- it joins the transcript (land.take, Run.add)
        text, message = reply.text, reply.message
        tokens: Any = reply.size  # known: our own estimate measures
        run.iterations += 1
        run.reply = message
        run.stop_reason = message.stop_reason
        if text[:1].isalnum() or visible(text):
            run.text = text
        run.messages.append(message)
        run.sizes.append(tokens)
        if view is not run.messages:
            view.append(message)
        run.view_tokens += tokens
        if tell is not None:
            tell(MessageAdded(run_id, parent_id, number(), at, message))
        # --- the tool runs, and the turn ends (judge.smooth, execute, Run.close_turn)
        run.checkpoint = AFTER_MODEL
        if meter.attention or watch.interrupt is not None:
            await judge(run, AFTER_MODEL)
        run.state = AgentState.WAITING_FOR_TOOL
        if await alone(run, calls, tool):
            run.state = AgentState.RUNNING
            run.close_turn()
            return DELIVERED
        run.state = AgentState.RUNNING
        run.checkpoint = AFTER_TOOLS
        if meter.attention or watch.interrupt is not None or run.verdict is not None:
            await judge(run, AFTER_TOOLS)
        if tell is not None:
            tell(TurnEnded(run_id, parent_id, number(), now(), run.iterations, message, run.results))
        run.turn_open = False
    return None
