"""A run whose events are consumed: the same coroutine that `run()` awaits, in its own task.

Events never travel one by one between tasks. The run puts them into its outbox, and whenever it waits, its consumer
is woken once for all that happened since. The run has its own task so that the time limits of its tools and models
can never go off in whatever its consumer awaits.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, get_running_loop
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextvars import copy_context
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Self

from glidepath.run.event_loop import find_event_loop
from glidepath.run.interrupts import Interrupt, Signal
from glidepath.values import (
    AgentState,
    ConfigurationError,
    Event,
    OutputT,
    RunResult,
    StreamChunk,
    StreamStarted,
    pluralize,
)

if TYPE_CHECKING:
    from glidepath.run.state import Run
    from glidepath.tools import Output

_NOTHING: Iterator[Event] = iter(())
_UNSEEN: Any = object()
_GROWTH = 64
_HOW = (
    "agent.stream() is asynchronous: use `async with agent.stream(...) as stream: async for event in stream`, "
    "or, in code without an event loop, `with agent.stream_sync(...) as stream: for event in stream`"
)
HIGH_WATER = 1024  # events made and not yet consumed at which a run waits for its consumer; unmade ones come on top


class SpokenText:
    """The text of a run's replies, taken from its events. Every reply but the first begins after an empty line."""

    __slots__ = ("_again", "_said")

    def __init__(self) -> None:
        self._said = self._again = False

    def of(self, events: Iterable[Event]) -> str:
        """The text that these events add."""
        parts: list[str] = []
        for event in events:
            if isinstance(event, StreamChunk):
                if event.text and not event.thinking:
                    parts += ("\n\n", event.text) if self._again else (event.text,)
                    self._said, self._again = True, False
            elif isinstance(event, StreamStarted):
                self._again = self._said
        return "".join(parts)


