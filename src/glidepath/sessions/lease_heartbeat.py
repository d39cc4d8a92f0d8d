"""The heartbeat: one for all runs of an event loop that share a store, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from glidepath.sessions.store_calls import LAST_WORDS, StoreAnswer, await_store, call_store
from glidepath.spi import Lease, SessionStore, Sign

BEAT = 0.5  # seconds between two looks at the stop flags


def letting_go(store: object) -> Callable[[Any, Lease], bool | StoreAnswer] | None:
    """How a store that always answers gives a lease back without a task; None for any other.

    Its own class must say so: one that wraps or changes such a store may be silent.
    """
    return vars(type(store)).get("let_go")


class Pulsing(Protocol):
    """The holder of a lease that must be renewed."""

    lease: Lease

    def is_time_to_renew(self) -> bool:
        """One more beat: whether the lease is to be renewed with it."""
        ...

    async def take_sign(self, sign: Sign) -> None:
        """What the store reports about the lease; may raise anything."""
        ...


class LeaseHeartbeat:
    """Renews the leases of its members, all with one request to the store."""

    def __init__(self, store: SessionStore, home: dict[int, LeaseHeartbeat]) -> None:
        self.store = store
        self._home = home
        self._members: dict[int, Pulsing] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._asking = False  # the task waits for an answer

    def join(self, member: Pulsing) -> None:
        """Also renew this one, until it leaves."""
        self._members[id(member)] = member
        self._home[id(self.store)] = self
        if self._timer is None and self._task is None:
            self._wait()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(BEAT, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._renew_leases(), name="glidepath-heartbeat")
        self._task.add_done_callback(self._end)

    def _end(self, _: object) -> None:
        self._task = None
        if self._members:
            self._wait()

    def leave_quietly(self, member: Pulsing) -> bool:
        """As `remove_member`, at once; False when there is something to wait for: a question in flight."""
        if self._asking:
            return False
        self._members.pop(id(member), None)
        if not self._members:
            self._stop_if_idle()
        return True

    def _stop_if_idle(self) -> None:
        if self._home.get(id(self.store)) is self:
            del self._home[id(self.store)]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def remove_member(self, member: Pulsing) -> None:
        """Nothing is asked about its lease after this, unless the store does not answer for long."""
        self._members.pop(id(member), None)
        # The answer to a question in flight may still be about this lease; a store that is silent is not waited for.
        if self._asking and self._task is not None:
            await asyncio.wait([self._task], timeout=LAST_WORDS)
        if not self._members:
            self._stop_if_idle()
            if self._asking and self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])

    async def _renew_leases(self) -> None:
        self._asking = True
        try:
            for renew, asked in self._group_members():
                with suppress(Exception):  # the next commit will say what is wrong with the store
                    signs = await self._ask([one.lease for one in asked.values()], renew)
                    told = [_notify(asked[sign.session_id], sign) for sign in signs if sign.session_id in asked]
                    await asyncio.gather(*told)
        finally:
            self._asking = False

    def _ask(self, leases: list[Lease], renew: bool) -> Awaitable[Sequence[Sign]]:
        if letting_go(self.store) is None:
            return await_store(call_store(self.store.beat, leases, renew=renew))
        # It always answers, and nearly always at once: no task has to watch it, and no end of a run waits for it.
        return self.store.beat(leases, renew=renew)

    def _group_members(self) -> list[tuple[bool, dict[str, Pulsing]]]:
        """Whom to ask about together: a sign names a session, so that each is only once in a question."""
        rounds: list[tuple[bool, dict[str, Pulsing]]] = []
        for member in self._members.values():
            renew, name = member.is_time_to_renew(), member.lease.session_id
            for one, asked in rounds:
                if one is renew and name not in asked:
                    asked[name] = member
                    break
            else:
                rounds.append((renew, {name: member}))
        return rounds


async def _notify(member: Pulsing, sign: Sign) -> None:
    with suppress(Exception):  # the next commit will say what is wrong with the store
        await member.take_sign(sign)


_PULSES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, LeaseHeartbeat]] = WeakKeyDictionary()


def pulse_of(store: SessionStore) -> LeaseHeartbeat:
    """The heartbeat of this store's runs on this event loop."""
    # By loop: a task cannot look after leases of runs on another one.
    here = _PULSES.setdefault(asyncio.get_running_loop(), {})
    return here.get(id(store)) or LeaseHeartbeat(store, here)
