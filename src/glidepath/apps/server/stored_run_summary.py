"""Cards of runs from what a store knows about their sessions: summary, lease and journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glidepath.apps.server.owners import key_name_in
from glidepath.apps.server.run_summary import state_of
from glidepath.apps.server.shapes import BudgetNode, CauseShape, RunCard, UsageShape
from glidepath.sessions import Folded, is_claimable, is_foreign
from glidepath.spi import Entry
from glidepath.values import AgentState, AssistantMessage, RunResult

_RESUMABLE = frozenset({"wrapped_up", "cut_off", "failed", "cancelled", "paused"})
_AGENT_STATES = frozenset(state.value for state in AgentState)


def spending_until(snapshot: Any) -> tuple[UsageShape, str | None]:
    """What a run had used at a moment."""
    if snapshot is None:
        return UsageShape(), None
    usage = snapshot.spent.usage
    cost = f"{snapshot.picodollars / 1e12:.12f}".rstrip("0").rstrip(".") if snapshot.picodollars else None
    return UsageShape(input=usage.input, output=usage.output, total=snapshot.tokens), cost


def entry_state(entry: Entry, now: float) -> str:
    """The state of a session's last run, from its summary and lease."""
    outcome = entry.summary.get("outcome")
    if isinstance(outcome, str):
        return state_of(outcome)
    if entry.summary.get("state") == "queued" and not entry.head:
        return "queued"
    if is_claimable(entry.owner, entry.expires, now):
        return "lost"
    return "running"


def fields_from_store(card: RunCard, entry: Entry) -> dict[str, Any]:
    """What the store knows and the events do not: another process has continued the run."""
    outcome = entry.summary.get("outcome")
    if outcome == card.outcome or not isinstance(outcome, str):
        return {}
    return {
        "agent_state": _agent_state(entry),
        "outcome": outcome,
        "phase": "ground",
        "turn": int(entry.summary.get("iterations") or 0),
        "cost": entry.summary.get("cost"),
        "updated": entry.updated,
        "ended": entry.updated,
        "listed": entry.updated,
        "resumable": outcome in _RESUMABLE,
    }


def find_fork_origin(entry: Entry) -> dict[str, Any] | None:
    """Where a session was forked from: the other session, and after which of its turns."""
    forked = entry.summary.get("forked")
    return {"session": forked.get("origin"), "turn": forked.get("at")} if isinstance(forked, Mapping) else None


def bare_card(entry: Entry, now: float) -> RunCard:
    """A card without events: another program ran it."""
    summary = entry.summary
    outcome = summary.get("outcome") if isinstance(summary.get("outcome"), str) else None
    state = entry_state(entry, now)
    tokens = int(summary.get("tokens") or 0)
    parent = summary.get("parent")
    above = parent.get("session_id") if isinstance(parent, Mapping) else None
    waiting = int(state == "paused")
    return RunCard(
        run_id=str(summary.get("run_id") or entry.session_id),
        session_id=entry.session_id,
        agent=str(summary.get("agent") or summary.get("team") or ""),
        task=str(summary.get("task") or "")[:200],
        title=entry.title,
        state=state,
        agent_state=_agent_state(entry),
        outcome=outcome,
        phase="ground" if outcome is not None else "cruise",
        turn=int(summary.get("iterations") or 0),
        usage=UsageShape(total=tokens),
        cost=summary.get("cost") if isinstance(summary.get("cost"), str) else None,
        started=entry.updated,
        updated=entry.updated,
        ended=entry.updated if outcome is not None else None,
        tags=entry.tags,
        pending=waiting,
        pending_count=waiting,
        parent=above if isinstance(above, str) else None,
        forked_from=find_fork_origin(entry),
        owner=entry.owner,
        who=key_name_in(entry.tags),
        resumable=not is_foreign(entry) and (state == "lost" or outcome in _RESUMABLE),
        last=_last_line(state, outcome) if not is_foreign(entry) or state != "lost" else "its gate is gone",
        foreign=is_foreign(entry),
        listed=entry.updated,
    )


def _agent_state(entry: Entry) -> str | None:
    state = entry.summary.get("state")
    return state if isinstance(state, str) and state in _AGENT_STATES else None


def _last_line(state: str, outcome: str | None) -> str:
    if state == "lost":
        return "its process is gone: resume it"
    if state == "running":
        return "runs in another process"
    return "" if outcome is None else outcome.replace("_", " ")


def account_fields(card: RunCard, result: RunResult[Any] | None, folded: Folded | None) -> dict[str, Any]:
    """Figures of a run without events, from its journal."""
    if folded is None or result is None:
        return {}
    usage, cause = result.usage, result.cause
    return {
        "usage": UsageShape(input=usage.input, output=usage.output, total=usage.total),
        "cost": None if result.cost is None else f"{result.cost:f}",
        "turn": result.iterations,
        "cause": card.cause if cause is None else CauseShape(source=cause.source, reason=cause.reason),
    }


def unknown_effects(result: RunResult[Any] | None, folded: Folded | None) -> tuple[Mapping[str, Any], ...]:
    """Calls that may have taken effect."""
    calls = [] if result is None else list(result.unknown_effects)
    found: list[dict[str, Any]] = [
        {"call_id": one.id, "tool": one.name, "arguments": one.arguments, "since": None} for one in calls
    ]
    if folded is not None and result is None:
        for intent in folded.intents.values():
            if intent.call_id not in folded.results:
                call = _call_in(folded.messages, intent.call_id)
                found.append(
                    {
                        "call_id": intent.call_id,
                        "tool": intent.tool or (call.name if call else ""),
                        "arguments": intent.arguments or (call.arguments if call else {}),
                        "since": folded.time,
                    }
                )
    return tuple(found)


def _call_in(messages: Iterable[Any], call_id: str) -> Any:
    for message in messages:
        if type(message) is AssistantMessage:
            for call in message.tool_calls:
                if call.id == call_id:
                    return call
    return None


def limits_in_dollars(limits: Mapping[str, float]) -> dict[str, float]:
    """The limits of a run, money in dollars."""
    return {
        ("cost" if name == "picodollars" else name): (value / 1e12 if name == "picodollars" else value)
        for name, value in limits.items()
    }


def budget_node(card: RunCard, below: Sequence[RunCard], kind: str = "run") -> BudgetNode:
    """The budget of a run with those of its descendants below it."""
    return BudgetNode(
        name=card.agent,
        kind=kind,
        run_id=card.run_id,
        gauges=card.gauges,
        children=tuple(budget_node(one, below, "child") for one in below if one.parent == card.session_id),
    )
