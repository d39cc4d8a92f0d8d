"""What one model or child has cost so far."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from glidepath.messages import ToolResultMessage, Usage
from glidepath.outcome import Charge, Spend, dollars

if TYPE_CHECKING:
    from glidepath.run.state import Run

__all__ = ["Account", "breakdown"]

NEVER_RAN = frozenset(
    {
        "unknown_tool",
        "hidden_tool",
        "invalid_arguments",
        "withdrawn",
        "skipped",
        "blocked",
        "cut",
        "interrupted",
        "denied",
        "answered",
        "not_decided",
        "breaker_open",
    }
)


class Account:
    """What one model or child has cost: plain counters, because every call is added to them."""

    __slots__ = ("cache_read", "cache_write", "calls", "estimated", "input", "money", "output", "reasoning")

    def __init__(self) -> None:
        self.calls = self.money = 0
        self.input = self.output = self.cache_read = self.cache_write = self.reasoning = 0
        self.estimated = False

    def add(self, usage: Usage, money: int) -> None:
        """One more call."""
        self.calls += 1
        if money:
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
        return Usage(self.input, self.output, self.cache_read, self.cache_write, self.reasoning, self.estimated)

    def charge(self) -> Charge:
        """The same as a value."""
        return Charge(calls=self.calls, usage=self.usage(), picodollars=self.money)

    @classmethod
    def of(cls, charge: Charge) -> Account:
        """Go on from there."""
        account = cls()
        account.add(charge.usage, charge.picodollars)
        account.calls = charge.calls
        return account


def breakdown(run: Run) -> tuple[Spend, ...]:
    """Spend by model and child, and how often each tool ran; what a tool spent through children stands with them."""
    accounts = (
        *[("model", name, account) for name, account in run.other_accounts.items()],
        ("model", run.plan.model_name, run.account),
        *[("child", name, account) for name, account in run.child_accounts.items()],
    )
    spends = [
        Spend(
            kind=kind,
            name=name,
            calls=spend.calls,
            usage=spend.usage(),
            cost=dollars(spend.money) if run.money else None,
        )
        for kind, name, spend in accounts
        if spend.calls
    ]
    cost = Decimal(0) if run.money else None
    tools = [Spend(kind="tool", name=name, calls=calls, cost=cost) for name, calls in _calls_by_tool(run).items()]
    return (*spends, *tools)


def _calls_by_tool(run: Run) -> dict[str, int]:
    ran: dict[str, int] = {}
    if run.tool_calls:
        for message in run.messages[run.first_new :]:
            if type(message) is ToolResultMessage and message.kind not in NEVER_RAN:
                ran[message.tool_name] = ran.get(message.tool_name, 0) + 1
    return ran
