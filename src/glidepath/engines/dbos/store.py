"""The store of a worker: a claim holds only for the session as the worker has read it."""

from __future__ import annotations

from contextvars import ContextVar

from glidepath.sessions import PostgresStore

__all__ = ["SEEN", "FleetStore"]

SEEN: ContextVar[tuple[str, int] | None] = ContextVar("glidepath_seen", default=None)
"""The session that is about to be claimed and its token as it was read: decided on that, it holds for that alone."""


class FleetStore(PostgresStore):
    """A `PostgresStore` that claims a session only as it was read; one that changed is read again."""

    def _expected(self, session_id: str) -> int | None:
        seen = SEEN.get()
        return seen[1] if seen is not None and seen[0] == session_id else None
