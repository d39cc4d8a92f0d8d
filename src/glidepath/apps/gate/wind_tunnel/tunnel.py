"""Sends calls to their upstream through bad weather: some get the reply of a scripted model, some a damaged one.

What it does is the same for the same scenario, seed and calls, byte for byte. The gate governs what comes out of it as
it governs any provider: it is the gate's upstream, and nothing else knows of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl, unquote

from glidepath.apps.gate.bodies import MAX_BODY, decompress
from glidepath.apps.gate.governing import Headers
from glidepath.apps.gate.upstream_client import UpstreamClient, UpstreamError, UpstreamReply
from glidepath.apps.gate.upstreams import Upstream
from glidepath.apps.gate.wind_tunnel.scenarios import Scenario
from glidepath.testing.upstream import (
    ON_THE_WIRE,
    Fault,
    HttpReply,
    HttpRequest,
    ScriptedUpstream,
    UpstreamUsage,
    damage_pieces,
)
from glidepath.values import pluralize

MARK = b"x-glidepath-injected"
"""The header of every reply that is not as the upstream sent it."""
_ILLEGAL = (400, 401, 403, 404)
_MOST_LISTED = 100
_KEYS = {"authorization": "Bearer wind-tunnel", "x-api-key": "wind-tunnel", "x-goog-api-key": "wind-tunnel"}
"""For the scripted model, which wants to see a key as every vendor does. The client's own never gets there."""
_ENDS = (b"\r\n\r\n", b"\n\n")


class WindTunnel(UpstreamClient):
    """An upstream client with a bad day. See `UpstreamClient`."""

    def __init__(
        self, scenario: Scenario, seed: int, upstreams: Iterable[Upstream], environ: Mapping[str, str]
    ) -> None:
        super().__init__(upstreams, environ)
        self.scenario = scenario
        self.seed = seed
        self._model = ScriptedUpstream(scenario.script_for(seed), seed=seed, keep=0, repeatable=True)
        self._number = 0
        self._struck: list[dict[str, Any]] = []
        self._count = 0
        self._passed = 0

    @property
    def usage(self) -> UpstreamUsage:
        """What the scripted model has served: the truth, whatever its replies report."""
        return self._model.usage

    @property
    def name(self) -> str:
        """The scenario and its seed, as a report shows them."""
        return f"{self.scenario.name}, seed {self.seed}"

    async def send(
        self, method: str, upstream: Upstream, path: str, query: bytes, headers: Headers, body: bytes
    ) -> UpstreamReply:
        """As `UpstreamClient.send`, unless this call is struck."""
        if not self._model.is_call(method, unquote(path)):
            return await super().send(method, upstream, path, query, headers, body)
        self._number += 1
        faults = self._model.begin_call()
        if not self._model.is_honest or faults.keys() - ON_THE_WIRE:
            told = self._model.respond(_as_request(method, path, query, headers, body), faults)
            if faults or told.status not in _ILLEGAL:
                self._note(faults or {self.scenario.name: None})
                return InjectedReply(self.name, upstream, told)
            # The script cannot read what another model has written into this conversation.
            self._passed += 1
            faults = {}
        reply = await super().send(method, upstream, path, query, headers, body)
        if not faults or reply.status >= 300:  # noqa: PLR2004 - an error of the upstream's own
            return reply
        self._note(faults)
        return DamagedReply(self.name, upstream, reply, faults)

    def report(self) -> dict[str, Any]:
        """What it did, as plain data."""
        return {
            "scenario": self.scenario.name,
            "seed": self.seed,
            "good": self.scenario.good,
            "calls": self._number,
            "struck": self._count,
            "first_struck": self._struck,
            "not_injected": self._passed,
        }

    def describe(self) -> str:
        """The same in a sentence, so that the provider is not blamed."""
        words = f"glidepath gate: injected {self.name}: {self._count} of {pluralize(self._number, 'call')} struck"
        if self._struck:
            first = self._struck[0]
            words += f", the first of them call {first['call']} ({first['what']})"
        if self._passed:
            words += f"; {pluralize(self._passed, 'call')} could not be struck and went to the upstream"
        return f"{words}. This was not the provider's doing. A good agent {self.scenario.good}."

    def _note(self, faults: Mapping[str, Fault | None]) -> None:
        self._count += 1
        if len(self._struck) < _MOST_LISTED:
            self._struck.append({"call": self._number, "what": " + ".join(faults)})


