"""One agent over many items: a run for each, some at a time, on one budget; after a crash, only what is left."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence, Sized
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from glidepath._wire import replace
from glidepath.agent.limits import Budget, Limits
from glidepath.agent.per_run import as_messages
from glidepath.agent.run_lifecycle import revive_output
from glidepath.run import Reservation
from glidepath.run.fingerprint import find_differences
from glidepath.sessions import await_store, call_store, charge_reservation, read_folded_state
from glidepath.values import (
    ConfigurationError,
    ItemsError,
    LoopOutcome,
    Message,
    RunResult,
    StoreError,
    check_int,
    codec,
    describe_error,
    pico_of,
    short_repr,
)

if TYPE_CHECKING:
    from glidepath.agent.agent import Agent
    from glidepath.sessions import Folded
    from glidepath.spi import SessionStore

_AHEAD = 8  # results that are kept for their turn, for each run at a time
_EVERY = 0.1  # seconds between two progress lines
_DONE = frozenset({LoopOutcome.DONE, LoopOutcome.WRAPPED_UP})
_CHARGED: WeakKeyDictionary[Budget, set[str]] = WeakKeyDictionary()
"""The runs that each budget in memory has paid for, here or before a restart: nothing is charged twice."""


class RunMap:
    """The runs of one call of `Agent.map`."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        items: Iterable[Any] | AsyncIterable[Any],
        options: dict[str, Any],
        *,
        budget: Budget | Limits | None,
        at_once: int,
        key: str | Callable[[Any], str] | None,
        progress: bool | None,
    ) -> None:
        check_int("at_once", at_once, required=True)
        if isinstance(items, str | bytes) or not isinstance(items, Iterable | AsyncIterable):
            raise ConfigurationError(f"items must be prompts, such as a list of str, not {short_repr(items, 100)}")
        if isinstance(budget, Limits):
            budget = Budget(budget)
        if budget is not None and not isinstance(budget, Budget):
            raise ConfigurationError(f"budget must be a Budget or Limits, not {short_repr(budget, 100)}")
        if key is not None and not callable(key) and not (isinstance(key, str) and key.strip()):
            raise ConfigurationError(f"key must be a name, or a function of an item, not {short_repr(key, 100)}")
        if key is not None and agent.config.store is None:
            raise ConfigurationError("key needs a store, which remembers what was done: pass Agent(store=...)")
        self._agent, self._options, self._budget, self._at_once, self._key = agent, options, budget, at_once, key
        self._items = items
        self._redacted = getattr(agent.config.store, "redact", None) is not None
        """What was said is not what is stored: it cannot be compared."""
        self._sized = isinstance(items, Sized)
        self._seen: dict[str, int] = {}
        self._news, self._room, self._reads_no_more = asyncio.Event(), asyncio.Event(), False
        self._line = ProgressLine(items, budget) if progress or (progress is None and sys.stderr.isatty()) else None

    async def fly(self) -> AsyncIterator[RunResult]:
        """The results in the order of the items, each as soon as it is there and all before it were."""
        window: deque[asyncio.Task[RunResult]] = deque()
        reader = asyncio.create_task(self._read_items(window), name="glidepath-map-items")
        reader.add_done_callback(self._wake)
        try:
            while window or not reader.done():
                self._news.clear()
                while window and window[0].done():
                    result = window.popleft().result()
                    if self._is_used_up(result):
                        self._stop_reading(reader)
                    if self._line is not None:
                        self._line.show(result)
                    self._room.set()
                    yield result
                if window or not reader.done():
                    await self._news.wait()
            if not self._reads_no_more:
                await reader
        finally:
            self._stop_reading(reader)
            await _land_all((*window, reader))
            if self._line is not None:
                self._line.end()

    async def _read_items(self, window: deque[asyncio.Task[RunResult]]) -> None:
        """Start a run for each item, beside who waits for results: nobody waits for the next item."""
        source, number = _iterate(self._items), 0
        while True:
            while not self._has_room(window):
                self._room.clear()
                await self._room.wait()
            try:
                item = await anext(source)
            except StopAsyncIteration:
                return
            except (Exception, asyncio.CancelledError) as error:
                if self._reads_no_more:
                    raise
                raise _explain(error, number) from error
            if self._reads_no_more:  # what it was asked for did not stop it
                return
            one = asyncio.create_task(self._fly_one(number, item), name=f"glidepath-map-{number}")
            one.add_done_callback(self._wake)
            window.append(one)
            number += 1

    def _stop_reading(self, reader: asyncio.Task[None]) -> None:
        self._reads_no_more = reader.cancel() or self._reads_no_more

    def _wake(self, _: object) -> None:
        self._news.set()
        self._room.set()

    def _has_room(self, window: deque[asyncio.Task[RunResult]]) -> bool:
        flying = sum(not one.done() for one in window)
        return flying < self._at_once and len(window) < self._at_once * _AHEAD

    def _is_used_up(self, result: RunResult) -> bool:
        """Whether the budget paid for no call of this run, and nobody knows how many more would follow."""
        return not self._sized and result.outcome is LoopOutcome.CUT_OFF and not result.iterations

    async def _fly_one(self, number: int, item: object) -> RunResult:
        prompt = _check_item(number, item, partial(as_messages, config=self._agent.config))
        options = self._options if self._budget is None else {**self._options, "parent": self._budget}
        if self._key is None:
            return await self._agent.run(prompt, **options)
        session = self._name(number, item)
        folded = await _find_session(self._agent.config.store, session)
        if folded is None or folded.snapshot is None:
            result = await self._agent.run(prompt, session=session, **options)
        else:
            self._check_same(session, number, prompt, folded)
            self._charge_earlier(folded)
            if folded.result is not None and folded.result.outcome in _DONE:
                result = revive_output(self._agent._plan, folded.result)  # noqa: SLF001 - one of us
            else:
                result = await self._agent.resume(session, **options)
        if self._budget is not None:
            _CHARGED.setdefault(self._budget, set()).add(result.run_id)
        return result

    def _name(self, number: int, item: object) -> str:
        """The session of an item; two items cannot have the same."""
        name = f"{self._key}.{number}" if isinstance(self._key, str) else self._key(item)  # type: ignore[misc]
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(f"key must return a name for items[{number}], not {short_repr(name, 100)}")
        if (other := self._seen.setdefault(name, number)) != number:
            raise ConfigurationError(f"items[{number}] has the key {name!r:.80} of items[{other}]; give each its own")
        return name

    def _check_same(self, session: str, number: int, prompt: Sequence[Message], folded: Folded) -> None:
        """Refuse to pass off what was done for another item, or by another agent, as the answer to this one."""
        snapshot: Any = folded.snapshot
        before = folded.messages[snapshot.first_new : snapshot.first_new + len(prompt)]
        if not self._redacted and [codec.encode(one) for one in before] != [codec.encode(one) for one in prompt]:
            raise ConfigurationError(
                f"items[{number}] is not the item that session {session!r:.80} was made for: use another key, or "
                "remove the session"
            )
        now = self._agent.fingerprint
        then = folded.config
        if then is None:
            return
        if not isinstance(self._agent.config.system_prompt, str):  # another text in each run
            now = replace(now, system_prompt=then.system_prompt)
        if self._agent.config.tool_sources:  # known when a run starts
            now = replace(now, tools=then.tools)
        changes = list(find_differences(then, now))
        if changes:
            raise ConfigurationError(
                f"items[{number}]: session {session!r:.80} was made by another agent ({changes[0]}); use another key, "
                "or the agent as it was"
            )

    def _charge_earlier(self, folded: Folded) -> None:
        """A budget in memory pays for what was done before a restart, too; a wallet remembers it."""
        if self._budget is None or self._budget.line:
            return
        snapshot: Any = charge_reservation(folded.snapshot, folded.reserved)  # type: ignore[arg-type]
        known = _CHARGED.setdefault(self._budget, set())
        if snapshot.run_id not in known:
            known.add(snapshot.run_id)
            Reservation(self._budget.meter, 0, 0).settle(snapshot.tokens, snapshot.picodollars)


