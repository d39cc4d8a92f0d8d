"""The children of a run that died: what they used, and which of their effects are unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from glidepath._wire import Value, replace
from glidepath.run import Offspring
from glidepath.sessions import Folded, Used, await_store, charge_reservation, open_calls, read_journal
from glidepath.sessions.recover import find_begun_calls, inner_calls
from glidepath.values import Charge, Snapshot, StoreError, Usage

if TYPE_CHECKING:
    from glidepath.spi import SessionStore

T = TypeVar("T")


class ChildRecords(Value, frozen=True, kw_only=True):
    """The children of unfinished calls and hooks, as their journals have them."""

    used: Mapping[str, Used] = {}
    by_call: Mapping[str, tuple[Offspring, ...]] = {}
    lost: tuple[str, ...] = ()
    """The calls with a child whose journal is missing or cannot be read."""


async def journal_of(store: SessionStore, session_id: str) -> Folded:
    """The state at the end of a journal."""
    return (await await_store(read_journal(store, session_id))).folded


async def read_child_records(store: SessionStore, folded: Folded) -> ChildRecords:
    """The children of unfinished calls and hooks, which the parent's journal does not record."""
    unfinished = {call.id for call in (*open_calls(folded), *inner_calls(folded.snapshot))} - set(folded.results)
    used: dict[str, Used] = {}
    by_call: dict[str, tuple[Offspring, ...]] = {}
    lost: list[str] = []
    for child in folded.children:
        if child.call_id not in unfinished and not child.of_hook:
            continue
        try:
            snapshot = await ask_store_twice(partial(_read_usage, store, child.session_id))
        except StoreError:
            lost.append(child.call_id)
            continue
        if snapshot is not None:
            used[child.session_id] = _own_usage_of(snapshot)
            usage, money = _sum_spending(snapshot)
            one = Offspring(snapshot.run_id, child.agent, usage, money, snapshot.unknown_effects)
            by_call[child.call_id] = (*by_call.get(child.call_id, ()), one)
    return ChildRecords(used=used, by_call=by_call, lost=tuple(lost))


async def ask_store_twice(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask a store about a child, and once more if it fails: a connection may have dropped."""
    try:
        return await ask()
    except StoreError as error:
        if error.kind == "missing":
            raise
    return await ask()


def _own_usage_of(snapshot: Snapshot) -> Used:
    """Without what earlier runs of its session have used, which is in the meter where a conversation is limited."""
    carried = snapshot.carried
    return Used(
        snapshot.tokens - carried.tokens,
        snapshot.picodollars - carried.money,
        snapshot.turns - carried.turns,
        snapshot.metered_tool_calls - carried.tool_calls,
        snapshot.descendants + 1,
        snapshot.disputed,
    )


def _sum_spending(snapshot: Snapshot) -> tuple[Usage, int]:
    """What its models and its own children have cost."""
    usage, money = snapshot.spent.usage, snapshot.spent.picodollars
    for charge in (*snapshot.fallbacks_spent.values(), *snapshot.children_spent.values()):
        usage, money = usage + charge.usage, money + charge.picodollars
    return usage, money


def add_child_spending(snapshot: Snapshot, folded: Folded, found: ChildRecords) -> Snapshot:
    """The state with what the children have used and the figures in the journal do not have yet."""
    for name, now in found.used.items():
        then = folded.charged.get(name, Used())
        snapshot = replace(
            snapshot,
            tokens=snapshot.tokens + now.tokens - then.tokens,
            picodollars=snapshot.picodollars + now.picodollars - then.picodollars,
            turns=snapshot.turns + now.turns - then.turns,
            metered_tool_calls=snapshot.metered_tool_calls + now.tool_calls - then.tool_calls,
            descendants=snapshot.descendants + now.descendants - then.descendants,
            disputed=(
                snapshot.disputed[0] + now.disputed[0] - then.disputed[0],
                snapshot.disputed[1] + now.disputed[1] - then.disputed[1],
            ),
        )
    return snapshot


def close_child_accounts(snapshot: Snapshot, found: ChildRecords) -> Snapshot:
    """The state with the accounts of the children closed: none of them continues."""
    spent, told = dict(snapshot.children_spent), {child.run_id for child in snapshot.children}
    unknown = list(snapshot.unknown_effects)
    for child in [one for ones in found.by_call.values() for one in ones if one.run_id not in told]:
        before = spent.get(child.agent, Charge())
        usage, money = before.usage + child.usage, before.picodollars + child.picodollars
        spent[child.agent] = Charge(calls=before.calls + 1, usage=usage, picodollars=money)
        unknown += child.unknown
    return replace(snapshot, children_spent=spent, unknown_effects=tuple(unknown))


async def find_usage(store: SessionStore, session_id: str) -> Snapshot | None:
    """What the last run of a session has used, a call in flight at its worst case; None when it never began."""
    try:
        return await _read_usage(store, session_id)
    except StoreError as error:
        if error.kind == "missing":
            return None
        raise


async def _read_usage(store: SessionStore, session_id: str) -> Snapshot | None:
    folded = await journal_of(store, session_id)
    snapshot = folded.snapshot
    if snapshot is None:
        return None
    if folded.result is not None:
        return replace(snapshot, unknown_effects=folded.result.unknown_effects)
    found = await read_child_records(store, folded)
    snapshot = close_child_accounts(
        add_child_spending(charge_reservation(snapshot, folded.reserved), folded, found), found
    )
    return replace(snapshot, unknown_effects=(*snapshot.unknown_effects, *find_begun_calls(folded)))
