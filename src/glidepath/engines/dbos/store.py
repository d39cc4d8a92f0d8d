"""The store of a worker: it claims a session only if nothing has changed since the worker read it."""

from __future__ import annotations

from contextvars import ContextVar

from glidepath.sessions import PostgresStore

__all__ = ["SEEN", "FleetStore"]

SEEN: ContextVar[tuple[str, int] | None] = ContextVar("glidepath_seen", default=None)
"""The session about to be claimed, and its token when it was read: the claim is valid only for that token."""


class FleetStore(PostgresStore):
    """A `PostgresStore` that claims a session only if it has not changed since it was read."""

    def _expected(self, session_id: str) -> int | None:
        seen = SEEN.get()
        return seen[1] if seen is not None and seen[0] == session_id else None