class PartialOutput:
    """The values that an answer has been so far, taken from the events of a run: each one that differs from the last.

    The text is read again whenever it has grown by a part of its length, so that a long answer is not read for each of
    its pieces.
    """

    __slots__ = ("_last", "_output", "_read", "_text")

    def __init__(self, output: Output | None) -> None:
        if output is None:
            raise ConfigurationError("partial() needs an output_type: for an agent without one, use stream.text()")
        self._output, self._text, self._read, self._last = output, "", 0, _UNSEEN

    def of(self, events: Iterable[Event]) -> list[Any]:
        """The values that these events make of the answer, where they are others."""
        made: list[Any] = []
        for event in events:
            if isinstance(event, StreamStarted):
                made += self._look(0)
                self._text, self._read = "", 0
            elif isinstance(event, StreamChunk) and not event.thinking:
                self._text += event.text
        return made + self._look(max(0, self._read // _GROWTH - 1))

    def _look(self, at_least: int) -> list[Any]:
        """Read the text again if more than `at_least` characters are new."""
        if len(self._text) <= self._read + at_least:
            return []
        self._read = len(self._text)
        found, value = self._output.read_partial(self._text)
        return self._note(value) if found else []

    def end(self, result: RunResult) -> list[Any]:
        """The value that was delivered, as the validators left it, if it is another one."""
        return self._note(result.output) if result.ok and result.output is not None else []

    def _note(self, value: object) -> list[Any]:
        if type(value) is type(self._last) and value == self._last:
            return []
        self._last = value
        return [value]


class RunStream(Generic[OutputT]):
    """The events of one run, and its result.

    Use it as `async with agent.stream(...) as stream: async for event in stream: ...`. Leaving the block before the
    run has ended cancels the run and lands it; `result` is set after the block in any case. The run takes off when
    the first event is asked for.
    """

    __slots__ = ("_batch", "_bell", "_entered", "_fly", "_output", "_room", "_task", "_told", "outbox", "run", "unmade")

    def __init__(
        self, fly: Callable[[RunStream], Coroutine[Any, Any, RunResult]], output: Output | None = None
    ) -> None:
        self._output = output
        self.outbox: list[Event] = []
        self.unmade: Iterable[Event] = ()
        self.run: Run | None = None
        self._fly: Callable[[RunStream], Coroutine[Any, Any, RunResult]] | None = fly
        self._entered = False
        self._task: asyncio.Task[RunResult] | None = None
        self._bell: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._batch: Iterator[Event] = _NOTHING
        self._told = False  # the consumer knows how the task ended

    @property
    def result(self) -> RunResult[OutputT]:
        """How the run ended; raises RuntimeError while it is running."""
        task = self._task
        ended = task is not None and task.done()
        result = self.run.result if self.run is not None and ended else None
        if self.run is None and task is not None and ended and not task.cancelled() and task.exception() is None:
            result = task.result()  # there was nothing to run: it was done before
        if result is None:
            raise RuntimeError("the run has not ended yet: consume the stream, or leave its `async with` block, first")
        return result

    @property
    def state(self) -> AgentState:
        """The state of the run right now: IDLE before it takes off, then as in `RunResult.state` once it ended."""
        if self.run is None:
            ended = self._task is not None and self._task.done()
            return self.result.state if ended else AgentState.IDLE
        return self.run.state

    def __repr__(self) -> str:
        return f"<RunStream {self._describe()}>"

    def _repr_html_(self) -> str:
        """State and spend at a glance, in a notebook; the result once there is one."""
        run = self.run
        return f"<b>{self._describe()}</b>" if run is None or run.result is None else run.result._repr_html_()

    def _describe(self) -> str:
        run = self.run
        if run is None:
            return self.state.name
        ended = "" if run.result is None else f"/{run.result.outcome.name}"
        used = f"{pluralize(run.turn.iterations, 'turn')}, {pluralize(run.meter.tokens, 'token')}"
        return f"{run.run_id}: {run.state.name}{ended}, {used}"

    def __dir__(self) -> list[str]:
        from glidepath.values import list_for_people

        return list_for_people(self, ("batches", "partial", "result", "state", "text"))

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a stream can be entered only once; call agent.stream() again")
        self._entered = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task = self._task
        if task is None:
            return
        if not task.done():
            why = "the task was cancelled" if kind is asyncio.CancelledError else "the stream was closed"
            await self._stop(task, Interrupt(Signal.CANCEL, "cancel", why))
        elif kind is None and not self._told:
            self._raise_failure(task)

    async def _stop(self, task: asyncio.Task[RunResult], interrupt: Interrupt) -> None:
        """Land the run and wait for it, whatever else happens to the caller's task meanwhile."""
        if self.run is not None:
            self.run.watch.raise_interrupt(interrupt)
        else:
            task.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            self._make_room()
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as again:
                cancelled = again
        if cancelled is not None:
            raise cancelled

    # --- consuming --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Event]:
        """Always raises TypeError, with how to iterate correctly."""
        raise TypeError(_HOW)

    if not TYPE_CHECKING:  # a type checker knows better

        def __enter__(self) -> None:
            raise TypeError(_HOW)

        def __exit__(self, *_: object) -> None: ...

        def __await__(self) -> Iterator[None]:
            raise TypeError(_HOW)

    def __aiter__(self) -> AsyncIterator[Event]:
        self._take_off()
        return self._events()

    async def __anext__(self) -> Event:
        """The next event; cancelling the wait for it does not disturb the run."""
        task = self._take_off()
        while True:
            event = next(self._batch, None)
            if event is not None:
                return event
            events = self._take_events()
            self._batch = iter(events)
            if not events:
                if task.done():
                    self._raise_failure(task)
                    raise StopAsyncIteration
                await self._ring_for_me()

    async def batches(self) -> AsyncIterator[list[Event]]:
        """The events as lists: all that came together, never empty, in order; cheaper than one by one.

        Use it as `async for events in stream.batches()`. The last list ends with the last event.
        """
        task = self._take_off()
        while True:
            events = [*self._batch] or self._take_events()
            if events:
                yield events
            elif task.done():
                self._raise_failure(task)
                return
            else:
                await self._ring_for_me()

    async def text(self) -> AsyncIterator[str]:
        """The text of the model's replies as it is written, without its thinking: `async for piece in stream.text()`.

        Every reply but the first begins after an empty line, also one that is asked for again because the first
        attempt failed: `AttemptDiscarded` among the events tells which. `result.text` is the answer alone.
        """
        spoken = SpokenText()
        async for events in self.batches():
            piece = spoken.of(events)
            if piece:
                yield piece

    async def partial(self) -> AsyncIterator[OutputT]:
        """The answer as far as it is written: values of the `output_type`, each fuller than the one before.

        A value comes as soon as what is written has all that its type requires; the last one is the `output` of the
        result, if there is one. Validators see only that.
        """
        seen = PartialOutput(self._output)
        async for events in self.batches():
            for value in seen.of(events):
                yield value
        for value in seen.end(self.result):
            yield value

    def _take_off(self) -> asyncio.Task[RunResult]:
        if not self._entered:
            raise RuntimeError("enter the stream first: async with agent.stream(...) as stream")
        if self._fly is not None:
            loop, context = find_event_loop(), copy_context()
            fly, self._fly = self._fly, None
            self._task = loop.create_task(fly(self), name="glidepath-run", context=context)
            self._task.add_done_callback(self.wake_consumer, context=context)
        return self._task  # type: ignore[return-value] # there is one since the first time

    async def _events(self) -> AsyncIterator[Event]:
        task: Any = self._task
        outbox, loop = self.outbox, task.get_loop()
        while True:
            batch = self._batch
            for event in batch:
                yield event
            if batch is not self._batch:  # the consumer has read ahead, by `anext`
                continue
            if not outbox and not self.unmade:
                if task.done():
                    self._raise_failure(task)
                    return
                if self._bell is not None:
                    self._ring_for_me()  # somebody else waits, or has been cancelled
                bell: Future[None] = Future(loop=loop)
                self._bell = bell
                await bell
                if batch is not self._batch:
                    continue
            self._batch = chain(self.unmade, outbox.copy())  # as `_take_events` does it: every wait ends here
            self.unmade = ()
            outbox.clear()
            if self._room is not None:
                self._make_room()

    def _take_events(self) -> list[Event]:
        """Take what has come; the run may continue if it waited for that."""
        if not self.outbox and not self.unmade:
            return []
        events = [*self.unmade, *self.outbox]
        self.unmade = ()
        self.outbox.clear()
        if self._room is not None:
            self._make_room()
        return events

    def _ring_for_me(self) -> asyncio.Future[None]:
        bell = self._bell
        if bell is not None and not bell.done():
            raise RuntimeError(
                "another task is already waiting for the next event: a stream has one consumer at a time"
            )
        self._bell = bell = Future(loop=get_running_loop())
        return bell

    def _raise_failure(self, task: asyncio.Task[RunResult]) -> None:
        self._told = True
        if task.cancelled():
            raise asyncio.CancelledError("the run's task was cancelled")
        error = task.exception()
        if error is not None:
            raise error

    # --- the run's side ---------------------------------------------------------------------------------------

    def wake_consumer(self, _: object = None) -> None:
        """Something may have happened: wake the consumer, if it waits for that."""
        bell = self._bell
        if bell is not None:
            self._bell = None
            if not bell.done():
                bell.set_result(None)

    def wait_for_room(self) -> asyncio.Future[None]:
        """What to wait for when the consumer is far behind."""
        self._room = asyncio.get_running_loop().create_future()
        return self._room

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
