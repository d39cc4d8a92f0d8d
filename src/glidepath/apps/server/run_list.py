"""Lists of runs: pages of cards, the newest first, from the store or, without one, from what is at hand."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from glidepath._wire import Record, field, replace
from glidepath.apps.server.hub import refusal_of
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.run_query import RunQuery
from glidepath.apps.server.shapes import RunCard
from glidepath.apps.server.stored_run_summary import entry_state
from glidepath.apps.server.text_search import TextSearch
from glidepath.sessions import find_sessions
from glidepath.sessions.summaries import is_evaluation
from glidepath.spi import Entry, SessionPage
from glidepath.values import ConfigurationError, StoreError

if TYPE_CHECKING:
    from glidepath.apps.server.store_reader import StoreReader

__all__ = ["RunList", "RunPage"]

_SEARCHED = 40  # sessions whose transcripts are searched before the clock is looked at
_LEAST = 50  # sessions that are read at once
_PATIENCE = 1.0  # seconds that a search in transcripts takes before it answers with what it has


class RunPage(Record, kw_only=True):
    """A page of cards. `cursor` asks for the next one; `searched` is how many transcripts were looked into."""

    cards: list[RunCard] = field(default_factory=list)
    cursor: str | None = None
    excerpts: dict[str, str] = field(default_factory=dict)
    """By run id: where the text that was searched for was found."""
    searched: int = 0


class RunList:
    """Answers which runs there are."""

    def __init__(self, reader: StoreReader) -> None:
        self.reader = reader
        self.hub = reader.hub
        self.store = reader.store
        self._search = TextSearch(reader)

    async def page(
        self, who: Visitor, query: RunQuery | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> RunPage:
        """A page of cards, the newest first; raises `HttpError` for an invalid query.

        A search in transcripts answers within a moment with what it has found by then, and a cursor to continue from.
        """
        query = query or RunQuery()
        if self.store is None:
            return await self._page_in_memory(who, query, cursor, limit)
        try:
            if query.text:
                async with self._search.turn:  # one at a time: it reads whole journals
                    return await self._page_from_store(who, query, cursor, limit)
            return await self._page_from_store(who, query, cursor, limit)
        except ConfigurationError as error:
            raise HttpError(400, "bad_query", str(error)) from None
        except StoreError as error:
            if error.kind == "missing":  # nobody has written into it yet
                return RunPage()
            raise refusal_of(error) from None

    async def _page_from_store(self, who: Visitor, query: RunQuery, cursor: str | None, limit: int) -> RunPage:
        found = RunPage(cursor=cursor)
        asked = query.for_store(who.scope)
        until = time.monotonic() + _PATIENCE
        while True:
            left = limit - len(found.cards)
            size = min(500, max(left, _LEAST), _SEARCHED if query.text else 500)
            page = await find_sessions(self.store, replace(asked, cursor=found.cursor, limit=size))
            last = await self._take_page(found, page, query, limit)
            if last is not None and last + 1 < len(page.sessions):  # a page ends at the last card that was wanted
                page = await find_sessions(self.store, replace(asked, cursor=found.cursor, limit=last + 1))
            found.cursor = page.cursor
            over = bool(query.text) and time.monotonic() > until
            if page.cursor is None or last is not None or over:
                return found

    async def _take_page(self, found: RunPage, page: SessionPage, query: RunQuery, limit: int) -> int | None:
        """Add the cards of a page; the place of the one with which there are enough of them."""
        for place, entry in enumerate(page.sessions):
            if not self._may_match(entry, query):
                continue
            excerpt = None
            if query.text:
                found.searched += 1
                excerpt = await self._search.find_in_session(entry, query.text)
                if excerpt is None:
                    continue
            card = await self.make_card(entry)
            if query.has(card.state, card.outcome):
                found.cards.append(card)
                if excerpt is not None:
                    found.excerpts[card.run_id] = excerpt
                if len(found.cards) == limit:
                    return place
        return None

    def _may_match(self, entry: Entry, query: RunQuery) -> bool:
        """Whether a session can be on the list, as far as its entry tells: its events are not read for that."""
        if is_evaluation(entry) or (query.tag is not None and query.tag not in entry.tags):
            return False
        feed = self.hub.feeds.get(str(entry.summary.get("run_id")))
        if feed is not None and feed.live:
            return query.has("running", None)
        outcome = entry.summary.get("outcome")
        return query.has(entry_state(entry, time.time()), outcome if isinstance(outcome, str) else None)

    async def make_card(self, entry: Entry) -> RunCard:
        """The card of a session's last run."""
        run_id = entry.summary.get("run_id")
        return self.reader.card(await self.hub.feed(run_id) if isinstance(run_id, str) else None, entry)

    async def changed_since(self, who: Visitor, change: int, shown: Mapping[str, RunCard]) -> list[RunCard]:
        """The cards of runs at hand that have changed since; what only the store knows is as it was shown."""
        found = []
        for run_id, stamp in list(self.hub.stamps.items()):
            feed = self.hub.feeds.get(run_id)
            if stamp > change and feed is not None and feed.head.parent is None:
                if not await self.hub.owners.is_visible(who, feed.head.session_id):
                    continue
                card, before = self.reader.card(feed, None), shown.get(run_id)
                if before is not None:
                    card = replace(card, title=before.title, tags=before.tags or card.tags, owner=before.owner)
                    card = replace(card, forked_from=before.forked_from)
                found.append(card)
        return found

    async def _page_in_memory(self, who: Visitor, query: RunQuery, cursor: str | None, limit: int) -> RunPage:
        cards = [self.reader.card(feed, None) for feed in self.hub.feeds.values() if feed.head.parent is None]
        cards = [card for card in cards if query.has_card(card) and (who.scope is None or who.scope in card.tags)]
        cards.sort(key=lambda card: (-card.listed, card.run_id))
        page = RunPage()
        if query.text:
            page.searched = len(cards)
            page.excerpts = self._search.find_in_memory([card.run_id for card in cards], query.text)
            cards = [card for card in cards if card.run_id in page.excerpts]
        try:
            start = max(0, int(cursor or 0))
        except ValueError:
            raise HttpError(400, "bad_cursor", f"cursor {cursor!r:.80} is not from an earlier page") from None
        page.cards = cards[start : start + limit]
        page.cursor = str(start + limit) if start + limit < len(cards) else None
        return page

    async def list_all(self, who: Visitor, query: RunQuery) -> Sequence[RunCard]:
        """Every card that matches."""
        found = await self.page(who, query, limit=500)
        cards = list(found.cards)
        while found.cursor is not None:
            found = await self.page(who, query, cursor=found.cursor, limit=500)
            cards += found.cards
        return cards
