"""Runs of foreign programs in the hub: adopted as they begin, followed by their events, acted on by people.

The hub drives none of them. Their calls come through the gate, which keeps them (`SessionKeeper`); here they get a feed
like any other run, so that lists, streams, gauges and trees need not know whose loop it is.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glidepath.apps.gate.dialects import parse_body
from glidepath.apps.gate.orders import land_now, raise_limits, release_run, stop_now, stop_run
from glidepath.apps.server.event_log import LogHead
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.run_feed import RunFeed
from glidepath.values import ConfigurationError, Event, StoreError, StreamStarted

if TYPE_CHECKING:
    from glidepath.apps.gate.foreign_events import Observer
    from glidepath.apps.gate.foreign_run import ForeignRun
    from glidepath.apps.gate.session_keeper import SessionKeeper
    from glidepath.apps.server.hub import Hub
    from glidepath.run import Meter
    from glidepath.values import Message

__all__ = ["DeckFlights"]

_MOST_STOPPED = 10_000
STEP = 0.25  # seconds between two pieces of a reply that somebody reads


class GaugedMeter:
    """A meter as the gauges of a card read it: what its agents keep for their landings is its reserve."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meter, name)

    @property
    def held_tokens(self) -> int:
        """Tokens that are kept for landings."""
        return self._meter.held_tokens + self._meter.aside_tokens

    @property
    def held_money(self) -> int:
        """The same in pico-dollars."""
        return self._meter.held_money + self._meter.aside_money


