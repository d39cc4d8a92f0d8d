"""Copying sessions from one store to another unchanged: every commit, hash and summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath._wire import Value
from glidepath.errors import ConfigurationError, StoreError
from glidepath.plurals import how_many
from glidepath.sessions.chain import verified
from glidepath.sessions.families import IMPORTING
from glidepath.sessions.finding import annotate, each_session
from glidepath.sessions.owner import this_owner
from glidepath.sessions.redaction import redactor_of
from glidepath.sessions.wallet_desk import WalletDesk
from glidepath.spi.ports import offers
from glidepath.spi.sessions import Commit, Entry, Inbox, Lease, SessionStore
from glidepath.spi.wallets import WalletStore


class Migrated(Value, frozen=True, kw_only=True):
    """What a migration copied, and what it left behind, with the reason for each."""

    moved: tuple[str, ...] = ()
    left: Mapping[str, str] = {}


async def migrate(source: SessionStore, target: SessionStore) -> Migrated:
    """Copy every session and wallet of `source` into `target`; `source` is not changed, and can be copied again.

    A session whose run is in flight, that is damaged, or that `target` has otherwise is left, and the reason is told.
    One whose copy was cut short cannot be resumed in `target` until it is carried over again. Raises
    `ConfigurationError` for a `target` that redacts what it stores.
    """
    if redactor_of(target) is not None:
        raise ConfigurationError("target: a store that redacts takes no unchanged copies; export and import instead")
    moved: list[str] = []
    left: dict[str, str] = {}
    entries = [entry async for entry in each_session(source, roots=False)]
    for entry in sorted(entries, key=lambda entry: entry.updated):
        try:
            await _carry(source, target, entry)
            moved.append(entry.session_id)
        except StoreError as error:
            left[entry.session_id] = str(error)
    try:
        await _carry_wallets(source, target)
    except StoreError as error:
        left["wallets"] = str(error)
    return Migrated(moved=tuple(moved), left=left)


async def _carry(source: SessionStore, target: SessionStore, listed: Entry) -> None:
    session_id = listed.session_id
    lease = await _hold(source, session_id)
    try:
        entry, commits = await source.load(session_id)
        list(verified(commits, head=entry.head, hash_=entry.hash))
        await _put(target, entry, commits)
        if listed.flag is not None:
            await target.flag(session_id, listed.flag)
        if offers(source, Inbox) and offers(target, Inbox):
            for note in await source.notes(session_id):
                await target.post(session_id, note)
        if listed.title or listed.tags:
            await annotate(target, session_id, title=listed.title, tags=listed.tags)
        there, found = await target.load(session_id)
        if (there.head, list(found)) != (entry.head, list(commits)):
            raise StoreError(f"session {session_id!r} differs in the other store after the copy", kind="damaged")
    finally:
        if lease is not None:
            await source.release(lease)


async def _carry_wallets(source: SessionStore, target: SessionStore) -> None:
    """Wallets with their limits and their history; raises `StoreError` when the target cannot keep them."""
    if not offers(source, WalletStore):
        return
    old, new = _desk_of(source), _desk_of(target)
    try:
        count = len(await source.wallets())
        if count and (old is None or new is None):
            what = f"{how_many(count, 'wallet')} left in the old store: these stores cannot copy wallets"
            raise StoreError(what, kind="unavailable")
        if count and old is not None and new is not None:
            await new.take_wallets(*await old.wallet_rows())
    except StoreError as error:
        if error.kind != "missing":
            raise


def _desk_of(store: object) -> WalletDesk | None:
    return store if isinstance(store, WalletDesk) else None


async def _hold(source: SessionStore, session_id: str) -> Lease | None:
    """Keep others from writing the session; None when the store is read-only."""
    try:
        return await source.claim(session_id, this_owner(), create=False)
    except StoreError as error:
        if error.kind != "read_only":
            raise
        return None


async def _put(target: SessionStore, entry: Entry, commits: Sequence[Commit]) -> None:
    try:
        have: Sequence[Commit] = (await target.load(entry.session_id))[1]
    except StoreError as error:
        if error.kind != "missing":
            raise
        have = ()
    if list(have) != list(commits[: len(have)]):
        raise StoreError(f"the other store has another session {entry.session_id!r}", kind="conflict")
    rest = commits[len(have) :]
    if have and not rest:
        return
    lease = await target.claim(entry.session_id, this_owner())
    try:
        for commit in rest:
            later = target.append(lease, commit, summary=_summary(entry, commit))
            if later is not None:
                await later
    finally:
        await target.release(lease)


def _summary(entry: Entry, commit: Commit) -> Mapping[str, Any]:
    """Until its last commit is there, a copy has no authority."""
    return entry.summary if commit.number == entry.head else {IMPORTING: True}
