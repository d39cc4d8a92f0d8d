"""A store in memory: for tests, and for runs that need to be resumed only within one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glidepath._wire import Record, replace
from glidepath.sessions.copies import CanFork
from glidepath.sessions.owner import GONE, LEASE, is_claimable
from glidepath.sessions.session_ids import check_storable_id, keepable_reason
from glidepath.sessions.summaries import check_title, map_children, normalize_tags, page_of
from glidepath.sessions.wallet_service import MemoryWallets
from glidepath.spi import Commit, Entry, Lease, Note, SessionPage, SessionQuery, Sign
from glidepath.values import ConfigurationError, StoreError


class _Shelf(Record):
    entry: Entry
    commits: list[Commit]
    notes: list[Note]


class MemoryStore(CanFork, MemoryWallets):
    """Keeps journals in memory. They die with the process; everything else is as in the other stores."""

    def __dir__(self) -> list[str]:
        from glidepath.values import OF_STORES, list_for_people

        return list_for_people(self, OF_STORES)

    def __init__(self, *, lease: float = LEASE, clock: Callable[[], float] = time.time) -> None:
        self._lease = lease
        self._clock = clock
        self._shelves: dict[str, _Shelf] = {}
        self._lock = threading.Lock()
        MemoryWallets.__init__(self)

    def _require_shelf(self, session_id: str) -> _Shelf:
        shelf = self._shelves.get(session_id)
        if shelf is None:
            raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")
        return shelf

    def _require_lease(self, lease: Lease) -> _Shelf:
        shelf = self._require_shelf(lease.session_id)
        if shelf.entry.token != lease.token:
            raise StoreError(f"session {lease.session_id!r} was taken over by another owner", kind="fenced")
        return shelf

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner."""
        now = self._clock()
        with self._lock:
            if create and session_id not in self._shelves:
                self._shelves[session_id] = _Shelf(
                    Entry(session_id=check_storable_id(session_id), head=0, updated=now), [], []
                )
            shelf = self._require_shelf(session_id)
            entry = shelf.entry
            if not is_claimable(entry.owner, entry.expires, now):
                raise make_busy_error(entry)
            expires = now + self._lease
            # The token grows with every claim, so that writes of the previous owner are refused.
            shelf.entry = entry = replace(entry, token=entry.token + 1, owner=owner, expires=expires)
            return Lease(session_id, entry.token, owner, expires, entry.head, entry.hash, None, len(shelf.notes))

    def append(
        self,
        lease: Lease,
        commit: Commit,
        *,
        summary: Mapping[str, Any] | None = None,
        durability: str = "sync",
    ) -> None:
        """Write one commit."""
        check_durability(durability)  # memory is as durable as it gets
        now = self._clock()
        with self._lock:
            shelf = self._require_lease(lease)
            entry = shelf.entry
            if commit.number != entry.head + 1:
                raise make_conflict_error(lease.session_id, commit.number, entry.head)
            shelf.commits.append(commit)
            shelf.entry = replace(
                entry,
                head=commit.number,
                hash=commit.hash,
                updated=now,
                expires=now + self._lease,
                owner=lease.owner,
                summary=entry.summary if summary is None else dict(summary),
            )

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Renew the leases."""
        now, signs = self._clock(), []
        with self._lock:
            for lease in leases:
                shelf = self._shelves.get(lease.session_id)
                if shelf is None or shelf.entry.token != lease.token:
                    signs.append(Sign(session_id=lease.session_id, lost=True))
                    continue
                if renew:
                    shelf.entry = replace(shelf.entry, expires=now + self._lease)
                if shelf.entry.flag is not None or shelf.notes:
                    signs.append(Sign(session_id=lease.session_id, stop=shelf.entry.flag, mail=len(shelf.notes)))
        return signs

    def let_go(self, lease: Lease) -> bool:
        """Give the lease back at once."""
        with self._lock:
            shelf = self._shelves.get(lease.session_id)
            if shelf is not None and shelf.entry.token == lease.token:
                shelf.entry = replace(shelf.entry, owner=None, expires=GONE)
        return True

    async def release(self, lease: Lease) -> None:
        """Give the lease back."""
        self.let_go(lease)

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The journal, from commit `since` on."""
        with self._lock:
            shelf = self._require_shelf(session_id)
            return shelf.entry, tuple(shelf.commits[max(0, since - 1) :])

    async def pick(self, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
        """The commits with these numbers, if they exist."""
        with self._lock:
            commits = self._require_shelf(session_id).commits
            return tuple(commits[number - 1] for number in numbers if 0 < number <= len(commits))

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions, newest first."""
        with self._lock:
            found = [shelf.entry for name, shelf in self._shelves.items() if name.startswith(prefix)]
        return sorted(found, key=lambda entry: (-entry.updated, entry.session_id))

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop."""
        with self._lock:
            shelf = self._require_shelf(session_id)
            shelf.entry = replace(shelf.entry, flag=keepable_reason(reason))

    async def post(self, session_id: str, note: Note) -> int:
        """Put a note into a session's inbox."""
        with self._lock:
            notes = self._require_shelf(session_id).notes
            known = next((one.number for one in notes if one.id == note.id), None)
            if known is None:
                notes.append(replace(note, number=len(notes) + 1, posted=self._clock()))
            return known or len(notes)

    async def notes(self, session_id: str, after: int = 0) -> Sequence[Note]:
        """The notes above a number."""
        with self._lock:
            return tuple(self._require_shelf(session_id).notes[after:])

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`."""
        with self._lock:
            shelf = self._require_lease(lease)
            shelf.commits = [commit for commit in shelf.commits if commit.number <= head]
            # A new token: the current lease has a head that no longer exists.
            shelf.entry = replace(shelf.entry, head=head, hash=hash_, token=lease.token + 1, owner=None, expires=GONE)

    async def remove(self, session_id: str) -> None:
        """Forget a session."""
        with self._lock:
            entry = self._require_shelf(session_id).entry
            if not is_claimable(entry.owner, entry.expires, self._clock()):
                raise make_busy_error(entry)
            del self._shelves[session_id]

    async def find(self, query: SessionQuery) -> SessionPage:
        """One page of the sessions that match."""
        with self._lock:
            entries = [shelf.entry for shelf in self._shelves.values()]
        return page_of(entries, query)

    async def remove_many(self, session_ids: Sequence[str]) -> list[str]:
        """Forget these sessions with their children."""
        now, gone = self._clock(), []
        with self._lock:
            below = map_children(shelf.entry for shelf in self._shelves.values())
            for session_id in dict.fromkeys(session_ids):
                if session_id not in self._shelves:
                    continue
                family = [session_id, *[one for one in below.get(session_id, ()) if one in self._shelves]]
                entries = [self._shelves[one].entry for one in family]
                if all(is_claimable(entry.owner, entry.expires, now) for entry in entries):
                    for one in family:
                        del self._shelves[one]
                    gone += family
        return gone

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, the tags, or both."""
        name, labels = None if title is None else check_title(title), None if tags is None else normalize_tags(tags)
        with self._lock:
            shelf = self._require_shelf(session_id)
            entry = shelf.entry
            shelf.entry = replace(
                entry, title=entry.title if name is None else name, tags=entry.tags if labels is None else labels
            )

    async def close(self) -> None:
        """Nothing to close: memory is freed with the store."""


def make_busy_error(entry: Entry) -> StoreError:
    """Another owner has it."""
    return StoreError(
        f"session {entry.session_id!r} has a run in flight (owner {entry.owner}); wait for it, or stop it", kind="busy"
    )


def make_conflict_error(session_id: str, number: int, head: int) -> StoreError:
    """A commit that does not follow the last one."""
    return StoreError(f"commit {number} of session {session_id!r} does not follow its head {head}", kind="conflict")


def check_durability(durability: str) -> bool:
    """True for "full", False for "sync"; raises `ConfigurationError` for anything else."""
    if durability == "sync":
        return False
    if durability == "full":
        return True
    raise ConfigurationError(
        f"durability={durability!r:.40} is not a durability; use 'sync' (a commit outlives the process) or 'full' "
        "(it outlives a power cut)"
    )
