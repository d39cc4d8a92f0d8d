"""The end of a stream: a reply that is complete, or was cut, takes at most a second more, whatever its stream does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidepath.kernel.model_call.attempt import Attempt
    from glidepath.run import Run
    from glidepath.values import Delta

MOST_AFTER_END = 32  # deltas that are read and dropped after the terminal event, before the stream is closed
LAST_WORDS = 0.5  # seconds a stream has to end by itself and to close; it has as long again to obey a cancellation
LEAST = 0.1  # seconds to close, however long the stream took to end


async def finish(run: Run, stream: AsyncIterator[Delta], attempt: Attempt) -> None:
    """Let a stream that has sent its terminal event end by itself, for a moment; then close it.

    The reply is kept whatever goes wrong in here: only an interrupt of the run, or being let go, gets out. The event
    loop turns after every delta, so a stream that never pauses starves nobody.
    """
    watch = run.watch
    until = watch.time() + LAST_WORDS
    complete = attempt.end is not None and not attempt.cut and not attempt.capped
    if complete and await _await_in_time(run, attempt, _drain_stream(stream), LAST_WORDS):
        return
    await _await_in_time(run, attempt, _close_stream(stream), max(LEAST, until - watch.time()))


async def _await_in_time(run: Run, attempt: Attempt, work: Coroutine[Any, Any, bool], seconds: float) -> bool:
    """Await part of the ending; whether it is done. What fails, or is cancelled for lack of time, is not."""
    watch = run.watch
    if not attempt.dead:  # the run has let go of a dead one: its watch is busy with other things
        watch.set_time_limit(seconds, LAST_WORDS)
    try:
        return await work
    except asyncio.CancelledError:
        if attempt.dead or watch.interrupt is not None or not watch.scope_hit:
            raise
        return False
    except KeyboardInterrupt:
        raise
    except BaseException:  # the reply is complete: what goes wrong now cannot take it back
        if watch.gone:  # the run's own coroutine is being closed
            raise
        return False


async def _drain_stream(stream: AsyncIterator[Delta]) -> bool:
    """Read on to the end, dropping what comes; whether it came."""
    left = MOST_AFTER_END
    async for _ in stream:
        left -= 1
        if left < 0:
            return False
        await asyncio.sleep(0)
    return True


async def _close_stream(stream: AsyncIterator[Delta]) -> bool:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
    return True
