"""Disputed bills: what a provider has billed beyond what the calls of a run explain.

The run is charged at once. In its wallets the part that nothing explains is neither used nor free until a person
decides: one server that lies, or slips, must not use up the month of everybody else.
"""

from __future__ import annotations

import hashlib

from glidepath.sessions.wallet_rows import (
    NOTHING,
    BillRow,
    HoldRow,
    Line,
    Pair,
    WalletTransaction,
    add_amounts,
    subtract_amounts,
)
from glidepath.spi import DisputedBill


def dispute(book: WalletTransaction, row: HoldRow, total: Pair, spent: Pair) -> None:
    """Move what is newly disputed of what a hold has spent from used to disputed, in every account of its line."""
    # Of two figures of different ages the smaller one: the meter of a run is charged after its dispute.
    now = [min(one - base, most) for one, base, most in zip(total, row.disputed_base, spent, strict=True)]
    more = max(0, now[0] - row.disputed[0]), max(0, now[1] - row.disputed[1])
    if more == NOTHING:
        return
    for place in row.line:
        account = book.account(place)
        account.used = subtract_amounts(account.used, more)
        account.disputed = add_amounts(account.disputed, more)
        book.note(account)
    row.disputed = add_amounts(row.disputed, more)
    book.note(row)
    book.new_bills.append(BillRow(id=bill_id(row.key, row.line), key=row.key, line=row.line, at=book.now, amount=more))


def bill_id(key: str, line: Line) -> str:
    """Of a run and its accounts, so that what comes later is added to the same bill without looking for it."""
    return hashlib.sha256(repr((key, line)).encode("utf-8", "backslashreplace")).hexdigest()[:10]


def add_bill(book: WalletTransaction, bill: BillRow) -> None:
    """Add what has come to a bill to the one that is kept."""
    before = book.bills.get(bill.id)
    if before is None:
        book.bills[bill.id] = bill
    else:
        before.amount, before.at = add_amounts(before.amount, bill.amount), bill.at


def decide_bill(book: WalletTransaction, bill_id: str, *, accepted: bool) -> bool:
    """Use what a bill has disputed, or free it, in every account that holds it."""
    bill = book.bills.pop(bill_id, None)
    if bill is None:
        return book.again
    book.decided.append(bill_id)
    for place in bill.line:
        account = book.account(place)
        left = subtract_amounts(account.disputed, bill.amount)
        account.disputed = max(0, left[0]), max(0, left[1])
        if accepted:
            account.used = add_amounts(account.used, bill.amount)
        book.note(account)
    return True


def describe_bill(row: BillRow) -> DisputedBill:
    """A bill as shown to users."""
    names, periods = zip(*row.line, strict=True)
    tokens, money = row.amount
    return DisputedBill(id=row.id, run=row.key, wallets=names, periods=periods, tokens=tokens, money=money, at=row.at)
