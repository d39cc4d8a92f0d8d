"""Records calls: what the client sent, and what it got, with the pieces and the time in which it got them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from glidepath.apps.gate.attribution import agent_named, headers_of, session_named
from glidepath.apps.gate.known_agents import recognize
from glidepath.apps.gate.recordings.body_deltas import LARGEST_BODY, DeltaWriter, pack
from glidepath.apps.gate.recordings.recording_terms import RecordingTerms
from glidepath.apps.gate.recordings.scrubbing import (
    ALLOWED,
    ALLOWED_REPLY,
    choose_headers,
    choose_query,
    find_secrets,
    scrub_body,
    star_secrets,
)
from glidepath.apps.gate.recordings.tape_writer import TapeWriter
from glidepath.apps.gate.recordings.taped_values import BROKEN, LEFT, WHOLE, TapedCall, TapeHead
from glidepath.sessions import GATE, each_session, is_recording, remove_sessions
from glidepath.values import ConfigurationError, describe_error, pluralize

if TYPE_CHECKING:
    from glidepath.apps.gate.bodies import Receive
    from glidepath.apps.gate.exchanges import Send
    from glidepath.apps.gate.governing import GateRequest
    from glidepath.apps.gate.recordings.taps import Fly
    from glidepath.spi import SessionStore

IDLE = 60.0
"""Seconds without a call after which a recording is closed; the next call begins another part of it."""
MOST_TAPES = 1_000
MOST_EARLY = 100
"""Calls of no agent that wait for the first call of their run."""
GENERATE = "generate"
_LOOK = 5.0
_log = logging.getLogger("glidepath.gate")


class Recorder:
    """Records every call of a gate beside the session it belongs to.

    Raises `ConfigurationError` for a store that redacts: what is not there cannot be replayed. `secrets` are what must
    be in no recording, whatever brings it: the keys of providers and of the gate.
    """

    def __init__(
        self,
        store: SessionStore | None,
        terms: RecordingTerms | None = None,
        *,
        folder: str = "",
        home: str = "",
        secrets: Callable[[], Iterable[bytes]] = tuple,
        clock: Callable[[], float] = time.monotonic,
        idle: float = IDLE,
    ) -> None:
        if store is None:
            raise ConfigurationError("a recording is kept with its session, and sessions are not kept: name a --store")
        if getattr(store, "redact", None) is not None:
            raise ConfigurationError(
                "this store redacts what it keeps, so its recordings cannot be replayed: record into a store that does "
                "not, or leave --record out"
            )
        self._store = store
        self._terms = terms or RecordingTerms()
        self._folder, self._home, self._secrets = folder, home, secrets
        self._clock, self._idle = clock, idle
        self._open: dict[str, _Recording] = {}
        self._over: list[_Recording] = []
        self._order = itertools.count(1)
        self._sessions: dict[tuple[str, str] | None, str] = {}
        self._early: list[tuple[tuple[str, str], GateRequest, _Heard]] = []
        self._looking: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None

    async def pass_call(self, request: GateRequest, receive: Receive, send: Send, fly: Fly) -> None:  # noqa: ARG002
        """Let a call pass, and keep what was said."""
        heard = _Heard(self._clock(), next(self._order))

        async def follow(message: dict[str, Any]) -> None:
            heard.take(message, self._clock())
            await send(message)

        try:
            await fly(request, follow)
        except BaseException:
            heard.end = BROKEN
            raise
        finally:
            try:
                self._keep(request, heard)
            except Exception as error:
                _log.exception("a call was not recorded: %s", describe_error(error))

    async def close(self) -> None:
        """Finish every recording."""
        for task in (self._looking, self._expiring):
            if task is not None:
                task.cancel()
        left, self._open = list(self._open.values()), {}
        self._over += left
        await asyncio.gather(*[one.writer.close() for one in left])

    def describe(self) -> str:
        """What was recorded, for the person who asked for it."""
        lines = []
        for one in (*self._over, *self._open.values()):
            writer, stopped = one.writer, one.writer.stopped
            what = f"glidepath gate: {pluralize(writer.calls, 'call')} recorded"
            if stopped:
                what += f", then no more: {stopped}"
            lines.append(f"{what}. To replay: glidepath replay {writer.session} -- COMMAND")
        return "\n".join(lines) or "glidepath gate: nothing was recorded: no call belonged to a run."

    # --- one call -------------------------------------------------------------------------------------------------

    def _keep(self, request: GateRequest, heard: _Heard) -> None:
        if not heard.status:
            return  # the client left before it had a reply
        name = _name_run(request)
        session = _find_session(request) or self._sessions.get(name)
        if session is None:
            if name is not None and len(self._early) < MOST_EARLY:
                self._early.append((name, request, heard))  # a list of models, before the first call of its run
            return  # refused before it belonged to a run
        if name is not None and name not in self._sessions:
            self._sessions[name] = session
            early, self._early = self._early, [one for one in self._early if one[0] != name]
            for of, asked, answered in early:
                if of == name and asked.operation != GENERATE:
                    self._put(session, asked, answered)
        self._put(session, request, heard)

    def _put(self, session: str, request: GateRequest, heard: _Heard) -> None:
        recording = self._open.get(session)
        if recording is None:
            if len(self._open) >= MOST_TAPES:
                _log.warning("session %s is not recorded: %d others are", session, MOST_TAPES)
                return
            recording = self._open[session] = self._begin(session, request, heard)
        recording.touched = self._clock()
        if max(heard.size, len(request.body)) > LARGEST_BODY:
            recording.writer.stop(f"a request or a reply has more than {LARGEST_BODY >> 20} MiB")
        if not recording.writer.stopped:
            recording.writer.put(self._make_call(recording, request, heard))

    def _begin(self, session: str, request: GateRequest, heard: _Heard) -> _Recording:
        if self._looking is None:
            loop = asyncio.get_running_loop()
            self._looking = loop.create_task(self._look(), name="glidepath-gate-recordings")
            self._expiring = loop.create_task(self._expire(), name="glidepath-gate-old-recordings")
        head = TapeHead(
            started=round(time.time() - (self._clock() - heard.began), 3),
            program=recognize(headers_of(request.headers)).name,
            folder=self._folder,
            home=self._home,
        )
        writer = TapeWriter(self._store, session, head, most=self._terms.largest)
        return _Recording(writer, heard.began)

    def _make_call(self, recording: _Recording, request: GateRequest, heard: _Heard) -> TapedCall:
        headers = headers_of(request.headers)
        secrets = find_secrets(request.headers, request.query) | {one for one in self._secrets() if one}
        recording.number += 1
        delta = recording.deltas.write(recording.number, scrub_body(request.body, secrets))
        return TapedCall(
            number=recording.number,
            agent=agent_named(recognize(headers), headers) or "",
            dialect=request.dialect,
            operation=request.operation,
            method=request.method,
            path=request.path,
            query=choose_query(request.query),
            headers=choose_headers(request.headers, ALLOWED),
            base=delta.base,
            prefix=delta.prefix,
            suffix=delta.suffix,
            middle=delta.middle,
            status=heard.status,
            reply_headers=choose_headers(heard.headers, ALLOWED_REPLY),
            reply=pack(star_secrets(b"".join(heard.parts), secrets)),
            chunks=tuple(heard.chunks),
            end=heard.end,
            began=heard.place,
            ended=next(self._order),
            at=round(heard.began - recording.began, 3),
        )

    # --- what is over -----------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Close the recordings in which nothing happens any more."""
        while True:
            await asyncio.sleep(min(_LOOK, self._idle))
            now = self._clock()
            for session, one in list(self._open.items()):
                if now - one.touched > self._idle:
                    del self._open[session]
                    self._sessions = {name: of for name, of in self._sessions.items() if of != session}
                    await one.writer.close()

    async def _expire(self) -> None:
        """Remove the recordings that are older than they may be; those of every gate on this store."""
        try:
            before = time.time() - self._terms.oldest
            found = [one async for one in each_session(self._store, prefix=f"{GATE}:", roots=False, before=before)]
            old = [entry.session_id for entry in found if is_recording(entry)]
            if old:
                await remove_sessions(self._store, old)
        except Exception as error:
            _log.warning("old recordings were not removed: %s", describe_error(error))


