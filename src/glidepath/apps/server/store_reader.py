"""Reading runs: cards, details, transcripts and journals, folded from events, journal and lease, never stored."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath._wire import Record, asdict, replace
from glidepath.apps.server.event_log import LogHead
from glidepath.apps.server.hub import Hub, refusal_of
from glidepath.apps.server.journal_events import feed_from_journal, read_limits
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.owners import key_name_in
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.request_page import RequestReader
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.run_list import RunList
from glidepath.apps.server.run_series import Figures, add_series
from glidepath.apps.server.run_summary import FlightCard, origin_of, pending_items, state_of
from glidepath.apps.server.run_timeline import Timelines
from glidepath.apps.server.shapes import PendingItem, RunCard, RunDetail, Span, UsagePoint
from glidepath.apps.server.stored_run_summary import (
    account_fields,
    bare_card,
    budget_node,
    entry_state,
    fields_from_store,
    find_fork_origin,
    limits_in_dollars,
    spending_until,
    unknown_effects,
)
from glidepath.apps.server.transcript_page import page_of_messages
from glidepath.sessions import (
    Folded,
    StoredJournal,
    control_in,
    each_session,
    family_of,
    find_sessions,
    is_foreign,
    is_recording,
    read,
    read_journal,
)
from glidepath.sessions.fold import fold
from glidepath.spi import Entry, SessionQuery
from glidepath.values import RunResult, StoreError, pluralize

__all__ = ["FoundRun", "StoreReader"]

_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-")
_FOLDED = 64  # journals that are kept at hand, folded
_SCANNED = 20_000  # sessions that are looked through for a run's id
LOOK = 1.0  # seconds between two looks at a journal that another process writes
_ONLY_ENTRY = 1 << 62  # a number that no commit has


class FoundRun(Record, kw_only=True):
    """A run that was asked for: its feed, where events are known, and its entry, where a store keeps it."""

    run_id: str
    session_id: str
    feed: RunFeed | None = None
    entry: Entry | None = None


def _make_unknown_run_error(name: str) -> HttpError:
    return HttpError(404, "unknown_run", f"there is no run or session {name!r:.80}; GET /api/runs lists them")


class StoreReader:
    """Answers questions about runs."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.store = hub.store
        self._journals: OrderedDict[str, StoredJournal] = OrderedDict()
        self._sessions: dict[str, str] = {}
        self._told: OrderedDict[str, RunFeed] = OrderedDict()
        self.list = RunList(self)
        self.requests = RequestReader(self)
        self._timelines = Timelines()

    # --- finding one ------------------------------------------------------------------------------------------

    async def find(self, name: str, who: Visitor) -> FoundRun:
        """The run with this id, or the last one of the session with this id; raises `HttpError`.

        What a visitor does not reach is not there.
        """
        found = await self._find(name)
        head = None if found.feed is None else found.feed.head.parent
        child = head is not None or bool(found.entry is not None and found.entry.summary.get("parent"))
        if not await self.hub.owners.is_visible(who, found.session_id, child=child):
            raise _make_unknown_run_error(name)
        return found

    async def _find(self, name: str) -> FoundRun:
        if not name or len(name) > 300 or "\0" in name:  # noqa: PLR2004 - longer than any id
            raise HttpError(404, "unknown_run", "there is no such run: malformed id")
        feed = await self.hub.feed(name)
        if feed is None and (run_id := self.hub.find_last_run(name)) is not None:
            feed = await self.hub.feed(run_id)
        if feed is not None:
            entry = await self._entry(feed.head.session_id)
            await self._catch_up(feed, entry)
            if entry is not None:
                await self._renew_limits(feed, entry)
            return FoundRun(run_id=feed.run_id, session_id=feed.head.session_id, feed=feed, entry=entry)
        entry = await self._entry(name) or await self._entry_of_run(name)
        if entry is None:
            raise _make_unknown_run_error(name)
        run_id = str(entry.summary.get("run_id") or entry.session_id)
        feed = await self.hub.feed(run_id) or await self._make_journal_feed(run_id, entry)
        await self._renew_limits(feed, entry)
        return FoundRun(run_id=run_id, session_id=entry.session_id, feed=feed, entry=entry)

    async def _make_journal_feed(self, run_id: str, entry: Entry) -> RunFeed | None:
        """The feed of a run whose events were not kept, from its journal."""
        if not entry.head:
            return None
        feed = self._told.get(run_id)
        if feed is None:
            above = entry.session_id.rpartition("/")[0] if entry.summary.get("parent") else None
            agent = str(entry.summary.get("agent") or "")
            head = LogHead(run_id=run_id, session_id=entry.session_id, agent=agent, parent=above)
            feed = self._told[run_id] = await feed_from_journal(head, lambda: self.journal(entry.session_id))
            while len(self._told) > _FOLDED:
                self._told.popitem(last=False)
        elif not feed.finished or entry.head:
            await feed.recall()
        return feed

    async def _renew_limits(self, feed: RunFeed | None, entry: Entry) -> None:
        """A foreign run continues when its limits are raised, and no event says so: its journal does."""
        if feed is None or feed.live or feed.finished or not is_foreign(entry):
            return
        journal = await self.journal(entry.session_id)
        if journal is not None:
            feed.card.limits = read_limits(journal) or feed.card.limits

    async def keep_telling(self, feed: RunFeed) -> None:
        """While somebody reads a run of another process: look for what its journal or its log has more."""
        while feed.readers and not feed.live:
            await asyncio.sleep(LOOK)
            before = feed.last
            await feed.recall()
            if feed.last != before:
                feed.wake()

    async def _catch_up(self, feed: RunFeed, entry: Entry | None) -> None:
        """Read what another process has written about a run since this one looked."""
        if entry is None or feed.live or entry.summary.get("run_id") != feed.run_id:
            return
        result = feed.card.result
        if entry.summary.get("outcome") != (None if result is None else result.outcome.value) or result is None:
            await feed.recall()

    async def _entry(self, session_id: str) -> Entry | None:
        """The session's entry; None when no store keeps it."""
        if self.store is None:
            return None
        try:
            try:
                entry, _ = await self.store.load(session_id, since=_ONLY_ENTRY)
            except TypeError:  # a store that has no part to offer
                entry, _ = await self.store.load(session_id)
        except StoreError as error:
            if error.kind in ("missing", "damaged"):
                return None
            raise refusal_of(error) from None
        return entry  # type: ignore[no-any-return]

    async def _entry_of_run(self, run_id: str) -> Entry | None:
        """The session whose last run has this id: looked for among the newest ones."""
        if self.store is None:
            return None
        if run_id in self._sessions:
            return await self._entry(self._sessions[run_id])
        seen = 0
        try:
            async for entry in each_session(self.store, roots=False, limit=1000):
                seen += 1
                known = entry.summary.get("run_id")
                if isinstance(known, str):
                    self._sessions[known] = entry.session_id
                if known == run_id or seen >= _SCANNED:
                    break
        except StoreError as error:
            if error.kind != "missing":  # a store to which nothing was written yet
                raise refusal_of(error) from None
        found = self._sessions.get(run_id)
        return None if found is None else await self._entry(found)

    async def _add_labels(self, entry: Entry) -> Entry:
        """The entry with its title and tags."""
        page = await find_sessions(self.store, SessionQuery(prefix=entry.session_id, roots=False, limit=100))
        return next((one for one in page.sessions if one.session_id == entry.session_id), entry)

    # --- cards ------------------------------------------------------------------------------------------------

    def card(self, feed: RunFeed | None, entry: Entry | None) -> RunCard:
        """The card of a run, from what is known: events, and what the store says about its session."""
        now = time.time()
        if feed is None:
            return bare_card(entry, now)  # type: ignore[arg-type] # one of the two is known
        known: dict[str, Any] = {"tags": self.hub.owners.tags.get(feed.head.session_id, ())}
        if entry is not None:
            known = {
                "title": entry.title,
                "tags": entry.tags,
                "owner": entry.owner,
                "forked_from": find_fork_origin(entry),
            }
            known["who"] = feed.card.who or key_name_in(entry.tags)
        if feed.foreign or (entry is not None and is_foreign(entry)):
            known["foreign"], known["resumable"] = True, False
        if feed.live:
            known["state"] = "running"
        elif entry is not None and entry.summary.get("run_id") == feed.run_id:
            known["state"] = state = entry_state(entry, now)
            card = feed.card.card(now, None, self._cards_below(feed), **known)
            newer = {"resumable": card.resumable or state == "lost", **fields_from_store(card, entry)}
            return replace(card, **{**newer, "resumable": newer["resumable"] and not card.foreign})
        return feed.card.card(now, feed.meter, self._cards_below(feed), **known)

    def _cards_below(self, feed: RunFeed) -> list[FlightCard]:
        """The children of a run whose own meter is not here, and theirs."""
        if feed.meter is not None or feed.card.result is not None or not feed.card.children:
            return []
        return [one.card for one in self.hub.list_child_feeds(feed.run_id)]

    # --- one run ----------------------------------------------------------------------------------------------

    async def journal(self, session_id: str) -> StoredJournal | None:
        """The journal of a session, folded; None without a store. The last ones are kept while they do not change."""
        if self.store is None:
            return None
        try:
            entry = await self._entry(session_id)
            known = self._journals.get(session_id)
            if known is not None and entry is not None and known.entry.head == entry.head:
                self._journals.move_to_end(session_id)
                return known
            journal = await read_journal(self.store, session_id)
        except StoreError as error:
            raise refusal_of(error) from None
        self._journals[session_id] = journal
        while len(self._journals) > _FOLDED:
            self._journals.popitem(last=False)
        return journal

    async def detail(self, name: str, who: Visitor) -> RunDetail:
        """All about a run."""
        found = await self.find(name, who)
        entry = found.entry if found.entry is None else await self._add_labels(found.entry)
        children = await self._children(found)  # first: what they have used is in the card of their root
        card = self.card(found.feed, entry)
        result, folded = await self.result(found, card)
        feed = found.feed
        asked: Mapping[str, float] = {} if feed is None else feed.card.asked
        pending: tuple[PendingItem, ...] = ()
        if result is not None:
            pending = pending_items(result, card.agent, asked, task=card.task, title=card.title)
        fields = {**asdict(card), "pending": pending, "pending_count": len(pending), "children": tuple(children)}
        text = "" if feed is None else feed.card.text
        if result is not None:
            text = result.text
        controls = await self.controls(found)
        settled = {one.get("call_id") for one in controls if one.get("action") == "settle"}
        return RunDetail(
            **{**fields, **account_fields(card, result, folded)},
            text=text,
            text_origin=None if result is None else origin_of(result),
            reply=None if feed is None or not feed.live else feed.card.reply,
            unknown_effects=tuple(one for one in unknown_effects(result, folded) if one["call_id"] not in settled),
            controls=tuple(controls),
            abandoned=() if result is None else tuple(f"{one.tool_name}: {one.reason}" for one in result.abandoned),
            budget=budget_node(card, children),
            limits={} if feed is None else limits_in_dollars(feed.card.limits),
            notices=() if feed is None else tuple(feed.card.notices),
            guards=() if feed is None else tuple(feed.card.guards),
            verdicts=() if feed is None else tuple(feed.card.verdicts),
        )

    async def find_trace(self, session_id: str) -> str | None:
        """The id of the trace that telemetry made of the last run of a session, as its journal has it."""
        journal = await self.journal(session_id)
        snapshot = None if journal is None else journal.folded.snapshot
        given = None if snapshot is None else snapshot.per_run
        notes = {} if given is None or given.notes is None else given.notes
        return next((found[1] for note in notes.values() if (found := _TRACE.match(note)) is not None), None)

    async def result(self, found: FoundRun, card: RunCard) -> tuple[RunResult[Any] | None, Folded | None]:
        """How the run ended, by its events or by its journal."""
        feed = found.feed
        if feed is not None and (feed.live or feed.card.result is not None or self.store is None):
            return feed.card.result, None
        if found.entry is None or card.state == "running":
            return None, None
        journal = await self.journal(found.session_id)
        folded = None if journal is None else journal.folded
        return (None, None) if folded is None else (folded.result, folded)

    async def controls(self, found: FoundRun) -> list[dict[str, Any]]:
        """What people did to the runs of a session: by its journal, and what is in its inbox."""
        if self.store is None or found.entry is None:
            return []
        journal = await self.journal(found.session_id)
        if journal is None:
            return []
        try:
            notes = await self.store.notes(found.session_id, journal.folded.taken)
        except (AttributeError, StoreError):  # a store without an inbox
            notes = ()
        waiting = [control_in(note) for note in notes]
        return [*journal.folded.controls, *[one for one in waiting if one is not None]]

    async def _children(self, found: FoundRun) -> list[RunCard]:
        cards = {feed.run_id: self.card(feed, None) for feed in self.hub.list_child_feeds(found.run_id)}
        if found.feed is None or not found.feed.live:
            for entry in [] if self.store is None else await family_of(self.store, found.session_id):
                if is_recording(entry):
                    continue
                card = await self.list.make_card(entry)
                if card.run_id not in cards:
                    cards[card.run_id] = replace(card, parent=entry.session_id.rpartition("/")[0])
        return list(cards.values())

    async def approvals(self, who: Visitor) -> list[PendingItem]:
        """Every call in a visitor's runs that waits for a person."""
        if self.store is None:
            # A child's calls are its root's, where they are decided.
            ended = [feed.card for feed in self.hub.feeds.values() if not feed.live and feed.card.parent is None]
            waiting = [one for card in ended for one in card.pending()]
            return [one for one in waiting if await self.hub.owners.is_visible(who, one.session_id, child=True)]
        found: list[PendingItem] = []
        for entry in await self._list_paused(who):
            feed = await self.hub.feed(str(entry.summary.get("run_id") or ""))
            if feed is not None and (feed.live or feed.card.result is not None):
                found += [] if feed.live else feed.card.pending(entry.title)
                continue
            journal = await self.journal(entry.session_id)
            if journal is not None and journal.folded.result is not None:
                summary = entry.summary
                told = {"task": str(summary.get("task") or "")[:200], "title": entry.title}
                found += pending_items(journal.folded.result, str(summary.get("agent") or ""), {}, **told)
        return found

    async def _list_paused(self, who: Visitor) -> list[Entry]:
        try:
            return [entry async for entry in each_session(self.store, outcome="paused", tag=who.scope, limit=500)]
        except StoreError as error:
            if error.kind == "missing":
                return []
            raise refusal_of(error) from None

    # --- transcripts ------------------------------------------------------------------------------------------

    async def messages(self, name: str, who: Visitor, after: int, limit: int) -> dict[str, Any]:
        """A page of the transcript."""
        found = await self.find(name, who)
        messages = await self.transcript(found)
        shown = page_of_messages(messages, after, limit)
        return {"messages": shown, "total": len(messages)}

    async def transcript(self, found: FoundRun) -> Sequence[Any]:
        """The messages of a run, as far as it has come."""
        messages = self.messages_at_hand(found.run_id)
        if messages is not None:
            return messages
        journal = await self.journal(found.session_id)
        return [] if journal is None else journal.folded.messages

    def messages_at_hand(self, run_id: str) -> Sequence[Any] | None:
        """The messages of a run in this process, or of one that no store keeps; None for any other."""
        foreign = None if self.hub.foreign is None else self.hub.foreign.messages(run_id)
        if foreign is not None:
            return foreign  # type: ignore[no-any-return]
        flight = self.hub.flights.get(run_id)
        if flight is not None and flight.stream is not None and flight.stream.run is not None:
            return flight.stream.run.transcript.messages
        result = self.hub.result_of(run_id)
        return None if result is None else result.messages

    async def records(self, name: str, who: Visitor, after: int, limit: int) -> dict[str, Any]:
        """A page of the journal's records."""
        found = await self.find(name, who)
        journal = await self.journal(found.session_id)
        if journal is None:
            return {"records": [], "total": 0}
        page: list[dict[str, Any]] = []
        total = 0
        for record in journal.records():
            total = record.sequence
            if record.sequence > after and len(page) < limit:
                payload = _wire.Raw(record.payload)
                page.append({"sequence": record.sequence, "time": record.time, "kind": record.kind, "payload": payload})
        return {"records": page, "total": total}

    async def timeline(self, name: str, who: Visitor, after: int, limit: int, order: str) -> dict[str, Any]:
        """A page of what took how long."""
        found = await self.find(name, who)
        return await self._timelines.page(found.feed, time.time(), after, limit, order)

    async def find_call(self, found: FoundRun, at: float) -> Span | None:
        """The model call of a run that began at this time."""
        return None if found.feed is None else await self._timelines.find_call(found.feed, at)

    async def burn(self, name: str, who: Visitor) -> list[UsagePoint]:
        """What a run and its children had used, over time."""
        found = await self.find(name, who)
        if found.feed is None:
            return []
        await self._children(found)  # what they have used is in their events
        return add_series(self._list_series(found.feed))

    def _list_series(self, feed: RunFeed) -> list[Iterable[tuple[float, Figures]]]:
        """What a run, its children and theirs have used; of a child without events, what its end has told."""
        parts: list[Iterable[tuple[float, Figures]]] = [feed.card.series.steps()]
        for name in feed.card.children:
            child = self.hub.feeds.get(name)
            if child is not None:
                parts += self._list_series(child)
            elif name in feed.card.landed:
                parts.append([feed.card.landed[name]])
        return parts

    async def read_state_at(self, name: str, who: Visitor, turn: int) -> dict[str, Any]:
        """The state of a run after a turn, from its journal."""
        found = await self.find(name, who)
        journal = await self.journal(found.session_id)
        if journal is None:
            raise HttpError(409, "no_journal", "there is no journal to look back in: start the server with --store")
        kept, replies = 0, 0
        for commit in journal.commits:
            for record in read(commit):
                replies += record.kind == "message" and b'"role":"assistant"' in bytes(record.payload)[:200]
            if replies > turn:
                break
            kept += 1
        if turn < 0 or replies < turn:
            raise HttpError(404, "unknown_turn", f"the run has {pluralize(replies, 'turn')}; there is no turn {turn}")
        then = fold(journal.commits[:kept], found.session_id)
        card = self.card(found.feed, found.entry)
        snapshot = then.snapshot
        usage, cost = spending_until(snapshot)
        return {
            **asdict(card),
            "turn": turn,
            "at": then.time,
            "usage": usage,
            "cost": cost,
            "state": "running" if then.result is None else state_of(then.result.outcome.value),
            "agent_state": then.state.value,
            "outcome": None if then.result is None else then.result.outcome.value,
            "text": "" if snapshot is None else snapshot.text,
            "messages": len(then.messages),
            "turns": replies if kept == len(journal.commits) else None,
        }
