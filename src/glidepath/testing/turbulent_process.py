"""One process in turbulence: what it does one after the other, what it knows, and what it may be wrong about."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, replace
from glidepath.spi import Commit, Grant, Hold, Lease, WalletDraw, WalletTerms
from glidepath.testing.simulated_link import SimulatedClock, SimulatedLink
from glidepath.testing.turbulence_record import LEASE, Granted, Spender, TurbulenceRecord
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.testing.turbulence import Happening

SESSIONS = ("s0", "s1")
LIMIT = 1_000
_OUTER = WalletTerms(name="outer", max_tokens=LIMIT)
_LINE = (_OUTER, WalletTerms(name="inner", parent="outer", max_tokens=LIMIT))
_QUIET = frozenset({"wait", "draw", "spend", "settle", "resume", "sweep", "look"})
"""What leaves the figures of a wallet exact."""


class _Writer(Record):
    """A lease, and where the journal ends as far as its owner knows."""

    granted: Granted
    head: int
    is_unsure: bool = False
    """Its last write may be there or not: it can only give its lease back."""


class TurbulentProcess:
    """Does one thing after the other, at the same time as the others."""

    def __init__(
        self,
        number: int,
        make: Callable[[Callable[[], float]], Any],
        clock: SimulatedClock,
        record: TurbulenceRecord,
        chance: Random,
    ) -> None:
        self.number = number
        self._make = make
        self._clock = clock
        self._record = record
        self._chance = chance
        self._link = SimulatedLink(chance)
        self._lives = 0
        self._made = 0
        self._stores: list[Any] = []
        self._todo: deque[Happening] = deque()
        self._working: asyncio.Task[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._store = self._make(self._clock)
        if self._store not in self._stores:
            self._stores.append(self._store)
        self._lives += 1
        self._owner = f"process {self.number}, life {self._lives}"
        self._writers: dict[str, _Writer] = {}
        self._spenders: dict[str, Spender] = {}

    # --- what happens -----------------------------------------------------------------------------------------------

    def take(self, happening: Happening) -> None:
        """Do this when everything before it is done; trouble comes at once."""
        kind, amount = happening.kind, happening.amount
        if kind not in _QUIET:
            self._record.is_calm = False
        if kind == "part":
            self._link.part(amount)
        elif kind == "step_clock":
            self._clock.step(amount)
        elif kind == "drift":
            self._clock.drift(amount)
        elif kind == "die":
            self._die()
        else:
            self._todo.append(happening)
            if self._working is None or self._working.done():
                self._working = asyncio.get_running_loop().create_task(self._work())

    def _die(self) -> None:
        if self._working is not None:
            self._working.cancel()
            self._working = None
        self._todo.clear()
        self._link = SimulatedLink(self._chance)
        for one in self._spenders.values():
            self._bill_flight(one)
        self._begin()

    async def _work(self) -> None:
        while self._todo:
            one = self._todo.popleft()
            if one.kind in ("lose_request", "lose_reply", "late", "repeat"):
                self._link.trouble_next(one.kind, one.amount)
            elif one.kind == "suspend":
                await asyncio.sleep(one.amount)
            else:
                await getattr(self, f"_{one.kind}")(one)

    async def _send(self, request: Callable[[], Awaitable[Any] | None]) -> Any:
        self._record.requests += 1
        return await self._link.send(request)

    async def finish(self, *, in_peace: bool) -> None:
        """Do the rest; `in_peace`: end every run."""
        if self._working is not None:
            await asyncio.wait([self._working])
            self._working.result()
        await self._link.settle()
        self._link = SimulatedLink(self._chance)
        for name in [*self._spenders] if in_peace else ():
            await self._end_run(name)

    async def close(self) -> None:
        """Let go of every store, those of earlier lives as well."""
        for store in self._stores:
            await store.close()

    # --- journals ---------------------------------------------------------------------------------------------------

    async def _claim(self, happening: Happening) -> None:
        name, loop = happening.name, asyncio.get_running_loop()
        if name in self._writers and not self._writers[name].is_unsure:
            return
        sent, store, owner = loop.time(), self._store, f"{self._owner}, {self._made}"
        self._made += 1
        try:
            lease: Lease = await self._send(lambda: store.claim(name, owner))
        except StoreError:
            return
        granted = Granted(name, lease, self.number, sent, loop.time(), sent + LEASE)
        self._record.note_claim(granted)
        self._writers[name] = _Writer(granted, lease.head)

    async def _write(self, happening: Happening) -> None:
        writer = self._writers.get(happening.name)
        if writer is None or writer.is_unsure:
            return
        self._made += 1
        text = f"{self._owner}: {self._made}".encode()
        commit, lease, store = Commit(writer.head + 1, text, text), writer.granted.lease, self._store
        self._record.tried.setdefault((happening.name, commit.number), set()).add(text)
        sent = asyncio.get_running_loop().time()
        try:
            await self._send(lambda: store.append(lease, commit))
        except StoreError:
            writer.is_unsure = True  # it may be there: who claims next will see
            return
        writer.head += 1
        self._record.note_write(lease, commit, sent)

    async def _beat(self, _: Happening) -> None:
        if not self._writers:
            return
        leases, store, sent = [one.granted.lease for one in self._writers.values()], self._store, _now()
        try:
            signs = await self._send(lambda: store.beat(leases, renew=True))
        except StoreError:
            return
        lost = {sign.session_id for sign in signs if sign.lost}
        for lease in leases:
            if lease.session_id in lost:
                self._writers.pop(lease.session_id, None)
            else:
                self._record.note_beat(lease, sent)
        for one in self._writers.values():
            one.granted.sure_until = sent + LEASE

    async def _release(self, happening: Happening) -> None:
        writer = self._writers.pop(happening.name, None)
        if writer is not None:
            writer.granted.sure_until = _now()
            lease, store = writer.granted.lease, self._store
            try:
                await self._send(lambda: store.release(lease))
            except StoreError:
                return

    async def _read(self, _: Happening, *, is_last: bool = False) -> None:
        store = self._store
        for name in SESSIONS:
            try:
                entry, commits = await self._send(partial(store.load, name))
            except StoreError as error:
                is_there = any(session == name for session, _ in self._record.acknowledged)
                if is_last and (error.kind != "missing" or is_there):
                    self._record.break_rule("kept", f"{name} cannot be read: {error.kind}")
                continue
            self._record.check_journal(name, entry, commits, is_last=is_last)

    async def inspect_journals(self) -> None:
        """After the trouble: every session is whole, and free."""
        await self._read(_NOTHING, is_last=True)
        store = self._store
        for name in SESSIONS:
            try:
                lease = await store.claim(name, f"{self._owner}, the last")
            except StoreError as error:
                self._record.break_rule("free", f"{name} cannot be claimed: {error.kind}")
            else:
                await store.release(lease)

    # --- wallets ----------------------------------------------------------------------------------------------------

    def _spender(self, name: str) -> Spender:
        if name not in self._spenders:
            self._made += 1
            hold = Hold(key=f"{self.number}.{self._made}", leg=1, owner=self._owner, line=_LINE)
            self._begin_run(name, Spender(hold))
        return self._spenders[name]

    def _begin_run(self, name: str, spender: Spender) -> None:
        self._spenders[name] = self._record.runs[name] = spender

    async def _resume(self, happening: Happening) -> None:
        """Continue a run of another process, or of an earlier life, from its journal, which has what it spent.

        The other one may not know yet: it makes no further call, since its journal refuses to note one, but it renews
        what it holds, and settles it at its end.
        """
        name, one = happening.name, self._record.runs.get(happening.name)
        if one is None or one.is_over or one.is_stopped or one.is_asking or name in self._spenders:
            return  # a draw that is under way may still arrive after the run has settled: not tried with a second leg
        self._bill_flight(one)
        one.is_stopped = True
        hold = replace(one.hold, leg=one.hold.leg + 1, owner=self._owner)
        self._begin_run(name, Spender(hold, one.spent))

    async def _draw(self, happening: Happening) -> None:
        one = self._spender(happening.name)
        if one.is_stopped:
            return
        one.has_asked = True
        asked = int(happening.amount)
        want = WalletDraw(spent_tokens=one.spent, flight_tokens=one.flight, asked_tokens=asked, least_tokens=asked // 2)
        store = self._store
        one.is_asking = True
        try:
            grant: Grant = await self._send(lambda: store.draw(one.hold, want))
        except StoreError:
            one.is_stopped = True
            return
        finally:
            one.is_asking = False
        if grant.verdict == "granted" and not one.is_stopped:
            one.flight = max(one.flight, min(grant.tokens - one.spent, one.flight + asked))
        elif grant.verdict == "fenced":
            one.is_stopped = True

    def _bill_flight(self, one: Spender) -> None:
        """Nobody waits for the reply, but the provider works on it, and bills all of it."""
        self._record.spent += one.flight
        one.spent, one.flight = one.spent + one.flight, 0

    async def _spend(self, happening: Happening) -> None:
        one = self._spenders.get(happening.name)
        if one is not None:
            used = min(one.flight, int(happening.amount))
            one.spent += used
            one.flight = 0
            self._record.spent += used

    async def _settle(self, happening: Happening) -> None:
        if happening.name in self._spenders:
            await self._end_run(happening.name)

    async def _end_run(self, name: str) -> None:
        one, store = self._spenders.pop(name), self._store
        self._bill_flight(one)
        one.is_over = True
        if not one.has_asked:  # it holds nothing of its own
            return
        total = one.spent
        try:
            await self._send(lambda: store.settle(one.hold, total, 0))
        except StoreError:
            self._record.is_calm = False

    async def _sweep(self, _: Happening) -> None:
        store = self._store
        try:
            for late in await self._send(store.overdue):
                self._record.is_calm = False
                await self._send(partial(store.write_off, late, None, None))
        except StoreError:
            return

    async def _look(self, _: Happening, *, is_last: bool = False) -> None:
        store = self._store
        try:
            wallets = await self._send(store.wallets)
        except StoreError as error:
            if is_last and (self._record.spent or error.kind != "missing"):
                self._record.break_rule("counted", f"the wallets cannot be read: {error.kind}")
            return
        for wallet in wallets:
            self._record.check_wallet(wallet, LIMIT, is_last=is_last)

    async def inspect_wallets(self) -> None:
        """After the trouble: what the dead held is written off, and everything that was spent is used."""
        for _ in range(2):
            await self._sweep(_NOTHING)
        await self._look(_NOTHING, is_last=True)


_NOTHING: Any = None


def _now() -> float:
    return asyncio.get_running_loop().time()
