"""An agent in code without an event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

from glidepath.errors import RunInterrupted
from glidepath.run import CancelToken, Place
from glidepath.run.inside import BLOCKED
from glidepath.spi.inside_variable import INSIDE

T = TypeVar("T")


def can_be_interrupted() -> bool:
    """True when Ctrl-C would end what begins here: the main thread, no run around it, and Python's own handler."""
    main = threading.current_thread() is threading.main_thread()
    return main and INSIDE.get() is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def _interruptible(work: Callable[[], Coroutine[Any, Any, T]], token: CancelToken) -> T:
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


def in_its_own_loop(work: Callable[[], Coroutine[Any, Any, T]], token: CancelToken | None = None) -> T:
    """Run a coroutine to its end; inside a running loop in a thread and its own loop.

    With a `token`, Ctrl-C cancels the run, which lands, and raises `RunInterrupted` with its result. Where a thread
    blocks the loop of a run, inside one of its tools or hooks, the run is told afterwards what happened.
    """
    running = None
    with suppress(RuntimeError):  # else that error would head every traceback
        running = asyncio.get_running_loop()
    if running is None:
        if token is None or not can_be_interrupted():
            return asyncio.run(work())
        return asyncio.run(_interruptible(work, token))
    outcome: list[Any] = []
    letters: list[Callable[[], None]] = []
    inner: Place | None = None
    place: Place | None = INSIDE.get()
    if place is not None and place.is_open and place.loop is running:
        inner = place = place.copy(mailbox=letters.append)

    def in_thread() -> None:
        INSIDE.set(place)
        BLOCKED.set((*BLOCKED.get(), running))
        try:
            outcome.append(asyncio.run(work()))
        except BaseException as error:
            outcome.append(error)
        finally:
            over.put(None)

    over: SimpleQueue[None] = SimpleQueue()
    thread = threading.Thread(target=copy_context().run, args=(in_thread,), name="glidepath-run-sync")
    pressed = _flown(thread, over, token)
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


def _flown(thread: threading.Thread, over: SimpleQueue[None], token: CancelToken | None) -> bool:
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
