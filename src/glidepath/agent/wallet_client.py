"""The part of a wallet that one run holds: drawn before a call that needs it, settled when the run has ended."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from glidepath._wire import replace
from glidepath.agent.child_records import find_usage
from glidepath.run import Amount, Caps, Meter, Touchdown, Verdict, dollars, run_uninterrupted
from glidepath.sessions import LEASE, await_store, call_store, claim_session, read_journal, this_owner
from glidepath.sessions.store_calls import FAREWELL
from glidepath.spi import (
    Grant,
    Hold,
    OverdueHold,
    SessionStore,
    Wallet,
    WalletDraw,
    WalletStore,
    WalletTerms,
    is_implementing,
)
from glidepath.values import AgentState, ConfigurationError, LoopOutcome, StopCause, StoreError, name_limit, pluralize

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from glidepath.run import Run

_log = logging.getLogger("glidepath")
FIRST_WAIT, LONGEST_WAIT = 0.02, 1.0  # seconds between two looks for what other runs give back
PATIENCE = 120.0  # seconds to wait for it; then the run lands
AT_ONCE = 1.0  # a call that waited without success is made smaller and tried again within this many seconds
BETWEEN_SWEEPS = 1.0  # seconds
PLENTY = 1 << 60  # what is ahead of a root until its first draw says more
GATE = 0.002  # seconds between two looks whether another draw of the same run is done


_last_sweeps: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""When somebody in this process last began to sweep each store, by the monotonic clock."""