class _Recording:
    """A recording that is open."""

    def __init__(self, writer: TapeWriter, began: float) -> None:
        self.writer = writer
        self.began = began
        self.touched = began
        self.deltas = DeltaWriter()
        self.number = 0


class _Heard:
    """What the client of one call got so far."""

    def __init__(self, began: float, place: int) -> None:
        self.began = began
        self.place = place
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.chunks: list[tuple[int, int]] = []
        self.end = LEFT
        self.size = 0

    def take(self, message: dict[str, Any], now: float) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
            return
        body = message.get("body", b"")
        self.size += len(body)
        if body and self.size <= LARGEST_BODY:
            self.parts.append(body)
            self.chunks.append((round(1000 * (now - self.began)), len(body)))
        if not message.get("more_body", False):
            self.end = WHOLE


def _name_run(request: GateRequest) -> tuple[str, str] | None:
    """What names the run of a request, with the key that let it in; None when nothing does."""
    headers = headers_of(request.headers)
    named = session_named(recognize(headers), request.line, headers)
    return None if named is None else (str(getattr(request.key, "name", "")), named)


def _find_session(request: GateRequest) -> str | None:
    """The session of a call in the store; None for a call of nobody."""
    agent = request.agent
    record = None if agent is None else agent.session.record
    root = None if record is None else record.root
    return None if root is None else root.name
