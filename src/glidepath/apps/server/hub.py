"""The hub: drives the runs of this server, watched or not, and finds the feed of any run.

A run belongs to the hub, not to the request that started it: a client that goes away changes nothing. What the hub
knows about a run is folded from its events; with a store, everything can be found again after the process has died.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from glidepath._wire import Record
from glidepath.agent import Agent, Budget, Limits
from glidepath.apps.server.child_events import ChildEvents
from glidepath.apps.server.event_log import EventLog, LogHead
from glidepath.apps.server.event_pulse import Pulse
from glidepath.apps.server.kill_switchboard import Switchboard
from glidepath.apps.server.limit_changes import change_limits, check_lowered
from glidepath.apps.server.locks import OPERATOR, Allowance, KeyRing, MemoryKeys, Visitor
from glidepath.apps.server.owners import Owners, check_tags, key_name_in
from glidepath.apps.server.per_request import NO_CHANGES, RequestChanges, add_instructions, model_names
from glidepath.apps.server.prometheus import PrometheusMeters, metrics_plugin
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.request_book import RequestBook, is_book
from glidepath.apps.server.run_feed import RunFeed
from glidepath.run import CancelToken, Decision, RunStream, mask_controls
from glidepath.sessions import check_session_id, normalize_tags
from glidepath.spi import Plugin
from glidepath.values import (
    ConfigurationError,
    Event,
    RunEnded,
    RunResult,
    RunStarted,
    StoreError,
    StreamChunk,
    describe_error,
    pluralize,
)

__all__ = ["Hub", "HubFlight"]

_log = logging.getLogger("glidepath.serve")
KEPT = 500  # feeds of ended runs that are kept at hand
FAREWELL = 4.0  # seconds that runs have when the server ends
RETRY_AFTER = 2  # seconds


class HubFlight(Record, eq=False, kw_only=True):
    """A run in flight."""

    agent: Agent[Any]
    name: str
    token: CancelToken
    started: asyncio.Future[RunFeed]
    feed: RunFeed | None = None
    stream: RunStream[Any] | None = None
    task: asyncio.Task[None] | None = None
    result: RunResult[Any] | None = None
    began: float = 0.0
    who: str | None = None
    stays: bool = False
    """It continues without a reader: its caller has asked for that."""


class Hub:
    """Everything that runs in this process, and where to find what does not."""

    def __init__(
        self,
        agents: Mapping[str, Agent[Any]],
        store: Any,
        log: EventLog,
        *,
        max_runs: int = 100,
        on_disconnect: str = "land",
        disconnect_grace: float = 3.0,
        measured: bool = True,
        keys: KeyRing | None = None,
    ) -> None:
        self.store = store
        self.keys: KeyRing = MemoryKeys() if keys is None else keys
        self.allowance = Allowance(store)
        """What the holders of keys may start and spend."""
        self.owners = Owners(store)
        """Whose the sessions are."""
        self.log = log
        self.max_runs = max_runs
        self.on_disconnect = on_disconnect
        self.lands_alone = on_disconnect != "continue" and store is None
        self.disconnect_grace = disconnect_grace
        self.flights: dict[str, HubFlight] = {}
        """By run id."""
        self.breakers: dict[tuple[str, str], tuple[str, float]] = {}
        """State and time of every breaker that has changed, by target and kind."""
        self.starting: set[HubFlight] = set()
        """What was admitted and has no events yet."""
        self.requests = RequestBook(self, log)
        """What models were asked."""
        self.meters = PrometheusMeters()
        self.measures = metrics_plugin(self.meters) if measured else None
        watch = [ChildEvents(self), *([] if self.measures is None else [self.measures])]
        self.agents = {name: _prepare_agent(name, agent, store, watch) for name, agent in agents.items()}
        self.feeds: OrderedDict[str, RunFeed] = OrderedDict()
        self.closing = False  # the server is shutting down: nothing starts any more, and streams end
        self.watchers: list[Callable[[RunFeed, Sequence[Event]], None]] = []  # of every event; they never raise
        self.foreign: Any = None  # the `ForeignFlights`, where a gate is mounted
        self.switches = Switchboard(store)  # the kill switches that hold runs back
        self.recorded = 0  # events that were logged so far
        self.readers = 0  # how many read the events of some run
        self.changes = 0
        self.stamps: dict[str, int] = {}
        """When each run last changed, counted in changes."""
        self._results: OrderedDict[str, RunResult[Any]] = OrderedDict()
        self._latest: dict[str, str] = {}
        self._changes: OrderedDict[str, RequestChanges] = OrderedDict()  # of the last run of a session
        self._busy: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self.pulse = Pulse(lambda: self.readers, self._record_incoming, at_once=log.is_remote)
        """When what models write is recorded and shown."""
        self._pumping: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[Any]] = set()

    # --- life -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Get ready on the running loop; calling it again does nothing."""
        if self._loop is None:
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
            self._pumping = self._loop.create_task(self.pulse.run(), name="glidepath-serve-pulse")
            for agent in {id(one): one for one in self.agents.values()}.values():
                await agent.__aenter__()

    async def stop_all(self) -> None:
        """Stop the runs (a store lets you resume them), wait a few seconds, let readers end; start nothing."""
        if self.closing:
            return
        self.closing = True
        flights = [*self.flights.values(), *self.starting]
        for flight in flights:
            flight.token.cancel("the server is shutting down")
        tasks = [flight.task for flight in flights if flight.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=FAREWELL)
        for feed in self.feeds.values():
            feed.wake()

    async def close(self) -> None:
        """Ground everything, and close files and connections."""
        await self.stop_all()
        if self._loop is not None:
            for agent in {id(one): one for one in self.agents.values()}.values():
                await agent.__aexit__(None, None, None)
        self.pulse.close()
        for task in [self._pumping, *self._chores]:
            if task is not None:
                task.cancel()
        self._loop, self.closing = None, False
        await self.log.close()

    def run_beside(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something beside the requests until it is done or the server ends."""
        task = asyncio.get_running_loop().create_task(work, name="glidepath-serve-chore")
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    @property
    def taking_off(self) -> tuple[HubFlight, ...]:
        """What was admitted and has no events yet."""
        return tuple(self.starting)

    @property
    def room(self) -> int:
        """How many more runs may start."""
        return self.max_runs - len(self.flights) - len(self.starting)

    # --- starting ---------------------------------------------------------------------------------------------

    async def start(
        self,
        name: str,
        prompt: Any,
        *,
        who: Visitor,
        session: str | None = None,
        limits: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        instructions: str = "",
        changes: RequestChanges = NO_CHANGES,
    ) -> RunFeed:
        """Start a run in the caller's name, return its feed once it has taken off; raises `HttpError`.

        `instructions` follow the agent's. Limits can be raised only by who may steer.
        """
        agent = changes.apply(await self.admit(name, session, who))
        if tags is not None:
            tags = _check_value(normalize_tags, tags)
            check_tags(who, tags)
        if session is not None:
            _check_value(check_session_id, session)
            if mask_controls(session) != session or "\n" in session or "\t" in session:
                raise HttpError(400, "bad_session", f"session {session!r:.80} has characters that cannot be seen")
            await self.check_owner(who, session)
        lower = None
        if limits is not None:
            lower = change_limits(agent.config.limits, limits)
            if not who.may("steer"):
                check_lowered(agent.config.limits, lower)
        await self.allowance.count_start(who)
        self._check_room(session)  # once more: others may have started meanwhile
        flight = self._make_flight(agent if lower is None else agent.replace(limits=lower), name, who.name)
        budget = self.allowance.budget(who.key)
        given: dict[str, Any] = {"session": session, "limits": lower, "cancel": flight.token, "parent": budget}
        if instructions:
            given["system_prompt"] = add_instructions(agent.config.system_prompt, instructions)
        feed = await self._launch(flight, session, lambda: agent.stream(prompt, **given))
        self._remember_changes(feed.head.session_id, changes)
        await self._claim(flight, feed, who, tags)
        return feed

    def _remember_changes(self, session: str, changes: RequestChanges) -> None:
        """What holds when somebody continues the run, as long as this process lives."""
        self._changes.pop(session, None)
        if changes is not NO_CHANGES:
            self._changes[session] = changes
        while len(self._changes) > KEPT:
            self._changes.popitem(last=False)

    async def _claim(self, flight: HubFlight, feed: RunFeed, who: Visitor, tags: Sequence[str] | None) -> None:
        """Say in its journal who started the run, and in the store whose it is; what cannot be claimed is stopped."""
        # The journal first, before anything is awaited: a short run may end meanwhile, and then nobody can add to it.
        run: Any = None if flight.stream is None else flight.stream.run
        journal: Any = None if run is None else run.journal
        if who.marks and journal is not None and not journal.mailbox.closed:
            journal.mailbox.add_remark(
                {"action": "start", "reason": "", "who": who.name, "time": round(time.time(), 3)}
            )
        try:
            await self.owners.mark(who, feed.head.session_id, tags or None)
        except (ConfigurationError, StoreError) as error:
            if who.marks:
                flight.token.cancel("the owner of this run could not be stored")
            raise refusal_of(error) from None

    async def check_owner(self, who: Visitor, session: str) -> None:
        """Raise `HttpError` when there is such a session, and it is somebody else's."""
        if who.scope is None:
            return
        known = self.find_last_run(session) is not None
        if not known and self.store is not None:
            try:
                await self.store.load(session)
                known = True
            except StoreError as error:
                if error.kind != "missing":
                    raise refusal_of(error) from None
        await self.owners.check_session(who, session, known=known)

    async def _owner_budget(self, session: str) -> Budget | None:
        """The wallet of the key that started a session: that key pays for its run, even if somebody else resumes it."""
        name = key_name_in(sorted(await self.owners.read_marks(session)))
        if name is None:
            return None
        return self.allowance.budget(next((key for key in await self.keys.keys() if key.name == name), None))

    async def resume(
        self,
        name: str,
        session: str,
        *,
        decisions: Mapping[str, Decision] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        changes: RequestChanges | None = None,
    ) -> RunFeed:
        """Continue the last run of a session; raises `HttpError`. Without `changes`, those of its last leg hold."""
        kept = self._changes.get(session, NO_CHANGES) if changes is None else changes
        agent = kept.apply(await self.admit(name, session, OPERATOR))
        budget = await self._owner_budget(session)
        target: Any = session
        if self.store is None:
            target = self._results.get(run_id or self._latest.get(session, ""))
            if target is None:
                raise HttpError(409, "not_resumable", f"run {run_id} cannot be resumed: start the server with --store")
        flight = self._make_flight(agent, name)
        feed = await self._launch(
            flight,
            session,
            lambda: agent.stream(resume=target, decisions=decisions, limits=limits, cancel=flight.token, parent=budget),
        )
        self._remember_changes(session, kept)
        return feed

    def agent(self, name: str) -> Agent[Any]:
        """The agent of this name; raises `HttpError`."""
        agent = self.agents.get(name)
        if agent is None:
            there = ", ".join(self.agents) or "none"
            raise HttpError(404, "unknown_agent", f"there is no agent {name!r:.80} on this server; there are {there}")
        return agent

    async def admit(self, name: str, session: str | None, who: Visitor) -> Agent[Any]:
        """The agent of this name, when a run of it may start now for this visitor; raises `HttpError`."""
        agent = self.agent(name)
        self.allowance.check(who, name, model_names(agent))
        try:
            held = await self.switches.find_thrown_switch(session)
        except StoreError as error:
            raise refusal_of(error) from None
        if held is not None and not self.closing:
            raise HttpError(409, "killed", f"{held}; release it first")
        self._check_room(session)
        return agent

    def _check_room(self, session: str | None) -> None:
        """Raise `HttpError` when no run may start now, or not in this session."""
        if self.closing:
            raise HttpError(503, "closing", "the server is shutting down; try again in a moment", RETRY_AFTER)
        if self.room < 1:
            raise HttpError(
                429,
                "full",
                f"the server runs at most {pluralize(self.max_runs, 'run')} at once; try again later",
                RETRY_AFTER,
            )
        if session is not None and (session in self._busy or self.find_flight(session) is not None):
            raise HttpError(409, "in_flight", f"session {session!r:.80} has a run in flight; wait for it, or steer it")

    def _make_flight(self, agent: Agent[Any], name: str, who: str | None = None) -> HubFlight:
        started: asyncio.Future[RunFeed] = asyncio.get_running_loop().create_future()
        return HubFlight(agent=agent, name=name, token=CancelToken(), started=started, began=time.time(), who=who)

    async def _launch(self, flight: HubFlight, session: str | None, opened: Callable[[], RunStream[Any]]) -> RunFeed:
        """Run it in its own task, and wait until it has taken off."""
        await self.open()
        self.starting.add(flight)
        if session is not None:
            self._busy.add(session)
        try:
            flight.task = asyncio.get_running_loop().create_task(
                self._run_flight(flight, opened), name="glidepath-serve-run"
            )
            return await asyncio.shield(flight.started)
        finally:
            self.starting.discard(flight)
            if session is not None:
                self._busy.discard(session)

    async def _run_flight(self, flight: HubFlight, opened: Callable[[], RunStream[Any]]) -> None:
        try:
            async with opened() as stream:
                flight.stream = stream
                async for events in stream.batches():
                    feed = flight.feed or await self._on_first_event(flight, events[0])
                    if _has_only_chunks(events):
                        feed.incoming += events
                        self.pulse.hold(feed)
                        continue
                    held, feed.incoming = feed.incoming, []  # in the order in which they came
                    await self._record(feed, [*held, *events] if held else events)
                    if not flight.started.done():
                        flight.started.set_result(feed)
            flight.result = stream.result
            if not flight.started.done():
                raise HttpError(409, "already_done", "this run is done and cannot be resumed; start a new one")
        except BaseException as error:
            self._on_failure(flight, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._on_landed(flight)

    async def _on_first_event(self, flight: HubFlight, event: Event) -> RunFeed:
        """The first event tells which run this is."""
        if not isinstance(event, RunStarted):
            raise ConfigurationError(f"the first event of a run was {type(event).__name__}")
        feed = self.feeds.get(event.run_id)
        if feed is None:
            head = LogHead(run_id=event.run_id, session_id=event.session_id, agent=flight.name, who=flight.who)
            feed = RunFeed(head, self.log)
            if event.resumed:
                await feed.recall()
            self._keep(feed)
        feed.live, feed.over = True, False
        feed.meter = None if flight.stream is None or flight.stream.run is None else flight.stream.run.meter
        flight.feed = feed
        self.flights[feed.run_id] = flight
        self.starting.discard(flight)
        self._latest[event.session_id] = event.run_id
        await self._recheck_kill_switch(flight, event.session_id)
        return feed

    async def _recheck_kill_switch(self, flight: HubFlight, session_id: str) -> None:
        """A kill switch that was thrown since the run was admitted: from here on, throwing it finds the run."""
        try:
            held = await self.switches.find_thrown_switch(session_id)
        except StoreError as error:
            held = str(error)
        if held is not None:
            flight.token.cancel(held)

    def _on_failure(self, flight: HubFlight, error: BaseException) -> None:
        if flight.started.done():
            _log.error("run %s was lost: %s", flight.feed and flight.feed.run_id, describe_error(error))
            return
        if isinstance(error, HttpError):
            refusal = error
        elif isinstance(error, ConfigurationError | StoreError):
            refusal = refusal_of(error)
        else:
            _log.exception("a run could not be started", exc_info=error)
            refusal = HttpError(503, "not_started", f"the run could not be started: {describe_error(error)}")
        flight.started.set_exception(refusal)
        flight.started.exception()  # the caller may be gone

    def _on_landed(self, flight: HubFlight) -> None:
        feed = flight.feed
        if feed is None:
            return
        if self.flights.get(feed.run_id) is flight:
            del self.flights[feed.run_id]
        feed.live, feed.meter = False, None
        feed.settle()
        if flight.result is not None and self.store is None:
            self._results[feed.run_id] = flight.result
            while len(self._results) > KEPT:
                self._results.popitem(last=False)
        self.log.release(feed.run_id)
        self.requests.close(feed.run_id)
        self.announce_change(feed.run_id)
        feed.wake()

    # --- children ---------------------------------------------------------------------------------------------

    def child_event(self, event: Event) -> None:
        """Something happened in a child; from any thread."""
        if threading.get_ident() != self._thread:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self.child_event, event)
            return
        feed = self.feeds.get(event.run_id)
        if feed is None:
            if not isinstance(event, RunStarted):
                return
            above = self.feeds.get(event.parent_id or "")
            head = LogHead(
                run_id=event.run_id,
                session_id=event.session_id,
                agent=event.agent_name,
                parent=None if above is None else above.head.session_id,
            )
            feed = RunFeed(head, self.log)
            feed.stale = event.resumed
            self._keep(feed)
            self._latest[event.session_id] = event.run_id
        feed.live = type(event) is not RunEnded
        feed.incoming.append(event)
        if type(event) is StreamChunk:
            self.pulse.hold(feed)
        else:
            self.pulse.release(feed)

    async def _record_incoming(self, feed: RunFeed) -> None:
        """Record what has come of a run that was held for a moment, or is driven by another."""
        events, feed.incoming = feed.incoming, []
        if not events:
            return
        try:
            if feed.stale:
                feed.stale = False
                await feed.recall()
            await self._record(feed, events)
        except Exception as error:
            _log.error("events of run %s were not kept: %s", feed.run_id, describe_error(error))
        if not feed.live:
            feed.settle()
            self.log.release(feed.run_id)

    async def _record(self, feed: RunFeed, events: Sequence[Event]) -> None:
        await feed.record(events)
        self.recorded += len(events)
        for watch in self.watchers:
            watch(feed, events)
        self.announce_change(feed.run_id)

    # --- finding ----------------------------------------------------------------------------------------------

    def _keep(self, feed: RunFeed) -> None:
        self.feeds[feed.run_id] = feed
        if len(self.feeds) > KEPT:
            for run_id, old in [*self.feeds.items()][: len(self.feeds) - KEPT]:
                if not old.live and not old.readers:
                    del self.feeds[run_id]
                    self.stamps.pop(run_id, None)

    def adopt_feed(self, feed: RunFeed) -> None:
        """Have the feed of a run that somebody else drives."""
        self._keep(feed)
        self._latest[feed.head.session_id] = feed.run_id

    def announce_change(self, run_id: str) -> None:
        """A run's card has changed."""
        self.changes += 1
        self.stamps[run_id] = self.changes

    def find_flight(self, session_id: str) -> HubFlight | None:
        """What is running in a session, in this process."""
        return self.flights.get(self._latest.get(session_id, ""))

    def find_last_run(self, session_id: str) -> str | None:
        """The last run of a session, as far as this process has seen."""
        return self._latest.get(session_id)

    def result_of(self, run_id: str) -> RunResult[Any] | None:
        """The result of a run that no store keeps, with its transcript."""
        return self._results.get(run_id)

    def list_child_feeds(self, run_id: str) -> list[RunFeed]:
        """The feeds of a run's children, and of theirs, as far as they are in memory."""
        found: list[RunFeed] = []
        left = [run_id]
        while left:
            feed = self.feeds.get(left.pop(0))
            for name in () if feed is None else feed.card.children:
                if name in self.feeds:
                    found.append(self.feeds[name])
                    left.append(name)
        return found

    async def feed(self, run_id: str) -> RunFeed | None:
        """The feed of a run: one at hand, or from the log."""
        known = self.feeds.get(run_id)
        if known is not None:
            return known
        if is_book(run_id):  # what is in there are not events
            return None
        head = await self.log.head(run_id)
        if head is None:
            return None
        feed = await RunFeed(head, self.log).recall()
        feed.settle()
        known = self.feeds.get(run_id)  # another request was quicker
        if known is None:
            self._keep(feed)
            self.announce_change(run_id)
        return known or feed

    # --- readers ----------------------------------------------------------------------------------------------

    def on_reader_left(self, feed: RunFeed) -> None:
        """The last reader of a run that no store keeps has gone: it lands, unless one comes back in time."""
        flight = self.flights.get(feed.run_id)
        if self.lands_alone and feed.live and not feed.readers and flight is not None and not flight.stays:
            self.run_beside(self._land_unless_read(feed))

    async def _land_unless_read(self, feed: RunFeed) -> None:
        await asyncio.sleep(self.disconnect_grace)
        flight = self.flights.get(feed.run_id)
        if flight is not None and not feed.readers:
            flight.token.wind_down("its reader has gone and there is no store to keep it (on_disconnect=land)")


def _has_only_chunks(events: Sequence[Event]) -> bool:
    return type(events[0]) is StreamChunk and all(type(event) is StreamChunk for event in events)


def _prepare_agent(name: str, agent: Agent[Any], store: Any, watch: Sequence[Plugin]) -> Agent[Any]:
    """The agent as the hub runs it: watched, with the server's store, and under its name on the server."""
    return agent.replace(plugins=(*agent.config.plugins, *watch), store=store, agent_name=name)


def _check_value(check: Callable[[Any], Any], value: Any) -> Any:
    try:
        return check(value)
    except ConfigurationError as error:
        raise HttpError(400, "refused", str(error)) from None


def refusal_of(error: Exception) -> HttpError:
    """The answer to what the runtime refuses."""
    kind = getattr(error, "kind", "")
    if kind == "missing":
        return HttpError(404, "unknown_run", f"{error}")
    if kind in ("busy", "fenced", "conflict"):
        return HttpError(409, kind, f"{error}")
    if isinstance(error, StoreError) and kind in ("unavailable", "locked", "full", "read_only"):
        return HttpError(503, f"store_{kind}", f"{error}", RETRY_AFTER)
    return HttpError(409 if isinstance(error, StoreError) else 400, kind or "refused", f"{error}")
