"""What a run carries across a pause, a crash or a limit, and how it continues from there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Record, replace
from glidepath.run.account import Account
from glidepath.run.nested import SideWork
from glidepath.run.run_inputs import RunInputs
from glidepath.run.run_transcript import AnswerSoFar, CurrentTurn, Transcript
from glidepath.run.wind_down import Audit, WindDown
from glidepath.values import (
    AssistantMessage,
    Charge,
    ConfigurationError,
    LoopOutcome,
    MessageAdded,
    RunResult,
    Snapshot,
    ToolCall,
    ToolResultMessage,
    Usage,
    place_result,
)

if TYPE_CHECKING:
    from glidepath.run.ledger import Meter
    from glidepath.run.plan import Ending
    from glidepath.run.state import Run


class Offspring(Record):
    """A child of a call that had begun, as its journal has it: what it has cost, and what of it is unknown."""

    run_id: str
    agent: str
    usage: Usage
    picodollars: int = 0
    unknown: tuple[ToolCall, ...] = ()


class Resumption(Record):
    """From where a run continues, and what was decided about its calls that wait, by call id.

    `counted` are the calls that were counted before the process died and had not begun.
    """

    snapshot: Snapshot
    decisions: Mapping[str, Any] = {}
    counted: frozenset[str] = frozenset()
    offspring: Mapping[str, tuple[Offspring, ...]] = {}
    """The children of each call that had begun."""


_TOLD = ("violations", "children", "pending", "abandoned", "unknown_effects")
"""What a result tells anyway."""
_SETS = frozenset({"withdrawn", "notices_told", "allowed"})
"""What is a set in the run, and a sorted tuple in its snapshot."""


PARTS: Mapping[str, Any] = {
    "transcript": Transcript,
    "turn": CurrentTurn,
    "answer": AnswerSoFar,
    "descent": WindDown,
    "audit": Audit,
    "work": SideWork,
    "terms": RunInputs,
}
"""The parts of a run that survive it: together, with its meter and its accounts, they are its snapshot."""
KEPT: Mapping[str, tuple[str, ...]] = {
    part: (*kind.SURVIVES, *getattr(kind, "UNTIL_IT_ENDS", ())) for part, kind in PARTS.items()
}
"""The fields of each part that a snapshot has, under the same names."""


def freeze_field(value: object) -> Any:
    """A field as a snapshot has it: a value that nobody changes."""
    if value.__class__ is frozenset:
        return tuple(sorted(value))
    if value.__class__ is list:
        return tuple(value)
    return dict(value) if value.__class__ in (dict, MappingProxyType) else value


def take_snapshot(run: Run, ending: Ending | None = None) -> Snapshot:
    """A copy of the run's parts. With its `ending`, it leaves out what the result contains anyway."""
    meter = run.meter
    own, accounts = name_configured_model(run), _accounts(run)
    left_out = () if ending is None else _TOLD
    fields = {
        name: freeze_field(getattr(getattr(run, part), name))
        for part, names in KEPT.items()
        for name in names
        if name not in left_out
    }
    number = run.voice.peek_number()
    if ending is not None:
        fields |= {"state": ending.state, "outcome": ending.outcome, "cause": ending.cause, "partial": ending.partial}
        number += run.voice.listening  # the last event is still to come
    return Snapshot(
        run_id=run.run_id,
        elapsed=run.elapsed(),
        next_event=number,
        spent=accounts.pop(own).charge(),
        fallbacks_spent={name: account.charge() for name, account in accounts.items()},
        children_spent=sum_child_spending(run),
        turns=meter.turns,
        metered_tool_calls=meter.tool_calls,
        descendants=meter.descendants,
        tokens=meter.tokens,
        picodollars=meter.money,
        disputed=meter.disputed,
        on_budget=on_budget(run),
        guards=guard_state(run.guards.home.get("guardrails")),
        **fields,
    )