class WalletClient:
    """What one run draws from a line of wallets. Its meter is above the run's and can reach what was granted.

    With a `key` it is what several runs draw together: those of a team, in one `leg` after the other.

    It is what `ask/source.py` calls a source. What is granted and not needed is given back with the next draw and with
    every heartbeat, after the meter can no longer reach it: nothing is ever reserved that the store thinks is free.
    """

    def __init__(
        self, store: Any, line: Sequence[WalletTerms], meter: Meter, *, key: str | None = None, leg: int = 1
    ) -> None:
        self.store = store
        self._shared = None if key is None else (key, leg)  # of several runs, which hold together what they need
        self.line = tuple(line)
        self.hold: Hold | None = None
        self.refused: StopCause | None = None
        caps = Caps(
            tokens=None if all(one.max_tokens is None for one in line) else 0,
            money=None if all(one.max_money is None for one in line) else 0,
            descendants=meter.caps.descendants,
            depth=meter.caps.depth,
        )
        self.meter = root = Meter(caps, depth=-1)
        root.tree.source = self
        root.ahead_tokens = root.ahead_money = PLENTY  # until the first draw says more
        root.warn_near(meter.near_tokens, meter.near_money)
        self._gate = threading.Lock()  # one draw at a time, from whichever loop
        self._heart: asyncio.Task[None] | None = None
        self._gave_up = -inf

    def declare(self, line: Sequence[WalletTerms]) -> None:
        """The same wallets have other limits, which hold from the next draw on."""
        self.line = tuple(line)
        if self.hold is not None:
            self.hold = replace(self.hold, line=self.line)

    # --- drawing ------------------------------------------------------------------------------------------------

    async def draw(
        self,
        run: Run,
        asked: Amount,
        least: Amount,
        *,
        patient: bool = True,
        around: tuple[Meter, ...] | None = None,
    ) -> None:
        """Have room for `asked` more; see `glidepath.kernel.model_call.source`."""
        try:
            await self._draw(run, asked, least, patient=patient, around=around)
        except StoreError as error:
            raise make_store_failure(error) from error

    async def _draw(
        self, run: Run, asked: Amount, least: Amount, *, patient: bool, around: tuple[Meter, ...] | None
    ) -> None:
        loop = asyncio.get_running_loop()
        wait, until, swept = FIRST_WAIT, loop.time() + PATIENCE, False
        if loop.time() - self._gave_up < AT_ONCE:  # the same call, made smaller
            until = loop.time()
        while True:
            # For one look, not for the wait: what is in flight must get its room meanwhile, or two processes would
            # wait for each other.
            async with self._taking_turns():
                first = self.hold is None
                if first:
                    self._open(run)
                elif has_room(self.meter, asked):
                    break
                grant = await self._draw_once(asked, least, around)
                if grant.verdict == "granted":
                    break
                final = grant.verdict != "wait"
                if patient and (not swept if final else wait >= LONGEST_WAIT) and grant.verdict != "closed":
                    swept = True
                    if await self._sweep():  # what the dead held may be enough
                        continue
                # An end to the wait: others may hold what is missing for as long as they like.
                if final or loop.time() >= until:
                    self._gave_up = -inf if final else loop.time()
                    self.refused = _make_cause(grant, self.line[-1].name)
                    return
            if not patient:
                break
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
        self.refused = None

    @asynccontextmanager
    async def _taking_turns(self) -> AsyncIterator[None]:
        """One draw at a time, from whichever loop."""
        while not self._gate.acquire(blocking=False):  # noqa: ASYNC110 - the other draw may be on another loop
            await asyncio.sleep(GATE)
        try:
            yield
        finally:
            self._gate.release()

    async def _sweep(self) -> bool:
        """Write off what is overdue, unless somebody in this process has just begun to; True when there was something.

        Everybody who is refused at the same moment would do the same work.
        """
        now = time.monotonic()
        try:
            if now - _last_sweeps.get(self.store, -inf) < BETWEEN_SWEEPS:
                return False
            _last_sweeps[self.store] = now
        except TypeError:  # a store of slots or without a hash cannot be remembered: it is swept every time
            pass
        return bool(await sweep(self.store))

    def _open(self, run: Run) -> None:
        """The first draw: from here on the hold is this run's, and what it spent before is not counted."""
        if self._shared is not None:
            key, leg = self._shared
            self.hold = Hold(key=key, leg=leg, owner=this_owner(), line=self.line)
            self._heart = asyncio.get_running_loop().create_task(self._renew_hold(), name="glidepath-wallet")
            return
        journal = run.journal
        self.hold = Hold(
            key=f"{run.session_id}:{run.run_id}" if journal is not None else f"{run.run_id}:{os.urandom(6).hex()}",
            leg=journal.lease.token if journal is not None else 1,
            owner=this_owner(),
            line=self.line,
            session_id=run.session_id if journal is not None and journal.store is self.store else None,
        )
        root = self.meter
        root.tokens, root.money, root.disputed = run.meter.tokens, run.meter.money, run.meter.disputed
        self._heart = asyncio.get_running_loop().create_task(self._renew_hold(), name="glidepath-wallet")

    async def _draw_once(self, asked: Amount, least: Amount, around: tuple[Meter, ...] | None = None) -> Grant:
        """One draw. Unneeded money is out of reach before the store hears that it is free."""
        root = self.meter
        hold: Any = self.hold
        stays = Amount() if around is None else self._sum_parent_reserves(around)
        with root.tree.lock:
            now = sum_held(root)
            reach(root, now.tokens, now.money)
            want = WalletDraw(
                spent_tokens=root.tokens,
                spent_money=root.money,
                landing_tokens=root.aside_tokens,
                landing_money=root.aside_money,
                flight_tokens=root.reserved_tokens,
                flight_money=root.reserved_money,
                asked_tokens=max(0, asked.tokens),
                asked_money=max(0, asked.money),
                least_tokens=max(0, least.tokens),
                least_money=max(0, least.money),
                starting=around is not None,
                around_tokens=stays.tokens,
                around_money=stays.money,
                disputed_tokens=root.disputed[0],
                disputed_money=root.disputed[1],
            )
        grant = await await_store(call_store(self.store.draw, hold, want))
        if not isinstance(grant, Grant):
            raise StoreError(f"the wallets' store failed: draw answered with {type(grant).__name__}, not with a Grant")
        if grant.verdict == "fenced":
            raise StoreError(
                f"what {hold.key!r} held of wallet {self.line[-1].name!r} now belongs to another run", kind="fenced"
            )
        with root.tree.lock:
            reach(root, grant.tokens, grant.money)
            if max(asked.tokens, asked.money) > 0:
                note_drawable_amount(root, grant)
        return grant

    def _sum_parent_reserves(self, around: tuple[Meter, ...]) -> Amount:
        """What runs that wait for this one keep of the same wallet for their landings: it never comes back first."""
        roots = {meter.tree.source.meter for meter in around if isinstance(meter.tree.source, WalletClient)}
        names = {one.name for one in self.line}
        kept = [root for root in roots - {self.meter} if names & {one.name for one in root.tree.source.line}]
        # Of this hold only those: what the others below it keep for their landings does come back.
        own = [meter.landing_kept() for meter in around if meter.tree is self.meter.tree]
        return Amount(
            sum(root.aside_tokens for root in kept) + sum(one.tokens for one in own),
            sum(root.aside_money for root in kept) + sum(one.money for one in own),
        )

    def deadline(self, now: float) -> float:  # noqa: ARG002 - as a budget has it
        """A wallet has no time limit."""
        return inf

    async def pace(self, run: Run, tokens: int) -> None:
        """A wallet does not limit the call rate."""

    # --- staying alive, and the end -----------------------------------------------------------------------------

    async def _renew_hold(self) -> None:
        """Renew the hold, count what was spent, and give back what is not needed."""
        every = getattr(self.store, "_lease", LEASE) / 3
        while True:
            await asyncio.sleep(every)
            if self._gate.acquire(blocking=False):  # else a draw does the same
                try:
                    await self._draw_once(Amount(), Amount())
                except Exception:  # noqa: S112 - the next draw will say what is wrong with the store
                    continue
                finally:
                    self._gate.release()

    async def close(self) -> None:
        """The run has ended: what it spent is used, the rest is free. Never fails: unsettled holds become overdue."""
        heart, self._heart = self._heart, None
        if heart is not None:
            # First: a heartbeat after the settlement would draw money again.
            heart.cancel()
            await asyncio.wait([heart])
        if self.hold is None:
            return
        await run_uninterrupted(self._settle(), name="glidepath-settle")  # a cancellation counts once the wallet knows

    async def _settle(self) -> None:
        root = self.meter
        tokens, money = root.tokens + root.reserved_tokens, root.money + root.reserved_money  # of abandoned work
        disputed: dict[str, Any] = {"disputed": root.disputed} if any(root.disputed) else {}
        until = time.monotonic() + FAREWELL
        while True:
            try:
                left = max(1.0, until - time.monotonic())
                await await_store(call_store(self.store.settle, self.hold, tokens, money, **disputed), left)
            except Exception as error:
                if getattr(error, "kind", "") == "locked" and time.monotonic() < until:
                    await asyncio.sleep(LONGEST_WAIT)
                    continue
                what = "what this run holds of it is written off when its lease expires"
                _log.warning("wallet %r could not be settled; %s: %s", self.line[-1].name, what, error)
            return

    def nearly_empty(self) -> str | None:
        """The wallet, if it is nearly used up."""
        return f"wallet {self.line[-1].name}" if self.meter.near_budget() else None


