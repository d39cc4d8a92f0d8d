"""A place between the gate's door and its rules, where a call can be recorded, or answered from a recording."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from glidepath.apps.gate.bodies import Receive
    from glidepath.apps.gate.exchanges import Send
    from glidepath.apps.gate.governing import GateRequest

Fly: TypeAlias = "Callable[[GateRequest, Send], Awaitable[None]]"


class Tap(Protocol):
    """Sees every call that has passed the locks, and its whole reply.

    Contract: `pass_call` either awaits `fly(request, send)` once, with a `send` that passes every message on, or
    answers with `send` itself and never calls `fly`. A tap that raises breaks its call; one that only listens must not.
    """

    async def pass_call(self, request: GateRequest, receive: Receive, send: Send, fly: Fly) -> None:
        """Serve one call."""
        ...

    async def close(self) -> None:
        """The gate is closing: no call follows."""
        ...
