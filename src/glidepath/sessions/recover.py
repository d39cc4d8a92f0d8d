"""Recovers a run after a crash: what is known, what may have happened, and what had not begun.

A call with a result is done. A call with an intent and no result may have taken effect: it runs again only when it is
idempotent, with the same key; any other is reported as unknown. A call without an intent had not begun. A model call
that was in flight is charged at its worst case. Imported calls are not trusted: those that had begun are unknown, and
those that had not wait for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidepath._wire import replace
from glidepath.run import Decision, make_unknown_decision
from glidepath.sessions.fold import Folded, Reserved
from glidepath.values import (
    AgentState,
    AssistantMessage,
    Charge,
    LoopOutcome,
    RunResult,
    Snapshot,
    StopCause,
    Texts,
    ToolCall,
    ToolResultMessage,
    Unknown,
    Usage,
    dollars,
)


def open_calls(folded: Folded) -> tuple[ToolCall, ...]:
    """The calls of the last reply that have no result."""
    answered: set[str] = set()
    for message in reversed(folded.messages):
        if type(message) is ToolResultMessage:
            answered.add(message.call_id)
        elif type(message) is AssistantMessage:
            return tuple([call for call in message.tool_calls if call.id not in answered])
        else:
            break
    return ()


def find_begun_calls(folded: Folded) -> tuple[ToolCall, ...]:
    """The calls of the last reply that had begun and have no result: they may have taken effect."""
    # The intent is on disk before the call starts, so whatever has none cannot have begun.
    begun = folded.intents.keys() - folded.results.keys()
    return tuple([call for call in (*open_calls(folded), *inner_calls(folded.snapshot)) if call.id in begun])


def inner_calls(snapshot: Snapshot | None) -> tuple[ToolCall, ...]:
    """The calls that the programs of the last reply wait for."""
    found: list[ToolCall] = []
    for program in {} if snapshot is None else snapshot.programs.values():
        answered = {result.call_id for result in program.results}
        found += [call for call in program.calls if call.id not in answered]
    return tuple(found)


def add_inner_results(folded: Folded, snapshot: Snapshot) -> Snapshot:
    """The state with the results of programs' calls, which are in no transcript."""
    programs = {}
    for own, program in snapshot.programs.items():
        known = {result.call_id: result for result in program.results}
        for call in program.calls:
            result = folded.results.pop(call.id, None)
            if result is not None:
                known.setdefault(call.id, result)
        programs[own] = replace(program, results=tuple(known.values()))
    return replace(snapshot, programs=programs) if programs else snapshot


def place_known_results(folded: Folded) -> list[str]:
    """Put the results that are known into the transcript, in their order; returns the ids of their calls."""
    mine = {call.id for call in open_calls(folded)}
    known = [call_id for call_id in folded.results if call_id in mine]
    for call_id in known:
        folded.add(folded.results[call_id])
    return known


def charge_reservation(snapshot: Snapshot, reserved: Reserved | None) -> Snapshot:
    """The state with the model call that was in flight paid for, at its worst case."""
    if reserved is None:
        return snapshot
    # Flagged as estimated: the provider never reported it.
    usage = Usage(reserved.input, reserved.tokens - reserved.input, estimated=True)
    snapshot = replace(
        snapshot, tokens=snapshot.tokens + reserved.tokens, picodollars=snapshot.picodollars + reserved.money
    )
    if not reserved.model:
        return replace(snapshot, spent=_add_call(snapshot.spent, usage, reserved.money))
    others = dict(snapshot.fallbacks_spent)
    others[reserved.model] = _add_call(others.get(reserved.model, Charge()), usage, reserved.money)
    return replace(snapshot, fallbacks_spent=others)


def _add_call(spent: Charge, usage: Usage, money: int) -> Charge:
    return Charge(calls=spent.calls + 1, usage=spent.usage + usage, picodollars=spent.picodollars + money)