def _make_cause(grant: Grant, last: str) -> StopCause:
    """Why nothing more can be drawn."""
    name = grant.tight or last
    said = f"wallet {name}" + (f" ({grant.period})" if grant.period else "")
    metrics: dict[str, Any] = {"wallet": name}
    if grant.verdict == "closed":
        reason = f"{said} is closed"
    elif grant.verdict == "wait":
        reason = f"the next call waited {PATIENCE:g} s for what other runs hold of {said}"
    else:
        reason = f"the next call would exceed the {name_limit(grant.resource)} of {said}"
        metrics |= limit_figures(grant)
        if grant.disputed:
            # Who reads this cannot know of the bill, and only a person can free what it blocks.
            shown = f"${dollars(grant.disputed):f}" if grant.resource == "money" else pluralize(grant.disputed, "token")
            reason += (
                f", of which {shown} are bills that no call explains: see `glidepath wallets show {name}`, then accept "
                "or reject them"
            )
            metrics["disputed"] = str(dollars(grant.disputed)) if grant.resource == "money" else grant.disputed
        if grant.period:
            metrics["period"] = grant.period
    return StopCause(source=f"wallet {name}", action="graceful_exit", reason=reason, metrics=metrics)


# --- for every source of a root ----------------------------------------------------------------------------------


def sum_held(root: Meter) -> Amount:
    """What is used, kept back and in flight below a root."""
    return Amount(
        root.tokens + root.aside_tokens + root.reserved_tokens, root.money + root.aside_money + root.reserved_money
    )


def has_room(root: Meter, asked: Amount) -> bool:
    """Whether a root can reach enough for `asked` more."""
    caps, now = root.caps, sum_held(root)
    tokens = caps.tokens is None or now.tokens + asked.tokens <= caps.tokens
    return tokens and (caps.money is None or now.money + asked.money <= caps.money)


def reach(root: Meter, tokens: int, money: int) -> None:
    """Let a root reach this much of what is limited. The lock of its tree is held."""
    caps = root.caps
    root.caps = replace(
        caps, tokens=None if caps.tokens is None else tokens, money=None if caps.money is None else money
    )
    root.set_wires()


