"""The budget of one run in a fleet: holds what was drawn from the database, and draws more when a call needs it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent import Budget, Limits, WalletClient
from glidepath.agent.wallet_client import (
    PLENTY,
    has_room,
    limit_figures,
    make_store_failure,
    note_drawable_amount,
    reach,
)
from glidepath.apps.fleet.contain import FLEET
from glidepath.run import Amount, Meter
from glidepath.values import StopCause, StoreError, name_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from glidepath.apps.fleet.fleet_ledger import FleetLedger, Look
    from glidepath.run import Run
    from glidepath.spi import Grant

SPARE = 4  # draw this many times the request in advance if there is plenty, so that most runs draw once or twice
LOOK = 5.0  # seconds between two draws of a waiting run that gets no notification
PATIENCE = 30.0  # seconds to wait for what is held by runs without a worker
LONGEST = 300.0  # seconds to wait for what is held by runs with a worker; then the run lands


class FleetBudget(Budget):
    """The parent of one leg of one run. Its root holds what was granted to the run, and draws when a call needs more.

    A grant belongs to the run, not to the worker: the worker that continues the run also continues its grant. What the
    run had spent before is in its journal.
    """

    def __init__(
        self,
        ledger: FleetLedger,
        session: str,
        worker: str,
        look: Look,
        rated: Callable[[], frozenset[str]],
        purse: WalletClient | None = None,
    ) -> None:
        limited = look.limits_tokens or look.limits_money
        super().__init__(Limits(max_tokens=1) if limited else Limits())  # only "bounded or not": the caps are set below
        self.ledger = ledger
        self.session = session
        self.worker = worker
        self.leg: int | None = None
        self.refused: StopCause | None = None
        self.draws = 0
        self._rated = rated
        self._tenant = look.tenant
        self.purse = purse
        """What the run holds of a wallet, in addition to the fleet's budget."""
        if purse is not None:
            self.meter = Meter(self.meter.caps, purse.meter, depth=-1)
        root = self.meter
        root.tree.source = self
        root.caps = replace(root.caps, tokens=0 if look.limits_tokens else None, money=0 if look.limits_money else None)
        root.limited = limited
        root.ahead_tokens = root.ahead_money = PLENTY  # until the first draw
        root.near_money = 0
        root.set_wires()

    @property
    def spent(self) -> Amount:
        """What the run has used in all its legs."""
        return Amount(self.meter.tokens, self.meter.money)

    async def draw(
        self,
        run: Run,
        asked: Amount,
        least: Amount,
        *,
        patient: bool = True,
        around: tuple[Meter, ...] | None = None,
    ) -> None:
        """Make room for `asked` more in the root; see `glidepath.kernel.model_call.source`."""
        if self.purse is not None:
            await self.purse.draw(run, asked, least, patient=patient, around=around)
            if self.purse.refused is not None:
                self.refused = self.purse.refused
                return
        try:
            if self.leg is None:
                journal: Any = run.journal  # the fleet's runs have one
                leg = journal.lease.token
                await self.ledger.open(self.session, leg, self.worker)
                self.leg = leg
                root = self.meter
                root.count_from(
                    run.meter.tokens,
                    run.meter.money,
                    turns=root.turns,
                    tool_calls=root.tool_calls,
                    descendants=root.descendants,
                )
                root.disputed = run.meter.disputed
            starting = around is not None
            if has_room(self.meter, asked) or await self._draw_grant(asked, least, patient=patient, starting=starting):
                self.refused = None
        except StoreError as error:
            raise make_store_failure(error) from error

    async def _draw_grant(self, asked: Amount, least: Amount, *, patient: bool, starting: bool) -> bool:
        """Draw, and wait if others may give something back; False if refused, with the cause in `refused`."""
        drawn = await self._draw(asked, least, waiting=False, starting=starting)
        if drawn.verdict == "wait" and patient:
            drawn = await self._wait_for_grant(asked, least, starting=starting)
        if drawn.verdict == "refused":
            self.refused = _make_cause(drawn)
        elif drawn.verdict == "wait" and patient:
            name = drawn.tight or FLEET
            reason = f"the next call waited {LONGEST:g} s for what other runs hold of the budget of {name}"
            self.refused = StopCause(source=f"budget of {name}", action="graceful_exit", reason=reason)
        else:
            return True
        return False

    async def _wait_for_grant(self, asked: Amount, least: Amount, *, starting: bool) -> Grant:
        """Ask again whenever something is given back, and every few seconds in case a notification is lost.

        A start waits until it is granted or refused; `start_timeout`, the deadline and a cancellation end the wait.
        """
        bell, now = self.ledger.bell, asyncio.get_running_loop().time
        longest = inf if starting else LONGEST
        since = now()
        while True:
            with suppress(StoreError):  # without a bell, it asks every few seconds
                await bell.listen()
            # A start keeps its place, as the ledger does. A call goes behind the others: one of them may be smaller.
            with bell.queue_turn((self._tenant, starting), since if starting else now()) as turn:
                drawn = await self._draw(asked, least, waiting=True, starting=starting)
                over = drawn.verdict != "wait" or now() - since >= longest
                if not over:
                    await asyncio.wait([turn], timeout=min(LOOK, PATIENCE, longest))
            if over:
                for whose in ((self._tenant, False), (self._tenant, True)):
                    bell.wake_first_waiter(whose)  # there may be room for the next one, too
                return drawn
            if now() - since >= PATIENCE:
                await self.ledger.write_off(PATIENCE)

    async def _draw(self, asked: Amount, least: Amount, *, waiting: bool, starting: bool) -> Grant:
        root = self.meter
        leg: Any = self.leg
        # While a run waits, its pledged first call counts like its landing: others cannot get it.
        firm_tokens, firm_money = (root.pledged_tokens, root.pledged_money) if waiting else (0, 0)
        drawn = await self.ledger.draw(
            self.session,
            leg,
            spent=self.spent,
            landing=Amount(root.aside_tokens + firm_tokens, root.aside_money + firm_money),
            flight=Amount(root.reserved_tokens - firm_tokens, root.reserved_money - firm_money),
            asked=asked,
            least=least,
            spare=Amount(SPARE * max(0, asked.tokens), SPARE * max(0, asked.money)),
            starting=starting,
        )
        self.draws += 1
        if drawn.verdict == "fenced":
            raise StoreError(f"run {self.session!r} was taken over by another worker", kind="fenced")
        with root.tree.lock:
            reach(root, drawn.tokens, drawn.money)
            note_drawable_amount(root, drawn)
        return drawn

    def nearly_empty(self) -> str | None:
        """The wallet; the fleet itself has no name, so the reason just says "budget"."""
        return None if self.purse is None else self.purse.nearly_empty()

    async def pace(self, run: Run, tokens: int) -> None:
        """Wait for the next slot of the run's model, if the fleet limits how often it is called."""
        model = run.plan.model_name
        if model not in self._rated():
            return
        try:
            seconds = await self.ledger.take_slot(model, tokens)
        except StoreError as error:
            raise make_store_failure(error) from error
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def settle(self, outcome: str | None, error: str | None = None, *, spent: Amount | None = None) -> bool:
        """Give back what was not spent and record how the run ended; None if only this leg has ended.

        `spent` is what the journal says, for a leg that never started. False if another leg has started since, which
        then records the end.
        """
        return await self.ledger.settle(
            self.session, self.leg, spent or (Amount() if self.leg is None else self.spent), outcome, error
        )


def _make_cause(drawn: Grant) -> StopCause:
    return StopCause(
        source=f"budget of {drawn.tight}",
        action="graceful_exit",
        reason=f"the next call would exceed the {name_limit(drawn.resource)} of {drawn.tight}",
        metrics=limit_figures(drawn),
    )
