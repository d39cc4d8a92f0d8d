"""The one step in which a run is prepared: a request, a plan and a session become a run that is ready to start.

A plain run walks straight through it. What only some runs have, a budget, a parent, a conversation that is limited as a
whole, an earlier part, is a branch.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record
from glidepath.agent.conversation import answer_begun_calls, take_over
from glidepath.agent.per_run import NOTHING, Given, deps_for, make_run_constraints
from glidepath.agent.route import add_prices
from glidepath.kernel.landing.reserve import (
    can_pay_landing,
    cap_reserve,
    is_enough_to_land,
    landing_reserve,
    smallest_landing_reserve,
)
from glidepath.run import (
    LONG,
    Amount,
    CancelToken,
    Meter,
    Plan,
    Resumption,
    Run,
    RunStream,
    TranscriptStats,
    Watch,
    make_no_loop_error,
    open_state,
)
from glidepath.sessions import Session
from glidepath.values import NOT_CARRIED, AgentState, ConfigurationError, Message

if TYPE_CHECKING:
    from glidepath.agent.limits import Budget, Limits
    from glidepath.agent.wallet_client import WalletClient
    from glidepath.values import Carried


class RunRequest(Record, eq=False):
    """What a run is started with, by its caller; made for one run."""

    prompt: Any
    """Messages, once they have been checked; none for a run that continues."""
    session: str | Session | None = None
    cancel: CancelToken | None = None
    budget: Budget | WalletClient | None = None
    """What it spends from beside its own limits."""
    given: Given = NOTHING
    stream: RunStream | None = None
    limits: Limits | None = None
    """Those of a child, or of a run that continues, instead of its agent's."""

    def with_stream(self, stream: RunStream) -> RunRequest:
        """The same run with its events."""
        self.stream = stream
        return self


def prepare(
    asked: RunRequest,
    plan: Plan,
    home: Session,
    *,
    began: float | None = None,
    parent: Run | None = None,
    resumed: Resumption | None = None,
) -> Run:
    """A run that is ready to start, in the task that will run it. `began`: its time counts from here, not from now.

    With a `parent` it is a child: on its budget or the part of it that was asked for, and within its time.
    """
    try:
        now = began or asyncio.get_running_loop().time()
    except RuntimeError:  # the first place on the way of every run that asks for the loop
        raise make_no_loop_error() from None
    until, above, depth, watch, elapsed = inf, None, 0, None, 0.0
    if asked.budget is not None:
        until, above = asked.budget.deadline(now), asked.budget.meter
    if parent is not None:
        watch, depth, above = parent.watch, parent.meter.depth + 1, above or parent.meter
        until = min(until, _end_of(watch, now))
    if plan.roster is not None or resumed is not None:
        plan = _take_speaker(plan, home, resumed)
    if above is not None and any(node.caps.money is not None for node in above.lineage):
        plan = add_prices(plan, plan.config)  # it spends from a budget that limits money
    if resumed is not None:
        elapsed = max(0.0, resumed.snapshot.elapsed)
    limited_together = plan.config.limits.scope == "session" or home.limits is not None
    if limited_together or resumed is not None:
        plan, meter, carried = take_over(plan, home, above, resumed, depth, limited_together=limited_together)
    else:
        meter, carried = Meter(plan.caps, above, depth), NOT_CARRIED
    watch = watch_over(plan, meter, now, until, elapsed, watch)
    return open_run(asked, plan, home, meter, watch, parent, resumed, carried=carried)


def _take_speaker(plan: Plan, home: Session, resumed: Resumption | None) -> Plan:
    """The plan of the agent that has the conversation: the one that it was handed to last."""
    from glidepath.agent.handoffs import take_speaker

    return take_speaker(plan, home.messages, resumed=resumed is not None)


def _end_of(above: Watch, now: float) -> float:
    """When the time of the run above is up, on the clock of this loop."""
    ahead = 0.0 if asyncio.get_running_loop() is above.loop else now - above.time()
    return min(above.window_at, above.deadline_at) + ahead


def watch_over(
    plan: Plan, meter: Meter, now: float, shared: float, elapsed: float = 0.0, above: Watch | None = None
) -> Watch:
    """The watch of a run: its own deadline or the one above, whichever comes first, and the kill switches."""
    own = inf if plan.timeout is None else now - elapsed + plan.timeout
    deadline = min(own, shared)
    # On a deadline from above the landing takes a quarter at most: a child that starts late must have time to work.
    landing = plan.landing_time if deadline == own else min(plan.landing_time, max(0.0, deadline - now) / 4)
    window = deadline - landing if deadline < inf else inf
    watch = Watch(window_at=window, deadline_at=deadline, above=above, meter=meter)
    if plan.switches:
        from glidepath.run import SpendGate

        watch.post(SpendGate(watch, plan.switches, plan.config.kill_switch_grace))
    return watch