def note_drawable_amount(root: Meter, grant: Grant) -> None:
    """Note how much more a root could draw. The lock of its tree is held."""
    root.ahead_tokens = PLENTY if grant.ahead_tokens is None else grant.ahead_tokens
    root.ahead_money = PLENTY if grant.ahead_money is None else grant.ahead_money
    root.set_wires()


def limit_figures(grant: Grant) -> dict[str, Any]:
    """The limit that a draw was refused for, and what is used of it, as a cause has them."""
    shown = (lambda figure: str(dollars(figure))) if grant.resource == "money" else (lambda figure: figure)
    return {"limit": shown(grant.most), "used": shown(grant.used)}


def make_store_failure(error: StoreError) -> Touchdown:
    """The run ends: where its budget or its journal is kept fails, or belongs to another run by now."""
    cause = StopCause(source="store", action="fail", reason=str(error), metrics={"kind": error.kind})
    return Touchdown(Verdict(state=AgentState.ERROR, cause=cause, gentle=False, cut=LoopOutcome.FAILED))


# --- what dead runs held: settled by their journal if it knows, else counted as used ------------------------------

_Figures = tuple[int | None, int | None, tuple[int, int]]
_ALL: _Figures = (None, None, (0, 0))


class WalletKeeper(SessionStore, WalletStore, Protocol):
    """A store with journals and wallets: the journals say what a dead run has used."""


async def sweep(store: WalletKeeper) -> int:
    """Write off the holds that are overdue; how many there were. Raises `StoreError` when the store fails.

    A journal has on disk, before each call, what that call may cost. So it says exactly what a dead run has used, a
    call in flight at its worst case. Where there is no journal, or one that cannot say, all that was held counts as
    used. So it does at first for a run that is silent and may only be slow; when it is silent for another minute it is
    kept from its journal, so that it can begin no further call, and then the journal is asked. In a read-only store
    nothing is written off.
    """
    done = 0
    for late in await await_store(call_store(store.overdue)):
        try:
            figures = await _read_figures_from_journal(store, late)
            if figures is not None:
                tokens, money, bills = figures
                disputed: dict[str, Any] = {"disputed": bills} if any(bills) else {}
                done += bool(await await_store(call_store(store.write_off, late, tokens, money, **disputed)))
        except StoreError as error:
            if error.kind != "read_only":
                raise
            break
    return done


async def find_wallet(store: object, name: str) -> Wallet:
    """A wallet of this name; raises `ConfigurationError` when there is none."""
    if not is_implementing(store, WalletStore):
        raise ConfigurationError(f"{store!r:.80} keeps no wallets")
    try:
        found = await await_store(call_store(store.wallets, name))
    except StoreError as error:
        if error.kind != "missing":
            raise
        found = ()
    if not found:
        raise ConfigurationError(f"there is no wallet {name!r:.80} in this store; `glidepath wallets set` makes one")
    return found[0]


async def account_of(store: WalletKeeper, terms: WalletTerms) -> Wallet:
    """The state of a wallet after settling overdue holds; all zeros until a run has drawn from it."""
    try:
        await sweep(store)
        found = await await_store(call_store(store.wallets, terms.name))
    except StoreError as error:
        if error.kind != "missing":
            raise
        found = ()
    if found:
        return found[0]
    return Wallet(
        name=terms.name,
        per=terms.per,
        parent=terms.parent,
        period="",
        max_tokens=terms.max_tokens,
        max_money=terms.max_money,
    )


async def _read_figures_from_journal(store: WalletKeeper, late: OverdueHold) -> _Figures | None:
    """The meter of the run as its journal has it; no figures when nobody knows; None when it is alive after all."""
    if late.session_id is None or not (late.dead or late.written_off):
        return _ALL
    try:
        if late.dead:
            return await _read(store, late)
        lease = await claim_session(store, late.session_id, create=False)
        try:
            return await _read(store, late)
        finally:
            await await_store(call_store(store.release, lease))
    except StoreError as error:
        if error.kind == "busy":
            return None
        if error.kind in ("missing", "damaged"):
            return _ALL
        raise


async def _read(store: SessionStore, late: OverdueHold) -> _Figures:
    folded = (await await_store(read_journal(store, late.session_id or ""))).folded
    snapshot = folded.snapshot
    if snapshot is None or late.key != f"{late.session_id}:{snapshot.run_id}":
        return _ALL  # there has been another run since
    if folded.children and not late.dead:
        return _ALL  # a child that is only slow writes its own journal
    used = await find_usage(store, late.session_id or "")
    return _ALL if used is None else (used.tokens, used.picodollars, used.disputed)
