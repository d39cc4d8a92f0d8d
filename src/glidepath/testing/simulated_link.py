"""Clocks that jump, and a network that loses, delays, repeats and parts: between processes and the store they share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

from glidepath.values import StoreError

_PATIENCE = 1.0  # seconds until the sender of a request gives it up
_SLOWEST = 0.05  # seconds of an ordinary way there, and of one back


class SimulatedClock:
    """What one machine takes for the time: the true time, ahead or behind, faster or slower."""

    def __init__(self, epoch: float) -> None:
        self._epoch = epoch
        self._ahead = 0.0
        self._rate = 1.0
        self._since = 0.0

    def __call__(self) -> float:
        """Seconds since the epoch, as this machine has it."""
        now = asyncio.get_running_loop().time()
        return self._epoch + now + self._ahead + (now - self._since) * (self._rate - 1.0)

    def step(self, seconds: float) -> None:
        """Somebody sets it forward, or back."""
        self._ahead += seconds

    def drift(self, rate: float) -> None:
        """From now on it runs at this rate; 1 is right."""
        now = asyncio.get_running_loop().time()
        self._ahead += (now - self._since) * (self._rate - 1.0)
        self._since, self._rate = now, rate


class SimulatedLink:
    """The way from one process to the store, with delays by chance.

    Requests of a process arrive in order, but for those that it has given up: it waits a second for a reply.
    """

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._parted_until = 0.0
        self._next = ""
        self._next_seconds = 0.0
        self._under_way: set[asyncio.Task[None]] = set()

    def part(self, seconds: float) -> None:
        """For this many seconds nothing gets through, in either direction."""
        self._parted_until = asyncio.get_running_loop().time() + seconds

    def trouble_next(self, kind: str, seconds: float = 0.0) -> None:
        """Something happens to the next request: `lose_request`, `lose_reply`, `late` or `repeat`."""
        self._next, self._next_seconds = kind, seconds

    async def send(self, request: Callable[[], Awaitable[Any] | None]) -> Any:
        """Have the store do it; raises `StoreError` of kind `unavailable` when no reply comes."""
        kind, self._next = self._next, ""
        await self._travel()
        if kind == "lose_request" or self._is_parted():
            raise await self._give_up()
        if kind == "late":
            self._do_later(request, self._next_seconds)
            raise await self._give_up()
        if kind == "repeat":
            self._do_later(request, 0.0)
        reply = await _do(request)
        await self._travel()
        if kind == "lose_reply" or self._is_parted():
            raise await self._give_up()
        return reply

    async def settle(self) -> None:
        """Wait until everything that is under way has arrived."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _travel(self) -> None:
        await asyncio.sleep(self._chance.random() * _SLOWEST)

    def _is_parted(self) -> bool:
        return asyncio.get_running_loop().time() < self._parted_until

    async def _give_up(self) -> StoreError:
        await asyncio.sleep(_PATIENCE)
        return StoreError("the store cannot be reached", kind="unavailable")

    def _do_later(self, request: Callable[[], Awaitable[Any] | None], seconds: float) -> None:
        async def arrive() -> None:
            await asyncio.sleep(seconds)
            try:
                await _do(request)
            except StoreError:  # nobody hears it
                return

        work: Coroutine[Any, Any, None] = arrive()
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


async def _do(request: Callable[[], Awaitable[Any] | None]) -> Any:
    later = request()
    return None if later is None else await later
