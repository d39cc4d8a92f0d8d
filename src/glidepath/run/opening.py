"""How a run begins: its guards, its clock, its transcript, and who listens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from glidepath._wire import frozen, replace
from glidepath.events import Event
from glidepath.ledger import Amount, Meter
from glidepath.messages import AssistantMessage, Message, UserMessage
from glidepath.outcome import PerRun
from glidepath.plugins.observer import Audience, Observer
from glidepath.run.account import Account
from glidepath.run.plan import Plan
from glidepath.run.snapshot import Resumption, restore
from glidepath.run.state import Run
from glidepath.run.unseen import NEVER_SENT, is_notice, sendable, transcript
from glidepath.run.watch import Watch
from glidepath.tools.picture_size import LEAST_PICTURE_TOKENS, picture_bytes

__all__ = ["open_state"]

PLAIN_CHOICES = ("auto", "required", "none")


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
    stream: Any = None,
    resumed: Resumption | None = None,
    per_run: PerRun | None = None,
) -> Run:
    """A run that is ready to start."""
    run = Run(
        plan=plan,
        run_id=run_id,
        parent_id=parent_id,
        session_id=session_id,
        meter=meter,
        watch=watch,
        hooks=plan.lineup.for_run(),
        landing_reserve=landing_reserve,
        time=watch.time,
        now=getattr(watch.loop, "epoch", time.time),
        started_at=watch.time(),
        messages=messages,
        sizes=[plan.size_of(message) for message in messages],
        view=messages,
        first_new=len(messages),
        call_ids={},
        account=Account(),
        next_number=count(1).__next__,
        stream=stream,
    )
    _start_guards(run, metadata, resumed=resumed is not None)
    _start_clock(run)
    _start_transcript(run, run.first_new if resumed is None else resumed.snapshot.first_new)
    _start_listeners(run, None if stream is None else stream.outbox)
    if resumed is not None:
        restore(run, resumed)
    _take_per_run(run, run.per_run or per_run)
    run.look_around()
    return run


def _take_per_run(run: Run, given: PerRun | None) -> None:
    """What this run alone was given, on top of the agent's settings."""
    plan = run.plan
    run.extras, run.tool_choice = plan.extras, plan.tool_choice
    if given is None:
        return
    run.per_run = replace(
        given,
        extras=None if given.extras is None else frozen(dict(given.extras)),
        metadata=None if given.metadata is None else frozen(dict(given.metadata)),
    )
    if given.extras is not None:
        run.extras = frozen(_merged(plan.extras or {}, given.extras))
    if given.tool_choice in PLAIN_CHOICES or given.tool_choice in plan.tool_names:  # it may have been another agent's
        run.tool_choice = given.tool_choice


def _merged(extras: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the run on top; None takes the agent's out, or the adapter's own field where the agent has none."""
    taken_out = {key for key, value in given.items() if value is None and key in extras}
    return {key: value for key, value in {**extras, **given}.items() if key not in taken_out}


def _start_guards(run: Run, metadata: dict[str, Any], *, resumed: bool) -> None:
    run.guard_home = metadata
    run.stop_guards = run.plan.known_stop_guards(metadata, resumed=resumed)
    guards = run.plan.make_guards(metadata, resumed=resumed)
    run.before_guards = tuple([guard for guard in guards if guard.before is not None])
    run.after_guards = tuple([guard for guard in guards if guard.after is not None])


def _start_clock(run: Run) -> None:
    window, deadline = run.watch.window_at, run.watch.deadline_at
    run.soft_at = window - min(run.plan.times.landing, deadline - window) if window < deadline else window
    limit = run.plan.soft_limit
    run.soft_turns = run.meter.turns_wire if limit is None else limit.earliest()


def _start_transcript(run: Run, first_new: int) -> None:
    messages = run.messages
    told = [place for place, message in enumerate(messages[:first_new]) if is_notice(message)]
    if told:
        run.stale = frozenset(told)
    if told or any(type(message) in NEVER_SENT for message in messages):
        run.view = sendable(transcript(run)[0])
    run.view_tokens = sum(transcript(run)[1])
    run.picture_bytes = sum(
        [
            picture_bytes(getattr(message, "content", ""))
            for message, size in zip(messages, run.sizes, strict=True)
            if size >= LEAST_PICTURE_TOKENS
        ]
    )
    run.anchor = run.plan.fixed_tokens
    run.call_ids = {call.id: None for m in messages if type(m) is AssistantMessage for call in m.tool_calls}
    for index, message in enumerate(messages):
        if type(message) is UserMessage and not message.internal:
            run.pinned = (index,)
            break


def _start_listeners(run: Run, outbox: list[Event] | None) -> None:
    if run.hooks.observers or run.plan.sink is not None:
        observers = [Observer(name, plugin, run.hook_failed) for name, plugin in run.hooks.observers]
        run.audience = Audience(run.plan.sink, observers, run.hook_failed, by_hand=run.interrupted_by_hand)
        run.audience.outbox = outbox
        run.tell_all = run.audience
        run.chunks = outbox is not None or run.audience.wants_chunks
    elif outbox is not None:
        run.chunks = True
        run.tell_all = outbox.append
    if outbox is not None:
        run.outbox = outbox
    if run.tell_all is not None:
        run.listening = True