def open_run(
    asked: RunRequest,
    plan: Plan,
    home: Session,
    meter: Meter,
    watch: Watch,
    parent: Run | None = None,
    resumed: Resumption | None = None,
    *,
    carried: Carried = NOT_CARRIED,
) -> Run:
    """A run with its budget, ready to start; no timer is left behind if anything fails."""
    try:
        if home.flight is not None:
            raise ConfigurationError(f"session {home.id!r} has a run in flight; wait for it or use another session")
        run_id = make_id("run", watch.loop) if resumed is None else resumed.snapshot.run_id
        plan = make_run_constraints(plan) if plan.custom else plan
        deps = asked.given.deps
        if plan.deps_needed or plan.config.deps_factory is not None:
            deps = deps_for(plan, asked.given, home.id)
        begun = answer_begun_calls(home, plan.config.texts) if resumed is None and home.last is not None else ()
        survey = _measure_transcript(plan, home, new=resumed is None) if home.messages else None
        # What is resumed pays the landing for the task and what is pinned, as when it began: the rest can be left out.
        task = asked.prompt if resumed is None else [home.messages[place] for place in resumed.snapshot.pinned]
        used = resumed is not None or meter.tokens or meter.money  # some of it: by the run, or earlier ones
        reserve, paid = _hold_landing(plan, task, meter, used=bool(used))
        run = open_state(
            plan,
            run_id=run_id,
            parent_id=None if parent is None else parent.run_id,
            session_id=home.id,
            messages=home.messages,
            metadata=home.metadata,
            meter=meter,
            watch=watch,
            landing_reserve=reserve,
            landing_paid=paid,
            deps=deps,
            stream=asked.stream,
            resumed=resumed,
            per_run=asked.given.per_run,
            survey=survey,
        )
        if begun:
            run.work.mark_unknown(begun)
        if meter.parent is not None:  # it may have to wait for what is above it, and start with a smaller reserve
            run.spend.keep_at_least(smallest_landing_reserve(plan, reserve))
        if plan.strategy.name == "summarize":
            _recall_summary(run)
    except BaseException:
        watch.stop_timer()  # or its timer would interrupt the caller long after
        raise
    # Last: a run that could not be opened must not block its session.
    home.flight = run
    if asked.stream is not None:
        asked.stream.run = run
        watch.wake(asked.stream)
    if resumed is not None or carried is not NOT_CARRIED or asked.cancel is not None:
        run.terms.accept(carried, asked.cancel)
    return run


def _recall_summary(run: Run) -> None:
    from glidepath.kernel.model_call.summary import recall  # left by an earlier run

    recall(run)


def _hold_landing(plan: Plan, task: Sequence[Message], meter: Meter, *, used: bool) -> tuple[Amount, bool]:
    """Keep back what the landing call will need; and whether that pays for one."""
    reserve = landing_reserve(plan, task, meter)
    if used:
        reserve = cap_reserve(reserve, meter)
    paid = plan.caps.money is None or can_pay_landing(plan, reserve)
    if used:
        paid = paid and is_enough_to_land(plan, reserve, meter)
    meter.hold_landing(reserve, plan.config.guardrails.reserve_tokens, plan.near_money)
    return reserve, paid


def _measure_transcript(plan: Plan, home: Session, *, new: bool) -> TranscriptStats:
    """What is known of the messages. For a new run they are made whole; where there are many, the session keeps it."""
    if not new:
        return TranscriptStats.of(home.messages, plan)
    if len(home.messages) >= LONG:
        survey = home.survey = home.survey or TranscriptStats()
        if survey.take_new_messages(home.messages, plan):
            return survey
    not_decided = home.state is AgentState.WAITING_FOR_INPUT
    repaired = plan.repair(home.messages, keep_custom=True, not_decided=not_decided)
    if repaired is not home.messages:
        home.messages[:] = repaired
    return TranscriptStats.of(home.messages, plan)


def make_id(what: str, loop: asyncio.AbstractEventLoop) -> str:
    """A unique id; the simulator makes its own, so that a flight can be repeated."""
    seeded = getattr(loop, "new_id", None)
    return f"{what}_{os.urandom(8).hex() if seeded is None else seeded()}"
