"""Over a pause, a crash or a limit: what a run carries over, and how it goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Record, replace
from glidepath.errors import ConfigurationError
from glidepath.events import MessageAdded
from glidepath.messages import AssistantMessage, ToolCall, ToolResultMessage, Usage, placed
from glidepath.outcome import Charge, LoopOutcome, RunResult, Snapshot
from glidepath.run.account import Account

if TYPE_CHECKING:
    from glidepath.ledger import Meter
    from glidepath.run.plan import Ending
    from glidepath.run.state import Run

__all__ = ["Offspring", "Resumption", "place", "restore", "restore_meter", "snapshot_of", "take_snapshot"]


class Offspring(Record):
    """A child of a call that had begun, as its journal has it: what it has cost, and what of it is unknown."""

    run_id: str
    agent: str
    usage: Usage
    picodollars: int = 0
    unknown: tuple[ToolCall, ...] = ()


class Resumption(Record):
    """From where a run goes on, and what was decided about its calls that wait, by call id.

    `landing_paid` is False when too little is left for a landing call. `counted` are the calls that were counted
    before the process died and had not begun.
    """

    snapshot: Snapshot
    decisions: Mapping[str, Any] = {}
    landing_paid: bool = True
    counted: frozenset[str] = frozenset()
    offspring: Mapping[str, tuple[Offspring, ...]] = {}
    """The children of each call that had begun."""


_TOLD = ("violations", "children", "pending", "abandoned", "unknown_effects")
"""What a result tells anyway."""


def take_snapshot(run: Run, ending: Ending | None = None) -> Snapshot:
    """The run as it stands. With its `ending` it is for the result, and leaves out what that tells anyway."""
    meter = run.meter
    number = run.peek_number()
    told: dict[str, Any] = {}
    if ending is None:
        told = {name: tuple(getattr(run, name)) for name in _TOLD}
    else:
        told = {"state": ending.state, "outcome": ending.outcome, "cause": ending.cause, "partial": ending.partial}
        number += run.listening  # the last event is still to come
    return Snapshot(
        run_id=run.run_id,
        iterations=run.iterations,
        tool_calls=run.tool_calls,
        landing_calls=run.landing_calls,
        empty_outcomes=run.empty_outcomes,
        cut_calls_refused=run.cut_calls_refused,
        last_error=run.last_error,
        rescued=run.rescued,
        plain_text=run.plain_text,
        output_repaired=run.output_repaired,
        elapsed=run.elapsed(),
        next_event=number,
        spent=_accounts(run)[configured(run)].charge(),
        fallbacks_spent=fallbacks_spent(run),
        children_spent={name: account.charge() for name, account in run.child_accounts.items()},
        turns=meter.turns,
        metered_tool_calls=meter.tool_calls,
        descendants=meter.descendants,
        tokens=meter.tokens,
        picodollars=meter.money,
        carried=run.carried,
        on_budget=_on_budget(run),
        verdict=run.verdict,
        notice=run.notice,
        wind_down=run.wind_down,
        final_turn=run.final_turn,
        work_withdrawn=run.work_withdrawn,
        withdrawal=run.withdrawal,
        withdrawn=tuple(sorted(run.withdrawn)),
        allowed=None if run.allowed is None else tuple(sorted(run.allowed)),
        notices_told=tuple(sorted(run.notices_told)),
        later=run.later,
        waiting=run.waiting,
        text=run.text,
        parts=run.parts,
        stop_reason=run.stop_reason,
        first_new=run.first_new,
        pinned=run.pinned,
        votes=run.votes,
        programs=dict(run.programs),
        program_states=dict(run.program_states),
        guards=_guard_state(run.guard_home.get("guardrails")),
        per_run=run.per_run,
        **told,
    )


def _on_budget(run: Run) -> bool:
    """Whether it spends from a budget that somebody must pass again; the journal knows that of its session."""
    above = run.meter.parent
    return above is not None and (run.carried.session is None or above.parent is not None)


def _accounts(run: Run) -> dict[str, Account]:
    return {configured(run): Account(), **run.other_accounts, run.plan.model_name: run.account}


def fallbacks_spent(run: Run) -> dict[str, Charge]:
    """What models other than the configured one have cost."""
    own = configured(run)
    return {name: account.charge() for name, account in _accounts(run).items() if name != own}


def configured(run: Run) -> str:
    """The name of the configured model, whichever is in use: a run that goes on begins with it again."""
    return (run.plan if run.plan.route is None else run.plan.route.plans[0]).model_name


def _guard_state(state: Any) -> dict[str, Any]:
    """A copy of what the guards have counted; what is no plain data is none of ours."""
    if type(state) is not dict:
        return {}
    try:
        return _wire.loads(_wire.encode(state))  # type: ignore[no-any-return]
    except Exception:  # something foreign is among it: guard by guard, then
        copied = {}
        for name, counted in state.items():
            with suppress(Exception):
                copied[name] = _wire.loads(_wire.encode(counted))
        return copied


def snapshot_of(result: RunResult) -> Snapshot:
    """The whole snapshot of a result; raises `ConfigurationError` when it has none."""
    if result.snapshot is None:
        raise ConfigurationError(f"run {result.run_id!r} cannot be resumed: its result carries no snapshot")
    told: dict[str, Any] = {name: getattr(result, name) for name in _TOLD if name != "violations"}
    violated = [record for record in result.validations if record.validation.violated or record.skipped]
    return replace(result.snapshot, violations=tuple(violated), **told)


def restore_meter(meter: Meter, snapshot: Snapshot) -> None:
    """Go on counting where the run stopped. What is above the meter has been charged already, or is another's."""
    meter.turns = max(0, snapshot.turns)  # a journal from elsewhere may say anything, and gives nobody more
    meter.tool_calls = max(0, snapshot.metered_tool_calls)
    meter.descendants = max(0, snapshot.descendants)
    meter.tokens = max(0, snapshot.tokens)
    meter.money = max(0, snapshot.picodollars)
    meter.set_wires()


