"""Wallets in a store: every method of a `WalletStore`, on top of one that lends a few rows for a transaction."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from glidepath._wire import Value
from glidepath.sessions import bills, wallet_rules as books
from glidepath.sessions.session_ids import check_storable_id, is_keepable
from glidepath.sessions.wallet_rows import BillRow, HoldRow, PeriodRow, WalletRow, WalletTransaction
from glidepath.spi import DisputedBill, Grant, Hold, OverdueHold, Wallet, WalletDraw, WalletTerms

T = TypeVar("T")
WalletRows = tuple[list[WalletRow], list[PeriodRow], list[BillRow]]


class Rows(Value, frozen=True, kw_only=True):
    """Which rows a piece of work needs: these holds with the accounts of their lines, and these wallets.

    `now` asks for the running period of each wallet in `line`; `whole` for every account of the wallets, and
    `everything` for all wallets there are.
    """

    keys: tuple[str, ...] = ()
    wallets: tuple[str, ...] = ()
    line: tuple[Any, ...] = ()
    whole: bool = False
    everything: bool = False
    bill: str | None = None
    """This bill with the accounts that it is held in; "" is all bills."""
    makes: bool = False
    """It makes wallets where there may be none."""


class WalletService:
    """The methods of a `WalletStore`. A store derives from it and lends rows."""

    _lease: float

    @abstractmethod
    async def _transact_rows(self, rows: Rows, work: Callable[[WalletTransaction], T]) -> T:
        """Read these rows, let `work` change them, write what it changed: one transaction, or nothing on an error.

        A store that cannot know whether it was written may do it again, with `Book.again` set.
        """

    @abstractmethod
    async def _live_holds(self) -> tuple[float, Sequence[HoldRow]]:
        """What time it is, and every hold that is not written off, or whose journal may know better.

        Those written off long ago are forgotten, and those that are overdue and hold nothing.
        """

    @abstractmethod
    async def _remove_wallet(self, name: str) -> None:
        """Delete a wallet and its accounts, if nothing is held there and it has no children."""

    async def _keep_open(self, key: str) -> None:
        """A hold is drawn on for the first time in this process."""

    async def _end_hold(self, key: str) -> None:
        """A hold of this process is over."""

    async def draw(self, hold: Hold, want: WalletDraw) -> Grant:
        """Take out what a call may cost; see `WalletStore`."""
        await self._keep_open(hold.key)
        rows = Rows(keys=(hold.key,), wallets=tuple(one.name for one in hold.line), line=hold.line)
        return await self._transact_rows(rows, lambda book: books.draw(book, hold, want, self._lease))

    async def open_wallets(self, line: Sequence[WalletTerms]) -> None:
        """Make the wallets that are new."""
        rows = Rows(wallets=tuple(one.name for one in line), line=tuple(line))
        await self._transact_rows(rows, lambda book: books.open_wallets(book, line))

    async def settle(self, hold: Hold, tokens: int, money: int, *, disputed: tuple[int, int] = (0, 0)) -> bool:
        """The run is over."""
        rows = Rows(keys=(hold.key,), wallets=tuple(one.name for one in hold.line))
        try:
            return await self._transact_rows(rows, lambda book: books.settle(book, hold, (tokens, money), disputed))
        finally:
            await self._end_hold(hold.key)

    async def overdue(self) -> Sequence[OverdueHold]:
        """The holds that should be written off."""
        now, rows = await self._live_holds()
        return books.list_overdue_holds(rows, now, self._lease)

    async def write_off(
        self, hold: OverdueHold, tokens: int | None, money: int | None, *, disputed: tuple[int, int] = (0, 0)
    ) -> bool:
        """Settle a hold that is still overdue."""
        total = None if tokens is None or money is None else (tokens, money)
        return await self._transact_rows(
            Rows(keys=(hold.key,)), lambda book: books.write_off(book, hold, total, self._lease, disputed)
        )

    async def wallets(self, name: str | None = None) -> Sequence[Wallet]:
        """Every wallet by name, or one."""
        if name is not None and not is_keepable(name):
            return []
        _, holds = await self._live_holds()
        wanted = () if name is None else (name,)

        def work(book: WalletTransaction) -> list[Wallet]:
            accounts = list(book.periods.values())
            return [books.describe_wallet(book.wallets[one], accounts, holds, book.now) for one in sorted(book.wallets)]

        return await self._transact_rows(Rows(wallets=wanted, whole=True, everything=name is None), work)

    async def set_wallet(self, name: str, *, max_tokens: int | None, max_money: int | None) -> None:
        """An operator's limits."""
        await self._transact_rows(
            Rows(wallets=(check_storable_id(name),)),
            lambda book: books.override_limits(book, name, (max_tokens, max_money)),
        )

    async def close_wallet(self, name: str, *, closed: bool = True) -> None:
        """Refuse every further draw, or allow them again."""
        await self._transact_rows(
            Rows(wallets=(check_storable_id(name),)), lambda book: books.close_wallet(book, name, shut=closed)
        )

    async def remove_wallet(self, name: str) -> None:
        """Forget a wallet."""
        await self._remove_wallet(check_storable_id(name))

    async def bills(self, name: str | None = None) -> Sequence[DisputedBill]:
        """The bills that nobody has decided on."""
        if name is not None and not is_keepable(name):
            return []

        def read(book: WalletTransaction) -> list[DisputedBill]:
            found = [bills.describe_bill(row) for row in book.bills.values()]
            return sorted([bill for bill in found if name is None or name in bill.wallets], key=lambda bill: bill.at)

        return await self._transact_rows(Rows(whole=True, bill=""), read)

    async def decide_bill(self, bill_id: str, *, accepted: bool) -> bool:
        """Accept a bill, or reject it."""
        if not bill_id or not is_keepable(bill_id):
            return False
        return await self._transact_rows(
            Rows(bill=bill_id), lambda book: bills.decide_bill(book, bill_id, accepted=accepted)
        )

    async def wallet_errors(self) -> tuple[int, dict[str, str]]:
        """How many wallets there are, and what does not add up in any of them, by its name."""

        def read(book: WalletTransaction) -> WalletRows:
            return list(book.wallets.values()), list(book.periods.values()), list(book.bills.values())

        _, holds = await self._live_holds()
        wallets, accounts, bills = await self._transact_rows(Rows(whole=True, everything=True, bill=""), read)
        return len(wallets), books.errors_in(wallets, accounts, holds, bills)


