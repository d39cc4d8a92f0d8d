"""The events of a run for code without an event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, Self

from glidepath.events import Event
from glidepath.outcome import OutputT, RunResult
from glidepath.run import CancelToken, RunStream
from glidepath.run.stream import SpokenText

_ROOM = 1024  # events not yet consumed at which the run waits for its consumer
_POLL = 0.01
_HOW = (
    "agent.stream_sync() is for code without an event loop: use `with agent.stream_sync(...) as stream: for event in "
    "stream`, or, in an async function, `async with agent.stream(...) as stream: async for event in stream`"
)


class SyncStream(Generic[OutputT]):
    """The events of one run, and its result: `with agent.stream_sync("...") as stream: for event in stream: ...`.

    The run is on a thread with its own loop. It takes off when the first event is asked for. Leaving the block
    before the run has ended cancels the run and lands it; `result` is set after the block in any case.
    """

    def __init__(self, begin: Callable[[], RunStream[OutputT]], token: CancelToken) -> None:
        self._begin = begin
        self._token = token
        self._events: queue.Queue[Event | None] = queue.Queue(_ROOM)
        self._thread: threading.Thread | None = None
        self._result: RunResult[OutputT] | None = None
        self._failure: BaseException | None = None
        self._left = False

    @property
    def result(self) -> RunResult[OutputT]:
        """How the run ended; raises RuntimeError while it is running."""
        if self._result is None:
            raise RuntimeError("the run has not ended yet: consume the stream, or leave its `with` block, first")
        return self._result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        self._take_off()
        while True:
            event = self._events.get()
            if event is None:
                self._join()
                return
            yield event

    if not TYPE_CHECKING:  # a type checker knows better

        def __aiter__(self) -> None:
            raise TypeError(_HOW)

        async def __aenter__(self) -> None:
            raise TypeError(_HOW)

        async def __aexit__(self, *_: object) -> None: ...

    def text(self) -> Iterator[str]:
        """The text of the model's replies as it is written, as `RunStream.text` gives it."""
        spoken = SpokenText()
        for event in self:
            piece = spoken.of((event,))
            if piece:
                yield piece

    def close(self) -> None:
        """Stop the run if it is still going, and wait for its landing."""
        self._left = True
        if self._thread is not None and self._thread.is_alive():
            self._token.cancel("the stream was closed")
        self._join()

    def _take_off(self) -> None:
        if self._thread is not None:
            raise RuntimeError("a stream can be consumed only once; call agent.stream_sync() again")
        run: Any = copy_context().run
        self._thread = threading.Thread(target=run, args=(self._fly,), name="glidepath-stream-sync", daemon=True)
        self._thread.start()

    def _join(self) -> None:
        if self._thread is None:
            return
        self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _fly(self) -> None:
        try:
            asyncio.run(self._consume())
        except BaseException as error:
            self._failure = error
        finally:
            while not self._left:
                try:
                    self._events.put(None, timeout=_POLL)
                except queue.Full:
                    continue
                break

    async def _consume(self) -> None:
        async with self._begin() as stream:
            async for event in stream:
                while not self._left:
                    try:
                        self._events.put_nowait(event)
                    except queue.Full:
                        await asyncio.sleep(_POLL)
                        continue
                    break
        self._result = stream.result
