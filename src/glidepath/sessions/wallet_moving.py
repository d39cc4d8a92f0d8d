"""Carrying wallets from one store to another: their accounts as they are, between SQLite files."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from glidepath.errors import StoreError
from glidepath.sessions.segment_catalog import SegmentWallets
from glidepath.sessions.sqlite import SqliteStore
from glidepath.spi.sessions import WalletStore

__all__ = ["carry_wallets"]

_TABLES = ("wallets", "wallet_periods", "wallet_holds")


async def carry_wallets(source: Any, target: Any) -> None:
    """Copy every wallet with its history and what runs hold of it; raises `StoreError` when that cannot be.

    A wallet that the target has already, with the same figures, is left as it is.
    """
    if not isinstance(source, WalletStore):
        return
    names = [wallet.name for wallet in await source.wallets()]
    if not names:
        return
    old, new = _accounts(source), _accounts(target)
    if old is None or new is None:
        what = f"its {len(names)} wallets cannot be carried over between these stores, so they are not in the new one"
        raise StoreError(what, kind="unavailable")
    with closing(old.connect_accounts()) as there, closing(new.connect_accounts()) as here:
        here.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            rows = there.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our own names
            for row in rows:
                marks = ", ".join("?" * len(row))
                here.execute(f"INSERT OR IGNORE INTO {table} VALUES({marks})", row)
            if table != _TABLES[-1] and set(rows) - set(here.execute(f"SELECT * FROM {table}")):  # noqa: S608
                here.execute("ROLLBACK")
                raise StoreError("the other store has wallets of the same names with other figures", kind="conflict")
        here.execute("COMMIT")


def _accounts(store: Any) -> SqliteStore | None:
    if isinstance(store, SegmentWallets):
        return store.opened_accounts()
    return store if isinstance(store, SqliteStore) else None
