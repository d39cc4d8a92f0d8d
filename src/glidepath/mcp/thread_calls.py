"""Work that would hold the event loop, done on a daemon thread of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from glidepath.tools import ThreadWorker

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], name: str = "glidepath-mcp") -> T:
    """What `work` returns, computed beside the loop; when the await is cancelled, the thread is let go."""
    worker = ThreadWorker(work, name)
    worker.start()
    try:
        await worker.wait_finished()
    except BaseException:
        worker.release()
        raise
    return worker.outcome()  # type: ignore[no-any-return]
