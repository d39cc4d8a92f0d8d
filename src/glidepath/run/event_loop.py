"""The event loop of a run. It must be asyncio's, and one thread has one at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from glidepath.values import ConfigurationError


def find_event_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs here; raises `ConfigurationError` where none does, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise make_no_loop_error() from None


def make_no_loop_error() -> ConfigurationError:
    """What to tell a caller under which no event loop of asyncio's runs."""
    return ConfigurationError(
        "a run needs asyncio's event loop, and none runs here: use asyncio.run(...), or run_sync(...) in a thread. "
        "Under trio: await trio.to_thread.run_sync(agent.run_sync, 'your prompt')"
    )


def check_thread_is_free() -> None:
    """Raise `ConfigurationError` in a new thread that has a running loop: one that gevent has patched."""
    running = None
    with suppress(RuntimeError):
        running = asyncio.get_running_loop()
    if running is not None:
        raise ConfigurationError(
            "an event loop already runs in this thread, and it can run only one: gevent's patched threads share a real "
            "one. Start the run in a real thread: gevent.get_hub().threadpool.apply(agent.run_sync, ('prompt',))"
        )
