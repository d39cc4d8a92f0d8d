"""Writes one recording: a journal beside the session's, one commit for each call, nobody ever waiting for it.

Whatever goes wrong here ends the recording and nothing else: the run is not touched, and the recording says that it is
torn by having no end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath._version import VERSION
from glidepath.apps.gate.recordings.taped_values import FOLDER, TapedCall, TapeEnd, TapeHead
from glidepath.sessions import (
    RECORDING,
    SCHEMA,
    TAPE_END,
    TAPE_HEAD,
    TAPED_CALL,
    JournalWriter,
    Opened,
    await_store,
    claim_session,
)
from glidepath.spi import Sign
from glidepath.values import GlidepathError, StoreError, describe_error

if TYPE_CHECKING:
    from glidepath.spi import SessionStore

LEAST_FREE = 64 << 20
"""Bytes that must stay free where the store is: the journal of the run needs room, and it comes first."""
MOST_WAITING = 64 << 20
"""Bytes of calls that wait to be written: a store that is slower than the agent ends the recording."""
_FAREWELL = 20.0
_log = logging.getLogger("glidepath.gate")


class RecordingStoppedError(GlidepathError):
    """Why a recording stops."""


class _RecordingJournal(JournalWriter):
    """The journal of a recording."""

    __slots__ = ()

    async def take_sign(self, sign: Sign) -> None:
        """There is no run in it to stop: only its loss counts."""
        if sign.lost:
            self.broken = StoreError("another process has taken the recording", kind="fenced")


class TapeWriter:
    """One recording of one session, from its first call to `close`."""

    def __init__(self, store: SessionStore, session: str, head: TapeHead, *, most: int) -> None:
        self.session = session
        self.name = f"{session}/{FOLDER}.{os.urandom(4).hex()}"
        self.calls = 0
        self.size = 0
        self.stopped = ""
        """Why nothing more is recorded."""
        self._store = store
        self._head = head
        self._most = most
        self._waiting: asyncio.Queue[TapedCall | None] = asyncio.Queue()
        self._held = 0
        self._journal: _RecordingJournal | None = None
        self._task = asyncio.get_running_loop().create_task(self._write_all(), name="glidepath-gate-recording")

    def put(self, call: TapedCall) -> None:
        """Write this call when there is time."""
        if self.stopped:
            return
        size = len(call.middle) + len(call.reply)
        if self.size + size > self._most:
            self.stop(f"it has reached its largest size, {self._most:,} bytes")
            return
        if self._held + size > MOST_WAITING:
            self.stop("the store is slower than the agent")
            return
        self.size += size
        self._held += size
        self._waiting.put_nowait(call)

    def stop(self, reason: str) -> None:
        """Record nothing more, for this reason; the calls so far are still written."""
        if not self.stopped:
            self.stopped = reason
            self._waiting.put_nowait(None)

    async def close(self) -> None:
        """Write the rest and the end, and give the journal back. Never fails."""
        if not self._task.done():
            self._waiting.put_nowait(None)
        done, _ = await asyncio.wait([self._task], timeout=_FAREWELL)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1)

    async def _write_all(self) -> None:
        try:
            self._journal = journal = await self._open()
            while (call := await self._waiting.get()) is not None:
                self._check_room()
                await self._add(journal, [(TAPED_CALL, call)])
                self.calls += 1
                self._held -= len(call.middle) + len(call.reply)
            await self._add(journal, [(TAPE_END, TapeEnd(calls=self.calls, reason=self.stopped))])
        except Exception as error:
            self.stopped = self.stopped or describe_error(error)
            _log.warning("the recording of session %s stops: %s", self.session, describe_error(error))
        finally:
            if self._journal is not None:
                await self._journal.release()

    async def _open(self) -> _RecordingJournal:
        self._check_room()
        lease = await claim_session(self._store, self.name)
        journal = _RecordingJournal(self._store, lease)
        parent = {"session_id": self.session, "run_id": "", "call": ""}
        opened = Opened(schema=SCHEMA, session_id=self.name, version=VERSION, parent=parent)
        await self._add(journal, [("opened", opened), (TAPE_HEAD, self._head)])
        journal.keep_alive()
        return journal

    async def _add(self, journal: _RecordingJournal, items: list[tuple[str, Any]]) -> None:
        if journal.broken is not None:
            raise journal.broken
        later = journal.add(items, round(time.time(), 3), self._summarize())
        if later is not None:
            await await_store(later)

    def _summarize(self) -> dict[str, Any]:
        return {
            "kind": RECORDING,
            "agent": RECORDING,
            "parent": {"session_id": self.session},
            "state": "completed",
            "outcome": "done",
            "task": "what was said, to be replayed",
            "iterations": self.calls,
            "bytes": self.size,
        }

    def _check_room(self) -> None:
        path = getattr(self._store, "path", None)
        if path is None:
            return
        try:
            free = shutil.disk_usage(Path(path).parent).free
        except OSError:
            return
        if free < LEAST_FREE:
            raise RecordingStoppedError(f"only {free:,} bytes are free where the store is")
