"""An agent in code without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["in_its_own_loop"]

T = TypeVar("T")


def in_its_own_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end; inside a running loop in a thread and a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    import threading

    outcome: list[Any] = []

    def in_thread() -> None:
        try:
            outcome.append(asyncio.run(work()))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=in_thread, name="glidepath-run-sync")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]  # type: ignore[no-any-return]