class InjectedReply(UpstreamReply):
    """A reply that no upstream has sent. See `UpstreamReply`."""

    def __init__(self, name: str, upstream: Upstream, told: HttpReply) -> None:
        self._name = name
        self._upstream = upstream
        self._told = {key.lower(): value for key, value in told.headers.items()}
        self._pieces = _each_piece(told)
        self._is_broken = told.is_broken
        self._secret = b""
        self.status = told.status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Those of the scripted model, and the mark."""
        told = [(key.encode(), value.encode("latin-1")) for key, value in self._told.items()]
        return [*told, (MARK, self._name.encode())]

    def header(self, name: str) -> str | None:
        """One header."""
        return self._told.get(name.lower())

    async def read(self) -> bytes:
        """The next piece."""
        while (piece := await anext(self._pieces, None)) is not None:
            if piece:
                return piece
        if self._is_broken:
            raise UpstreamError(f"upstream {self._upstream.name} broke off in its reply (injected: {self._name})")
        return b""

    def close(self) -> None:
        """Nothing is held."""


class DamagedReply(UpstreamReply):
    """The upstream's own reply, with what happens to it on its way. See `UpstreamReply`."""

    def __init__(self, name: str, upstream: Upstream, reply: UpstreamReply, faults: Mapping[str, Fault]) -> None:
        self._name = name
        self._upstream = upstream
        self._inner = reply
        self._is_broken = "cut" in faults
        self._pieces = _damage(reply, faults)
        self.status = reply.status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The upstream's, without a length that may no longer hold, and the mark."""
        kept = [pair for pair in self._inner.headers if pair[0] != b"content-length"]
        return [*kept, (MARK, self._name.encode())]

    def header(self, name: str) -> str | None:
        """One header."""
        return self._inner.header(name)

    def hide_key(self, text: bytes) -> bytes:
        """As the upstream's own reply does."""
        return self._inner.hide_key(text)

    async def read(self) -> bytes:
        """The next piece."""
        piece = await anext(self._pieces, b"")
        if not piece and self._is_broken:
            raise UpstreamError(f"upstream {self._upstream.name} broke off in its reply (injected: {self._name})")
        return piece

    def close(self) -> None:
        """Drop the connection of the upstream."""
        self._inner.close()


def _as_request(method: str, path: str, query: bytes, headers: Headers, body: bytes) -> HttpRequest:
    """The request as the scripted model reads it: without the client's key."""
    told = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    coding = told.get("content-encoding", "identity").lower()
    return HttpRequest(
        method=method,
        path=unquote(path),
        query={name: value for name, value in parse_qsl(query.decode("latin-1")) if name != "key"},
        headers={"anthropic-version": "2023-06-01", **told, **_KEYS},
        raw_headers=[],
        body=body if coding == "identity" or not body else decompress(body, coding, max(MAX_BODY, len(body))),
    )


async def _each_piece(told: HttpReply) -> AsyncIterator[bytes]:
    if told.stream is not None:
        async for piece in told.stream:
            yield piece
        return
    for piece in [told.body] if told.chunks is None else told.chunks:
        yield piece


async def _damage(reply: UpstreamReply, faults: Mapping[str, Fault]) -> AsyncIterator[bytes]:
    async with aclosing(_each_event(reply)) as events:
        async for piece in damage_pieces(events, faults):
            yield piece


async def _each_event(reply: UpstreamReply) -> AsyncGenerator[bytes, None]:
    """The events of a stream one by one, however they arrive; another body as it comes."""
    rest = b""
    while chunk := await reply.read():
        rest += chunk
        while (end := _find_end(rest)) > 0:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def _find_end(data: bytes) -> int:
    """Where the first event ends; 0 when it is not whole."""
    ends = [found + len(mark) for mark in _ENDS if (found := data.find(mark)) >= 0]
    return min(ends, default=0)
