"""A segment store as a catalog and as a keeper of wallets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import TypeVar

from glidepath.errors import StoreError
from glidepath.sessions.books import PeriodRow, WalletRow
from glidepath.sessions.cards import checked_query, checked_tags, checked_title
from glidepath.sessions.segment_desk import SegmentDesk
from glidepath.sessions.segment_folder import SegmentFolder
from glidepath.sessions.segment_sessions import find_page, label_session, remove_families
from glidepath.sessions.session_ids import is_keepable
from glidepath.sessions.sqlite import SqliteStore
from glidepath.spi.session_catalog import SessionPage, SessionQuery
from glidepath.spi.wallets import Grant, Hold, OverdueHold, Wallet, WalletDraw, WalletTerms

T = TypeVar("T")
_BATCH = 200


class SegmentCatalog:
    """What `SegmentStore` is as a `Catalog`."""

    _clock: Callable[[], float]
    _removed: int

    async def find(self, query: SessionQuery) -> SessionPage:
        """One page of the sessions that match."""
        checked_query(query)
        self._must_exist()
        return await self._patiently(lambda desk: find_page(desk, query), self._looking)

    async def remove_many(self, session_ids: Sequence[str]) -> list[str]:
        """Forget these sessions with their children, in batches."""
        self._must_exist()
        gone: list[str] = []
        names = [name for name in dict.fromkeys(session_ids) if is_keepable(name)]
        for first in range(0, len(names), _BATCH):
            batch = names[first : first + _BATCH]
            gone += await self._patiently(partial(remove_families, names=batch, now=self._clock()))
            await asyncio.sleep(0)
        await self._tidied(len(gone))
        return gone

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, the tags, or both."""
        name = None if title is None else checked_title(title)
        labels = None if tags is None else checked_tags(tags)
        self._must_exist(session_id)
        await self._patiently(lambda desk: label_session(desk, session_id, name, labels, self._clock()))

    # --- what the store has -----------------------------------------------------------------------------------

    def _must_exist(self, session_id: str = "") -> None:
        raise NotImplementedError

    async def _patiently(
        self, work: Callable[[SegmentDesk], T], how: Callable[[Callable[[SegmentDesk], T]], T] | None = None
    ) -> T:
        raise NotImplementedError

    def _looking(self, work: Callable[[SegmentDesk], T]) -> T:
        raise NotImplementedError

    async def _tidied(self, count: int) -> None:
        raise NotImplementedError


class SegmentWallets:
    """What `SegmentStore` is as a `WalletStore`: a SQLite file in its folder, which no segment could replace."""

    path: str
    _lease: float
    _clock: Callable[[], float]
    swept: float = -inf
    """When somebody in this process last began to write off what is overdue, by the monotonic clock."""

    def __init__(self) -> None:
        self.accounts = SqliteStore(f"{self.path}/wallets.db", lease=self._lease, clock=self._clock)

    def opened_accounts(self) -> SqliteStore:
        """The accounts, in a folder that is a store."""
        raise NotImplementedError

    def _there(self) -> SqliteStore | None:
        """The accounts, if there are any; raises `StoreError` (`missing`) when there is no store."""
        folder = SegmentFolder(self.path)
        if not folder.exists():
            raise StoreError(f"there is no session store at {self.path}", kind="missing")
        folder.refuse_other_layouts()
        return self.accounts if Path(self.accounts.path).exists() else None

    async def _with_wallet(self, name: str, work: Callable[[SqliteStore], Awaitable[None]]) -> None:
        accounts = self._there()
        if accounts is None:
            raise StoreError(f"there is no wallet {name!r} in {self.path}", kind="missing")
        await work(accounts)

    async def draw(self, hold: Hold, want: WalletDraw) -> Grant:
        """Take out what the next call may cost."""
        return await self.opened_accounts().draw(hold, want)

    async def open_wallets(self, line: Sequence[WalletTerms]) -> None:
        """Make the wallets that are new, and give the others these limits."""
        await self.opened_accounts().open_wallets(line)

    async def wallet_rows(self) -> tuple[list[WalletRow], list[PeriodRow]]:
        """Every wallet with its history, to be copied to another store."""
        accounts = self._there()
        return ([], []) if accounts is None else await accounts.wallet_rows()

    async def take_wallets(self, wallets: Sequence[WalletRow], periods: Sequence[PeriodRow]) -> None:
        """Take in wallets of another store."""
        await self.opened_accounts().take_wallets(wallets, periods)

    async def settle(self, hold: Hold, tokens: int, money: int) -> bool:
        """The run is over with its meter at these totals."""
        return await self.opened_accounts().settle(hold, tokens, money)

    async def overdue(self) -> Sequence[OverdueHold]:
        """The holds that should be written off."""
        accounts = self._there()
        return () if accounts is None else await accounts.overdue()

    async def write_off(self, hold: OverdueHold, tokens: int | None, money: int | None) -> bool:
        """Settle a hold that is still overdue."""
        accounts = self._there()
        return False if accounts is None else await accounts.write_off(hold, tokens, money)

    async def wallets(self, name: str | None = None) -> Sequence[Wallet]:
        """Every wallet, by name; or the one with this name, or none."""
        accounts = self._there()
        return () if accounts is None else await accounts.wallets(name)

    async def set_wallet(self, name: str, *, max_tokens: int | None, max_money: int | None) -> None:
        """An operator's limits."""
        await self._with_wallet(name, lambda one: one.set_wallet(name, max_tokens=max_tokens, max_money=max_money))

    async def close_wallet(self, name: str, *, closed: bool = True) -> None:
        """Refuse every further draw, or allow them again."""
        await self._with_wallet(name, lambda one: one.close_wallet(name, closed=closed))

    async def remove_wallet(self, name: str) -> None:
        """Forget a wallet and its history."""
        await self._with_wallet(name, lambda one: one.remove_wallet(name))
