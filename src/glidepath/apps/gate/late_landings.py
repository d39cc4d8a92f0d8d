"""A landing that the gate asks for by itself: the model's last words behind a reply that has gone silent."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from glidepath.values import TransientError

if TYPE_CHECKING:
    from glidepath.apps.gate.governing import Headers
    from glidepath.apps.gate.passage import GovernedPassage
    from glidepath.apps.gate.upstreams import Upstream


class LateLanding:
    """Two calls, one reply: the client has the beginning of the `silent` one, which is settled, and gets this end.

    It is a passage as `governing.GatePassage` says. The landing is read to its end and not passed on: its text ends the
    reply that the client is reading, in that reply's dialect.
    """

    is_streamed = True
    is_verbatim = False
    content_type: bytes | None = None
    patience = inf

    def __init__(self, silent: GovernedPassage, landing: GovernedPassage) -> None:
        landing.is_streamed = False
        landing.move = None  # a call that the client makes has no place behind text that it has already shown
        self._silent = silent
        self._landing = landing
        self.upstream: Upstream = landing.upstream
        self.path = landing.path
        self.query = landing.query
        self.body = landing.body
        self.headers = silent.headers

    @property
    def is_cut(self) -> bool:
        """The landing has outgrown what there is for it."""
        return self._landing.is_cut

    @property
    def is_short(self) -> bool:
        """The landing needs more room."""
        return self._landing.is_short

    @property
    def is_abandoned(self) -> bool:
        """The landing was sent, and nobody waited for the head of its reply."""
        return self._landing.is_abandoned

    @is_abandoned.setter
    def is_abandoned(self, value: bool) -> None:
        self._landing.is_abandoned = value

    @property
    def stop_reason(self) -> str | None:
        """Why the landing has to end from outside."""
        return self._landing.stop_reason

    def open(self, status: int, headers: Headers) -> None:
        """The upstream has answered. An error has no place in a reply that has begun."""
        self._landing.open(status, headers)
        if self._landing.is_refused:
            raise TransientError(f"upstream {self.upstream.name} refused the last call with status {status}")

    def feed(self, chunk: bytes) -> bytes:
        """Read on; the client gets the text at the end."""
        return self._landing.feed(chunk)

    async def make_room(self) -> None:
        """Draw more for the landing."""
        await self._landing.make_room()

    def finish(self) -> bytes:
        """The landing is complete: its text is the end of the reply."""
        self._landing.finish()
        return self._silent.end_with(self._landing)

    def cut_now(self, reason: str) -> bytes:
        """It is cut as well: what has come of it is the end."""
        self._landing.cut_now(reason)
        return self._silent.end_with(self._landing)

    def fail(self, reason: str) -> bytes:
        """No landing came: our own words are the end."""
        self._landing.fail(reason)
        return self._silent.end_with(self._landing)

    async def close(self) -> None:
        """Settle the landing; the silent call is settled."""
        await self._landing.close()
