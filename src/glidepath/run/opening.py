"""How a run begins: its parts, its guards, its clock, and who listens."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Any

from glidepath.ledger import Amount, Meter
from glidepath.messages import Message
from glidepath.outcome import PerRun
from glidepath.run.account import Account, Spending
from glidepath.run.descent import Audit, Descent
from glidepath.run.inside import SideWork
from glidepath.run.plan import Plan
from glidepath.run.run_transcript import AnswerSoFar, CurrentTurn, Transcript
from glidepath.run.snapshot import Resumption, restore
from glidepath.run.state import Run
from glidepath.run.survey import Survey
from glidepath.run.terms import RunGuards, Terms
from glidepath.run.voice import Consumer, Voice, counter
from glidepath.run.watch import Watch

if TYPE_CHECKING:
    from glidepath.plugins.observer import Audience


def open_state(
    plan: Plan,
    *,
    run_id: str,
    parent_id: str | None,
    session_id: str,
    messages: list[Message],
    metadata: dict[str, Any],
    meter: Meter,
    watch: Watch,
    landing_reserve: Amount,
    landing_paid: bool,
    deps: object,
    stream: Consumer | None,
    resumed: Resumption | None,
    per_run: PerRun | None,
    survey: Survey,
) -> Run:
    """A run that is ready to start. `survey`: what is known of all its messages."""
    again, first_new = resumed is not None, len(messages)
    run = Run(
        run_id=run_id,
        plan=plan,
        meter=meter,
        watch=watch,
        hooks=plan.lineup.for_run(),
        guards=RunGuards.of(
            plan.make_guards(metadata, resumed=again), plan.known_stop_guards(metadata, resumed=again), metadata
        ),
        terms=Terms(session_id=session_id, started_at=watch.time(), deps=deps),
        transcript=Transcript(
            messages=messages,
            sizes=survey.sizes.copy(),
            view=messages,
            anchor=plan.fixed_tokens,
            first_new=first_new,
            call_ids={},
        ),
        turn=CurrentTurn(),
        answer=AnswerSoFar(),
        spend=Spending(account=Account(), landing_reserve=landing_reserve, landing_paid=landing_paid, burnt=array("d")),
        descent=Descent(),
        audit=Audit(),
        work=SideWork(),
        voice=Voice(
            run_id=run_id,
            parent_id=parent_id,
            now=getattr(watch.loop, "epoch", time.time),
            next_number=counter(1),
        ),
    )
    _start_clock(run)
    run.transcript.open(survey, first_new if resumed is None else resumed.snapshot.first_new)
    run.voice.attend(stream, _audience(run))
    if resumed is not None:
        restore(run, resumed)
    run.terms.settle(plan, per_run)
    run.look_around()
    return run


def _start_clock(run: Run) -> None:
    window, deadline = run.watch.window_at, run.watch.deadline_at
    soft_at = window - min(run.plan.config.limits.landing_time, deadline - window) if window < deadline else window
    limit = run.plan.soft_limit
    run.descent.expect(soft_at, run.meter.turns_wire if limit is None else limit.earliest())


def _audience(run: Run) -> Audience | None:
    """The listeners, except the consumer of a stream."""
    sink = run.plan.config.event_sink
    if not run.hooks.observers and sink is None:
        return None
    from glidepath.plugins.observer import Observer
    from glidepath.plugins.sole_listener import audience_of

    observers = [Observer(name, plugin, run.hook_failed) for name, plugin in run.hooks.observers]
    return audience_of(sink, observers, run.hook_failed, by_hand=run.interrupted_by_hand)
