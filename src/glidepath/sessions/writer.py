"""One thread that writes, in order, for the durabilities that must not stop the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from glidepath.errors import StoreError

Job = tuple[str, Callable[[], None], Callable[[BaseException | None], None] | None]


class Writer:
    """Runs jobs one after the other on a daemon thread that ends with `stop`.

    After a job of a session has failed, every later job of it fails with the same error: a chain has no holes.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._failed: dict[str, BaseException] = {}
        self._thread = threading.Thread(target=self._work, name="glidepath-store", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            session_id, call, tell = job
            error = self._failed.get(session_id)
            if error is None:
                try:
                    call()
                except BaseException as raised:
                    error = self._failed[session_id] = raised
            if tell is not None:
                tell(error)

    def put(self, session_id: str, call: Callable[[], None]) -> None:
        """Queue a job; raises what an earlier job of this session raised."""
        error = self._failed.get(session_id)
        if error is not None:
            raise StoreError(f"an earlier write failed: {error}", kind=getattr(error, "kind", "unavailable"))
        self._jobs.put((session_id, call, None))

    async def do(self, session_id: str, call: Callable[[], None]) -> None:
        """Run a job after all earlier ones, and wait; raises what it raised."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[BaseException | None] = loop.create_future()
        busy: set[object] | None = getattr(loop, "workers", None)
        if busy is not None:  # virtual time stands still meanwhile
            busy.add(done)
            done.add_done_callback(busy.discard)

        def finish(error: BaseException | None) -> None:
            if not done.done():
                done.set_result(error)

        def tell(error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(finish, error)

        self._jobs.put((session_id, call, tell))
        error = await done
        if error is not None:
            raise error

    def forget(self, session_id: str) -> None:
        """The session is given back: its failures no longer matter."""
        self._failed.pop(session_id, None)

    def stop(self) -> None:
        """Finish what is queued and end the thread."""
        self._jobs.put(None)
        self._thread.join(5.0)