class ProgressLine:
    """What a person at a terminal sees meanwhile: one line, written over again and again."""

    def __init__(self, items: object, budget: Budget | None) -> None:
        self._total = len(items) if isinstance(items, Sized) else None
        self._limit = None if budget is None else budget.limits.max_cost
        self._done = self._good = self._money = 0
        self._shown = 0.0

    def show(self, result: RunResult) -> None:
        """Count a result, and write the line if the last one is old enough."""
        self._done += 1
        self._good += result.ok
        self._money += pico_of(result.cost)
        now = time.monotonic()
        if now - self._shown >= _EVERY or self._done == self._total:
            self._shown = now
            sys.stderr.write(f"\r{self}\x1b[K")
            sys.stderr.flush()

    def end(self) -> None:
        """Leave the last line where it is."""
        if self._done:
            sys.stderr.write(f"\r{self}\x1b[K\n")

    def __str__(self) -> str:
        of = "" if self._total is None else f" of {self._total}"
        cost = f", ${self._money / 1e12:.4f}" if self._money else ""
        limit = f" of ${self._limit}" if cost and self._limit is not None else ""
        bad = f", {self._done - self._good} without an answer" if self._done > self._good else ""
        return f"{self._done}{of} done{bad}{cost}{limit}"


async def _iterate(items: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def _find_session(store: SessionStore, name: str) -> Folded | None:
    """What the store has of an item; None for one that was never begun."""
    try:
        _, commits = await await_store(call_store(store.load, name))
    except StoreError as error:
        if error.kind != "missing":
            raise
        return None
    return await await_store(read_folded_state(store, name, 0)) if commits else None


async def _land_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Nobody waits for these any more: they land, and what they end with is dropped."""
    for one in tasks:
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _check_item(number: int, item: object, read: Callable[[Any], Any]) -> Any:
    try:
        return read(item)
    except ConfigurationError as error:
        raise ConfigurationError(f"items[{number}]: {error}") from None


def _explain(error: BaseException, number: int) -> ItemsError:
    what = describe_error(error)
    return ItemsError(f"items failed at number {number}: {what}; the results before it are all there")
