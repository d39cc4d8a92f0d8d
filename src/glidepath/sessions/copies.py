"""What our stores have on top of the protocol: `fork` and `rewind` as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidepath.sessions.forking import Fork


class CanFork:
    """A store whose sessions can be forked: `await store.fork("trip", at=7)`."""

    async def fork(self, session: str, *, at: int | None = None, name: str | None = None) -> Fork:
        """A new session from this one as it was after turn `at`, the last one by default; this one does not change.

        Raises `ConfigurationError` for a turn that is not there, and `StoreError`.
        """
        from glidepath.sessions.forking import fork

        store: Any = self
        return await fork(store, session, at=at, name=name)

    async def rewind(self, session: str, *, at: int) -> Fork:
        """Rewind a session to turn `at`; its old state is kept as the session `origin`."""
        from glidepath.sessions.forking import rewind

        store: Any = self
        return await rewind(store, session, at=at)
