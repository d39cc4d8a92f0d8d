"""One request on its way: admitted by the governor, sent on, fed back chunk by chunk, settled, whatever happens.

The task of a request is interrupted from outside by `Exchange.interrupt`: when the client has gone, when its call is
cut, when the upstream is silent for too long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from glidepath._wire import encode
from glidepath.apps.gate.bodies import PATIENCE
from glidepath.apps.gate.governing import GateAnswer, GatePassage, GateRequest, Governor, Headers
from glidepath.apps.gate.late_answers import frame_late
from glidepath.apps.gate.late_landings import LateLanding
from glidepath.apps.gate.passage import GovernedPassage
from glidepath.apps.gate.upstream_client import UpstreamClient, UpstreamError, UpstreamReply
from glidepath.values import TransientError

Send = Callable[[dict[str, Any]], Awaitable[None]]
_log = logging.getLogger("glidepath.gate")

LARGEST_ERROR = 4 << 20  # bytes of an upstream's error that are passed on
LARGEST_REPLY = 256 << 20  # bytes that are kept for a client that does not stream
_EVENTS = b"text/event-stream"
_PAGE = "text/html"
_LENGTH = (b"content-length", b"content-encoding")

SILENT = "silent"
"""Why a call is interrupted for whose reply nobody waits any longer."""
DRAINED = "this gate is shutting down: ask again, here or at the gate that takes its place"
"""Why a call is interrupted when its gate has no more time for it."""
BEGIN, HEAD, READ, SEND, SETTLE = "begin", "head", "read", "send", "settle"


class Desk:
    """What all exchanges of a gate share."""

    def __init__(self, governor: Governor, client: UpstreamClient, patience: float = PATIENCE) -> None:
        self.governor = governor
        self.client = client
        self.patience = patience
        self.settling: set[asyncio.Task[None]] = set()

    def refuse(self, request: GateRequest, status: int, kind: str, message: str) -> GateAnswer:
        """An error in the client's dialect; a plain one where the governor cannot even say that."""
        try:
            return self.governor.refuse(request, status, kind, message)
        except Exception:
            _log.exception("an error could not be written in the dialect %s", request.dialect)
            return GateAnswer(status=status, body=encode({"error": {"type": kind, "message": message}}))

    async def settle(self, passage: GatePassage) -> None:
        """Close a passage; a server that is told to hurry does not stop it half-way."""
        task = asyncio.ensure_future(_closing(passage))
        self.settling.add(task)
        task.add_done_callback(self.settling.discard)
        await asyncio.shield(task)


async def _closing(passage: GatePassage) -> None:
    try:
        await passage.close()
    except Exception:
        _log.exception("a call could not be settled")


