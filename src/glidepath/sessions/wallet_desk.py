"""Wallets in a store: every method of a `WalletStore`, on top of one that lends a few rows for a transaction."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

from glidepath._wire import Value
from glidepath.sessions import books
from glidepath.sessions.books import Book
from glidepath.sessions.session_ids import is_keepable, keepable
from glidepath.spi.wallets import Grant, Hold, OverdueHold, Wallet, WalletDraw, WalletTerms

T = TypeVar("T")


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
    makes: bool = False
    """It makes wallets where there may be none."""


class WalletDesk:
    """The methods of a `WalletStore`. A store derives from it and lends rows."""

    _lease: float
    swept: float = -inf
    """When somebody in this process last began to write off what is overdue, by the monotonic clock."""

    @abstractmethod
    async def _lend(self, rows: Rows, work: Callable[[Book], T]) -> T:
        """Read these rows, let `work` change them, write what it changed: one transaction, or nothing on an error.

        A store that cannot know whether it was written may do it again, with `Book.again` set.
        """

    @abstractmethod
    async def _live_holds(self) -> tuple[float, Sequence[books.HoldRow]]:
        """What time it is, and every hold that is not written off, or whose journal may know better.

        Those written off long ago are forgotten, and those that are overdue and hold nothing.
        """

    @abstractmethod
    async def _remove_wallet(self, name: str) -> None:
        """Delete a wallet and its accounts, if nothing is held there and it has no children."""

    async def _held_open(self, key: str) -> None:
        """A hold is drawn on for the first time in this process."""

    async def _let_close(self, key: str) -> None:
        """A hold of this process is over."""

    async def draw(self, hold: Hold, want: WalletDraw) -> Grant:
        """Take out what a call may cost; see `WalletStore`."""
        await self._held_open(hold.key)
        rows = Rows(keys=(hold.key,), wallets=tuple(one.name for one in hold.line), line=hold.line)
        return await self._lend(rows, lambda book: books.draw(book, hold, want, self._lease))

    async def open_wallets(self, line: Sequence[WalletTerms]) -> None:
        """Make the wallets that are new."""
        rows = Rows(wallets=tuple(one.name for one in line), line=tuple(line))
        await self._lend(rows, lambda book: books.opened(book, line))

    async def settle(self, hold: Hold, tokens: int, money: int) -> bool:
        """The run is over."""
        rows = Rows(keys=(hold.key,), wallets=tuple(one.name for one in hold.line))
        try:
            return await self._lend(rows, lambda book: books.settle(book, hold, (tokens, money)))
        finally:
            await self._let_close(hold.key)

    async def overdue(self) -> Sequence[OverdueHold]:
        """The holds that should be written off."""
        now, rows = await self._live_holds()
        return books.overdue(rows, now)

    async def write_off(self, hold: OverdueHold, tokens: int | None, money: int | None) -> bool:
        """Settle a hold that is still overdue."""
        total = None if tokens is None or money is None else (tokens, money)
        return await self._lend(Rows(keys=(hold.key,)), lambda book: books.write_off(book, hold, total))

    async def wallets(self, name: str | None = None) -> Sequence[Wallet]:
        """Every wallet by name, or one."""
        if name is not None and not is_keepable(name):
            return []
        _, holds = await self._live_holds()
        wanted = () if name is None else (name,)

        def work(book: Book) -> list[Wallet]:
            accounts = list(book.periods.values())
            return [books.shown(book.wallets[one], accounts, holds, book.now) for one in sorted(book.wallets)]

        return await self._lend(Rows(wallets=wanted, whole=True, everything=name is None), work)

    async def set_wallet(self, name: str, *, max_tokens: int | None, max_money: int | None) -> None:
        """An operator's limits."""
        await self._lend(
            Rows(wallets=(keepable(name),)), lambda book: books.overruled(book, name, (max_tokens, max_money))
        )

    async def close_wallet(self, name: str, *, closed: bool = True) -> None:
        """Refuse every further draw, or allow them again."""
        await self._lend(Rows(wallets=(keepable(name),)), lambda book: books.closed(book, name, shut=closed))

    async def remove_wallet(self, name: str) -> None:
        """Forget a wallet."""
        await self._remove_wallet(keepable(name))

    async def wallet_errors(self) -> tuple[int, dict[str, str]]:
        """How many wallets there are, and what does not add up in any of them, by its name."""

        def read(book: Book) -> tuple[list[books.WalletRow], list[books.PeriodRow]]:
            return list(book.wallets.values()), list(book.periods.values())

        _, holds = await self._live_holds()
        wallets, accounts = await self._lend(Rows(whole=True, everything=True), read)
        return len(wallets), books.errors_in(wallets, accounts, holds)

    async def wallet_rows(self) -> tuple[list[books.WalletRow], list[books.PeriodRow]]:
        """Every wallet with its history, to be copied to another store; what is held counts as used."""

        def work(book: Book) -> tuple[list[books.WalletRow], list[books.PeriodRow]]:
            return list(book.wallets.values()), [books.all_used(row) for row in book.periods.values()]

        return await self._lend(Rows(whole=True, everything=True), work)

    async def take_wallets(self, wallets: Sequence[books.WalletRow], periods: Sequence[books.PeriodRow]) -> None:
        """Take in wallets of another store; existing ones do not change."""
        rows = Rows(whole=True, everything=True, makes=True)
        await self._lend(rows, lambda book: books.taken_in(book, wallets, periods))


class MemoryWallets(WalletDesk):
    """Wallets in memory."""

    _clock: Callable[[], float]
    _lock: threading.Lock

    def __init__(self) -> None:
        self._book = Book(0.0)

    async def _lend(self, rows: Rows, work: Callable[[Book], T]) -> T:
        with self._lock:
            book = self._book
            book.now = self._clock()
            wanted = book
            if rows.whole and not rows.everything:
                wanted = Book(book.now)
                wanted.wallets = {name: book.wallets[name] for name in rows.wallets if name in book.wallets}
                wanted.periods = book.periods
            done = work(wanted)
            book.dropped.clear()
            book.changed.clear()
            return done

    async def _live_holds(self) -> tuple[float, Sequence[books.HoldRow]]:
        with self._lock:
            now, holds = self._clock(), self._book.holds
            for row in [row for row in holds.values() if books.forgotten(row, now)]:
                del holds[row.key]
            return now, [row for row in holds.values() if not row.ended or row.session_id is not None]

    async def _remove_wallet(self, name: str) -> None:
        with self._lock:
            book = self._book
            books.gone(book, name, parent=any(row.parent == name for row in book.wallets.values()))
            del book.wallets[name]
            book.periods = {place: row for place, row in book.periods.items() if place[0] != name}
