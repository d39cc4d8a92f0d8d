"""Answers calls from a recording; any other request ends the replay, or is passed to a model where it may be."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from glidepath._wire import Value
from glidepath.apps.gate.attribution import headers_of
from glidepath.apps.gate.dialects import DIALECTS
from glidepath.apps.gate.known_agents import recognize
from glidepath.apps.gate.recordings.differences import Difference
from glidepath.apps.gate.recordings.matching import GENERATE, RecordedScript
from glidepath.apps.gate.recordings.order import PATIENCE, RecordedOrder
from glidepath.apps.gate.recordings.taped_values import LEFT, TapedCall
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.apps.gate.bodies import Receive
    from glidepath.apps.gate.exchanges import Send
    from glidepath.apps.gate.governing import GateRequest
    from glidepath.apps.gate.recordings.taps import Fly

LEAVING = 15.0
"""Seconds in which a client should leave a reply that it left in the recording."""


class Played(Value, frozen=True, kw_only=True):
    """The result of a replay."""

    replayed: int
    total: int
    live: int = 0
    difference: Difference | None = None
    left: tuple[int, ...] = ()
    """The recorded calls that were not made again."""

    @property
    def is_same(self) -> bool:
        """True when all that was recorded happened again, and nothing else."""
        return self.difference is None and not self.left


class Player:
    """A `Tap` that answers from a script. With `timing` replies take the time they took when they were recorded."""

    def __init__(self, script: RecordedScript, *, timing: bool = False, patience: float = PATIENCE) -> None:
        self.script = script
        self.difference: Difference | None = None
        """The first one: nothing is answered any more."""
        self.live = 0
        self._timing = timing
        self._order = RecordedOrder(script.calls, patience)

    async def pass_call(self, request: GateRequest, receive: Receive, send: Send, fly: Fly) -> None:
        """Answer from the recording, or let the call pass where the recording is over and a model may continue."""
        if self.difference is None:
            try:
                found = self.script.match(request)
            except StoreError as error:
                found = Difference(sentence=str(error))
            if found is None:
                self.live += 1
                await fly(request, send)
                return
            if isinstance(found, TapedCall):
                await self._serve(found, receive, send)
                return
            if request.operation != GENERATE:  # a list of models or a count: no run is another one without it
                await self._answer(request, send, 404, "not_found_error", "this was not recorded")
                return
            self.difference = found
        await self._refuse(request, send)

    async def close(self) -> None:
        """Nothing is open."""

    def report(self) -> Played:
        """The result so far."""
        script = self.script
        return Played(
            replayed=len(script.made),
            total=len(script.calls),
            live=self.live,
            difference=self.difference,
            left=tuple(call.number for call in script.list_left()),
        )

    async def _serve(self, call: TapedCall, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        self._order.pass_by(call.began)
        leaving = asyncio.ensure_future(_wait_until_left(receive))
        playing = asyncio.ensure_future(self._play(call, send, began))
        try:
            await asyncio.wait({leaving, playing}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                playing.result()
                if call.end == LEFT:  # the client had enough of it: it is let leave in the same place
                    await asyncio.wait({leaving}, timeout=LEAVING)
            else:
                self.script.release(call)
        finally:
            playing.cancel()
            leaving.cancel()
            self._order.pass_by(call.ended)

    async def _play(self, call: TapedCall, send: Send, began: float) -> None:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in call.reply_headers]
        is_stream = any(name == b"content-type" and b"event-stream" in value for name, value in headers)
        reply = self.script.tape.read_reply(call)
        pieces = self.script.substitution.rewrite(reply, [size for _, size in call.chunks], is_stream=is_stream)
        if not is_stream:
            headers.append((b"content-length", str(sum(map(len, pieces))).encode()))
        if call.end != LEFT:
            await self._order.wait_for(call)
        await send({"type": "http.response.start", "status": call.status, "headers": headers})
        for number, piece in enumerate(pieces):
            if self._timing:
                at = call.chunks[min(number, len(call.chunks) - 1)][0] / 1000
                await asyncio.sleep(max(0.0, began + at - time.monotonic()))
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        if call.end != LEFT:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refuse(self, request: GateRequest, send: Send) -> None:
        sentence = "" if self.difference is None else self.difference.sentence
        status = recognize(headers_of(request.headers)).refusal
        await self._answer(request, send, status, "replay_differs", f"this replay is over: {sentence}")

    async def _answer(self, request: GateRequest, send: Send, status: int, kind: str, message: str) -> None:
        answer = DIALECTS[request.dialect].write_error(status, kind, message)
        headers = [
            (b"content-type", answer.content_type.encode()),
            (b"content-length", str(len(answer.body)).encode()),
            *[(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers],
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})


async def _wait_until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
