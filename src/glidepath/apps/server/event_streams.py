"""Server-sent events: the events of one run, and the changes of the list, as long as there is a reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from glidepath import _wire
from glidepath.apps.server.gatekeeper import Receive, Scope, Send
from glidepath.apps.server.hub import Hub
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.run_feed import RunFeed, make_frame
from glidepath.apps.server.shapes import RunCard, SwitchShape
from glidepath.apps.server.store_reader import StoreReader

__all__ = ["EventStream", "run_stream", "stream_cards", "wait_until_gone"]

HEARTBEAT = 15.0  # seconds
PAGE = 512  # events in one write
BEHIND = 2_000  # events that a reader may be behind before it is given a snapshot instead
TOGETHER = 0.01  # seconds within which what comes goes into one write: a turn begins with several events
TICK = 0.25  # seconds between two looks at the list
LOOK_AROUND = 2.0  # seconds between two looks into the store, for what other processes do
BEAT = b": \n\n"


def format_event(kind: str, value: object, number: int | None = None) -> bytes:
    """A message that is not an event of a run."""
    mark = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (mark, kind.encode(), _wire.encode(value))


class EventStream:
    """An ASGI response that writes what a generator yields, until it ends or the reader goes away."""

    def __init__(self, parts: Callable[[], AsyncIterator[bytes]], left: Callable[[], None] | None = None) -> None:
        self._parts = parts
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """Answer."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        writing = asyncio.ensure_future(self._write(send))
        leaving = asyncio.ensure_future(wait_until_gone(receive))
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, leaving):
                task.cancel()
            await asyncio.gather(writing, leaving, return_exceptions=True)
            if self._left is not None:
                self._left()

    async def _write(self, send: Send) -> None:
        parts = self._parts()
        try:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            await parts.aclose()  # type: ignore[attr-defined]
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def wait_until_gone(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def run_stream(hub: Hub, feed: RunFeed, after: int, snapshot: Callable[[], Awaitable[Any]]) -> EventStream:
    """The events of a run behind number `after`, then those that come, to its `RunEnded`."""

    async def parts() -> AsyncIterator[bytes]:
        feed.readers += 1
        hub.readers += 1
        try:
            async for part in _run_parts(hub, feed, after, snapshot):
                yield part
        finally:
            feed.readers -= 1
            hub.readers -= 1

    return EventStream(parts, lambda: hub.on_reader_left(feed))


async def _run_parts(
    hub: Hub, feed: RunFeed, after: int, snapshot: Callable[[], Awaitable[Any]]
) -> AsyncIterator[bytes]:
    current = False  # it has seen everything once: from here on it can fall behind
    yield BEAT
    while True:
        if current and feed.last - after > BEHIND:
            seen = feed.last
            yield format_event("snapshot", await snapshot(), seen)
            after = seen
        frames = feed.frames(after, PAGE) or [
            make_frame(number, line) for number, line in enumerate(await feed.lines(after, PAGE), after + 1)
        ]
        if not frames and feed.last > after:  # the log was removed: what is known is all there is to tell
            after = feed.last
            yield format_event("snapshot", await snapshot(), after)
        if frames:
            yield b"".join(frames)
            after += len(frames)
            if after >= feed.last and not feed.finished:  # what comes within a moment comes with one write
                current = True
                await asyncio.sleep(TOGETHER)
            continue
        current = True
        if feed.finished or (hub.closing and not feed.live):
            return
        if not await _wait_for_news(feed, after):
            yield BEAT


async def _wait_for_news(feed: RunFeed, after: int) -> bool:
    """Wait until there is something new; False when it is time for a heartbeat."""
    news = feed.wait_for_news()
    if feed.last > after or feed.finished:  # it came meanwhile
        news.cancel()
        return True
    beat = asyncio.get_running_loop().call_later(HEARTBEAT, news.cancel)
    try:
        await news
    except asyncio.CancelledError:
        task: Any = asyncio.current_task()
        if task.cancelling():
            raise
        return False
    finally:
        beat.cancel()
    return True


def stream_cards(hub: Hub, reader: StoreReader, who: Visitor) -> EventStream:
    """What changes among a visitor's runs, at most four times a second: cards, pending decisions, kill switches."""

    async def parts() -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        shown: dict[str, RunCard] = {}
        seen = counted = -1
        looked = beat = loop.time()
        thrown: list[SwitchShape] | None = None
        yield BEAT
        cards = (await reader.list.page(who, limit=200)).cards
        on = await hub.switches.list_thrown_switches() if who.may("watch") else []
        while True:
            if on != thrown:
                thrown = on
                yield format_event("switches", {"switches": thrown})
            fresh = [card for card in cards if shown.get(card.run_id) != card]
            known = {card.run_id: card for card in cards}
            shown |= known
            if fresh or seen < 0:
                yield format_event("cards", {"runs": fresh, "removed": []})
                beat = loop.time()
            waiting = sum(card.pending_count for card in shown.values() if card.state == "paused")
            if waiting != counted:
                counted = waiting
                yield format_event("approvals", {"count": waiting})
            seen = hub.changes
            while hub.changes == seen and not hub.closing and loop.time() - looked < LOOK_AROUND:  # noqa: ASYNC110 - once per interval
                await asyncio.sleep(TICK)
            if hub.closing:
                return
            if loop.time() - beat > HEARTBEAT:
                beat = loop.time()
                yield BEAT
            if loop.time() - looked >= LOOK_AROUND:
                looked = loop.time()
                cards = (await reader.list.page(who, limit=200)).cards
                on = await hub.switches.list_thrown_switches() if who.may("watch") else []
                if len(cards) < 200:  # noqa: PLR2004 - all of them: what is not there is gone
                    gone = [run_id for run_id in shown if run_id not in {card.run_id for card in cards}]
                    gone = [run_id for run_id in gone if shown[run_id].parent is None]
                    for run_id in gone:
                        del shown[run_id]
                    if gone:
                        yield format_event("cards", {"runs": [], "removed": gone})
            else:
                cards = await reader.list.changed_since(who, seen, shown)

    return EventStream(parts)
