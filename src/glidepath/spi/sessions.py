"""The session store port: where journals live. A journal is a chain of commits that only grows.

A commit is written whole or not at all. A writer holds a lease: `claim` gives it out with a fencing token that only
grows, and a write with an older token is refused, however late it arrives. A store does not look inside a commit: it
keeps bytes, their hash and their order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from glidepath._wire import Value
from glidepath.values import UNPROVEN, experimental


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
    mail: int = 0
    """The number of the last note in the session's inbox, in a store that has one."""


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
    """The title that a person gave it. Only a `Catalog` fills in `title` and `tags`."""
    tags: tuple[str, ...] = ()


class Sign(Value, frozen=True, kw_only=True):
    """What a heartbeat found out about one lease: `lost` to another owner, or why the run must `stop`.

    `mail` is the number of the last note in the inbox; the owner reads those that it has not taken yet.
    """

    session_id: str
    lost: bool = False
    stop: str | None = None
    mail: int = 0


class Note(Value, frozen=True, kw_only=True):
    """A note to a run, from any process: `kind` is "message" or "decision", `body` its JSON.

    Posting the same `id` again changes nothing. The store counts the notes of a session: `number` starts at 1.
    """

    id: str
    kind: str
    body: bytes
    number: int = 0
    posted: float = 0.0


@experimental(reason=UNPROVEN)
@runtime_checkable
class SessionStore(Protocol):
    """Keeps the journals of many sessions, for many processes.

    Contract: a method that fails raises `StoreError` with its `kind`, and nothing else. A commit that was reported as
    written survives the death of the process. Reading never changes anything and needs no lease. A store may be used
    from several event loops and threads, and after a fork; it keeps no task, thread or connection alive for a loop on
    which no lease is held.

    What happens when it crashes: a run whose store fails, or does not answer for 30 seconds, ends ERROR/FAILED with the
    cause `store`; its text is kept. Pending work is asked to stop then; a commit may still have been written.
    """

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner, with a token larger than any before; a requested stop stays in force.

        Raises `StoreError` of kind `busy` while another living owner holds the lease, and of kind `missing` when the
        session does not exist and `create` is False.
        """

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit after the last, with the new head, and renew the lease; all of it or nothing.

        Returns None when it is written, or an awaitable that ends when it is. Raises `StoreError` of kind `fenced` when
        somebody else has claimed the session since, and of kind `conflict` when the commit does not follow the head.
        Two durabilities: "sync", written survives the death of the process, and "full", it survives a power cut, too;
        any other is a `ConfigurationError`. Of commits that a store writes together, each fails alone.
        """

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Check leases: renew them if asked to, and report which are lost and which runs must stop."""

    async def release(self, lease: Lease) -> None:
        """Release the lease once everything is written; does nothing if it was already lost."""

    async def load(self, session_id: str) -> tuple[Entry, Sequence[Commit]]:
        """The whole journal, as it was written; raises `StoreError` of kind `missing` when there is none."""

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions whose id begins with `prefix`, the last written first."""

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop, from any process; None withdraws it."""

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`: the repair of a damaged journal. The lease is void after this."""

    async def remove(self, session_id: str) -> None:
        """Forget a session that no living owner holds; raises kinds `busy` and `missing`."""

    async def close(self) -> None:
        """Close files and connections; the store reopens them when it is used again."""


@experimental(reason=UNPROVEN)
@runtime_checkable
class Inbox(Protocol):
    """An optional part of a store: notes to a session, from any process. Reading removes nothing.

    Contract: notes are numbered 1, 2, 3 ... without a gap, and a note that can be read is never ahead of an earlier
    one. They are removed with their session. `claim` and `beat` report how many there are (`mail`). The journal records
    which ones were taken, so that a run that dies and continues takes only the others.

    What happens when it crashes: the run continues without the messages, and the inbox is read again at the next beat.
    """

    async def post(self, session_id: str, note: Note) -> int:
        """Put a note into a session's inbox and return its number; raises `StoreError` of kind `missing`."""

    async def notes(self, session_id: str, after: int = 0) -> Sequence[Note]:
        """The notes with a number above `after`, in order; raises `StoreError` of kind `missing`."""