def restore(run: Run, resumed: Resumption) -> None:
    """Make a fresh run the one that stopped. One that has ended comes up again: what brought it down is forgotten."""
    run.resumed, snapshot = resumed, resumed.snapshot
    for name in (
        "iterations",
        "tool_calls",
        "landing_calls",
        "last_error",
        "withdrawal",
        "later",
        "waiting",
        "text",
        "stop_reason",
        "first_new",
        "children",
        "pending",
        "abandoned",
        "unknown_effects",
        "votes",
        "programs",
        "program_states",
        "pinned",
        "per_run",
    ):
        setattr(run, name, getattr(snapshot, name))
    run.violations = list(snapshot.violations)
    run.withdrawn = frozenset(snapshot.withdrawn)
    run.allowed = None if snapshot.allowed is None else frozenset(snapshot.allowed)
    run.notices_told = frozenset(snapshot.notices_told)
    run.started_at -= max(0.0, snapshot.elapsed)
    run.account = Account.of(snapshot.spent)
    run.other_accounts = {name: Account.of(charge) for name, charge in snapshot.fallbacks_spent.items()}
    run.child_accounts = {name: Account.of(charge) for name, charge in snapshot.children_spent.items()}
    others = (*run.other_accounts.values(), *run.child_accounts.values())
    run.money = run.account.money + sum(account.money for account in others)
    run.count_from(snapshot.next_event)
    if snapshot.outcome in (None, LoopOutcome.PAUSED):
        for name in ("empty_outcomes", "cut_calls_refused", "rescued", "plain_text", "output_repaired", "parts"):
            setattr(run, name, getattr(snapshot, name))
        for name in ("verdict", "notice", "wind_down", "final_turn", "work_withdrawn"):
            setattr(run, name, getattr(snapshot, name))
        _reopen_turn(run)
    elif run.messages and type(run.messages[-1]) is AssistantMessage:
        run.later = (*run.later, ("resumed", "resume", run.plan.texts.fill("resumed")))


def _reopen_turn(run: Run) -> None:
    """The last reply may still have calls to answer."""
    for place in range(len(run.messages) - 1, run.first_new - 1, -1):
        message = run.messages[place]
        if type(message) is AssistantMessage:
            results = tuple(one for one in run.messages[place + 1 :] if type(one) is ToolResultMessage)
            if len(results) < len(message.tool_calls):
                run.reply, run.results, run.turn_open = message, results, True
            return


def place(run: Run, result: ToolResultMessage) -> None:
    """Put the result of a call that waited where it belongs: in the order of the calls of the current reply."""
    before, run.results = run.results, placed(run.reply, run.results, result)  # type: ignore[arg-type]
    behind = len(before) - run.results.index(result)  # how many of the results that are there belong behind it
    if not behind:
        run.add(result)
        return
    size = run.plan.size_of(result)
    run.messages.insert(len(run.messages) - behind, result)
    run.sizes.insert(len(run.sizes) - behind, size)
    if run.view is not run.messages:
        run.view.insert(len(run.view) - behind, result)
    run.view_tokens += size
    run.emit(MessageAdded, result)
