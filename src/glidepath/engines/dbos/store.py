"""The store of a worker: one heartbeat for all its runs, where each run by itself would have its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from math import inf

from glidepath.errors import StoreError
from glidepath.sessions import PostgresStore
from glidepath.spi.sessions import Entry, Lease, Sign

__all__ = ["SEEN", "FleetStore"]

SEEN: ContextVar[tuple[str, int] | None] = ContextVar("glidepath_seen", default=None)
"""The session that is about to be claimed and its token as it was read: decided on that, it holds for that alone."""

GATHER = 0.05  # seconds in which the heartbeats of other runs may join


class FleetStore(PostgresStore):
    """A `PostgresStore` that looks after the leases of many runs in one statement, in time for a short lease, too."""

    def __init__(self, dsn: str, *, lease: float, timeout: float = 10.0, max_connections: int = 8) -> None:
        super().__init__(dsn, lease=lease, timeout=timeout, max_connections=max_connections)
        self._every = lease / 3
        self._renewed = -inf
        self._asked: dict[str, Lease] = {}
        self._answer: asyncio.Task[dict[str, Sign]] | None = None

    def _kept_flag(self, entry: Entry) -> str | None:
        """A stop holds for the run, whoever flies it. A session that was another's meanwhile is to be read again."""
        seen = SEEN.get()
        if seen is None or seen[0] != entry.session_id:
            return None
        if seen[1] != entry.token:
            raise StoreError(f"session {entry.session_id!r} was another worker's meanwhile", kind="fenced")
        return entry.flag

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Look after leases, together with whatever else asks just now."""
        self._asked.update((lease.session_id, lease) for lease in leases)
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_task(self._beat_all(renew=renew), name="glidepath-beat")
        signs = await asyncio.shield(self._answer)
        return [signs[lease.session_id] for lease in leases if lease.session_id in signs]

    async def _beat_all(self, *, renew: bool) -> dict[str, Sign]:
        await asyncio.sleep(GATHER)
        self._answer = None
        leases, self._asked = list(self._asked.values()), {}
        now = asyncio.get_running_loop().time()
        if renew or now - self._renewed >= self._every:
            renew, self._renewed = True, now
        return {sign.session_id: sign for sign in await super().beat(leases, renew=renew)}
