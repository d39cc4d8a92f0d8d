"""An agent in code without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from glidepath.run import Place
from glidepath.run.inside import BLOCKED
from glidepath.spi.inside_variable import INSIDE

__all__ = ["in_its_own_loop"]

T = TypeVar("T")


def in_its_own_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end; inside a running loop in a thread and a loop of its own.

    Where that blocks the loop of a run, inside one of its tools or hooks, the run is told afterwards what happened.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    import threading

    outcome: list[Any] = []
    letters: list[Callable[[], None]] = []
    place: Place | None = INSIDE.get()
    if place is not None and place.is_open and place.loop is running:
        place = place.copy(mailbox=letters)

    def in_thread() -> None:
        INSIDE.set(place)
        BLOCKED.set((*BLOCKED.get(), running))
        try:
            outcome.append(asyncio.run(work()))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=copy_context().run, args=(in_thread,), name="glidepath-run-sync")
    thread.start()
    thread.join()
    if place is not None and place.mailbox is letters:
        for act in letters:
            act()
        place.close()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]  # type: ignore[no-any-return]
