"""The session store port: where journals live. A journal is a chain of commits that only grows.

A commit is written whole or not at all. Whoever writes holds a lease: `claim` gives it out with a fencing token that
only grows, and a write with an older token is refused, however late it arrives. What is inside a commit is of no
concern to a store: it keeps bytes, their hash and their order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

from glidepath._wire import Value
from glidepath.stability import UNPROVEN, experimental

__all__ = ["Catalog", "Commit", "Entry", "Excerpts", "Lease", "SessionPage", "SessionQuery", "SessionStore", "Sign"]


class Commit(Value, frozen=True, gc=False):
    """One link of a journal: its number (from 1), the records as JSON bytes, and the hash over it and all before it."""

    number: int
    body: bytes
    hash: bytes


class Lease(Value, frozen=True, gc=False):
    """The right to write one session's journal until `expires` (seconds since the epoch, by the store's clock).

    `head` and `hash` are those of the last commit; 0 and empty for a session that is new.
    """

    session_id: str
    token: int
    owner: str
    expires: float
    head: int = 0
    hash: bytes = b""
    key: Any = None
    """Whatever the store itself needs to find the session quickly."""


class Entry(Value, frozen=True, kw_only=True):
    """What a store knows about a session without reading its journal. `summary` is what the last commit brought."""

    session_id: str
    head: int
    hash: bytes = b""
    token: int = 0
    owner: str | None = None
    expires: float = 0.0
    updated: float = 0.0
    flag: str | None = None
    """Why the run in this session must stop; None when nobody asked."""
    summary: Mapping[str, Any] = {}
    title: str = ""
    """What a person called it. Only a `Catalog` fills this in, and the next one."""
    tags: tuple[str, ...] = ()


class Sign(Value, frozen=True, kw_only=True):
    """What a heartbeat found out about one lease: it was `lost` to another owner, or the run must `stop` and why."""

    session_id: str
    lost: bool = False
    stop: str | None = None


@experimental(reason=UNPROVEN)
@runtime_checkable
class SessionStore(Protocol):
    """Keeps the journals of many sessions, for many processes.

    Contract: every method raises `StoreError`, with its `kind`, when it cannot do what it says, and nothing else. A
    commit that was reported as written survives the death of the process. Reading never changes anything and needs no
    lease. A store may be used from several event loops and threads, and after a fork; it keeps no task, thread or
    connection alive for a loop on which no lease is held.

    What happens when it crashes: a run whose store fails, or does not answer for 30 seconds, ends ERROR/FAILED with the
    cause `store`; its text is kept. What waits is asked to stop then; a commit may have been written all the same.
    """

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner, with a token larger than any before; a stop that was asked for is forgotten.

        Raises `StoreError` of kind `busy` while another living owner holds the lease, and of kind `missing` when
        there is no such session and none is to be made.
        """
        ...

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit after the last, with the new head, and renew the lease; all of it or nothing.

        Answers None when it is written, or something to await until it is. Raises `StoreError` of kind `fenced` when
        somebody else has claimed the session since, and of kind `conflict` when the commit does not follow the head.
        With durability "async" it may answer before it has written, and then reports a failure at the next call.
        """
        ...

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Look after leases: renew them if asked to, and report those that are lost and those that must stop."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back after everything is written; nothing happens when it was lost before."""
        ...

    async def load(self, session_id: str) -> tuple[Entry, Sequence[Commit]]:
        """The whole journal, as it was written; raises `StoreError` of kind `missing` when there is none."""
        ...

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions whose id begins with `prefix`, the last written first."""
        ...

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop, from any process; None takes it back."""
        ...

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`: the repair of a damaged journal. The lease is of no use after this."""
        ...

    async def remove(self, session_id: str) -> None:
        """Forget a session that no living owner holds; raises kinds `busy` and `missing`."""
        ...

    async def close(self) -> None:
        """Let go of files and connections; the store opens them again when it is used again."""
        ...


# --- finding sessions among many ----------------------------------------------------------------------------------


class SessionQuery(Value, frozen=True, kw_only=True):
    """Which sessions to list: those that match every field that is given. Up to `limit` of them make a page.

    `roots` leaves children out. `text` is looked for in titles, tasks and ids, whatever the case. `outcome` is a
    `LoopOutcome` or a team's status, or "unfinished". `before` and `after` are times (seconds since the epoch)
    between which the last run began or ended. `cursor` is the one that the page before gave.
    """

    prefix: str = ""
    roots: bool = True
    state: str | None = None
    outcome: str | None = None
    agent: str | None = None
    tag: str | None = None
    text: str = ""
    min_cost: Decimal | None = None
    max_cost: Decimal | None = None
    before: float | None = None
    after: float | None = None
    limit: int = 50
    cursor: str | None = None


class SessionPage(Value, frozen=True):
    """Sessions that match, the newest first; `cursor` asks for the next page, and is None on the last one."""

    sessions: tuple[Entry, ...]
    cursor: str | None = None


@experimental(reason=UNPROVEN)
@runtime_checkable
class Excerpts(Protocol):
    """What a store can do so that long sessions are not read from their start: read a part of a journal.

    Optional: where a store has no `pick`, the whole journal is read.

    What happens when it crashes: as with `SessionStore.load`.
    """

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The entry, and the commits from number `since` on; none when there are not so many."""
        ...

    async def pick(self, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
        """The commits with these numbers, in this order; those that are not there are left out."""
        ...


@experimental(reason=UNPROVEN)
@runtime_checkable
class Catalog(Protocol):
    """What a store can do beside keeping journals: find, label and remove many sessions without reading them.

    Optional: where a store has no catalog, glidepath reads `entries()` instead, which takes longer.

    Contract: what a session's last summary says is what `find` finds it by, from the moment `append` has written it.
    Titles and tags belong to the session and go with it when it is removed; writing a journal does not change them.

    What happens when it crashes: whoever asked gets its `StoreError`; runs are not concerned.
    """

    async def find(self, query: SessionQuery) -> SessionPage:
        """One page of the sessions that match, the newest first, with titles and tags."""
        ...

    async def remove_many(self, session_ids: Sequence[str]) -> list[str]:
        """Forget these sessions with their children; answers with the ids of all that are gone, children included.

        A session stays, with its whole family, while a living owner holds any of them. What is not there is skipped.
        """
        ...

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, the tags, or both; None leaves them. Needs no lease. Raises kind `missing`."""
        ...
