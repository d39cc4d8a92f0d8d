"""The heartbeat: one for all runs of an event loop that share a store, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Protocol
from weakref import WeakKeyDictionary

from glidepath.sessions.answer import LAST_WORDS, called, heard
from glidepath.spi.sessions import Lease, SessionStore, Sign

BEAT = 0.5  # seconds between two looks at the stop flags


class Pulsing(Protocol):
    """The holder of a lease that must be renewed."""

    lease: Lease

    def renews(self) -> bool:
        """One more beat: whether the lease is to be renewed with it."""
        ...

    async def hear(self, sign: Sign) -> None:
        """What the store reports about the lease; may raise anything."""
        ...


class Pulse:
    """Renews the leases of its members, all with one request to the store."""

    def __init__(self, store: SessionStore, home: dict[int, Pulse]) -> None:
        self.store = store
        self._home = home
        self._members: dict[int, Pulsing] = {}
        self._task: asyncio.Task[None] | None = None
        self._asking: asyncio.Future[None] | None = None

    def join(self, member: Pulsing) -> None:
        """Also renew this one, until it leaves."""
        self._members[id(member)] = member
        if self._task is None:
            self._home[id(self.store)] = self
            self._task = asyncio.get_running_loop().create_task(self._beat(), name="glidepath-heartbeat")

    def leave_quietly(self, member: Pulsing) -> bool:
        """As `leave`, at once; False when there is something to wait for: a question in flight, or our own end."""
        if self._asking is not None or len(self._members) <= 1:
            return False
        self._members.pop(id(member), None)
        return True

    async def leave(self, member: Pulsing) -> None:
        """Nothing is asked about its lease after this, unless the store does not answer for long."""
        self._members.pop(id(member), None)
        # The answer to a question in flight may still be about this lease; a store that is silent is not waited for.
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=LAST_WORDS)
        task = self._task
        if not self._members and task is not None:
            self._task = None
            self._home.pop(id(self.store), None)
            task.cancel()
            await asyncio.wait([task])

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            for renew, asked in self._rounds():
                self._asking = done = asyncio.get_running_loop().create_future()
                try:
                    signs = await self._ask([one.lease for one in asked.values()], renew)
                    await asyncio.gather(
                        *[_told(asked[sign.session_id], sign) for sign in signs if sign.session_id in asked]
                    )
                except Exception:  # noqa: S112 - the next commit will say what is wrong with the store
                    continue
                finally:
                    self._asking = None
                    done.set_result(None)

    def _ask(self, leases: list[Lease], renew: bool) -> Awaitable[Sequence[Sign]]:
        if getattr(type(self.store), "let_go", None) is None:
            return heard(called(self.store.beat, leases, renew=renew))
        # It always answers, and nearly always at once: no task has to watch it, and no end of a run waits for it.
        return self.store.beat(leases, renew=renew)

    def _rounds(self) -> list[tuple[bool, dict[str, Pulsing]]]:
        """Whom to ask about together: a sign names a session, so that each is only once in a question."""
        rounds: list[tuple[bool, dict[str, Pulsing]]] = []
        for member in self._members.values():
            renew, name = member.renews(), member.lease.session_id
            for one, asked in rounds:
                if one is renew and name not in asked:
                    asked[name] = member
                    break
            else:
                rounds.append((renew, {name: member}))
        return rounds


async def _told(member: Pulsing, sign: Sign) -> None:
    with suppress(Exception):  # the next commit will say what is wrong with the store
        await member.hear(sign)


_PULSES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Pulse]] = WeakKeyDictionary()


def pulse_of(store: SessionStore) -> Pulse:
    """The heartbeat of this store's runs on this event loop."""
    # By loop: a task cannot look after leases of runs on another one.
    here = _PULSES.setdefault(asyncio.get_running_loop(), {})
    return here.get(id(store)) or Pulse(store, here)
