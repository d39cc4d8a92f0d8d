"""A server on loopback that speaks the vendors' dialects and says what its script tells it to."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from glidepath._wire import WireError, encode, loads, replace
from glidepath.testing.upstream.asked import AskedCall, IllegalRequestError
from glidepath.testing.upstream.conduct import speak
from glidepath.testing.upstream.damage import ON_THE_WIRE, WEB_PAGE, damage_pieces, damage_words, misreport
from glidepath.testing.upstream.http_connection import HttpConnection, HttpReply, HttpRequest
from glidepath.testing.upstream.issued_ids import IssuedIds, RepeatedIds
from glidepath.testing.upstream.prefix_cache import PrefixCache
from glidepath.testing.upstream.reported import Piece, Reported
from glidepath.testing.upstream.script import Fault, read_script
from glidepath.testing.upstream.spoken import Spoken, count_input
from glidepath.testing.upstream.truth import Ledger, UpstreamCall, UpstreamUsage
from glidepath.testing.upstream.vendors import Vendor, find_vendor, list_models, make_vendors

RUN = re.compile(rb"#run-([A-Za-z0-9_-]+)")
"""How a task names its run: the figures of `#run-7` are `runs["7"]`, sub-agents included."""
LONG_REPLY = 2_000
"""Tokens: a longer reply takes its time, as it would with a vendor."""
BURST = 64
STATUSES = {"429": "Rate limit exceeded", "529": "Overloaded", "500": "Internal server error"}
UNSAID = {**dict.fromkeys(STATUSES), "redirect": 307, "web_page": 200}
"""Faults instead of a reply of the model, with the status that the name does not say."""


class ScriptedUpstream:
    """A model provider on 127.0.0.1 that behaves by a script and counts what it serves.

    `async with ScriptedUpstream("loop") as up:` serves Anthropic Messages, OpenAI chat completions and Responses, and
    Gemini at `up.url`, with any path before `/v1`. `behavior` may be changed while it serves. `rate` is tokens of
    output a second in a long reply, `pace` seconds between all events. `keys`, when given, are the only keys it takes.
    `repeatable` replies are the same, byte for byte, for the same seed and requests.
    A `speaker` is asked first what to say; None leaves it to the script.
    """

    def __init__(
        self,
        behavior: str = "honest",
        *,
        port: int = 0,
        seed: int = 0,
        log: Path | str | None = None,
        bodies: bool = False,
        keep: int = 1000,
        delta: int = 24,
        rate: float = 10_000.0,
        pace: float = 0.0,
        keys: frozenset[str] | None = None,
        repeatable: bool = False,
        speaker: Callable[[AskedCall], Spoken | None] | None = None,
    ) -> None:
        self._speaker = speaker
        self._script = read_script(behavior)
        self._behavior = behavior
        self._port = port
        self._random = Random(seed)  # noqa: S311 - a script, not a secret
        self._log = Path(log) if log else None
        self._ledger = Ledger(self._log, keep=keep, bodies=bodies)
        self._delta, self._rate, self._pace, self._keys = delta, rate, pace, keys
        self._ids = IssuedIds(str(seed) if repeatable else None)
        self._cache = PrefixCache()
        self._vendors = make_vendors()
        self._connections: set[HttpConnection] = set()
        self._server: asyncio.Server | None = None
        self._number = 0
        self._looks: Counter[str] = Counter()

    @property
    def url(self) -> str:
        """Where it listens, without `/v1`."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def behavior(self) -> str:
        """The script in force."""
        return self._behavior

    @behavior.setter
    def behavior(self, text: str) -> None:
        self._script, self._behavior = read_script(text), text

    @property
    def usage(self) -> UpstreamUsage:
        """What it served in all."""
        return self._ledger.usage

    @property
    def runs(self) -> Mapping[str, UpstreamUsage]:
        """What it served for each run that a `#run-NAME` in its task names; the others are under the empty name."""
        return self._ledger.runs

    @property
    def calls(self) -> deque[UpstreamCall]:
        """The latest calls, oldest first."""
        return self._ledger.calls

    @property
    def looks(self) -> Mapping[str, int]:
        """Requests that are not calls, by method and path: what it listed, and what it does not have."""
        return self._looks

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self.respond, self._connections), "127.0.0.1", self._port, backlog=4096
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Drop all clients and stop listening."""
        if self._server is not None:
            self._server.close()
            dropped = list(self._connections)
            for connection in dropped:
                connection.close()
            await self._server.wait_closed()
            self._server = None
            await asyncio.gather(*[connection.wait_closed() for connection in dropped])
        self._ledger.close()

    async def wait_idle(self) -> None:
        """Return once no call is being answered."""
        await self._ledger.idle.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def is_call(self, method: str, path: str) -> bool:
        """Whether a request asks for a reply of the model."""
        vendor = find_vendor(path.rstrip("/"), self._vendors) if method == "POST" else None
        return vendor is not None and not vendor.is_count(path.rstrip("/"))

    @property
    def is_honest(self) -> bool:
        """Whether the model of the script does ordinary work, whatever else goes wrong."""
        return self._script.conduct.name == "honest" and not self._script.conduct.is_stubborn

    def begin_call(self) -> dict[str, Fault]:
        """Count one more call; the faults that strike it, by name."""
        self._number += 1
        return self._script.pick_faults(self._number, self._random)

    def respond(self, request: HttpRequest, faults: dict[str, Fault] | None = None) -> HttpReply:
        """The reply to a request, as a client of the server would get it.

        With `faults` it is the reply to the call that `begin_call` has counted.
        """
        path = request.path.rstrip("/")
        vendor = find_vendor(path, self._vendors) if request.method == "POST" else None
        if vendor is None:
            self._looks[f"{request.method} {path or '/'}"] += 1
        if request.method in ("GET", "HEAD"):
            return self._look(request, path)
        if vendor is None:
            return _json(404, {"error": {"type": "not_found_error", "message": f"{request.method} {path}: not here"}})
        return self._call(request, path, vendor, self.begin_call() if faults is None else faults)

    def _look(self, request: HttpRequest, path: str) -> HttpReply:
        if path in ("", "/"):
            return HttpReply(headers={"content-type": "text/plain"}, body=b"a scripted upstream\n")
        if path == "/__usage":
            told = {"usage": self._ledger.usage, "runs": self._ledger.runs, "behavior": self._behavior}
            return _json(200, told)
        models = list_models(path, request.headers)
        return _json(200 if models else 404, models or {"error": {"message": f"{path}: not here"}})

    def _call(self, request: HttpRequest, path: str, vendor: Vendor, faults: dict[str, Fault]) -> HttpReply:
        tag = RUN.search(request.body)
        call = UpstreamCall(
            number=self._number,
            run=tag[1].decode() if tag else "",
            dialect=vendor.name,
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers,
            began=time.time(),
        )
        self._ledger.begin(call)
        try:
            asked = self._read(request, path, vendor, call)
            if vendor.is_count(path):
                return self._count(asked, vendor, call)
            return self._refuse(faults, vendor, call) or self._serve(asked, vendor, call, faults)
        except IllegalRequestError as error:
            call.status, call.error = error.status, str(error)
            self._finish(call)
            return _json(error.status, vendor.write_error(error, self._ids), vendor.headers(self._ids))

    def _read(self, request: HttpRequest, path: str, vendor: Vendor, call: UpstreamCall) -> AskedCall:
        vendor.check_headers(request.headers, request.query, self._keys)
        try:
            body = loads(request.body)
        except (WireError, UnicodeDecodeError):
            raise IllegalRequestError("The request body is not valid JSON") from None
        if not isinstance(body, dict):
            raise IllegalRequestError("The request body is not a JSON object")
        if self._ledger.calls.maxlen or self._ledger.bodies:
            call.body = body
        asked = vendor.read(body, path, request.query)
        call.model, call.stream, call.choice = asked.model, asked.stream, asked.choice
        call.tools = tuple(tool.name for tool in asked.tools)
        call.max_output, call.child, call.past = asked.max_output, asked.child, len(asked.past)
        return asked

    def _count(self, asked: AskedCall, vendor: Vendor, call: UpstreamCall) -> HttpReply:
        self._ledger.usage.counted += 1
        call.status = 200
        self._finish(call)
        return _json(200, vendor.write_count(count_input(asked.blocks)), vendor.headers(self._ids))

    def _refuse(self, faults: dict[str, Fault], vendor: Vendor, call: UpstreamCall) -> HttpReply | None:
        name = next((one for one in faults if one in UNSAID), None)
        if name is None:
            return None
        fault = faults[name]
        call.fault, call.status = name, UNSAID[name] or int(name)
        self._finish(call)
        headers = vendor.headers(self._ids)
        if name == "web_page":
            return HttpReply(headers={**headers, "content-type": "text/html; charset=utf-8"}, body=WEB_PAGE)
        if name == "redirect":
            return HttpReply(status=307, headers={**headers, "location": fault.to})
        if fault.retry_after is not None:
            headers["retry-after"] = f"{fault.retry_after:g}"
        error = IllegalRequestError(STATUSES[name], status=call.status)
        return _json(call.status, vendor.write_error(error, self._ids), headers)

    def _serve(self, asked: AskedCall, vendor: Vendor, call: UpstreamCall, faults: dict[str, Fault]) -> HttpReply:
        found = vendor.look_up(self._cache, asked)
        tag = f"#run-{call.run}" if call.run else ""
        spoken = None if self._speaker is None else self._speaker(asked)
        if spoken is None:
            spoken = speak(self._script.conduct, asked, tag)
        spoken = damage_words(spoken, asked, faults).fit(asked.max_output, stream=asked.stream)
        call.input, call.cached, call.written = found.total, found.cached, found.written
        call.said = tuple(one.name for one in spoken.calls)
        call.stop, call.status, call.fault = spoken.stop, 200, "+".join(faults)
        call.hidden = spoken.hidden * asked.copies
        self._ledger.bill_input(call)
        usage = Reported(
            input=found.total,
            cached=found.cached,
            written=found.written,
            output=spoken.tokens * asked.copies,
            hidden=call.hidden,
        )
        usage = misreport(usage, faults)
        ids = RepeatedIds(self._ids) if "same_ids" in faults else self._ids
        if not asked.stream:
            whole = vendor.write_whole(asked, spoken, usage, ids)
            return self._send_whole(encode(whole), call, faults, vendor, tokens=spoken.tokens * asked.copies)
        is_long = spoken.endless != 0 or spoken.tokens > LONG_REPLY
        pieces = vendor.write_stream(asked, spoken, usage, ids, self._delta)
        headers = {**vendor.headers(self._ids), "content-type": vendor.stream_type(asked), "cache-control": "no-cache"}
        if not is_long and not self._pace and not faults.keys() & ON_THE_WIRE:
            sent = list(pieces)
            call.output = sent[-1][1]
            self._finish(call)
            return HttpReply(headers=headers, chunks=[data for data, _ in sent])
        stream = self._stream(pieces, call, faults, rate=self._rate if is_long else 0.0)
        return HttpReply(headers=headers, stream=stream, is_broken="cut" in faults)

    def _send_whole(
        self, body: bytes, call: UpstreamCall, faults: dict[str, Fault], vendor: Vendor, *, tokens: int
    ) -> HttpReply:
        headers = vendor.headers(self._ids)
        if "garbage" in faults:
            body = b"<html><body>502 Bad Gateway</body></html>"
        if not faults.keys() & {"slow", "stall", "cut"}:
            call.output = tokens
            self._finish(call)
            return HttpReply(headers=headers, body=body)
        headers["content-length"] = str(len(body))
        half = body[: len(body) // 2] if "cut" in faults else body
        faults = {name: replace(fault, after=1 if name == "cut" else 0) for name, fault in faults.items()}
        stream = self._stream(iter([(half, tokens), (b"", tokens)]), call, faults)
        return HttpReply(headers=headers, stream=stream, is_broken="cut" in faults)

    async def _stream(
        self, pieces: Iterator[Piece], call: UpstreamCall, faults: dict[str, Fault], *, rate: float = 0.0
    ) -> AsyncIterator[bytes]:
        """Send pieces at their pace; what was sent is what counts when the client leaves."""
        is_left = True
        try:
            async with aclosing(self._pace_pieces(pieces, call, rate)) as paced:
                async for data in damage_pieces(paced, faults):
                    yield data
            is_left = False
        finally:
            call.is_aborted = is_left
            self._finish(call)

    async def _pace_pieces(
        self, pieces: Iterator[Piece], call: UpstreamCall, rate: float
    ) -> AsyncGenerator[bytes, None]:
        begun = time.monotonic()
        for place, (data, spent) in enumerate(pieces):
            call.output = max(call.output, spent)
            yield data
            behind = spent / rate - (time.monotonic() - begun) if rate else 0.0
            if self._pace or behind > 0.0:
                await asyncio.sleep(max(self._pace, behind))
            elif place % BURST == 0:
                await asyncio.sleep(0)  # others get their turn, whatever the rate

    def _finish(self, call: UpstreamCall) -> None:
        call.seconds = time.time() - call.began
        self._ledger.end(call)


def _json(status: int, value: object, headers: Mapping[str, str] | None = None) -> HttpReply:
    return HttpReply(status=status, headers={"content-type": "application/json", **(headers or {})}, body=encode(value))