class Exchange:
    """One request and its reply."""

    def __init__(self, desk: Desk, request: GateRequest, wire_body: bytes, send: Send) -> None:
        self._desk = desk
        self._request = request
        self._wire_body = wire_body
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._why: str | None = None
        self._cut_reason: str | None = None
        self._is_started = False
        self._late_kind = b""  # the content type that went out before there was an answer
        self._is_whole = False
        self._keeper: asyncio.Task[None] | None = None
        self._reply: UpstreamReply | None = None
        self._has_head = False
        self.passage: GatePassage | None = None
        self.phase = BEGIN
        self.since = self._loop.time()

    def interrupt(self, why: str) -> None:
        """End it now, because the client has `gone`, its call is `cut`, or for the reason in a sentence."""
        if self._why is None and self.phase != SETTLE and self._task is not None:
            self._why = why
            if self.phase == HEAD and self.passage is not None:
                self.passage.is_abandoned = True  # it is on its way: the provider may work on it, and bill it
            self._task.cancel()

    def cut(self, reason: str) -> None:
        """End it now for this reason, as a call that is stopped."""
        self._cut_reason = reason
        self.interrupt("cut")

    async def fly(self) -> None:
        """Serve the request to its end. It raises nothing that a client or an upstream could cause."""
        timer = self._loop.call_later(self._desk.patience, self._start_waiting)
        try:
            await self._serve()
        except asyncio.CancelledError:
            if self._why is None or self._task is None:
                raise  # the server itself ends
            self._task.uncancel()
            await self._end_interrupted(self._why)
        except UpstreamError as error:
            await self._end_failed(error.status, error.kind, str(error))
        except TransientError as error:  # a reply that no reader can follow
            await self._end_failed(502, "upstream_error", str(error))
        except Exception:
            _log.exception("a call broke down in the gate itself")
            # 400: the only status that no agent tries again.
            await self._end_failed(400, "gate_error", "the gate has broken down in this call; its log says why")
        finally:
            timer.cancel()
            self._stop_waiting()
            if self._reply is not None:
                self._reply.close()
            await self._settle()

    async def _serve(self) -> None:
        outcome = await self._desk.governor.begin(self._request)
        if isinstance(outcome, GateAnswer):
            await self._answer(outcome)
            return
        self.passage = outcome
        if self._why is not None:  # interrupted while it began, by a governor that took no notice
            raise asyncio.CancelledError
        passage: GatePassage | None = outcome
        while passage is not None:
            try:
                await self._forward(passage)
                return
            except asyncio.CancelledError:
                if self._why != SILENT or self._task is None:
                    raise
                self._why = None
                self._task.uncancel()
            passage = await self._land_instead(passage)

    async def _land_instead(self, silent: GatePassage) -> GatePassage | None:
        """Give a silent reply up and govern the request again: it is time for the last call, and the gate asks for it.

        Many clients would not ask again, and none could be sure to do so in time.
        """
        if self._reply is not None:
            self._reply.close()
        has_begun = self._is_started and self._has_head  # the client is in the middle of that reply: it ends it
        self._has_head = has_begun
        self.passage = silent if has_begun else None
        self.phase = BEGIN
        await self._desk.settle(silent)
        if isinstance(silent, GovernedPassage) and silent.needs_no_landing:
            await self._end_whole(silent, silent.end_early())
            return None
        outcome = await self._desk.governor.begin(self._request)
        if isinstance(outcome, GovernedPassage) and isinstance(silent, GovernedPassage) and has_begun:
            outcome = LateLanding(silent, outcome)
        if isinstance(outcome, GateAnswer):
            await (self._end_with(silent.cut_now("")) if has_begun else self._answer(outcome))
            return None
        self.passage = outcome
        return outcome

    async def _forward(self, passage: GatePassage) -> None:
        request = self._request
        self.phase, self.since = HEAD, self._loop.time()
        as_it_came = passage.body is request.body
        body = self._wire_body if as_it_came else passage.body
        headers = request.headers if as_it_came else _without(request.headers, b"content-encoding")
        reply = self._reply = await self._desk.client.send(
            request.method, passage.upstream, passage.path, passage.query, headers, body
        )
        headers = reply.headers
        passage.open(reply.status, headers)
        kind = (reply.header("content-type") or "").lower()
        if reply.status < 300 and kind.startswith(_PAGE):  # noqa: PLR2004
            # Before a byte has left: agents try again after an error, and often not after a stream that ends in one.
            raise UpstreamError(f"upstream {passage.upstream.name} answered with a web page ({_PAGE}) and not a reply")
        self._has_head = True
        if reply.status >= 300:  # noqa: PLR2004
            await self._pass_error(passage, reply, headers)
            return
        coding = (reply.header("content-encoding") or "identity").lower()
        if coding != "identity":
            raise UpstreamError(
                f"upstream {passage.upstream.name} compressed its reply ({coding[:30]}) although it was asked not to: "
                "it cannot be metered"
            )
        if passage.is_streamed:
            await self._stream(passage, reply, headers)
        else:
            await self._assemble(passage, reply, headers)

    async def _stream(self, passage: GatePassage, reply: UpstreamReply, headers: Headers) -> None:
        kept = _without(headers, *_LENGTH)
        if passage.content_type is not None:
            kept = [*_without(kept, b"content-type"), (b"content-type", passage.content_type)]
        await self._start(reply.status, [*kept, *passage.headers])
        read, feed, send, now = reply.read, passage.feed, self._send, self._loop.time
        while not passage.is_cut:
            self.phase, self.since = READ, now()
            chunk = await read()
            if not chunk:
                break
            out = feed(chunk)
            if out:
                self.phase = SEND
                await send({"type": "http.response.body", "body": out, "more_body": True})
            if passage.is_short:
                self.phase = BEGIN  # it waits for budget: neither side is slow
                await passage.make_room()
        await self._end_with(passage.finish())

    async def _assemble(self, passage: GatePassage, reply: UpstreamReply, headers: Headers) -> None:
        parts, size, now = [], 0, self._loop.time
        while not passage.is_cut:
            self.phase, self.since = READ, now()
            chunk = await reply.read()
            if not chunk:
                break
            parts.append(passage.feed(chunk))
            size += len(chunk)
            if size > LARGEST_REPLY:
                raise UpstreamError(
                    f"upstream {passage.upstream.name} sent more than {LARGEST_REPLY} bytes in one reply"
                )
            if passage.is_short:
                self.phase = BEGIN
                await passage.make_room()
        parts.append(passage.finish())
        body = b"".join(parts)
        kind = reply.header("content-type") or ""
        kind = "application/json" if kind.startswith("text/event-stream") else kind
        kept = _without(headers, *_LENGTH, b"content-type")
        await self._settle()
        await self._send_whole(reply.status, [*kept, (b"content-type", kind.encode()), *passage.headers], body)

    async def _pass_error(self, passage: GatePassage, reply: UpstreamReply, headers: Headers) -> None:
        """Pass the upstream's own error on unchanged: what its status and Retry-After mean is the client's business."""
        self.phase, self.since = READ, self._loop.time()
        body = reply.hide_key(await reply.read_whole(LARGEST_ERROR))
        await self._settle()
        kept = [*_without(headers, b"content-length"), *passage.headers]
        await self._send_whole(reply.status, kept, self._frame(body))

    async def _answer(self, answer: GateAnswer) -> None:
        kind = answer.content_type.encode()
        body = answer.body if kind.startswith(_EVENTS) else self._frame(answer.body)
        await self._send_whole(answer.status, [(b"content-type", kind), *answer.headers], body)

    async def _end_interrupted(self, why: str) -> None:
        passage = self.passage
        if why == "gone":
            return  # nobody listens: only settle
        if why == "cut" and passage is not None and self._has_head:
            reason = self._cut_reason or passage.stop_reason or "stopped"
            await self._end_whole(passage, passage.finish() if passage.is_cut else passage.cut_now(reason))
        elif why == "cut":
            await self._end_unanswered()
        elif why == DRAINED:
            await self._end_failed(503, "shutting_down", why)
        else:
            await self._end_failed(504, "upstream_timeout", why)

    async def _end_whole(self, passage: GatePassage, out: bytes) -> None:
        """The end of a stream, or the one body of a client that does not stream."""
        if self._is_started:
            await self._end_with(out)
        else:
            await self._send_whole(200, [(b"content-type", b"application/json"), *passage.headers], out)

    async def _end_unanswered(self) -> None:
        """It was cut before the upstream had answered: the governor writes the answer of a run that is over."""
        outcome: object = None
        if self._cut_reason is None:
            await self._settle()
            outcome = await self._desk.governor.begin(self._request)
        if isinstance(outcome, GateAnswer):
            await self._answer(outcome)
            return
        self.passage = cast("GatePassage | None", outcome)  # to be settled: it is not sent
        await self._end_failed(403, "permission_error", self._cut_reason or "this run was stopped")

    async def _end_failed(self, status: int, kind: str, message: str) -> None:
        """Tell the client that the call has failed, in its dialect, as far into the reply as it is."""
        if self._is_whole:
            return
        try:
            if self._is_started and self._has_head and self.passage is not None:
                await self._end_with(self.passage.fail(message))
            else:
                await self._answer(self._desk.refuse(self._request, status, kind, message))
        except Exception:
            _log.exception("a failed call could not be told to its client")

    async def _settle(self) -> None:
        passage, self.passage = self.passage, None
        self.phase = SETTLE
        if passage is not None:
            await self._desk.settle(passage)

    async def _start(self, status: int, headers: Headers) -> None:
        self._stop_waiting()
        if not self._is_started:
            self._is_started = True
            self.phase = SEND
            await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _end_with(self, out: bytes) -> None:
        """The last bytes, after everything is settled: a client that sees the end finds its budget up to date."""
        if out:
            self.phase, self.since = SEND, self._loop.time()
            await self._send({"type": "http.response.body", "body": out, "more_body": True})
        if self._reply is not None:
            self._reply.close()
        await self._settle()
        self._is_whole = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        self._stop_waiting()
        if not self._late_kind:
            headers = [*headers, (b"content-length", str(len(body)).encode())]
        await self._start(status, headers)
        self._is_whole = True
        self.phase, self.since = SEND, self._loop.time()
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def _start_waiting(self) -> None:
        if self.phase in (BEGIN, HEAD) and not self._is_started:
            self._keeper = asyncio.ensure_future(self._keep_waiting())

    async def _keep_waiting(self) -> None:
        """Headers and a sign of life, while the call waits for budget or for the upstream's first byte."""
        word = self._desk.governor.keep_alive(self._request)
        kind = _EVENTS if word.strip() else b"application/json"
        self._is_started, self._late_kind = True, kind
        start: Headers = [(b"content-type", kind), (b"cache-control", b"no-cache")]
        await self._send({"type": "http.response.start", "status": 200, "headers": start})
        while True:
            await self._send({"type": "http.response.body", "body": word, "more_body": True})
            await asyncio.sleep(self._desk.patience)

    def _stop_waiting(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()

    def _frame(self, body: bytes) -> bytes:
        """A whole body, as an event where a stream has begun before there was an answer."""
        self._stop_waiting()
        return frame_late(self._request.dialect, body) if self._late_kind == _EVENTS else body


def _without(headers: Headers, *names: bytes) -> list[tuple[bytes, bytes]]:
    return [pair for pair in headers if pair[0] not in names]
