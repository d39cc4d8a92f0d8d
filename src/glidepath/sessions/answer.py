"""Waits for a store's answer, within a time limit: a silent store must not block its run forever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar

from glidepath.errors import ConfigurationError, StoreError, told
from glidepath.run import closable
from glidepath.run.watch import ring

T = TypeVar("T")
SILENCE = 30.0  # seconds a store may take for one answer: longer than a PostgresStore waits for a statement
FAREWELL = 10.0  # seconds to give a lease back: by then it has run out
LAST_WORDS = 1.5  # seconds it has to stop once nobody waits for it any more; after that it is closed


def as_store_error(error: BaseException) -> StoreError:
    """A store's exception as a `StoreError`."""
    if isinstance(error, StoreError):
        return error
    broken = StoreError(f"the session store failed: {told(error)}")
    broken.__cause__ = error
    return broken


async def heard(
    later: Awaitable[T], seconds: float = SILENCE, *, undo: Callable[[T], Awaitable[Any]] | None = None
) -> T:
    """A store's answer; raises `StoreError` for whatever it raises, and if it is silent for this long.

    Work that is still running then is cancelled, and closed if it does not stop. `undo` undoes what was done anyway,
    once nobody waits for the answer any more.
    """
    loop = asyncio.get_running_loop()
    over, bell = False, loop.create_future()
    work = loop.create_task(_contained(later, lambda: over), name="glidepath-store")
    work.add_done_callback(partial(ring, bell))
    timer = loop.call_later(seconds, ring, bell)
    try:
        await bell  # like `asyncio.wait` with half the objects: a thousand runs may begin at once
        if not work.done():
            raise StoreError(f"the session store has not answered within {seconds:g} s")
    except BaseException:  # it is silent, or the waiting task was cancelled
        over = True
        work.cancel()
        await asyncio.wait([work], timeout=LAST_WORDS)
        await _take_back(work, later, undo)
        raise
    finally:
        timer.cancel()
    answer, error = work.result()
    if error is None:
        return answer  # type: ignore[no-any-return]
    if isinstance(error, ConfigurationError):
        raise error
    raise as_store_error(error)


async def called(method: Callable[..., Awaitable[T]], *arguments: object, **options: object) -> T:
    """Call a store's method inside the await, so that what it raises at once is caught, too."""
    return await method(*arguments, **options)


async def _take_back(
    work: asyncio.Task[Any], later: Awaitable[object], undo: Callable[..., Awaitable[object]] | None
) -> None:
    if work.cancelled():  # before it began
        close = getattr(later, "close", None)
        if close is not None:
            close()
    elif undo is not None and work.done() and work.result()[1] is None:
        with suppress(Exception):  # whatever it raises is a StoreError by then
            await heard(called(undo, work.result()[0]), FAREWELL)


async def _contained(later: Awaitable[T], over: Callable[[], bool]) -> tuple[Any, BaseException | None]:
    """The answer, or what was raised, even SystemExit and KeyboardInterrupt."""
    try:
        return await closable(later if type(later) is CoroutineType else _awaited(later), over), None
    except BaseException as error:
        return None, error


async def _awaited(later: Awaitable[T]) -> Any:
    return await later
