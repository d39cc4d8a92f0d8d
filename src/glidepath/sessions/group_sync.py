"""One disk sync for all waiters: a thread that syncs as long as there are requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from glidepath.errors import StoreError

Answer = Callable[[BaseException | None], None]


class GroupSync:
    """Calls `sync` on a daemon thread, once for all who asked before it began; ends with `stop`."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._asked: list[Answer] = []
        self._bell = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._work, name="glidepath-sync", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            with self._bell:
                while not self._asked and not self._over:
                    self._bell.wait()
                asked, self._asked = self._asked, []
            if not asked:
                return
            error: BaseException | None = None
            try:
                self._sync()
            except BaseException as raised:
                error = raised
            # All of them, also with an error: after a failed sync nobody knows which of the writes reached the disk.
            for answer in asked:
                answer(error)

    async def wait(self) -> None:
        """Wait until the disk has everything that was written before; raises `StoreError`."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[BaseException | None] = loop.create_future()
        busy: set[object] | None = getattr(loop, "workers", None)
        if busy is not None:  # virtual time stands still meanwhile
            busy.add(done)
            done.add_done_callback(busy.discard)

        def finish(error: BaseException | None) -> None:
            if not done.done():
                done.set_result(error)

        def answer(error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(finish, error)

        with self._bell:
            self._asked.append(answer)
            self._bell.notify()
        error = await done
        if isinstance(error, StoreError):
            raise error
        if error is not None:
            raise StoreError(f"the disk rejected the write: {error}") from error

    def stop(self) -> None:
        """Finish what is asked and end the thread."""
        with self._bell:
            self._over = True
            self._bell.notify()
        self._thread.join(5.0)
