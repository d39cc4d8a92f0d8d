"""What a request has spent, read from the journals of its runs, including what was never reported."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from glidepath._wire import replace
from glidepath.agent.child_records import find_usage
from glidepath.sessions import home_of
from glidepath.sessions.session_ids import digest_of
from glidepath.spi import SessionStore
from glidepath.teams.money_spent import add_cost
from glidepath.teams.team_history import History
from glidepath.values import Snapshot, Usage, dollars

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_ID = 200  # of a session


def session_id(request_id: str, *parts: object) -> str:
    """The session id of one run of a request. It is the same after a crash, so that the run can continue."""
    home, name = home_of(request_id), "/".join(map(str, parts))
    return f"{home}/{name if len(home) + len(name) < _LONGEST_ID else digest_of(name)}"


async def audit_history(history: History, store: SessionStore) -> History:
    """The history with everything its runs spent, by their journals; a call in flight is charged at its worst case.

    Raises `StoreError` when a journal cannot be read: unknown spending cannot be kept within a limit.
    """
    tokens = money = 0
    disputed = (0, 0)
    usage, cost = Usage(), None
    going_on = dict(_iterate_interrupted(history))
    for entry in await store.entries(f"{home_of(history.request.id)}/"):
        if entry.summary.get("parent"):
            continue  # a child: the journal of its parent includes it
        used = await find_usage(store, entry.session_id)
        if used is None:
            continue
        tokens, money = tokens + used.tokens, money + used.picodollars
        disputed = disputed[0] + used.disputed[0], disputed[1] + used.disputed[1]
        bill = _sum_bill(used)
        if entry.session_id in going_on:  # its result will report everything except what was billed when it paused
            bill = going_on[entry.session_id]
        usage, cost = usage + bill[0], add_cost(cost, bill[1])
    if tokens < history.usage.total:
        return history  # its runs were not kept here
    return replace(history, usage=usage, cost=cost, account=(tokens, money), disputed=disputed)


def _iterate_interrupted(history: History) -> Iterator[tuple[str, tuple[Usage, Decimal | None]]]:
    """The sessions of interrupted attempts, each with what was already billed."""
    finished = {outcome.step_id for outcome in history.outcomes}
    for step_id, step in history.steps.items():
        if step.begun and step_id not in finished:
            billed = (Usage(), None) if step.paused is None else (step.paused.usage, step.paused.cost)
            attempt = (history.request.id, step_id, step.begun, step.begun_by)
            yield name_attempt_session(*attempt, senior=step.begun_senior), billed


def name_attempt_session(request_id: str, step_id: str, attempt: int, member: str, *, senior: bool) -> str:
    """The session of one attempt at a step."""
    return session_id(request_id, step_id, attempt, member, *(("senior",) if senior else ()))


def _sum_bill(used: Snapshot) -> tuple[Usage, Decimal | None]:
    usage, money = used.spent.usage, used.spent.picodollars
    for charge in (*used.fallbacks_spent.values(), *used.children_spent.values()):
        usage, money = usage + charge.usage, money + charge.picodollars
    return usage, dollars(money) if money else None