class MemoryWallets(WalletService):
    """Wallets in memory."""

    _clock: Callable[[], float]
    _lock: threading.Lock

    def __init__(self) -> None:
        self._book = WalletTransaction(0.0)

    async def _transact_rows(self, rows: Rows, work: Callable[[WalletTransaction], T]) -> T:
        with self._lock:
            book = self._book
            book.now = self._clock()
            wanted = book
            if rows.whole and not rows.everything:
                wanted = WalletTransaction(book.now)
                wanted.wallets = {name: book.wallets[name] for name in rows.wallets if name in book.wallets}
                wanted.periods, wanted.bills = book.periods, book.bills
            done = work(wanted)
            for bill in book.new_bills:
                bills.add_bill(book, bill)
            book.new_bills.clear()
            book.decided.clear()
            book.dropped.clear()
            book.changed.clear()
            return done

    async def _live_holds(self) -> tuple[float, Sequence[HoldRow]]:
        with self._lock:
            now, holds = self._clock(), self._book.holds
            for row in [row for row in holds.values() if books.is_forgettable(row, now)]:
                del holds[row.key]
            return now, [row for row in holds.values() if not row.ended or row.session_id is not None]

    async def _remove_wallet(self, name: str) -> None:
        with self._lock:
            book = self._book
            books.check_removable(book, name, parent=any(row.parent == name for row in book.wallets.values()))
            del book.wallets[name]
            book.periods = {place: row for place, row in book.periods.items() if place[0] != name}
