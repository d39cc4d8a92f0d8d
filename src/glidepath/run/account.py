"""What a run has cost so far, model by model and child by child, and what it holds for calls to come."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from glidepath._wire import Record
from glidepath.run.ledger import Meter, Reservation
from glidepath.run.unsaved import Unsaved
from glidepath.run.waiting import Amount, Refusal
from glidepath.values import (
    FIGURES,
    SATURATED,
    Charge,
    ResultKind,
    RunResult,
    Spend,
    ToolResultMessage,
    Usage,
    Use,
    dollars,
    pico_of,
)

if TYPE_CHECKING:
    from glidepath.run.state import Run

_NOTHING: Final[Any] = MappingProxyType({})
_NO_AMOUNT: Final = Amount()

NEVER_RAN = frozenset(kind.value for kind in ResultKind if not kind.ran)


def usage_since(now: Usage, then: Usage) -> Usage:
    """What was used between two moments."""
    return Usage(
        now.input - then.input,
        now.output - then.output,
        now.cache_read - then.cache_read,
        now.cache_write - then.cache_write,
        now.reasoning - then.reasoning,
        now.estimated,
    )


class Account(Record, eq=False, gc=False):
    """What one model or child has cost: plain counters, because every call is added to them."""

    calls: int = 0
    money: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False

    def add(self, usage: Usage, money: int) -> None:
        """One more call."""
        self.calls += 1
        self.money += money
        self.input += usage.input
        self.output += usage.output
        if usage.cache_read or usage.cache_write or usage.reasoning:
            self.cache_read += usage.cache_read
            self.cache_write += usage.cache_write
            self.reasoning += usage.reasoning
        if usage.estimated:
            self.estimated = True

    def usage(self) -> Usage:
        """All calls together."""
        return Usage(
            min(self.input, SATURATED),
            min(self.output, SATURATED),
            min(self.cache_read, SATURATED),
            min(self.cache_write, SATURATED),
            min(self.reasoning, SATURATED),
            self.estimated,
        )

    def charge(self) -> Charge:
        """The same as a value."""
        return Charge(calls=self.calls, usage=self.usage(), picodollars=min(self.money, SATURATED))

    @classmethod
    def of(cls, charge: Charge) -> Account:
        """Continue from there."""
        account = cls()
        account.add(charge.usage, charge.picodollars)
        account.calls = charge.calls
        return account


def _charge(
    accounts: Mapping[str, Account], name: str, usage: Usage, money: int, calls: int = 1
) -> Mapping[str, Account]:
    accounts = {**accounts}
    account = accounts.setdefault(name, Account())
    account.add(usage, money)
    account.calls += calls - 1
    return accounts


class Spending(Record, eq=False, kw_only=True, gc=False):
    """What the run has spent, by whom, and what is set aside for it."""

    unsaved: Unsaved
    account: Account
    """Of the model in use."""
    other_accounts: Mapping[str, Account] = _NOTHING
    child_accounts: Mapping[str, Account] = _NOTHING
    money: int = 0
    """Pico-dollars in all."""
    landing_reserve: Amount
    landing_paid: bool = True
    """False when what was used before, by earlier runs or another process, left too little for a landing call."""
    least_landing: Amount = _NO_AMOUNT
    """The smallest reserve that a landing call can be paid from, for a start that cannot have the whole one."""
    unexplained: Amount | None = None
    """What the last call cost, when that was far more than it can explain: the next one may cost as much."""
    first_call: Reservation | None = None
    """On a budget above: reserved before take-off, traded for the first call."""
    admitted: bool = False
    """The landing is set aside with the ancestors."""
    landing_opened: bool = False
    """The landing is being made: what its reserve was for is used."""
    return_at: float = 0.0
    """When the configured model is tried again, while a fallback is in use."""
    burnt: array[float]
    """For each reply: when it came, and the tokens, pico-dollars, turns and tool calls of the meter by then."""

    def pay(self, usage: Usage, money: int) -> None:
        """A call of the model in use is paid."""
        self.money += money
        self.account.add(usage, money)

    def mark(self, at: float, meter: Meter) -> None:
        """A reply joined the transcript: what is used by now."""
        self.burnt.extend((at, meter.tokens, meter.money, meter.turns, meter.tool_calls))

    def use(self, limits: Mapping[str, float], began: float, now: float, meter: Meter) -> Use:
        """What was used after each reply; the last one is the run as it stands."""
        if self.burnt:
            del self.burnt[-FIGURES:]
            self.mark(now, meter)
        return Use(limits, self.burnt, began)

    def pay_beside(self, name: str, usage: Usage, money: int) -> None:
        """Charge a call made for another client, under its own name."""
        self.money += money
        self.other_accounts = _charge(self.other_accounts, name, usage, money)

    def charge_child(self, name: str, usage: Usage, money: int, before: RunResult | None = None) -> None:
        """Count what a child cost; of one that had paused `before`, only what came since."""
        if before is not None:
            usage, money = usage_since(usage, before.usage), money - pico_of(before.cost)
        self.money += money
        calls = 1 if before is None else 0
        self.child_accounts = _charge(self.child_accounts, name, usage, money, calls)
        self.unsaved["children_spent"] = None

    def switch(self, before: str, now: str) -> None:
        """Another model is in use: each has its own account."""
        accounts = {**self.other_accounts, before: self.account}
        self.account = accounts.pop(now) if now in accounts else Account()
        self.other_accounts = accounts

    def schedule_return(self, at: float) -> None:
        """When to try the configured model again."""
        self.return_at = at

    def correct(self, spent: Charge) -> None:
        """What the model in use has really cost, as a journal has it."""
        before, self.account = self.account, Account.of(spent)
        self.money += self.account.money - before.money

    def restore(self, spent: Charge, others: Mapping[str, Charge], children: Mapping[str, Charge]) -> None:
        """What an earlier process has spent."""
        self.account = Account.of(spent)
        self.other_accounts = {name: Account.of(charge) for name, charge in others.items()}
        self.child_accounts = {name: Account.of(charge) for name, charge in children.items()}
        accounts = (self.account, *self.other_accounts.values(), *self.child_accounts.values())
        self.money = sum([account.money for account in accounts])

    def usage(self) -> Usage:
        """All tokens, children included."""
        total = self.account.usage()
        if not self.other_accounts and not self.child_accounts:
            return total
        for account in (*self.other_accounts.values(), *self.child_accounts.values()):
            total = total + account.usage()
        return total

    # --- what is set aside ------------------------------------------------------------------------------------

    def keep_at_least(self, landing: Amount) -> None:
        """The smallest landing that a start may be made with."""
        self.least_landing = landing

    def record_dispute(self, unexplained: Amount | None) -> None:
        """The last call cost this much more than it can explain; None when it did not."""
        self.unexplained = unexplained

    def admit(self, first_call: Reservation, landing: Amount) -> None:
        """A budget above has set aside the landing and the first call."""
        self.first_call, self.landing_reserve = first_call, landing
        self.admitted = True

    def trade_first_call(self) -> None:
        """Its reservation is now part of another one."""
        self.first_call = None

    def drop_first_call(self) -> None:
        """Drop the reservation of the first call: it is not made."""
        if self.first_call is not None:
            self.first_call.cancel()
            self.first_call = None

    def open_landing(self) -> None:
        """What was set aside for the landing is used."""
        self.admitted, self.landing_opened = False, True

    def drop_calls(self, meter: Meter) -> None:
        """Drop what calls have reserved that will neither be made nor settled: the run was hit in the middle."""
        self.drop_first_call()
        with meter.tree.lock:
            tokens, money = meter.reserved_tokens, meter.reserved_money
            pledged_tokens, pledged_money = meter.pledged_tokens, meter.pledged_money
            for node in meter.lineage:
                node.reserved_tokens -= tokens
                node.reserved_money -= money
                node.pledged_tokens -= pledged_tokens
                node.pledged_money -= pledged_money
            meter.tree.wake_head()

    def settle_up(self, meter: Meter) -> None:
        """Give back what was promised and not used."""
        self.drop_first_call()
        if meter.parent is not None:
            # Also when nothing is left to give back: a waiter must not count on a run that has ended.
            meter.give_back(self.landing_reserve if self.admitted else _NO_AMOUNT)
            self.admitted = False


def dispute(meter: Meter, amount: Amount) -> None:
    """Note, in the whole lineage, how much of what is charged next no call explains."""
    with meter.tree.lock:
        for node in meter.lineage:
            tokens, money = node.disputed
            node.disputed = min(tokens + amount.tokens, SATURATED), min(money + amount.money, SATURATED)


def charge_earlier(meter: Meter, spent: Amount, disputed: Amount) -> None:
    """Charge what earlier executions have spent, before anything new is started."""
    reservation = meter.reserve(0, 0, turns=0)
    if not isinstance(reservation, Refusal):
        dispute(meter, disputed)
        reservation.settle(spent.tokens, spent.money)


def breakdown(run: Run) -> tuple[Spend, ...]:
    """Spend by model and child, and how often each tool ran; what a tool spent through children is under them."""
    accounts = (
        *[("model", name, account) for name, account in run.spend.other_accounts.items()],
        ("model", run.plan.model_name, run.spend.account),
        *[("child", name, account) for name, account in run.spend.child_accounts.items()],
    )
    spends = [
        Spend(
            kind=kind,
            name=name,
            calls=spend.calls,
            usage=spend.usage(),
            cost=dollars(spend.money) if run.spend.money else None,
        )
        for kind, name, spend in accounts
        if spend.calls
    ]
    cost = Decimal(0) if run.spend.money else None
    tools = [Spend(kind="tool", name=name, calls=calls, cost=cost) for name, calls in _calls_by_tool(run).items()]
    return (*spends, *tools)


def _calls_by_tool(run: Run) -> dict[str, int]:
    ran: dict[str, int] = {}
    if run.turn.tool_calls:
        for message in run.transcript.messages[run.transcript.first_new :]:
            if type(message) is ToolResultMessage and message.kind not in NEVER_RAN:
                ran[message.tool_name] = ran.get(message.tool_name, 0) + 1
    return ran
