"""An agent in code without an event loop: a run, or a run with its events."""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from glidepath.agent.loop_runner import run_to_end
from glidepath.run import BLOCKED, CallScope, CancelToken, PartialOutput, RunStream, SpokenText, check_thread_is_free
from glidepath.spi import INSIDE
from glidepath.values import Event, OutputT, RunInterrupted, RunResult

if TYPE_CHECKING:
    from glidepath.tools import Output

T = TypeVar("T")
_ROOM = 1024  # events not yet consumed at which the run waits for its consumer
_POLL = 0.01
_HOW = (
    "agent.stream_sync() is for code without an event loop: use `with agent.stream_sync(...) as stream: for event in "
    "stream`, or, in an async function, `async with agent.stream(...) as stream: async for event in stream`"
)


def can_be_interrupted() -> bool:
    """True when Ctrl-C would end what begins here: the main thread, no run around it, and Python's own handler."""
    main = threading.current_thread() is threading.main_thread()
    return main and INSIDE.get() is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def _run_interruptibly(work: Callable[[], Coroutine[Any, Any, T]], token: CancelToken) -> T:
    """The first Ctrl-C lands the run, and its result travels in the exception; the second ends it at once."""
    pressed: list[int] = []
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def interrupt() -> None:
        pressed.append(1)
        if len(pressed) == 1:
            token.cancel("Ctrl-C")
        elif task is not None:
            task.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows: Python does what it does
        return await work()
    try:
        result = await work()
    except asyncio.CancelledError:
        if pressed:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise RunInterrupted(result)
    return result


def run_without_loop(work: Callable[[], Coroutine[Any, Any, T]], token: CancelToken | None = None) -> T:
    """Run a coroutine to its end; inside a running loop in a thread and its own loop.

    With a `token`, Ctrl-C cancels the run, which lands, and raises `RunInterrupted` with its result. Where a thread
    blocks the loop of a run, inside one of its tools or hooks, the run is told afterwards what happened.
    """
    running = None
    with suppress(RuntimeError):  # else that error would head every traceback
        running = asyncio.get_running_loop()
    if running is None:
        if token is None or not can_be_interrupted():
            return run_to_end(work())
        return run_to_end(_run_interruptibly(work, token))
    outcome: list[Any] = []
    letters: list[Callable[[], None]] = []
    inner: CallScope | None = None
    place: CallScope | None = INSIDE.get()
    if place is not None and place.is_open and place.loop is running:
        inner = place = place.copy(mailbox=letters.append)

    def in_thread() -> None:
        INSIDE.set(place)
        BLOCKED.set((*BLOCKED.get(), running))
        try:
            check_thread_is_free()
            outcome.append(run_to_end(work()))
        except BaseException as error:
            outcome.append(error)
        finally:
            over.put(None)

    over: queue.SimpleQueue[None] = queue.SimpleQueue()
    thread = threading.Thread(target=copy_context().run, args=(in_thread,), name="glidepath-run-sync")
    pressed = _run_on_thread(thread, over, token)
    thread.join()
    if inner is not None:
        for act in letters:
            act()
        inner.close()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    if pressed:
        raise RunInterrupted(outcome[0])
    return outcome[0]  # type: ignore[no-any-return]


def _run_on_thread(thread: threading.Thread, over: queue.SimpleQueue[None], token: CancelToken | None) -> bool:
    """Execute a run in a thread. True when Ctrl-C has landed it; a second Ctrl-C does not wait for the landing.

    A `SimpleQueue` can be interrupted at any moment. A `threading.Event` may be left locked, and `Thread.join` takes
    the thread to be dead before Python 3.13.
    """
    try:
        thread.start()
        over.get()
    except KeyboardInterrupt:
        if token is None:
            raise
        token.cancel("Ctrl-C")
        over.get()
        return True
    return False


class SyncStream(Generic[OutputT]):
    """The events of one run, and its result: `with agent.stream_sync("...") as stream: for event in stream: ...`.

    The run is on a thread with its own loop. It takes off when the first event is asked for. Leaving the block
    before the run has ended cancels the run and lands it; `result` is set after the block in any case.
    """

    def __init__(
        self, begin: Callable[[], RunStream[OutputT]], token: CancelToken, output: Output | None = None
    ) -> None:
        self._output = output
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

    def partial(self) -> Iterator[OutputT]:
        """The answer as far as it is written, as `RunStream.partial` gives it."""
        seen = PartialOutput(self._output)
        for event in self:
            yield from seen.of((event,))
        yield from seen.end(self.result)

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
        self._thread = threading.Thread(target=run, args=(self._run,), name="glidepath-stream-sync", daemon=True)
        self._thread.start()

    def _join(self) -> None:
        if self._thread is None:
            return
        self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._consume())
        except BaseException as error:
            self._failure = error
        finally:  # the consumer waits for it, even when no event loop could be made
            while not self._offer_event(None):
                time.sleep(_POLL)

    async def _consume(self) -> None:
        async with self._begin() as stream:
            async for event in stream:
                while not self._offer_event(event):  # noqa: ASYNC110 - the consumer is on another thread
                    await asyncio.sleep(_POLL)
        self._result = stream.result

    def _offer_event(self, event: Event | None) -> bool:
        """Give the consumer an event, None after the last; False when there is no room for it yet."""
        if not self._left:
            try:
                self._events.put_nowait(event)
            except queue.Full:
                return False
        return True
