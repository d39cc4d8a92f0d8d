"""The rows of wallets, the same in every store: wallets, their accounts, what runs hold, and disputed bills.

An amount is a pair: tokens, and money in pico-dollars.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from glidepath._wire import Record
from glidepath.spi import WalletTerms
from glidepath.values import SATURATED

Pair = tuple[int, int]
Line = tuple[tuple[str, str], ...]
"""The accounts of a hold: names of wallets with their period."""
NOTHING: Pair = (0, 0)
_FIVE_HOURS = 18_000.0
_NAMES = {"5h": "%Y-%m-%dT%H:%M", "day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}


def add_amounts(left: Pair, right: Pair) -> Pair:
    """The sum, as far as every store can count."""
    return min(left[0] + right[0], SATURATED), min(left[1] + right[1], SATURATED)


def subtract_amounts(left: Pair, right: Pair) -> Pair:
    """The difference."""
    return left[0] - right[0], left[1] - right[1]


class WalletRow(Record, kw_only=True):
    """A wallet: what the program says of it, and what an operator has set."""

    name: str
    per: str | None = None
    parent: str | None = None
    most: tuple[int | None, int | None] = (None, None)
    ruled: tuple[int | None, int | None] = (None, None)
    closed: bool = False

    def limit(self, resource: int) -> int | None:
        """The limit that holds; an operator can move one, not add one: runs do not count what nobody limits."""
        declared, ruled = self.most[resource], self.ruled[resource]
        return declared if declared is None or ruled is None else ruled


class PeriodRow(Record, kw_only=True):
    """What is used and held of a wallet in one period."""

    name: str
    period: str
    used: Pair = NOTHING
    held: Pair = NOTHING
    firm: Pair = NOTHING
    disputed: Pair = NOTHING


class HoldRow(Record, kw_only=True):
    """What one run holds. `base` is where its meter stood when these accounts were opened; the rest counts from there.

    `ended` is when it was written off without anybody knowing what was spent; 0 while its run is in flight.
    """

    key: str
    leg: int
    owner: str
    session_id: str | None
    expires: float
    line: Line
    base: Pair = NOTHING
    spent: Pair = NOTHING
    grant: Pair = NOTHING
    firm: Pair = NOTHING
    ended: float = 0.0
    disputed_base: Pair = NOTHING
    disputed: Pair = NOTHING
    """What was disputed since `disputed_base`, decided or not: a run says in total what is."""


class BillRow(Record, kw_only=True):
    """What one run was billed in these accounts, cannot explain, and nobody has decided on."""

    id: str
    key: str
    line: Line
    at: float
    amount: Pair


class WalletTransaction:
    """Some rows of a store. What is added or changed is noted, so that it can be written back."""

    __slots__ = ("again", "bills", "changed", "decided", "dropped", "holds", "new_bills", "now", "periods", "wallets")

    def __init__(self, now: float) -> None:
        self.now = now
        self.wallets: dict[str, WalletRow] = {}
        self.periods: dict[tuple[str, str], PeriodRow] = {}
        self.holds: dict[str, HoldRow] = {}
        self.bills: dict[str, BillRow] = {}
        self.decided: list[str] = []
        """Bills that are over."""
        self.new_bills: list[BillRow] = []
        """What has come to a bill, or to a new one: a store adds it to the one with this id."""
        self.changed: set[int] = set()  # ids of rows
        self.dropped: list[str] = []
        """Holds that are over: they are deleted before what is in `holds` is written."""
        self.again = False  # the same work was tried before, and nobody knows whether that was written

    def note(self, row: Record) -> None:
        """This row is to be written."""
        self.changed.add(id(row))

    def is_changed(self, row: Record) -> bool:
        """True when it is to be written."""
        return id(row) in self.changed

    def account(self, place: tuple[str, str]) -> PeriodRow:
        """The account of a wallet in a period; a new one where there is none."""
        found = self.periods.get(place)
        if found is None:
            found = self.periods[place] = PeriodRow(name=place[0], period=place[1])
            self.note(found)
        return found

    def line(self, terms: Iterable[WalletTerms]) -> Line:
        """The accounts that are open now."""
        return tuple((one.name, period_of(one.per, self.now)) for one in terms)


def period_of(per: str | None, now: float) -> str:
    """The period that is running, by what it is called in UTC; the same forever when there is none.

    Five hours have no name of their own: they are counted from 1970 on, and called by their beginning.
    """
    if per is None:
        return ""
    begun = now - now % _FIVE_HOURS if per == "5h" else now
    return datetime.fromtimestamp(begun, tz=UTC).strftime(_NAMES[per])
