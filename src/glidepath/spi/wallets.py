"""The wallet port: budgets kept in a store, for many processes. Money is in whole pico-dollars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Protocol, runtime_checkable

from glidepath._wire import Value
from glidepath.values import UNPROVEN, dollars, experimental


class WalletTerms(Value, frozen=True, kw_only=True):
    """How a program declares a wallet: its limits, its period (one of `PERIODS`, or None) and the wallet above it."""

    name: str
    per: str | None = None
    parent: str | None = None
    max_tokens: int | None = None
    max_money: int | None = None


class Hold(Value, frozen=True, kw_only=True):
    """Who draws: one leg of one run. `line` are the wallets it draws from, the outermost first.

    `leg` grows each time the run is taken up again, and the latest leg owns the hold. `session_id` names the journal
    that knows what the run has spent; None when no journal has it on disk before each call.
    """

    key: str
    leg: int
    owner: str
    line: tuple[WalletTerms, ...]
    session_id: str | None = None


class WalletDraw(Value, frozen=True, kw_only=True):
    """The state of a run when it draws. What it has spent is the total of its meter, earlier legs included.

    `landing` is kept back for its landing, `flight` is reserved for calls in flight, `asked` is what the next call may
    cost and `least` the smallest call that is worth making. A draw that asks for nothing gives the surplus back.
    """

    spent_tokens: int = 0
    spent_money: int = 0
    landing_tokens: int = 0
    landing_money: int = 0
    flight_tokens: int = 0
    flight_money: int = 0
    asked_tokens: int = 0
    asked_money: int = 0
    least_tokens: int = 0
    least_money: int = 0
    starting: bool = False
    """The run has yet to start: it keeps nothing, so it may wait for what others keep for their landings."""
    around_tokens: int = 0
    around_money: int = 0
    """What runs keep that wait for this one to end: it never comes back in time."""
    disputed_tokens: int = 0
    disputed_money: int = 0
    """The part of what it has spent that its calls cannot explain: bills that a person has yet to accept."""


class Grant(Value, frozen=True, kw_only=True):
    """The answer to a draw: `granted`, `wait`, `refused`, `closed` or `fenced`.

    `tokens` and `money` are what the meter of the run may reach now; `ahead_*` is what could still be drawn (None is
    unlimited). `tight` and `period` name the wallet that refused, `most` and `used` are its limit and what is used.
    """

    verdict: str
    tokens: int = 0
    money: int = 0
    ahead_tokens: int | None = None
    ahead_money: int | None = None
    tight: str = ""
    period: str = ""
    resource: str = ""
    most: int = 0
    used: int = 0
    """Disputed bills included: nobody can draw them."""
    disputed: int = 0


class DisputedBill(Value, frozen=True, kw_only=True):
    """What a provider has billed one run beyond what its calls explain: held in `wallets` until a person decides."""

    id: str
    run: str
    """The key of the hold, which names the run."""
    wallets: tuple[str, ...]
    """The wallets that it is held in, the outermost first."""
    periods: tuple[str, ...]
    """The period of each."""
    tokens: int
    money: int
    at: float
    """When it was last billed, in seconds since the epoch."""

    @property
    def cost(self) -> Decimal:
        """Dollars."""
        return dollars(self.money)


class OverdueHold(Value, frozen=True, kw_only=True):
    """A hold whose owner is dead, or has been silent for the length of a lease."""

    key: str
    leg: int
    session_id: str | None
    dead: bool
    """True when its process is known to be dead; else it may only be slow."""
    written_off: bool = False
    """It was written off long ago at everything it held; its journal may have the real figures."""


class Wallet(Value, frozen=True, kw_only=True):
    """A wallet as its store knows it, in the current period.

    The limits are those in force: an operator's if there are any, else those of the program that opened it last.
    """

    name: str
    per: str | None
    parent: str | None
    period: str
    max_tokens: int | None
    max_money: int | None
    declared: tuple[int | None, int | None] = (None, None)
    """The limits of the program that opened it last, in tokens and money."""
    tokens: int = 0
    money: int = 0
    held_tokens: int = 0
    held_money: int = 0
    disputed_tokens: int = 0
    disputed_money: int = 0
    """Bills that a person has yet to accept or reject: not used, and nobody can draw it."""
    holds: int = 0
    """How many runs draw from it now, those that began in an earlier period included."""
    closed: bool = False
    overruled: bool = False
    """True when an operator has set its limits."""
    history: Mapping[str, tuple[int, int]] = {}
    """Tokens and money that were used in every period, this one included."""

    @property
    def cost(self) -> Decimal:
        """Dollars used in this period."""
        return dollars(self.money)

    @property
    def held_cost(self) -> Decimal:
        """Dollars that runs hold for calls in flight and for their landings."""
        return dollars(self.held_money)

    @property
    def disputed_cost(self) -> Decimal:
        """Dollars of bills that a person has yet to accept or reject."""
        return dollars(self.disputed_money)

    @property
    def max_cost(self) -> Decimal | None:
        """The limit in dollars; None is unlimited."""
        return None if self.max_money is None else dollars(self.max_money)

    @property
    def left_tokens(self) -> int | None:
        """Tokens that are neither used nor held nor disputed; None is unlimited."""
        taken = self.tokens + self.held_tokens + self.disputed_tokens
        return None if self.max_tokens is None else max(0, self.max_tokens - taken)

    @property
    def left_cost(self) -> Decimal | None:
        """Dollars that are neither used nor held nor disputed; None is unlimited."""
        taken = self.money + self.held_money + self.disputed_money
        return None if self.max_money is None else dollars(max(0, self.max_money - taken))


@experimental(reason=UNPROVEN)
@runtime_checkable
class WalletStore(Protocol):
    """Keeps wallets for many processes: holds what a call may cost before it, and charges what it did cost after it.

    Contract: every method is one transaction; one that fails raises `StoreError` and nothing else. In every wallet of a
    line, in every period, used + held + disputed never exceeds the limit, unless a run spent more than it was granted.
    A period is one of UTC by the store's clock; what was held in one period is used in it. A hold that is not
    renewed for the length of a lease is overdue; nothing is given back until it is written off. The disputed part of
    what a run has spent is a bill: not used, and out of reach, until a person decides. No method blocks the event
    loop, and nothing of the store outlives the last hold of a loop.

    What happens when it crashes: a run whose wallet fails, or does not answer for 30 seconds, makes no further call; it
    ends ERROR/FAILED with the cause `store`, its text is kept, and its hold is written off when it is overdue.
    """

    async def draw(self, hold: Hold, want: WalletDraw) -> Grant:
        """Take out what the next call may cost, in every wallet of the line or in none, and renew the hold.

        Creates new wallets, and gives the others the limits in `hold.line`. Raises kind `conflict` when a wallet has
        another period or another parent. What a new hold has spent before its first draw is not counted.
        """

    async def open_wallets(self, line: Sequence[WalletTerms]) -> None:
        """Create new wallets, and give the others these limits; raises kind `conflict`, as `draw` does."""

    async def settle(self, hold: Hold, tokens: int, money: int, *, disputed: tuple[int, int] = (0, 0)) -> bool:
        """End a hold with the meter at these totals: that is used, the rest is free. False if another leg has it.

        `disputed` are the tokens and money of these totals that are disputed; what is known already never shrinks.
        """

    async def overdue(self) -> Sequence[OverdueHold]:
        """The holds that are due to be written off."""

    async def write_off(
        self, hold: OverdueHold, tokens: int | None, money: int | None, *, disputed: tuple[int, int] = (0, 0)
    ) -> bool:
        """Settle a hold that is still overdue at these totals of its meter; None: all that it holds counts as used.

        A hold settled at None is corrected if its run turns up after all, or listed again if it has a journal. False
        when it is no longer overdue.
        """

    async def wallets(self, name: str | None = None) -> Sequence[Wallet]:
        """Every wallet, ordered by name; with `name`, only that one, if it exists."""

    async def set_wallet(self, name: str, *, max_tokens: int | None, max_money: int | None) -> None:
        """An operator's limits, which outrank those of programs; both None restores those of programs.

        Raises kind `missing`, and kind `conflict` for a limit on what the wallet does not limit.
        """

    async def close_wallet(self, name: str, *, closed: bool = True) -> None:
        """Refuse every further draw, or allow them again; what is held stays held. Raises kind `missing`."""

    async def remove_wallet(self, name: str) -> None:
        """Forget a wallet and its history; raises `missing`.

        Raises `busy` for one that is held, is a parent, or has bills that nobody has decided on.
        """

    async def bills(self, name: str | None = None) -> Sequence[DisputedBill]:
        """The bills that nobody has decided on, the oldest first; with `name`, those that are held in that wallet."""

    async def decide_bill(self, bill_id: str, *, accepted: bool) -> bool:
        """Decide on a bill in every wallet that holds it: accepted it is used, else it is free again.

        False when there is no such bill, or it was decided.
        """
