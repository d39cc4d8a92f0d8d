"""What the server and the rules of the gate say to each other: a request comes in, a passage or an answer comes out.

The server (`gate_application`) knows sockets and headers. A `Governor` knows budgets, sessions and landings. Neither
knows the other: this module is all they share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from glidepath._wire import Record, Value
from glidepath.values import Verdict

if TYPE_CHECKING:
    from glidepath.apps.gate.upstreams import Upstream

Headers = Sequence[tuple[bytes, bytes]]


class GateRequest(Record, kw_only=True):
    """One request of a foreign agent, as it arrived."""

    dialect: str
    """anthropic, openai-chat, openai-responses or gemini."""
    operation: str
    """generate, count_tokens or models."""
    line: tuple[str, ...]
    """Segments of the path before /v1 that may name tenant, user and run; without a secret segment."""
    method: str
    path: str
    """What to append to the upstream's URL, from /v1 on, unchanged."""
    query: bytes
    headers: Headers
    """Names in lower case."""
    body: bytes
    """Unchanged, decompressed where the client had compressed it."""
    is_verbatim: bool = True
    """`body` is exactly what the client sent: the same bytes and encoding may continue."""
    key: Any = None
    """The access key or token that let it in: a `Visitor`."""
    agent: Any = None
    """Whose call it is, once that is known: a `ForeignAgent`."""
    path_model: str | None = None
    """The model, where the path names it (Gemini)."""
    is_streamed_by_path: bool | None = None
    """True and False where the path says it (Gemini); None where the body does."""


class GateAnswer(Value, frozen=True, kw_only=True):
    """A whole reply that is not the upstream's."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    said: str = ""
    """Our own words in it, where it takes the place of a model's reply."""
    why: Verdict | None = None
    """Why it does."""


class GatePassage(Protocol):
    """One call on its way to an upstream and back.

    Contract: the server sends `body` to `upstream`, calls `open` with the head of the reply, `feed` with every chunk of
    its body, then `finish`; and always, last of all, `close`. When `is_cut` is true after `feed`, it stops reading,
    drops the connection and sends what `finish` returns. When `is_short` is true, it awaits `make_room` before it reads
    on. When `stop_reason` is set, at any time, it stops reading within 50 ms and sends what `cut_now` returns. A status
    from 300 on passes unchanged: after `open` neither `feed` nor `finish` is called.
    """

    upstream: Upstream
    path: str
    query: bytes
    body: bytes
    is_verbatim: bool
    """`body` is what the client sent: its own headers about length and encoding hold."""
    is_streamed: bool
    """The client reads events; else it gets one JSON body at the end, from `finish`."""
    is_abandoned: bool
    """It was sent, and nobody waited for the head of its reply."""
    patience: float
    """Seconds of silence after which the server gives it up and begins the same request again: there is time for that
    only now. Infinite for most of a run."""
    headers: tuple[tuple[bytes, bytes], ...]
    """Headers of ours for the reply."""
    content_type: bytes | None
    """Of what the client gets as a stream, where it is not the upstream's; known after `open`."""

    @property
    def is_cut(self) -> bool:
        """It has ended here: nothing more is read."""
        ...

    @property
    def is_short(self) -> bool:
        """It needs more room before the server reads on."""
        ...

    @property
    def stop_reason(self) -> str | None:
        """Why it has to end from outside; None while it may continue."""
        ...

    def open(self, status: int, headers: Headers) -> None:
        """The upstream has answered. A status from 300 on passes unchanged and releases what was reserved."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """What goes to the client for this chunk; nothing for a client that does not stream."""
        ...

    async def make_room(self) -> None:
        """Reserve more for a reply that grows; after it `is_short` is false, or the reply is to be cut."""
        ...

    def cut_now(self, reason: str) -> bytes:
        """End the reply properly, in its dialect, with what has come."""
        ...

    def finish(self) -> bytes:
        """The upstream's body has ended as it should: what is still to be sent."""
        ...

    def fail(self, reason: str) -> bytes:
        """The upstream died or stalled in the middle of its reply: what the client is told, in its dialect."""
        ...

    async def close(self) -> None:
        """Settle, whatever happened. Called once, also when the client has gone."""
        ...


class Governor(Protocol):
    """Decides about every call. It never raises for what a client sends."""

    async def begin(self, request: GateRequest) -> GatePassage | GateAnswer:
        """Admit a call, which may wait for budget; or answer it."""
        ...

    def keep_alive(self, request: GateRequest) -> bytes:
        """What may be sent in the client's dialect while `begin` takes its time; b" " where it does not stream."""
        ...

    def refuse(self, request: GateRequest, status: int, kind: str, message: str) -> GateAnswer:
        """An error in the client's dialect."""
        ...

    async def stop(self, reason: str) -> None:
        """No further call: those in flight are cut, within 100 ms."""
        ...
