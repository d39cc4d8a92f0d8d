"""Optional parts of a session store: finding sessions among many, and reading a part of a journal."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Protocol, runtime_checkable

from glidepath._wire import Value
from glidepath.spi.sessions import Commit, Entry
from glidepath.values import UNPROVEN, experimental


class SessionQuery(Value, frozen=True, kw_only=True):
    """Which sessions to list: those that match every field that is set. Up to `limit` of them make a page.

    `roots` leaves children out. `text` is searched in titles, tasks and ids, ignoring case. `outcome` is a
    `LoopOutcome` or a team's status, or "unfinished". `user` is who the last run was for. `before` and `after` are
    times (seconds since the epoch) between which the last run began or ended. `cursor` comes from the previous page.
    """

    prefix: str = ""
    roots: bool = True
    state: str | None = None
    outcome: str | None = None
    agent: str | None = None
    user: str | None = None
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
    """An optional part of a store: reading a part of a journal, so that long sessions are not read from the start.

    If a store has no `pick`, the whole journal is read.

    What happens when it crashes: as with `SessionStore.load`.
    """

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The entry, and the commits from number `since` on; none when there are fewer."""

    async def pick(self, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
        """The commits with these numbers, in this order; missing ones are left out."""


@experimental(reason=UNPROVEN)
@runtime_checkable
class Catalog(Protocol):
    """An optional part of a store: find, label and remove many sessions without reading their journals.

    If a store has no catalog, glidepath reads `entries()` instead, which takes longer.

    Contract: `find` searches the last summary of each session, as soon as `append` has written it. Titles and tags
    belong to the session and go with it when it is removed; writing a journal does not change them.

    What happens when it crashes: the caller gets its `StoreError`; runs are not affected.
    """

    async def find(self, query: SessionQuery) -> SessionPage:
        """One page of the sessions that match, the newest first, with titles and tags."""

    async def remove_many(self, session_ids: Sequence[str]) -> list[str]:
        """Remove these sessions with their children; returns the ids of all that were removed, children included.

        A session stays, with its whole family, while a living owner holds any of them. Missing sessions are skipped.
        """

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, the tags, or both; None leaves them. Needs no lease. Raises kind `missing`."""
