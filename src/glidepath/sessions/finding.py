"""Finding, labeling and removing sessions among many, in any store: with its catalog, or without one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from glidepath._wire import replace
from glidepath.sessions.event_files import forget_events
from glidepath.sessions.owner import is_claimable
from glidepath.sessions.session_ids import home_of, is_keepable
from glidepath.sessions.summaries import (
    check_query,
    check_tag,
    check_title,
    is_group,
    is_half_copy,
    map_children,
    normalize_tags,
    page_of,
)
from glidepath.spi import Entry, SessionPage, SessionQuery, SessionStore
from glidepath.values import ConfigurationError, StoreError

TEAM, EVALUATION = "team:", "eval:"
GROUPS = (TEAM, EVALUATION)
"""How the journals begin that are of no run themselves: their runs have sessions of their own."""
_PAGE = 10_000
_ENDED = ("completed",)


async def find_sessions(store: SessionStore, query: SessionQuery | None = None, **fields: object) -> SessionPage:
    """One page of the sessions that match, the newest first: `find_sessions(store, tag="billing", limit=20)`.

    Raises `ConfigurationError` for a field that is wrong, and `StoreError`.
    """
    page = await _page(store, query := _make_query(query, fields))
    if not query.roots:
        return page
    # A copy that is being made, or was never finished, is not a session yet.
    return replace(page, sessions=tuple([one for one in page.sessions if not is_half_copy(one)]))


async def _page(store: SessionStore, query: SessionQuery) -> SessionPage:
    """The same with unfinished copies."""
    check_query(query)
    catalog: Any = getattr(store, "find", None)
    if catalog is not None:
        return await catalog(query)  # type: ignore[no-any-return]
    return page_of(await store.entries(query.prefix), query)


def _make_query(query: SessionQuery | None, fields: dict[str, Any]) -> SessionQuery:
    known = SessionQuery.__struct_fields__
    for name in fields:
        if name not in known:
            raise ConfigurationError(f"{name} is not a search field; use one of {', '.join(known)}")
    return SessionQuery(**fields) if query is None else replace(query, **fields)


async def each_session(
    store: SessionStore, query: SessionQuery | None = None, **fields: object
) -> AsyncIterator[Entry]:
    """Every session that matches, page after page; `limit` is the size of a page."""
    query = _make_query(query, {"limit": _PAGE, **fields})
    while True:
        page = await find_sessions(store, query)
        for entry in page.sessions:
            yield entry
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


async def entry_of(store: SessionStore, session_id: str) -> Entry | None:
    """The entry of this session, with its title and tags; None if there is none."""
    async for entry in each_session(store, prefix=session_id, roots=False):
        if entry.session_id == session_id:
            return entry
    return None


def name_in_group(session_id: str) -> str:
    """The request of a team, or the name of an evaluation, in the id of its journal; any other id as it is."""
    return session_id.removeprefix(TEAM).removeprefix(EVALUATION)


async def member_runs(store: SessionStore, session_id: str) -> list[Entry]:
    """The runs of a team's members, or of an evaluation's cases, and their children. Empty for any other session."""
    if not session_id.startswith(GROUPS):
        return []
    journal = await entry_of(store, session_id)
    if journal is not None and journal.head and not is_group(journal) and not is_half_copy(journal):
        return []  # a session that somebody gave such a name
    request = home_of(name_in_group(session_id))
    found = [entry async for entry in each_session(store, prefix=f"{request}/", roots=False)]
    # A session may have the name of the request, and children of its own.
    others = [entry.session_id for entry in found if _parent_of(entry) == request]
    below = tuple(f"{name}/" for name in others)
    return [one for one in found if one.session_id not in others and not one.session_id.startswith(below)]


def _parent_of(entry: Entry) -> object:
    parent = entry.summary.get("parent")
    return parent.get("session_id") if isinstance(parent, dict) else None


async def annotate(
    store: SessionStore, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None
) -> None:
    """Set the title, the tags, or both of a session; raises `ConfigurationError` for invalid ones.

    A store without a catalog cannot keep them: `StoreError`.
    """
    if title is not None:
        check_title(title)
    if tags is not None:
        normalize_tags(tags)
    catalog: Any = getattr(store, "annotate", None)
    if catalog is None:
        raise StoreError(f"{type(store).__name__} has no catalog: it cannot keep titles and tags")
    await catalog(session_id, title=title, tags=tags)


async def remove_sessions(store: SessionStore, session_ids: Sequence[str]) -> list[str]:
    """Delete these sessions with their children, and the events a server has kept of them; returns the ids of all.

    A session stays, with its family, while a living owner holds any of them; what is not there is skipped.
    """
    names = [name for name in session_ids if is_keepable(name)]
    for name in tuple(names):
        names += [entry.session_id for entry in await member_runs(store, name)]
    catalog: Any = getattr(store, "remove_many", None)
    gone: list[str] = await (_remove_one_by_one(store, names) if catalog is None else catalog(names))
    await forget_events(store, gone)
    return gone


async def _remove_one_by_one(store: SessionStore, names: Sequence[str]) -> list[str]:
    entries = {entry.session_id: entry for entry in await store.entries()}
    below = map_children(entries.values())
    now = time.time()
    gone: list[str] = []
    for session_id in dict.fromkeys(names):
        family = [one for one in (session_id, *below.get(session_id, ())) if one in entries]
        if all(is_claimable(entries[one].owner, entries[one].expires, now) for one in family):
            for one in family:
                await store.remove(one)
                del entries[one]
            gone += family
    return gone


async def remove_unfinished(store: SessionStore, *, older_than: float = 0.0) -> list[str]:
    """Remove every copy that a fork or an import began and did not live to finish; returns their ids.

    Nobody can run one of them. A copy that somebody is making stays.
    """
    now = time.time()
    left = [
        entry.session_id
        for entry in await store.entries()
        if is_half_copy(entry) and entry.updated <= now - older_than and is_claimable(entry.owner, entry.expires, now)
    ]
    return await remove_sessions(store, left) if left else []


async def find_expired(
    store: SessionStore, *, older_than: float, states: Sequence[str] | None = _ENDED, tag: str | None = None
) -> AsyncIterator[Entry]:
    """The sessions that `prune` would remove with their children, but for those in flight."""
    for query in _make_expiry_queries(older_than, states, tag):
        async for entry in each_session(store, query):
            if is_claimable(entry.owner, entry.expires, time.time()):
                yield entry


async def prune(
    store: SessionStore, *, older_than: float, states: Sequence[str] | None = _ENDED, tag: str | None = None
) -> list[str]:
    """Remove sessions whose last run ended at least this many seconds ago in one of these states; their children, too.

    `states=None` is any state; a run in flight always stays. With a `tag`, only sessions that have it. Copies that were
    never finished go, too. Answers with the ids of all that are gone.
    """
    gone: list[str] = []
    for query in _make_expiry_queries(older_than, states, tag):
        cursor: str | None = None
        while True:
            page = await _page(store, replace(query, cursor=cursor))
            gone += await remove_sessions(store, [entry.session_id for entry in page.sessions])
            cursor = page.cursor
            if cursor is None:
                break
    return gone if tag is not None else gone + await remove_unfinished(store, older_than=older_than)


def _make_expiry_queries(older_than: float, states: Sequence[str] | None, tag: str | None) -> list[SessionQuery]:
    """What to ask for; raises `ConfigurationError`."""
    number = isinstance(older_than, int | float) and not isinstance(older_than, bool)
    if not number or older_than != older_than:  # noqa: PLR0124 - that is what NaN is
        raise ConfigurationError(f"older_than must be a number of seconds, not {older_than!r:.80}")
    if tag is not None:
        check_tag(tag)
    before = time.time() - older_than
    return [SessionQuery(before=before, tag=tag, state=state, limit=_PAGE) for state in (states or (None,))]
