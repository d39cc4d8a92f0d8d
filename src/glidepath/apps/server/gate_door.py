"""The gate in a server: everything below `/gate/` is its own, and the deck shows the runs that go through it.

This module knows only what a gate must do for a server. `glidepath.apps.gate.served_gate` does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from glidepath.apps.server.gatekeeper import App, Receive, Scope, Send
from glidepath.apps.server.refusals import HttpError

if TYPE_CHECKING:
    from glidepath.apps.server.hub import Hub
    from glidepath.apps.server.run_feed import RunFeed
    from glidepath.values import Message

__all__ = ["MOUNT", "ForeignFlights", "GateDoor", "MountedGate", "refuse_foreign_action"]

MOUNT = "/gate"
_CALL = re.compile(r"/v1(?:beta|alpha)?/|/(?:messages|count_tokens|chat/completions|responses|models)\Z")
"""What the path of a call has and no path of the deck outside of /api/."""


class ForeignFlights(Protocol):
    """The runs of other programs in a hub, whose gate is in this process. A run is known by its id.

    Contract: what a person does is written to the journal with `control` before it takes effect. The methods that act
    return what happened, in a sentence, and raise `HttpError`.
    """

    def has_run(self, run_id: str) -> bool:
        """True for a run that has not ended."""
        ...

    def messages(self, run_id: str) -> list[Message] | None:
        """The transcript of a run that has not ended; None for any other."""
        ...

    def roots(self) -> list[RunFeed]:
        """The feeds of all programs that have not ended."""
        ...

    async def land(self, run_id: str, control: dict[str, Any], reason: str) -> str:
        """The next call of each of its agents is the last."""
        ...

    async def stop(self, run_id: str, control: dict[str, Any], reason: str) -> str:
        """No further call; what is in flight is cut."""
        ...

    def raise_limits(self, run_id: str, control: dict[str, Any], limits: Mapping[str, Any]) -> str:
        """Raise limits of a program while it runs."""
        ...

    def stop_all(self, why: str, control: dict[str, Any]) -> int:
        """A kill switch was thrown: cut everything; how many programs that were."""
        ...

    async def release(self, session_id: str) -> None:
        """Take back the stop of one run."""
        ...

    async def release_all(self) -> None:
        """The kill switch is released."""
        ...


class MountedGate(Protocol):
    """A gate that a server mounts.

    Contract: `application` serves ASGI below any root path and keeps its own locks. `join` shows its runs in a hub, and
    is called once. `drain` takes no further call and waits for those in flight; `close` gives everything back.
    """

    @property
    def application(self) -> App:
        """What serves the paths below the mount."""
        ...

    def join(self, hub: Hub) -> ForeignFlights:
        """Show the runs of this gate in a hub from now on."""
        ...

    async def drain(self) -> None:
        """The server is about to end: let calls finish, then end the rest in their dialects."""
        ...

    async def close(self) -> None:
        """The server ends."""
        ...


class GateDoor:
    """Sends what is below the mount to the gate, before any other lock is asked.

    Where the server has no agents of its own (`is_only`), calls without the mount are the gate's, too.
    """

    def __init__(self, app: App, *, gate: App, prefix: str = "", is_only: bool = False) -> None:
        self._app = app
        self._gate = gate
        self._prefix = prefix
        self._is_only = is_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """To the gate, or past it."""
        if scope["type"] in ("http", "websocket"):
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            left = f"{self._prefix}{MOUNT}" if self._prefix and path.startswith(f"{self._prefix}/") else MOUNT
            if path == left or path.startswith(f"{left}/"):
                root = f"{scope.get('root_path', '')}{left}"
                await self._gate({**scope, "root_path": root}, receive, send)
                return
            if self._is_only and (scope["method"] == "HEAD" or _CALL.search(path)) and not path.startswith("/api/"):
                await self._gate(scope, receive, send)
                return
        await self._app(scope, receive, send)


def refuse_foreign_action(what: str) -> HttpError:
    """The answer to what only the program itself can do."""
    return HttpError(
        409,
        "foreign_run",
        f"this is the run of another program, which went through the gate: it cannot be {what} from here. Continue it "
        "in its program, or fork it and run an agent of yours in the copy",
    )
