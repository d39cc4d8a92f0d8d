"""Limits of a whole conversation: the meter of a run starts where earlier runs of the session stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath._wire import replace
from glidepath.agent.limits import Limits
from glidepath.agent.route import add_prices
from glidepath.kernel import write_pause
from glidepath.run import Caps, Meter, find_paused_child, pico, restore_meter
from glidepath.values import (
    NOT_CARRIED,
    AgentState,
    AssistantMessage,
    Carried,
    ConfigurationError,
    RunResult,
    SessionStand,
    ToolCall,
    ToolResultMessage,
    Unknown,
    share_of,
)

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig
    from glidepath.run import Plan, Resumption
    from glidepath.sessions import Session
    from glidepath.values import Snapshot, Texts

_RESOURCES = ("tokens", "money", "turns", "tool_calls")


def _check_session_limits(home: Session, snapshot: Snapshot | None) -> SessionStand | None:
    """The limits of the session itself, checked; by default those a resumed run began with."""
    limits = home.limits
    known = None if snapshot is None else snapshot.carried.session
    if limits is None:
        return known
    if not isinstance(limits, Limits):
        raise ConfigurationError(
            f"Session.limits must be a Limits such as Limits(max_iterations=10), not {type(limits).__name__}"
        )
    for field in ("max_iterations", "timeout"):
        if getattr(limits, field) is not None:
            raise ConfigurationError(
                f"the limits of a Session bound max_tokens, max_cost and max_tool_calls, not {field}: put it into the "
                "limits of the agent, with scope='session' if it is meant for the whole conversation"
            )
    caps = limits.caps()
    return replace(
        known or SessionStand(), max_tokens=caps.tokens, max_money=caps.money, max_tool_calls=caps.tool_calls
    )


def _sum_earlier_runs(home: Session, run_id: str | None) -> Carried:
    """What the runs before this one have used."""
    totals, last = home.totals, home.last
    tokens, cost, turns, calls = totals.usage.total, totals.cost, totals.turns, totals.all_tool_calls
    if last is not None and last.run_id == run_id:
        tokens -= last.usage.total
        cost = None if cost is None else cost - (last.cost or 0)
        turns -= last.all_turns
        calls -= last.all_tool_calls
    money = 0 if cost is None or cost < 0 else pico(cost, field="cost")
    return Carried(tokens=max(0, tokens), money=money, turns=max(0, turns), tool_calls=max(0, calls))


def take_over(
    plan: Plan, home: Session, above: Meter | None, resumed: Resumption | None, depth: int, *, limited_together: bool
) -> tuple[Plan, Meter, Carried]:
    """The meter of a run that does not begin at zero: it continues, or all runs of its session are limited together."""
    then = None if resumed is None else resumed.snapshot
    earlier = NOT_CARRIED if then is None else then.carried
    if limited_together or earlier != NOT_CARRIED:
        plan, meter, carried = prepare_conversation(plan, home, above, then, depth)
    else:
        meter, carried = Meter(plan.caps, above, depth), earlier
    if then is not None:
        restore_meter(meter, then)
        rejoin_queue(above if depth == 0 else None, resumed)
    carry_into_meter(meter, carried, earlier)
    return plan, meter, carried


def prepare_conversation(
    plan: Plan, home: Session, above: Meter | None, snapshot: Snapshot | None = None, depth: int = 0
) -> tuple[Plan, Meter, Carried]:
    """The meter of a run in a conversation that is limited as a whole, and what is in it from earlier runs.

    Limits with the scope of a session are those of the run's own meter, which begins where the last run ended. The
    limits of the session itself are a meter above it, as a shared budget is.
    """
    config = plan.config
    before = _sum_earlier_runs(home, None if snapshot is None else snapshot.run_id)
    stand = _check_session_limits(home, snapshot)
    if stand is not None:
        if stand.max_money is not None:
            plan = add_prices(plan, config)
        stand = replace(
            stand,
            tokens=max(stand.tokens, before.tokens),
            money=max(stand.money, before.money),
            tool_calls=max(stand.tool_calls, before.tool_calls),
        )
        above = _session_meter(stand, config, above, snapshot)
    meter, carried = Meter(plan.caps, above, depth=depth), {}
    if config.limits.scope == "session":
        limited = [name for name in _RESOURCES if getattr(plan.caps, name) is not None]
        then = NOT_CARRIED if snapshot is None else snapshot.carried
        carried = {name: max(getattr(before, name), getattr(then, name)) for name in limited}
    return plan, meter, Carried(**carried, session=stand)


def _session_meter(stand: SessionStand, config: LoopConfig, above: Meter | None, snapshot: Snapshot | None) -> Meter:
    node = Meter(Caps(tokens=stand.max_tokens, money=stand.max_money, tool_calls=stand.max_tool_calls), above, depth=-1)
    node.tokens, node.money, node.tool_calls = stand.tokens, stand.money, stand.tool_calls
    if snapshot is not None:  # what the run itself had used
        then = snapshot.carried
        node.tokens += snapshot.tokens - then.tokens
        node.money += snapshot.picodollars - then.money
        node.tool_calls += snapshot.metered_tool_calls - then.tool_calls
    node.warn_near(config.guardrails.reserve_tokens, share_of(stand.max_money or 0, config.guardrails.cost_reserve))
    return node


def answer_begun_calls(home: Session, texts: Texts) -> tuple[ToolCall, ...]:
    """Answer the calls that had begun and then waited for a person, when a new prompt comes instead: unknown."""
    last = home.last
    if last is None or home.state is not AgentState.WAITING_FOR_INPUT:
        return ()
    programs = {} if last.snapshot is None else last.snapshot.programs
    asked = [one.call for one in last.pending if one.form is not None and not one.inside]
    begun = (*asked, *[program.call for program in programs.values()])
    _give_up_children(home, last, texts)
    text = texts.fill("unfinished", reason="a new prompt came instead of an answer")
    details = Unknown.NOT_CONTINUED.details()
    home.messages += [
        ToolResultMessage(call.id, call.name, text, is_error=True, kind="unknown_effect", details=details)
        for call in begun
    ]
    return begun


def _give_up_children(home: Session, last: RunResult, texts: Texts) -> None:
    """Answer the calls whose children wait for a person: what those have done is known, and they do not continue."""
    calls = next((one.tool_calls for one in reversed(home.messages) if type(one) is AssistantMessage), ())
    for call in calls:
        paused = find_paused_child(last.pending, call.id, {})
        if paused is not None:
            text = write_pause(paused.pending, texts)
            home.messages.append(ToolResultMessage(call.id, call.name, text, is_error=True, kind="paused"))


def rejoin_queue(above: Meter | None, resumed: Resumption | None) -> None:
    """Charge a budget for the calls that were queued when the process died: the budget of that process is gone."""
    queued = 0 if resumed is None else len(resumed.counted)
    for _ in range(queued if above is not None else 0):
        above.charge_tool_call()  # type: ignore[union-attr]


def carry_into_meter(meter: Meter, carried: Carried, earlier: Carried = NOT_CARRIED) -> None:
    """Put what earlier runs have used into the meter of a run; `earlier` is what is in it already."""
    if carried is earlier:  # nearly always
        return
    meter.count_from(
        meter.tokens + carried.tokens - earlier.tokens,
        meter.money + carried.money - earlier.money,
        turns=meter.turns + carried.turns - earlier.turns,
        tool_calls=meter.tool_calls + carried.tool_calls - earlier.tool_calls,
        descendants=meter.descendants,
    )
