"""The landing call: one reply without tools, from the reserve, within the landing time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.ask import ask
from glidepath.errors import ModelError
from glidepath.execute import answer_open_calls
from glidepath.landing.last_words import not_executed
from glidepath.landing.reserve import book_landing
from glidepath.messages import visible
from glidepath.outcome import ResultKind

if TYPE_CHECKING:
    from glidepath.run import Run, Verdict


async def landing_call(run: Run, verdict: Verdict) -> bool:
    """One call without tools, from the reserve, within the landing time. True when it answered."""
    watch = run.watch
    # The landing has its own deadline; the window that may have brought us here must not end it again.
    watch.land_by(run.watch.time() + run.plan.config.limits.landing_time)
    if run.descent.notice is None:
        run.descent.give_notice(verdict.cause)
    run.admit()
    run.tell("wind_down", verdict.cause.source, run.plan.landing_notice)
    run.descent.call_landing()
    try:
        reply = await ask(run, landing=book_landing)
    except ModelError:
        return False
    # Not a turn: the limit on turns may be what brought us here.
    run.turn.take_landing(reply.message)
    run.spend.mark(watch.time(), run.meter)
    run.add(reply.message)
    answer_open_calls(run, ResultKind.WITHDRAWN, not_executed(run, "no more tools can be called"))
    answered = visible(reply.text) and not reply.truncated and not reply.calls  # a tool call is not an answer
    if not reply.truncated or len(reply.text) > len(run.answer.text):
        run.answer.keep_text(reply.text)
    return answered