class DeckFlights:
    """The foreign runs of a hub that go through a gate in this process: see `glidepath.apps.server.gate_door`."""

    def __init__(self, hub: Hub, keeper: SessionKeeper) -> None:
        self._hub = hub
        self._keeper = keeper
        self._stopped: OrderedDict[str, tuple[ForeignRun, bool]] = OrderedDict()
        """By session: what was stopped here, and whether that was the kill switch."""
        self._showing: asyncio.Task[None] | None = None
        keeper.observe.append(self._follow)
        keeper.admit = self._admit
        measures: Any = hub.measures
        if measures is not None:
            keeper.observe.append(lambda _: measures.for_run().event_observer)

    # --- events ---------------------------------------------------------------------------------------------------

    async def _admit(self, run: ForeignRun) -> None:
        """Raise `HttpError` while a kill switch holds runs back."""
        try:
            held = await self._hub.switches.find_thrown_switch(run.name)
        except StoreError as error:
            held = str(error)
        if held is not None:
            raise HttpError(403, "permission_error", f"{held}; release it first")

    def _follow(self, run: ForeignRun) -> Observer:
        hub = self._hub
        feed = hub.feeds.get(run.run_id)
        if feed is None:
            above = run.parent
            head = LogHead(
                run_id=run.run_id,
                session_id=run.name,
                agent=run.agent_name,
                parent=None if above is None else above.name,
                who=None if run.who is None else run.who.name,
            )
            feed = RunFeed(head, hub.log)
            feed.stale = run.position is not None or run.iterations > 0
        feed.foreign, feed.meter = True, GaugedMeter(run.meter)
        hub.adopt_feed(feed)
        if self._showing is None or self._showing.done():
            self._showing = asyncio.get_running_loop().create_task(self._show(), name="glidepath-serve-foreign")

        def observe(event: Event) -> None:
            hub.child_event(event)
            if type(event) is StreamStarted:
                self._note_request(run, feed, event)
            if not feed.live:
                feed.meter = None
                hub.requests.close(run.run_id)

        return observe

    def _note_request(self, run: ForeignRun, feed: RunFeed, event: StreamStarted) -> None:
        """Keep what its model is asked: with several calls in flight, the newest one of this model."""
        passage = next((one for one in reversed(run.passages) if one.call.facts.model == event.model), None)
        if passage is not None:
            body = passage.call.body if passage.is_verbatim else parse_body(passage.body)
            self._hub.requests.note_foreign_call(feed.head, event.time, body, len(run.conversation.messages))

    async def _show(self) -> None:
        """Tell readers what a reply has so far, several times a second, and only while somebody reads."""
        while self._keeper.open_runs:
            await asyncio.sleep(STEP)
            for run in self._keeper.open_runs:
                feed = self._hub.feeds.get(run.run_id)
                if feed is not None and feed.readers and run.teller is not None:
                    for passage in list(run.passages):
                        run.teller.show_text(passage)

    async def close(self) -> None:
        """Show nothing more."""
        if self._showing is not None:
            self._showing.cancel()

    # --- finding --------------------------------------------------------------------------------------------------

    def has_run(self, run_id: str) -> bool:
        """True for a run that goes through a gate in this process and has not ended."""
        return self._keeper.find(run_id) is not None

    def _find(self, run_id: str) -> ForeignRun:
        run = self._keeper.find(run_id)
        if run is None:
            raise HttpError(409, "run_ended", "this run has ended, or its gate is another process")
        return run

    def messages(self, run_id: str) -> list[Message] | None:
        """The transcript of a run that has not ended."""
        run = self._keeper.find(run_id)
        return None if run is None else run.conversation.messages

    def roots(self) -> list[RunFeed]:
        """The feeds of all programs that have not ended."""
        found = [self._hub.feeds.get(run.run_id) for run in self._keeper.open_runs if run.parent is None]
        return [feed for feed in found if feed is not None]

    # --- what a person does ---------------------------------------------------------------------------------------

    async def land(self, run_id: str, control: dict[str, Any], reason: str) -> str:
        """Its next call is its last; says what happened."""
        run = self._find(run_id)
        self._write(run, control)
        await land_now(self._keeper, run, reason)
        return "asked to land: its next call is its last" if run.is_open else "it had answered and is over"

    async def stop(self, run_id: str, control: dict[str, Any], reason: str) -> str:
        """No further call; says what happened."""
        run, began = self._find(run_id), time.perf_counter()
        self._write(run, control)
        self._remember(run, killed=False)
        await stop_now(self._keeper, run, reason)
        return f"stopped in {(time.perf_counter() - began) * 1000:.0f} ms"

    def raise_limits(self, run_id: str, control: dict[str, Any], limits: Mapping[str, Any]) -> str:
        """Raise limits of the program; raises `HttpError` for one that is lower, or not there."""
        run = self._find(run_id)
        if run.parent is not None:
            raise HttpError(409, "part_of_a_run", "a sub-agent has no limits of its own: raise those of its program")
        try:
            raise_limits(run.session, limits)
        except ConfigurationError as error:
            raise HttpError(400, "bad_limit", str(error)) from None
        self._write(run, control)
        if run.writer is not None:
            run.writer.put(("config", run.fingerprint()), summarize=True)
        feed = self._hub.feeds.get(run.run_id)
        if feed is not None:
            feed.card.limits = run.limits()
            self._hub.announce_change(run.run_id)
        return f"continues with {', '.join(f'{name}={value}' for name, value in limits.items())}"

    def stop_all(self, why: str, control: dict[str, Any]) -> int:
        """A kill switch was thrown: cut everything; how many programs that were."""
        roots = [run for run in self._keeper.open_runs if run.parent is None]
        for run in roots:
            self._write(run, control)
            stop_run(run, why)
            self._remember(run, killed=True)
        return len(roots)

    async def release(self, session_id: str) -> None:
        """Take back the stop of one run, if it was stopped here."""
        found = self._stopped.pop(session_id, None)
        if found is not None:
            await release_run(self._keeper, found[0])

    async def release_all(self) -> None:
        """The kill switch is released: programs that it has stopped may call again."""
        for name in [name for name, (_, killed) in self._stopped.items() if killed]:
            await self.release(name)

    def _remember(self, run: ForeignRun, *, killed: bool) -> None:
        self._stopped[run.name] = (run, killed)
        if len(self._stopped) > _MOST_STOPPED:
            self._stopped.popitem(last=False)

    def _write(self, run: ForeignRun, control: dict[str, Any]) -> None:
        if run.writer is not None:
            run.writer.put(("control", control))