def decide_open_calls(folded: Folded, snapshot: Snapshot, tools: Mapping[str, Any]) -> dict[str, Decision]:
    """What happens to the calls without a result.

    Nothing is counted here: the journal has counted every call that had begun and every one that was queued.
    """
    decisions: dict[str, Decision] = calls_needing_approval(folded, snapshot)
    waiting = {one.call.id for one in snapshot.pending}
    for call in (*open_calls(folded), *inner_calls(snapshot)):
        intent, tool = folded.intents.get(call.id), tools.get(call.name)
        if intent is None:
            if call.id in folded.decisions:
                decisions[call.id] = folded.decisions[call.id]
            elif call.id in folded.redacted and call.id not in waiting:  # its real arguments are not stored
                decisions[call.id] = Decision(kind="void")
        elif not intent.idempotent:
            decisions[call.id] = make_unknown_decision(Unknown.IMPORTED if folded.foreign else Unknown.DIED)
        elif tool is None:
            decisions[call.id] = make_unknown_decision(Unknown.TOOL_GONE)
        elif not tool.idempotent:  # both must agree: it may have changed between the two processes
            decisions[call.id] = make_unknown_decision(Unknown.DIED)
        elif call.id in folded.redacted:
            decisions[call.id] = make_unknown_decision(Unknown.REDACTED)
        else:
            decisions[call.id] = Decision(kind="repeat", arguments=intent.arguments or call.arguments)
    return drop_redacted_approvals(folded, decisions)


def drop_redacted_approvals(folded: Folded, decided: Mapping[str, Decision]) -> dict[str, Decision]:
    """A person's decisions; an approved call whose stored arguments are redacted cannot be made, and does not run."""
    void = {
        call_id: Decision(kind="void")
        for call_id, decision in decided.items()
        if decision.kind == "approve" and decision.arguments is None and call_id in folded.redacted
    }
    return {**decided, **void}


def calls_needing_approval(folded: Folded, snapshot: Snapshot) -> dict[str, Decision]:
    """Ask a person about each call of an imported journal that had not begun and is not pending yet."""
    if not folded.foreign:
        return {}
    settled = {*folded.intents, *folded.decisions, *(waiting.call.id for waiting in snapshot.pending)}
    return {call.id: Decision(kind="ask") for call in open_calls(folded) if call.id not in settled}


def abandon(folded: Folded, snapshot: Snapshot, texts: Texts) -> tuple[RunResult, list[ToolResultMessage]]:
    """Close a run that crashed and is not resumed; returns its result, and results for its open calls."""
    results, doubtful = [], []
    counted = 0
    for call in open_calls(folded):
        begun = call.id in folded.intents
        # The limit counts calls that are queued; the result counts those that ran.
        counted += not begun and call.id in folded.queued
        if begun:
            doubtful.append(call)
        kind, text, details = "interrupted", texts.fill("not_begun"), None
        if begun:
            why = Unknown.IMPORTED if folded.foreign else Unknown.DIED
            kind, text, details = "unknown_effect", texts.fill("unknown_effect", reason=why.reason), why.details()
        results.append(ToolResultMessage(call.id, call.name, text, is_error=True, kind=kind, details=details))
    doubtful += [call for call in inner_calls(snapshot) if call.id in folded.intents]
    for result in results:
        folded.add(result)
    usage, money = snapshot.spent.usage, snapshot.spent.picodollars
    for charge in (*snapshot.fallbacks_spent.values(), *snapshot.children_spent.values()):
        usage, money = usage + charge.usage, money + charge.picodollars
    ended = RunResult(
        run_id=snapshot.run_id,
        session_id=folded.session.id,
        state=AgentState.ERROR,
        outcome=LoopOutcome.FAILED,
        cause=StopCause(source="crash", action="fail", reason="the process ended before the run did"),
        text=snapshot.text,
        partial=True,
        usage=usage,
        cost=dollars(money) if money else None,
        iterations=snapshot.iterations,
        tool_calls=max(0, snapshot.tool_calls - counted),
        landing_calls=snapshot.landing_calls,
        elapsed=snapshot.elapsed,
        unknown_effects=(
            *snapshot.unknown_effects,
            *doubtful,
            *[one.call for one in snapshot.background if one.result is None and one.call not in doubtful],
        ),
    )
    return ended, results
