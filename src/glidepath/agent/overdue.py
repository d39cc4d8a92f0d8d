"""What dead runs held of a wallet: settled by their journal if it knows, else counted as used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from glidepath.agent.kin import used_in
from glidepath.errors import ConfigurationError, StoreError
from glidepath.sessions.answer import called, heard
from glidepath.sessions.archive import read_journal
from glidepath.sessions.journal_writer import claim_session
from glidepath.spi.ports import offers
from glidepath.spi.sessions import SessionStore
from glidepath.spi.wallets import Wallet, WalletStore

if TYPE_CHECKING:
    from glidepath.spi.wallets import OverdueHold, WalletTerms

_ALL = (None, None)


class WalletKeeper(SessionStore, WalletStore, Protocol):
    """A store with journals and wallets: the journals say what a dead run has used."""


async def sweep(store: WalletKeeper) -> int:
    """Write off the holds that are overdue; how many there were. Raises `StoreError` when the store fails.

    A journal has on disk, before each call, what that call may cost. So it says exactly what a dead run has used, a
    call in flight at its worst case. Where there is no journal, or one that cannot say, all that was held counts as
    used. So it does at first for a run that is silent and may only be slow; when it is silent for another minute it is
    kept from its journal, so that it can begin no further call, and then the journal is asked. In a
    read-only store nothing is written off.
    """
    done = 0
    for late in await heard(called(store.overdue)):
        try:
            figures = await _by_journal(store, late)
            if figures is not None:
                done += bool(await heard(called(store.write_off, late, *figures)))
        except StoreError as error:
            if error.kind != "read_only":
                raise
            break
    return done


async def known_wallet(store: object, name: str) -> Wallet:
    """A wallet of this name; raises `ConfigurationError` when there is none."""
    if not offers(store, WalletStore):
        raise ConfigurationError(f"{store!r:.80} keeps no wallets")
    try:
        found = await heard(called(store.wallets, name))
    except StoreError as error:
        if error.kind != "missing":
            raise
        found = ()
    if not found:
        raise ConfigurationError(f"there is no wallet {name!r:.80} in this store; `glidepath wallets set` makes one")
    return found[0]


async def account_of(store: WalletKeeper, terms: WalletTerms) -> Wallet:
    """The state of a wallet after settling overdue holds; all zeros until a run has drawn from it."""
    try:
        await sweep(store)
        found = await heard(called(store.wallets, terms.name))
    except StoreError as error:
        if error.kind != "missing":
            raise
        found = ()
    if found:
        return found[0]
    return Wallet(
        name=terms.name,
        per=terms.per,
        parent=terms.parent,
        period="",
        max_tokens=terms.max_tokens,
        max_money=terms.max_money,
    )


async def _by_journal(store: WalletKeeper, late: OverdueHold) -> tuple[int | None, int | None] | None:
    """The meter of the run as its journal has it; (None, None) when nobody knows; None when it is alive after all."""
    if late.session_id is None or not (late.dead or late.written_off):
        return _ALL
    try:
        if late.dead:
            return await _read(store, late)
        lease = await claim_session(store, late.session_id, create=False)
        try:
            return await _read(store, late)
        finally:
            await heard(called(store.release, lease))
    except StoreError as error:
        if error.kind == "busy":
            return None
        if error.kind in ("missing", "damaged"):
            return _ALL
        raise


async def _read(store: SessionStore, late: OverdueHold) -> tuple[int | None, int | None]:
    folded = (await heard(read_journal(store, late.session_id or ""))).folded
    snapshot = folded.snapshot
    if snapshot is None or late.key != f"{late.session_id}:{snapshot.run_id}":
        return _ALL  # there has been another run since
    if folded.children and not late.dead:
        return _ALL  # a child that is only slow writes its own journal
    used = await used_in(store, late.session_id or "")
    return _ALL if used is None else (used.tokens, used.picodollars)
