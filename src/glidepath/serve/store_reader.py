"""Reading runs: cards, details, transcripts and journals, folded from events, journal and lease, never stored."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath._wire import Record, asdict, replace
from glidepath.errors import ConfigurationError, StoreError
from glidepath.messages import AssistantMessage
from glidepath.outcome import RunResult
from glidepath.serve.flight_card import origin_of, pending_items, state_of
from glidepath.serve.hub import Hub, refusal_of
from glidepath.serve.refusals import Refused
from glidepath.serve.run_feed import RunFeed
from glidepath.serve.shapes import BudgetNode, CauseShape, PendingItem, RunCard, RunDetail, UsageShape
from glidepath.serve.transcript_page import shown_messages
from glidepath.sessions.archive import Journal, read_journal
from glidepath.sessions.cards import UNFINISHED, cursor_after
from glidepath.sessions.chain import read
from glidepath.sessions.families import family_of
from glidepath.sessions.finding import each_session, find_sessions
from glidepath.sessions.fold import Folded, fold
from glidepath.sessions.owner import free
from glidepath.spi.sessions import Entry, SessionQuery

__all__ = ["FoundRun", "StoreReader"]

_FOLDED = 64  # journals that are kept at hand, folded
_SCANNED = 20_000  # sessions that are looked through for a run's id
_ONLY_ENTRY = 1 << 62  # a number that no commit has
_STATES = ("queued", "running", "paused", "ended", "lost")
_RESUMABLE = frozenset({"wrapped_up", "cut_off", "failed", "cancelled", "paused"})


class FoundRun(Record, kw_only=True):
    """A run that was asked for: its feed, where events are known, and its entry, where a store keeps it."""

    run_id: str
    session_id: str
    feed: RunFeed | None = None
    entry: Entry | None = None


class StoreReader:
    """Answers questions about runs."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.store = hub.store
        self._journals: OrderedDict[str, Journal] = OrderedDict()
        self._sessions: dict[str, str] = {}

    # --- finding one ------------------------------------------------------------------------------------------

    async def find(self, name: str) -> FoundRun:
        """The run with this id, or the last one of the session with this id; raises `Refused`."""
        if not name or len(name) > 300 or "\0" in name:  # noqa: PLR2004 - longer than any id
            raise Refused(404, "unknown_run", "there is no such run: the id is not one")
        feed = await self.hub.feed(name)
        if feed is None and (run_id := self.hub.latest(name)) is not None:
            feed = await self.hub.feed(run_id)
        if feed is not None:
            entry = await self._entry(feed.head.session_id)
            return FoundRun(run_id=feed.run_id, session_id=feed.head.session_id, feed=feed, entry=entry)
        entry = await self._entry(name) or await self._entry_of_run(name)
        if entry is None:
            raise Refused(404, "unknown_run", f"there is no run or session {name!r:.80}; GET /api/runs lists them")
        run_id = str(entry.summary.get("run_id") or entry.session_id)
        return FoundRun(run_id=run_id, session_id=entry.session_id, feed=await self.hub.feed(run_id), entry=entry)

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
        async for entry in each_session(self.store, roots=False, limit=1000):
            seen += 1
            known = entry.summary.get("run_id")
            if isinstance(known, str):
                self._sessions[known] = entry.session_id
            if known == run_id or seen >= _SCANNED:
                break
        found = self._sessions.get(run_id)
        return None if found is None else await self._entry(found)

    async def _labelled(self, entry: Entry) -> Entry:
        """The entry with its title and tags."""
        page = await find_sessions(self.store, SessionQuery(prefix=entry.session_id, roots=False, limit=100))
        return next((one for one in page.sessions if one.session_id == entry.session_id), entry)

    # --- cards ------------------------------------------------------------------------------------------------

    def card(self, feed: RunFeed | None, entry: Entry | None) -> RunCard:
        """The card of a run, from what is known: events, and what the store says about its session."""
        now = time.time()
        if feed is None:
            return _bare_card(entry, now)  # type: ignore[arg-type] # one of the two is known
        known: dict[str, Any] = {"tags": self.hub.tags.get(feed.head.session_id, ())}
        if entry is not None:
            known = {"title": entry.title, "tags": entry.tags, "owner": entry.owner}
        if feed.live:
            known["state"] = "running"
        elif entry is not None and entry.summary.get("run_id") == feed.run_id:
            known["state"] = state = _state(entry, now)
            card = feed.card.card(now, None, **known)
            return replace(card, resumable=card.resumable or state == "lost", **_newer(card, entry))
        return feed.card.card(now, feed.meter, **known)

    async def cards(
        self,
        *,
        state: str | None = None,
        tag: str | None = None,
        text: str = "",
        agent: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> tuple[list[RunCard], str | None]:
        """A page of cards, the newest first; raises `Refused` for a question that makes no sense."""
        if state is not None and state not in _STATES:
            raise Refused(400, "bad_state", f"state must be one of {', '.join(_STATES)}, not {state!r:.80}")
        if self.store is None:
            return self._cards_in_memory(state, tag, text, agent, cursor, limit)
        outcome = "paused" if state == "paused" else UNFINISHED if state in ("running", "lost", "queued") else None
        found: list[RunCard] = []
        try:
            query = SessionQuery(
                tag=tag, text=text, agent=agent, outcome=outcome, cursor=cursor, limit=min(500, limit + 1)
            )
            while True:
                page = await find_sessions(self.store, query)
                for place, entry in enumerate(page.sessions):
                    card = await self._card_of(entry)
                    if state is None or card.state == state:
                        found.append(card)
                    if len(found) == limit:
                        more = place + 1 < len(page.sessions) or page.cursor is not None
                        return found, cursor_after(entry.updated, entry.session_id) if more else None
                if page.cursor is None:
                    return found, None
                query = replace(query, cursor=page.cursor)
        except ConfigurationError as error:
            raise Refused(400, "bad_query", str(error)) from None
        except StoreError as error:
            if error.kind == "missing":  # nobody has written into it yet
                return [], None
            raise refusal_of(error) from None

    def cards_since(self, change: int, shown: Mapping[str, RunCard]) -> list[RunCard]:
        """The cards of runs at hand that have changed after a change; what only the store knows is as it was shown."""
        found = []
        for run_id, stamp in self.hub.stamps.items():
            feed = self.hub.feeds.get(run_id)
            if stamp > change and feed is not None and feed.head.parent is None:
                card, before = self.card(feed, None), shown.get(run_id)
                if before is not None:
                    card = replace(card, title=before.title, tags=before.tags or card.tags, owner=before.owner)
                found.append(card)
        return found

    async def _card_of(self, entry: Entry) -> RunCard:
        run_id = entry.summary.get("run_id")
        return self.card(await self.hub.feed(run_id) if isinstance(run_id, str) else None, entry)

    def _cards_in_memory(
        self, state: str | None, tag: str | None, text: str, agent: str | None, cursor: str | None, limit: int
    ) -> tuple[list[RunCard], str | None]:
        cards = [self.card(feed, None) for feed in self.hub.feeds.values() if feed.head.parent is None]
        cards = [
            card
            for card in cards
            if state in (None, card.state)
            and (tag is None or tag in card.tags)
            and agent in (None, card.agent)
            and text.casefold() in f"{card.task}\n{card.session_id}\n{card.run_id}".casefold()
        ]
        cards.sort(key=lambda card: (-card.started, card.run_id))
        try:
            start = int(cursor or 0)
        except ValueError:
            raise Refused(400, "bad_cursor", f"cursor {cursor!r:.80} is not one that a page gave") from None
        page = cards[max(0, start) : max(0, start) + limit]
        return page, str(start + limit) if start + limit < len(cards) else None

    # --- one run ----------------------------------------------------------------------------------------------

    async def journal(self, session_id: str) -> Journal | None:
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

    async def detail(self, name: str) -> RunDetail:
        """All about a run."""
        found = await self.find(name)
        entry = found.entry if found.entry is None else await self._labelled(found.entry)
        card = self.card(found.feed, entry)
        result, folded = await self.result(found, card)
        feed = found.feed
        children = await self._children(found)
        asked: Mapping[str, float] = {} if feed is None else feed.card.asked
        pending = () if result is None else pending_items(result, card.agent, asked)
        fields = {**asdict(card), "pending": pending, "pending_count": len(pending), "children": tuple(children)}
        text = "" if feed is None else feed.card.text
        if result is not None:
            text = result.text
        return RunDetail(
            **{**fields, **_accounted(card, result, folded)},
            text=text,
            text_origin=None if result is None else origin_of(result),
            unknown_effects=_unknown(result, folded),
            abandoned=() if result is None else tuple(f"{one.tool_name}: {one.reason}" for one in result.abandoned),
            budget=budget_node(card, children),
            limits={} if feed is None else _limits(feed.card.limits),
            notices=() if feed is None else tuple(feed.card.notices),
            guards=() if feed is None else tuple(feed.card.guards),
            verdicts=() if feed is None else tuple(feed.card.verdicts),
        )

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

    async def _children(self, found: FoundRun) -> list[RunCard]:
        cards = {feed.run_id: self.card(feed, None) for feed in self.hub.below(found.run_id)}
        if found.feed is None or not found.feed.live:
            for entry in [] if self.store is None else await family_of(self.store, found.session_id):
                card = await self._card_of(entry)
                if card.run_id not in cards:
                    cards[card.run_id] = replace(card, parent=entry.session_id.rpartition("/")[0])
        return list(cards.values())

    async def approvals(self) -> list[PendingItem]:
        """Every call that waits for a person."""
        if self.store is None:
            return [one for feed in self.hub.feeds.values() if not feed.live for one in feed.card.pending()]
        found: list[PendingItem] = []
        for entry in await self._paused():
            feed = await self.hub.feed(str(entry.summary.get("run_id") or ""))
            if feed is not None and (feed.live or feed.card.result is not None):
                found += [] if feed.live else feed.card.pending()
                continue
            journal = await self.journal(entry.session_id)
            if journal is not None and journal.folded.result is not None:
                found += pending_items(journal.folded.result, str(entry.summary.get("agent") or ""), {})
        return found

    async def _paused(self) -> list[Entry]:
        try:
            return [entry async for entry in each_session(self.store, outcome="paused", limit=500)]
        except StoreError as error:
            if error.kind == "missing":
                return []
            raise refusal_of(error) from None

    # --- transcripts ------------------------------------------------------------------------------------------

    async def messages(self, name: str, after: int, limit: int) -> dict[str, Any]:
        """A page of the transcript."""
        found = await self.find(name)
        messages: list[Any]
        flight = self.hub.flights.get(found.run_id)
        if flight is not None and flight.stream is not None and flight.stream.run is not None:
            messages = flight.stream.run.transcript.messages
        else:
            journal = await self.journal(found.session_id)
            result = self.hub.result_of(found.run_id)
            messages = [] if result is None else list(result.messages)
            if journal is not None:
                messages = journal.folded.messages
        shown = shown_messages(messages, after, limit)
        return {"messages": shown, "total": len(messages)}

    async def records(self, name: str, after: int, limit: int) -> dict[str, Any]:
        """A page of the journal's records."""
        found = await self.find(name)
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

    async def at(self, name: str, turn: int) -> dict[str, Any]:
        """How a run stood after a turn, by its journal."""
        found = await self.find(name)
        journal = await self.journal(found.session_id)
        if journal is None:
            raise Refused(409, "no_journal", "there is no journal to look back in: start the server with --store")
        kept, replies = 0, 0
        for commit in journal.commits:
            for record in read(commit):
                replies += record.kind == "message" and b'"role":"assistant"' in bytes(record.payload)[:200]
            if replies > turn:
                break
            kept += 1
        if turn < 0 or replies < turn:
            raise Refused(404, "unknown_turn", f"the run has {replies} turns, not {turn}")
        then = fold(journal.commits[:kept], found.session_id)
        card = self.card(found.feed, found.entry)
        snapshot = then.snapshot
        usage, cost = _spent(snapshot)
        return {
            **asdict(card),
            "turn": turn,
            "at": then.time,
            "usage": usage,
            "cost": cost,
            "state": "running" if then.result is None else state_of(then.result.outcome.value),
            "outcome": None if then.result is None else then.result.outcome.value,
            "text": "" if snapshot is None else snapshot.text,
            "messages": len(then.messages),
            "turns": replies if kept == len(journal.commits) else None,
        }


def _spent(snapshot: Any) -> tuple[UsageShape, str | None]:
    if snapshot is None:
        return UsageShape(), None
    usage = snapshot.spent.usage
    cost = f"{snapshot.picodollars / 1e12:.12f}".rstrip("0").rstrip(".") if snapshot.picodollars else None
    return UsageShape(input=usage.input, output=usage.output, total=snapshot.tokens), cost


def _state(entry: Entry, now: float) -> str:
    outcome = entry.summary.get("outcome")
    if isinstance(outcome, str):
        return state_of(outcome)
    if entry.summary.get("state") == "queued" and not entry.head:
        return "queued"
    if free(entry.owner, entry.expires, now):
        return "lost"
    return "running"


def _newer(card: RunCard, entry: Entry) -> dict[str, Any]:
    """What the store knows and the events do not: another process has continued the run."""
    outcome = entry.summary.get("outcome")
    if outcome == card.outcome or not isinstance(outcome, str):
        return {}
    return {
        "outcome": outcome,
        "phase": "ground",
        "turn": int(entry.summary.get("iterations") or 0),
        "cost": entry.summary.get("cost"),
        "updated": entry.updated,
        "ended": entry.updated,
        "resumable": outcome in _RESUMABLE,
    }


def _bare_card(entry: Entry, now: float) -> RunCard:
    """A card without events: another program ran it."""
    summary = entry.summary
    outcome = summary.get("outcome") if isinstance(summary.get("outcome"), str) else None
    state = _state(entry, now)
    tokens = int(summary.get("tokens") or 0)
    parent = summary.get("parent")
    above = parent.get("session_id") if isinstance(parent, Mapping) else None
    waiting = int(state == "paused")
    return RunCard(
        run_id=str(summary.get("run_id") or entry.session_id),
        session_id=entry.session_id,
        agent=str(summary.get("agent") or summary.get("team") or ""),
        task=str(summary.get("task") or "")[:200],
        title=entry.title,
        state=state,
        outcome=outcome,
        phase="ground" if outcome is not None else "cruise",
        turn=int(summary.get("iterations") or 0),
        usage=UsageShape(total=tokens),
        cost=summary.get("cost") if isinstance(summary.get("cost"), str) else None,
        started=entry.updated,
        updated=entry.updated,
        ended=entry.updated if outcome is not None else None,
        tags=entry.tags,
        pending=waiting,
        pending_count=waiting,
        parent=above if isinstance(above, str) else None,
        owner=entry.owner,
        resumable=state == "lost" or outcome in _RESUMABLE,
        last=_last_line(state, outcome),
    )


def _last_line(state: str, outcome: str | None) -> str:
    if state == "lost":
        return "its process is gone: resume it"
    if state == "running":
        return "runs in another process"
    return "" if outcome is None else outcome.replace("_", " ")


def _accounted(card: RunCard, result: RunResult[Any] | None, folded: Folded | None) -> dict[str, Any]:
    """Figures of a run without events, from its journal."""
    if folded is None or result is None:
        return {}
    usage, cause = result.usage, result.cause
    return {
        "usage": UsageShape(input=usage.input, output=usage.output, total=usage.total),
        "cost": None if result.cost is None else f"{result.cost:f}",
        "turn": result.iterations,
        "cause": card.cause if cause is None else CauseShape(source=cause.source, reason=cause.reason),
    }


def _unknown(result: RunResult[Any] | None, folded: Folded | None) -> tuple[Mapping[str, Any], ...]:
    calls = [] if result is None else list(result.unknown_effects)
    found: list[dict[str, Any]] = [
        {"call_id": one.id, "tool": one.name, "arguments": one.arguments, "since": None} for one in calls
    ]
    if folded is not None and result is None:
        for intent in folded.intents.values():
            if intent.call_id not in folded.results:
                call = _call_in(folded.messages, intent.call_id)
                found.append(
                    {
                        "call_id": intent.call_id,
                        "tool": intent.tool or (call.name if call else ""),
                        "arguments": intent.arguments or (call.arguments if call else {}),
                        "since": folded.time,
                    }
                )
    return tuple(found)


def _call_in(messages: Iterable[Any], call_id: str) -> Any:
    for message in messages:
        if type(message) is AssistantMessage:
            for call in message.tool_calls:
                if call.id == call_id:
                    return call
    return None


def _limits(limits: Mapping[str, float]) -> dict[str, float]:
    return {
        ("cost" if name == "picodollars" else name): (value / 1e12 if name == "picodollars" else value)
        for name, value in limits.items()
    }


def budget_node(card: RunCard, below: Sequence[RunCard], kind: str = "run") -> BudgetNode:
    """The budget of a run with those of its descendants below it."""
    return BudgetNode(
        name=card.agent,
        kind=kind,
        run_id=card.run_id,
        gauges=card.gauges,
        children=tuple(budget_node(one, below, "child") for one in below if one.parent == card.session_id),
    )
