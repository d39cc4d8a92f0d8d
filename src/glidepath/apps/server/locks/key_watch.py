"""Ends what a key has open when the key is revoked or expires: a stream was let in once and could continue for days."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from glidepath.apps.server.locks.keys import AccessKey, KeyRing
from glidepath.values import StoreError

__all__ = ["KeyWatch", "OpenRequest"]

LOOK = 1.0  # seconds between two looks at the keys that have something open
PATIENCE = 5.0  # seconds in which keys may be unreadable before what they have open ends
GRACE = 0.5  # seconds for a request to end by itself, as if its client had gone

_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class OpenRequest:
    """One request of a key that is being answered."""

    def __init__(self, key: AccessKey) -> None:
        self.key = key
        self.why: str | None = None
        """Why it was ended, if it was."""
        self.ending: Callable[[], None] | None = None
        """Called at that moment."""
        self._void = asyncio.Event()
        self._task = asyncio.current_task()

    def end(self, why: str) -> None:
        """Tell its handler that the client has gone; one that does not listen is cancelled."""
        if self.why is None:
            self.why = why
            if self.ending is not None:
                self.ending()
            self._void.set()
            if self._task is not None:
                asyncio.get_running_loop().call_later(GRACE, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """It was answered."""
        self._task = None

    def receive_until_void(self, receive: _Receive) -> _Receive:
        """The same messages from the client, until the key is void: then the client has gone."""

        async def next_message() -> MutableMapping[str, Any]:
            waiting = asyncio.ensure_future(receive())
            void = asyncio.ensure_future(self._void.wait())
            try:
                await asyncio.wait({waiting, void}, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    return waiting.result()
                return {"type": "http.disconnect"}
            finally:
                for task in (waiting, void):
                    task.cancel()

        return next_message


class KeyWatch:
    """Looks at the keys that have something open, once a second while there is any, and ends what is no longer good."""

    def __init__(self, keys: KeyRing, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._clock = clock
        self._open: set[OpenRequest] = set()
        self._looking: asyncio.Task[None] | None = None
        self._read = 0.0  # when keys could last be read

    @contextmanager
    def watch_request(self, key: AccessKey) -> Iterator[OpenRequest]:
        """Watch over a request while it is being answered."""
        request = OpenRequest(key)
        self._open.add(request)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._check_keys(), name="glidepath-key-watch")
        try:
            yield request
        finally:
            request.close()
            self._open.discard(request)

    async def _check_keys(self) -> None:
        self._read = time.monotonic()
        while True:
            await asyncio.sleep(LOOK)
            if not self._open:
                return
            for digest in {one.key.digest for one in self._open}:
                why = await self._find_fault(digest)
                for request in [one for one in self._open if one.key.digest == digest] if why else ():
                    request.end(why or "")

    async def _find_fault(self, digest: str) -> str | None:
        """Why a key is no longer good; None while it is."""
        try:
            key = await self._keys.find(digest)
        except StoreError as error:
            return None if time.monotonic() - self._read < PATIENCE else str(error)
        self._read = time.monotonic()
        return "this key is gone" if key is None else key.fault(self._clock())