def on_budget(run: Run) -> bool:
    """Whether it spends from a budget that must be passed again on resume; the journal knows the session's."""
    above = run.meter.parent
    return above is not None and (run.terms.carried.session is None or above.parent is not None)


def _accounts(run: Run) -> dict[str, Account]:
    spend = run.spend
    return {name_configured_model(run): Account(), **spend.other_accounts, run.plan.model_name: spend.account}


def sum_fallback_spending(run: Run) -> dict[str, Charge]:
    """What models other than the configured one have cost."""
    own = name_configured_model(run)
    return {name: account.charge() for name, account in _accounts(run).items() if name != own}


def sum_child_spending(run: Run) -> dict[str, Charge]:
    """What the children have cost, by agent."""
    return {name: account.charge() for name, account in run.spend.child_accounts.items()}


def name_configured_model(run: Run) -> str:
    """The name of the configured model, whichever is in use: a run that continues begins with it again."""
    return (run.plan if run.plan.route is None else run.plan.route.plans[0]).model_name


def guard_state(state: object) -> dict[str, Any]:
    """A copy of what the guards have counted; anything but plain data is left out."""
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
    """Continue counting where the run stopped. What is above the meter is charged already, or not ours."""
    # A journal from elsewhere may say anything, and gives nobody more.
    meter.count_from(
        max(0, snapshot.tokens),
        max(0, snapshot.picodollars),
        turns=max(0, snapshot.turns),
        tool_calls=max(0, snapshot.metered_tool_calls),
        descendants=max(0, snapshot.descendants),
    )
    restore_disputed(meter, snapshot.disputed)


def restore_disputed(meter: Meter, disputed: tuple[int, int]) -> None:
    """Set how much of what a meter has counted no call explains."""
    meter.disputed = max(0, disputed[0]), max(0, disputed[1])


def restore(run: Run, resumed: Resumption) -> None:
    """Make a fresh run the one that stopped. A run that has ended starts again: why it ended is forgotten."""
    snapshot = resumed.snapshot
    ended = snapshot.outcome not in (None, LoopOutcome.PAUSED)
    for part, kind in PARTS.items():
        for name in kind.SURVIVES if ended else KEPT[part]:
            value = getattr(snapshot, name)
            if name in _SETS and value is not None:
                value = frozenset(value)
            elif name == "violations":
                value = list(value)
            setattr(getattr(run, part), name, value)
    run.terms.resume(resumed)
    run.descent.note_restored()
    run.spend.restore(snapshot.spent, snapshot.fallbacks_spent, snapshot.children_spent)
    run.voice.count_from(snapshot.next_event)
    transcript = run.transcript
    if not ended:
        _reopen_turn(run)
    elif transcript.messages and type(transcript.messages[-1]) is AssistantMessage:
        transcript.queue_notice("resumed", "resume", run.plan.config.texts.fill("resumed"))


def _reopen_turn(run: Run) -> None:
    """The last reply may still have calls to answer."""
    messages, turn = run.transcript.messages, run.turn
    for place in range(len(messages) - 1, run.transcript.first_new - 1, -1):
        message = messages[place]
        if type(message) is AssistantMessage:
            results = tuple(one for one in messages[place + 1 :] if type(one) is ToolResultMessage)
            if len(results) < len(message.tool_calls):
                turn.reply, turn.results, turn.is_open = message, results, True
            return


def place(run: Run, result: ToolResultMessage, *, last: bool = False) -> None:
    """Put the result of a call where it belongs: in the order of the calls of the current reply.

    `last`: behind all that are there. A large batch says so: to look for the place of each would take a second.
    """
    turn, before = run.turn, run.turn.results
    if last:
        turn.answer((*before, result))
        run.add(result)
        return
    turn.answer(place_result(turn.reply, before, result))  # type: ignore[arg-type]
    behind = len(before) - turn.results.index(result)  # how many of the results that are there belong behind it
    if not behind:
        run.add(result)
        return
    run.transcript.insert(result, run.plan.size_of(result), behind)
    run.emit(MessageAdded, result)
