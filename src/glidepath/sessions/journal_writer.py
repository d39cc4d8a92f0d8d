"""The writer of a journal: holds the lease of its session, adds commits to the chain, gives the session back.

A run writes through a `JournalRecorder`, a team through a `TeamJournal`. Both are journal writers and differ only in
what they put into a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from glidepath.run import run_uninterrupted
from glidepath.sessions.chain import link
from glidepath.sessions.lease_heartbeat import LeaseHeartbeat, letting_go, pulse_of
from glidepath.sessions.owner import this_owner
from glidepath.sessions.redaction import Redactor, redactor_of
from glidepath.sessions.store_calls import FAREWELL, StoreAnswer, as_store_error, await_store, call_store
from glidepath.spi import Lease, SessionStore, Sign
from glidepath.values import ConfigurationError, StoreError, ToolError

RENEW = 6  # beats between two renewals of the lease
Items: TypeAlias = list[tuple[str, Any]]


async def claim_session(store: SessionStore, session_id: str, *, create: bool = True) -> Lease:
    """Claim a session for writing; raises `StoreError`: `busy` while another process writes it, `missing`."""
    claim = call_store(store.claim, session_id, this_owner(), create=create)
    if letting_go(store) is None:
        # A claim that succeeds after we have stopped waiting would lock the session until it expires.
        lease = await await_store(claim, undo=store.release)
    else:  # it always answers, and takes back what is no longer awaited: no task and no timer has to watch it
        try:
            lease = await claim
        except (asyncio.CancelledError, ConfigurationError):
            raise
        except BaseException as error:
            raise as_store_error(error) from error
    # Stores are written by others too: said here, where it can be named, and not at the first commit.
    if not isinstance(lease, Lease):
        raise StoreError(f"the session store failed: claim answered with {type(lease).__name__}, not with a Lease")
    return lease


class JournalWriter:
    """Holds the lease of one session and writes its journal, one commit after the other."""

    __slots__ = (
        "__weakref__",
        "_beats",
        "_pulse",
        "_seen",
        "_taker",
        "broken",
        "durability",
        "hash",
        "lease",
        "number",
        "redactor",
        "sequence",
        "store",
    )

    def __init__(self, store: SessionStore, lease: Lease, *, durability: str = "sync", sequence: int = 0) -> None:
        self.store = store
        self.durability = durability
        self._taker: Any = store  # who takes the next commit: the store, or a transaction of its database
        self.redactor = redactor_of(store)
        self.lease = lease
        self.number = lease.head
        self.hash = lease.hash
        self.sequence = sequence
        self.broken: StoreError | None = None
        """Why writing has stopped: the store failed, or the session was given back."""
        self._pulse: LeaseHeartbeat | None = None
        self._beats, self._seen = 0, self.number

    # --- writing ----------------------------------------------------------------------------------------------

    def add(self, items: Items, now: float, summary: Mapping[str, Any] | None = None) -> Awaitable[None] | None:
        """Chain the next commit and give it to the store; await what it returns, if anything.

        The chain advances only after the store has accepted the commit: a failed write leaves no gap.
        """
        if self.redactor is not None:
            # Before the hash is made: the chain is over what is on disk, or nobody could verify it.
            items, summary = self._redact(self.redactor, items), self.redactor.summary(summary)
        sequence = self.sequence
        commit = link(self.hash, self.number + 1, sequence + 1, now, items)
        later: Awaitable[None] | None = self._taker.append(
            self.lease, commit, summary=summary, durability=self.durability
        )
        # After `append`: when that raises, the next commit gets the same number, and the chain has no gap.
        self.number = commit.number
        self.hash = commit.hash
        self.sequence = sequence + len(items)
        return later

    def _redact(self, redactor: Redactor, items: Items) -> Items:
        return redactor.items(items)

    async def begin_transaction(self, seconds: float | None) -> Any:
        """A transaction of the store's own database, for one call."""
        begin = getattr(self.store, "begin_transaction", None)
        if begin is None:
            raise ToolError(f"a transactional tool needs a PostgresStore, and this run is kept in {self.store!r:.80}")
        return await begin(self.lease, seconds)

    # --- the lease --------------------------------------------------------------------------------------------

    def keep_alive(self) -> None:
        """Renew the lease until `release`, and react to what the store reports."""
        self._pulse = pulse_of(self.store)
        self._pulse.join(self)

    def is_time_to_renew(self) -> bool:
        """Count a heartbeat and say whether to renew the lease with it. A commit renews it, too."""
        self._beats += 1
        # A commit renews the lease in the same transaction: it is renewed separately in quiet times only.
        if self.number != self._seen:
            self._beats, self._seen = 0, self.number
        return self._beats % RENEW == RENEW - 1

    async def take_sign(self, sign: Sign) -> None:
        """React to the store: another process owns the session, or wants something."""
        raise NotImplementedError

    async def release(self) -> None:
        """Give the lease back. Never fails: a lease that is not given back expires."""
        gone = self._release_lease_at_once()
        if gone is True:
            return
        try:
            if gone is not False:
                with suppress(StoreError):  # a lease that is not given back expires
                    await gone
                return
            # To its end even when the caller cancels: a lease that is kept blocks the next run for its whole term.
            await run_uninterrupted(self._give_back(), name="glidepath-release")
        finally:
            self.broken = self.broken or StoreError("the run has ended and given its session back", kind="fenced")

    def _release_lease_at_once(self) -> bool | StoreAnswer:
        """Give it back without a task or a timer, if the store can do that; False if not."""
        let_go = letting_go(self.store)
        if let_go is None or (self._pulse is not None and not self._pulse.leave_quietly(self)):
            return False
        self._pulse = None
        try:
            gone = let_go(self.store, self.lease)
        except Exception:  # it is tried again, with patience
            return False
        if gone is True:
            self.broken = self.broken or StoreError("the run has ended and given its session back", kind="fenced")
        return gone

    async def _give_back(self) -> None:
        # The heartbeat first: a beat that comes after the release would find the lease gone.
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            await pulse.remove_member(self)
        with suppress(Exception):
            await await_store(call_store(self.store.release, self.lease), FAREWELL)
