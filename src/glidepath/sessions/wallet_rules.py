"""The bookkeeping of wallets, the same in every store: what may be held, what is used, what dead runs leave behind.

A store reads a few rows into a `WalletTransaction`, lets one of the functions here change them, and writes back what
has changed, all in one transaction. In each row an amount is a pair: tokens, and money in pico-dollars. Whatever is
done here can be done twice: a run says what it has spent and needs in total, and what it holds is found by its key.

    used + held + disputed <= limit     in every wallet of a line and every period

`disputed` are bills that no call explains: a person accepts them, and then they are used, or rejects them, and then
they are free (`bills.py`). `held` was granted to runs and is not spent. `firm` is the part of it that runs keep for
their landings: no call waits for that, because two runs could wait for each other; a run that has yet to start keeps
nothing, and may wait for it. A run on several wallets holds the same amount in each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glidepath._wire import Value
from glidepath.sessions.bills import dispute
from glidepath.sessions.owner import is_alive, is_claimable
from glidepath.sessions.wallet_rows import (
    NOTHING,
    BillRow,
    HoldRow,
    Line,
    Pair,
    PeriodRow,
    WalletRow,
    WalletTransaction,
    add_amounts,
    period_of,
    subtract_amounts,
)
from glidepath.spi import Grant, Hold, OverdueHold, Wallet, WalletDraw, WalletTerms
from glidepath.values import StoreError

KEPT = 30 * 86_400.0  # seconds for which what the dead held is remembered, so that it can still be corrected
DOUBT = 60.0  # seconds after which a run that was only silent, and not known to be dead, is kept from its journal
_RESOURCES = ("tokens", "money")
_MOST_LEASES = 10  # a process may have longer leases than this store, but not by more than this


# --- one run ------------------------------------------------------------------------------------------------------


def open_wallets(book: WalletTransaction, terms: Sequence[WalletTerms]) -> None:
    """Make the wallets that are new; give the others the limits that this program has for them."""
    for one in terms:
        row = book.wallets.get(one.name)
        if row is not None and (row.per, row.parent) != (one.per, one.parent):
            raise StoreError(
                f"wallet {one.name!r} has per={row.per!r} and parent={row.parent!r}, and this program says "
                f"per={one.per!r} and parent={one.parent!r}: use another name, or remove the old wallet with "
                f"`glidepath wallets remove {one.name}`",
                kind="conflict",
            )
    for one in terms:
        row = book.wallets.get(one.name)
        if row is None:
            row = book.wallets[one.name] = WalletRow(name=one.name, per=one.per, parent=one.parent)
            book.note(row)
        most = (one.max_tokens, one.max_money)
        if row.most != most:
            row.most = most
            book.note(row)


def _book_hold(book: WalletTransaction, row: HoldRow, spent: Pair, grant: Pair, firm: Pair) -> None:
    """Put what a hold is now into every account of its line."""
    used = subtract_amounts(spent, row.spent)
    held = subtract_amounts(subtract_amounts(grant, spent), subtract_amounts(row.grant, row.spent))
    kept = subtract_amounts(firm, row.firm)
    if used != NOTHING or held != NOTHING or kept != NOTHING:
        for place in row.line:
            account = book.account(place)
            account.used = add_amounts(account.used, used)
            account.held = add_amounts(account.held, held)
            account.firm = add_amounts(account.firm, kept)
            book.note(account)
    row.spent, row.grant, row.firm = spent, grant, firm
    book.note(row)


class _Room(Value, frozen=True, kw_only=True):
    """What fits above what a run has and keeps: at once, and with nothing of others in flight."""

    now: tuple[int | None, int | None]
    alone: tuple[int | None, int | None]
    tight: Grant


def _room_for(book: WalletTransaction, row: HoldRow, line: Line, need: Pair, least: Pair, stays: Pair | None) -> _Room:
    """`need` is what the run has spent, keeps back and has in flight; its own part of an account is not others'.

    `stays`, for a run that has yet to start: what others keep for their landings and do not give back before it.
    """
    here = line == row.line
    now: list[int | None] = [None, None]
    alone: list[int | None] = [None, None]
    tight = Grant(verdict="refused")
    for place in line:
        account, wallet = book.account(place), book.wallets[place[0]]
        for resource in (0, 1):
            limit = wallet.limit(resource)
            if limit is None:
                continue
            mine = (row.grant[resource], row.spent[resource] + row.firm[resource]) if here else NOTHING
            used = account.used[resource] + account.disputed[resource]
            room = limit - (used + account.held[resource] - mine[0]) - need[resource]
            least_now = now[resource]
            now[resource] = room if least_now is None else min(least_now, room)
            firm = account.firm[resource] if stays is None else min(account.firm[resource], stays[resource])
            room = limit - (used + firm - mine[1]) - need[resource]
            least_alone = alone[resource]
            if least_alone is None or room < least_alone:
                alone[resource] = room
                if room < least[resource]:
                    tight = Grant(
                        verdict="refused",
                        tight=place[0],
                        period=place[1],
                        resource=_RESOURCES[resource],
                        most=limit,
                        used=used + firm - mine[1] + row.spent[resource] * here,
                        disputed=account.disputed[resource],
                    )
    return _Room(now=(now[0], now[1]), alone=(alone[0], alone[1]), tight=tight)


def _is_enough(asked: Pair, room: tuple[int | None, int | None]) -> bool:
    return all(have is None or want <= have for want, have in zip(asked, room, strict=True))


def _cut(asked: Pair, room: tuple[int | None, int | None]) -> Pair:
    tokens, money = (want if have is None else min(want, have) for want, have in zip(asked, room, strict=True))
    return tokens, money


def draw(book: WalletTransaction, hold: Hold, want: WalletDraw, lease: float) -> Grant:
    """Take out what a call may cost, or say why not; see `WalletStore.draw`."""
    total = (want.spent_tokens, want.spent_money)
    asked, least = (want.asked_tokens, want.asked_money), (want.least_tokens, want.least_money)
    renewing = max(asked) <= 0
    row = book.holds.get(hold.key)
    if (row is None and renewing) or (row is not None and row.leg > hold.leg):
        return Grant(verdict="fenced")
    open_wallets(book, hold.line)
    line, disputed = book.line(hold.line), (want.disputed_tokens, want.disputed_money)
    if row is None:
        row = HoldRow(key=hold.key, leg=hold.leg, owner="", session_id=None, expires=0.0, line=line, base=total)
        row.disputed_base = disputed
        book.holds[hold.key] = row
    row.leg, row.owner, row.session_id = hold.leg, hold.owner, hold.session_id
    row.expires, row.ended = book.now + lease, 0.0
    book.note(row)
    spent = subtract_amounts(total, row.base)
    dispute(book, row, disputed, spent)
    landing, flight = (want.landing_tokens, want.landing_money), (want.flight_tokens, want.flight_money)
    need = add_amounts(add_amounts(spent, landing), flight)
    shut = next((one.name for one in hold.line if book.wallets[one.name].closed), None)
    if shut is not None or renewing:
        _shrink(book, row, spent, need, landing)
        return _answer(row, Grant(verdict="closed", tight=shut) if shut and not renewing else Grant(verdict="granted"))
    moves = line != row.line and flight == NOTHING
    if moves:
        need = landing  # in the new period; what was spent before stays where it was held
    stays = (want.around_tokens, want.around_money) if want.starting else None
    room = _room_for(book, row, line if moves else row.line, need, least, stays)
    if _is_enough(asked, room.now):
        verdict = "granted"
    elif _is_enough(asked, room.alone):
        verdict = "wait"
    elif _is_enough(least, room.now):
        verdict, asked = "granted", _cut(asked, room.now)
    else:
        verdict = "wait" if _is_enough(least, room.alone) else "refused"
    ahead = [None if have is None else max(0, have) for have in room.alone]
    if verdict == "granted":
        if moves:
            _book_hold(book, row, spent, spent, NOTHING)
            row.base, row.line = total, line
            row.spent = row.grant = row.firm = row.disputed = spent = NOTHING
            row.disputed_base = disputed
        _book_hold(book, row, spent, add_amounts(need, (max(0, asked[0]), max(0, asked[1]))), landing)
        ahead = [None if have is None else max(0, have - max(0, one)) for have, one in zip(ahead, asked, strict=True)]
    else:  # a waiting run holds only what it needs; its landing reserve is not moved
        _shrink(book, row, spent, add_amounts(add_amounts(spent, landing), flight), landing)
    tight = room.tight if verdict == "refused" else Grant(verdict=verdict)
    return _answer(row, tight, ahead)


def _shrink(book: WalletTransaction, row: HoldRow, spent: Pair, need: Pair, landing: Pair) -> None:
    """Give back what is neither spent nor kept nor in flight."""
    tokens, money = (max(used, min(had, wants)) for used, had, wants in zip(spent, row.grant, need, strict=True))
    kept = min(landing[0], tokens - spent[0]), min(landing[1], money - spent[1])
    _book_hold(book, row, spent, (tokens, money), kept)


def _answer(row: HoldRow, grant: Grant, ahead: Sequence[int | None] = (None, None)) -> Grant:
    return Grant(
        verdict=grant.verdict,
        tokens=row.base[0] + row.grant[0],
        money=row.base[1] + row.grant[1],
        ahead_tokens=ahead[0],
        ahead_money=ahead[1],
        tight=grant.tight,
        period=grant.period,
        resource=grant.resource,
        most=grant.most,
        used=grant.used,
        disputed=grant.disputed,
    )


def settle(book: WalletTransaction, hold: Hold, total: Pair, disputed: Pair = NOTHING) -> bool:
    """The run is over."""
    row = book.holds.get(hold.key)
    if row is None or row.leg != hold.leg:
        return book.again and row is None
    _close(book, row, total, disputed)
    return True


def _close(book: WalletTransaction, row: HoldRow, total: Pair, disputed: Pair) -> None:
    spent = max(0, total[0] - row.base[0]), max(0, total[1] - row.base[1])
    dispute(book, row, disputed, spent)
    _book_hold(book, row, spent, spent, NOTHING)
    del book.holds[row.key]  # another leg may open it again, in the same transaction
    book.dropped.append(row.key)


# --- the dead -----------------------------------------------------------------------------------------------------


def is_forgettable(row: HoldRow, now: float) -> bool:
    """True for a hold that is no longer needed: it was written off long ago, or ended holding nothing."""
    if row.ended:
        return row.ended < now - KEPT
    return now >= row.expires and row.grant == row.spent


def list_overdue_holds(rows: Iterable[HoldRow], now: float, lease: float) -> list[OverdueHold]:
    """Those of these holds whose owner is dead, or silent for too long, in a store with leases of this length."""
    return [
        OverdueHold(
            key=row.key,
            leg=row.leg,
            session_id=row.session_id,
            dead=not is_alive(row.owner),
            written_off=row.ended > 0,
        )
        for row in rows
        if (_is_doubtful(row, now) if row.ended else _is_overdue(row, now, lease))
    ]


def _is_overdue(row: HoldRow, now: float, lease: float) -> bool:
    """True when its owner is dead, or silent for too long; also when only a fast clock can have said that it lasts."""
    return is_claimable(row.owner, row.expires, now, _MOST_LEASES * lease)


def _is_doubtful(row: HoldRow, now: float) -> bool:
    """True for a run that was written off long ago and not heard of since, and whose journal may know better."""
    return row.session_id is not None and now >= row.ended + DOUBT


def write_off(
    book: WalletTransaction, late: OverdueHold, total: Pair | None, lease: float, disputed: Pair = NOTHING
) -> bool:
    """Settle what a dead run held: at what its journal says, else at everything."""
    row = book.holds.get(late.key)
    if row is None or row.leg != late.leg:
        return book.again and row is None
    if row.ended:
        if not _is_doubtful(row, book.now):
            return book.again
        if total is None:
            row.session_id = None  # nobody will ever know
            book.note(row)
        else:
            _close(book, row, total, disputed)
        return True
    if not _is_overdue(row, book.now, lease):
        return False
    if total is None and row.grant == row.spent:  # it held nothing: there is nothing to correct
        total = add_amounts(row.base, row.spent)
    if total is not None:
        _close(book, row, total, disputed)
        return True
    _book_hold(book, row, row.grant, row.grant, NOTHING)
    row.ended = book.now
    return True


# --- operators ----------------------------------------------------------------------------------------------------


def _require_wallet(book: WalletTransaction, name: str) -> WalletRow:
    row = book.wallets.get(name)
    if row is None:
        raise StoreError(f"there is no wallet {name!r} in this store", kind="missing")
    return row


def override_limits(book: WalletTransaction, name: str, most: tuple[int | None, int | None]) -> None:
    """An operator sets limits, or lets programs set them again."""
    row = _require_wallet(book, name)
    for resource, limit in enumerate(most):
        if limit is not None and row.most[resource] is None:
            what = ("max_tokens", "max_cost")[resource]
            raise StoreError(
                f"wallet {name!r} has no {what}: its runs do not count that. Add {what} to the Limits of its Budget "
                "first",
                kind="conflict",
            )
    row.ruled = (
        most if most == (None, None) else (_first_known(most[0], row.ruled[0]), _first_known(most[1], row.ruled[1]))
    )
    book.note(row)


def _first_known(new: int | None, old: int | None) -> int | None:
    return old if new is None else new


def close_wallet(book: WalletTransaction, name: str, *, shut: bool) -> None:
    """Refuse every further draw, or allow them again."""
    row = _require_wallet(book, name)
    row.closed = shut
    book.note(row)


def check_removable(book: WalletTransaction, name: str, *, parent: bool) -> None:
    """A wallet may be forgotten; raises when it is still of use."""
    _require_wallet(book, name)
    mine = [account for account in book.periods.values() if account.name == name]
    why = "other wallets are inside it" if parent else ""
    if any(account.held != NOTHING for account in mine):
        why = why or "runs hold a part of it"
    if any(account.disputed != NOTHING for account in mine):
        why = why or f"it has disputed bills; decide with `glidepath wallets accept` or `reject {name}`"
    if why:
        raise StoreError(f"wallet {name!r} is in use: {why}", kind="busy")


def errors_in(
    wallets: Iterable[WalletRow], accounts: Iterable[PeriodRow], holds: Iterable[HoldRow], bills: Iterable[BillRow]
) -> dict[str, str]:
    """What does not add up, by wallet: held must be what its runs hold, and disputed what its bills say."""
    disputed: dict[tuple[str, str], Pair] = {}
    for bill in bills:
        for place in bill.line:
            disputed[place] = add_amounts(disputed.get(place, NOTHING), bill.amount)
    held: dict[tuple[str, str], Pair] = {}
    firm: dict[tuple[str, str], Pair] = {}
    for hold in holds:
        for place in hold.line:
            held[place] = add_amounts(held.get(place, NOTHING), subtract_amounts(hold.grant, hold.spent))
            firm[place] = add_amounts(firm.get(place, NOTHING), hold.firm)
    names = {row.name for row in wallets}
    found = {
        row.name: f"its parent {row.parent!r} is not there"
        for row in wallets
        if row.parent is not None and row.parent not in names
    }
    for one in accounts:
        place = (one.name, one.period)
        when = f" in {one.period}" if one.period else ""
        if one.name not in names:
            found[one.name] = f"it has an account{when} and does not exist"
        elif min(one.used) < 0:
            found[one.name] = f"less than nothing is used{when}: {one.used}"
        elif (one.held, one.firm) != (held.get(place, NOTHING), firm.get(place, NOTHING)):
            owned = held.get(place, NOTHING)
            found[one.name] = f"tokens and money held{when} are {one.held}, and its runs hold {owned}"
        elif one.disputed != disputed.get(place, NOTHING):
            billed = disputed.get(place, NOTHING)
            found[one.name] = f"tokens and money disputed{when} are {one.disputed}, and its bills say {billed}"
    return found


def describe_wallet(row: WalletRow, accounts: Iterable[PeriodRow], holds: Iterable[HoldRow], now: float) -> Wallet:
    """A wallet as shown to users."""
    period = period_of(row.per, now)
    mine = {account.period: account for account in accounts if account.name == row.name}
    current = mine.get(period) or PeriodRow(name=row.name, period=period)
    live = sum(1 for hold in holds if not hold.ended and any(name == row.name for name, _ in hold.line))
    return Wallet(
        name=row.name,
        per=row.per,
        parent=row.parent,
        period=period,
        max_tokens=row.limit(0),
        max_money=row.limit(1),
        declared=row.most,
        tokens=current.used[0],
        money=current.used[1],
        held_tokens=current.held[0],
        held_money=current.held[1],
        disputed_tokens=current.disputed[0],
        disputed_money=current.disputed[1],
        holds=live,
        closed=row.closed,
        overruled=row.ruled != (None, None),
        history={name: mine[name].used for name in sorted(mine)},
    )
